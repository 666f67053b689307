"""The CPU engine's core against the oracle: every op, view and form, around every tile border, on every ISA."""

import dataclasses
import random
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

from nnk import ops
from nnk._fast import cpu
from nnk.errors import ExprError, ShapeError, UnsupportedOpError
from nnk.expr.meta import DISPATCH_SIGNATURE, kernel_meta_of, pack_words
from nnk.expr.spec import ExprSpec, Instr, Matmul, ViewSpec
from tests import ROOT
from tests.cpu_programs import (
    ISAS,
    PURE,
    ROW_MAX,
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
from tests.strategies import FORMS, SPECIAL_BITS, random_case

ELEMENTWISE = [op for op in ops.OPS if op.kind != "reduce"]


@pytest.fixture(autouse=True)
def _default_isa():
    yield
    cpu.set_isa(ISAS[-1])


# ------------------------------------------------------------------------------------------------- elementwise

@pytest.mark.parametrize("op", ELEMENTWISE, ids=lambda op: op.name)
def test_every_op_over_special_values(op, rng):
    special = np.array(SPECIAL_BITS, np.uint32).view(np.float32)
    grids = [grid.reshape(-1).copy() for grid in np.meshgrid(*[special] * op.arity, indexing="ij")]
    if op.arity == 1:
        grids = [np.concatenate([grids[0], floats(rng, 3000, 0.3)])]
    spec = ExprSpec(1, (Instr(op.code, 0, *(arg("input", i) for i in range(op.arity))),), views(*["linear"] * op.arity))
    check(spec, launch_of(spec, 1, grids[0].size), grids, threads=(1,))


@pytest.mark.parametrize("op", [op for op in ELEMENTWISE if op.arity > 1], ids=lambda op: op.name)
def test_every_mix_of_single_values_and_elements(op, rng):
    for scalars in range(2 ** op.arity):
        operands = [arg("const", i) if scalars >> i & 1 else arg("input", i) for i in range(op.arity)]
        consts = tuple(int(bits) for bits in floats(rng, op.arity, 0.5).view(np.uint32))
        spec = ExprSpec(1, (Instr(op.code, 0, *operands),), views(*["linear"] * op.arity), consts)
        check(spec, launch_of(spec, 1, 77), [floats(rng, 77) for _ in range(op.arity)], threads=(1,))


@pytest.mark.parametrize("size", [0, 1, 7, 8, 255, 256, 257, 1023, 1024, 1025, 2047, 2048, 2049, 16385, 300001])
def test_chain_at_tile_borders(size, rng):
    spec = ExprSpec(3, (instr("mul", 0, arg("input", 0), arg("input", 1)), instr("add", 1, arg("reg", 0), arg("const")),
                        instr("tanh", 2, arg("reg", 1))), views("linear", "linear"), (0x40400000,))
    check(spec, launch_of(spec, size, 1), [floats(rng, size), floats(rng, size)], threads=(1, 2, 3))


@pytest.mark.parametrize(("rows", "cols"), [(1, 1), (5, 1), (700, 1), (3, 255), (300, 7), (9, 256), (2, 257), (4, 1025),
                                            (3, 5000), (2049, 3)])
def test_every_view(rows, cols, rng):
    """All views at once, summed: each has a value of its own at every element."""
    period, block = min(rows, 3), 4
    table = 6
    slots = [
        ("linear", (), rows * cols, 0), ("row_mod", (period,), period * cols, period), ("row_broadcast", (), rows, 0),
        ("col_broadcast", (), cols, 0), ("row_access", (period, 2), (period + 2) * cols, period),
        ("rotate_half", (block,), -(-rows // block) * block * cols, block), ("batch_mod", (2,), 2, 2),
        ("batch_col", (cols,), cols, cols), ("take", (), table * cols, 9), ("row_broadcast", (), rows, 0),
        ("row_gather", (), table * cols, 11), ("col_broadcast", (), cols, 0),
        # Transposed, reversed, and one value for a row: offset, sizes 1 and 2, strides 0 to 2, column stride.
        ("strided", (0, 1, 1, 1, 0, 0, rows), rows * cols, 3),
        ("strided", (rows * cols - 1, 1, 1, 2**32 - cols, 0, 0, 2**32 - 1), rows * cols, 3),
        ("strided", (1, 1, 1, 1, 0, 0, 0), rows + 1, 3),
    ]
    inputs = [floats(rng, size, 0.02) for _, _, size, _ in slots]
    inputs[9] = rng.integers(0, table, rows, dtype=np.int32)
    inputs[11] = rng.integers(0, table, cols).astype(np.float32) + np.float32(0.75)
    names = [slot for slot in range(len(slots)) if slot not in (9, 11)]
    instrs = [instr("add", 0, arg("input", names[0]), arg("row"))]
    for slot in names[1:]:
        instrs.append(instr("add", 0, arg("reg", 0), arg("input", slot)))
        instrs.append(instr("mul", 0, arg("reg", 0), arg("col")))
    described = tuple(ViewSpec(VIEW[name], int(name == "rotate_half"), param) for name, _, _, param in slots)
    spec = ExprSpec(1, tuple(instrs), described)
    check(spec, launch_of(spec, rows, cols, tuple(words for _, words, _, _ in slots)), inputs)
    for slot in names:
        one = spec._replace(instrs=(instr("neg", 0, arg("input", slot)),))
        check(one, launch_of(one, rows, cols, tuple(words for _, words, _, _ in slots)), inputs, isas=ISAS[-1:])


@pytest.mark.parametrize("rank", ops.STRIDED_RANKS)
def test_strided_view_of_many_dimensions(rank, rng):
    sizes = (3, 2, 4)[:3] if rank == 3 else (2, 1, 3, 2, 1, 2, 3)
    rows, cols = int(np.prod(sizes)), 5
    base = floats(rng, 4000)
    strides = [int(step) for step in rng.integers(-9, 40, rank + 1)]
    low = sum(min(0, (size - 1) * step) for size, step in zip((*sizes, cols), strides, strict=True))
    words = tuple(word % 2**32 for word in (-low, *sizes[1:], *strides))
    spec = ExprSpec(1, (instr("neg", 0, arg("input")),), (ViewSpec(VIEW["strided"], 0, rank),))
    check(spec, launch_of(spec, rows, cols, (words,)), [base])


def test_extra_outputs_and_results_without_elements(rng):
    spec = ExprSpec(4, (instr("add", 0, arg("input", 0), arg("const")), instr("mul", 1, arg("rparam"), arg("const")),
                        instr("neg", 2, arg("input", 1)), instr("max", 3, arg("reg", 0), arg("reg", 1))),
                    views("linear", "row_broadcast"), (0x40000000,), (0x7FC00001,), extras=(0, 1, 2, 0, 3))
    check(spec, launch_of(spec, 33, 70), [floats(rng, 33 * 70), floats(rng, 33)])


def test_register_that_is_written_twice(rng):
    spec = ExprSpec(1, (instr("neg", 0, arg("input")), instr("add", 0, arg("reg", 0), arg("reg", 0)),
                        instr("mul", 0, arg("fanout", 0), arg("input"))), views("linear"))
    check(spec, launch_of(spec, 1, 3000), [floats(rng, 3000)])


def test_output_may_be_the_linear_input(rng):
    x = floats(rng, 5000)
    spec = ExprSpec(1, (instr("mul", 0, arg("input"), arg("input")),), views("linear"))
    wanted = run(spec, launch_of(spec, 1, x.size), [x])[0].copy()
    meta = kernel_meta_of(spec)
    cpu.Program(spec, meta).run(pack_words(meta, launch_of(spec, 1, x.size)), [x], [x], 2)
    assert np.array_equal(x.view(np.uint32), wanted)


# ------------------------------------------------------------------------------------------------- reductions

@pytest.mark.parametrize("cols", [0, 1, 2, 3, 8, 31, 64, 100, 255, 256, 257, 511, 1023, 1024, 1025, 2049, 4096, 16383,
                                  16384, 16385, 32768, 33000])
@pytest.mark.parametrize("spec", [ROW_SUM, ROW_MAX, SOFTMAX], ids=["sum", "max", "softmax"])
def test_row_reductions(spec, cols, rng):
    rows = 3 if cols > 300 else 41
    for special in (0.0, 0.002):
        x = floats(rng, rows * cols, special)
        for vector_out in ((True, False) if spec is not SOFTMAX and cols else (False,)):
            check(spec, launch_of(spec, rows, cols, vector_out=vector_out), [x], threads=(1, 2))


def test_sum_of_a_million_goes_two_levels_up(rng):
    x = floats(rng, 256 * 16384 + 16384 * 3 + 77, 0.0)
    check(ROW_SUM, launch_of(ROW_SUM, 1, x.size, vector_out=True), [x])
    view = ExprSpec(1, (instr("neg", 0, arg("input")),), views("row_reduce_sum"))
    check(view, launch_of(view, 1, x.size, vector_out=True), [x])


def test_signed_zeros_and_empty_sums():
    zeros = np.full(70, -0.0, np.float32)
    for cols, wanted in ((7, 0x80000000), (0, 0)):
        assert run(ROW_SUM, launch_of(ROW_SUM, 10, cols, vector_out=True), [zeros])[0].tolist() == [wanted] * 10
    assert run(ROW_MAX, launch_of(ROW_MAX, 2, 0, vector_out=True), [zeros])[0].tolist() == [0xFF800000] * 2


@pytest.mark.parametrize("cols", [5, 64, 384, 5000, 140000])
def test_layer_norm_with_weights(cols, rng):
    """Two dependent reductions, row values between them, saved tiles or computed again for long rows."""
    spec = ExprSpec(12, (
        instr("row_sum", 0, arg("input", 0)), instr("mul", 1, arg("reduce", 0), arg("rparam", 0)),
        instr("sub", 2, arg("input", 0), arg("reg", 1)), instr("mul", 3, arg("reg", 2), arg("reg", 2)),
        instr("row_sum", 4, arg("reg", 3)), instr("mul", 5, arg("reduce", 4), arg("rparam", 0)),
        instr("add", 6, arg("reg", 5), arg("const", 0)), instr("rsqrt", 7, arg("reg", 6)),
        instr("mul", 8, arg("reg", 2), arg("reg", 7)), instr("mul", 9, arg("reg", 8), arg("input", 1)),
        instr("add", 10, arg("reg", 9), arg("input", 2))), views("linear", "col_broadcast", "col_broadcast"),
        (0x2B8CBCCC,), (int(np.float32(1 / cols).view(np.uint32)),))
    rows = 2 if cols > 1000 else 37
    inputs = [floats(rng, rows * cols, 0.0), floats(rng, cols, 0.0), floats(rng, cols)]
    check(spec, launch_of(spec, rows, cols), inputs)
    check(spec, launch_of(spec, rows, cols, vector_out=True), inputs, isas=ISAS[-1:])


@pytest.mark.parametrize("cols", [3, 300, 2500])
def test_reductions_of_single_and_row_values(cols, rng):
    spec = ExprSpec(4, (instr("row_sum", 0, arg("const")), instr("row_max", 1, arg("input", 0)),
                        instr("row_sum", 2, arg("reduce", 1)), instr("add", 3, arg("reduce", 0), arg("reduce", 2))),
                    views("row_broadcast"), (0x3DCCCCCD,))
    check(spec, launch_of(spec, 11, cols), [floats(rng, 11)])


@pytest.mark.parametrize("length", [3, 300, 20000])
@pytest.mark.parametrize("axis", ["row", "col"])
def test_reduce_views(axis, length, rng):
    spec = ExprSpec(1, (instr("div", 0, arg("input", 0), arg("input", 1)),),
                    views(f"{axis}_reduce_max", f"{axis}_reduce_sum"))
    rows, cols = (5, length) if axis == "row" else (length, 5)
    for vector_out in (0, 1):
        check(spec, launch_of(spec, rows, cols, vector_out=vector_out),
              [floats(rng, 5 * length, 0.0), floats(rng, 5 * length, 0.0)])


# ------------------------------------------------------------------------------------------------- matmul

TAIL = ExprSpec(3, (instr("add", 0, arg("matmul"), arg("input", 2)), instr("mul", 1, arg("reg", 0), arg("input", 3)),
                    instr("add", 2, arg("reg", 1), arg("batch"))),
                views("linear", "linear", "col_broadcast", "row_broadcast"), matmul=Matmul(0, 1))


@pytest.mark.parametrize(("m", "n", "k", "batch"), [
    (1, 1, 1, 1), (0, 5, 3, 1), (5, 0, 3, 1), (2, 3, 4, 1), (6, 16, 384, 1), (7, 17, 385, 1),
    (5, 33, 3, 4), (1, 300, 40, 1), (97, 65, 50, 1), (200, 130, 800, 1), (333, 517, 101, 1), (100, 40, 7, 9),
    (13, 1, 13, 2)])
@pytest.mark.parametrize("spec", [PURE, TAIL], ids=["pure", "tail"])
def test_matmul_shapes(spec, m, n, k, batch, rng):
    rows = batch * m
    inputs = [floats(rng, rows * k, 0.001), floats(rng, batch * k * n, 0.001), floats(rng, n), floats(rng, rows)]
    inputs = inputs[:len(spec.views)]
    for trans in range(4):
        launch = launch_of(spec, rows, n, mm_k=k, mm_batch=batch, mm_trans=trans)
        check(spec, launch, inputs, threads=(1, 2), isas=ISAS if trans in (0, 3) else ISAS[-1:])


def test_matmul_over_nothing_is_plus_zero():
    for spec in (PURE, TAIL._replace(instrs=(instr("neg", 0, arg("matmul")),))):
        inputs = [np.zeros(0, np.float32)] * 2 + [np.zeros(5, np.float32), np.zeros(6, np.float32)]
        bits = run(spec, launch_of(spec, 6, 5, mm_k=0, mm_batch=2), inputs[:len(spec.views)])[0]
        assert set(bits.tolist()) == {0 if spec is PURE else 0x80000000}


@pytest.mark.parametrize(("m", "batch"), [(5, 1), (60, 1), (200, 1), (200, 9)])
def test_products_of_minus_zero_sum_to_minus_zero(m, batch):
    """One way through the code for each: B in place, packed by an item, packed for all; k over more than one block."""
    n, k = 19, 400
    a, b = np.full(batch * m * k, -0.0, np.float32), np.ones(batch * k * n, np.float32)
    for trans in (0, 2):
        for isa in ISAS:
            cpu.set_isa(isa)
            bits = run(PURE, launch_of(PURE, batch * m, n, mm_k=k, mm_batch=batch, mm_trans=trans), [a, b], 2)[0]
            assert set(bits.tolist()) == {0x80000000}


@pytest.mark.parametrize(("m", "n", "batch"), [(5, 19, 1), (60, 19, 1), (200, 40, 1), (200, 19, 9)])
def test_parts_of_k_go_on_from_the_sums_in_the_output(m, n, batch, rng):
    """Wherever k is cut, the bits are those of one run; an output too small for sums refuses a part."""
    k = 900
    tail = PURE._replace(num_regs=1, instrs=(instr("exp", 0, arg("matmul")),))
    a, b = floats(rng, batch * m * k, 0), floats(rng, batch * k * n, 0)
    meta = kernel_meta_of(tail)
    program = cpu.Program(tail, meta)
    for isa in ISAS:
        cpu.set_isa(isa)
        launch = launch_of(tail, batch * m, n, mm_k=k, mm_batch=batch)
        whole = run(tail, launch, [a, b], 2)[0]
        out = np.zeros(batch * m * n, np.float32)
        for part in ((0, 384), (384, 385), (385, 892), (892, 900)):
            program.run(pack_words(meta, dataclasses.replace(launch, mm_range=part)), [a, b], [out], 2)
        assert np.array_equal(out.view(np.uint32), whole)
    halves = kernel_meta_of(tail, DISPATCH_SIGNATURE)
    words = pack_words(halves, dataclasses.replace(launch, mm_range=(0, 384), halves=(1 << 16, 0)))
    with pytest.raises(ShapeError, match="cannot hold sums"):
        cpu.Program(tail, halves).run(words, [a, b], [out], 1)


@pytest.mark.parametrize("threads", [1, 3])
def test_strided_operands_are_the_transposed_linear_ones(threads, rng):
    m, n, k, batch = 30, 40, 50, 3
    a, b = floats(rng, batch * m * k), floats(rng, batch * k * n)
    plain = launch_of(PURE, batch * m, n, mm_k=k, mm_batch=batch, mm_trans=3)
    strided = PURE._replace(views=(ViewSpec(VIEW["strided"], 0, 3),) * 2)
    # Row (batch, row) of the operand's grid; A is stored (batch, k, m), B (batch, n, k).
    words = ((0, 1, m, m * k, 0, 1, m), (0, 1, k, k * n, 0, 1, k))
    launch = launch_of(strided, batch * m, n, words, mm_k=k, mm_batch=batch)
    check(strided, launch, [a, b], threads=(threads,))
    assert np.array_equal(run(PURE, plain, [a, b], threads)[0], run(strided, launch, [a, b], threads)[0])


# ------------------------------------------------------------------------------------------------- random programs

@pytest.mark.parametrize("form", FORMS)
def test_random_programs(form):
    for seed in range(80):
        case = random_case(random.Random(f"{form} {seed}"), form)
        check(case.spec, case.launch, case.inputs, threads=(1, 2))


# ------------------------------------------------------------------------------------------------- refusals

def program(spec):
    return cpu.Program(spec, kernel_meta_of(spec))


@pytest.mark.parametrize(("name", "param", "words", "needed"), [
    ("linear", 0, (), 70), ("row_mod", 0, (3,), 21), ("row_broadcast", 0, (), 10), ("col_broadcast", 0, (), 7),
    ("row_access", 0, (2, 4), 42), ("rotate_half", 0, (4,), 84), ("batch_mod", 0, (5,), 1), ("batch_col", 0, (9,), 7),
    ("strided", 3, (3, 2, 1, 5, 4, 0, 2), 3 + 4 * 5 + 4 + 6 * 2 + 1)])
def test_input_that_is_one_element_short(name, param, words, needed, rng):
    spec = ExprSpec(1, (instr("neg", 0, arg("input")),), (ViewSpec(VIEW[name], 0, param),))
    launch = launch_of(spec, 10, 7, (words,))
    refused(spec, launch, [floats(rng, needed - 1)], match=f"Input 0: expected at least {needed} elements")
    refused(spec, launch, [bytes(4 * needed - 1)], match="Input 0")
    assert run(spec, launch, [np.ones(needed, np.float32)])[0].size == 70


def test_view_parameters_that_cannot_be(rng):
    x = [floats(rng, 100)]
    for name, words in (("row_mod", (0,)), ("rotate_half", (3,)), ("rotate_half", (0,)), ("row_access", (0, 1)),
                        ("row_access", (1, 2**32 - 1)), ("batch_mod", (0,)), ("grouped_reduce_sum", (0,)),
                        ("grouped_reduce_max", (2,)), ("head_group", (0,))):
        spec = ExprSpec(1, (instr("neg", 0, arg("input")),), views(name))
        refused(spec, launch_of(spec, 10, 7, (words,)), x)
    spec = ExprSpec(1, (instr("neg", 0, arg("input")),), (ViewSpec(VIEW["strided"], 0, 3),))
    for words in ((0, 0, 1, 1, 0, 0, 1), (0, 1, 1, 2**32 - 1, 0, 0, 1), (2**32 - 1, 1, 1, 0, 0, 0, 0),
                  (5, 2**32 - 1, 2**32 - 1, 2**31, 2**31, 2**31, 2**31), (0, 1, 1, 2**31 - 1, 2**31 - 1, 2**31 - 1, 1)):
        refused(spec, launch_of(spec, 10, 7, (words,)), x)


@pytest.mark.parametrize(("name", "bad"), [
    *(("take", bad) for bad in (-1, 6, 2**31 - 1, -2**31)),
    *(("row_gather", bad) for bad in (-1.0, -1e-30, 6.0, 3e9, 1e20, np.inf, -np.inf, np.nan))])
def test_index_outside_of_its_table(name, bad, rng):
    spec = ExprSpec(1, (instr("neg", 0, arg("input")),), (ViewSpec(VIEW[name], 0, 1), *views("linear")))
    index = np.zeros(10, np.int32) if name == "take" else np.zeros(7, np.float32)
    index[-1] = bad
    refused(spec, launch_of(spec, 10, 7, ((), ())), [floats(rng, 42), index], ExprError, match="outside of input 0")
    refused(spec, launch_of(spec, 10, 7, ((), ())), [floats(rng, 42), index[:-1]], match="Input 1")


def test_matmul_operands_and_words_that_do_not_fit(rng):
    good = launch_of(PURE, 6, 5, mm_k=4, mm_batch=2)
    a, b = floats(rng, 24), floats(rng, 40)
    refused(PURE, good, [a[:-1], b], match="Input 0")
    refused(PURE, good, [a, b[:-1]], match="Input 1")
    for more in ({"mm_batch": 0}, {"mm_batch": 4}, {"mm_k": 2**32 - 1}, {"mm_batch": 6, "mm_k": 2**32 - 1},
                 {"mm_trans": 4}, {"mm_range": (0, 5)}, {"mm_range": (3, 3)}, {"mm_range": (3, 2)}):
        refused(PURE, launch_of(PURE, 6, 5, **{"mm_k": 4, "mm_batch": 2} | more), [a, b])
    refused(PURE, good, [a, b], outputs=[np.zeros(29, np.float32)], match="Output 0")


def test_buffers_that_cannot_be_used(rng):
    spec = ExprSpec(1, (instr("neg", 0, arg("input")),), views("linear"))
    launch, x, y = launch_of(spec, 2, 8), floats(rng, 32), np.zeros(16, np.float32)
    frozen = np.zeros(16, np.float32)
    frozen.flags.writeable = False
    refused(spec, launch, [x[::2]], ExprError, match="C-contiguous memory for input 0")
    refused(spec, launch, [None], ExprError, match="NoneType")
    refused(spec, launch, [x], ExprError, [frozen], match="writable memory for output 0")
    refused(spec, launch, [x], ExprError, [bytes(64)], match="writable")
    refused(spec, launch, [x.view(np.uint8)[1:-3]], ExprError, match="aligned")
    refused(spec, launch, [], match="Expected 1 input buffers, got 0")
    refused(spec, launch, [x], outputs=[y, y], match="Expected 1 output buffers, got 2")
    with pytest.raises(ShapeError, match="Output 0 overlaps input 0"):
        program(spec).run(pack_words(kernel_meta_of(spec), launch), [x[:16]], [x[8:24]])
    with pytest.raises(ShapeError, match="overlaps"):
        program(PURE).run(pack_words(kernel_meta_of(PURE), launch_of(PURE, 4, 4, mm_k=4)), [x, y], [y])
    with pytest.raises(ShapeError, match="Expected 2 parameter words"):
        program(spec).run(b"\0" * 4, [x], [y])
    with pytest.raises(ShapeError, match="not 3 rows of 5"):
        program(spec).run(np.array([16, 5], np.uint32), [x], [y])
    with pytest.raises(ExprError, match="number of threads"):
        program(spec).run(pack_words(kernel_meta_of(spec), launch), [x], [y], -1)


BASE = ExprSpec(2, (instr("neg", 0, arg("input")), instr("add", 1, arg("reg", 0), arg("const"))), views("linear"), (1,))


@pytest.mark.parametrize(("spec", "error"), [
    (BASE._replace(instrs=(instr("neg", 0, arg("vec_state")),)), UnsupportedOpError),
    (BASE._replace(instrs=(instr("neg", 0, arg("input")),), views=(ViewSpec(64, 0, 4),)), UnsupportedOpError),
    (BASE._replace(instrs=(instr("neg", 2, arg("input")),)), ExprError),
    (BASE._replace(instrs=(instr("neg", 0, arg("input", 1)),)), ExprError),
    (BASE._replace(instrs=(instr("neg", 0, arg("const", 1)),)), ExprError),
    (BASE._replace(instrs=(instr("neg", 0, arg("rparam")),)), ExprError),
    (BASE._replace(instrs=(instr("neg", 0, arg("matmul")),)), ExprError),
    (BASE._replace(instrs=(instr("neg", 0, arg("reg", 1)),)), ExprError),
    (BASE._replace(instrs=(instr("neg", 0, arg("reg", 31)),)), ExprError),
    (BASE._replace(instrs=(instr("neg", 0, arg("input")), instr("neg", 1, arg("reduce", 0)))), ExprError),
    (ROW_SUM._replace(num_regs=2, instrs=(*ROW_SUM.instrs, instr("neg", 1, arg("reg", 0)))), ExprError),
    (BASE._replace(instrs=()), ExprError),
    (BASE._replace(instrs=BASE.instrs * 40), ExprError),
    (BASE._replace(num_regs=33), ExprError),
    (BASE._replace(extras=(7,)), ExprError),
    (BASE._replace(views=(ViewSpec(65, 0, 9),)), ExprError),
    (PURE._replace(matmul=Matmul(0, 2)), ExprError)])
def test_specs_that_are_not_valid(spec, error):
    with pytest.raises(error):
        program(spec)


def test_meta_that_does_not_fit_its_spec():
    class Meta:
        form, n_inputs, n_outputs = "elementwise", 1, 1
        view_param_offsets, const_offset, rparam_offset, param_words = (2,), 2, 3, 3
        input_letters, output_letters, reads_halves, half_offset = "w", "f", False, 0

    assert cpu.Program(BASE, Meta) is not None
    for op in (63, 99, 128, 255):
        with pytest.raises(UnsupportedOpError, match=f"op {op}"):
            cpu.Program(BASE._replace(instrs=(Instr(op, 0, arg("input")),)), Meta)
    for name, value in (("const_offset", 3), ("rparam_offset", 4), ("param_words", 2), ("view_param_offsets", ()),
                        ("view_param_offsets", (4,)), ("n_inputs", 2), ("n_outputs", 2), ("param_words", 10**6),
                        ("const_offset", -1), ("form", "fold"), ("form", "matmul"), ("input_letters", "x"),
                        ("input_letters", "ww"), ("output_letters", "w"), ("output_letters", "ff")):
        with pytest.raises(ExprError):
            cpu.Program(BASE, type("Bad", (Meta,), {name: value}))
    with pytest.raises(ExprError, match="reads input 0 through view 5, which no kernel of this form"):
        cpu.Program(BASE._replace(views=views("row_reduce_sum")), Meta)


def test_instruction_sets():
    assert ISAS[0] == "base"
    assert len(set(ISAS)) == len(ISAS)
    with pytest.raises(ExprError, match="Expected one of base"):
        cpu.set_isa("z80")


# ------------------------------------------------------------------------------------------------- processes, threads

def in_process(code):
    return subprocess.run([sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT, capture_output=True, text=True,
                          timeout=60, check=False)


PARALLEL = """
    import os
    import numpy as np
    from nnk._fast import cpu
    from nnk.expr.meta import Launch, kernel_meta_of, pack_words
    from nnk.expr.spec import ExprSpec, Instr, Operand, ViewSpec
    spec = ExprSpec(1, (Instr(6, 0, Operand(1, 0)),), (ViewSpec(0),))
    meta = kernel_meta_of(spec)
    x = np.linspace(-4, 4, 1 << 19, dtype=np.float32)
    program, words = cpu.Program(spec, meta), pack_words(meta, Launch(1, x.size, ((),)))
    def result(threads=3):
        y = np.empty_like(x)
        program.run(words, [x], [y], threads)
        return y.tobytes()
"""


def test_fork_after_use():
    """The child makes workers of its own, also when the fork comes while other threads of the parent run programs."""
    done = in_process(PARALLEL + """
    import threading
    first = result()
    stop = threading.Event()
    def busy():
        while not stop.is_set():
            result()
    thread = threading.Thread(target=busy)
    thread.start()
    for _ in range(10):
        child = os.fork()
        if child == 0:
            same = result() == first and result() == first
            workers = len(os.listdir("/proc/self/task")) - 1
            os._exit(0 if same and workers == 2 else 1)
        assert os.waitpid(child, 0)[1] == 0
    stop.set()
    thread.join()
    assert result() == first
    print("done")
    """)
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr


def test_calls_from_many_threads(rng):
    x = floats(rng, 200_000)
    spec = ExprSpec(1, (instr("gelu", 0, arg("input")),), views("linear"))
    launch = launch_of(spec, 1, x.size)
    wanted = run(spec, launch, [x])[0].copy()
    results = []

    def work():
        results.extend(np.array_equal(run(spec, launch, [x], 3)[0], wanted) for _ in range(5))

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert results == [True] * 20


def test_flush_to_zero_of_the_host_process_changes_nothing(tmp_path):
    """A library built with -ffast-math sets flush-to-zero for the whole process when it is loaded."""
    library = tmp_path / "fast.so"
    source = tmp_path / "fast.c"
    source.write_text("float halve(float x) { return x * 0.5f; }\n")
    subprocess.run(["gcc", "-shared", "-fPIC", "-ffast-math", str(source), "-o", str(library)], check=True, timeout=60)
    done = in_process(f"""
    import ctypes
    import numpy as np
    halve = ctypes.CDLL({str(library)!r}).halve
    halve.argtypes, halve.restype = [ctypes.c_float], ctypes.c_float
    tiny = np.float32(2.0 ** -126)
    from nnk._fast import cpu
    from nnk.expr.meta import Launch, kernel_meta_of, pack_words
    from nnk.expr.spec import ExprSpec, Instr, Operand, ViewSpec
    spec = ExprSpec(1, (Instr(9, 0, Operand(1, 0), Operand(2, 0)),), (ViewSpec(0),), (0x3f000000,))
    meta = kernel_meta_of(spec)
    x, y = np.full(1 << 19, tiny), np.zeros(1 << 19, np.float32)
    for threads in (1, 2):
        cpu.Program(spec, meta).run(pack_words(meta, Launch(1, x.size, ((),), spec.const_bits)), [x], [y], threads)
        print(np.unique(y.view(np.uint32)).tolist(), end=" ")
    print(halve(tiny) == 0.0)
    """)
    assert (done.stdout, done.returncode) == ("[4194304] [4194304] True\n", 0), done.stderr
