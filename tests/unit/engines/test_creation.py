"""Tensors from a shape or a range: NumPy's values, with the dtypes that tensors have."""

import tracemalloc

import numpy as np
import pytest

import nnk
from nnk.engines.cpu import CpuEngine
from nnk.errors import DTypeError, ShapeError


@pytest.mark.parametrize(("ours", "numpys", "dtype"), [
    (lambda: nnk.zeros((2, 3), engine="cpu"), np.zeros((2, 3)), "float32"),
    (lambda: nnk.zeros(4, "uint8", "cpu"), np.zeros(4), "uint8"),
    (lambda: nnk.ones((), bool, "cpu"), np.ones(()), "bool"),
    (lambda: nnk.ones((2,), "bfloat16", "cpu"), np.ones(2), "bfloat16"),
    (lambda: nnk.full((2, 0), 7, engine="cpu"), np.full((2, 0), 7), "int32"),
    (lambda: nnk.full(3, 0.1, engine="cpu"), np.full(3, np.float32(0.1)), "float32"),
    (lambda: nnk.full(3, True, engine="cpu"), np.full(3, True), "bool"),
    (lambda: nnk.arange(5, engine="cpu"), np.arange(5), "int32"),
    (lambda: nnk.arange(1, 2, 0.25, engine="cpu"), np.arange(1, 2, 0.25), "float32"),
    (lambda: nnk.arange(9, 0, -3, "float16", "cpu"), np.arange(9, 0, -3), "float16")])
def test_values_and_dtypes(ours, numpys, dtype):
    tensor = ours()
    assert tensor.dtype.name == dtype
    assert tensor.shape == numpys.shape
    assert np.array_equal(tensor.numpy().astype(np.float64), numpys.astype(np.float64))


@pytest.mark.parametrize(("ours", "want"), [
    (lambda x: nnk.zeros_like(x), np.zeros((2, 3), np.int32)), (lambda x: nnk.ones_like(x), np.ones((2, 3), np.int32)),
    (lambda x: nnk.empty_like(x), np.zeros((2, 3), np.int32)),
    (lambda x: nnk.full_like(x, 7), np.full((2, 3), 7, np.int32)),
    (lambda x: nnk.ones_like(x, "float16"), np.ones((2, 3), np.float16)),
    (lambda x: nnk.full_like(x > 1, True), np.ones((2, 3), bool)),
    (lambda x: nnk.full_like(x * 0.5, 3), np.full((2, 3), 3, np.float32)),
    (lambda x: nnk.zeros_like(x.T), np.zeros((3, 2), np.int32)),
    (lambda x: nnk.empty(2, engine="cpu"), np.zeros(2, "f4")),
    (lambda x: nnk.empty((2, 0), "uint8", "cpu"), np.zeros((2, 0), np.uint8)),
    (lambda x: nnk.zeros_like([[1, 2]], engine="cpu"), np.zeros((1, 2), np.int32)),
    (lambda x: nnk.ones_like(np.float64([0.5]), engine="cpu"), np.ones(1, np.float32)),
    (lambda x: nnk.zeros_like(np.int64([2**40]), engine="cpu"), np.zeros(1, np.int32))])
def test_like_another_one(ours, want, cpu):
    """The results have storage of their own, for out=, even of a lazy tensor."""
    tensor = ours(cpu.array(np.arange(6).reshape(2, 3)))
    assert tensor.is_evaluated
    assert tensor.engine.name == "cpu"
    got = tensor.numpy()
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    assert np.array_equal(got, want)


def test_like_stays_on_its_engine():
    other = CpuEngine()
    x = other.array([1.0])
    assert nnk.zeros_like(x).engine is nnk.full_like(x + 1, 2).engine is other
    assert nnk.zeros_like(x, engine="cpu").engine is nnk.engine("cpu")


def test_one_value_takes_no_more_memory_than_the_tensor(cpu):
    """NumPy's array of the value would have eight bytes for each element."""
    tracemalloc.start()
    try:
        nnk.full_like(nnk.zeros(2**20, "uint8", cpu), 7)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * 2**20


def test_what_is_refused():
    with pytest.raises(ShapeError, match="Expected sizes and numbers for zeros, got what NumPy refuses: Unable"):
        nnk.zeros(2**45, engine="cpu")
    with pytest.raises(ShapeError, match="Expected sizes and numbers for zeros"):
        nnk.zeros((-1,), engine="cpu")
    with pytest.raises(ShapeError, match="Expected sizes and numbers for arange"):
        nnk.arange(0, 1, 0, engine="cpu")
    with pytest.raises(DTypeError, match="dtype of ones"):
        nnk.ones(3, "float64", "cpu")
    with pytest.raises(DTypeError, match="Expected integers from 0 to 255"):
        nnk.full(3, 256, "uint8", "cpu")
    with pytest.raises(DTypeError, match="Expected integers for a tensor of int32, got dtype float64"):
        nnk.full_like(nnk.array([1], "cpu"), 2.5)
    with pytest.raises(DTypeError, match="Expected a tensor or numbers for zeros_like, got dtype <U1"):
        nnk.zeros_like(["a"], engine="cpu")
