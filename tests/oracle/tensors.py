"""Tensor functions over NumPy float32 arrays, by the numerics contract, one node at a time.

Shapes and broadcasting are NumPy's own; values come from :mod:`tests.oracle.arrays`. A NaN may have any payload on
the way: :func:`bits_of` shows the one that an observer sees.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from nnk import ops
from tests.oracle import arrays

Floats = npt.NDArray[np.float32]
_CODE = {op.name: op.code for op in ops.OPS}


def bits_of(x: Any) -> npt.NDArray[np.uint32]:
    """The bits of a result, its NaNs canonical."""
    return arrays.bits_of(arrays.canonical(np.asarray(x, np.float32))).reshape(np.shape(x))


def elementwise(op: str, *values: Any) -> Floats:
    """An op of the op table over arrays and numbers, broadcast."""
    grids = np.broadcast_arrays(*(np.asarray(value, np.float32) for value in values))
    flat = [np.ascontiguousarray(grid).reshape(-1) for grid in grids]
    return np.asarray(arrays.ARRAY_OPS[_CODE[op]](*flat), np.float32).reshape(grids[0].shape)


def relu(x: Floats) -> Floats:
    return elementwise("max", x, 0.0)


def power(x: Floats, n: float) -> Floats:
    if n == 0:
        return np.ones_like(x)
    if n == 1:
        return x
    if n == -1:
        return elementwise("div", 1.0, x)
    return elementwise("mul", x, x) if n == 2 else elementwise("sqrt", x) if n == 0.5 else elementwise("pow", x, n)


# ------------------------------------------------------------------------------------------------- reductions

def _axes(x: Floats, axis: Any) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(x.ndim))
    return tuple(sorted(one % x.ndim for one in (axis if isinstance(axis, tuple) else (axis,)))) if x.ndim else ()


def _reduce(function: Any, x: Floats, axis: Any, keepdims: bool) -> Floats:
    axes = _axes(x, axis)
    if x.ndim and not axes:
        return x
    kept = [one for one in range(x.ndim) if one not in axes]
    count = math.prod(x.shape[one] for one in axes)
    rows = np.ascontiguousarray(np.transpose(x, (*kept, *axes))).reshape(*(x.shape[one] for one in kept), count)
    result = np.asarray(function(rows), np.float32)
    return result.reshape([1 if one in axes else size for one, size in enumerate(x.shape) if keepdims or one in kept])


def sum_of(x: Floats, axis: Any = None, keepdims: bool = False) -> Floats:
    return _reduce(arrays.row_sum, x, axis, keepdims)


def max_of(x: Floats, axis: Any = None, keepdims: bool = False) -> Floats:
    return _reduce(arrays.row_max, x, axis, keepdims)


def min_of(x: Floats, axis: Any = None, keepdims: bool = False) -> Floats:
    return elementwise("neg", max_of(elementwise("neg", x), axis, keepdims))


def mean(x: Floats, axis: Any = None, keepdims: bool = False) -> Floats:
    count = math.prod(x.shape[one] for one in _axes(x, axis))
    return elementwise("div", sum_of(x, axis, keepdims), np.float32(count))


def var(x: Floats, axis: Any = None, ddof: float = 0, keepdims: bool = False) -> Floats:
    centred = elementwise("sub", x, mean(x, axis, True))
    count = math.prod(x.shape[one] for one in _axes(x, axis))
    return elementwise("div", sum_of(elementwise("mul", centred, centred), axis, keepdims),
                       np.float32(max(count - ddof, 0)))


def std(x: Floats, axis: Any = None, ddof: float = 0, keepdims: bool = False) -> Floats:
    return elementwise("sqrt", var(x, axis, ddof, keepdims))


def any_of(x: Floats, axis: Any = None, keepdims: bool = False) -> Floats:
    return np.asarray(np.any(np.isnan(x) | (x != 0), _axes(x, axis), keepdims=keepdims), np.float32)


def all_of(x: Floats, axis: Any = None, keepdims: bool = False) -> Floats:
    return np.asarray(np.all(np.isnan(x) | (x != 0), _axes(x, axis), keepdims=keepdims), np.float32)


def softmax(x: Floats, axis: int = -1) -> Floats:
    if x.shape[axis] == 0:
        return x
    moved = np.moveaxis(x, axis, -1)
    weights = elementwise("exp", elementwise("sub", moved, max_of(moved, -1, True)))
    return np.moveaxis(elementwise("div", weights, sum_of(weights, -1, True)), -1, axis)


def layer_norm(x: Floats, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Floats:
    centred = elementwise("sub", x, mean(x, -1, True))
    variance = mean(elementwise("mul", centred, centred), -1, True)
    result = elementwise("mul", centred, elementwise("rsqrt", elementwise("add", variance, eps)))
    result = result if weight is None else elementwise("mul", result, weight)
    return result if bias is None else elementwise("add", result, bias)


def rms_norm(x: Floats, weight: Any = None, eps: float = 1e-6) -> Floats:
    square = mean(elementwise("mul", x, x), -1, True)
    result = elementwise("mul", x, elementwise("rsqrt", elementwise("add", square, eps)))
    return result if weight is None else elementwise("mul", result, weight)


# ------------------------------------------------------------------------------------------------- matmul

def matmul(a: Floats, b: Floats) -> Floats:
    """By R8: k ascending from -0.0; the product over no k is +0."""
    left = a[None, :] if a.ndim == 1 else a
    right = b[:, None] if b.ndim == 1 else b
    batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    k = left.shape[-1]
    assert k == right.shape[-2]
    total = np.full((*batch, left.shape[-2], right.shape[-1]), -0.0 if k else 0.0, np.float32)
    with np.errstate(all="ignore"):
        for step in range(k):
            total = total + left[..., :, step, None] * right[..., None, step, :]
    total = total[..., 0, :] if a.ndim == 1 else total
    return total[..., 0] if b.ndim == 1 else total
