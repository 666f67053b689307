"""Integer, bool and half tensors against NumPy: wrap-around, promotion, comparisons, casts."""

from __future__ import annotations

import itertools
import random
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nnk
from nnk.errors import DTypeError
from tests import integers
from tests.integers import BINARY, UNARY, narrowed, values
from tests.oracle import arith, arrays
from tests.oracle.integers import saturated

DTYPES = ("bool", "uint8", "int32")
SHAPES = (((3, 41), (3, 41)), ((6, 1), (7,)), ((), (5,)), ((0, 3), (3,)))

pytestmark = pytest.mark.usefixtures("quiet_numpy")


def refused_by_numpy(function: Any, *arrays_of: Any) -> bool:
    """Whether NumPy has no such function for these dtypes."""
    try:
        with np.errstate(all="ignore"):
            function(*arrays_of)
    except TypeError:
        return True
    return False


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize(("left", "right"), list(itertools.product(DTYPES, DTYPES)))
def test_two_operands(name: str, left: str, right: str, cpu: Any) -> None:
    ours, numpys = BINARY[name]
    for seed, (one, other) in enumerate(SHAPES):
        rand = random.Random(seed)
        a, b = values(rand, left, one), values(rand, right, other)
        if refused_by_numpy(numpys, a, b):
            with pytest.raises(DTypeError, match="Expected"):
                ours(cpu.array(a), cpu.array(b))
            continue
        got = ours(cpu.array(a), cpu.array(b)).numpy()
        with np.errstate(all="ignore"):
            # int32 beside uint8 meet in int32, and int32's quotient is that of float32.
            want = (arrays.ARRAY_OPS[10](a.astype(np.float32), b.astype(np.float32)) if name == "truediv"
                    else narrowed(numpys(a, b)))
        if name == "truediv":
            want = arrays.canonical(want)
        assert got.dtype == want.dtype, (a.dtype, b.dtype)
        assert got.shape == want.shape
        assert np.array_equal(got, want, equal_nan=name == "truediv"), (a, b, got, want)


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("dtype", DTYPES)
def test_one_operand(name: str, dtype: str, cpu: Any) -> None:
    ours, numpys = UNARY[name]
    a = values(random.Random(1), dtype, (5, 33))
    if refused_by_numpy(numpys, a):
        with pytest.raises(DTypeError, match="Expected"):
            ours(cpu.array(a))
        return
    got = ours(cpu.array(a)).numpy()
    want = a if name in ("floor",) else narrowed(numpys(a))
    want = want.astype(np.bool_) if (name, dtype) == ("square", "bool") else want
    assert got.dtype == want.dtype
    assert np.array_equal(got, want)


@pytest.mark.parametrize("number", [0, 1, 3, 255, True, False, -1, 256, 2**31, 0.5, -0.0, 1e300])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["add", "mul", "lt", "eq", "maximum"])
def test_python_numbers_are_weak(name: str, dtype: str, number: Any, cpu: Any) -> None:
    ours, numpys = BINARY[name]
    a = values(random.Random(3), dtype, (40,))
    meets = np.result_type(a.dtype, number if not isinstance(number, bool) else np.bool_)
    integer = isinstance(number, int) and meets.kind in "iu"
    limits = np.iinfo("int32" if dtype == "bool" else dtype) if integer else None
    if limits is not None and not limits.min <= number <= limits.max:
        with pytest.raises(DTypeError, match="Expected an integer from"):
            ours(cpu.array(a), number)
        return
    for swapped in (False, True):
        got = (ours(number, cpu.array(a)) if swapped else ours(cpu.array(a), number)).numpy()
        with np.errstate(all="ignore"):
            if isinstance(number, float):
                pair = a.astype(np.float32), np.float32(number)
                want = np.asarray(numpys(*(pair[::-1] if swapped else pair)))
            else:
                want = narrowed(numpys(number, a) if swapped else numpys(a, number))
        assert got.dtype == want.dtype
        assert np.array_equal(got, want, equal_nan=want.dtype.kind == "f")


def test_dtype_depends_on_dtypes_alone(cpu: Any) -> None:
    for shape in ((), (1,), (0,), (3, 3)):
        tensors = {dtype: cpu.array(np.zeros(shape, dtype)) for dtype in (*DTYPES, "float32", "float16")}
        tensors["bfloat16"] = cpu.array(np.zeros(shape, ml_dtypes.bfloat16))
        for (left, a), (right, b) in itertools.product(tensors.items(), tensors.items()):
            floats = {left, right} & {"float32", "float16", "bfloat16"}
            want = "float32" if floats else narrowed(np.zeros(1, left) * np.zeros(1, right)).dtype.name
            assert (a * b).dtype.name == want, (left, right)


# ------------------------------------------------------------------------------------------------- halves

HALVES = {"float16": (np.float16, arith.float16_to_float32, arith.float32_to_float16),
          "bfloat16": (ml_dtypes.bfloat16, arith.bfloat16_to_float32, arith.float32_to_bfloat16)}


@pytest.mark.parametrize("name", HALVES)
def test_every_half_becomes_its_float32_and_itself_again(name: str, cpu: Any) -> None:
    dtype, widen, narrow = HALVES[name]
    every = np.arange(65536, dtype=np.uint16)
    tensor = cpu.array(every.view(dtype))
    assert tensor.dtype.name == name
    wide = tensor.astype("float32").numpy()
    assert wide.view(np.uint32).tolist() == [widen(h) for h in range(65536)]
    again = tensor.astype("float32").astype(name).numpy()
    assert again.dtype == dtype
    assert again.view(np.uint16).tolist() == [narrow(widen(h)) for h in range(65536)]
    with np.errstate(invalid="ignore"):
        package = every.view(dtype).astype(np.float32)
    assert np.array_equal(wide, package, equal_nan=True)


def floats_around_halves(rng: np.random.Generator, name: str) -> np.ndarray[Any, Any]:
    """Random bits; values on, between and next to halves; the borders of subnormals and of overflow."""
    dtype = HALVES[name][0]
    halves = np.arange(65536, dtype=np.uint16)
    with np.errstate(all="ignore"):
        exact = halves.view(dtype).astype(np.float32).view(np.uint32)
        middle = ((halves.view(dtype).astype(np.float64) + (halves + np.uint16(1)).view(dtype).astype(np.float64)) / 2)
        ties = middle.astype(np.float32).view(np.uint32)
    bits = [rng.integers(0, 2**32, 200_000, dtype=np.uint64).astype(np.uint32)]
    bits += [base + np.uint32(step) for base in (exact, ties) for step in (0, 1, 0xFFFFFFFF)]
    return np.concatenate(bits).view(np.float32)


@pytest.mark.parametrize("name", HALVES)
def test_rounding_to_a_half_is_that_of_numpy(name: str, cpu: Any, rng: Any) -> None:
    dtype, _, narrow = HALVES[name]
    x = floats_around_halves(rng, name)
    got = cpu.array(x).astype(name).numpy().view(np.uint16)
    with np.errstate(all="ignore"):
        want = np.where(np.isnan(x), 0x7E00 if name == "float16" else 0x7FC0, x.astype(dtype).view(np.uint16))
    assert np.array_equal(got, want)
    for value, half in zip(x[:3000].view(np.uint32).tolist(), got[:3000].tolist(), strict=True):
        assert narrow(value) == half, hex(value)


@pytest.mark.parametrize("name", HALVES)
def test_halves_are_rounded_where_astype_says_and_nowhere_else(name: str, cpu: Any, rng: Any) -> None:
    """So a result does not depend on which ops share a kernel."""
    dtype = HALVES[name][0]
    a, b = (rng.standard_normal((5, 37)).astype(dtype) for _ in range(2))
    x, y = cpu.array(a), cpu.array(b)
    assert (x + y).dtype == np.float32
    wide = a.astype(np.float32) * b.astype(np.float32) + np.float32(1)
    assert np.array_equal((x * y + 1).numpy(), wide)
    apart = (x * y).astype(name).eval()
    together = (x * y).astype(name) * 3.0
    assert np.array_equal(together.numpy(), (apart * 3.0).numpy())
    rounded = (a.astype(np.float32) * b.astype(np.float32)).astype(dtype).astype(np.float32) * np.float32(3)
    assert np.array_equal(together.numpy(), rounded)


# ------------------------------------------------------------------------------------------------- casts

FLOATS = np.array([0.0, -0.0, 0.5, -0.5, 0.99, 1.0, -1.0, 1.5, 2.5, 127.9, 255.0, 255.9, 256.0, -3.7, 16777217.0,
                   2147483520.0, 2147483648.0, -2147483648.0, -2147483904.0, 1e30, -1e30, np.inf, -np.inf, np.nan,
                   1e-45, 65504.0, 65519.0, 65520.0, 3.4e38], np.float32)


def test_floats_to_integers_saturate_and_nan_is_zero(cpu: Any) -> None:
    x = cpu.array(FLOATS)
    assert x.astype("int32").tolist() == saturated(FLOATS, -2**31, 2**31 - 1).tolist()
    assert x.astype("uint8").tolist() == saturated(FLOATS, 0, 255).tolist()
    assert x.astype(bool).tolist() == [bool(value != 0) for value in FLOATS.tolist()]


def test_integers_to_floats_are_correctly_rounded(cpu: Any, rng: Any) -> None:
    i = np.concatenate([values(random.Random(2), "int32", (5000,)), rng.integers(-2**31, 2**31, 20000).astype(np.int32),
                        np.array([2**24, 2**24 + 1, 2**24 + 3, 2**25 + 2, 2**25 + 6, 2**31 - 1, -2**31], np.int32)])
    assert np.array_equal(cpu.array(i).astype("float32").numpy(), i.astype(np.float32))
    assert np.array_equal((cpu.array(i) * 1.0).numpy(), i.astype(np.float32))


@pytest.mark.parametrize("source", [*DTYPES, "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("target", [*DTYPES, "float32", "float16", "bfloat16"])
def test_casts(source: str, target: str, cpu: Any) -> None:
    dtype = np.dtype(ml_dtypes.bfloat16 if source == "bfloat16" else source)
    wanted = np.dtype(ml_dtypes.bfloat16 if target == "bfloat16" else target)
    a = (values(random.Random(5), source, (64,)) if source in DTYPES else
         np.array([0.0, -0.0, 1.0, 3.7, -3.7, 200.5, 100.25, 0.1], np.float32).astype(dtype))
    got = cpu.array(a).astype(target)
    assert got.dtype == wanted
    if source not in DTYPES and target in ("uint8", "int32"):
        want = saturated(a.astype(np.float32), *((0, 255) if target == "uint8" else (-2**31, 2**31 - 1)))
    else:
        with np.errstate(all="ignore"):
            # NumPy rounds an integer to float16 at once, which is the same: float16 ends where float32 is exact.
            want = a.astype(wanted) if target != "bfloat16" else a.astype(np.float32).astype(wanted)
    assert np.array_equal(got.numpy().astype(np.float64), np.asarray(want).astype(np.float64))


def test_every_integer_op_is_reached() -> None:
    reached: set[int] = set()
    engine = nnk.engine("cpu")
    calls = [(row, 2) for row in BINARY.values()] + [(row, 1) for row in UNARY.values()]
    for ((ours, numpys), count), dtypes in itertools.product(calls, itertools.product(DTYPES, DTYPES)):
        operands = [np.ones(3, dtype) for dtype in dtypes][:count]
        if not refused_by_numpy(numpys, *operands):
            steps = engine.schedule([ours(*map(engine.array, operands))])[0].steps
            reached |= {instr.op for step in steps for instr in step.spec.instrs}
    for target in ("int32", "uint8"):
        (step,) = engine.schedule([engine.array(FLOATS).astype(target)])[0].steps
        reached |= {instr.op for instr in step.spec.instrs}
    assert {op.code for op in integers.OPS} <= reached
