"""The contract's correctly rounded operations on float32 bit patterns, with integers and fractions only.

No floating point is involved. :mod:`tests.oracle.arrays` has the same operations, and the functions, over arrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from math import isqrt
from typing import Any

NAN = 0x7FC00000
INF = 0x7F800000
SIGN = 0x80000000
ONE = 0x3F800000

def is_nan(u: int) -> bool:
    return u & 0x7FFFFFFF > INF


def is_inf(u: int) -> bool:
    return u & 0x7FFFFFFF == INF


def is_zero(u: int) -> bool:
    return u & 0x7FFFFFFF == 0


def canonical_bits(u: int) -> int:
    return NAN if is_nan(u) else u


def _power_of_two(exponent: int) -> Fraction:
    return Fraction(1 << exponent) if exponent >= 0 else Fraction(1, 1 << -exponent)


def value_of(u: int) -> Fraction:
    """The exact value of a finite float32."""
    exponent, mantissa = (u >> 23) & 255, u & 0x7FFFFF
    magnitude = (mantissa if exponent == 0 else mantissa | 0x800000) * _power_of_two(max(exponent, 1) - 150)
    return -magnitude if u & SIGN else magnitude


def _round(magnitude: Fraction, fraction_bits: int, exponent_bits: int) -> int:
    """Round a magnitude to nearest, ties to even, in an IEEE format with these field widths; overflow: infinity."""
    bias = 2 ** (exponent_bits - 1) - 1
    lowest = 1 - bias - fraction_bits
    if magnitude == 0:
        return 0
    # The exponent of the last place: that of a number with fraction_bits + 1 digits, or that of a subnormal.
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length() - fraction_bits - 1
    if magnitude >= _power_of_two(exponent + fraction_bits + 1):
        exponent += 1
    exponent = max(exponent, lowest)
    scaled = magnitude * _power_of_two(-exponent)
    whole, rest = divmod(scaled.numerator, scaled.denominator)
    twice = 2 * rest
    if twice > scaled.denominator or (twice == scaled.denominator and whole % 2 == 1):
        whole += 1
    # A carry out of the fraction raises the exponent field by itself.
    bits = ((exponent - lowest) << fraction_bits) + whole
    return min(bits, (2 ** exponent_bits - 1) << fraction_bits)


def round_float32(value: Fraction, sign_of_zero: int = 0) -> int:
    """The float32 bits nearest to an exact value."""
    return (SIGN if value < 0 else sign_of_zero if value == 0 else 0) | _round(abs(value), 23, 8)


def add(a: int, b: int) -> int:
    if is_nan(a) or is_nan(b):
        return NAN
    if is_inf(a) or is_inf(b):
        if is_inf(a) and is_inf(b) and a != b:
            return NAN
        return a if is_inf(a) else b
    # An exact zero sum is -0 only when both operands are.
    return round_float32(value_of(a) + value_of(b), a & b & SIGN)


def sub(a: int, b: int) -> int:
    return NAN if is_nan(b) else add(a, b ^ SIGN)


def mul(a: int, b: int) -> int:
    sign = (a ^ b) & SIGN
    if is_nan(a) or is_nan(b):
        return NAN
    if is_inf(a) or is_inf(b):
        return NAN if is_zero(a) or is_zero(b) else sign | INF
    return round_float32(value_of(a) * value_of(b), sign)


def div(a: int, b: int) -> int:
    sign = (a ^ b) & SIGN
    if is_nan(a) or is_nan(b):
        return NAN
    if is_inf(a):
        return NAN if is_inf(b) else sign | INF
    if is_inf(b):
        return sign
    if is_zero(b):
        return NAN if is_zero(a) else sign | INF
    return round_float32(value_of(a) / value_of(b), sign)


def _root(value: Fraction) -> Fraction:
    """A number between the true root and it plus 2**-160, exact when the root is, never a midpoint unless exact."""
    scaled = value * 4 ** 160
    root = isqrt(scaled.numerator // scaled.denominator)
    exact = Fraction(root) ** 2 == scaled
    return Fraction(2 * root + (0 if exact else 1), 2 ** 161)


def sqrt(a: int) -> int:
    if is_zero(a) or a == INF:
        return a
    if is_nan(a) or a & SIGN:
        return NAN
    return round_float32(_root(value_of(a)))


def rsqrt(a: int) -> int:
    if is_zero(a):
        return a & SIGN | INF
    if is_nan(a) or a & SIGN:
        return NAN
    return 0 if a == INF else round_float32(_root(1 / value_of(a)))


def _order(u: int) -> tuple[Fraction | float, int]:
    """Order of non-NaN values with -0 before +0."""
    sign = 0 if u & SIGN else 1
    if is_inf(u):
        return (float("inf") if sign else float("-inf"), sign)
    return (value_of(u), sign)


def maximum(a: int, b: int) -> int:
    return NAN if is_nan(a) or is_nan(b) else max(a, b, key=_order)


def minimum(a: int, b: int) -> int:
    return NAN if is_nan(a) or is_nan(b) else min(a, b, key=_order)


def _compare(test: Callable[[Any, Any], bool], unordered: bool = False) -> Callable[[int, int], int]:
    def compare(a: int, b: int) -> int:
        if is_nan(a) or is_nan(b):
            return ONE if unordered else 0
        return ONE if test(_order(a)[0], _order(b)[0]) else 0
    return compare


less = _compare(lambda a, b: a < b)
less_equal = _compare(lambda a, b: a <= b)
greater = _compare(lambda a, b: a > b)
greater_equal = _compare(lambda a, b: a >= b)
equal = _compare(lambda a, b: a == b)
not_equal = _compare(lambda a, b: a != b, unordered=True)


def select(a: int, b: int, c: int) -> int:
    return c if is_zero(a) else b


def _integral(to_integer: Callable[[Fraction], int]) -> Callable[[int], int]:
    """Round to an integer; a zero has the sign of the operand."""
    def integral(a: int) -> int:
        if is_nan(a):
            return NAN
        return a if is_inf(a) else round_float32(Fraction(to_integer(value_of(a))), a & SIGN)
    return integral


floor, ceil, trunc = _integral(math.floor), _integral(math.ceil), _integral(math.trunc)
rint = _integral(round)


def sign(a: int) -> int:
    if is_nan(a):
        return NAN
    return 0 if is_zero(a) else a & SIGN | ONE


def fmod(a: int, b: int) -> int:
    if is_nan(a) or is_nan(b) or is_inf(a) or is_zero(b):
        return NAN
    if is_inf(b):
        return a
    return round_float32(abs(value_of(a)) % abs(value_of(b))) | a & SIGN


def remainder(a: int, b: int) -> int:
    r = fmod(a, b)
    if is_zero(r):
        return b & SIGN
    return r if is_nan(r) or (r ^ b) & SIGN == 0 else add(r, b)


#: Op number -> its exact function, for the ops whose results are correctly rounded or exact.
EXACT: dict[int, Callable[..., int]] = {
    0: lambda a: a ^ SIGN, 3: sqrt, 4: rsqrt, 5: lambda a: a & 0x7FFFFFFF,
    7: add, 8: sub, 9: mul, 10: div, 11: maximum, 12: minimum,
    13: less, 14: less_equal, 15: greater, 16: greater_equal, 17: equal, 18: not_equal, 19: select, 69: lambda a: a,
    72: floor, 73: ceil, 74: trunc, 75: rint, 76: sign, 77: lambda a: ONE if is_nan(a) else 0,
    78: lambda a: ONE if is_inf(a) else 0, 79: lambda a: 0 if is_nan(a) or is_inf(a) else ONE,
    86: fmod, 87: remainder,
}


def float32_to_float16(u: int) -> int:
    sign = u >> 16 & 0x8000
    if is_nan(u):
        return 0x7E00
    return sign | (0x7C00 if is_inf(u) else _round(abs(value_of(u)), 10, 5))


def float16_to_float32(h: int) -> int:
    exponent, mantissa = h >> 10 & 31, h & 0x3FF
    sign = (h & 0x8000) << 16
    if exponent == 31:
        return NAN if mantissa else sign | INF
    magnitude = (mantissa if exponent == 0 else mantissa | 0x400) * _power_of_two(max(exponent, 1) - 25)
    return sign | _round(magnitude, 23, 8)


def float32_to_bfloat16(u: int) -> int:
    sign = u >> 16 & 0x8000
    if is_nan(u):
        return 0x7FC0
    return sign | (0x7F80 if is_inf(u) else _round(abs(value_of(u)), 7, 8))


def bfloat16_to_float32(h: int) -> int:
    return canonical_bits(h << 16)
