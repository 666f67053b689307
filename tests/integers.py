"""Random programs over integer, bool and half tensors, run by nnk and by NumPy.

NumPy wraps as the contract does, so it is the oracle of integer arithmetic; where nnk's dtype differs from NumPy's
(there are no 64-bit types), the result is cut to it.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Callable
from typing import Any

import numpy as np

import nnk
from nnk import ops

#: The ops that these programs reach; the strategies of floats have all others.
OPS = tuple(op for op in ops.OPS if op.kind in ("integer", "cast"))

Array = np.ndarray[Any, Any]

#: Name -> (nnk's call, NumPy's call), of two operands.
BINARY: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    **{name: (getattr(operator, name), getattr(operator, name)) for name in (
        "add", "sub", "mul", "and_", "or_", "xor", "lshift", "rshift", "floordiv", "mod", "lt", "le", "gt", "ge", "eq",
        "ne", "truediv")},
    "maximum": (nnk.maximum, np.maximum), "minimum": (nnk.minimum, np.minimum),
    "logical_and": (nnk.logical_and, np.logical_and), "logical_or": (nnk.logical_or, np.logical_or),
    "logical_xor": (nnk.logical_xor, np.logical_xor), "fmod": (nnk.fmod, np.fmod),
    # NumPy refuses negative exponents.
    "pow": (lambda a, b: a ** nnk.where(b < 0, ~b, b), lambda a, b: a ** np.where(b < 0, ~b, b)),
}
UNARY: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "neg": (operator.neg, operator.neg), "abs": (abs, abs), "invert": (operator.invert, operator.invert),
    "sign": (nnk.sign, np.sign), "square": (nnk.square, np.square), "logical_not": (nnk.logical_not, np.logical_not),
    "floor": (nnk.floor, np.floor), "isnan": (nnk.isnan, np.isnan),
}

#: What NumPy makes of operands -> what nnk makes of them.
NARROWED = {"int64": "int32", "uint64": "int32", "float64": "float32", "int16": "int32", "int8": "int32",
            "float16": "float32"}


def values(rand: random.Random, dtype: str, shape: tuple[int, ...]) -> Array:
    """Values of a dtype, its extremes among them."""
    rng = np.random.default_rng(rand.randrange(2**32))
    if dtype == "bool":
        return np.asarray(rng.random(shape) < 0.5)
    limits = np.iinfo(dtype)
    special = np.array([limits.min, limits.max, 0, 1, 2, 31, limits.max // 2 + 1], np.int64)
    drawn = rng.integers(limits.min, limits.max, shape, endpoint=True)
    small = rng.integers(max(limits.min, -9), 9, shape)
    choice = rng.random(shape)
    picked = np.where(choice < 0.3, rng.choice(special, shape), np.where(choice < 0.6, small, drawn))
    return np.asarray(picked).astype(dtype)


def narrowed(result: Any) -> Array:
    """NumPy's result in the dtype that nnk has for it."""
    array = np.asarray(result)
    name = NARROWED.get(array.dtype.name, array.dtype.name)
    with np.errstate(all="ignore"):
        return array.astype(name)
