"""Functions of the elements of tensors.

Each returns a new lazy tensor. Values follow docs/numerics.md: the same bits on every engine.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from nnk.errors import DTypeError, ExprError
from nnk.expr.dtypes import BOOL, INT32, UINT8
from nnk.expr.node import FLOAT32, Tensor, binary_operands, constant, elementwise
from nnk.expr.out import stored
from nnk.expr.promote import astype, common_dtype, integer_constant, operands_of, truth

__all__ = ["absolute", "arccos", "arcsin", "arctan", "arctan2", "bitwise_and", "bitwise_or", "bitwise_xor", "ceil",
           "clip", "cos", "erf", "exp", "exp2", "expm1", "floor", "floor_divide", "fmod", "gelu", "hypot", "invert",
           "isfinite", "isinf", "isnan", "left_shift", "log", "log1p", "log2", "log10", "logical_and", "logical_not",
           "logical_or", "logical_xor", "maximum", "minimum", "negative", "power", "reciprocal", "relu", "remainder",
           "right_shift", "rint", "rsqrt", "sigmoid", "sign", "silu", "sin", "sqrt", "square", "tanh", "trunc", "where"]

#: Largest exponent, given as a number, of which a power of integers is written as products.
MAX_POWER = 64


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


def log10(x: Any, *, out: Tensor | None = None) -> Tensor:
    """Return the logarithm to base 10, elementwise: log(x) / log(10), -inf at 0, NaN below."""
    return stored("log10", elementwise("div", elementwise("log", x), math.log(10.0)), out)


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


def where(condition: Any, a: Any, b: Any, *, out: Tensor | None = None) -> Tensor:
    """Return a where ``condition`` is not zero (NaN counts as not zero), else b, elementwise."""
    return stored("where", elementwise("select", condition, a, b), out)


#: Exponents, given as numbers, whose powers are correctly rounded without the op pow.
_SHORT_POWERS: dict[float, Callable[[Tensor], Tensor]] = {
    0.0: lambda x: broadcast_constant(1, x), 1.0: lambda x: astype(x, FLOAT32), 2.0: square, -1.0: reciprocal,
    0.5: sqrt}


def power(x: Any, exponent: Any, *, out: Tensor | None = None) -> Tensor:
    """Return x**exponent, elementwise, with the special cases of C and IEEE 754: NaN for x < 0 and no whole exponent.

    The exponents 0, 1, 2, -1 and 0.5, given as a number, give 1, x, ``square(x)``, ``reciprocal(x)`` and ``sqrt(x)``,
    as in NumPy: sqrt(-0) is -0 and sqrt(-inf) is NaN, where the power is 0 and inf. Any other number is a parameter of
    one kernel.

    Integers give their common dtype and wrap around; bools count as int32. A negative exponent in a tensor of integers
    gives 1 / x**-exponent cut to an integer, and 0 for x = 0.

    Raises
    ------
    DTypeError
        If integers get a negative exponent as a number.
    """
    if out is not None:
        return stored("power", power(x, exponent), out)
    (base, number), dtype, _ = operands_of("power", (x, exponent))
    if dtype != FLOAT32:
        return _integer_power(base, number, exponent, dtype)
    if isinstance(x, Tensor) and isinstance(exponent, (bool, int, float, np.bool_, np.integer, np.floating)):
        (base, number), _ = binary_operands("power", (x, exponent))
        short = _SHORT_POWERS.get(float(exponent))
        return short(base) if short else elementwise("pow", base, number)
    return elementwise("pow", base, number)


def _integer_power(x: Tensor, exponents: Tensor, exponent: Any, dtype: np.dtype[Any]) -> Tensor:
    """Return the power of integers or bools; ``exponents`` is ``exponent`` as a tensor."""
    if not isinstance(exponent, (bool, int, np.bool_, np.integer)):
        return elementwise("pow", x, exponents)
    if exponent < 0:
        raise DTypeError(f"Expected an exponent that is not negative for power of integers, got {exponent}; convert "
                         f"with astype", op="power", dtypes=(x.dtype,))
    if exponent > MAX_POWER:
        return elementwise("pow", x, exponents)
    # By squaring and multiplying from the left: modulo 2**n any order gives the same.
    base = astype(x, INT32 if dtype == BOOL else dtype)
    result = broadcast_constant(1, base)
    for bit in f"{int(exponent):b}":
        result = result * result if result.op != "const" else result
        if bit == "1":
            result = base if result.op == "const" else result * base
    return result


def arctan2(y: Any, x: Any, *, out: Tensor | None = None) -> Tensor:
    """Return the angle of the point (x, y) in radians, from -pi to pi, elementwise."""
    return stored("arctan2", elementwise("atan2", y, x), out)


def arctan(x: Any, *, out: Tensor | None = None) -> Tensor:
    """Return the arc tangent of x in radians, elementwise."""
    return stored("arctan", elementwise("atan2", x, 1.0), out)


def _legs(op: str, x: Any) -> tuple[Tensor, Tensor]:
    """Return x and sqrt(1 - x**2), without cancellation near 1 and -1."""
    (tensor,), _ = binary_operands(op, (x,))
    return tensor, sqrt((1.0 - tensor) * (1.0 + tensor))


def arcsin(x: Any, *, out: Tensor | None = None) -> Tensor:
    """Return the arc sine of x in radians, from -pi/2 to pi/2, elementwise; NaN beyond -1 and 1."""
    opposite, adjacent = _legs("arcsin", x)
    return stored("arcsin", elementwise("atan2", opposite, adjacent), out)


def arccos(x: Any, *, out: Tensor | None = None) -> Tensor:
    """Return the arc cosine of x in radians, from 0 to pi, elementwise; NaN beyond -1 and 1."""
    adjacent, opposite = _legs("arccos", x)
    return stored("arccos", elementwise("atan2", opposite, adjacent), out)


def hypot(a: Any, b: Any, *, out: Tensor | None = None) -> Tensor:
    """Return sqrt(a**2 + b**2), elementwise, without overflow on the way; inf for an infinity, even beside NaN."""
    (a, b), _ = binary_operands("hypot", (a, b))
    a, b = absolute(a), absolute(b)
    longer = maximum(a, b)
    ratio = minimum(a, b) / longer
    length = where(longer == 0.0, longer, longer * sqrt(ratio * ratio + 1.0))
    return stored("hypot", where(logical_or(isinf(a), isinf(b)), math.inf, length), out)


def fmod(a: Any, b: Any, *, out: Tensor | None = None) -> Tensor:
    """Return a - b trunc(a / b), elementwise, exact, with the sign of a; NaN for infinite a and for b = 0.

    For integers b = 0 gives 0; bools count as int32.
    """
    (a, b), dtype, _ = operands_of("fmod", (a, b))
    if dtype == FLOAT32:
        return stored("fmod", elementwise("fmod", a, b), out)
    result = elementwise("remainder", a, b)
    if dtype != UINT8:
        # The remainder has the sign of b: one step of b back where a has the other one.
        turned = (result != 0) & ((a < 0) != (b < 0))
        result = where(turned, result - b, result)
    return stored("fmod", result, out)


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
