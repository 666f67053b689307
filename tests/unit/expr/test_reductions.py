"""Reductions: the contract's bits, NumPy's shapes and forms, one kernel each, clear errors."""

import itertools

import numpy as np
import pytest

import nnk
from nnk.errors import DTypeError, ShapeError
from tests.oracle import tensors as oracle
from tests.results import bits, steps_of

pytestmark = pytest.mark.usefixtures("quiet_numpy")

NAN = float("nan")


AXES = [None, (), *(axes for count in (1, 2, 3) for axes in itertools.combinations((0, -2, 2), count)), 0, 1, -1]
REDUCTIONS = {"sum": (nnk.sum, oracle.sum_of, np.sum), "max": (nnk.max, oracle.max_of, np.max),
              "min": (nnk.min, oracle.min_of, np.min), "mean": (nnk.mean, oracle.mean, np.mean)}


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", AXES, ids=str)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name, axis, keepdims, a, x):
    ours, contract, numpys = REDUCTIONS[name]
    got = ours(x, axis, keepdims)
    assert got.shape == np.shape(numpys(a, axis=axis, keepdims=keepdims))
    assert np.array_equal(oracle.bits_of(got.numpy()), oracle.bits_of(contract(a, axis, keepdims)))
    method = getattr(x, name)(axis=axis, keepdims=keepdims)
    assert np.array_equal(oracle.bits_of(method.numpy()), oracle.bits_of(contract(a, axis, keepdims)))


def test_reductions_are_close_to_numpy(cpu, rng):
    a = rng.standard_normal((7, 300)).astype(np.float32)
    for name, (ours, _, numpys) in REDUCTIONS.items():
        for axis in (0, 1, None):
            assert np.allclose(ours(cpu.array(a), axis).numpy(), numpys(a.astype(np.float64), axis), atol=1e-4), name


def test_axes_are_added_in_row_major_order(cpu, rng):
    a = (rng.standard_normal((2, 300, 3)) * 1e6).astype(np.float32)
    x = cpu.array(a)
    assert np.array_equal(bits(x.sum(axis=(2, 1))), bits(x.sum(axis=(1, 2))))
    assert np.array_equal(bits(x.sum(axis=(0, 2))), bits(x.transpose(1, 0, 2).reshape(300, 6).sum(axis=-1)))


@pytest.mark.parametrize("axis", [None, 0, -1, ()])
def test_reductions_of_one_number(axis, cpu):
    for name, (ours, _, _) in REDUCTIONS.items():
        assert ours(cpu.array(2.5), axis).shape == (), name
        assert ours(cpu.array(2.5), axis).item() == 2.5


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize(("axis", "error", "text"), [
    (3, ShapeError, "Expected an axis from -3 to 2 for {}, got 3"),
    (-4, ShapeError, "Expected an axis from -3 to 2 for {}"),
    ((0, -3), ShapeError, "Expected different axes for {}"),
    (1.0, DTypeError, "an integer for an axis of {}, got float"),
    ("0", DTypeError, "an integer for an axis of {}, got str")])
def test_bad_axis(axis, error, text, name, x):
    with pytest.raises(error, match=text.format(name)):
        REDUCTIONS[name][0](x, axis)
    with pytest.raises(ShapeError, match=f"for {name}, got 5"):
        REDUCTIONS[name][0](x[0, 0, 0], 5)


@pytest.mark.parametrize(("shape", "axis"), [
    ((0,), None), ((0, 3), 0), ((3, 0), 1), ((2, 0, 3), (0, 1)), ((0, 3), None)])
def test_reductions_of_nothing(shape, axis, cpu):
    a = np.zeros(shape, np.float32)
    want = np.sum(a, axis=axis)
    got = nnk.sum(cpu.array(a), axis)
    assert got.shape == want.shape
    assert np.array_equal(bits(got), np.zeros(want.shape, np.uint32))
    assert np.array_equal(bits(nnk.mean(cpu.array(a), axis)), np.full(want.shape, 0x7FC00000, np.uint32))
    assert (got + 1).numpy().tolist() == (want + 1).tolist()
    for name in ("max", "min"):
        with pytest.raises(ShapeError, match=f"Expected at least one element to reduce for {name}, got shape"):
            REDUCTIONS[name][0](cpu.array(a), axis)


def test_reductions_of_other_axes_of_nothing(cpu):
    empty = cpu.array(np.zeros((3, 0), np.float32))
    for _, (ours, _, _) in REDUCTIONS.items():
        assert ours(empty, 0).numpy().shape == (0,)
        assert ours(empty, 0, True).numpy().shape == (1, 0)


def test_sum_of_negative_zeros(cpu):
    """-0 is the identity of a sum: NumPy's sum of negative zeros is +0, the contract's is -0."""
    assert bits(nnk.sum(cpu.array([-0.0, -0.0]))) == 0x80000000
    assert bits(nnk.sum(cpu.array([-0.0]), keepdims=True)).tolist() == [0x80000000]


def test_reductions_of_constants(cpu):
    x = cpu.array(np.full((4, 6), NAN, np.float32)) ** 0
    assert x.sum(axis=-1).tolist() == [6.0] * 4
    assert (x.mean(), x.max().item()) == (1.0, 1.0)
    assert nnk.softmax(x).tolist() == [[np.float32(1 / 6)] * 6] * 4
    assert (x @ cpu.array(np.ones((6, 2), np.float32))).tolist() == [[6.0] * 2] * 4


@pytest.mark.parametrize("name", REDUCTIONS)
def test_one_kernel_a_reduction(name, x):
    """What finishes a reduction (the division of a mean, the sign of a minimum) is part of its kernel."""
    for axis in (-1, None, (1, 2), (0, 1, 2)):
        for keepdims in (False, True):
            assert len(steps_of(REDUCTIONS[name][0](x, axis, keepdims))) == 1
    # Other axes are moved last: one copy before.
    assert len(steps_of(REDUCTIONS[name][0](x, 0))) <= 2
