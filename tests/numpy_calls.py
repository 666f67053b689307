"""A generated table of calls that nnk and NumPy both understand, and what their results have in common.

A call is one function over tensors of some shapes, dtypes and strides, or over such a tensor and a scalar. The rule of
a call says how its result is compared: ``exact`` has NumPy's bits; ``zeros`` has them but for the sign of a zero, which
NumPy leaves open; ``moved`` has them but for the payload of a NaN, which may come through; ``passed`` too, of functions
that need not compute; ``flag`` has NumPy's truth values; ``cast`` converts a dtype, with NumPy's bits but for those of
a NaN; ``ulps`` is within the bound of docs/numerics.md of NumPy's float64 result; ``contract`` has the bits of the slow
oracle, because NumPy's order of a sum is its own. Shape and dtype are NumPy's in each, without the dtypes that tensors
cannot have; a NaN that was computed is the one NaN.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import nnk
from nnk.engines.parity import special_values
from tests import ROOT
from tests.oracle import tensors as oracle

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]

#: Dtypes that the functions of real numbers are called with, those of integers and bits, and those that views move.
DTYPES = ("float32", "float16")
WHOLE_DTYPES = ("int32", "uint8", "bool")
MOVED_DTYPES = ("float32", "float16", "int32", "uint8", "bool")

#: NumPy's dtype of a result -> ours, where the device has no such dtype (docs/numerics.md, "Dtypes").
NARROWED = {"float64": "float32", "int64": "int32", "uint64": "int32", "float16": "float32", "int8": "int32",
            "int16": "int32", "uint16": "int32", "uint32": "int32"}

NAN_BITS = 0x7FC00000


@dataclass(frozen=True)
class Call:
    """``ours`` takes tensors, ``numpys`` arrays of the same layout; scalars are the same object for both."""

    name: str
    arrays: tuple[Any, ...]
    layouts: tuple[str, ...]
    ours: Function
    numpys: Function
    rule: str
    contract: Function | None = None

    def __repr__(self) -> str:
        words = [f"{array.dtype}{array.shape}:{layout}" if isinstance(array, np.ndarray) else repr(array)
                 for array, layout in zip(self.arrays, self.layouts, strict=True)]
        return f"{self.name}({', '.join(words)})"


# ------------------------------------------------------------------------------------------------- operands

def _broadcast(t: Any, shape: tuple[int, ...]) -> Any:
    return np.broadcast_to(t, shape) if isinstance(t, np.ndarray) else t.broadcast_to(shape)


#: Name -> the same view of an array and of a tensor, and the axes that it needs.
LAYOUTS: dict[str, tuple[int, Function]] = {
    "plain": (0, lambda t: t),
    "broadcast": (0, lambda t: _broadcast(t, (2, *t.shape))),
    "new axis": (0, lambda t: t[None]),
    "reversed": (1, lambda t: t[..., ::-1]),
    "steps": (1, lambda t: t[..., 1::2]),
    "backwards": (1, lambda t: t[::-2]),
    "transposed": (2, lambda t: t.T),
    "cut": (2, lambda t: t[1:, ..., :-1]),
    "row": (2, lambda t: t[0]),
    "column": (2, lambda t: t[..., :1]),
}

SHAPES = ((), (1,), (5,), (0,), (3, 0), (0, 3), (1, 1), (4, 7), (1, 6), (6, 1), (2, 3, 4), (2, 1, 5), (261,), (3, 70))


def laid_out(t: Any, layout: str) -> Any:
    """The view ``layout`` of an array or tensor."""
    return LAYOUTS[layout][1](t)


def fits(shape: tuple[int, ...], layout: str) -> bool:
    """Whether a shape has the axes of a layout."""
    return LAYOUTS[layout][0] <= len(shape) and (layout != "row" or shape[0] > 0)


@functools.cache
def values(shape: tuple[int, ...], dtype: str, seed: int) -> Array:
    """Values of a dtype, special ones among them."""
    if np.dtype(dtype).kind == "f":
        return np.asarray(special_values(shape, seed)).astype(dtype)
    rng = np.random.default_rng(seed)
    whole = rng.integers(-2**31, 2**31, shape)
    small = rng.integers(-3, 4, shape)
    edges = rng.choice(np.int64([-2**31, 2**31 - 1, 0, 1, -1, 255, 256, 128]), shape)
    return np.asarray(np.choose(rng.integers(0, 3, shape), (whole, small, edges)), np.int64).astype(dtype)


# ------------------------------------------------------------------------------------------------- functions

def _real(function: Callable[[float], float]) -> Function:
    """A function of :mod:`math` over float64 arrays."""
    return lambda x: np.vectorize(function, otypes=[np.float64])(x) if x.size else np.asarray(x, np.float64)


def _gelu(x: float) -> float:
    return -0.0 if x == -math.inf else x * 0.5 * math.erfc(-x / math.sqrt(2.0))


def _logistic(x: Array) -> Array:
    return np.where(x < 0, np.exp(np.minimum(x, 0)) / (1 + np.exp(np.minimum(x, 0))), 1 / (1 + np.exp(-np.abs(x))))


#: Name -> (nnk's, NumPy's, rule), of one operand.
UNARY: dict[str, tuple[Function, Function, str]] = {
    "negative": (nnk.negative, np.negative, "exact"), "-": (lambda x: -x, lambda x: -x, "exact"),
    "+": (lambda x: +x, lambda x: +x, "moved"), "abs": (abs, abs, "exact"),
    "absolute": (nnk.absolute, np.absolute, "exact"), "sqrt": (nnk.sqrt, np.sqrt, "exact"),
    "square": (nnk.square, np.square, "exact"), "reciprocal": (nnk.reciprocal, np.reciprocal, "exact"),
    "floor": (nnk.floor, np.floor, "exact"), "ceil": (nnk.ceil, np.ceil, "exact"),
    "trunc": (nnk.trunc, np.trunc, "exact"), "round": (nnk.round, np.rint, "exact"),
    "sign": (nnk.sign, np.sign, "exact"), "relu": (nnk.relu, lambda x: np.maximum(x, np.float32(0)), "zeros"),
    "x**2": (lambda x: x ** 2, lambda x: x ** 2, "exact"), "x**-1": (lambda x: x ** -1, np.reciprocal, "exact"),
    "x**1": (lambda x: x ** 1, lambda x: x ** 1, "passed"), "x**0": (lambda x: x ** 0, lambda x: x ** 0, "exact"),
    "isnan": (nnk.isnan, np.isnan, "flag"), "isinf": (nnk.isinf, np.isinf, "flag"),
    "isfinite": (nnk.isfinite, np.isfinite, "flag"), "logical_not": (nnk.logical_not, np.logical_not, "flag"),
    "exp": (nnk.exp, np.exp, "ulps"), "exp2": (nnk.exp2, np.exp2, "ulps"), "expm1": (nnk.expm1, np.expm1, "ulps"),
    "log10": (nnk.log10, np.log10, "ulps"), "arcsin": (nnk.arcsin, np.arcsin, "ulps"),
    "arccos": (nnk.arccos, np.arccos, "ulps"),
    "log": (nnk.log, np.log, "ulps"), "log2": (nnk.log2, np.log2, "ulps"), "log1p": (nnk.log1p, np.log1p, "ulps"),
    "sin": (nnk.sin, np.sin, "ulps"), "cos": (nnk.cos, np.cos, "ulps"), "tanh": (nnk.tanh, np.tanh, "ulps"),
    "rsqrt": (nnk.rsqrt, lambda x: 1 / np.sqrt(x), "ulps"), "erf": (nnk.erf, _real(math.erf), "ulps"),
    "sigmoid": (nnk.sigmoid, _logistic, "ulps"), "gelu": (nnk.gelu, _real(_gelu), "ulps"),
    "silu": (nnk.silu, lambda x: np.where(x == -np.inf, -0.0, x * _logistic(x)), "ulps"),
}

#: Name -> (nnk's, NumPy's, rule), of two operands.
BINARY: dict[str, tuple[Function, Function, str]] = {
    "+": (lambda a, b: a + b, lambda a, b: a + b, "exact"), "-": (lambda a, b: a - b, lambda a, b: a - b, "exact"),
    "*": (lambda a, b: a * b, lambda a, b: a * b, "exact"), "/": (lambda a, b: a / b, lambda a, b: a / b, "exact"),
    "maximum": (nnk.maximum, np.maximum, "zeros"), "minimum": (nnk.minimum, np.minimum, "zeros"),
    "<": (lambda a, b: a < b, lambda a, b: a < b, "flag"), "<=": (lambda a, b: a <= b, lambda a, b: a <= b, "flag"),
    ">": (lambda a, b: a > b, lambda a, b: a > b, "flag"), ">=": (lambda a, b: a >= b, lambda a, b: a >= b, "flag"),
    "==": (lambda a, b: a == b, lambda a, b: a == b, "flag"), "!=": (lambda a, b: a != b, lambda a, b: a != b, "flag"),
    "logical_and": (nnk.logical_and, np.logical_and, "flag"), "logical_or": (nnk.logical_or, np.logical_or, "flag"),
    "clip to 2": (lambda a, b: nnk.clip(a, b, 2.0), lambda a, b: np.clip(a, b, np.float32(2)), "zeros"),
    "clip below": (lambda a, b: nnk.clip(a, None, b), lambda a, b: np.clip(a, None, b), "zeros"),
    "%": (lambda a, b: a % b, lambda a, b: a % b, "exact"), "//": (lambda a, b: a // b, lambda a, b: a // b, "exact"),
    "fmod": (nnk.fmod, np.fmod, "exact"), "remainder": (nnk.remainder, np.remainder, "exact"),
    "floor_divide": (nnk.floor_divide, np.floor_divide, "exact"), "atan2": (nnk.arctan2, np.arctan2, "ulps"),
    "pow": (lambda a, b: a ** b, np.power, "ulps"), "hypot": (nnk.hypot, np.hypot, "ulps"),
    "where": (lambda a, b: nnk.where(a, b, a), lambda a, b: np.where(a, b, a), "exact"),
}

def _positive(module: Any, b: Any) -> Any:
    """Exponents without those that NumPy refuses."""
    return module.absolute(module.maximum(b, -9)) if b.dtype == np.int32 else b


#: Name -> (function, dtypes): integers and bools, whose results are exact.
WHOLE_UNARY: dict[str, tuple[Function, Function, tuple[str, ...]]] = {
    "negative": (nnk.negative, np.negative, ("int32", "uint8")), "abs": (abs, abs, WHOLE_DTYPES),
    "square": (nnk.square, np.square, ("int32", "uint8")), "sign": (nnk.sign, np.sign, ("int32", "uint8")),
    "invert": (nnk.invert, np.invert, WHOLE_DTYPES), "floor": (nnk.floor, np.floor, ("int32", "uint8")),
    "logical_not": (nnk.logical_not, np.logical_not, WHOLE_DTYPES),
    "isnan": (nnk.isnan, np.isnan, WHOLE_DTYPES), "+": (lambda x: +x, lambda x: +x, ("int32", "uint8")),
}
WHOLE_BINARY: dict[str, tuple[Function, Function, tuple[str, ...]]] = {
    "+": (lambda a, b: a + b, lambda a, b: a + b, WHOLE_DTYPES),
    "-": (lambda a, b: a - b, lambda a, b: a - b, ("int32", "uint8")),
    "*": (lambda a, b: a * b, lambda a, b: a * b, WHOLE_DTYPES),
    "//": (lambda a, b: a // b, lambda a, b: a // b, ("int32", "uint8")),
    "%": (lambda a, b: a % b, lambda a, b: a % b, ("int32", "uint8")),
    "fmod": (nnk.fmod, np.fmod, WHOLE_DTYPES),
    "pow": (lambda a, b: nnk.power(a, _positive(nnk, b)), lambda a, b: np.power(a, _positive(np, b)), WHOLE_DTYPES),
    "&": (lambda a, b: a & b, lambda a, b: a & b, WHOLE_DTYPES),
    "|": (lambda a, b: a | b, lambda a, b: a | b, WHOLE_DTYPES),
    "^": (lambda a, b: a ^ b, lambda a, b: a ^ b, WHOLE_DTYPES),
    "maximum": (nnk.maximum, np.maximum, WHOLE_DTYPES), "minimum": (nnk.minimum, np.minimum, WHOLE_DTYPES),
    "<": (lambda a, b: a < b, lambda a, b: a < b, WHOLE_DTYPES),
    ">=": (lambda a, b: a >= b, lambda a, b: a >= b, WHOLE_DTYPES),
    "==": (lambda a, b: a == b, lambda a, b: a == b, WHOLE_DTYPES),
    "!=": (lambda a, b: a != b, lambda a, b: a != b, WHOLE_DTYPES),
    "logical_and": (nnk.logical_and, np.logical_and, WHOLE_DTYPES),
    "logical_or": (nnk.logical_or, np.logical_or, WHOLE_DTYPES),
    "where": (lambda a, b: nnk.where(a, b, a), lambda a, b: np.where(a, b, a), WHOLE_DTYPES),
}

PAIRS = (((), ()), ((3,), ()), ((4, 7), (7,)), ((4, 7), (4, 1)), ((4, 7), (1, 7)), ((4, 7), (4, 7)), ((1, 5), (6, 1)),
         ((2, 3, 4), (3, 1)), ((2, 1, 4), (1, 3, 1)), ((0,), (1,)), ((0, 3), (3,)), ((3, 0), (3, 1)), ((5,), (1,)),
         ((3, 1), (0,)), ((2, 3, 4), (4,)))

#: Scalars that take the dtype of the tensor beside them, in NumPy too.
SCALARS = (0, 1, -3, True, False, 0.0, -0.0, 0.1, 1e-45, 1e300, -1e39, 16777217, math.inf, -math.inf, math.nan,
           np.float32(0.1), np.float16(0.1), np.int8(-7), np.int16(300), np.uint8(200), np.bool_(True))

#: Name -> (nnk's, NumPy's, rule, the oracle's).
REDUCTIONS: dict[str, tuple[Function, Function, str, Function]] = {
    "sum": (nnk.sum, np.sum, "contract", oracle.sum_of), "mean": (nnk.mean, np.mean, "contract", oracle.mean),
    "max": (nnk.max, np.max, "zeros", oracle.max_of), "min": (nnk.min, np.min, "zeros", oracle.min_of),
}

PRODUCTS = (((3,), (3,)), ((3,), (3, 4)), ((2, 3), (3,)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((2, 3), (5, 3, 4)),
            ((5, 2, 3), (5, 3, 4)), ((4, 1, 2, 3), (5, 3, 4)), ((0, 3), (3, 4)), ((2, 0), (0, 4)), ((0,), (0,)),
            ((2, 3), (3, 0)), ((0, 2, 3), (3, 4)), ((1, 1), (1, 1)), ((1, 3), (3, 1)))

#: Views: text, nnk's and NumPy's, and the shapes that they are for.
MOVES: tuple[tuple[str, Function, tuple[tuple[int, ...], ...]], ...] = (
    ("T", lambda t: t.T, SHAPES),
    ("swapaxes", lambda t: t.swapaxes(0, -1), tuple(shape for shape in SHAPES if shape)),
    ("transpose", lambda t: t.transpose(2, 0, 1), ((2, 3, 4), (2, 1, 5))),
    ("ravel", lambda t: t.reshape(-1), tuple(shape for shape in SHAPES)),
    ("one more axis", lambda t: t.reshape(1, *t.shape), SHAPES),
    ("merge", lambda t: t.reshape(6, 4), ((2, 3, 4),)), ("split", lambda t: t.reshape((2, 2, -1)), ((4, 7),)),
    ("merge reversed", lambda t: t[:, ::-1].reshape(-1), ((4, 7), (3, 0), (0, 3), (2, 3, 4))),
    ("merge transposed", lambda t: t.T.reshape(-1), ((4, 7), (2, 3, 4), (1, 6))),
    ("index", lambda t: t[-1], tuple(shape for shape in SHAPES if shape and shape[0])),
    ("indices", lambda t: t[1, 2], ((4, 7), (2, 3, 4))), ("last", lambda t: t[..., 0], ((5,), (4, 7), (2, 3, 4))),
    ("new axes", lambda t: t[:, None, ..., None], tuple(shape for shape in SHAPES if shape)),
    ("slices", lambda t: t[3:0:-1, 1:], ((4, 7), (2, 3, 4), (6, 1))),
    ("nothing", lambda t: t[2:2], tuple(shape for shape in SHAPES if shape)),
    ("beyond", lambda t: t[10:, ...], tuple(shape for shape in SHAPES if shape)),
    ("everything", lambda t: t[...], SHAPES),
)

#: Functions of axes, which NumPy and nnk both have: name, arguments after the tensor, shapes.
AXES: tuple[tuple[str, tuple[Any, ...], tuple[tuple[int, ...], ...]], ...] = (
    ("squeeze", (), SHAPES), ("squeeze", (-1,), ((1,), (6, 1), (1, 1))), ("squeeze", ((0, 1),), ((1, 1),)),
    ("expand_dims", (0,), SHAPES), ("expand_dims", (-1,), SHAPES), ("expand_dims", ((0, -1),), SHAPES),
    ("moveaxis", (0, -1), tuple(shape for shape in SHAPES if shape)), ("ravel", (), SHAPES),
    ("moveaxis", ((2, 0), (0, 1)), ((2, 3, 4), (2, 1, 5))), ("swapaxes", (0, -1), ((4, 7), (3, 0), (2, 3, 4))),
)

_INDICES = ([0, 1, 0], [-1, 0], [[0, -1], [1, 0]], [])


# ------------------------------------------------------------------------------------------------- the table

def unary_calls() -> Iterator[Call]:
    """Every function of one operand over every shape and layout."""
    for dtype, (seed, (name, (ours, numpys, rule))) in itertools.product(DTYPES, enumerate(UNARY.items())):
        for shape in SHAPES:
            layouts = LAYOUTS if dtype == "float32" else ("plain", "reversed")
            for layout in filter(functools.partial(fits, shape), layouts):
                yield Call(name, (values(shape, dtype, seed),), (layout,), ours, numpys, rule)


def _broadcasts(arrays: tuple[Array, ...], layouts: tuple[str, ...]) -> bool:
    shapes = [laid_out(array, layout).shape for array, layout in zip(arrays, layouts, strict=True)]
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        return False
    return True


def binary_calls() -> Iterator[Call]:
    """Every function of two operands over pairs of shapes, with strides on either side, and over scalars."""
    for dtype, (seed, (name, (ours, numpys, rule))) in itertools.product(DTYPES, enumerate(BINARY.items())):
        for left, right in PAIRS:
            arrays = values(left, dtype, 40 + seed), values(right, dtype, 70 + seed)
            for layouts in (("plain", "plain"), ("new axis", "broadcast"), ("reversed", "reversed"),
                            ("backwards", "plain")):
                if all(map(fits, (left, right), layouts)) and _broadcasts(arrays, layouts):
                    yield Call(name, arrays, layouts, ours, numpys, rule)
                if dtype != "float32":
                    break
        for scalar in SCALARS if dtype == "float32" else ():
            yield Call(name, (values((3, 8), dtype, seed), scalar), ("reversed", "plain"), ours, numpys, rule)
            if not name.startswith("clip"):
                yield Call(name, (scalar, values((3, 8), dtype, seed)), ("plain", "transposed"), ours, numpys, rule)


def whole_calls() -> Iterator[Call]:
    """Integers and bools: wrap-around, division by zero, mixed dtypes, casts."""
    for seed, (name, (ours, numpys, dtypes)) in enumerate(WHOLE_UNARY.items()):
        for dtype, shape in itertools.product(dtypes, SHAPES):
            for layout in filter(functools.partial(fits, shape), ("plain", "reversed", "transposed", "broadcast")):
                yield Call(name, (values(shape, dtype, seed),), (layout,), ours, numpys, "exact")
    for seed, (name, (ours, numpys, dtypes)) in enumerate(WHOLE_BINARY.items()):
        for (left, right), (first, second) in itertools.product(PAIRS[1::2], itertools.product(dtypes, dtypes)):
            arrays = values(left, first, 40 + seed), values(right, second, 70 + seed)
            yield Call(name, arrays, ("plain", "plain"), ours, numpys, "exact")
            if left and left[-1:] == right[-1:]:
                yield Call(name, arrays, ("reversed", "plain"), ours, numpys, "exact")
    for (first, second), shape in itertools.product(itertools.product(MOVED_DTYPES, MOVED_DTYPES), SHAPES):
        array = values(shape, first, 5)
        if first.startswith("float") and second in WHOLE_DTYPES:
            # NumPy leaves values beyond the range undefined.
            array = np.asarray(np.clip(np.nan_to_num(array), 0, 255), first)
        yield Call(f"astype {second}", (array,), ("plain",), lambda t, d=second: t.astype(d),
                   lambda t, d=second: t.astype(d), "cast")


def reduction_calls() -> Iterator[Call]:
    """Every reduction over every set of axes of every shape, one axis as a negative number."""
    for dtype, (seed, (name, (ours, numpys, rule, contract))) in itertools.product(
            DTYPES, enumerate(REDUCTIONS.items())):
        for shape, layout in itertools.product(SHAPES, ("plain", "reversed", "transposed")):
            if not fits(shape, layout) or (dtype == "float16" and layout != "plain"):
                continue
            axes: list[Any] = [None, (), *range(-len(shape), len(shape))]
            axes += [pair[::-1] for pair in itertools.combinations(range(len(shape)), 2)]
            array = values(shape, dtype, 100 + seed)
            for axis, keepdims in itertools.product(axes, (False, True)):
                if name in ("max", "min") and _is_empty(laid_out(array, layout).shape, axis):
                    continue
                how = {"axis": axis, "keepdims": keepdims}
                # A reduction over no axes is the tensor itself.
                yield Call(f"{name} {how}", (array,), (layout,), functools.partial(ours, **how),
                           functools.partial(numpys, **how), "passed" if axis == () else rule,
                           functools.partial(contract, **how))


def position_calls() -> Iterator[Call]:
    """Positions of maxima and minima along every axis, of every dtype."""
    for (seed, name), dtype, shape in itertools.product(enumerate(("argmax", "argmin")), MOVED_DTYPES, SHAPES):
        array = values(shape, dtype, 130 + seed)
        for layout in filter(functools.partial(fits, shape), ("plain", "reversed", "transposed", "backwards")):
            for axis, keepdims in itertools.product((None, *range(-min(len(shape), 1), len(shape))),
                                                    (False, True)[:1 + (layout == "plain")]):
                if not _is_empty(laid_out(array, layout).shape, axis):
                    how = {"axis": axis, "keepdims": keepdims}
                    yield Call(f"{name} {how}", (array,), (layout,), functools.partial(getattr(nnk, name), **how),
                               functools.partial(getattr(np, name), **how), "exact")


def _is_empty(shape: tuple[int, ...], axis: Any) -> bool:
    """Whether a reduction has no elements for a result."""
    chosen = range(len(shape)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    return any(shape[one] == 0 for one in chosen)


def product_calls() -> Iterator[Call]:
    """Products of every rank, with transposed, reversed and cut operands."""
    for dtype, (left, right) in itertools.product(DTYPES, PRODUCTS):
        arrays = values(left, dtype, 1), values(right, dtype, 2)
        for layouts in (("plain", "plain"), ("reversed", "plain"), ("plain", "backwards"), ("plain", "broadcast")):
            shapes = [laid_out(array, layout).shape for array, layout in zip(arrays, layouts, strict=True)]
            if shapes[0][-1] == shapes[1][max(len(shapes[1]) - 2, 0)] and _broadcasts(
                    tuple(np.empty(shape[:-2]) for shape in shapes), ("plain", "plain")):
                yield Call("@", arrays, layouts, lambda a, b: a @ b, np.matmul, "contract", oracle.matmul)


    for (first, second), (left, right) in itertools.product(itertools.product(WHOLE_DTYPES, WHOLE_DTYPES), PRODUCTS):
        arrays = values(left, first, 3), values(right, second, 4)
        for layouts in (("plain", "plain"), ("reversed", "backwards"))[:1 + (min(left[-1], right[0]) > 0)]:
            if np.shape(laid_out(arrays[1], layouts[1]))[max(len(right) - 2, 0)] == left[-1] and _broadcasts(
                    (np.empty(left[:-2]), np.empty(laid_out(arrays[1], layouts[1]).shape[:-2])), ("plain", "plain")):
                yield Call("@", arrays, layouts, lambda a, b: a @ b, np.matmul, "exact")


def move_calls() -> Iterator[Call]:
    """Views and copies, which move bits and compute nothing."""
    for dtype, (seed, (name, move, shapes)) in itertools.product(MOVED_DTYPES, enumerate(MOVES)):
        for shape in shapes:
            for layout in ("plain", "reversed")[:1 + min(len(shape), 1)]:
                yield Call(name, (values(shape, dtype, seed),), (layout,), move, move, "moved")
    for dtype, (seed, (name, arguments, shapes)) in itertools.product(MOVED_DTYPES, enumerate(AXES)):
        for shape in shapes:
            for layout in ("plain", "reversed")[:1 + min(len(shape), 1)]:
                ours, numpys = (lambda t, m=module, n=name, a=arguments: getattr(m, n)(t, *a) for module in (nnk, np))
                yield Call(f"{name} {arguments}", (values(shape, dtype, seed),), (layout,), ours, numpys, "moved")
    for dtype, shape, indices in itertools.product(DTYPES, ((4, 7), (5,), (2, 3, 4)), _INDICES):
        for axis in range(-len(shape), len(shape)):
            yield Call(f"take {indices} {axis}", (values(shape, dtype, axis + 10),), ("plain",),
                        lambda t, i=indices, a=axis: nnk.take(t, i, a),
                        lambda t, i=indices, a=axis: np.take(t, np.asarray(i, int), a), "moved")
        yield Call(f"[{indices}]", (values(shape, dtype, 9),), ("reversed",), lambda t, i=indices: t[i],
                    lambda t, i=indices: t[np.asarray(i, int)], "moved")
    for dtype, (shape, target) in itertools.product(MOVED_DTYPES, (
            ((), (3,)), ((1,), (4, 1)), ((1,), (0,)), ((4, 1), (2, 4, 3)), ((0,), (3, 0)), ((5,), (1, 5)))):
        yield Call(f"broadcast_to {target}", (values(shape, dtype, 3),), ("plain",),
                    lambda t, s=target: nnk.broadcast_to(t, s), lambda t, s=target: np.broadcast_to(t, s), "moved")


@functools.cache
def table() -> tuple[Call, ...]:
    """All calls."""
    return (*unary_calls(), *binary_calls(), *whole_calls(), *reduction_calls(), *position_calls(), *product_calls(),
            *move_calls())


# ------------------------------------------------------------------------------------------------- comparison

@functools.cache
def bounds() -> dict[str, float]:
    """The bound of each function's error, in units in the last place: the table of docs/numerics.md."""
    text = (ROOT / "docs/numerics.md").read_text(encoding="utf-8")
    return {name: float(bound) for name, bound in re.findall(r"^\| `(\w+)` \| (\d+\.\d) \|", text, re.M)}


def errors_in_ulps(got: Array, want: Array) -> Array:
    """Distances of float32 values from float64 ones, in units in the last place of the latter."""
    with np.errstate(all="ignore"):
        exponent = np.maximum(np.frexp(np.where(np.isfinite(want), want, 0.0))[1] - 24, -149)
        distance = np.abs(got.astype(np.float64) - want) / np.exp2(exponent.astype(np.float64))
    same = (got == want) | (np.isnan(got) & np.isnan(want)) | (got == want.astype(np.float32))
    return np.where(same, 0.0, distance)


def tensors_of(call: Call, engine: Any) -> list[Any]:
    """The operands of a call on an engine."""
    return [laid_out(engine.array(array), layout) if isinstance(array, np.ndarray) else array
            for array, layout in zip(call.arrays, call.layouts, strict=True)]


def check(call: Call, got: Array) -> None:
    """Compare the result of a call with NumPy's by its rule."""
    views = [laid_out(array, layout) if isinstance(array, np.ndarray) else array
             for array, layout in zip(call.arrays, call.layouts, strict=True)]
    if call.rule not in ("moved", "cast"):
        # Halves are storage: functions read float32 and return it.
        views = [view.astype(np.float32) if isinstance(view, np.ndarray) and view.dtype == np.float16 else view
                 for view in views]
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore", category=RuntimeWarning):
        if call.rule == "ulps":
            # The scalar 1e300 is infinity in float32, and 0.1 another number.
            want = np.asarray(call.numpys(*(np.asarray(view, np.float32).astype(np.float64) for view in views)))
        else:
            want = np.asarray(call.numpys(*views))
    dtype = want.dtype.name if call.rule in ("moved", "cast") else NARROWED.get(want.dtype.name, want.dtype.name)
    assert got.shape == want.shape, f"{call}: shape {got.shape}, NumPy {want.shape}"
    assert got.dtype == dtype, f"{call}: dtype {got.dtype}, NumPy {want.dtype}"
    if got.dtype == np.float32 and call.rule not in ("moved", "passed", "cast"):
        nans = np.ascontiguousarray(got).reshape(-1).view(np.uint32)[np.isnan(got).reshape(-1)]
        assert (nans == NAN_BITS).all(), call
    if call.rule == "ulps":
        assert errors_in_ulps(got, want).max(initial=0.0) <= bounds()[call.name] + 1e-4, call
    if call.contract is not None:
        assert np.array_equal(oracle.bits_of(got), oracle.bits_of(call.contract(*views))), call
    # NumPy's sum of -0 over no axes is +0, the contract's is -0.
    if call.rule in ("exact", "zeros", "flag", "cast") or (call.rule in ("moved", "passed")
                                                                  and call.contract is None):
        _check_bits(call, got, want)


def _check_bits(call: Call, got: Array, want: Array) -> None:
    if got.dtype.kind != "f":
        assert np.array_equal(got, want.astype(got.dtype)), call
        return
    ours, numpys = oracle.bits_of(got.astype(np.float32)), oracle.bits_of(want.astype(np.float32))
    if call.rule == "zeros":
        ours, numpys = (np.where(bits << 1 == 0, 0, bits) for bits in (ours, numpys))
    assert np.array_equal(ours, numpys), call
