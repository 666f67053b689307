"""Where the cache file is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nnk import config
from nnk.cache import location
from tests import ROOT


def test_the_file_wins_over_the_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NN_KERNEL_CACHE_PATH", str(tmp_path / "my.nnk"))
    monkeypatch.setenv("NN_KERNEL_CACHE_DIR", str(tmp_path / "folder"))
    config.reset()
    assert location.cache_path() == tmp_path / "my.nnk"


def test_the_directory_wins_over_the_system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NN_KERNEL_CACHE_DIR", str(tmp_path))
    config.reset()
    assert location.cache_path() == tmp_path / "kernels.nnk"
    assert list(tmp_path.iterdir()) == []


def test_the_system_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("NN_KERNEL_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    config.reset()
    assert location.cache_path() == tmp_path / "nnk" / "kernels.nnk"


def test_without_a_home_it_is_still_absolute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NN_KERNEL_CACHE_DIR")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    config.reset()
    path = location.cache_path()
    assert path.is_absolute()
    assert path.parent.name == f"nnk-{os.getuid()}"


def test_relative_and_home_paths_become_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NN_KERNEL_CACHE_PATH", "~/a.nnk")
    config.reset()
    assert location.cache_path() == tmp_path / "a.nnk"
    with config.override(cache_path="b.nnk"):
        assert location.cache_path() == Path.cwd() / "b.nnk"


def test_extra_paths(tmp_path: Path) -> None:
    with config.override(cache_extra=f"{tmp_path / 'a'}{os.pathsep}{os.pathsep}{tmp_path / 'b'}"):
        assert location.extra_paths() == (tmp_path / "a", tmp_path / "b")
    assert location.extra_paths() == ()


def test_odd_bytes_are_shown_as_escapes() -> None:
    assert location.shown(os.fsdecode(b"/tmp/\xff")) == "/tmp/\\xff"


def test_asking_for_the_path_loads_little() -> None:
    code = ("import sys; from nnk.cache.location import cache_path; cache_path(); "
            "print([m for m in ('numpy', 'portalocker', 'xxhash', 'vulkan') if m in sys.modules])")
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
                         capture_output=True, text=True, check=True)
    assert out.stdout == "[]\n"
