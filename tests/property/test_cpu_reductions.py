"""Reductions of the CPU engine's core against the oracle: columns, chunks, groups, matmuls; any ISA and threads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nnk._fast import cpu
from nnk.errors import ShapeError
from nnk.expr.meta import DISPATCH_SIGNATURE, kernel_meta_of, pack_words
from nnk.expr.spec import ExprSpec, Matmul, ViewSpec
from tests import half_storage
from tests.cpu_programs import (
    ISAS,
    ROW_SUM,
    SOFTMAX,
    VIEW,
    arg,
    check,
    floats,
    instr,
    launch_of,
    refused,
    run,
    views,
)
from tests.oracle import evaluate


@pytest.fixture(autouse=True)
def _default_isa():
    yield
    cpu.set_isa(ISAS[-1])


COLUMN_SOFTMAX = ExprSpec(6, (
    instr("col_max", 0, arg("input")), instr("sub", 1, arg("input"), arg("reduce", 0)), instr("exp", 2, arg("reg", 1)),
    instr("col_sum", 3, arg("reg", 2)), instr("div", 4, arg("reg", 2), arg("reduce", 3))), views("linear"))
COL_SUM = ExprSpec(1, (instr("col_sum", 0, arg("input")),), views("linear"))
COL_MAX = ExprSpec(1, (instr("col_max", 0, arg("input")),), views("linear"))


@pytest.mark.parametrize("rows", [1, 2, 3, 8, 31, 64, 127, 128, 129, 255, 256, 257, 511, 1025, 16384, 16385, 33000])
@pytest.mark.parametrize("spec", [COL_SUM, COL_MAX, COLUMN_SOFTMAX], ids=["sum", "max", "softmax"])
def test_column_reductions(spec, rows, rng):
    """The tree of a column joins its lanes in another order of time, and in the same order of sums."""
    for cols in ((1, 3) if rows > 300 else (1, 7, 64, 1100)):
        x = floats(rng, rows * cols, 0.0 if rows % 2 else 0.002)
        for vector_out in ((1, 0) if spec is not COLUMN_SOFTMAX else (0,)):
            check(spec, launch_of(spec, rows, cols, vector_out=vector_out), [x], threads=(1, 2), isas=ISAS[-1:])


def test_column_of_a_million_goes_two_levels_up(rng):
    x = floats(rng, 256 * 16384 + 16384 * 3 + 77, 0.0)
    check(COL_SUM, launch_of(COL_SUM, x.size, 1, vector_out=1), [x], threads=(1,), isas=ISAS[-1:])
    assert run(COL_SUM, launch_of(COL_SUM, x.size, 1, vector_out=1), [x]) == \
        run(ROW_SUM, launch_of(ROW_SUM, 1, x.size, vector_out=1), [x])


def test_empty_columns():
    for spec, bits in ((COL_SUM, 0), (COL_MAX, 0xFF800000)):
        assert run(spec, launch_of(spec, 0, 3, vector_out=1), [np.zeros(0, np.float32)])[0].tolist() == [bits] * 3
    spec = ExprSpec(2, (*COL_SUM.instrs, instr("add", 1, arg("reduce", 0), arg("input"))), views("linear"))
    with pytest.raises(ShapeError, match="at least one element in a line"):
        run(spec, launch_of(spec, 0, 3, vector_out=1), [np.zeros(0, np.float32)])


def test_columns_of_one_row_and_one_value(rng):
    spec = ExprSpec(4, (instr("col_sum", 0, arg("const")), instr("col_max", 1, arg("input", 0)),
                        instr("col_sum", 2, arg("reduce", 1)), instr("add", 3, arg("reduce", 0), arg("reduce", 2))),
                    views("col_broadcast"), (0x3DCCCCCD,))
    for rows in (1, 300, 20000):
        check(spec, launch_of(spec, rows, 11), [floats(rng, 11)], isas=ISAS[-1:])


@pytest.mark.parametrize("axis", ["row", "col"])
@pytest.mark.parametrize("length", [1, 16384, 16385, 50000])
def test_chunks_of_a_line_reduce_to_the_line(axis, length, rng):
    """R7 is recursive: the results of chunks, reduced by the same rule, are the result of the line."""
    lines, chunks = 3, -(-length // 16384)
    x = floats(rng, lines * length, 0.0)
    for op in ("sum", "max"):
        spec = ExprSpec(2, (instr("neg", 0, arg("input")), instr(f"{axis}_{op}", 1, arg("reg", 0))), views("linear"))
        shape = (lines, length) if axis == "row" else (length, lines)
        for threads in (1, 3):
            parts = run(spec, launch_of(spec, *shape, vector_out=2), [x], threads)[0]
            assert parts.size == lines * chunks
            again = spec._replace(instrs=(instr(f"{axis}_{op}", 0, arg("input")),))
            shape_again = (lines, chunks) if axis == "row" else (chunks, lines)
            whole = run(spec, launch_of(spec, *shape, vector_out=1), [x])[0]
            assert np.array_equal(
                run(again, launch_of(again, *shape_again, vector_out=1), [parts.view(np.float32)])[0], whole)


def test_chunks_only_of_one_reduction(rng):
    for spec, word in ((SOFTMAX, 2), (COLUMN_SOFTMAX, 2), (ROW_SUM, 3)):
        refused(spec, launch_of(spec, 5, 7, vector_out=word), [floats(rng, 35)], match="vector_out 0 or 1, or 2 for")


@pytest.mark.parametrize("count", [1, 2, 3, 255, 256, 257, 600, 16384, 16385, 33000])
def test_groups_of_rows(count, rng):
    for name in ("grouped_reduce_sum", "grouped_reduce_max"):
        spec = ExprSpec(1, (instr("neg", 0, arg("input")),), (ViewSpec(VIEW[name], 0, count),))
        rows, cols = (3, 70) if count < 300 else (2, 2)
        check(spec, launch_of(spec, rows, cols, ((count,),)), [floats(rng, rows * count * cols, 0.0)], isas=ISAS[-1:])


@pytest.mark.parametrize("axis", ["row", "col"])
@pytest.mark.parametrize(("m", "n", "k", "batch"), [(1, 1, 1, 1), (5, 7, 0, 2), (70, 33, 400, 1), (9, 300, 17, 4)])
def test_reduction_of_a_matmul(axis, m, n, k, batch, rng):
    spec = ExprSpec(2, (instr(f"{axis}_sum", 0, arg("matmul")), instr("sub", 1, arg("matmul"), arg("reduce", 0))),
                    views("linear", "linear"), matmul=Matmul(0, 1))
    inputs = [floats(rng, batch * m * k, 0.001), floats(rng, batch * k * n, 0.001)]
    for trans in range(4):
        check(spec, launch_of(spec, batch * m, n, mm_k=k, mm_batch=batch, mm_trans=trans), inputs, isas=ISAS[-1:])


@pytest.mark.parametrize("shape", [(1, 1), (6, 33), (300, 40), (17000, 3)])
def test_column_sums_of_halves(shape: tuple[int, int]) -> None:
    """A column that is read as it lies in memory must be one of floats."""
    import nnk
    halves = np.random.default_rng(1).standard_normal(shape).astype(np.float16)
    engine = nnk.engine("cpu")
    want = engine.array(halves.astype(np.float32)).sum(0)
    assert np.array_equal(engine.array(halves).sum(0).numpy().view(np.uint32), want.numpy().view(np.uint32))


#: How a slot is stored: its letter, the words that say which slots are halves, and what its elements are as words.
STORED = {"float16": ("w", (1, 0), np.uint16), "bfloat16": ("w", (0, 1), np.uint16), "uint8": ("u", (0, 0), np.uint8),
          "bool": ("b", (0, 0), np.uint8)}


@pytest.mark.parametrize("dtype", list(STORED))
@pytest.mark.parametrize("name", ["row_reduce_sum", "row_reduce_max", "col_reduce_sum", "col_reduce_max",
                                  "grouped_reduce_sum", "grouped_reduce_max"])
def test_views_that_reduce_read_every_dtype(name: str, dtype: str, rng: np.random.Generator) -> None:
    """What is stored as another dtype reduces as the float32 words that it becomes."""
    letter, halves, storage = STORED[dtype]
    for length in (0, 1, 40, 257, 1025, 16385, 33000) if name[0] != "g" else (1, 40, 257, 16385):
        lines = 67 if length < 300 else 2
        rows, cols = (lines, length) if name[0] == "r" else (length, lines) if name[0] == "c" else (2, lines)
        words, vector_out = ((length,), 0) if name[0] == "g" else ((), 1)
        spec = ExprSpec(1, (instr("copy", 0, arg("input")),), (ViewSpec(VIEW[name], 0, length),))
        bits = rng.integers(0, 2 ** (8 * storage().itemsize), length * lines * (2 if name[0] == "g" else 1), storage)
        if letter == "w":
            # Few values of very different size: a sum in another order would show.
            bits = np.where(bits & 0x7C00 == 0x7C00, bits & 0x83FF, bits)
            values = half_storage.widen(bits, 1 + (dtype == "bfloat16"))
        else:
            values = evaluate.words_of(bits, dtype)
        launch = launch_of(spec, rows, cols, (words,), vector_out=vector_out)
        want = run(spec, launch, [values])[0]
        meta = kernel_meta_of(spec, DISPATCH_SIGNATURE if any(halves) else 0, letter + "f")
        for isa in ISAS:
            cpu.set_isa(isa)
            out = np.empty(want.size, np.uint32)
            cpu.Program(spec, meta).run(pack_words(meta, replace(launch, halves=halves)), [bits], [out], 2)
            assert np.array_equal(out, want), (length, isa)
