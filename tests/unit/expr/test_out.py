"""out=: NumPy's results whatever overlaps, clear refusals, and lazy expressions that cannot see other values."""

import inspect

import numpy as np
import pytest

import nnk
from nnk.engines.cpu import CpuEngine
from nnk.engines.parity import special_values
from nnk.errors import DTypeError, ExprError, ShapeError
from nnk.expr import functions, operators, positions, products, reductions, statistics
from nnk.expr.out import stored

pytestmark = pytest.mark.usefixtures("quiet_numpy")

#: Public name -> number of operands, of every function that takes out=.
UNARY = ("absolute", "arccos", "arcsin", "arctan", "ceil", "cos", "erf", "exp", "exp2", "expm1", "floor", "gelu",
         "log", "log1p", "log2",
         "negative", "reciprocal", "relu", "round", "rsqrt", "sigmoid", "sign", "silu", "sin", "sqrt", "square", "tanh",
         "trunc", "log10")
BINARY = ("add", "arctan2", "divide", "floor_divide", "fmod", "hypot", "maximum", "minimum", "multiply", "power",
          "remainder", "subtract")
TESTS = ("equal", "greater", "greater_equal", "less", "less_equal", "logical_and", "logical_or", "not_equal")


@pytest.fixture
def engine(cpu):
    return cpu


def check(call, engine, *arrays):
    """``call(*tensors, out=...)`` gives what ``call(*tensors)`` gives, into a new tensor and into each operand."""
    want = call(*map(engine.array, arrays)).numpy()
    out = engine.array(np.full(want.shape, 7, want.dtype))
    assert call(*map(engine.array, arrays), out=out) is out
    assert np.array_equal(out.numpy(), want, equal_nan=True)
    for position, array in enumerate(arrays):
        if array.shape == want.shape and array.dtype == want.dtype:
            tensors = [engine.array(one) for one in arrays]
            assert call(*tensors, out=tensors[position]) is tensors[position]
            assert np.array_equal(tensors[position].numpy(), want, equal_nan=True)
            for other, tensor in enumerate(tensors):
                assert other == position or np.array_equal(tensor.numpy(), arrays[other], equal_nan=True)


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_operand(name, engine):
    check(getattr(nnk, name), engine, special_values((5, 7), 1))


@pytest.mark.parametrize("name", BINARY + TESTS)
def test_functions_of_two_operands(name, engine):
    check(getattr(nnk, name), engine, special_values((5, 7), 1), special_values((5, 7), 2))
    check(getattr(nnk, name), engine, special_values((5, 7), 1), special_values((7,), 2))


def test_clip(engine):
    x = special_values((5, 7), 1)
    check(lambda t, out=None: nnk.clip(t, -1.0, 1.0, out=out), engine, x)
    check(lambda t, out=None: nnk.clip(t, out=out), engine, x)


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [None, 0, -1, (), (0, 2)])
@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "any", "all"])
def test_reductions(name, axis, keepdims, engine):
    x = special_values((3, 4, 5), 1)
    for call in (getattr(nnk, name), getattr(nnk.Tensor, name)):
        check(lambda t, out=None, call=call: call(t, axis, keepdims, out=out), engine, x)


@pytest.mark.parametrize("name", ["var", "std"])
def test_statistics(name, engine):
    x = special_values((3, 4, 5), 1)
    for call in (getattr(nnk, name), getattr(nnk.Tensor, name)):
        for axis in (None, 1):
            check(lambda t, out=None, call=call, axis=axis: call(t, axis, 1, True, out=out), engine, x)


def test_truth_of_any_fits_every_dtype(engine):
    out = engine.array(np.zeros(2, np.int32))
    nnk.any(engine.array([[0.0, 1.0], [0.0, 0.0]]), 1, out=out)
    assert out.tolist() == [1, 0]


def test_where(engine):
    x, y = special_values((5, 7), 1), special_values((7,), 2)
    check(lambda a, b, out=None: nnk.where(a, b, a, out=out), engine, x, y)


def test_take(engine):
    x = special_values((5, 5), 1)
    for call in (nnk.take, nnk.Tensor.take):
        for axis in (0, 1, None):
            check(lambda t, out=None, call=call, axis=axis: call(t, [4, 0, 2, 2, 1], axis, out=out), engine, x)


def test_matmul(engine):
    check(nnk.matmul, engine, special_values((5, 5), 1), special_values((5, 5), 2))
    check(nnk.matmul, engine, special_values((2, 3, 5), 1), special_values((5,), 2))


OVERLAPS = {
    "transposed": lambda m, x, out: m.add(x, x.T, out=out), "reversed": lambda m, x, out: m.add(x, x[::-1], out=out),
    "itself twice": lambda m, x, out: m.multiply(x, x, out=out),
    "row": lambda m, x, out: m.subtract(x, x[2], out=out),
    "column": lambda m, x, out: m.subtract(x, x[:, 1:2], out=out),
    "product": lambda m, x, out: m.matmul(x, x.T, out=out),
    "both reversed": lambda m, x, out: m.maximum(x[::-1, ::-1], x, out=out),
}


@pytest.mark.parametrize("where", ["cpu", "vulkan"])
@pytest.mark.parametrize("name", OVERLAPS)
def test_out_that_overlaps_its_operands(name, where, request):
    engine = request.getfixturevalue(where)
    array = np.random.default_rng(1).integers(-8, 8, (6, 6)).astype(np.float32)
    x, want = engine.array(array), array.copy()
    OVERLAPS[name](nnk, x, x)
    OVERLAPS[name](np, want, want)
    assert np.array_equal(x.numpy(), want)


def test_larger_out_is_filled(engine):
    for m, array in ((np, np.asarray), (nnk, engine.array)):
        out = array(np.zeros((2, 3), np.float32))
        m.add(array(np.float32([1, 2, 3])), np.float32(1), out=out)
        assert out.tolist() == [[2.0, 3.0, 4.0]] * 2
        m.multiply(2.0, 3.0, out=out)
        assert out.tolist() == [[6.0] * 3] * 2


@pytest.mark.parametrize(("dtype", "value"), [("float16", 0.1), ("float32", 3), ("int32", True), ("float32", True)])
def test_results_are_converted_to_dtypes_that_hold_them(dtype, value, engine):
    source, out = np.asarray([value, value]), engine.array(np.zeros(2, dtype))
    x = engine.array(source if source.dtype.kind != "f" else source.astype(np.float32))
    assert nnk.maximum(x, x, out=out) is out
    assert out.dtype == dtype
    assert np.array_equal(out.numpy(), source.astype(dtype))


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda x: nnk.exp(x, out=np.zeros((2, 3), np.float32)), DTypeError, "tensor for out of exp, got ndarray"),
    (lambda x: nnk.exp(x, out=x + 1), ExprError, r"storage of its own for out of exp, got a lazy one \(shape"),
    (lambda x: nnk.exp(x, out=x[0]), ExprError, "got a lazy one"),
    (lambda x: nnk.exp(x, out=x[0].eval()), ShapeError, r"Expected shape \(2, 3\) for out of exp, got \(3,\)"),
    (lambda x: nnk.sum(x, 0, out=x), ShapeError, r"Expected shape \(3,\) for out of sum, got \(2, 3\)"),
    (lambda x: nnk.matmul(x, x.T, out=x), ShapeError, r"shape \(2, 2\) for out of matmul"),
    (lambda x: nnk.add(x, x, out=x.engine.array(np.zeros((2, 3), np.int32))), DTypeError, "holds float32 for out of a"),
    (lambda x: nnk.add(x, x, out=x.engine.array(np.zeros((2, 3), bool))), DTypeError, "got bool"),
    (lambda x: nnk.add(x, x, out=CpuEngine().array(np.zeros((2, 3)))), ExprError, "of add on cpu, got a tensor of")])
def test_refusals_leave_out_as_it_was(call, error, text, engine):
    x = engine.array(np.ones((2, 3), np.float32))
    with pytest.raises(error, match=text):
        call(x)
    assert x.tolist() == [[1.0] * 3] * 2


# ------------------------------------------------------------------------------------------------- values and laziness

def test_lazy_readers_of_the_old_values_are_refused(engine):
    x = engine.array(np.float32([1, 2, 3]))
    readers = {"add": x + 1.0, "view": x[1:], "sum": (x * 2.0).sum(), "take": nnk.take(x, [0, 1])}
    done = (x * 3.0).eval()
    nnk.negative(x, out=x)
    for reader in readers.values():
        for read in (reader.numpy, (lambda reader=reader: (reader + 1.0).numpy()),
                     lambda reader=reader: engine.schedule([reader])):
            with pytest.raises(ExprError, match=r"out= has overwritten it since; evaluate with eval\(\) before"):
                read()
    with pytest.raises(ExprError, match="overwritten"):
        readers["view"][1:]
    assert done.tolist() == [3.0, 6.0, 9.0]
    assert (x + 1.0).tolist() == [0.0, -1.0, -2.0]
    assert x[1:].tolist() == [-2.0, -3.0]


def test_evaluated_views_keep_their_values(engine):
    x = engine.array(np.float32([[1, 2], [3, 4]]))
    flat, row = x.reshape(-1).eval(), x[0].eval()
    nnk.negative(x, out=x)
    assert (flat.tolist(), row.tolist()) == ([1.0, 2.0, 3.0, 4.0], [1.0, 2.0])


def test_out_again_and_again(engine):
    x, want = engine.array(special_values((4, 4), 1)), special_values((4, 4), 1)
    for _ in range(50):
        nnk.multiply(x, 0.5, out=x)
        nnk.add(x, x.T, out=x)
        want = want * np.float32(0.5)
        want = want + want.T
    assert np.array_equal(x.numpy(), want, equal_nan=True)


def test_out_of_indices_knows_their_bounds(engine):
    table = engine.array(np.float32([10, 20, 30]))
    index = engine.array(np.int32([0, 1]))
    nnk.add(index, engine.array(np.int32([2, 1])), out=index)
    assert nnk.take(table, index.numpy()).tolist() == [30.0, 30.0]


def test_not_in_a_region(engine):
    x = engine.array(np.float32([1.0]))
    with pytest.raises(ExprError, match=r"no open region of nnk.record\(\) around exp with out"), nnk.record():
        nnk.exp(x, out=x)
    assert x.tolist() == [1.0]


def test_without_out_nothing_is_computed(engine):
    y = nnk.exp(engine.array([1.0]), out=None)
    assert not y.is_evaluated
    assert stored("exp", y, None) is y


def test_who_takes_out():
    """The elementwise functions, reductions and matmul; compositions have none."""
    sources = {name: module for module in (functions, operators, positions, products, reductions, statistics)
               for name in module.__all__}
    takes = {name for name, module in sources.items() if "out" in inspect.signature(getattr(module, name)).parameters}
    assert set(UNARY) - {"round"} <= takes
    assert set(BINARY + TESTS) | {"clip", "matmul", "mean", "reduce_sum", "reduce_max", "reduce_min", "rint"} <= takes
    for name in takes:
        assert inspect.signature(getattr(sources[name], name)).parameters["out"].kind is inspect.Parameter.KEYWORD_ONLY
    assert {"argmax", "argmin", "reduce_all", "reduce_any", "std", "var", "where"} <= takes
    assert "out" not in inspect.signature(nnk.softmax).parameters
