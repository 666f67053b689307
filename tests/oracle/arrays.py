"""The numerics contract over NumPy float32 arrays: its ops, reduction order and matmul order.

The functions are in :mod:`tests.oracle.functions`; names of both are reached from here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.oracle.arith import INF, NAN, SIGN
from tests.oracle.functions import (
    Floats,
    Words,
    atan2,
    bits_of,
    canonical,
    cos,
    erf,
    exp,
    exp2,
    expm1,
    floats_of,
    gelu,
    gelu_tanh,
    log,
    log1p,
    log2,
    nan_in,
    pow,
    quiet,
    remainder,
    rsqrt_array,
    sigmoid,
    silu,
    sin,
    tanh,
    with_sign_of,
)
from tests.oracle.integers import INTEGER_OPS

__all__ = [
    "ARRAY_OPS", "Floats", "Words", "atan2", "bits_of", "canonical", "cos", "erf", "exp", "exp2", "expm1",
    "floats_of", "gelu", "gelu_tanh", "log", "log1p", "log2", "matmul", "maximum_array", "minimum_array", "nan_in",
    "pow", "quiet", "remainder", "row_max", "row_sum", "rsqrt_array", "sigmoid", "silu", "sin", "tanh", "with_sign_of"]


def _keys(x: Floats) -> npt.NDArray[np.int32]:
    i = bits_of(x).view(np.int32)
    return i ^ ((i >> 31) & np.int32(0x7FFFFFFF))


def maximum_array(a: Floats, b: Floats) -> Floats:
    y = np.where(_keys(a) >= _keys(b), a, b)
    return np.where(nan_in(a) | nan_in(b), floats_of([NAN])[0], y)


def minimum_array(a: Floats, b: Floats) -> Floats:
    y = np.where(_keys(a) <= _keys(b), a, b)
    return np.where(nan_in(a) | nan_in(b), floats_of([NAN])[0], y)


def _truth(test: Any) -> Floats:
    return np.where(test, np.float32(1), np.float32(0))


#: Op number -> function over float32 arrays of one shape.
ARRAY_OPS: dict[int, Callable[..., Floats]] = {
    0: lambda a: floats_of(bits_of(a) ^ np.uint32(SIGN)),
    1: exp,
    2: log,
    3: quiet(np.sqrt),
    4: rsqrt_array,
    5: lambda a: floats_of(bits_of(a) & 0x7FFFFFFF),
    6: tanh,
    7: quiet(lambda a, b: a + b),
    8: quiet(lambda a, b: a - b),
    9: quiet(lambda a, b: a * b),
    10: quiet(lambda a, b: a / b),
    11: maximum_array,
    12: minimum_array,
    13: quiet(lambda a, b: _truth(a < b)),
    14: quiet(lambda a, b: _truth(a <= b)),
    15: quiet(lambda a, b: _truth(a > b)),
    16: quiet(lambda a, b: _truth(a >= b)),
    17: quiet(lambda a, b: _truth(a == b)),
    18: quiet(lambda a, b: _truth(a != b)),
    19: lambda a, b, c: np.where(bits_of(a) & 0x7FFFFFFF != 0, b, c),
    64: erf,
    65: sigmoid,
    66: silu,
    67: gelu,
    68: gelu_tanh,
    69: lambda a: a,
    70: sin,
    71: cos,
    72: quiet(np.floor),
    73: quiet(np.ceil),
    74: quiet(np.trunc),
    75: quiet(np.rint),
    76: lambda a: np.where(nan_in(a), a, np.where(a == 0, np.float32(0), with_sign_of(a, np.ones_like(a)))),
    77: lambda a: _truth(nan_in(a)),
    78: lambda a: _truth(bits_of(a) & 0x7FFFFFFF == INF),
    79: lambda a: _truth(bits_of(a) & 0x7FFFFFFF < INF),
    80: exp2,
    81: log2,
    82: log1p,
    83: expm1,
    84: pow,
    85: atan2,
    86: quiet(np.fmod),
    87: remainder,
    **INTEGER_OPS,
}


@quiet
def row_sum(x: Floats) -> Floats:
    """Sum the last axis in the order of R7."""
    n = x.shape[-1]
    if n == 0:
        return np.zeros(x.shape[:-1], np.float32)
    totals = []
    for start in range(0, n, 16384):
        chunk = x[..., start:start + 16384]
        lanes = np.full((*x.shape[:-1], 256), -0.0, np.float32)
        for first in range(0, chunk.shape[-1], 256):
            part = chunk[..., first:first + 256]
            width = part.shape[-1]
            lanes[..., :width] = lanes[..., :width] + part
        half = 128
        while half:
            lanes = lanes[..., :half] + lanes[..., half:2 * half]
            half //= 2
        totals.append(lanes[..., 0])
    return totals[0] if n <= 16384 else row_sum(np.stack(totals, axis=-1))


@quiet
def row_max(x: Floats) -> Floats:
    """Maximum of the last axis; -inf when it is empty, NaN when one element is."""
    keys = _keys(x)
    top = np.max(keys, axis=-1, initial=np.int32(-0x7F800001))
    y = floats_of((top ^ ((top >> 31) & np.int32(0x7FFFFFFF))).view(np.uint32))
    return np.where(np.any(nan_in(x), axis=-1), floats_of([NAN])[0], y)


@quiet
def matmul(a: Floats, b: Floats) -> Floats:
    """(m, k) by (k, n): k ascending from -0.0, product and sum rounded apart (R8); +0 for k = 0 (R5)."""
    total = np.full((a.shape[0], b.shape[1]), -0.0 if a.shape[1] else 0.0, np.float32)
    for k in range(a.shape[1]):
        total = total + a[:, k, None] * b[None, k, :]
    return total
