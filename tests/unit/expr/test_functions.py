"""Functions: the contract's bits, NumPy's shapes, forms of one kernel, and clear errors."""

import itertools

import numpy as np
import pytest

import nnk
from nnk.engines.parity import special_values
from nnk.errors import DTypeError, ExprError, ShapeError
from nnk.expr import functions
from tests.oracle import tensors as oracle

pytestmark = pytest.mark.usefixtures("quiet_numpy")

UNARY = ("exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "erf", "silu", "sin", "cos", "floor", "ceil", "trunc",
         "sign", "isnan", "isinf", "isfinite", "exp2", "expm1", "log2", "log1p")
NAN, INF = float("nan"), float("inf")


def bits(tensor):
    return tensor.numpy().view(np.uint32)


def steps_of(*tensors):
    return tensors[0].engine.schedule(tensors)[0].steps


@pytest.fixture
def a():
    return special_values((3, 4, 5), 11)


@pytest.fixture
def x(a, cpu):
    return cpu.array(a)


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


@pytest.mark.parametrize("n", ["2", None, 1j])
def test_power_refuses_what_is_no_number(n, cpu):
    with pytest.raises(DTypeError, match="for an operand of pow"):
        cpu.array([3.0]) ** n


def test_power_zero_is_one_even_of_nan(cpu):
    y = cpu.array([NAN, 0.0]) ** 0
    assert y.tolist() == [1.0, 1.0]
    assert ((cpu.array([NAN, 0.0]) ** 0) + cpu.array([[1.0], [2.0]])).tolist() == [[2.0, 2.0], [3.0, 3.0]]


# ------------------------------------------------------------------------------------------------- reductions

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


# ------------------------------------------------------------------------------------------------- matmul

MATMULS = [((3,), (3,)), ((3,), (3, 4)), ((2, 3), (3,)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((5, 2, 3), (3,)),
           ((3,), (5, 3, 4)), ((2, 3), (5, 3, 4)), ((5, 2, 3), (5, 3, 4)), ((1, 2, 3), (5, 3, 4)),
           ((4, 1, 2, 3), (5, 3, 4)), ((4, 5, 2, 3), (4, 1, 3, 2)), ((0, 3), (3, 4)),
           ((2, 3), (3, 0)), ((0, 2, 3), (3, 4)), ((1, 1), (1, 1)),
           ((2, 0), (0, 4)), ((0,), (0,)), ((5, 2, 0), (0, 4)), ((0,), (0, 3))]


@pytest.mark.parametrize(("left", "right"), MATMULS, ids=str)
def test_matmul_forms(left, right, cpu):
    a, b = special_values(left, 1), special_values(right, 2)
    got = nnk.matmul(cpu.array(a), cpu.array(b))
    assert got.shape == np.shape(np.matmul(a, b))
    assert np.array_equal(bits(got), oracle.bits_of(oracle.matmul(a, b)))
    assert np.array_equal(bits(cpu.array(a) @ b), bits(got))


def test_matmul_adds_in_increasing_k(cpu):
    a, b = np.float32([[1e8, 1.0, -1e8]]), np.float32([[1.0], [1.0], [1.0]])
    assert (cpu.array(a) @ cpu.array(b)).item() == 0.0
    assert (cpu.array(a[:, ::-1].copy()) @ cpu.array(b)).item() == 0.0
    assert (cpu.array(a[:, [0, 2, 1]]) @ cpu.array(b)).item() == 1.0


def test_stack_of_transposed_matrices_by_one_matrix(cpu, rng):
    """The rows of a stack are one tall matrix; its transposed matrices are not one transposed matrix."""
    a, w = rng.standard_normal((3, 5, 4)).astype(np.float32), rng.standard_normal((5, 6)).astype(np.float32)
    got = cpu.array(a).transpose(0, 2, 1) @ cpu.array(w)
    assert np.array_equal(bits(got), oracle.bits_of(oracle.matmul(a.transpose(0, 2, 1), w)))


@pytest.mark.parametrize(("left", "right", "text"), [
    ((), (3,), r"at least one axis for matmul, got \(\) and \(3,\)"), ((3,), (), "at least one axis for matmul"),
    ((2, 3), (2, 3), r"Expected equal inner sizes for matmul, got \(2, 3\) and \(2, 3\) \(3 and 2\)"),
    ((3,), (4,), r"got \(3,\) and \(4,\) \(3 and 4\)"), ((2, 3), (4,), r"\(3 and 4\)"), ((4,), (2, 3), r"\(4 and 2\)"),
    ((2, 2, 3), (3, 3, 4), r"Expected shapes that broadcast for matmul, got \(2,\) and \(3,\)")])
def test_matmul_shapes_that_do_not_fit(left, right, text, cpu):
    a, b = (cpu.array(np.zeros(shape, np.float32)) for shape in (left, right))
    with pytest.raises(ShapeError, match=text):
        a @ b


def test_matmul_by_a_number(x):
    with pytest.raises(ShapeError, match="at least one axis"):
        x @ 2.0


# ------------------------------------------------------------------------------------------------- compositions

@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
def test_softmax(axis, a, x):
    assert np.array_equal(bits(nnk.softmax(x, axis)), oracle.bits_of(oracle.softmax(a, axis)))


def test_softmax_rows(cpu):
    y = nnk.softmax(cpu.array([[0.0, -INF], [-INF, -INF], [1e38, -1e38], [NAN, 0.0]])).numpy()
    assert y[0].tolist() == [1.0, 0.0]
    assert y[2].tolist() == [1.0, 0.0]
    assert np.isnan(y[[1, 3]]).all()
    assert nnk.softmax(cpu.array(np.zeros((3, 0), np.float32))).numpy().shape == (3, 0)
    assert nnk.softmax(cpu.array(np.zeros((0, 3), np.float32))).numpy().shape == (0, 3)
    with pytest.raises(ShapeError, match="0-D tensor"):
        nnk.softmax(cpu.array(1.0))
    with pytest.raises(ShapeError, match="for softmax, got 2"):
        nnk.softmax(cpu.array([1.0]), 2)


def test_norms(a, x, cpu):
    w, b = special_values((5,), 3), special_values((5,), 4)
    for parameters in ((), (w,), (w, b)):
        tensors = [cpu.array(parameter) for parameter in parameters]
        want = oracle.bits_of(oracle.layer_norm(a, *parameters))
        assert np.array_equal(bits(nnk.layer_norm(x, *tensors)), want)
        assert np.array_equal(bits(nnk.layer_norm(x, *parameters)), want)
    assert np.array_equal(bits(nnk.layer_norm(x, bias=b)), oracle.bits_of(oracle.layer_norm(a, None, b)))
    assert np.array_equal(bits(nnk.layer_norm(x, eps=0.5)), oracle.bits_of(oracle.layer_norm(a, eps=0.5)))
    assert np.array_equal(bits(nnk.rms_norm(x, w)), oracle.bits_of(oracle.rms_norm(a, w)))
    assert np.array_equal(bits(nnk.rms_norm(x, 2.0, eps=0.1)), oracle.bits_of(oracle.rms_norm(a, np.float32(2), 0.1)))


def test_norm_of_nothing(cpu):
    assert nnk.layer_norm(cpu.array(np.zeros((3, 0), np.float32))).numpy().shape == (3, 0)
    assert nnk.rms_norm(cpu.array(np.zeros((0, 3), np.float32))).numpy().shape == (0, 3)


@pytest.mark.parametrize("wrong", [np.ones((4, 5), np.float32), np.ones(4, np.float32), np.ones((1,), np.float32)])
def test_norm_parameters_are_one_value_a_column(wrong, x, cpu):
    for parameter in (wrong, cpu.array(wrong)):
        for call in (lambda p: nnk.layer_norm(x, p), lambda p: nnk.layer_norm(x, None, p),
                     lambda p: nnk.rms_norm(x, p)):
            with pytest.raises(ShapeError, match=r"Expected shape \(5,\) for weight and bias of \w+_norm, got"):
                call(parameter)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_one_kernel_a_reduction(name, x):
    """What finishes a reduction (the division of a mean, the sign of a minimum) is part of its kernel."""
    for axis in (-1, None, (1, 2), (0, 1, 2)):
        for keepdims in (False, True):
            assert len(steps_of(REDUCTIONS[name][0](x, axis, keepdims))) == 1
    # Other axes are moved last: one copy before.
    assert len(steps_of(REDUCTIONS[name][0](x, 0))) <= 2


def test_compositions_are_one_kernel_each(x, cpu, rng):
    w = cpu.array(rng.standard_normal((5, 5)).astype(np.float32))
    b = cpu.array(rng.standard_normal(5).astype(np.float32))
    for y in (nnk.softmax(x), nnk.layer_norm(x, b, b), nnk.rms_norm(x, b), nnk.gelu(x @ w + b) + x, x.mean(axis=-1),
              nnk.softmax(x * 0.5 + b), nnk.layer_norm(x + x * b, b, b) * 2.0, x.sum(axis=-1, keepdims=True) / 3.0):
        assert len(steps_of(y)) == 1


def test_every_public_function_has_its_name_here():
    for name in ("max", "min", "sum"):
        assert getattr(nnk, name) is getattr(functions, f"reduce_{name}")
    assert nnk.round is functions.rint
    assert {name for name in functions.__all__ if not name.startswith("reduce_")} - {"rint"} <= set(nnk.__all__)
