"""Matrix products: the contract's bits, NumPy's shapes, clear errors."""

import numpy as np
import pytest

import nnk
from nnk.engines.parity import special_values
from nnk.errors import ShapeError
from tests.oracle import tensors as oracle

pytestmark = pytest.mark.usefixtures("quiet_numpy")


def bits(tensor):
    return tensor.numpy().view(np.uint32)


@pytest.fixture
def a():
    return special_values((3, 4, 5), 11)


@pytest.fixture
def x(a, cpu):
    return cpu.array(a)


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
