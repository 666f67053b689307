"""Matrix products: the contract's bits, NumPy's shapes, clear errors."""

import dataclasses
import itertools

import numpy as np
import pytest

import nnk
from nnk.engines.cpu import CpuEngine
from nnk.engines.parity import special_values
from nnk.errors import DTypeError, ShapeError
from nnk.expr import products, whole
from tests.oracle import tensors as oracle
from tests.results import bits, steps_of

pytestmark = pytest.mark.usefixtures("quiet_numpy")


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


# ------------------------------------------------------------------------------------------------- integers and bools

WHOLE = ("int32", "uint8", "bool")


def draw(rng, shape, dtype):
    return rng.random(shape) < 0.4 if dtype == "bool" else rng.integers(-2**31, 2**31, shape).astype(dtype)


@pytest.mark.parametrize(("first", "second"), [*itertools.product(WHOLE, WHOLE)])
def test_products_of_integers_are_numpys(first, second, cpu, rng):
    for left, right in MATMULS:
        a, b = draw(rng, left, first), draw(rng, right, second)
        product = cpu.array(a) @ cpu.array(b)
        want = a @ b
        assert (product.shape, product.dtype) == (want.shape, want.dtype)
        assert np.array_equal(product.numpy(), want), (left, right)


@pytest.mark.parametrize(("first", "second"), [*itertools.product(WHOLE, WHOLE)])
def test_a_product_of_integers_is_one_kernel_without_copies(first, second, cpu, rng):
    a, b = cpu.array(draw(rng, (6, 8), first)), cpu.array(draw(rng, (5, 8), second))
    batches = cpu.array(draw(rng, (3, 8, 4), second))
    for product in (a @ b.T, a[::2, ::-1] @ b.T[:, 1:], a @ batches, b[0] @ a.T, a @ b[1]):
        (step,) = steps_of(product)
        # Those of bools are the kernels' own product.
        assert (step.meta.form == "matmul") is (first == second == "bool")


@pytest.mark.parametrize("dtype", WHOLE)
def test_long_products_of_integers_are_cut(dtype, cpu, rng, monkeypatch):
    monkeypatch.setattr(products, "LONGEST_BYTES", 8)
    monkeypatch.setattr(whole, "LONGEST_BYTES", 8)
    for k in (7, 8, 9, 16, 27):
        a, b = draw(rng, (2, 3, k), dtype), draw(rng, (k, 4), dtype)
        assert np.array_equal((cpu.array(a) @ cpu.array(b)).numpy(), a @ b), k


@pytest.mark.parametrize("most", [4000, 20_000])
def test_products_of_integers_larger_than_a_kernel_binds(most, rng):
    """An operand that a kernel would read across its rows is stored in that order first."""
    engine = CpuEngine()
    engine.limits = dataclasses.replace(engine.limits, buffer_bytes=most)
    a, b = draw(rng, (3, 500), "uint8"), draw(rng, (500, 70), "int32")
    assert np.array_equal((engine.array(a) @ engine.array(b)).numpy(), a @ b)
    assert np.array_equal((engine.array(b).T @ engine.array(a).T).numpy(), b.T @ a.T)


def test_batch_axes_of_products_of_integers(cpu, rng):
    a, b = draw(rng, (2, 1, 1, 1, 1, 2, 3), "int32"), draw(rng, (2, 1, 3, 2), "int32")
    assert np.array_equal((cpu.array(a) @ cpu.array(b)).numpy(), a @ b)
    with pytest.raises(ShapeError, match=r"at most 5 batch axes for matmul of integers over k = 3, got 6 for \(1, 2,"):
        cpu.array(a[None]) @ cpu.array(b)
    long = np.ones((1, 1, 1, 1, 1, 1, 65_536), np.uint8)
    with pytest.raises(ShapeError, match="at most 4 batch axes for matmul of integers over k = 65536, got 5 for"):
        cpu.array(long) @ cpu.array(long).swapaxes(-1, -2)


def test_products_of_integers_wrap_at_every_length(cpu):
    """The largest bytes and words, in lines beyond what one kernel adds."""
    for k in (258, 65_536, 65_537):
        for dtype, value in (("uint8", 255), ("int32", -2**31 + 1), ("int32", 2**31 - 1), ("bool", 1)):
            a = np.full((1, k), value, dtype)
            assert np.array_equal((cpu.array(a) @ cpu.array(a).T).numpy(), a @ a.T), (k, dtype)


def test_products_beside_floats_and_arrays(cpu):
    whole_numbers = cpu.array([[1, 2], [3, 4]])
    assert (whole_numbers @ cpu.array([0.5, 1.0])).tolist() == [2.5, 5.5]
    assert (whole_numbers @ [[1, 0], [0, 1]]).dtype == np.int32
    assert (np.uint8([1, 2]) @ whole_numbers).tolist() == [7, 10]


def test_out_of_a_product_of_integers(cpu):
    a, out = cpu.array([[1, 2], [3, 4]]), cpu.array(np.zeros((2, 2), np.int32))
    assert nnk.matmul(a, out + 1, out=a) is a
    assert a.tolist() == [[3, 3], [7, 7]]
    with pytest.raises(DTypeError, match="Expected a dtype that holds int32 for out of matmul, got uint8"):
        nnk.matmul(a, a, out=cpu.array(np.zeros((2, 2), np.uint8)))
