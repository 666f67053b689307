"""Comparison of results: digests and the first difference in bits."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from nnk.errors import ParityError
from nnk.expr.node import Tensor

__all__ = ["compare", "digest"]


def digest(value: Tensor | np.ndarray[Any, Any]) -> str:
    """Return 16 hex digits over shape, dtype and bits of ``value``: equal digests mean equal results.

    The hash is BLAKE2b with 8 bytes over the dtype's name, the shape as text, and the row-major little-endian
    elements. It is stable between versions, engines and machines.
    """
    array = value.numpy() if isinstance(value, Tensor) else np.asarray(value)
    data = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    state = hashlib.blake2b(digest_size=8)
    state.update(f"{array.dtype.name}:{','.join(map(str, array.shape))}:".encode())
    state.update(data.tobytes())
    return state.hexdigest()


def compare(cpu: np.ndarray[Any, Any], gpu: np.ndarray[Any, Any]) -> None:
    """Check that two float32 results have the same shape and bits.

    Raises
    ------
    ParityError
        With the index of the first difference and both bit patterns.
    """
    if cpu.shape != gpu.shape:
        raise ParityError(f"Expected equal shapes, got {cpu.shape} and {gpu.shape}")
    left = np.ascontiguousarray(cpu, np.float32).reshape(-1).view(np.uint32)
    right = np.ascontiguousarray(gpu, np.float32).reshape(-1).view(np.uint32)
    different = np.flatnonzero(left != right)
    if different.size:
        first = int(different[0])
        index = tuple(int(i) for i in np.unravel_index(first, cpu.shape)) if cpu.shape else ()
        raise ParityError(f"{different.size} of {left.size} elements differ; the first at {index}: "
                          f"0x{int(left[first]):08x} and 0x{int(right[first]):08x}",
                          index=index, cpu_bits=int(left[first]), gpu_bits=int(right[first]))
