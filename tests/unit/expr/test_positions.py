"""argmax and argmin: NumPy's positions, one kernel for short lines, integers beyond what floats count."""

import dataclasses
import itertools

import numpy as np
import pytest

import nnk
from nnk.engines.cpu import CpuEngine
from nnk.errors import AxisError, DTypeError, ShapeError
from nnk.expr import lines
from nnk.expr.node import leaf
from tests.results import steps_of

DTYPES = ("float32", "float16", "int32", "uint8", "bool")


def few_values(rng, shape, dtype):
    """Values with many equal ones, NaNs among floats, and the limits of integers."""
    values = rng.integers(-3, 3, shape).astype(dtype)
    if values.dtype.kind == "f":
        values[rng.random(shape) < 0.05] = np.nan
    elif dtype == "int32":
        values = np.where(rng.random(shape) < 0.3, rng.choice([-2**31, 2**31 - 1, 65536, -65536], shape), values)
    return values.astype(dtype)


@pytest.mark.parametrize(("name", "dtype"), [*itertools.product(("argmax", "argmin"), DTYPES)])
@pytest.mark.parametrize("longest", [8, 2**16])
def test_positions_are_numpys(name, dtype, longest, cpu, rng, monkeypatch):
    """A short limit puts long lines together from parts: whole ones, a rest, or both."""
    monkeypatch.setattr(lines, "LONGEST_LINE", longest)
    for shape in ((7,), (3, 8), (3, 16), (3, 19), (19, 3), (2, 19, 3), (2, 3, 20), (1, 1)):
        data = few_values(rng, shape, dtype)
        x = cpu.array(data)
        for axis in (None, *range(-len(shape), len(shape))):
            for ours, theirs in ((x, data), (x.T, data.T), (x[..., ::-2], data[..., ::-2])):
                got = getattr(nnk, name)(ours, axis).numpy()
                assert got.dtype == np.int32
                assert np.array_equal(got, getattr(np, name)(theirs, axis)), (shape, axis)
                assert np.array_equal(got.reshape(-1), getattr(ours, name)(axis, True).numpy().reshape(-1))


def test_the_first_of_equal_zeros_and_of_nans(cpu):
    x = cpu.array([[-0.0, 0.0, -1.0], [np.inf, np.nan, -np.nan]])
    assert x.argmax(1).tolist() == [0, 1]
    assert x.argmin(1).tolist() == [2, 1]
    assert (-x).argmin(1).tolist() == [0, 1]


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_kernel_for_a_short_line_and_what_it_comes_from(dtype, cpu):
    x = cpu.array(np.ones((6, 8), dtype))
    for axis, keepdims in itertools.product((None, 0, 1), (False, True)):
        assert len(steps_of(x.argmax(axis, keepdims))) == len(steps_of(x.argmin(axis, keepdims))) == 1
    assert len(steps_of(nnk.argmax(x * 2 + 1, 1))) == 1


def test_a_long_line_is_searched_in_a_few_kernels(cpu, rng):
    x = cpu.array(rng.integers(0, 100, 3 * lines.LONGEST_LINE + 5).astype(np.float32))
    assert len(steps_of(x.argmax())) <= 5
    assert x.argmax().item() == np.argmax(x.numpy())


@pytest.mark.parametrize("at", [2**24 + 1, 2**24 + 65_535, 2**24 + 131_073, 2**24 - 1])
def test_positions_beyond_what_float32_counts(at, cpu):
    """In whole parts and in the rest."""
    data = np.zeros(2**24 + 2 * 65_536 + 5, np.uint8)
    data[at] = 1
    assert cpu.array(data).argmax().item() == at
    assert (cpu.array(data) == 0).argmin().item() == at


def test_out_takes_int32(cpu):
    x, out = cpu.array([[3.0, 1.0], [0.0, 2.0]]), cpu.array([0, 0])
    assert nnk.argmax(x, 1, out=out) is out
    assert out.tolist() == [0, 1]
    assert x.argmin(0, out=out).tolist() == [1, 0]
    with pytest.raises(DTypeError, match="Expected a dtype that holds int32 for out of argmax, got uint8"):
        nnk.argmax(x, 1, out=cpu.array(np.zeros(2, np.uint8)))


def test_what_is_refused(cpu):
    empty = cpu.array(np.zeros((3, 0)))
    for call in (lambda: empty.argmax(), lambda: nnk.argmin(empty, 1)):
        with pytest.raises(ShapeError, match="Expected from 1 to 2\\*\\*31 elements to search for arg"):
            call()
    assert empty.argmax(0).shape == (0,)
    # Positions beyond 2**31 - 1 are no int32. Nothing is read.
    assert leaf(cpu, object(), (2**31,), np.dtype("uint8")).argmax().shape == ()
    with pytest.raises(ShapeError, match="Expected from 1 to 2\\*\\*31 elements to search for argmin"):
        leaf(cpu, object(), (2**16, 2**15 + 1), np.dtype("uint8")).argmin()
    with pytest.raises(AxisError, match="for argmax"):
        cpu.array([1.0]).argmax(1)
    with pytest.raises(DTypeError, match="an axis of argmax, got tuple"):
        cpu.array([1.0]).argmax((0,))


def test_lines_in_pieces_of_a_small_device(rng):
    """The numbers of columns and rows are part of the kernel: pieces leave the lines whole."""
    engine = CpuEngine()
    engine.limits = dataclasses.replace(engine.limits, buffer_bytes=4096)
    data = rng.standard_normal((70, 90)).astype(np.float32)
    for axis in (0, 1):
        result = engine.array(data).argmax(axis)
        assert len(steps_of(result)[0].pieces) > 1
        assert np.array_equal(result.numpy(), data.argmax(axis))
