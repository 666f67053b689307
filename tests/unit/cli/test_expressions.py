"""`nnk explain` and `nnk parity`."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnk import config
from nnk.cli import main
from nnk.engines.cpu import CpuEngine
from nnk.engines.parity import SUITE
from nnk.engines.suite import CASES, anchors
from nnk.generator.version import GENERATOR_VERSION
from tests import ROOT
from tests.commands import NO_VULKAN, nnk


def run(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main(list(arguments)) == code
    out, err = capsys.readouterr()
    assert err == ""
    return out


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(list(arguments)) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err


# --------------------------------------------------------------------------- explain

def test_explain_names_key_spec_and_glsl(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "explain", "tanh(x*w+3)", "--shape", "x=4,384", "--shape", "w=384", "--device", "cpu")
    golden = (ROOT / "tests" / "golden" / "cli" / "explain.txt").read_text(encoding="utf-8")
    assert out.split("  meta: ")[0].replace(f" v{GENERATOR_VERSION}.", " v*.") == golden
    assert "#version 450" in out
    assert "nn_tanh" in out
    assert re.search(r"meta: .*form=elementwise", out)


def test_explain_json(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(run(capsys, "explain", "softmax(x @ w) @ w", "--device", "cpu", "--json"))
    assert sorted(found) == ["dispatch_count", "engine", "kernels", "plan"]
    assert found["engine"] == "cpu (CPU)"
    assert found["dispatch_count"] == 3
    assert [kernel["form"] for kernel in found["kernels"]] == ["matmul", "reduce"]
    assert [kernel["runs"] for kernel in found["kernels"]] == [2, 1]
    for kernel in found["kernels"]:
        assert sorted(kernel) == ["cached", "cols", "form", "glsl", "key", "meta", "rows", "runs", "spec",
                                  "variant"]
        assert re.fullmatch(r"v\d+\.[0-9a-f]{16}.*", kernel["key"])
        assert kernel["cached"] == "none"


def test_explain_says_whether_the_cache_has_it(vulkan: Any, cache_dir: Path) -> None:
    arguments = ("explain", "tanh(x*w+3)", "--device", "vulkan")
    first = nnk(*arguments)
    assert (first.returncode, first.stderr) == (0, "")
    (key,) = re.findall(r"^kernel (\S+) .* cache: miss$", first.stdout, re.MULTILINE)
    assert nnk("parity", "tanh(x*w+3)").returncode == 0
    again = json.loads(nnk(*arguments, "--json").stdout)
    assert [(kernel["key"], kernel["cached"]) for kernel in again["kernels"]] == [(key, "hit")]
    assert (cache_dir / "kernels.nnk").stat().st_size > 0


def test_explain_of_nothing_to_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "explain", "x", "--device", "cpu") == (
        "plan a8c7f832281a39c5: 0 dispatches of 0 kernels on cpu (CPU)\n")
    assert ": 0 dispatches" in run(capsys, "explain", "x + 1", "--device", "cpu", "--shape", "x=0")


@pytest.mark.parametrize("text", ["__import__('os')", "a.b", "x[0]", "lambda: x", "x +", "(" * 500, "1 + 2"])
def test_explain_refuses(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("explain", "parity"):
        assert refused(capsys, command, "--device", "cpu", "--", text).startswith("ExprError: Expected ")


@pytest.mark.parametrize(("option", "text"), [
    ("x", "Expected --shape NAME=N,N (for example x=4,384), got 'x'"),
    ("y=3", "Expected --shape for x or w, got one for y"),
    ("x=100000,100000", "Expected --shape with at most 8 axes and 268435456 elements, got 'x=100000,100000'"),
    ("x=2,3", "Expected shapes that broadcast for add, got (2, 3) and (64, 64)")])
def test_wrong_shapes(option: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("explain", "parity"):
        assert refused(capsys, command, "x + w", "--device", "cpu", "--shape", option) == f"ShapeError: {text}\n"


# --------------------------------------------------------------------------- parity

def test_parity_of_the_suite(vulkan: Any, capsys: pytest.CaptureFixture[str]) -> None:
    lines = run(capsys, "parity", "--shape", "x=32,32", "--shape", "w=32,32").splitlines()
    assert lines[0].split() == ["cpu", vulkan.name, "expression"]
    for text, line in zip([*SUITE, *CASES], lines[1:], strict=True):
        cpu, gpu, verdict, shown = line.split(maxsplit=3)
        assert re.fullmatch("[0-9a-f]{16}", cpu)
        assert (gpu, verdict, shown) == (cpu, "equal", text)


def test_parity_holds_the_suite_to_its_anchors(monkeypatch: pytest.MonkeyPatch,
                                               capsys: pytest.CaptureFixture[str]) -> None:
    lines = run(capsys, "parity", "--device", "cpu").splitlines()
    assert lines[0].split() == ["cpu", "cpu", "anchor", "expression"]
    for line in lines[1:]:
        cpu, device, anchor, verdict, _ = line.split(maxsplit=4)
        assert (cpu, device, verdict) == (anchor, anchor, "equal")
    digests = {**anchors().digests, "log(x)": "0" * 16}
    monkeypatch.setattr("nnk.cli.expressions.anchors", lambda: dataclasses.replace(anchors(), digests=digests))
    lines = run(capsys, "parity", "--device", "cpu", code=1).splitlines()
    assert [line.split()[-1] for line in lines if "DIFFERENT" in line] == ["log(x)"]
    assert lines[-1] == "log(x): the anchor is 0000000000000000"


def test_parity_json(vulkan: Any, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(run(capsys, "parity", "x + 1", "x @ w", "--shape", "w=64,3", "--json"))
    assert found["device"] == vulkan.device_name
    assert [row["expression"] for row in found["results"]] == ["x + 1", "x @ w"]
    for row in found["results"]:
        assert sorted(row) == ["anchor", "cpu", "device", "equal", "expression"]
        assert row["cpu"] == row["device"]
        assert row["anchor"] is None
        assert row["equal"] is True


def test_parity_refuses_fast_numerics(vulkan: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with config.override(numerics="fast"):
        assert main(["parity", "x + 1"]) == 1
    assert "ConfigError: Expected exact numerics for nnk parity, got fast" in capsys.readouterr().err


def test_explain_shows_the_variant(vulkan: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for settings, variant in (({"tier": "T3"}, "t3"), ({"numerics": "fast"}, "fast"), ({}, "")):
        with config.override(**settings):
            found = json.loads(run(capsys, "explain", "x + 1", "--json"))
        assert [kernel["variant"] for kernel in found["kernels"]] == [variant]
        assert found["kernels"][0]["key"].partition("#")[2] == variant


def test_parity_depends_on_the_seed(capsys: pytest.CaptureFixture[str]) -> None:
    first, again, other = (run(capsys, "parity", "x * w", "--device", "cpu", "--seed", seed) for seed in "778")
    assert first == again != other


class Wrong(CpuEngine):
    """An engine that flips the lowest bit of one element."""

    def run(self, step: Any, inputs: Any, *outputs: Any) -> None:
        super().run(step, inputs, *outputs)
        outputs[0].view(np.uint32)[70] ^= 1


def test_difference_is_found(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("nnk.cli.expressions.exact_engine", lambda *_: Wrong())
    out = run(capsys, "parity", "x * 0 + 1", "x", code=1)
    assert [line.split()[2] for line in out.splitlines()[1:3]] == ["DIFFERENT", "equal"]
    assert out.splitlines()[3] == ("x * 0 + 1: 1 of 4096 elements differ; the first at (1, 6): 0x3f800000 and "
                                   "0x3f800001")
    assert len(out.splitlines()) == 4
    found = json.loads(run(capsys, "parity", "x * 0 + 1", "x", "--json", code=1))
    assert [row["equal"] for row in found["results"]] == [False, True]
    assert "(1, 6): 0x3f800000 and 0x3f800001" in found["results"][0]["difference"]
    assert found["results"][0]["cpu"] != found["results"][0]["device"]


def test_parity_without_vulkan() -> None:
    done = nnk("parity", **NO_VULKAN)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("NoDeviceError: ")
    assert "Traceback" not in done.stderr
