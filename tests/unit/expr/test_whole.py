"""Reductions of integers and bools against NumPy: any axes, lines that must be cut, extremes."""

import numpy as np
import pytest

import nnk
from nnk.errors import ShapeError
from nnk.expr import whole

AXES = (None, 0, 1, -1, (0, 2), (), (0, 1, 2))


def draw(rng, dtype, shape):
    """Return values with the extremes of the dtype among them."""
    if dtype == "bool":
        return rng.random(shape) < 0.5
    limits = np.iinfo(dtype)
    values = rng.integers(limits.min, limits.max, shape, endpoint=True)
    return np.where(rng.random(shape) < 0.2, rng.choice([limits.min, limits.max], shape), values).astype(dtype)


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32"])
def test_reductions_are_numpys(dtype, axis, keepdims, cpu, rng):
    a = draw(rng, dtype, (3, 5, 7))
    x = cpu.array(a)
    total = nnk.sum(x, axis, keepdims)
    assert total.dtype == np.int32
    assert np.array_equal(total.numpy(), np.sum(a.astype(np.int64), axis, keepdims=keepdims).astype(np.int32))
    for ours, numpys in ((nnk.max, np.max), (nnk.min, np.min)):
        got = ours(x, axis, keepdims).numpy()
        assert got.dtype == a.dtype
        assert np.array_equal(got, numpys(a, axis, keepdims=keepdims)), (ours, axis)


def test_one_value(cpu):
    for value in (np.int32(-2**31), np.uint8(200), np.bool_(True)):
        x = cpu.array(value)
        assert (nnk.sum(x).item(), nnk.max(x).item(), nnk.min(x).item()) == (int(value), value, value)


def test_long_lines_are_cut_and_wrap(cpu, rng, monkeypatch):
    monkeypatch.setattr(whole, "LONGEST_BYTES", 8)
    monkeypatch.setattr(whole, "LONGEST_BOOLS", 16)
    for dtype in ("bool", "uint8", "int32"):
        for shape, axis in (((3, 100), 1), ((100, 3), 0), ((17, 2, 9), (0, 2)), ((64,), 0), ((65,), None)):
            a = draw(rng, dtype, shape)
            want = np.sum(a.astype(np.int64), axis).astype(np.int32)
            assert np.array_equal(nnk.sum(cpu.array(a), axis).numpy(), want), (dtype, shape)


def test_line_beyond_the_limit(cpu):
    a = np.full(70_001, 2**31 - 1, np.int32)
    assert nnk.sum(cpu.array(a)).item() == int(np.sum(a, dtype=np.int64).astype(np.int32))


def test_bools_beyond_what_floats_count(cpu):
    assert nnk.sum(nnk.ones(2**24 + 3, bool, cpu)).item() == 2**24 + 3


@pytest.mark.parametrize("dtype", ["int32", "uint8", "bool"])
def test_nothing(dtype, cpu):
    x = cpu.array(np.zeros((3, 0), dtype))
    assert nnk.sum(x, 1).tolist() == [0, 0, 0]
    with pytest.raises(ShapeError, match="Expected at least one element to reduce for max, got") as error:
        nnk.max(x, 1)
    assert error.value.op == "max"
    with pytest.raises(ShapeError, match="Expected at least one element to reduce for min, got") as error:
        nnk.min(x)
    assert error.value.op == "min"


def test_counting_is_one_kernel(cpu):
    x = cpu.array(np.ones((4, 9), np.float32))
    assert len(cpu.schedule([(x > 0).sum(axis=-1, keepdims=True)])[0].steps) == 1
