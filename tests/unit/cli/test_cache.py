"""`nnk cache path`: one line, no file made, nothing heavy loaded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nnk import config
from nnk.cli import main
from tests.commands import python


def test_path_is_that_of_the_settings(cache_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "path"]) == 0
    assert capsys.readouterr().out == f"{cache_dir / 'kernels.nnk'}\n"
    assert list(cache_dir.iterdir()) == []


def test_file_setting_wins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with config.override(cache_path=str(tmp_path / "mine.nnk")):
        assert main(["cache", "path"]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'mine.nnk'}\n"


@pytest.mark.parametrize("exists", [False, True])
def test_json(exists: bool, cache_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if exists:
        (cache_dir / "kernels.nnk").write_bytes(b"")
    assert main(["cache", "path", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"path": str(cache_dir / "kernels.nnk"), "exists": exists}


@pytest.mark.parametrize("arguments", ["cache path", "cache path --json", "--version", "--help", "config"])
def test_loads_neither_numpy_nor_vulkan(arguments: str) -> None:
    done = python("import sys; from nnk.cli import main; code = main(sys.argv[1].split()); "
                  "print(sorted({'numpy', 'vulkan', 'cffi', 'nnk._fast.shaderc', 'nnk._fast.cpu', 'rich'} "
                  "& set(sys.modules)), file=sys.stderr); sys.exit(code)", arguments)
    assert (done.returncode, done.stderr) == (0, "[]\n")
