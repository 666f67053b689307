"""Functions on tensors: elementwise, reductions, matmul, and the compositions that models use.

Each returns a new lazy tensor. Values follow docs/numerics.md: the same bits on every engine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nnk.errors import DTypeError, ExprError, ShapeError
from nnk.expr.dtypes import BOOL, info_of
from nnk.expr.node import (
    CHUNKED,
    FLOAT32,
    Tensor,
    binary_operands,
    broadcast_shapes,
    constant,
    elementwise,
    geometry_of,
    run_time_parameter,
)
from nnk.expr.out import stored
from nnk.expr.promote import as_real, astype, common_dtype, integer_constant, operands_of, truth
from nnk.expr.views import broadcast_to, normalise_axes, reshape, swapaxes, transpose
from nnk.numerics import REDUCE_CHUNK

__all__ = ["absolute", "arctan", "arctan2", "bitwise_and", "bitwise_or", "bitwise_xor", "ceil", "clip", "cos", "erf",
           "exp", "exp2", "expm1", "floor", "floor_divide", "fmod", "gelu", "invert", "isfinite", "isinf", "isnan",
           "layer_norm", "left_shift", "log", "log1p", "log2", "logical_and", "logical_not", "logical_or",
           "logical_xor", "matmul", "maximum", "mean", "minimum", "negative", "power", "reciprocal", "reduce_max",
           "reduce_min", "reduce_sum", "relu", "remainder", "right_shift", "rint", "rms_norm", "rsqrt", "sigmoid",
           "sign", "silu", "sin", "softmax", "sqrt", "square", "tanh", "trunc", "where"]

Axis = int | Sequence[int] | None

#: Longest line that one kernel reduces. It depends on nothing but the length, so that all devices make the same cut.
LONGEST_LINE = 4 * REDUCE_CHUNK
#: Largest exponent of an integer.
MAX_POWER = 64


# ------------------------------------------------------------------------------------------ elementwise

def exp(x: Any, *, out: Tensor | None = None) -> Tensor:
    """Return e**x, elementwise."""
    return stored("exp", elementwise("exp", x), out)


def log(x: Any, *, out: Tensor | None = None) -> Tensor:
    """Return the natural logarithm, elementwise: -inf at 0, NaN below."""
    return stored("log", elementwise("log", x), out)


def exp2(x: Any, *, out: Tensor | None = None) -> Tensor:
    """Return 2**x, elementwise: exact for integers x."""
    return stored("exp2", elementwise("exp2", x), out)


def expm1(x: Any, *, out: Tensor | None = None) -> Tensor:
    """Return e**x - 1, elementwise, accurate near 0 too."""
    return stored("expm1", elementwise("expm1", x), out)


def log2(x: Any, *, out: Tensor | None = None) -> Tensor:
    """Return the logarithm to base 2, elementwise: exact for powers of two, -inf at 0, NaN below."""
    return stored("log2", elementwise("log2", x), out)


def log1p(x: Any, *, out: Tensor | None = None) -> Tensor:
    """Return log(1 + x), elementwise, accurate near 0 too: -inf at -1, NaN below."""
    return stored("log1p", elementwise("log1p", x), out)


def sin(x: Any, *, out: Tensor | None = None) -> Tensor:
    """Return the sine of x in radians, elementwise, for every finite x; NaN at the infinities."""
    return stored("sin", elementwise("sin", x), out)


def cos(x: Any, *, out: Tensor | None = None) -> Tensor:
    """Return the cosine of x in radians, elementwise, for every finite x; NaN at the infinities."""
    return stored("cos", elementwise("cos", x), out)


def sqrt(x: Any, *, out: Tensor | None = None) -> Tensor:
    """Return the correctly rounded square root, elementwise."""
    return stored("sqrt", elementwise("sqrt", x), out)


def rsqrt(x: Any, *, out: Tensor | None = None) -> Tensor:
    """Return the correctly rounded 1/sqrt(x), elementwise."""
    return stored("rsqrt", elementwise("rsqrt", x), out)


def tanh(x: Any, *, out: Tensor | None = None) -> Tensor:
    """Return the hyperbolic tangent, elementwise."""
    return stored("tanh", elementwise("tanh", x), out)


def sigmoid(x: Any, *, out: Tensor | None = None) -> Tensor:
    """Return 1 / (1 + e**-x), elementwise."""
    return stored("sigmoid", elementwise("sigmoid", x), out)


def erf(x: Any, *, out: Tensor | None = None) -> Tensor:
    """Return the error function, elementwise."""
    return stored("erf", elementwise("erf", x), out)


def relu(x: Any, *, out: Tensor | None = None) -> Tensor:
    """Return maximum(x, 0), elementwise; NaN stays NaN."""
    return stored("relu", elementwise("max", x, 0), out)


def silu(x: Any, *, out: Tensor | None = None) -> Tensor:
    """Return x * sigmoid(x), elementwise."""
    return stored("silu", elementwise("silu", x), out)


def gelu(x: Any, approximate: str = "none", *, out: Tensor | None = None) -> Tensor:
    """Return x * Phi(x), Phi the normal distribution function (Hendrycks and Gimpel, 2016).

    ``approximate`` is ``"none"`` (exact) or ``"tanh"``: x * sigmoid(2 sqrt(2/pi) (x + 0.044715 x**3)).
    """
    if approximate not in ("none", "tanh"):
        raise ExprError(f'Expected "none" or "tanh" for approximate of gelu, got {approximate!r}', op="gelu")
    return stored("gelu", elementwise("gelu" if approximate == "none" else "gelu_tanh", x), out)


def absolute(x: Any, *, out: Tensor | None = None) -> Tensor:
    """Return the absolute value, elementwise."""
    return stored("absolute", elementwise("abs", x), out)


def negative(x: Any, *, out: Tensor | None = None) -> Tensor:
    """Return -x, elementwise."""
    return stored("negative", elementwise("neg", x), out)


def maximum(a: Any, b: Any, *, out: Tensor | None = None) -> Tensor:
    """Return the larger of a and b, elementwise: NaN if either is NaN, and -0 < +0 (IEEE 754-2019 maximum)."""
    return stored("maximum", elementwise("max", a, b), out)


def minimum(a: Any, b: Any, *, out: Tensor | None = None) -> Tensor:
    """Return the smaller of a and b, elementwise: NaN if either is NaN, and -0 < +0 (IEEE 754-2019 minimum)."""
    return stored("minimum", elementwise("min", a, b), out)


def clip(x: Any, low: Any = None, high: Any = None, *, out: Tensor | None = None) -> Tensor:
    """Return minimum(maximum(x, low), high), elementwise: ``high`` where low > high, NaN if any operand is NaN.

    A bound that is ``None`` is left out.
    """
    if out is not None:
        return stored("clip", clip(x, low, high), out)
    tensors, _, _ = operands_of("clip", [value for value in (x, low, high) if value is not None])
    if len(tensors) == 1:
        return tensors[0]
    above = tensors[0] if low is None else maximum(tensors[0], tensors[1])
    return above if high is None else minimum(above, tensors[-1])


def square(x: Any, *, out: Tensor | None = None) -> Tensor:
    """Return x * x, elementwise."""
    return stored("square", elementwise("mul", x, x), out)


def reciprocal(x: Any, *, out: Tensor | None = None) -> Tensor:
    """Return 1 / x, elementwise, correctly rounded."""
    return stored("reciprocal", elementwise("div", 1.0, x), out)


def floor(x: Any, *, out: Tensor | None = None) -> Tensor:
    """Return the largest integer that is not above x, elementwise, as a float."""
    return stored("floor", elementwise("floor", x), out)


def ceil(x: Any, *, out: Tensor | None = None) -> Tensor:
    """Return the smallest integer that is not below x, elementwise, as a float."""
    return stored("ceil", elementwise("ceil", x), out)


def trunc(x: Any, *, out: Tensor | None = None) -> Tensor:
    """Return x without its fraction, elementwise."""
    return stored("trunc", elementwise("trunc", x), out)


def rint(x: Any, *, out: Tensor | None = None) -> Tensor:
    """Return the integer nearest to x, elementwise, as a float: halves go to the even one."""
    return stored("round", elementwise("rint", x), out)


def sign(x: Any, *, out: Tensor | None = None) -> Tensor:
    """Return -1.0, +0.0 or 1.0 as x is below, at or above 0, elementwise; NaN stays NaN."""
    return stored("sign", elementwise("sign", x), out)


def isnan(x: Any, *, out: Tensor | None = None) -> Tensor:
    """Return whether x is NaN, elementwise."""
    return stored("isnan", elementwise("isnan", x), out)


def isinf(x: Any, *, out: Tensor | None = None) -> Tensor:
    """Return whether x is an infinity, elementwise."""
    return stored("isinf", elementwise("isinf", x), out)


def isfinite(x: Any, *, out: Tensor | None = None) -> Tensor:
    """Return whether x is neither an infinity nor NaN, elementwise."""
    return stored("isfinite", elementwise("isfinite", x), out)


def _truths(op: str, *values: Any) -> list[Tensor]:
    tensors, _, _ = operands_of(op, values)
    return [truth(tensor) for tensor in tensors]


def bitwise_and(a: Any, b: Any, *, out: Tensor | None = None) -> Tensor:
    """Return the bits of both a and b, elementwise, for integers and bools."""
    return stored("bitwise_and", elementwise("iand", a, b), out)


def bitwise_or(a: Any, b: Any, *, out: Tensor | None = None) -> Tensor:
    """Return the bits of a or b, elementwise, for integers and bools."""
    return stored("bitwise_or", elementwise("ior", a, b), out)


def bitwise_xor(a: Any, b: Any, *, out: Tensor | None = None) -> Tensor:
    """Return the bits of one of a and b alone, elementwise, for integers and bools."""
    return stored("bitwise_xor", elementwise("ixor", a, b), out)


def invert(x: Any, *, out: Tensor | None = None) -> Tensor:
    """Return the bits that x has not, elementwise, for integers and bools."""
    return stored("invert", elementwise("inot", x), out)


def left_shift(a: Any, b: Any, *, out: Tensor | None = None) -> Tensor:
    """Return integer a shifted left by b bits, elementwise; 0 unless b is below the number of bits."""
    return stored("left_shift", elementwise("ishl", a, b), out)


def right_shift(a: Any, b: Any, *, out: Tensor | None = None) -> Tensor:
    """Return integer a shifted right by b bits, elementwise; its sign alone unless b is below the number of bits."""
    return stored("right_shift", elementwise("ishr", a, b), out)


def logical_and(a: Any, b: Any, *, out: Tensor | None = None) -> Tensor:
    """Return whether a and b are both not zero (NaN is not zero), elementwise."""
    return stored("logical_and", elementwise("iand", *_truths("logical_and", a, b)), out)


def logical_or(a: Any, b: Any, *, out: Tensor | None = None) -> Tensor:
    """Return whether a or b is not zero (NaN is not zero), elementwise."""
    return stored("logical_or", elementwise("ior", *_truths("logical_or", a, b)), out)


def logical_xor(a: Any, b: Any, *, out: Tensor | None = None) -> Tensor:
    """Return whether one of a and b is zero and the other is not (NaN is not zero), elementwise."""
    return stored("logical_xor", elementwise("ixor", *_truths("logical_xor", a, b)), out)


def logical_not(x: Any, *, out: Tensor | None = None) -> Tensor:
    """Return whether x is zero, elementwise."""
    return stored("logical_not", elementwise("eq", x, 0), out)


def where(condition: Any, a: Any, b: Any) -> Tensor:
    """Return a where ``condition`` is not zero (NaN counts as not zero), else b, elementwise."""
    return elementwise("select", condition, a, b)


#: Exponents, given as numbers, whose powers are correctly rounded without the op pow.
_SHORT_POWERS: dict[float, Callable[[Tensor], Tensor]] = {
    0.0: lambda x: broadcast_constant(1, x), 1.0: lambda x: astype(x, FLOAT32), 2.0: square, -1.0: reciprocal,
    0.5: sqrt}


def power(x: Any, exponent: Any, *, out: Tensor | None = None) -> Tensor:
    """Return x**exponent, elementwise, with the special cases of C and IEEE 754: NaN for x < 0 and no whole exponent.

    The exponents 0, 1, 2, -1 and 0.5, given as a number, give 1, x, ``square(x)``, ``reciprocal(x)`` and ``sqrt(x)``,
    as in NumPy: sqrt(-0) is -0 and sqrt(-inf) is NaN, where the power is 0 and inf. Any other number is a parameter of
    one kernel. Integers may have a whole exponent from 0 to 64, given as a number, and wrap around.
    """
    if out is not None:
        return stored("power", power(x, exponent), out)
    numbers = [exponent] if type(exponent) in (int, float) else []
    if isinstance(x, Tensor) and common_dtype([x.dtype], numbers) != FLOAT32:
        return _integer_power(x, exponent)
    if isinstance(x, Tensor) and isinstance(exponent, (bool, int, float, np.bool_, np.integer, np.floating)):
        (base, number), _ = binary_operands("power", (x, exponent))
        short = _SHORT_POWERS.get(float(exponent))
        return short(base) if short else elementwise("pow", base, number)
    return elementwise("pow", x, exponent)


def _integer_power(x: Tensor, exponent: Any) -> Tensor:
    """Return x**exponent by squaring and multiplying from the left: modulo 2**n any order gives the same."""
    if type(exponent) is not int or not 0 <= exponent <= MAX_POWER or x.dtype == BOOL:
        raise DTypeError(f"Expected a float dtype, or an integer with an exponent from 0 to {MAX_POWER}, for power, "
                         f"got {x.dtype} and {exponent!r}; convert with astype", op="power", dtypes=(x.dtype,))
    result = broadcast_constant(1, x)
    for bit in f"{exponent:b}":
        result = result * result if result.op != "const" else result
        if bit == "1":
            result = x if result.op == "const" else result * x
    return result


def arctan2(y: Any, x: Any, *, out: Tensor | None = None) -> Tensor:
    """Return the angle of the point (x, y) in radians, from -pi to pi, elementwise."""
    return stored("arctan2", elementwise("atan2", y, x), out)


def arctan(x: Any, *, out: Tensor | None = None) -> Tensor:
    """Return the arc tangent of x in radians, elementwise."""
    return stored("arctan", elementwise("atan2", x, 1.0), out)


def fmod(a: Any, b: Any, *, out: Tensor | None = None) -> Tensor:
    """Return a - b trunc(a / b), elementwise, exact, with the sign of a; NaN for infinite a and for b = 0."""
    return stored("fmod", elementwise("fmod", a, b), out)


def remainder(a: Any, b: Any, *, out: Tensor | None = None) -> Tensor:
    """Return a - b floor(a / b), elementwise, with the sign of b; NaN for infinite a and for b = 0.

    For integers b = 0 gives 0.
    """
    return stored("remainder", elementwise("remainder", a, b), out)


def floor_divide(a: Any, b: Any, *, out: Tensor | None = None) -> Tensor:
    """Return floor(a / b), elementwise, of the quotient before it is rounded; a / b for b = 0.

    It is the whole number next to (a - remainder(a, b)) / b, as in NumPy. For integers b = 0 gives 0.
    """
    if out is not None:
        return stored("floor_divide", floor_divide(a, b), out)
    (a, b), dtype, _ = operands_of("floor_divide", (a, b))
    if dtype != FLOAT32:
        return elementwise("idiv", a, b)
    (a, b), _ = binary_operands("floor_divide", (a, b))
    exact = fmod(a, b)
    quotient = (a - exact) / b
    turned = logical_and(exact, (exact < 0.0) != (b < 0.0))
    quotient = where(turned, quotient - 1.0, quotient)
    whole = floor(quotient)
    whole = where(quotient - whole > 0.5, whole + 1.0, whole)
    ratio = a / b
    signed_zero = minimum(maximum(ratio, -0.0), 0.0)
    return where(b, where(quotient, whole, signed_zero), ratio)


def broadcast_constant(value: int, like: Tensor) -> Tensor:
    """Return a tensor of the shape, engine and common dtype of ``like`` with one value everywhere."""
    dtype = common_dtype([like.dtype])
    number = constant(value) if dtype == FLOAT32 else integer_constant(value, dtype)
    return Tensor("const", (), number.attrs, like.shape, dtype, like.engine)


# ------------------------------------------------------------------------------------------ reductions

def _is_by_column(x: Tensor, kept: tuple[int, ...], reduced: tuple[int, ...]) -> bool:
    """Say whether a reduction reads whole lines of memory when its lines are columns: kept values lie side by side."""
    if not kept or kept != tuple(range(kept[0], kept[-1] + 1)):
        return False
    strides = geometry_of(x)[2]
    inner_kept, inner_reduced = strides[kept[-1]], strides[reduced[-1]]
    if inner_kept == inner_reduced:
        return kept[-1] > reduced[-1]
    return inner_kept == 1 and all(strides[axis] == strides[axis + 1] * x.shape[axis + 1] for axis in kept[:-1])


def _lines_to_reduce(x: Tensor, reduced: tuple[int, ...]) -> tuple[Tensor, str]:
    """Return (tensor, "row") with the reduced axes merged into the last one, or (tensor, "col") with them in front."""
    if len(reduced) == x.ndim == 1:
        return x, "row"
    kept = tuple(axis for axis in range(x.ndim) if axis not in reduced)
    by_column = _is_by_column(x, kept, reduced)
    order = reduced + kept if by_column else kept + reduced
    moved = x if order == tuple(range(x.ndim)) else transpose(x, order)
    if by_column:
        # All axes but the last are rows of a column.
        return moved if len(kept) == 1 else reshape(moved, (_count(x, reduced), _count(x, kept))), "col"
    if len(reduced) == 1:
        return moved, "row"
    return reshape(moved, (*(x.shape[axis] for axis in kept), _count(x, reduced))), "row"


def _count(x: Tensor, axes: tuple[int, ...]) -> int:
    return math.prod(x.shape[axis] for axis in axes)


def _reduce_lines(op: str, values: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return one value a row (op ``row_...``) or a column (``col_...``) of ``values``.

    Lines that are long go through the results of their chunks, in kernels of their own: chunks of one line then run
    side by side, and rule R7 gives the same bits. ``shape`` is the wanted shape of the result, if it broadcasts.
    """
    is_row = op.startswith("row")
    while (length := values.shape[-1] if is_row else math.prod(values.shape[:-1])) > LONGEST_LINE:
        chunks = -(-length // REDUCE_CHUNK)
        cut = (*values.shape[:-1], chunks) if is_row else (chunks, values.shape[-1])
        values = Tensor(op, (values,), CHUNKED, cut, FLOAT32, values.engine)
    if is_row:
        shape = (*values.shape[:-1], 1)
    elif shape[-1:] != values.shape[-1:] or len(shape) > values.ndim or math.prod(shape) != shape[-1]:
        shape = (*(1,) * (values.ndim - 1), values.shape[-1])
    return Tensor(op, (values,), (), shape, FLOAT32, values.engine)


def axes_of(x: Tensor, axis: Axis, op: str) -> tuple[int, ...]:
    """Return the axes to reduce. A 0-D tensor has axis 0 in reductions, as in NumPy."""
    return normalise_axes(axis, x.ndim, op) if x.ndim else normalise_axes(axis, 1, op)[:0]


def _reduced_shape(x: Tensor, axes: tuple[int, ...], keepdims: bool) -> tuple[int, ...]:
    if keepdims:
        return tuple(1 if axis in axes else size for axis, size in enumerate(x.shape))
    return tuple(size for axis, size in enumerate(x.shape) if axis not in axes)


def reduce_over(name: str, op: str, tensor: Tensor, axes: tuple[int, ...], keepdims: bool, empty: float | None,
                begin: Callable[[Tensor], Tensor] = lambda lines: lines,
                finish: Callable[[Tensor], Tensor] = lambda result: result) -> Tensor:
    """Return finish(op(begin(lines))) for the reduction ``op`` (sum or max); ``name`` is what the caller calls it.

    ``begin`` comes after the axes are moved, ``finish`` before they are dropped: both then belong to the one kernel.
    """
    if tensor.ndim == 0:
        tensor, axes, keepdims = reshape(tensor, (1,)), (0,), False
    if not axes:
        return finish(begin(astype(tensor, FLOAT32)))
    shape = _reduced_shape(tensor, axes, keepdims)
    if math.prod(tensor.shape[a] for a in axes) == 0:
        if empty is None:
            raise ShapeError(f"Expected at least one element to reduce for {name}, got shape {tensor.shape}", op=name,
                             shapes=(tensor.shape,))
        return finish(Tensor("const", (), constant(empty).attrs, shape, FLOAT32, tensor.engine))
    lines, direction = _lines_to_reduce(tensor, axes)
    result = finish(_reduce_lines(f"{direction}_{op}", begin(lines), shape))
    return result if result.shape == shape else reshape(result, shape)


def reduce_sum(x: Any, axis: Axis = None, keepdims: bool = False, *, out: Tensor | None = None) -> Tensor:
    """Return the sum over ``axis`` (default: all), in the fixed order of docs/numerics.md R7; int32 for integers.

    The elements of several axes are added in row-major order of these axes. The sum of no elements is +0.
    """
    if out is not None:
        return stored("sum", reduce_sum(x, axis, keepdims), out, False)
    (tensor,), _, _ = operands_of("sum", (x,))
    if info_of(tensor.dtype).word != "float":
        from nnk.expr import whole
        return whole.integer_sum(tensor, axes_of(tensor, axis, "sum"), keepdims)
    return reduce_over("sum", "sum", tensor, axes_of(tensor, axis, "sum"), keepdims, 0.0)


def reduce_max(x: Any, axis: Axis = None, keepdims: bool = False, *, out: Tensor | None = None) -> Tensor:
    """Return the maximum over ``axis`` (default: all), NaN if any element is NaN; a ShapeError if there is none."""
    if out is not None:
        return stored("max", reduce_max(x, axis, keepdims), out, False)
    (tensor,), _, _ = operands_of("max", (x,))
    if info_of(tensor.dtype).word != "float":
        from nnk.expr import whole
        return whole.integer_max(tensor, axes_of(tensor, axis, "max"), keepdims)
    return reduce_over("max", "max", tensor, axes_of(tensor, axis, "max"), keepdims, None)


def reduce_min(x: Any, axis: Axis = None, keepdims: bool = False, *, out: Tensor | None = None) -> Tensor:
    """Return the minimum over ``axis`` (default: all), NaN if any element is NaN; a ShapeError if there is none."""
    if out is not None:
        return stored("min", reduce_min(x, axis, keepdims), out, False)
    (tensor,), _, _ = operands_of("min", (x,))
    if info_of(tensor.dtype).word != "float":
        from nnk.expr import whole
        return whole.integer_min(tensor, axes_of(tensor, axis, "min"), keepdims)
    return reduce_over("min", "max", tensor, axes_of(tensor, axis, "min"), keepdims, None, negative, negative)


def mean(x: Any, axis: Axis = None, keepdims: bool = False, *, out: Tensor | None = None) -> Tensor:
    """Return sum(x, axis) / n over ``axis`` (default: all); NaN for no elements."""
    (tensor,), _ = binary_operands("mean", (x,))
    axes = axes_of(tensor, axis, "mean")
    count = math.prod(tensor.shape[a] for a in axes)
    result = reduce_over("mean", "sum", tensor, axes, keepdims, 0.0,
                         finish=lambda total: total / run_time_parameter(count))
    return stored("mean", result, out, False)


# ------------------------------------------------------------------------------------------ matmul

def matmul(a: Any, b: Any, *, out: Tensor | None = None) -> Tensor:
    """Return the matrix product of a (..., m, k) and b (..., k, n) as (..., m, n); batches broadcast.

    A 1-D operand is a row (left) or a column (right), and its axis is dropped from the result, as in NumPy. Sums run
    over k in increasing order (docs/numerics.md R8).

    Raises
    ------
    ShapeError
        If an operand is 0-D or the inner sizes differ.
    """
    if out is not None:
        return stored("matmul", matmul(a, b), out, False)
    (left, right), engine = as_real("matmul", (a, b))
    if left.ndim == 0 or right.ndim == 0:
        raise ShapeError(f"Expected operands with at least one axis for matmul, got {left.shape} and {right.shape}",
                         op="matmul", shapes=(left.shape, right.shape))
    inner = (left.shape[-1], right.shape[max(right.ndim - 2, 0)])
    if inner[0] != inner[1]:
        raise ShapeError(f"Expected equal inner sizes for matmul, got {left.shape} and {right.shape} ({inner[0]} and "
                         f"{inner[1]})", op="matmul", shapes=(left.shape, right.shape))
    if left.ndim == 1:
        product = matmul(reshape(left, (1, left.shape[0])), right)
        return reshape(product, (*product.shape[:-2], product.shape[-1]) if right.ndim > 1 else product.shape[1:])
    if right.ndim == 1:
        product = matmul(left, reshape(right, (right.shape[0], 1)))
        return reshape(product, product.shape[:-1])
    (m, k), n = left.shape[-2:], right.shape[-1]
    batch = broadcast_shapes("matmul", [left.shape[:-2], right.shape[:-2]])
    if k == 0:
        return Tensor("const", (), constant(0.0).attrs, (*batch, m, n), FLOAT32, engine)
    if right.ndim > 2:
        left = broadcast_to(left, (*batch, m, k))
        right = broadcast_to(right, (*batch, k, n))
    return Tensor("matmul", (left, right), (), (*batch, m, n), FLOAT32, engine)


# ------------------------------------------------------------------------------------------ compositions

def softmax(x: Any, axis: int = -1) -> Tensor:
    """Return exp(x - max(x)) / sum(exp(x - max(x))) over ``axis``: one kernel over the last or the first axis.

    A row of only -inf gives NaN.
    """
    (tensor,), _ = binary_operands("softmax", (x,))
    (position,) = normalise_axes(axis, tensor.ndim, "softmax")
    if tensor.size == 0:
        return tensor
    if position == 0 and tensor.ndim > 2:
        return reshape(softmax(reshape(tensor, (tensor.shape[0], -1)), 0), tensor.shape)
    if position != tensor.ndim - 1 and tensor.ndim > 2:
        return swapaxes(softmax(swapaxes(tensor, position, -1)), position, -1)
    weights = exp(tensor - reduce_max(tensor, position, keepdims=True))
    return weights / reduce_sum(weights, position, keepdims=True)


def _norm_parameters(op: str, x: Tensor, *parameters: Any) -> list[Tensor | None]:
    """Return weight and bias as tensors of shape (n,), or () for numbers."""
    tensors = [None if parameter is None else binary_operands(op, (x, parameter))[0][1] for parameter in parameters]
    for tensor in tensors:
        if tensor is not None and tensor.op != "const" and tensor.shape != x.shape[-1:]:
            raise ShapeError(f"Expected shape {x.shape[-1:]} for weight and bias of {op}, got {tensor.shape}", op=op,
                             shapes=(x.shape, tensor.shape))
    return tensors


def layer_norm(x: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Tensor:
    """Return (x - mean) * rsqrt(var + eps) * weight + bias over the last axis: one kernel (Ba et al., 2016).

    Parameters
    ----------
    x : Tensor of shape (..., n)
    weight, bias : Tensor of shape (n,), optional
    eps : float
        Added to the variance (mean of squared differences).
    """
    (tensor,), _ = binary_operands("layer_norm", (x,))
    weight, bias = _norm_parameters("layer_norm", tensor, weight, bias)
    centred = tensor - mean(tensor, -1, keepdims=True)
    result = centred * rsqrt(mean(centred * centred, -1, keepdims=True) + run_time_parameter(eps))
    if weight is not None:
        result = result * weight
    return result if bias is None else result + bias


def rms_norm(x: Any, weight: Any = None, eps: float = 1e-6) -> Tensor:
    """Return x * rsqrt(mean(x**2) + eps) * weight over the last axis: one kernel (Zhang and Sennrich, 2019).

    Parameters
    ----------
    x : Tensor of shape (..., n)
    weight : Tensor of shape (n,), optional
    """
    (tensor,), _ = binary_operands("rms_norm", (x,))
    (weight,) = _norm_parameters("rms_norm", tensor, weight)
    result = tensor * rsqrt(mean(tensor * tensor, -1, keepdims=True) + run_time_parameter(eps))
    return result if weight is None else result * weight
