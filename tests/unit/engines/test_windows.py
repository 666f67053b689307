"""Windows of every view, as addresses; that they give the bits of the whole is a matter of test_pieces."""

import dataclasses

import pytest

from nnk import ops
from nnk.engines.limits import CPU_LIMITS
from nnk.engines.windows import Box, Window, Windows, operand_slots
from nnk.expr.lower import LoweredKernel
from nnk.expr.meta import CHUNKS_OUT, Launch, kernel_meta_of
from nnk.expr.node import leaf
from nnk.expr.spec import ExprSpec, Instr, Matmul, Operand, ViewSpec
from nnk.numerics import REDUCE_CHUNK
from tests import folds

VIEW = {view.name: view.code for view in ops.VIEWS}
KIND = {kind.name: kind.code for kind in ops.OPERANDS}
OP = {op.name: op.code for op in ops.OPS}

#: A matrix of 100 columns, in bytes.
LINE = 400


def windows_of(engine, spec, launch, sizes, out=(12, 100), limits=CPU_LIMITS):
    inputs = tuple(leaf(engine, object(), (size,)) for size in sizes)
    return Windows(LoweredKernel(leaf(engine, object(), out), spec, launch, inputs), kernel_meta_of(spec), limits)


def reader(*views, read=0, operand=None):
    """A program that copies the input in slot ``read``, or ``operand``."""
    source = operand or Operand(KIND["input"], read)
    return ExprSpec(1, (Instr(OP["copy"], 0, source),), views)


#: View and words -> rows that rows 4 to 7 read (the first, their number), and the words there.
ROWS = {
    "linear": ((), 4, 4, ()),
    "head_group": ((3,), 4, 4, (3,)),
    "row_mod": ((8,), 4, 4, (4,)),
    "row_access": ((8, 5), 9, 4, (4, 0)),
    "grouped_reduce_sum": ((3,), 12, 12, (3,)),
    "grouped_reduce_max": ((2,), 8, 8, (2,)),
    "rotate_half": ((4,), 4, 4, (4,)),
}


@pytest.mark.parametrize("name", ROWS)
def test_views_of_rows(name, cpu):
    words, first, count, new = ROWS[name]
    found = windows_of(cpu, reader(ViewSpec(VIEW[name])), Launch(12, 100, (words,)), [6000])
    assert found.window(0, Box(4, 4, 0, 100)) == (Window(first * LINE, count * LINE), new)
    part = Window(first * LINE + 80, 40, count, LINE)
    assert found.window(0, Box(4, 4, 20, 10)) == (part, new)


def test_periods_and_grains(cpu):
    def grains(spec, launch, sizes=(6000, 100)):
        found = windows_of(cpu, spec, launch, sizes)
        return found.periods, found.row_grain, found.col_grain

    assert grains(reader(ViewSpec(VIEW["row_access"])), Launch(12, 100, ((8, 5),))) == ([8], 1, 1)
    assert grains(reader(ViewSpec(VIEW["rotate_half"])), Launch(12, 100, ((4,),))) == ([], 4, 1)
    strided = ViewSpec(VIEW["strided"], 0, 3)
    assert grains(reader(strided), Launch(12, 100, ((0, 2, 3, 600, 300, 100, 1),))) == ([3, 6], 1, 1)
    for kind, want in (("row", (12, 1)), ("col", (1, 0)), ("batch", (1, 1))):
        assert grains(reader(operand=Operand(KIND[kind], 0)), Launch(12, 100, ()), ())[1:] == want
    numbered = ExprSpec(1, (Instr(OP["add"], 0, Operand(KIND["row"], 0), Operand(KIND["matmul"], 0)),),
                        (ViewSpec(VIEW["linear"]),) * 2, matmul=Matmul(0, 1))
    launch = Launch(12, 100, ((), ()), mm_k=5, mm_batch=3)
    assert grains(numbered, launch) == ([], 4, 1)
    batch = numbered._replace(instrs=(numbered.instrs[0]._replace(a=Operand(KIND["batch"], 0)),))
    assert grains(batch, launch) == ([], 0, 1)
    grouped = numbered._replace(views=(ViewSpec(VIEW["linear"]), ViewSpec(VIEW["head_group"])))
    assert grains(grouped, Launch(12, 100, ((), (2,)), mm_k=5, mm_batch=3)) == ([8], 4, 1)


def test_lines_that_are_reduced_are_whole_but_for_their_chunks(cpu):
    rows = ExprSpec(1, (Instr(OP["row_sum"], 0, Operand(KIND["input"], 0)),), (ViewSpec(VIEW["linear"]),))
    columns = rows._replace(instrs=(rows.instrs[0]._replace(op=OP["col_sum"]),))
    for spec, vector_out, want in ((rows, 1, (1, 0)), (columns, 1, (0, 1)), (rows, CHUNKS_OUT, (1, REDUCE_CHUNK)),
                                   (columns, CHUNKS_OUT, (REDUCE_CHUNK, 1))):
        found = windows_of(cpu, spec, Launch(12, 100, ((),), vector_out=vector_out), [1200])
        assert (found.row_grain, found.col_grain) == want


def test_views_of_batches(cpu):
    spec = ExprSpec(1, (Instr(OP["add"], 0, Operand(KIND["input"], 2), Operand(KIND["input"], 3)),),
                    tuple(ViewSpec(VIEW[name]) for name in ("linear", "linear", "batch_mod", "batch_col")),
                    matmul=Matmul(0, 1))
    launch = Launch(12, 100, ((), (), (4,), (110,)), mm_k=5, mm_batch=6)
    found = windows_of(cpu, spec, launch, [60, 3000, 4, 660])
    assert found.periods == [8]
    assert found.window(2, Box(0, 8, 0, 100)) == (Window(0, 16), (4,))
    assert found.window(2, Box(10, 2, 0, 100)) == (Window(4, 4), (1,))
    assert found.window(3, Box(4, 4, 0, 100)) == (Window(2 * 440, 840), (110,))
    assert found.window(3, Box(4, 4, 20, 30)) == (Window(2 * 440 + 80, 120, 2, 440), (30,))
    assert found.window(3, Box(5, 1, 20, 30)) == (Window(2 * 440 + 80, 120), (110,))


@pytest.mark.parametrize("trans", range(4))
def test_operands_of_a_product(trans, cpu):
    """Every element of the operands at its place, for parts of rows, columns and k, and for whole batches."""
    height, depth, cols, batches = 6, 10, 8, 3
    spec = ExprSpec(0, (), (ViewSpec(VIEW["linear"]), ViewSpec(VIEW["head_group"])), matmul=Matmul(0, 1))
    launch = Launch(height * batches, cols, ((), (2,)), mm_k=depth, mm_batch=batches, mm_trans=trans)
    found = windows_of(cpu, spec, launch, [180, 160], (18, 8))

    def elements(window):
        return [(window.start + row * window.step) // 4 + at for row in range(window.rows)
                for at in range(window.row_bytes // 4)]

    for box in (Box(7, 3, 2, 4, 3, 5), Box(12, 6, 0, 8, 0, 10), Box(0, 12, 0, 8, 0, 10), Box(6, 6, 3, 5, 9, 1)):
        (a, a_words), (b, b_words) = (found.window(slot, box) for slot in range(2))
        assert (a_words, b_words) == ((), (2,))
        a, b = elements(a), elements(b)
        parts = max(1, box.rows // height)
        rows = min(box.rows, height)
        for batch in range(parts):
            for k in range(box.depth):
                for row in range(rows):
                    at = (batch * box.depth + k) * rows + row if trans & 1 else (batch * rows + row) * box.depth + k
                    whole, line = box.row // height + batch, box.row % height + row
                    assert a[at] == ((whole * depth + box.k + k) * height + line if trans & 1 else
                                     (whole * height + line) * depth + box.k + k)
                for col in range(box.cols):
                    block = batch // 2
                    at = (block * box.cols + col) * box.depth + k if trans & 2 else \
                        (block * box.depth + k) * box.cols + col
                    whole = (box.row // height) // 2 + block
                    assert b[at] == ((whole * cols + box.col + col) * depth + box.k + k if trans & 2 else
                                     (whole * depth + box.k + k) * cols + box.col + col)


def test_windows_of_a_fold(cpu):
    """Queries by row, keys and vectors by batch, a result of its own width."""
    spec = folds.attention(5, 6, 40, "plain", True)
    launch = Launch(6 * 40, 40, ((), (), (), (6,)), mm_k=5, mm_batch=6, out_cols=5)
    found = windows_of(cpu, spec, launch, [1200, 1200, 1200, 6], (240, 5))
    assert operand_slots(spec) == {0: "a", 1: "b", 2: "v"}
    assert (found.height, found.periods, found.row_grain, found.col_grain) == (40, [240], 1, 0)
    part = Box(80, 80, 0, 40, 0, 5)
    assert [found.window(slot, part) for slot in range(4)] == [
        (Window(1600, 1600), ()), (Window(1600, 1600), ()), (Window(1600, 1600), ()), (Window(8, 8), (2,))]
    assert found.output(part) == Window(1600, 1600)
    # Rows of one batch: queries are stored (depth, rows) here.
    part = Box(90, 20, 0, 40, 0, 5)
    assert found.window(0, part) == (Window(1640, 80, 5, 160), ())
    assert [found.window(slot, part)[0].nbytes for slot in (1, 2)] == [800, 800]
    assert found.output(part) == Window(1800, 400)


@pytest.mark.parametrize("view", ["a", "b"])
def test_operands_that_lie_apart_are_packed(view, cpu):
    """One head of (items, heads, size) in memory: a window of the head alone, by rows or by columns."""
    items, heads, size = 50, 8, 6
    strided = ViewSpec(VIEW["strided"], 0, 3)
    across, along = heads * size, 1
    by_items = (0, heads, items, 0, size, across, along)
    by_k = (0, heads, size, 0, size, along, across)
    spec = ExprSpec(0, (), (strided, strided), matmul=Matmul(0, 1))
    launch = Launch(heads * items, items, (by_items, by_k), mm_k=size, mm_batch=heads)
    limits = dataclasses.replace(CPU_LIMITS, buffer_bytes=2000)
    found = windows_of(cpu, spec, launch, [items * across] * 2, (400, 50), limits)
    window, words = found.window("ab".index(view), Box(3 * items, items, 0, items, 0, size))
    assert window == Window(3 * size * 4, size * 4, items, across * 4)
    assert words == ((0, 1, items, 0, 0, size, 1) if view == "a" else (0, 1, size, 0, 0, 1, size))
