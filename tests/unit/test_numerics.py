"""The contract as data: constants, and expressions that are C and GLSL at once."""

import re
import struct

import pytest

from nnk import numerics, ops


def float_of(bits):
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def test_identities():
    assert str(float_of(numerics.SUM_IDENTITY_BITS)) == "-0.0"
    assert float_of(numerics.MAX_IDENTITY_BITS) == float("-inf")
    a, b = float_of(numerics.MATMUL_PAD_A_BITS), float_of(numerics.MATMUL_PAD_B_BITS)
    assert str(a * b) == "-0.0"
    assert float_of(numerics.NAN_BITS) != float_of(numerics.NAN_BITS)


def test_reduction_shape_is_a_tree():
    assert numerics.REDUCE_LANES & (numerics.REDUCE_LANES - 1) == 0
    assert numerics.REDUCE_CHUNK % numerics.REDUCE_LANES == 0


@pytest.mark.parametrize(("name", "text"), numerics.FUNCTIONS.items())
def test_expression_is_balanced_and_uses_no_forbidden_function(name, text):
    code = text.format(a="x", b="y", c="z")
    is_integer = ops.OP_BY_NAME[name].kind == "integer"
    assert code.count("(") == code.count(")")
    called = set(re.findall(r"\b([A-Za-z_]\w*)\(", code))
    assert called <= {word for word in called if word.startswith("nn_")} | {"U2F", "F2U", "SEL", "INT"}
    # R2b: no literal zero in float arithmetic; unsigned integers have the suffix u.
    assert is_integer or not re.search(r"(?<![\w.])0(\.0*)?f?(?![\w.])", code)


@pytest.mark.parametrize("name", ["neg", "abs", "max", "min", "select", "lt", "eq"])
def test_selections_work_on_bits(name):
    assert numerics.FUNCTIONS[name].startswith(("U2F(", "nn_neg(", "nn_abs("))


@pytest.mark.parametrize(("name", "sign"), [("add", "+"), ("sub", "-"), ("mul", "*")])
def test_arithmetic_is_one_operation(name, sign):
    assert numerics.FUNCTIONS[name] == f"({{a}}){sign}({{b}})"
