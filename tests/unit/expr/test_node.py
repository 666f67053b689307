"""Tensors: facts, values, operators with everything that NumPy users put beside them, and clear errors."""

import operator
import pickle

import numpy as np
import pytest

import nnk
from nnk.engines.cpu import CpuEngine
from nnk.errors import DTypeError, ExprError, ShapeError
from nnk.expr import node
from tests.oracle import tensors as oracle

OTHERS = {
    "int": 3, "float": -2.5, "bool": True, "negative zero": -0.0, "infinity": float("inf"),
    "numpy float": np.float32(0.1), "numpy double": np.float64(0.1), "numpy int": np.int64(7),
    "numpy bool": np.bool_(1),
    "array": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4), "doubles": np.full((3, 4), 1e300),
    "integers": np.arange(4), "0-d array": np.array(2.0), "list": [1.0, 2.0, 3.0, 4.0], "column": np.ones((3, 1)),
}
OPERATORS = {"add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
             "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge, "eq": operator.eq,
             "ne": operator.ne}


@pytest.fixture
def x(cpu):
    return cpu.array(np.arange(12, dtype=np.float32).reshape(3, 4) - 5)


def test_facts(x, cpu):
    y = x + 1
    assert (y.shape, y.ndim, y.size, y.nbytes, y.dtype, len(y)) == ((3, 4), 2, 12, 48, np.dtype(np.float32), 3)
    assert y.engine is cpu
    assert (x.is_evaluated, y.is_evaluated) == (True, False)
    assert repr(y) == "<nnk.Tensor shape=(3, 4) dtype=float32 lazy on cpu>"
    assert y.eval() is y
    assert y.is_evaluated
    assert "evaluated on cpu" in repr(y)


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("op", OPERATORS)
def test_operators_take_numbers_and_arrays_on_both_sides(op, name, x):
    other, function = OTHERS[name], OPERATORS[op]
    with np.errstate(all="ignore"):
        number = np.asarray(other).astype(np.float32)
    left, right = function(x, other), function(other, x)
    assert isinstance(left, nnk.Tensor)
    assert isinstance(right, nnk.Tensor)
    assert left.dtype == right.dtype == (np.float32 if op in ("add", "sub", "mul", "div") else np.bool_)
    for got, operands in ((left, (x.numpy(), number)), (right, (number, x.numpy()))):
        want = oracle.bits_of(oracle.elementwise(op, *operands))
        assert np.array_equal(oracle.bits_of(got.numpy().astype(np.float32)), want)


def test_unary_operators(x):
    assert np.array_equal((-x).numpy(), -x.numpy())
    assert np.array_equal(abs(x).numpy(), abs(x.numpy()))
    assert +x is x


def test_matmul_operator_on_both_sides(x):
    w = np.ones((4, 2), np.float32)
    assert np.array_equal((x @ w).numpy(), x.numpy() @ w)
    assert np.array_equal((np.ones((2, 3), np.float32) @ x).numpy(), np.ones((2, 3), np.float32) @ x.numpy())
    assert np.array_equal((x @ [1.0, 0.0, 0.0, 0.0]).numpy(), x.numpy()[:, 0])


def test_numpy_functions_do_not_take_over(x):
    for call in (np.add, np.multiply, np.maximum, np.matmul):
        with pytest.raises(TypeError, match="does not support ufuncs"):
            call(np.ones((3, 4)), x)


@pytest.mark.parametrize(("other", "text"), [
    (None, "got NoneType"), ("a", "got str"), (1j, "got complex"), ({}, "got dict"),
    (np.array([1j] * 4), "got dtype complex"), (np.array(["a"]), "got dtype <U1"),
    (10**400, "got an integer of 1329 bits")])
def test_operand_that_is_no_number(other, text, x):
    with pytest.raises(DTypeError, match=text):
        x + other


def test_shapes_that_do_not_broadcast(x, cpu):
    with pytest.raises(ShapeError, match=r"Expected shapes that broadcast for mul, got \(3, 4\) and \(3,\)") as caught:
        x * cpu.array([1.0, 2.0, 3.0])
    assert caught.value.shapes == ((3, 4), (3,))
    assert caught.value.op == "mul"
    assert isinstance(caught.value, ValueError)


def test_too_many_axes(cpu):
    eight = cpu.array(np.zeros((1,) * 8, np.float32))
    assert (eight + 1).numpy().shape == (1,) * 8
    with pytest.raises(ShapeError, match=r"Expected at most 8 axes, got 9"):
        eight[None]
    with pytest.raises(ShapeError, match=r"Expected at most 8 axes, got 9"):
        cpu.array(np.zeros((1,) * 9, np.float32))


def test_tensors_of_two_engines(x):
    other = CpuEngine().array([1.0])
    for call in (lambda: x + other, lambda: x @ other, lambda: nnk.where(x, x, other)):
        with pytest.raises(ExprError, match=r"Expected tensors of one engine for .*; move one with nnk.array"):
            call()
    assert (x + nnk.array(other.numpy(), engine=x.engine)).shape == (3, 4)


def test_constants_join_any_engine(x):
    half = node.constant(0.5)
    assert (half + 1).engine is None
    assert ((half + 1) * x).engine is x.engine
    with pytest.raises(ExprError, match="got a bare constant"):
        (half + 1).numpy()


# ------------------------------------------------------------------------------------------------- values

def test_numpy_gives_a_new_array_each_time(x):
    first, second = x.numpy(), x.numpy()
    first[:] = 0
    assert second.any()
    assert x.numpy().any()
    assert x.numpy().flags.writeable


def test_array_protocol(x):
    assert np.asarray(x).dtype == np.float32
    assert np.asarray(x, np.float64).dtype == np.float64
    assert np.array_equal(np.stack([x, x])[1], x.numpy())
    with pytest.raises(ValueError, match="leave a device by a copy"):
        x.__array__(copy=False)


def test_lists_and_numbers(x, cpu):
    assert x[0].tolist() == [-5.0, -4.0, -3.0, -2.0]
    assert x[0, 1].tolist() == -4.0
    assert (x[0, 1].item(), float(x[0, 1]), int(x[0, 1])) == (-4.0, -4.0, -4)
    assert cpu.array([[2.5]]).item() == 2.5
    for call in (x.item, lambda: float(x), lambda: int(x)):
        with pytest.raises(ShapeError, match=r"one element for item\(\), got shape \(3, 4\)"):
            call()


def test_truth(x, cpu):
    assert bool(x[0, 0])
    assert not x[1, 1]
    assert bool(cpu.array(np.nan))
    with pytest.raises(ShapeError, match=r"truth value of a tensor of shape \(3, 4\) is ambiguous"):
        bool(x)
    with pytest.raises(ShapeError, match="ambiguous"):
        bool(x[:0])


def test_length_and_iteration(x, cpu):
    assert [row.tolist() for row in x] == x.numpy().tolist()
    scalar = cpu.array(1.0)
    for call in (len, list):
        with pytest.raises(ExprError, match="at least one axis"):
            call(scalar)


def test_equality_is_elementwise_and_hash_is_identity(x):
    assert (x == x).shape == (3, 4)
    assert {x: 1}[x] == 1
    assert hash(x) != hash(x + 0)


def test_reading_does_not_change_a_payload(cpu):
    """What a user puts in comes out; what is computed has the one NaN."""
    x = cpu.array(np.array([0x7FC12345, 0xFF800001], np.uint32).view(np.float32))
    assert x.numpy().view(np.uint32).tolist() == [0x7FC12345, 0xFF800001]
    assert (x * 1.0).numpy().view(np.uint32).tolist() == [0x7FC00000] * 2


def test_methods_match_functions(x):
    a = x.numpy()
    assert np.array_equal(x.T.numpy(), a.T)
    assert np.array_equal(x.permute(1, 0).numpy(), a.T)
    assert np.array_equal(x.transpose((1, 0)).numpy(), a.T)
    assert np.array_equal(x.swapaxes(0, -1).numpy(), a.T)
    assert np.array_equal(x.reshape(2, 6).numpy(), a.reshape(2, 6))
    assert np.array_equal(x.reshape((2, -1)).numpy(), a.reshape(2, 6))
    assert np.array_equal(x.broadcast_to((2, 3, 4)).numpy(), np.broadcast_to(a, (2, 3, 4)))
    assert np.array_equal(x.take([1, -1]).numpy(), a.take([1, -1], 0))
    assert (x.sum().item(), x.max().item(), x.min().item(), x.mean().item()) == (6.0, 6.0, -5.0, 0.5)


def test_powers_with_python_syntax(x):
    assert np.array_equal((x ** 2).numpy(), x.numpy() * x.numpy())
    assert np.array_equal((2 ** x).numpy(), np.float32(2) ** x.numpy())
    assert np.array_equal((x ** x).numpy(), x.numpy() ** x.numpy(), equal_nan=True)


def test_a_tensor_does_not_pickle_silently(x):
    with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
        pickle.dumps(x)


# ------------------------------------------------------------------------------------------------- helpers

@pytest.mark.parametrize(("shape", "strides"), [
    ((), ()), ((5,), (1,)), ((2, 3, 4), (12, 4, 1)), ((2, 0, 3), (0, 3, 1))])
def test_contiguous_strides(shape, strides):
    assert node.contiguous_strides(shape) == strides


def test_geometry_of_views_composes(x):
    base, offset, strides = node.geometry_of((x + 1)[1:, ::-1].T)
    assert (base.op, offset, strides) == ("add", 7, (-1, 4))
    assert node.geometry_of(x) == (x, 0, (4, 1))


def test_geometry_of_a_view_that_becomes_a_leaf(x):
    view = x[1:]
    view.eval()
    assert node.geometry_of(view) == (view, 0, (4, 1))


def test_geometry_of_a_view_that_another_thread_turns_into_a_leaf(x):
    """The other thread clears args and attrs right after op and storage were read."""
    class Turning(nnk.Tensor):
        __slots__ = ()

        @property
        def storage(self):
            self.args = self.attrs = ()

        @storage.setter
        def storage(self, value):
            assert value is None

    view = Turning("view", (x,), (4, (4, 1)), (2, 4), np.dtype(np.float32), x.engine)
    assert node.geometry_of(view) == (x, 4, (4, 1))


def test_constant_keeps_bits():
    assert node.constant(-0.0).attrs == (0x80000000,)
    assert node.constant(float("inf")).attrs == (0x7F800000,)
    assert node.constant(1e39).attrs == (0x7F800000,)
    assert node.run_time_parameter(0.1).op == "rparam"
