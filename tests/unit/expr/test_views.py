"""Views: NumPy's shapes and values, no data moved, and clear errors."""

import dataclasses

import numpy as np
import pytest

import nnk
from nnk.engines.cpu import CpuEngine
from nnk.errors import (
    AxisError,
    DTypeError,
    ExprError,
    IndexFormError,
    IndexRangeError,
    ShapeError,
    UnsupportedOpError,
)
from nnk.expr import views
from nnk.expr.node import geometry_of
from tests.results import steps_of

SLICE = slice


@pytest.fixture
def a():
    return np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5)


@pytest.fixture
def x(a, cpu):
    return cpu.array(a)


# ------------------------------------------------------------------------------------------------- reshape, transpose

@pytest.mark.parametrize("shape", [(120,), (-1,), (6, 20), (6, -1), (2, 3, 20), (1, 2, 1, 3, 4, 5, 1), (2, 12, 5),
                                   (5, 4, 3, 2), (2, -1, 2, 5), (np.int64(8), 15)])
def test_reshape(shape, a, x):
    y = x.reshape(shape)
    assert y.shape == a.reshape(shape).shape
    assert np.array_equal(y.numpy(), a.reshape(shape))
    assert steps_of(x.reshape(shape)) == ()


@pytest.mark.parametrize(("axes", "shape", "copies"), [
    ((0, 1, 3, 2), (6, 20), True), ((1, 0, 2, 3), (3, 2, 20), False), ((1, 0, 2, 3), (6, 20), True),
    ((2, 3, 0, 1), (20, 6), False), ((2, 3, 0, 1), (4, 5, 6), False), ((3, 0, 1, 2), (5, 24), False),
    ((3, 0, 1, 2), (5, 2, 12), False), ((3, 2, 1, 0), (120,), True)])
def test_reshape_of_a_permuted_tensor_copies_only_where_it_must(axes, shape, copies, a, x):
    y = x.transpose(axes).reshape(shape)
    assert np.array_equal(y.numpy(), a.transpose(axes).reshape(shape))
    base, *_ = geometry_of(x.transpose(axes).reshape(shape))
    assert (base is not x) == copies


def test_reshape_of_reversed_and_strided_axes(a, x):
    assert np.array_equal(x[::-1, ::-1, ::-1, ::-1].reshape(120).numpy(), a.reshape(-1)[::-1])
    assert geometry_of(x[::-1, ::-1, ::-1, ::-1].reshape(120))[1:] == (119, (-1,))
    assert np.array_equal(x[..., ::2].reshape(-1).numpy(), a[..., ::2].reshape(-1))


def test_reshape_of_nothing_and_of_one(cpu):
    empty = cpu.array(np.zeros((0, 3), np.float32))
    assert empty.reshape(-1, 3).shape == (0, 3)
    assert empty.reshape(3, 0, 7).numpy().shape == (3, 0, 7)
    one = cpu.array(5.0)
    assert one.reshape(1, 1, 1).numpy().tolist() == [[[5.0]]]
    assert one.reshape(-1).shape == (1,)
    assert one.reshape(1).reshape(()).numpy().shape == ()


@pytest.mark.parametrize("shape", [(7,), (-1, 7), (-1, -1), (0, -1), (-2, 60), (2, 3, 4, 6), ()])
def test_reshape_that_does_not_fit(shape, x):
    with pytest.raises(ShapeError, match="Expected a shape for 120 elements") as caught:
        x.reshape(shape)
    assert caught.value.shapes[0] == (2, 3, 4, 5)


def test_reshape_wants_integers(x):
    with pytest.raises(DTypeError, match="Expected an integer for a size of reshape, got float"):
        x.reshape(60.0, 2)


@pytest.mark.parametrize("axes", [(), (0, 1, 2, 3), (3, 2, 1, 0), (-1, 0, -2, 1), (1, 3, 0, 2)])
def test_transpose(axes, a, x):
    order = axes or None
    assert np.array_equal(x.transpose(*axes).numpy(), a.transpose(order))
    assert np.array_equal(nnk.transpose(x, axes).numpy(), a.transpose(order))
    assert np.array_equal(nnk.transpose(x).numpy(), a.T)


def test_transpose_there_and_back_is_the_tensor_itself(x):
    assert x.transpose(1, 0, 3, 2).transpose(1, 0, 3, 2) is x
    assert x.T.T is x


@pytest.mark.parametrize("axes", [(0, 1, 2), (0, 0, 1, 2), (0, 1, 2, 3, 4)])
def test_transpose_that_is_no_permutation(axes, x):
    with pytest.raises(ShapeError, match=r"permutation of 4 axes|Expected an axis from -4 to 3"):
        x.transpose(axes)


@pytest.mark.parametrize(("call", "text"), [
    (lambda x: x.swapaxes(0, 4), "Expected an axis from -4 to 3 for swapaxes, got 4"),
    (lambda x: x.transpose(0, 1, 2, 9), "Expected an axis from -4 to 3 for transpose, got 9"),
    (lambda x: x.take([0], axis=-5), "Expected an axis from -4 to 3 for take, got -5"),
    (lambda x: x.take([0], axis=1.0), "Expected an integer for an axis of take, got float"),
    (lambda x: x[0, 0, 0, 0].take([0]), "got axis 0 of a 0-D tensor")])
def test_axes_that_are_not_there(call, text, x):
    with pytest.raises(ExprError, match=text):
        call(x)


# ------------------------------------------------------------------------------------------------- broadcasting

@pytest.mark.parametrize(("shape", "target"), [((), (2, 3)), ((1,), (4,)), ((3,), (2, 3)), ((3, 1), (2, 3, 4)),
                                               ((2, 1, 1), (2, 3, 4)), ((1,), (0,)), ((4,), (4,))])
def test_broadcast_to(shape, target, cpu, rng):
    a = rng.standard_normal(shape).astype(np.float32) if shape else np.float32(1.5)
    x = cpu.array(a)
    assert np.array_equal(x.broadcast_to(target).numpy(), np.broadcast_to(a, target))
    assert np.array_equal(nnk.broadcast_to(x, list(target)).numpy(), np.broadcast_to(a, target))
    assert np.array_equal((x.broadcast_to(target) + 1).numpy(), np.broadcast_to(a, target) + np.float32(1))


@pytest.mark.parametrize(("shape", "target"), [((3,), (4,)), ((2, 3), (3,)), ((3,), (3, 1)), ((3,), (-1, 3))])
def test_broadcast_to_that_does_not_fit(shape, target, cpu):
    with pytest.raises(ShapeError, match=r"Expected .*shape.* broadcast"):
        cpu.array(np.zeros(shape, np.float32)).broadcast_to(target)


def test_reshape_of_a_broadcast(cpu):
    y = cpu.array([1.0, 2.0, 3.0]).broadcast_to((4, 3))
    assert np.array_equal(y.reshape(12).numpy(), np.tile(np.float32([1, 2, 3]), 4))
    assert np.array_equal(y.reshape(2, 2, 3).numpy(), np.tile(np.float32([1, 2, 3]), (2, 2, 1)))
    assert geometry_of(y.reshape(2, 2, 3))[2] == (0, 0, 1)


# ------------------------------------------------------------------------------------------------- indexing

INDICES = [
    (0,), (-1, 2), (1, 2, 3, 4), (Ellipsis,), (Ellipsis, 0), (0, Ellipsis, -1), (None,),
    (None, 0, None, Ellipsis, None),
    (SLICE(None, None, -1),), (SLICE(1, None), SLICE(None, None, 2), SLICE(-1, 0, -2)), (Ellipsis, SLICE(4, 1, -1)),
    (SLICE(5, 9),), (SLICE(None), SLICE(2, 1)), (0, SLICE(None), None, 1), (np.int32(1), SLICE(None, None, 7)),
    (SLICE(-100, 100),), (SLICE(100, -100, -1),), (1, SLICE(None, None, -2), SLICE(None), SLICE(3, None, -3)),
]


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_getitem(index, a, x):
    assert x[index].shape == a[index].shape
    assert np.array_equal(x[index].numpy(), a[index])
    assert np.array_equal((x[index] * 2).numpy(), a[index] * np.float32(2))


def test_getitem_with_one_index(a, x):
    assert np.array_equal(x[1].numpy(), a[1])
    assert np.array_equal(x[::-1].numpy(), a[::-1])
    assert np.array_equal(x[...].numpy(), a)
    assert x[...] is x


def test_views_of_views_read_one_buffer(a, x):
    y = x[1:, ::-1].transpose(2, 0, 3, 1)[::2, 0, 1:, None]
    assert np.array_equal(y.numpy(), a[1:, ::-1].transpose(2, 0, 3, 1)[::2, 0, 1:, None])
    z = x[1:, ::-1].transpose(2, 0, 3, 1)[::2, 0, 1:, None]
    assert geometry_of(z)[0] is x
    assert len(steps_of(z + 1)) == 1


ARRAY_INDICES = [
    ([1, 0],), ([0, -1, 0], 1), (1, [0, 2]), (SLICE(None), [2, 0, -1]), (Ellipsis, [4, 0]), (0, SLICE(None), [1, 2]),
    (SLICE(None), 1, [0, 3]), (SLICE(None), 1, SLICE(None), [0, 3, 1]), (1, [[0, 1], [2, 0]], SLICE(None, None, -1)),
    ([0, 1], SLICE(None), 1), (np.array(1),), (np.array([], int), 0), (SLICE(None), [0], Ellipsis, 2),
    (0, Ellipsis, [3, 1], 2), (SLICE(1), 0, SLICE(1, 3), [[4], [0]]), (0, 1, 2, [1, 0]),
]


@pytest.mark.parametrize("index", ARRAY_INDICES, ids=str)
def test_getitem_with_an_integer_array(index, a, x):
    assert x[index].shape == a[index].shape
    assert np.array_equal(x[index].numpy(), a[index])


@pytest.mark.parametrize(("index", "error", "text"), [
    ((2,), IndexRangeError, "Expected an index from -2 to 1 for axis 0, got 2"),
    ((0, -4), IndexRangeError, "Expected an index from -3 to 2 for axis 1, got -4"),
    (([0, 2],), IndexRangeError, "Expected indices from -2 to 1 for axis 0, got 2"),
    ((SLICE(None), [-4]), IndexRangeError, "Expected indices from -3 to 2 for axis 1, got -4"),
    ((0,) * 5, IndexFormError, "Expected at most 4 indices, got 5"),
    ((Ellipsis, 0, Ellipsis), IndexFormError, "at most one ellipsis"),
    (("a",), IndexFormError, "as an index, got str"),
    ((1.0,), IndexFormError, "as an index, got float"),
    ((True,), UnsupportedOpError, "as an index, got|got a bool"),
    (([True, False],), UnsupportedOpError, "Expected integers as an index, got bools"),
    (([0.0],), IndexFormError, "Expected integers as an index, got float64"),
    (([0], [1]), UnsupportedOpError, "one integer array in an index"),
    ((None, [0]), UnsupportedOpError, "one integer array in an index"),
    ((SLICE(None, None, 0),), ExprError, "a step that is not 0"),
    ((SLICE(0.5, 2),), DTypeError, "Expected a slice of integers")])
def test_bad_index(index, error, text, x):
    with pytest.raises(error, match=text):
        x[index]


def test_index_errors_are_the_ones_of_numpy(x):
    for index in (5, "a", 1.0, (0,) * 5):
        with pytest.raises(IndexError):
            x[index]
    with pytest.raises(AxisError) as caught:
        nnk.transpose(x, (0, 1, 2, 4))
    assert isinstance(caught.value, ShapeError)


# ------------------------------------------------------------------------------------------------- take

@pytest.mark.parametrize("axis", [0, 1, 2, 3, -1, -4])
@pytest.mark.parametrize("indices", [1, [0, 1, 0], [[1, 0], [-1, -2]], [], np.zeros((2, 0), int), np.uint8([1])],
                         ids=str)
def test_take(indices, axis, a, x):
    want = np.take(a, np.asarray(indices, np.int64), axis)
    assert x.take(indices, axis).shape == want.shape
    assert np.array_equal(nnk.take(x, indices, axis).numpy(), want)
    assert np.array_equal((nnk.take(x, indices, axis) - 1).numpy(), want - np.float32(1))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "uint8", "bool"])
@pytest.mark.parametrize("shape", [(700,), (700, 1), (700, 3, 2)], ids=str)
def test_take_from_a_table_of_which_no_column_is_bound(shape, dtype, rng):
    """Parts of the table, from the first row that is asked for to the last."""
    engine = CpuEngine()
    engine.limits = dataclasses.replace(engine.limits, buffer_bytes=128)
    values = rng.integers(0, 200, shape).astype(dtype)
    x = engine.array(values)
    for indices in ([699, 0, -350, 31, 32, 33, 128, 127, 5], [[40, 41], [50, 45]], [600], []):
        index = np.asarray(indices, np.int64)
        want, got = values[index], nnk.take(x, indices)
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        assert np.array_equal(got.numpy(), want)
        assert np.array_equal(x[index.astype(np.int32)].numpy() if index.size else want, want)
    inner = engine.array(np.ascontiguousarray(np.moveaxis(values, 0, -1)))
    assert np.array_equal(nnk.take(inner, engine.array(np.int32([3, 699])), -1).numpy(), inner.numpy()[..., [3, 699]])


def test_take_with_an_index_tensor(a, x, cpu):
    index = cpu.array(np.array([[0, 1], [1, 1]]))
    assert np.array_equal(x.take(index).numpy(), a[[[0, 1], [1, 1]]])
    assert np.array_equal(x.take(index[1]).numpy(), a[[1, 1]])
    assert np.array_equal(x.take(index[::-1, 0]).numpy(), a[[1, 0]])
    assert np.array_equal(x.take(index.reshape(4), axis=2).numpy(), np.take(a, [0, 1, 1, 1], 2))
    assert np.array_equal(x[index].numpy(), a[[[0, 1], [1, 1]]])


def test_take_of_views_and_results(a, x):
    assert np.array_equal(x[:, 1].T.take([1, -1], 1).numpy(), np.take(a[:, 1].T, [1, -1], 1))
    assert np.array_equal((x + 1).take([2, 0], 1).take([1], 0).numpy(), np.take(a + np.float32(1), [2, 0], 1)[[1]])


def test_embedding_lookup_is_read_in_place(cpu, rng):
    table, index = rng.standard_normal((9, 6)).astype(np.float32), rng.integers(0, 9, (2, 5))
    t, other = cpu.array(table), cpu.array(rng.standard_normal((2, 5, 6)).astype(np.float32))
    y = nnk.layer_norm(nnk.take(t, index) + other)
    assert len(steps_of(y)) == 1
    assert np.array_equal(y.numpy(), nnk.layer_norm(cpu.array(table[index] + other.numpy())).numpy())


def test_take_stored_by_a_kernel_of_its_own_is_not_read_in_place(cpu):
    """A table of five axes: the reader's rows are not the rows of the table."""
    a = np.arange(54, dtype=np.float32).reshape(1, 2, 3, 3, 3)
    assert np.array_equal(cpu.array(a).take([1], 1).numpy(), np.take(a, [1], 1))
    assert np.array_equal((cpu.array(a).take([1], 1) + 1).numpy(), np.take(a, [1], 1) + np.float32(1))


@pytest.mark.parametrize(("values", "worst"), [([0, 9], 9), ([-1, 0], -1), ([2**31 - 1], 2**31 - 1), ([-5, 9], 9)])
def test_index_tensor_out_of_range_never_reaches_a_kernel(values, worst, x, cpu):
    """A device would read outside of the table."""
    index = cpu.array(np.array(values))
    for tensor in (index, index.reshape(1, -1), index[::-1]):
        with pytest.raises(IndexRangeError, match=f"Expected indices from 0 to 1 for axis 0, got {worst}") as caught:
            nnk.take(x, tensor)
        assert (caught.value.index, caught.value.size) == (worst, 2)


def test_take_from_nothing(cpu):
    empty = cpu.array(np.zeros((0, 3), np.float32))
    assert empty.take([]).numpy().shape == (0, 3)
    with pytest.raises(IndexRangeError, match="Expected indices from 0 to -1 for axis 0, got 0"):
        empty.take([0])


def test_take_checks_its_operands(x, cpu):
    with pytest.raises(DTypeError, match="Expected integer indices for take, got float32"):
        x.take(cpu.array([0.0, 1.0]))
    assert cpu.array(np.array([1, 2])).take([1, 0]).tolist() == [2, 1]
    assert x.take(cpu.array(np.array([1, 0], np.uint8))).tolist() == x.take([1, 0]).tolist()
    with pytest.raises(IndexError, match="Expected indices from 0 to"):
        x.take(cpu.array(np.array([1, 0])) * 100)
    with pytest.raises(ExprError, match="Expected tensors of one engine for take"):
        x.take(CpuEngine().array(np.array([0])))


@pytest.mark.parametrize("call", [lambda: nnk.reshape(np.ones(4), (2, 2)), lambda: nnk.transpose([1.0]),
                                  lambda: nnk.broadcast_to(1.0, (2,)), lambda: nnk.take(np.ones(3), [0])])
def test_functions_on_views_want_tensors(call):
    with pytest.raises(DTypeError, match=r"Expected a tensor for .*; make one with nnk.array"):
        call()


# ------------------------------------------------------------------------------------------------- integers

def test_views_of_integers_keep_every_bit(cpu):
    """-1 has the bits of a NaN: no kernel may store it."""
    a = np.array([[-1, 2, -4194304], [2**31 - 1, -2**31, 0]], np.int32)
    x = cpu.array(a)
    for view, want in ((x[::-1], a[::-1]), (x.T, a.T), (x[:, 1:].T, a[:, 1:].T), (x.T.reshape(6), a.T.reshape(6)),
                       (x.reshape(6), a.reshape(6)), (x[0, 0], a[0, 0]), (x[:0], a[:0]),
                       (x.broadcast_to((2, 2, 3)), np.broadcast_to(a, (2, 2, 3)))):
        assert view.numpy().dtype == np.int32
        assert np.array_equal(view.numpy(), want)


# ------------------------------------------------------------------------------------------------- helpers

@pytest.mark.parametrize(("axis", "want"), [
    (None, (0, 1, 2)), (1, (1,)), (-1, (2,)), ((2, 0), (0, 2)), ([-1, -3], (0, 2)), ((), ()), (np.int64(1), (1,))])
def test_normalise_axes(axis, want):
    assert views.normalise_axes(axis, 3, "sum") == want


def test_normalise_axes_refuses_repeats():
    with pytest.raises(ShapeError, match=r"Expected different axes for sum, got \(1, 1\)"):
        views.normalise_axes((1, -2), 3, "sum")


def test_broadcast_strides():
    assert views.broadcast_strides((3, 1), (4, 1), (2, 3, 5)) == (0, 4, 0)
    assert views.broadcast_strides((1, 1), (4, 1), (1, 1)) == (4, 1)


# ------------------------------------------------------------------------------------------------- axes

@pytest.mark.parametrize(("name", "shape", "arguments"), [
    ("squeeze", (1, 3, 1), ()), ("squeeze", (1, 3, 1), (0,)), ("squeeze", (1, 3, 1), ((0, -1),)), ("squeeze", (), ()),
    ("squeeze", (2, 3), ()), ("squeeze", (1, 1), ()), ("squeeze", (2, 1, 0), (1,)), ("squeeze", (2, 1), ((),)),
    ("expand_dims", (2, 3), (0,)), ("expand_dims", (2, 3), (-1,)), ("expand_dims", (2, 3), ((0, -1),)),
    ("expand_dims", (), (0,)), ("expand_dims", (2, 0), ((1, 2),)), ("expand_dims", (2,), ((),)),
    ("moveaxis", (2, 3, 4), (0, -1)), ("moveaxis", (2, 3, 4), (2, 0)), ("moveaxis", (2, 3, 4), ((0, 1), (-1, 0))),
    ("moveaxis", (2, 3, 4), ((0, 1, 2), (2, 0, 1))), ("moveaxis", (2, 3), ((), ())),
    ("moveaxis", (2, 3, 4, 5), ((0, 1), (2, 0))), ("swapaxes", (2, 3, 4), (0, 2)),
    ("ravel", (2, 3, 4), ()), ("ravel", (), ()), ("ravel", (2, 0), ())])
def test_axes_as_in_numpy(name, shape, arguments, cpu):
    data = np.arange(np.prod(shape, dtype=int), dtype=np.int32).reshape(shape)
    got, want = (getattr(module, name)(t, *arguments) for module, t in ((nnk, cpu.array(data)), (np, data)))
    assert got.shape == want.shape
    assert np.array_equal(got.numpy(), want)


def test_methods_for_axes(a, x):
    for call in (lambda t: t[:1].squeeze(), lambda t: t[:, :1].squeeze(1), lambda t: t.T.ravel(),
                 lambda t: t.flatten()):
        assert np.array_equal(call(x).numpy(), call(a))


@pytest.mark.parametrize(("name", "arguments", "error"), [
    ("squeeze", (1,), ShapeError), ("squeeze", (5,), AxisError), ("squeeze", ((0, 0),), ShapeError),
    ("squeeze", (0.0,), DTypeError), ("expand_dims", (4,), AxisError), ("expand_dims", ((0, 0),), ShapeError),
    ("expand_dims", (None,), DTypeError), ("moveaxis", (0, 3), AxisError), ("moveaxis", ((0, 1), 0), ShapeError),
    ("moveaxis", ((0, 0), (0, 1)), ShapeError), ("moveaxis", (0, 1.5), DTypeError)])
def test_axes_that_are_refused(name, arguments, error, cpu):
    data = np.zeros((1, 3, 4), np.float32)
    with pytest.raises(error, match=f"Expected .* {name}"):
        getattr(nnk, name)(cpu.array(data), *arguments)
    with pytest.raises((ValueError, TypeError)):
        getattr(np, name)(data, *arguments)
