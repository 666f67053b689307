"""Tensors from a shape or a range: NumPy's values, with the dtypes that tensors have."""

import numpy as np
import pytest

import nnk
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


def test_what_is_refused():
    with pytest.raises(ShapeError, match="Expected sizes and numbers for zeros"):
        nnk.zeros((-1,), engine="cpu")
    with pytest.raises(ShapeError, match="Expected sizes and numbers for arange"):
        nnk.arange(0, 1, 0, engine="cpu")
    with pytest.raises(DTypeError, match="dtype of ones"):
        nnk.ones(3, "float64", "cpu")
    with pytest.raises(DTypeError, match="Expected integers from 0 to 255"):
        nnk.full(3, 256, "uint8", "cpu")
