"""How reductions read a tensor: by rows or by columns, without copies where one read will do, long lines in parts."""

import numpy as np
import pytest

from nnk.errors import ShapeError
from nnk.expr import lines
from nnk.expr.node import CHUNKED
from nnk.numerics import REDUCE_CHUNK


@pytest.mark.parametrize(("shape", "axes", "direction", "moved"), [
    ((5,), (0,), "row", (5,)), ((4, 7), (1,), "row", (4, 7)), ((4, 7), (0,), "col", (4, 7)),
    ((2, 3, 4), (0, 1), "col", (2, 3, 4)), ((2, 3, 4), (0,), "col", (2, 12)), ((2, 3, 4), (1, 2), "row", (2, 12)),
    ((2, 3, 4), (0, 1, 2), "row", (24,)), ((2, 3, 4), (1,), "row", (2, 4, 3)), ((2, 3, 4), (2,), "row", (2, 3, 4))])
def test_lines_are_read_in_the_order_of_memory(shape, axes, direction, moved, cpu):
    x = cpu.array(np.zeros(shape, np.float32))
    found, how = lines.lines_to_reduce(x, axes)
    assert (how, found.shape) == (direction, moved)


def test_columns_of_a_transposed_matrix_are_rows_in_memory(cpu):
    x = cpu.array(np.zeros((4, 7), np.float32)).T
    assert lines.lines_to_reduce(x, (0,))[1] == "row"
    assert lines.lines_to_reduce(x, (1,))[1] == "col"


@pytest.mark.parametrize(("axes", "keepdims", "want"), [
    ((), False, (2, 3, 4)), ((1,), False, (2, 4)), ((0, 2), True, (1, 3, 1)), ((0, 1, 2), False, ())])
def test_shape_of_a_reduction(axes, keepdims, want, cpu):
    assert lines.reduced_shape(cpu.array(np.zeros((2, 3, 4))), axes, keepdims) == want


def test_long_lines_are_reduced_in_parts(cpu):
    for length, steps in ((lines.LONGEST_LINE, 1), (lines.LONGEST_LINE + 1, 2)):
        for shape, op in (((2, length), "row_sum"), ((length, 2), "col_sum")):
            values = cpu.array(np.ones(shape, np.float32))
            kept = (2, 1) if op == "row_sum" else (1, 2)
            result = lines.reduce_lines(op, values, kept)
            assert (result.shape, result.attrs) == (kept, ())
            assert (result.args[0].attrs == CHUNKED) == (steps == 2)
            assert max(result.args[0].shape) == (-(-length // REDUCE_CHUNK) if steps == 2 else length)
            assert len(cpu.schedule([result])[0].steps) == steps
            assert result.numpy().reshape(-1).tolist() == [length, length]


def test_reduce_over_names_the_caller(cpu):
    with pytest.raises(ShapeError, match="Expected at least one element to reduce for widest, got shape"):
        lines.reduce_over("widest", "max", cpu.array(np.zeros((0, 3))), (0,), False, None)
