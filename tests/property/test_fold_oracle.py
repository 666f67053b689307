"""Folds on the CPU engine's core against the oracle: the same bits, whatever the threads and the instruction set."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnk import ops
from nnk._fast import cpu
from nnk.errors import ExprError, ShapeError, UnsupportedOpError
from nnk.expr.meta import DISPATCH_SIGNATURE, kernel_meta_of, out_count_of, pack_words
from nnk.expr.spec import ExprSpec, Fold, Instr, Operand, VecAcc, ViewSpec
from nnk.expr.spec_rules import validate
from tests import folds, half_storage
from tests.fold_strategies import (
    attention_case,
    fold_cases,
    half_fold_cases,
    launch_of,
    random_fold_case,
    with_halves,
)
from tests.oracle import specrules as rules
from tests.oracle.evaluate import evaluate
from tests.strategies import Case

GUARD = np.float32(12345.0)
COPY = ops.OP_BY_NAME["copy"].code
MASKS = ("plain", "causal", "causal_doc")

pytestmark = pytest.mark.usefixtures("quiet_numpy")


@pytest.fixture(autouse=True)
def _default_isa():
    yield
    cpu.set_isa(cpu.isas()[-1])


def run(case: Case, threads: int = 1) -> Any:
    """Return the bits of the result; a guard behind it must survive."""
    halves = case.launch.halves
    meta = kernel_meta_of(case.spec, DISPATCH_SIGNATURE if any(halves) else 0)
    size = out_count_of(meta, case.launch)
    output = np.full(size + 3, GUARD).view(np.uint16 if half_storage.is_half(halves) else np.uint32)
    untouched = output[size:].copy()
    inputs = half_storage.stored(case.inputs, halves)
    cpu.Program(case.spec, meta).run(pack_words(meta, case.launch), inputs, [output], threads)
    assert (output[size:] == untouched).all()
    return output[:size]


def expected(case: Case) -> Any:
    return half_storage.expected(evaluate(case.spec, case.launch, case.inputs)[0], case.launch.halves)


@given(case=fold_cases(), threads=st.integers(1, 3))
def test_random_folds_give_the_bits_of_the_oracle(case, threads):
    validate(case.spec)
    assert run(case, threads).tolist() == expected(case).tolist()


@given(case=half_fold_cases(), threads=st.integers(1, 3))
def test_folds_of_halves_give_the_bits_of_the_oracle(case, threads):
    assert run(case, threads).tolist() == expected(case).tolist()


@pytest.mark.parametrize("isa", cpu.isas())
@pytest.mark.parametrize("seed", range(24))
def test_every_instruction_set_gives_the_same_bits(isa, seed):
    case = random_fold_case(random.Random(seed))
    if seed % 2:
        case = with_halves(random.Random(seed), case)
    cpu.set_isa(isa)
    assert run(case, 2).tolist() == expected(case).tolist()


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("heads", "length", "head_size"), [(2, 1, 4), (3, 20, 16), (1, 130, 33)])
def test_attention_folds_of_the_format(mask, bias, heads, length, head_size):
    case = attention_case(random.Random(length), head_size, heads, length, mask, bias)
    assert run(case, 2).tolist() == expected(case).tolist()


def naive(case: Case, head_size: int, heads: int, length: int, causal: bool) -> np.ndarray:
    """Attention in float64, from the fold's transposed storage."""
    q, k = (x.astype(np.float64).reshape(heads, head_size, length) for x in case.inputs[:2])
    scores = np.swapaxes(q, 1, 2) @ k
    if causal:
        scores = np.where(np.arange(length)[:, None] < np.arange(length), -np.inf, scores)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights @ case.inputs[2].astype(np.float64).reshape(heads, length, head_size) \
        / weights.sum(-1, keepdims=True)


@pytest.mark.parametrize("mask", ["plain", "causal"])
def test_attention_is_near_the_one_of_float64(mask):
    """The oracle and the engine agree bit for bit; this shows that both are attention."""
    case = attention_case(random.Random(3), 32, 2, 300, mask, False)
    case.inputs[0][:] *= np.float32(32 ** -0.5)
    found = run(case).view(np.float32).reshape(2, 300, 32)
    assert np.abs(found - naive(case, 32, 2, 300, mask == "causal")).max() < 2e-6


# ------------------------------------------------------------------------------------------------- F1 to F7

def element(op: int, *more: Instr, init: int = 0, length: int = 130) -> Case:
    """A fold of one input: state 0 = op over the blocks, written out by state + constant 0."""
    body = (Instr(op, 1, Operand(rules.INPUT, 0)), *more)
    fold = Fold(1, length, (init,), body, (Instr(rules.ADD, 0, Operand(rules.REG, 0), Operand(rules.CONST, 0)),))
    spec = ExprSpec(2, (), (ViewSpec(rules.LINEAR),), (0x80000000,), (), None, fold)
    return Case(spec, launch_of(spec, 1, ((),)), [np.zeros(length, np.float32)])


LAST_MAX = element(rules.ROW_MAX, Instr(COPY, 0, Operand(rules.REDUCE, 1)))


def test_a_maximum_of_a_block_starts_from_the_lowest_finite_float():
    LAST_MAX.inputs[0][:] = -np.inf
    assert run(LAST_MAX).tolist() == expected(LAST_MAX).tolist() == [0xFF7FFFFF]
    LAST_MAX.inputs[0][129] = np.nan
    assert run(LAST_MAX).tolist() == expected(LAST_MAX).tolist() == [0x7FC00000]


def test_a_sum_of_negative_zeros_keeps_the_sign():
    case = element(rules.ROW_SUM, Instr(COPY, 0, Operand(rules.REDUCE, 1)), length=5)
    case.inputs[0][:] = -0.0
    assert run(case).tolist() == expected(case).tolist() == [0x80000000]


def test_a_row_without_items_to_attend_to_is_nan():
    case = attention_case(random.Random(1), 4, 1, 20, "causal_doc", False)
    case.inputs[3][15] = 9.0
    found = run(case).view(np.float32).reshape(20, 4)
    assert run(case).tolist() == expected(case).tolist()
    assert np.flatnonzero(np.isnan(found).any(1)).tolist() == [15]
    assert set(found[15].view(np.uint32).tolist()) == {0x7FC00000}


@pytest.mark.parametrize("length", [1, 127, 128, 129, 300])
def test_tri_skip_changes_no_bit_of_finite_attention(length):
    """F7: with finite values the mask alone gives the same result."""
    case = attention_case(random.Random(length), 16, 2, length, "causal", True)
    fold = case.spec.fold
    assert fold is not None
    assert fold.tri_skip
    full = case._replace(spec=case.spec._replace(fold=fold._replace(tri_skip=0)))
    assert run(case).tolist() == run(full).tolist()


def test_tri_skip_never_sees_what_lies_behind():
    """F7: NaN and infinity behind the diagonal reach no row; without tri_skip they do."""
    case = attention_case(random.Random(5), 8, 1, 140, "causal", False)
    clean = run(case)
    case.inputs[2].reshape(140, 8)[131:] = np.nan
    case.inputs[1].reshape(8, 140)[:, 135:] = np.inf
    rows = 131 * 8
    assert run(case)[:rows].tolist() == clean[:rows].tolist()
    assert run(case).tolist() == expected(case).tolist()
    fold = case.spec.fold
    assert fold is not None
    full = case._replace(spec=case.spec._replace(fold=fold._replace(tri_skip=0)))
    assert set(run(full).tolist()) == {0x7FC00000}


def test_sizes_are_data_of_a_launch():
    """One program runs every length, head size and number of heads."""
    small, large = (attention_case(random.Random(n), *shape, "causal", True)
                    for n, shape in enumerate(((4, 2, 5), (20, 3, 40))))
    meta = kernel_meta_of(small.spec)
    program = cpu.Program(small.spec, meta)
    for case in (small, large):
        output = np.zeros(out_count_of(meta, case.launch), np.float32)
        program.run(pack_words(meta, case.launch), case.inputs, [output], 2)
        assert output.view(np.uint32).tolist() == expected(case).tolist()


def test_row_max_of_the_format():
    spec = folds.row_max(200)
    x = np.random.default_rng(0).standard_normal((70, 200)).astype(np.float32)
    case = Case(spec, launch_of(spec, 70, ((),)), [x.reshape(-1)])
    assert run(case).view(np.float32).tolist() == x.max(1).tolist()
    empty = case._replace(launch=dataclasses.replace(case.launch, rows=0))
    assert run(empty).size == 0


# ------------------------------------------------------------------------------------------------- what is refused

OP = {name: op.code for name, op in ops.OP_BY_NAME.items()}
VIEW = {name: view.code for name, view in ops.VIEW_BY_NAME.items()}
KIND = {name: kind.code for name, kind in ops.OPERAND_BY_NAME.items()}


def arg(kind, idx=0):
    return Operand(KIND[kind], idx)


def instr(op, dst, *operands):
    return Instr(OP[op], dst, *operands)


def program(spec):
    return cpu.Program(spec, kernel_meta_of(spec))


ATTENTION = folds.attention(4, 2, 6, "causal_doc", True)
FOLD_WORDS = [12 * 4, 6, 12, 4, 6, 4, 2, 0, 0, 2, 6, 0, 0xFF800000]
FOLD_SIZES = [48, 48, 48, 2, 12, 12]


def run_fold(words=FOLD_WORDS, sizes=FOLD_SIZES, spec=ATTENTION, out=48):
    inputs = [np.ones(size, np.float32) for size in sizes]
    program(spec).run(np.array(words, np.uint32), inputs, [np.zeros(out, np.float32)], 1)


def test_fold_words_and_sizes_that_fit():
    run_fold()
    inputs = [np.ones(size, np.float32) for size in FOLD_SIZES]
    with pytest.raises(ShapeError, match="overlaps input 1"):
        program(ATTENTION).run(np.array(FOLD_WORDS, np.uint32), inputs, [inputs[1]], 1)


@pytest.mark.parametrize(("at", "value"), [
    (0, 49), (1, 7), (2, 13), (3, 0), (3, 5), (4, 7), (5, 1025), (5, 5), (6, 0), (6, 5), (9, 0), (10, 7)])
def test_fold_words_that_do_not_fit(at, value):
    words = list(FOLD_WORDS)
    words[at] = value
    with pytest.raises(ShapeError):
        run_fold(words)


@pytest.mark.parametrize("slot", range(6))
def test_fold_inputs_that_are_too_short(slot):
    with pytest.raises(ShapeError, match=f"Input {slot}"):
        run_fold(sizes=[size - (index == slot) for index, size in enumerate(FOLD_SIZES)])


def test_fold_output_that_is_too_short():
    with pytest.raises(ShapeError, match="Output 0"):
        run_fold(out=47)


def test_head_groups_of_a_fold():
    """One block of keys serves two batches; a ratio of 0 and other views are refused."""
    grouped = ATTENTION._replace(views=(*ATTENTION.views[:1], ViewSpec(15, 0, 2), *ATTENTION.views[2:]))
    words = [*FOLD_WORDS[:9], 2, *FOLD_WORDS[9:]]
    run_fold(words, [48, 24, *FOLD_SIZES[2:]], grouped)
    with pytest.raises(ShapeError, match="head-group ratio above 0"):
        run_fold([*words[:9], 0, *words[10:]], FOLD_SIZES, grouped)
    with pytest.raises(UnsupportedOpError, match="linear, head_group or strided view for input 2"):
        run_fold(spec=ATTENTION._replace(views=(*ATTENTION.views[:2], ViewSpec(VIEW["col_broadcast"]),
                                                *ATTENTION.views[3:])))


@pytest.mark.parametrize("halves", [(0, 0), (1, 0), (0, 1)])
@pytest.mark.parametrize("column", [0, 1, 2, -1])
def test_strided_inputs_of_the_body(column, halves):
    """Every row and item counts: the sums of 3 rows, block by block."""
    case = element(rules.ROW_SUM, Instr(rules.ADD, 0, Operand(rules.REG, 0), Operand(rules.REDUCE, 1)))
    words = (260, 1, 3, 0, 0, 7, column)
    values = np.random.default_rng(2).standard_normal(540).astype(np.float32)
    case = case._replace(spec=case.spec._replace(views=(ViewSpec(rules.STRIDED, 0, 3),)),
                         launch=dataclasses.replace(case.launch, rows=3, view_params=(words,), halves=halves),
                         inputs=[half_storage.widen(half_storage.narrow(values, 1 + halves[1]), 1 + halves[1])])
    assert run(case).tolist() == expected(case).tolist()
    assert len(set(run(case).tolist())) > 1


@pytest.mark.parametrize("slot", [0, 1, 2, 4])
def test_strided_views_of_a_fold(slot):
    """The rows of a batch are the innermost dimension: 6 rows, 4 values of k, 6 items, 6 rows."""
    rows, columns = ((6, 4), (4, 6), (6, 4), (), (6, 6))[slot]
    spec = ATTENTION._replace(views=tuple(ViewSpec(VIEW["strided"], 0, 3) if index == slot else view
                                          for index, view in enumerate(ATTENTION.views)))
    spec = spec._replace(fold=spec.fold._replace(matmul=spec.fold.matmul._replace(trans_a=0, trans_b=0)))
    at = 9 if slot < 3 else 10

    def words(inner):
        return [*FOLD_WORDS[:at], 0, 2, inner, 0, rows * columns, columns, 1, *FOLD_WORDS[at:]]

    sizes = [2 * rows * columns if index == slot else size for index, size in enumerate(FOLD_SIZES)]
    run_fold(words(rows), sizes, spec)
    with pytest.raises(ShapeError, match=f"Input {slot}: expected the {rows} rows of a batch as the innermost"):
        run_fold(words(1), sizes, spec)
    with pytest.raises(ShapeError, match=f"Input {slot}"):
        run_fold(words(rows), [size - (index == slot) for index, size in enumerate(sizes)], spec)


@pytest.mark.parametrize(("change", "text"), [
    ({"vecacc": VecAcc(0, 20, 2, 9, 1)}, "weight register 20 of the fold is never written"),
    ({"vecacc": VecAcc(0, 2, 2, 2, 1)}, "scale register 2 of the fold holds no value of a row"),
    ({"vecacc": VecAcc(0, 2, 9, 0, 1)}, "names an input that does not exist"),
    ({"body": (instr("add", 0, arg("matmul"), arg("const")),)}, "State 0 of the fold is overwritten"),
    ({"body": (instr("neg", 2, arg("reg", 3)),)}, "reads register 3, which does not exist"),
    ({"body": (instr("neg", 2, arg("vec_state")),)}, "reads the vector state"),
    ({"body": (instr("col_sum", 2, arg("matmul")),)}, "does not run op 20 in a fold"),
    ({"finalize": (instr("neg", 2, arg("matmul")),)}, "reads operand kind 5, which is not there"),
    ({"finalize": (instr("neg", 2, arg("input", 4)),)}, "reads input 4, whose view 7 it cannot read"),
    ({"matmul": None, "tri_skip": 0}, "reads operand kind 5")])
def test_folds_that_the_engine_refuses(change, text):
    with pytest.raises((ExprError, UnsupportedOpError), match=text):
        program(ATTENTION._replace(fold=ATTENTION.fold._replace(**change)))
