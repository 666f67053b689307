"""The ExprSpec tuples: bits of constants survive, equality is by bits."""

import math

import numpy as np
import pytest

from nnk.expr.spec import NO_OPERAND, ExprSpec, Instr, Matmul, Operand, ViewSpec, bits_of, float_of
from tests.strategies import SPECIAL_BITS


@pytest.mark.parametrize(("value", "bits"), [
    (0.0, 0), (-0.0, 0x80000000), (1.0, 0x3F800000), (0.1, 0x3DCCCCCD), (math.inf, 0x7F800000), (-math.inf, 0xFF800000),
    (1e39, 0x7F800000), (-1e300, 0xFF800000), (1e-50, 0), (-1e-50, 0x80000000), (1e-45, 1),
    (3.4028235e38, 0x7F7FFFFF), (math.nan, 0x7FC00000), (16777217.0, 0x4B800000)])
def test_bits_of(value, bits):
    assert bits_of(value) == bits
    with np.errstate(all="ignore"):
        assert np.array(value).astype(np.float32).view(np.uint32) == bits


@pytest.mark.parametrize("bits", [bits for bits in SPECIAL_BITS if bits & 0x7FFFFFFF <= 0x7F800000])
def test_bits_survive_a_round_trip(bits):
    assert bits_of(float_of(bits)) == bits


def test_float_of_nan():
    assert math.isnan(float_of(0x7F800001))
    assert math.isnan(float_of(0xFFC12345))


def test_constants_as_floats():
    spec = ExprSpec(0, (), (), (0x3F800000, 0x80000000), (0x40000000,))
    assert spec.consts == (1.0, 0.0)
    assert math.copysign(1.0, spec.consts[1]) == -1.0
    assert spec.rparams == (2.0,)


def test_equality_is_by_bits():
    """As floats, NaN would differ from itself and -0 be equal to +0."""
    nan, zero, minus_zero = (ExprSpec(0, (), (), (bits,)) for bits in (0x7FC00000, 0, 0x80000000))
    assert nan == ExprSpec(0, (), (), (0x7FC00000,))
    assert zero != minus_zero
    assert hash(nan) == hash(ExprSpec(0, (), (), (0x7FC00000,)))


def test_defaults():
    assert Instr(0, 1) == (0, 1, NO_OPERAND, NO_OPERAND, NO_OPERAND)
    assert Operand(1, 2) == (1, 2)
    assert ViewSpec(3) == (3, 0, 0, 0)
    assert Matmul(0, 1) == (0, 1, 0, 0, 0, 1)
    assert ExprSpec(0, (), ()) == (0, (), (), (), (), None, None, ())


def test_specs_are_immutable():
    with pytest.raises(AttributeError):
        ExprSpec(0, (), ()).num_regs = 1
