"""Kernel meta data: bindings, parameter words, workgroups, and the loops of a thread."""

import dataclasses
import itertools
import struct

import numpy as np
import pytest

import nnk
from nnk import ops
from nnk.errors import LimitError, UnsupportedOpError
from nnk.expr import meta as rules
from nnk.expr.meta import (
    CHUNKS_OUT,
    DISPATCH_SIGNATURE,
    VECTOR_OUT,
    KernelMeta,
    Launch,
    group_count_of,
    k_ranges_of,
    kernel_meta_of,
    loop_count_of,
    out_count_of,
    pack_words,
)
from nnk.expr.spec import ExprSpec, Instr, Matmul, Operand, ViewSpec
from tests import folds

OP = {op.name: op.code for op in ops.OPS}
VIEW = {view.name: view.code for view in ops.VIEWS}
KIND = {kind.name: kind.code for kind in ops.OPERANDS}
IN0 = Operand(KIND["input"], 0)


def spec_of(*instrs, views=("linear",), **more):
    views = tuple(view if isinstance(view, ViewSpec) else ViewSpec(VIEW[view]) for view in views)
    program = tuple(Instr(OP[op], dst, *operands) for dst, (op, *operands) in enumerate(instrs))
    return ExprSpec(len(instrs), program, views, **more)


ELEMENTWISE = spec_of(("neg", IN0))
REDUCE = spec_of(("row_sum", IN0))
COLUMNS = spec_of(("col_sum", IN0))
PRODUCT_SUM = spec_of(("row_sum", Operand(KIND["matmul"], 0)), views=("linear", "linear"), matmul=Matmul(0, 1))
MATMUL = spec_of(views=("linear", "linear"), matmul=Matmul(0, 1))


@pytest.mark.parametrize(("spec", "form", "axis", "head", "threads"), [
    (ELEMENTWISE, "elementwise", -1, 2, 256), (REDUCE, "reduce", 0, 4, 256), (COLUMNS, "reduce", 1, 4, 256),
    (PRODUCT_SUM, "reduce", 0, 7, 256), (MATMUL, "matmul", -1, 8, 64)])
def test_forms(spec, form, axis, head, threads):
    meta = kernel_meta_of(spec)
    assert (meta.form, meta.reduce_axis, meta.pc_base_fixed, meta.local_size) == (form, axis, head, (threads, 1, 1))
    assert meta.has_matmul == (head > 4)


def test_words_come_in_the_documented_order():
    spec = spec_of(("mul", IN0, Operand(KIND["const"], 0)), ("add", Operand(0, 0), Operand(KIND["input"], 1)),
                   ("add", Operand(0, 1), Operand(KIND["rparam"], 0)),
                   ("add", Operand(0, 2), Operand(KIND["input"], 2)),
                   views=("row_mod", ViewSpec(VIEW["strided"], 0, 3), "row_access"), const_bits=(0x40000000,),
                   rparam_bits=(0x3F000000,))
    meta = kernel_meta_of(spec)
    assert meta.view_param_offsets == (2, 3, 10)
    assert (meta.view_param_count, meta.const_offset, meta.rparam_offset, meta.param_words) == (10, 12, 13, 14)
    launch = Launch(5, 7, ((3,), (1, 2, 3, 4, 5, 6, 0xFFFFFFFF), (8, 9)), (0x40000000,), (0x3F000000,))
    words = struct.unpack("<14I", pack_words(meta, launch))
    assert words == (35, 7, 3, 1, 2, 3, 4, 5, 6, 0xFFFFFFFF, 8, 9, 0x40000000, 0x3F000000)


def test_heads_of_forms():
    launch = Launch(6, 4, ((),), vector_out=True)
    assert struct.unpack("<4I", pack_words(kernel_meta_of(REDUCE), launch)) == (24, 4, 6, 1)
    launch = Launch(6, 4, ((), ()), mm_k=9, mm_batch=2, mm_trans=3)
    assert struct.unpack("<8I", pack_words(kernel_meta_of(MATMUL), launch)) == (24, 4, 6, 9, 2, 3, 0, 9)
    launch = dataclasses.replace(launch, mm_range=(4, 7))
    assert struct.unpack("<8I", pack_words(kernel_meta_of(MATMUL), launch))[6:] == (4, 7)
    assert struct.unpack("<7I", pack_words(kernel_meta_of(PRODUCT_SUM), launch)) == (24, 4, 6, 0, 9, 2, 3)


@pytest.mark.parametrize(("spec", "vector_out", "count", "groups"), [
    (REDUCE, 0, 40000 * 20, 625), (REDUCE, VECTOR_OUT, 40000, 625), (REDUCE, CHUNKS_OUT, 40000, 625),
    (COLUMNS, 0, 40000 * 20, 3), (COLUMNS, VECTOR_OUT, 20, 3), (COLUMNS, CHUNKS_OUT, 60, 8)])
def test_results_of_a_line(spec, vector_out, count, groups):
    launch = Launch(40000, 20, ((),), vector_out=vector_out)
    assert out_count_of(kernel_meta_of(spec), launch) == count
    assert group_count_of(kernel_meta_of(spec), launch) == groups


def test_parameters_move_to_a_buffer_beyond_128_bytes():
    wide = ViewSpec(VIEW["strided"], 0, 7)
    for count, in_buffer in ((2, False), (3, True)):
        terms = [("neg", IN0)] + [("add", Operand(0, n - 1), Operand(KIND["input"], n)) for n in range(1, count)]
        meta = kernel_meta_of(spec_of(*terms, views=[wide] * count))
        assert (meta.param_words, meta.params_in_buffer) == (2 + 15 * count, in_buffer)
        assert meta.binding_count == count + 1 + in_buffer


def test_exactly_32_words_are_push_constants():
    meta = dataclasses.replace(kernel_meta_of(ELEMENTWISE), const_count=30)
    assert (meta.param_words, meta.params_in_buffer) == (32, False)
    assert dataclasses.replace(meta, const_count=31).params_in_buffer


@pytest.mark.parametrize(("views", "operand", "width"), [
    (("linear",), IN0, 4), (("row_broadcast",), IN0, 4), (("col_broadcast",), IN0, 4), (("row_mod",), IN0, 1),
    ((ViewSpec(VIEW["strided"], 0, 3),), IN0, 1), ((), Operand(KIND["row"], 0), 1), ((), Operand(KIND["col"], 0), 1),
    ((), Operand(KIND["const"], 0), 4)])
def test_vector_width(views, operand, width):
    assert kernel_meta_of(spec_of(("neg", operand), views=views, const_bits=(0,))).vec_width == width


def test_vector_width_ignores_unused_operands():
    spec = ExprSpec(1, (Instr(OP["neg"], 0, IN0, Operand(KIND["row"], 0)),), (ViewSpec(VIEW["linear"]),))
    assert kernel_meta_of(spec).vec_width == 4


@pytest.mark.parametrize("spec", [
    spec_of(("row_sum", IN0), ("col_sum", IN0)),
    spec_of(("row_sum", IN0), ("neg", Operand(KIND["input"], 1)), views=("linear", "col_reduce_max"))])
def test_one_kernel_has_one_reduce_axis(spec):
    with pytest.raises(UnsupportedOpError, match="row reductions or column reductions in one kernel, got both; cut"):
        kernel_meta_of(spec)


def test_precisions_are_refused():
    with pytest.raises(UnsupportedOpError, match="Expected precision signature 0 or 0x20000, got 0x1"):
        kernel_meta_of(ELEMENTWISE, 1)


def test_heads_of_folds():
    """The output has its own number of columns; the grid of the fold is rows times its length."""
    meta = kernel_meta_of(folds.row_max(300))
    assert (meta.form, meta.has_matmul, meta.pc_base_fixed, meta.fold_out) == ("fold", False, 5, 0)
    launch = Launch(6, 300, ((),), (0,), out_cols=1)
    assert (out_count_of(meta, launch), group_count_of(meta, launch)) == (6, 1)
    assert struct.unpack("<6I", pack_words(meta, launch)) == (6, 300, 6, 1, 300, 0)
    meta = kernel_meta_of(folds.attention(16, 3, 40))
    assert (meta.form, meta.has_matmul, meta.pc_base_fixed, meta.fold_out) == ("fold_matmul", True, 9, 1)
    launch = Launch(120, 40, ((), (), ()), (0, 0xFF800000), mm_k=16, mm_batch=3, out_cols=16)
    assert (out_count_of(meta, launch), group_count_of(meta, launch)) == (1920, 9)
    assert group_count_of(meta, dataclasses.replace(launch, out_cols=257)) == 18
    assert struct.unpack("<11I", pack_words(meta, launch)) == (1920, 40, 120, 16, 40, 16, 3, 0, 0, 0, 0xFF800000)
    part = dataclasses.replace(launch, first_row=5, first_batch=2)
    assert struct.unpack("<11I", pack_words(meta, part))[7:9] == (5, 2)


@pytest.mark.parametrize(("views", "instrs", "axis"), [
    (("linear",), [("neg", IN0)], -1), (("linear",), [("row_max", IN0)], 0), (("linear",), [("col_max", IN0)], 1),
    (("row_reduce_sum",), [("neg", IN0)], 0), (("col_reduce_max",), [("neg", IN0)], 1),
    (("col_reduce_max",), [("row_sum", IN0)], -2)])
def test_reduce_axis(views, instrs, axis):
    assert rules.reduce_axis_of(spec_of(*instrs, views=views)) == axis


def test_index_slots():
    take = ViewSpec(VIEW["take"], 0, 1)
    assert rules.index_slots_of(spec_of(("neg", IN0), views=(take, "row_broadcast"))) == {1}
    assert rules.index_slots_of(ELEMENTWISE) == set()


def test_too_many_elements_for_32_bits():
    with pytest.raises(LimitError, match="at most 4294967295 elements in one kernel, got 65536 x 65536") as caught:
        pack_words(kernel_meta_of(ELEMENTWISE), Launch(65536, 65536, ((),)))
    assert (caught.value.requested, caught.value.maximum) == (2**32, 2**32 - 1)
    assert pack_words(kernel_meta_of(ELEMENTWISE), Launch(1, 2**32 - 1, ((),)))[:4] == b"\xff" * 4


# ------------------------------------------------------------------------------------------------- work

@pytest.mark.parametrize(("rows", "cols", "groups"), [(1, 1, 1), (1, 1024, 1), (1, 1025, 2), (100, 100, 10)])
def test_groups_of_elementwise(rows, cols, groups):
    assert group_count_of(kernel_meta_of(ELEMENTWISE), Launch(rows, cols, ((),))) == groups


@pytest.mark.parametrize(("rows", "cols", "groups"), [
    (1, 1, 1), (256, 8, 1), (257, 8, 2), (128, 9, 1), (129, 16, 2), (8, 129, 1), (8, 256, 1), (9, 256, 2),
    (80, 100000, 10)])
def test_groups_of_reduce(rows, cols, groups):
    """A line has a thread for eight lanes, up to 32 of them."""
    assert group_count_of(kernel_meta_of(REDUCE), Launch(rows, cols, ((),))) == groups
    assert group_count_of(kernel_meta_of(COLUMNS), Launch(cols, rows, ((),))) == groups


@pytest.mark.parametrize(("rows", "cols", "batch", "groups"), [
    (1, 1, 1, 1), (64, 64, 1, 1), (65, 64, 1, 2), (64, 65, 1, 2), (130, 130, 1, 9), (128, 64, 2, 2), (130, 64, 2, 4)])
def test_groups_of_matmul(rows, cols, batch, groups):
    launch = Launch(rows, cols, ((), ()), mm_k=3, mm_batch=batch)
    assert group_count_of(kernel_meta_of(MATMUL), launch) == groups


def test_loops_grow_with_the_work():
    """tests/gpu/test_parity.py compares the bound with what llvmpipe does."""
    reduce, matmul = kernel_meta_of(REDUCE), kernel_meta_of(MATMUL)
    lengths = [loop_count_of(reduce, Launch(1, n, ((),)), 1) for n in (1, 256, 16384, 16385, 100000)]
    assert lengths == sorted(set(lengths))
    # The elements of a thread are visited at least: 8 lanes of 256 add a row, one of 32 threads stores it.
    assert lengths[-1] > 8 * (100000 // 256) + 100000 // 32
    assert loop_count_of(reduce, Launch(1, 100000, ((),), vector_out=True), 1) < lengths[-1]
    two = dataclasses.replace(reduce, reduce_count=2)
    assert loop_count_of(two, Launch(1, 100000, ((),)), 1) > lengths[-1] + 8 * (100000 // 256)
    depths = [loop_count_of(matmul, Launch(4, 4, ((), ()), mm_k=k), 1) for k in (1, 16, 17, 5000)]
    assert depths[0] == depths[1] < depths[2] < depths[3]
    assert depths[3] > 313 * 17


def test_loops_of_columns_products_and_groups():
    def loops(spec, rows, cols, words=((),), **more):
        return loop_count_of(kernel_meta_of(spec), Launch(rows, cols, words, **more), 10**6)

    assert loops(COLUMNS, 5000, 1) == loops(REDUCE, 1, 5000)
    assert loops(COLUMNS, 100000, 8, vector_out=CHUNKS_OUT) < loops(COLUMNS, 100000, 8, vector_out=VECTOR_OUT)
    one = loops(PRODUCT_SUM, 1, 3000, ((), ()), mm_k=1)
    assert loops(PRODUCT_SUM, 1, 3000, ((), ()), mm_k=101) - one >= 100 * (8 * (3000 // 256) + 3000 // 32)
    grouped = spec_of(("neg", IN0), views=("grouped_reduce_sum",))
    assert loops(grouped, 3, 5, ((1000,),)) - loops(grouped, 3, 5, ((10,),)) == 990
    assert loops(grouped, 3, 5, ((16384,),)) > 16384 + 2 * 256


def test_loops_of_folds_grow_with_length_and_depth():
    meta = kernel_meta_of(folds.attention(16, 1, 40))
    assert meta.reduce_count == 2
    launch = Launch(40, 40, ((), (), ()), mm_k=16, out_cols=16)
    loops = [loop_count_of(meta, dataclasses.replace(launch, cols=cols, mm_k=k), 3)
             for cols, k in ((1, 16), (128, 16), (129, 16), (1280, 16), (1280, 17))]
    assert loops[0] == loops[1] < loops[2] < loops[3] < loops[4]
    # A block visits at least 128 weighted vectors and 16 steps of k.
    assert loops[3] > 10 * (128 + 16)
    plain = kernel_meta_of(folds.row_max(40))
    assert loop_count_of(plain, Launch(40, 1280, ((),), out_cols=1), 3) < loops[3] - 10 * 128


def test_calls_add_loops_where_four_components_are_one_operation():
    """Products of matmuls and folds, weighted vectors of folds; nothing else."""
    def more(spec, launch):
        meta = kernel_meta_of(spec)
        return loop_count_of(meta, launch, 10**6, True) - loop_count_of(meta, launch, 10**6)

    assert more(ELEMENTWISE, Launch(3, 5, ((),))) == more(REDUCE, Launch(3, 5, ((),))) == 0
    # 16 quads of 4 sums for each k, and the quads at the beginning.
    assert more(MATMUL, Launch(4, 4, ((), ()), mm_k=32)) == 2 * 17 + 32 * (16 * (1 + 5) + 1)
    attention = Launch(40, 256, ((), (), ()), mm_k=16, out_cols=16)
    # In each of two blocks four products and sums for each k, four scales, eight for each weighted vector.
    assert more(folds.attention(16, 1, 40), attention) == 2 * (16 * 4 * 5 + 4 * 5 + 128 * 8 * 5)
    meta, launch = kernel_meta_of(MATMUL), Launch(70, 70, ((), ()), mm_k=5001)
    parts = k_ranges_of(meta, launch, 4, 65535, True)
    assert len(parts) > len(k_ranges_of(meta, launch, 4, 65535)) == 1
    for part in parts:
        assert loop_count_of(meta, dataclasses.replace(launch, mm_range=part), 4, True) <= 65535


def test_parts_of_k():
    """They follow each other, start at steps of the tile, and each stays within the loops."""
    meta, launch = kernel_meta_of(MATMUL), Launch(70, 70, ((), ()), mm_k=5001)
    whole = loop_count_of(meta, launch, 4)
    parts = k_ranges_of(meta, launch, 4, whole // 3)
    assert (parts[0][0], parts[-1][1]) == (0, 5001)
    assert all(left[1] == right[0] and right[0] % 16 == 0 for left, right in itertools.pairwise(parts))
    for part in parts:
        assert loop_count_of(meta, dataclasses.replace(launch, mm_range=part), 4) <= whole // 3
    assert len(parts) == 4
    assert k_ranges_of(meta, launch, 4, whole) == [(0, 5001)]
    assert k_ranges_of(meta, launch, 4, 100) == []
    # A launch that adds a part of k itself.
    part = k_ranges_of(meta, dataclasses.replace(launch, mm_range=(64, 4000)), 4, whole // 3)
    assert (part[0][0], part[-1][1], part[0][1]) == (64, 4000, parts[0][1] + 64)


def test_loops_count_the_rounds_of_a_capped_grid():
    launch = Launch(8 * 100, 250, ((),))
    meta = kernel_meta_of(REDUCE)
    assert group_count_of(meta, launch) == 100
    one = loop_count_of(meta, launch, 100) - 7
    assert loop_count_of(meta, launch, 50) - 7 == 2 * one
    assert loop_count_of(meta, launch, 33) - 7 == 4 * one
    assert loop_count_of(kernel_meta_of(ELEMENTWISE), Launch(1, 1024 * 9, ((),)), 3) == 1 + 3 * 6


def test_meta_of_a_real_graph(cpu):
    x = cpu.array(np.ones((3, 4), np.float32))
    meta = cpu.schedule([nnk.layer_norm(x)])[0].steps[0].meta
    assert isinstance(meta, KernelMeta)
    assert (meta.form, meta.n_inputs, meta.n_outputs, meta.const_count, meta.rparam_count) == ("reduce", 1, 1, 0, 3)
    assert meta.reduce_count == 2


def test_folds_of_other_dtypes():
    plain = kernel_meta_of(folds.row_max(8))
    halves = kernel_meta_of(folds.row_max(8), DISPATCH_SIGNATURE, "uf")
    assert (plain.form, plain.const_offset, plain.input_letters) == ("fold", 5, "w")
    assert (halves.form, halves.half_offset, halves.const_offset, halves.input_letters) == ("fold", 5, 7, "u")
