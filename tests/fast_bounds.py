"""Error bounds of fast numerics: what Vulkan promises of the functions that FAST_FUNCTIONS use, and what a device has.

A bound is in units in the last place of the exact result, or absolute where Vulkan promises no more. The reference is
float64 arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def _sigmoid(x: Floats) -> Floats:
    return 1 / (1 + np.exp(-x))


def _cubic(x: Floats) -> Floats:
    return 2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3)


class Bound(NamedTuple):
    """One function: exact values, operands, the bound at an operand, and whether it is absolute."""

    exact: Callable[..., Floats]
    low: float
    high: float
    bound: Callable[[Floats], Any]
    is_absolute: bool = False


#: Op -> bound. An exponential is off by 3 + 2 |x| units, a quotient by 2.5, an inverse root by 2; a logarithm by 3, or
#: by 2^-21 between 0.5 and 2; sine and cosine by 2^-11 from -pi to pi.
BOUNDS: dict[str, Bound] = {
    "exp": Bound(np.exp, -80.0, 80.0, lambda x: 3 + 2 * np.abs(x)),
    "exp2": Bound(np.exp2, -120.0, 120.0, lambda x: 3 + 2 * np.abs(x)),
    "log": Bound(np.log, 2.0, 1e30, lambda x: 3),
    "log2": Bound(np.log2, 2.0, 1e30, lambda x: 3),
    "log near 1": Bound(np.log, 0.5, 2.0, lambda x: 2.0 ** -21, True),
    "log2 near 1": Bound(np.log2, 0.5, 2.0, lambda x: 2.0 ** -21, True),
    "sqrt": Bound(np.sqrt, 1e-30, 1e30, lambda x: 5),
    "rsqrt": Bound(lambda x: 1 / np.sqrt(x), 1e-30, 1e30, lambda x: 2),
    "sin": Bound(np.sin, -np.pi, np.pi, lambda x: 2.0 ** -11, True),
    "cos": Bound(np.cos, -np.pi, np.pi, lambda x: 2.0 ** -11, True),
    "tanh": Bound(np.tanh, -9.0, 9.0, lambda x: 2.0 ** -11, True),
    "sigmoid": Bound(_sigmoid, -80.0, 80.0, lambda x: 7 + 2 * np.abs(x)),
    "silu": Bound(lambda x: x * _sigmoid(x), -80.0, 80.0, lambda x: 8 + 2 * np.abs(x)),
    "gelu_tanh": Bound(lambda x: x * _sigmoid(_cubic(x)), -8.0, 8.0, lambda x: 12 + 8 * np.abs(_cubic(x))),
}


def operands(name: str, count: int, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """Return operands of the range of a bound: by magnitude where it spans many, evenly elsewhere."""
    row = BOUNDS[name]
    if row.low > 0 and row.high / row.low > 100:
        return np.exp(rng.uniform(np.log(row.low), np.log(row.high), count)).astype(np.float32)
    return rng.uniform(row.low, row.high, count).astype(np.float32)


def errors(name: str, x: npt.NDArray[np.float32], found: npt.NDArray[np.float32]) -> tuple[float, float]:
    """Return the largest error, and the largest share of the bound that an error takes."""
    row = BOUNDS[name]
    exact = row.exact(x.astype(np.float64))
    error = np.abs(found.astype(np.float64) - exact)
    if not row.is_absolute:
        error = error / np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)
    return float(error.max()), float((error / row.bound(x.astype(np.float64))).max())
