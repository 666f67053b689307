"""Which op a call means: forms for integers and bools, weak numbers, casts that need no kernel. See also
tests/property/test_integers.py, which compares results with NumPy."""

import numpy as np
import pytest

import nnk
from nnk.errors import DTypeError
from nnk.expr import promote
from nnk.expr.dtypes import BOOL, FLOAT16, FLOAT32, INT32, UINT8


@pytest.fixture
def make(cpu):
    """Return a function from a dtype to a tensor of it."""
    return lambda dtype: cpu.array(np.ones(3, dtype))


@pytest.mark.parametrize(("dtypes", "numbers", "want"), [
    ([BOOL], [], BOOL), ([BOOL, UINT8], [], UINT8), ([UINT8, INT32], [], INT32), ([INT32, FLOAT16], [], FLOAT32),
    ([FLOAT16], [], FLOAT32), ([BOOL], [True], BOOL), ([BOOL], [1], INT32), ([UINT8], [1], UINT8),
    ([UINT8], [1.0], FLOAT32), ([BOOL], [1.5], FLOAT32), ([FLOAT32], [1], FLOAT32), ([], [1], FLOAT32)])
def test_common_dtype(dtypes, numbers, want):
    assert promote.common_dtype(dtypes, numbers) == want


def ops_of(tensor):
    """Return the ops of a lazy tensor, itself first."""
    found, stack = [], [tensor]
    while stack:
        node = stack.pop()
        if node.op not in ("leaf", "const"):
            found.append(node.op)
            stack += reversed(node.args)
    return found


@pytest.mark.parametrize(("call", "want"), [
    (lambda x, i, u, b: i + i, ["iadd"]), (lambda x, i, u, b: u + u, ["wrap_u8", "iadd"]),
    (lambda x, i, u, b: u + i, ["iadd"]), (lambda x, i, u, b: x + i, ["add", "i2f"]),
    (lambda x, i, u, b: b + b, ["ior"]), (lambda x, i, u, b: b * x, ["mul"]),
    (lambda x, i, u, b: b + i, ["iadd", "b2i"]), (lambda x, i, u, b: i > 2, ["ilt"]),
    (lambda x, i, u, b: i >= x, ["ge", "i2f"]), (lambda x, i, u, b: i / i, ["div", "i2f", "i2f"]),
    (lambda x, i, u, b: ~b, ["eq"]), (lambda x, i, u, b: ~u, ["wrap_u8", "inot"]), (lambda x, i, u, b: u & u, ["iand"]),
    (lambda x, i, u, b: nnk.where(i, x, 0), ["select", "ine"]), (lambda x, i, u, b: nnk.where(b, u, u), ["select"]),
    (lambda x, i, u, b: nnk.floor(i), []), (lambda x, i, u, b: abs(u), []), (lambda x, i, u, b: nnk.relu(i), ["imax"]),
    (lambda x, i, u, b: i ** 2, ["imul"]), (lambda x, i, u, b: nnk.exp(b), ["exp"])])
def test_ops(call, want, make):
    assert ops_of(call(make(np.float32), make(np.int32), make(np.uint8), make(np.bool_))) == want


@pytest.mark.parametrize(("source", "target", "want"), [
    ("float32", "float32", []), ("float32", "float16", ["round_f16"]), ("float32", "bfloat16", ["round_bf16"]),
    ("float16", "float32", ["copy"]), ("bool", "float16", ["copy"]), ("int32", "float16", ["round_f16", "i2f"]),
    ("int32", "float32", ["i2f"]), ("uint8", "int32", ["copy"]), ("int32", "uint8", ["wrap_u8"]),
    ("float32", "uint8", ["f2u8"]), ("float16", "int32", ["f2i"]), ("bool", "int32", ["b2i"]),
    ("int32", "bool", ["ine"]), ("float32", "bool", ["ne"])])
def test_casts(source, target, want, make):
    cast = make(source).astype(target)
    assert ops_of(cast) == want
    assert cast.dtype.name == target


def test_integers_that_do_not_fit(make):
    with pytest.raises(DTypeError, match=r"Expected an integer from 0 to 255 beside a tensor of uint8 for add, got -1"):
        make(np.uint8) + -1
    with pytest.raises(DTypeError, match=r"got one of 101 bits"):
        make(np.int32) * 2**100


@pytest.mark.parametrize("call", [
    lambda x, b: x & x, lambda x, b: x << 1, lambda x, b: ~x, lambda x, b: b & 1.0,
    lambda x, b: b - b, lambda x, b: -b])
def test_refused_dtypes(call, make):
    with pytest.raises(DTypeError, match="convert with astype"):
        call(make(np.float32), make(np.bool_))
