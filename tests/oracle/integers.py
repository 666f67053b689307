"""Integer ops and roundings to halves, over float32 arrays that carry the bits of registers.

An int32 is the bits of a float32. NumPy computes in int64, and the result is cut to 32 bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.oracle.arith import INF, NAN, ONE

Floats = npt.NDArray[np.float32]


def _bits(x: Floats) -> npt.NDArray[np.uint32]:
    return np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)


def _floats(u: Any) -> Floats:
    return np.ascontiguousarray(u, dtype=np.uint32).view(np.float32)


def _truth(condition: npt.NDArray[Any]) -> Floats:
    return _floats(np.where(condition, np.uint32(ONE), np.uint32(0)))


def _integers(a: Floats) -> npt.NDArray[np.int64]:
    return np.asarray(_bits(a).view(np.int32), np.int64)


def _words(i: npt.NDArray[Any]) -> Floats:
    return _floats(np.asarray(i, np.int64) & 0xFFFFFFFF)


def saturated(a: Floats, low: int, high: int) -> npt.NDArray[np.int64]:
    """Toward zero, NaN to 0, the rest to the nearest integer of the range (R13)."""
    with np.errstate(all="ignore"):
        whole = np.clip(np.trunc(np.asarray(a, np.float64)), low, high)
    return np.where(np.isnan(whole), 0, whole).astype(np.int64)


def _floor_divided(a: npt.NDArray[np.int64], b: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.where(b == 0, 0, a // np.where(b == 0, 1, b))


def _modulo(a: npt.NDArray[np.int64], b: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.where(b == 0, 0, a % np.where(b == 0, 1, b))


@np.vectorize(otypes=[np.int64])
def _power(a: int, b: int) -> int:
    """Python's own power of a word; a negative exponent leaves 1 and -1, all others are below 1."""
    if b >= 0:
        return pow(int(a), int(b), 2**32)
    return 0 if abs(a) != 1 else int(a) ** (int(b) % 2)


def _half_way(a: Floats, dtype: Any) -> Floats:
    with np.errstate(all="ignore"):
        u = _bits(np.asarray(a).astype(dtype).astype(np.float32))
    return _floats(np.where(u & 0x7FFFFFFF > INF, np.uint32(NAN), u))


def round_bfloat16(a: Floats) -> Floats:
    """The nearest float32 whose lower 16 bits are zero, ties to the one with an even upper half."""
    u = _bits(a).astype(np.uint64)
    lower, upper = u & 0xFFFF, u >> 16
    upper = upper + ((lower > 0x8000) | ((lower == 0x8000) & (upper & 1 == 1)))
    return _floats(np.where(u & 0x7FFFFFFF > INF, np.uint64(NAN), upper << 16))


#: Op number -> function over float32 arrays of one shape.
INTEGER_OPS: dict[int, Callable[..., Floats]] = {
    100: lambda a: _half_way(a, np.float16),
    101: round_bfloat16,
    102: lambda a: _integers(a).astype(np.float32),
    103: lambda a: _words(saturated(a, -2**31, 2**31 - 1)),
    104: lambda a: _words(saturated(a, 0, 255)),
    105: lambda a: _floats(_bits(a) >> 29),
    106: lambda a: _floats(_bits(a) & 0xFF),
    107: lambda a, b: _words(_integers(a) + _integers(b)),
    108: lambda a, b: _words(_integers(a) - _integers(b)),
    109: lambda a, b: _words(_integers(a) * _integers(b)),
    110: lambda a: _words(-_integers(a)),
    111: lambda a: _words(np.abs(_integers(a))),
    112: lambda a, b: _words(np.minimum(_integers(a), _integers(b))),
    113: lambda a, b: _words(np.maximum(_integers(a), _integers(b))),
    114: lambda a, b: _truth(_integers(a) < _integers(b)),
    115: lambda a, b: _truth(_integers(a) <= _integers(b)),
    116: lambda a, b: _truth(_bits(a) == _bits(b)),
    117: lambda a, b: _truth(_bits(a) != _bits(b)),
    118: lambda a, b: _floats(_bits(a) & _bits(b)),
    119: lambda a, b: _floats(_bits(a) | _bits(b)),
    120: lambda a, b: _floats(_bits(a) ^ _bits(b)),
    121: lambda a: _floats(~_bits(a)),
    122: lambda a, b: _words(np.where(_bits(b) < 32, _integers(a) << (_bits(b) % 32).astype(np.int64), 0)),
    123: lambda a, b: _words(_integers(a) >> np.minimum(_bits(b), 31).astype(np.int64)),
    124: lambda a, b: _words(_floor_divided(_integers(a), _integers(b))),
    125: lambda a, b: _words(_modulo(_integers(a), _integers(b))),
    126: lambda a, b: _words(_power(_integers(a), _integers(b))),
}
