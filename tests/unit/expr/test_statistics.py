"""Variance, standard deviation, any and all: the oracle's bits over every axis, and NumPy's shapes."""

import itertools

import numpy as np
import pytest

import nnk
from nnk.errors import DTypeError, ShapeError
from tests.oracle import tensors as oracle

pytestmark = pytest.mark.usefixtures("quiet_numpy")

AXES = [None, (), *(axes for count in (1, 2, 3) for axes in itertools.combinations((0, -2, 2), count)), 0, 1, -1]
CALLS = {"var": (nnk.var, oracle.var, np.var), "std": (nnk.std, oracle.std, np.std),
         "any": (nnk.any, oracle.any_of, np.any), "all": (nnk.all, oracle.all_of, np.all)}


@pytest.fixture
def a(rng):
    values = rng.standard_normal((3, 4, 5)).astype(np.float32)
    values[0, 1] = 0
    values[:, :, 2] *= -0.0
    return values


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", AXES, ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_every_axis(name, axis, keepdims, a, cpu):
    ours, contract, numpys = CALLS[name]
    x = cpu.array(a)
    for got in (ours(x, axis, keepdims=keepdims), getattr(x, name)(axis, keepdims=keepdims)):
        assert got.shape == np.shape(numpys(a, axis=axis, keepdims=keepdims))
        assert np.array_equal(oracle.bits_of(got.numpy()), oracle.bits_of(contract(a, axis, keepdims=keepdims)))


def test_close_to_numpy(cpu, rng):
    a = rng.standard_normal((30, 200)).astype(np.float32) * 5 + 3
    for axis, ddof in ((0, 0), (1, 1), (None, 2.5)):
        assert np.allclose(nnk.var(cpu.array(a), axis, ddof).numpy(), np.var(a, axis, ddof=ddof), rtol=1e-5)
        assert np.allclose(nnk.std(cpu.array(a), axis, ddof).numpy(), np.std(a, axis, ddof=ddof), rtol=1e-5)


def test_degrees_of_freedom(cpu):
    x = cpu.array([1.0, 3.0])
    assert nnk.var(x, ddof=1).item() == 2.0
    assert nnk.var(x, ddof=2).item() == np.inf
    assert nnk.var(x, ddof=5).item() == np.inf
    assert np.isnan(nnk.var(cpu.array([1.0]), ddof=1).item())
    with pytest.raises(DTypeError, match="Expected a number for ddof of var, got str"):
        nnk.var(x, ddof="1")


def test_one_kernel_over_rows_and_over_columns(cpu, a):
    x = cpu.array(a.reshape(12, 5))
    for call in (nnk.var, nnk.std, nnk.any, nnk.all):
        for axis in (0, 1):
            assert len(cpu.schedule([call(x * 2, axis)])[0].steps) == 1, (call, axis)


def test_truth_of_special_values(cpu):
    x = cpu.array([[0.0, -0.0], [0.0, np.nan], [1e-45, 0.0], [np.inf, -1.0]])
    assert nnk.any(x, 1).tolist() == [0.0, 1.0, 1.0, 1.0]
    assert nnk.all(x, 1).tolist() == [0.0, 0.0, 0.0, 1.0]


def test_of_nothing(cpu):
    x = cpu.array(np.zeros((0, 3), np.float32))
    assert nnk.any(x, 0).tolist() == [0.0] * 3
    assert nnk.all(x, 0).tolist() == [1.0] * 3
    assert np.isnan(nnk.var(x, 0).numpy()).all()
    assert nnk.std(x, 1).numpy().shape == (0,)
    with pytest.raises(ShapeError, match="Expected an axis from -2 to 1 for var"):
        nnk.var(x, 2)
    with pytest.raises(ShapeError, match="Expected an axis from -2 to 1 for any"):
        nnk.any(x, 2)


def test_of_one_number(cpu):
    assert [call(cpu.array(3.0)).item() for call in (nnk.var, nnk.std, nnk.any, nnk.all)] == [0.0, 0.0, 1.0, 1.0]
