"""Functions: the contract's bits, NumPy's shapes, forms of one kernel, and clear errors."""


import numpy as np
import pytest

import nnk
from nnk.errors import DTypeError, ExprError
from nnk.expr import functions
from tests.oracle import tensors as oracle
from tests.results import bits, steps_of

pytestmark = pytest.mark.usefixtures("quiet_numpy")

UNARY = ("exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "erf", "silu", "sin", "cos", "floor", "ceil", "trunc",
         "sign", "isnan", "isinf", "isfinite", "exp2", "expm1", "log2", "log1p")
NAN, INF = float("nan"), float("inf")


# ------------------------------------------------------------------------------------------------- elementwise

@pytest.mark.parametrize("name", UNARY)
def test_unary(name, a, x):
    result = getattr(nnk, name)(x)
    assert result.dtype == (np.bool_ if name in ("isnan", "isinf", "isfinite") else np.float32)
    assert np.array_equal(bits(result.astype("float32")), oracle.bits_of(oracle.elementwise(name, a)))


def test_other_elementwise(a, x):
    e = oracle.elementwise
    assert np.array_equal(bits(nnk.gelu(x)), oracle.bits_of(e("gelu", a)))
    assert np.array_equal(bits(nnk.gelu(x, "tanh")), oracle.bits_of(e("gelu_tanh", a)))
    assert np.array_equal(bits(nnk.round(x * 2)), oracle.bits_of(e("rint", a * 2)))
    assert np.array_equal(bits(nnk.square(x)), oracle.bits_of(a * a))
    assert np.array_equal(bits(nnk.reciprocal(x)), oracle.bits_of(np.float32(1) / a))
    assert np.array_equal(bits(nnk.relu(x)), oracle.bits_of(e("max", a, 0.0)))
    assert np.array_equal(bits(nnk.absolute(x)), oracle.bits_of(e("abs", a)))
    assert np.array_equal(bits(nnk.negative(x)), oracle.bits_of(e("neg", a)))
    assert np.array_equal(bits(nnk.maximum(x, 0.5)), oracle.bits_of(e("max", a, 0.5)))
    assert np.array_equal(bits(nnk.minimum([[0.5]], x)), oracle.bits_of(e("min", 0.5, a)))


def test_special_values_of_maximum_and_relu(cpu):
    zeros = cpu.array([-0.0, 0.0, NAN, -INF])
    assert bits(nnk.relu(zeros)).tolist() == [0, 0, 0x7FC00000, 0]
    assert bits(nnk.maximum(zeros, -0.0)).tolist() == [0x80000000, 0, 0x7FC00000, 0x80000000]
    assert bits(nnk.minimum(zeros, 0.0)).tolist() == [0x80000000, 0, 0x7FC00000, 0xFF800000]


EDGES = np.float32([-0.0, 0.0, -1e-45, 1e-45, -0.5, 0.5, -0.75, 1.5, -2.5, 2.5, 8388607.5, -8388609.0, 3e38, INF, -INF,
                    NAN])


@pytest.mark.parametrize("name", ["floor", "ceil", "trunc", "round", "sign", "isnan", "isinf", "isfinite"])
def test_exact_functions_are_numpys(name, cpu):
    numpys = np.asarray(getattr(np, name)(EDGES), np.float32)
    assert np.array_equal(bits(getattr(nnk, name)(cpu.array(EDGES)).astype("float32")), oracle.bits_of(numpys))


@pytest.mark.parametrize("name", ["sin", "cos", "exp2", "expm1", "log2", "log1p"])
def test_functions_are_close_to_numpy(name, cpu, rng):
    a = rng.uniform(0.0, 80.0, 500).astype(np.float32)
    exact = getattr(np, name)(a.astype(np.float64))
    assert np.allclose(getattr(nnk, name)(cpu.array(a)).numpy(), exact, rtol=2e-7, atol=1e-30)


def test_logical_functions_are_numpys(cpu):
    a, b = EDGES[:, None], EDGES[None, :]
    x, y = cpu.array(a), cpu.array(b)
    assert np.array_equal(nnk.logical_and(x, y).numpy(), np.logical_and(a, b))
    assert np.array_equal(nnk.logical_or(x, y).numpy(), np.logical_or(a, b))
    assert np.array_equal(nnk.logical_not(x).numpy(), np.logical_not(a))
    assert nnk.logical_and(1.0, x).tolist() == nnk.logical_or(0.0, x).tolist() == (a != 0).tolist()


def test_clip(cpu):
    x = cpu.array(EDGES)
    assert np.array_equal(bits(nnk.clip(x, -1.0, 2.0)), oracle.bits_of(np.clip(EDGES, -1.0, 2.0)))
    assert nnk.clip(x[:3], 5.0, [1.0, 2.0, 3.0]).tolist() == [1.0, 2.0, 3.0]
    assert np.isnan(nnk.clip(x[:2], 0.0, NAN).numpy()).all()


def test_where(cpu):
    condition = cpu.array([0.0, -0.0, 1.0, NAN, 1e-45, -INF])
    assert nnk.where(condition, 1.0, 2.0).tolist() == [2.0, 2.0, 1.0, 1.0, 1.0, 1.0]
    assert nnk.where(condition > 0, condition[:, None], [3.0]).shape == (6, 6)
    assert nnk.where(cpu.array([True, False]), 1.0, 2.0).tolist() == [1.0, 2.0]


def test_gelu_form_is_checked(x):
    with pytest.raises(ExprError, match="""Expected "none" or "tanh" for approximate of gelu, got 'sigmoid'"""):
        nnk.gelu(x, "sigmoid")


def test_arrays_alone_have_no_engine():
    with pytest.raises(DTypeError, match="Expected at least one tensor among the operands of exp"):
        nnk.exp(np.ones(3))


# ------------------------------------------------------------------------------------------------- power and division

ODD = np.float32([1.1, -0.7, 0.0, -0.0, 3.0, -3.0, INF, -INF, NAN, 1e-40, -1e-40, 1e20, 0.1, 7.0, -2.5, 1.0, -1.0])


@pytest.mark.parametrize("n", [0, 1, 2, 3, -1, -2, 64, 0.5, -0.5, 1.5, INF, -INF, NAN, 2.0**24, np.float32(2),
                               np.int8(3), True])
def test_power_of_numbers(n, cpu):
    got = bits(cpu.array(ODD) ** n)
    assert np.array_equal(oracle.bits_of(got.view(np.float32)), oracle.bits_of(oracle.power(ODD, float(n))))


@pytest.mark.parametrize("n", [0, 1, 2, -1, 0.5])
def test_short_powers_are_those_of_numpy(n, cpu, quiet_numpy):
    got = cpu.array(ODD) ** n
    assert np.array_equal(oracle.bits_of(got.numpy()), oracle.bits_of(ODD ** np.float32(n)))
    assert got.op != "pow"


@pytest.mark.parametrize(("name", "function"), [("power", np.power), ("fmod", np.fmod), ("remainder", np.remainder),
                                                ("floor_divide", np.floor_divide), ("arctan2", np.arctan2)])
def test_operands_and_special_cases_as_in_numpy(name, function, cpu, quiet_numpy):
    a, b = ODD[:, None], np.concatenate([ODD, np.float32([2.0, 5.0, 0.5])])
    want = function(a, b)
    got = getattr(nnk, name)(cpu.array(a), b).numpy()
    assert got.shape == want.shape
    if name in ("power", "arctan2"):
        assert np.array_equal(np.signbit(got) & ~np.isnan(got), np.signbit(want) & ~np.isnan(want))
        assert np.allclose(got, want, rtol=3e-7, atol=1e-45, equal_nan=True)
    else:
        assert np.array_equal(oracle.bits_of(got), oracle.bits_of(want))
    assert np.array_equal(bits(getattr(nnk, name)(-2.5, cpu.array(b))), bits(getattr(nnk, name)(cpu.array([-2.5]), b)))


def test_many_quotients_as_in_numpy(cpu, rng, quiet_numpy):
    a, b = (rng.integers(0, 2**32, 20_000, dtype=np.uint32).view(np.float32) for _ in range(2))
    c = (rng.standard_normal(20_000) * 100).astype(np.float32)
    for x, y in ((a, b), (c, np.flip(c)), (c, np.float32(0.1)), (a, c)):
        assert np.array_equal(oracle.bits_of((cpu.array(x) % y).numpy()), oracle.bits_of(x % y))
        assert np.array_equal(oracle.bits_of((cpu.array(x) // y).numpy()), oracle.bits_of(x // y))


def test_operators_of_division(cpu):
    x = cpu.array([-7.0, 7.0])
    assert (x % 3).tolist() == [2.0, 1.0]
    assert (x // 3).tolist() == [-3.0, 2.0]
    assert (3 % x).tolist() == [-4.0, 3.0]
    assert (3 // x).tolist() == [-1.0, 0.0]


def test_arctan(cpu, rng):
    x = np.concatenate([ODD, rng.standard_normal(1000).astype(np.float32)])
    assert np.allclose(nnk.arctan(cpu.array(x)).numpy(), np.arctan(x), rtol=3e-7, atol=0, equal_nan=True)


def test_compositions_at_their_ends(cpu):
    x = cpu.array([0.0, -0.0, -1.0, INF, NAN, 1e-45, 3e38])
    assert np.array_equal(nnk.log10(x).numpy()[:5], np.float32([-INF, -INF, NAN, INF, NAN]), equal_nan=True)
    assert nnk.log10(cpu.array([1.0, 10.0, 100.0, 1e5, 1e10])).tolist() == [0.0, 1.0, 2.0, 5.0, 10.0]
    ends = np.float64([1.0, -1.0, 0.0, -0.0])
    for ours, numpys in ((nnk.arcsin, np.arcsin), (nnk.arccos, np.arccos)):
        assert np.array_equal(bits(ours(cpu.array(ends))), numpys(ends).astype(np.float32).view(np.uint32))
    for call in (nnk.arcsin, nnk.arccos):
        assert np.isnan(call(cpu.array([1.0000001, -2.0, INF, NAN])).numpy()).all()
        assert call(cpu.array([1, 0])).dtype == np.float32


def test_hypot_neither_overflows_nor_loses_small_numbers(cpu):
    a, b = cpu.array([3e38, 1e-45, 0.0, -INF, NAN, 3.0, 3e20]), cpu.array([1.0, 1e-45, -0.0, NAN, 1.0, -4.0, 4e20])
    want = np.float32([3e38, 1e-45, 0.0, INF, NAN, 5.0, 5e20])
    got = nnk.hypot(a, b)
    assert len(steps_of(got)) == 1
    assert np.array_equal(got.numpy(), want, equal_nan=True)
    assert not np.signbit(got.numpy()[2])


@pytest.mark.parametrize("n", ["2", None, 1j])
def test_power_refuses_what_is_no_number(n, cpu):
    with pytest.raises(DTypeError, match="for an operand of pow"):
        cpu.array([3.0]) ** n


@pytest.mark.parametrize("dtype", ["int32", "uint8", "bool"])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 31, 64, 65, 100, 255, np.uint8(7), np.bool_(True), True])
def test_powers_of_integers_wrap(n, dtype, cpu, quiet_numpy):
    data = np.array([-2**31, -3, -1, 0, 1, 2, 3, 10, 255, 2**31 - 1]).astype(dtype)
    got = (cpu.array(data) ** n).numpy()
    exact = [int(value) ** int(n) for value in data.tolist()]
    bits_of_dtype = 8 if got.dtype == np.uint8 else 32
    assert got.dtype == ("uint8" if dtype != "int32" and "uint8" in (dtype, getattr(n, "dtype", "")) else "int32")
    assert [int(value) % 2**bits_of_dtype for value in got] == [value % 2**bits_of_dtype for value in exact]


def test_negative_exponents_of_integers(cpu):
    x = cpu.array([1, -1, -1, 0, 2, -2, 0, 5])
    assert (x ** cpu.array([-5, -2, -3, -1, -1, -2**31, 0, -1])).tolist() == [1, 1, -1, 0, 0, 0, 1, 0]
    for n in (-1, np.int32(-2)):
        with pytest.raises(DTypeError, match="Expected an exponent that is not negative for power of integers, got -"):
            x ** n
    assert (x ** -1.0).dtype == np.float32


def test_powers_of_numbers_with_tensors_as_exponents(cpu):
    assert (2 ** cpu.array([0, 10, 31, 32])).tolist() == [1, 1024, -2**31, 0]
    assert (2.0 ** cpu.array([0, 10])).tolist() == [1.0, 1024.0]
    assert (cpu.array(np.uint8([3, 2])) ** [2, 9]).tolist() == [9, 512]


def test_fmod_of_integers_has_the_sign_of_the_dividend(cpu, quiet_numpy):
    a = np.array([-2**31, -2**31, 7, -7, 7, -7, 5, 2**31 - 1, -2**31], np.int32)
    b = np.array([-1, 3, 3, 3, -3, -3, 0, -2**31, 2**31 - 1], np.int32)
    result = nnk.fmod(cpu.array(a), cpu.array(b))
    assert len(result.engine.schedule([result])[0].steps) == 1
    assert result.tolist() == [0, -2, 1, -1, 1, -1, 0, 2**31 - 1, -1]
    out = cpu.array(a)
    assert nnk.fmod(out, 4, out=out).tolist() == np.fmod(a, 4).tolist()


def test_power_zero_is_one_even_of_nan(cpu):
    y = cpu.array([NAN, 0.0]) ** 0
    assert y.tolist() == [1.0, 1.0]
    assert ((cpu.array([NAN, 0.0]) ** 0) + cpu.array([[1.0], [2.0]])).tolist() == [[2.0, 2.0], [3.0, 3.0]]


def test_every_public_function_has_its_name_here():
    assert nnk.round is functions.rint
    assert set(functions.__all__) - {"rint"} <= set(nnk.__all__)
