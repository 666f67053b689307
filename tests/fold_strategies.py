"""Folds that the engines run: random bodies over every view and operand, and the attention folds of the format."""

from __future__ import annotations

import dataclasses
import random
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

from nnk import ops
from nnk.expr.meta import Launch
from nnk.expr.spec import ExprSpec, Fold, Instr, Matmul, Operand, VecAcc, ViewSpec
from tests import folds, half_storage
from tests.oracle import specrules as rules
from tests.strategies import (
    OPS,
    ROW_REDUCES,
    Case,
    Random,
    random_bits,
    random_floats,
    strided_words,
)

#: Lengths around the borders of a block, and short ones.
LENGTHS = (1, 2, 3, 17, 127, 128, 129, 255, 257, 300)

VIEWS = (rules.LINEAR, rules.LINEAR, rules.ROW_MOD, rules.ROW_BROADCAST, rules.STRIDED, rules.STRIDED)
MATMUL_VIEWS = (*VIEWS, rules.BATCH_MOD, rules.BATCH_COL)


class _Inputs:
    """Input slots under construction."""

    def __init__(self, rand: Random, rows: int, length: int, batch: int) -> None:
        self.rand, self.rows, self.length, self.batch = rand, rows, length, batch
        self.views: list[ViewSpec] = []
        self.words: list[tuple[int, ...]] = []
        self.arrays: list[np.ndarray] = []

    def add(self, kind: int, words: tuple[int, ...], count: int, param: int | None = None) -> int:
        self.views.append(ViewSpec(kind, 0, (words[0] if words else 0) if param is None else param))
        self.words.append(words)
        self.arrays.append(random_floats(self.rand, count))
        return len(self.views) - 1

    def add_strided(self, rows: int, columns: int) -> int:
        """A strided view of so many rows a batch."""
        rank = self.rand.choice(ops.STRIDED_RANKS)
        rows, columns = max(rows, 1), max(columns, 1)
        words, count = strided_words(self.rand, self.batch * rows, columns, rank, rows)
        return self.add(rules.STRIDED, words, count, rank)

    def add_view(self, kind: int) -> int:
        count = self.rand.randrange(1, 6)
        if kind == rules.STRIDED:
            return self.add_strided(self.rows // self.batch, self.length)
        if kind == rules.ROW_MOD:
            return self.add(kind, (count,), count * self.length)
        if kind == rules.BATCH_MOD:
            return self.add(kind, (count,), count)
        if kind == rules.BATCH_COL:
            return self.add(kind, (self.length + count,), self.batch * (self.length + count))
        return self.add(kind, (), self.rows if kind == rules.ROW_BROADCAST else self.rows * self.length)

    def add_blocks(self, rows: int, columns: int) -> int:
        """An operand of one block a batch, or a head group's, or read by strides."""
        choice, size = self.rand.randrange(4), rows * columns
        if choice == 0:
            return self.add_strided(rows, columns)
        if choice < 3:
            return self.add(rules.LINEAR, (), self.batch * size)
        ratio = self.rand.randrange(1, 5)
        return self.add(rules.HEAD_GROUP, (ratio,), -(-self.batch // ratio) * size)


class _Body:
    """Instructions that keep the rules: a register may change its role, a state never becomes an element."""

    def __init__(self, rand: Random, num_state: int, num_regs: int, leaves: list[Operand]) -> None:
        self.rand, self.num_state, self.num_regs, self.leaves = rand, num_state, num_regs, leaves
        self.rows = [Operand(rules.REG, state) for state in range(num_state)]
        self.elements: list[Operand] = []
        self.reduced: set[int] = set()
        self.written_elements: set[int] = set()
        self.instrs: list[Instr] = []

    def is_element(self, operand: Operand) -> bool:
        return operand.kind in (rules.INPUT, rules.MATMUL, rules.COL) or operand in self.elements

    def step(self) -> None:
        rand = self.rand
        pool = self.leaves + 2 * self.rows[-4:] + 3 * self.elements[-4:]
        if rand.randrange(4) == 0:
            op, dst = rand.choice(ROW_REDUCES), rand.randrange(self.num_state, self.num_regs)
            operand = rand.choice(pool)
            # A register of a reduction is read as one from now on; one that held elements stays what it was.
            if dst in self.written_elements or (
                    operand.idx == dst and operand.kind in (rules.REG, rules.REDUCE)):
                return
            self.forget(dst)
            self.instrs.append(Instr(op, dst, operand))
            self.reduced.add(dst)
            self.rows.append(Operand(rules.REDUCE, dst))
            return
        op_row = rand.choice(OPS)
        operands = [rand.choice(pool) for _ in range(op_row.arity)]
        is_element = any(map(self.is_element, operands))
        low = self.num_state if is_element or rand.randrange(2) else 0
        dst = rand.randrange(low, self.num_regs) if low < self.num_regs else 0
        if dst in self.reduced or (is_element and dst < self.num_state):
            return
        if not is_element and dst in self.written_elements:
            return
        self.forget(dst)
        self.instrs.append(Instr(op_row.code, dst, *operands))
        result = Operand(rand.choice((rules.REG, rules.FANOUT)) if dst >= self.num_state else rules.REG, dst)
        if is_element:
            self.written_elements.add(dst)
        (self.elements if is_element else self.rows).append(result)

    def forget(self, register: int) -> None:
        for known in (self.rows, self.elements):
            known[:] = [operand for operand in known if operand.idx != register
                        or operand.kind not in (rules.REG, rules.FANOUT, rules.REDUCE) or register < self.num_state]

    def build(self, count: int) -> tuple[Instr, ...]:
        for _ in range(4 * count):
            if len(self.instrs) < count:
                self.step()
        if not self.instrs:
            self.instrs.append(Instr(rules.ADD, 0, self.rows[0], self.rows[0]))
        return tuple(self.instrs)


def _finalize(rand: Random, num_state: int, num_regs: int, leaves: list[Operand], vector: bool) -> tuple[Instr, ...]:
    sources = [Operand(rules.REG, state) for state in range(num_state)]
    sources += [leaf for leaf in leaves if leaf.kind not in (rules.INPUT, rules.MATMUL)]
    targets = list(range(num_regs))
    if vector:
        sources += [Operand(rules.VEC_STATE, 0)] * 3
        targets = list(range(num_state, num_regs))
    instrs = []
    for _ in range(rand.randrange(1, 5)):
        op = rand.choice(OPS)
        instrs.append(Instr(op.code, rand.choice(targets), *(rand.choice(sources) for _ in range(op.arity))))
    return tuple(instrs)


class _Sizes(NamedTuple):
    """Sizes of a launch: rows of all batches, length, batches, k of the matmul, output columns."""

    rows: int
    length: int
    batch: int
    depth: int
    columns: int


def _sizes(rand: Random, has_matmul: bool, has_vector: bool) -> _Sizes:
    length = rand.choice(LENGTHS)
    batch = rand.choice((1, 1, 2, 3, 6)) if has_matmul else 1
    rows = batch * rand.choice((1, 2, 3, 5, 15, 16, 17, 33, *((70,) if length < 130 else ())))
    depth = rand.choice((0, 1, 2, 7, 8, 16, 17, 33)) if has_matmul else 0
    return _Sizes(rows, length, batch, depth, rand.choice((1, 2, 8, 16, 33, 64, 65, 130)) if has_vector else 1)


def random_fold_case(rand: Random) -> Case:
    """A fold of any kind with its launch and inputs."""
    has_matmul, has_vector = rand.randrange(3) > 0, rand.randrange(2) == 1
    rows, length, batch, depth, columns = _sizes(rand, has_matmul, has_vector)
    slots = _Inputs(rand, rows, length, batch)
    matmul = None
    if has_matmul:
        query, key = slots.add_blocks(rows // batch, depth), slots.add_blocks(depth, length)
        flags = [int(slots.views[slot].kind != rules.STRIDED and rand.randrange(2) == 1) for slot in (query, key)]
        matmul = Matmul(query, key, *flags, depth, batch)
    vectors = slots.add_blocks(length, columns) if has_vector else 0
    readable = [slots.add_view(rand.choice(MATMUL_VIEWS if has_matmul else VIEWS)) for _ in range(rand.randrange(4))]
    consts = tuple(random_bits(rand) for _ in range(rand.randrange(4)))
    rparams = tuple(random_bits(rand) for _ in range(rand.randrange(3)))
    leaves = [Operand(rules.INPUT, slot) for slot in readable] * 2
    leaves += [Operand(rules.CONST, slot) for slot in range(len(consts))]
    leaves += [Operand(rules.RPARAM, slot) for slot in range(len(rparams))]
    if has_matmul:
        leaves += [Operand(rules.MATMUL, 0)] * 2
        if rand.randrange(2):
            leaves += [Operand(kind, 0) for kind in (rules.ROW, rules.COL, rules.BATCH)]
    num_state = rand.randrange(1, 5)
    num_regs = num_state + rand.randrange(2, 9)
    body = _Body(rand, num_state, num_regs, leaves)
    instrs = body.build(rand.randrange(1, 12))
    vecacc = None
    if has_vector:
        weight = rand.choice((body.elements or body.rows)[-2:])
        rows_now = [operand for operand in body.rows if operand.idx not in body.written_elements]
        vecacc = VecAcc(0, weight.idx, vectors, rand.choice(rows_now).idx, rand.randrange(2))
    fold = Fold(num_state, length, tuple(random_bits(rand) for _ in range(num_state)), instrs,
                _finalize(rand, num_state, num_regs, leaves, has_vector), columns if has_vector else 0, matmul, vecacc,
                int(has_matmul and rand.randrange(2) == 0))
    spec = ExprSpec(num_regs, (), tuple(slots.views), consts, rparams, None, fold)
    return Case(spec, launch_of(spec, rows, tuple(slots.words)), slots.arrays)


def launch_of(spec: ExprSpec, rows: int, words: tuple[tuple[int, ...], ...]) -> Launch:
    """The launch of a fold with the spec's own constants and sizes."""
    fold = spec.fold
    assert fold is not None
    return Launch(rows, fold.k, words, spec.const_bits, spec.rparam_bits, mm_k=fold.matmul.k if fold.matmul else 0,
                  mm_batch=fold.matmul.batch if fold.matmul else 1, out_cols=max(fold.vec_state_len, 1))


def attention_case(rand: Random, head_size: int, heads: int, length: int, mask: str, bias: bool) -> Case:
    """An attention fold of the format over ordinary values."""
    spec = folds.attention(head_size, heads, length, mask, bias)
    rng = np.random.default_rng(rand.getrandbits(32))

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32).reshape(-1)

    inputs = [normal(heads * head_size * length) for _ in range(3)]
    words: list[tuple[int, ...]] = [(), (), ()]
    if bias:
        inputs.append(normal(heads))
        words.append((heads,))
    if mask == "causal_doc":
        documents = np.sort(rng.integers(0, 3, (heads, length))).astype(np.float32).reshape(-1)
        inputs += [documents, documents.copy()]
        words += [(), (length,)]
    return Case(spec, launch_of(spec, heads * length, tuple(words)), inputs)


def fold_cases() -> st.SearchStrategy[Case]:
    """Random folds that the engines run."""
    seeds = st.integers(0, 2**64 - 1).map(random.Random)
    return (st.randoms(use_true_random=False) | seeds).map(random_fold_case)


def with_halves(rand: Random, case: Case) -> Case:
    """The case with some of its slots stored as halves, and inputs that these can hold."""
    halves = half_storage.draw(rand, frozenset(range(len(case.inputs))))
    return case._replace(inputs=half_storage.exact(rand, case.inputs, halves),
                         launch=dataclasses.replace(case.launch, halves=halves))


def half_fold_cases() -> st.SearchStrategy[Case]:
    """Random folds over halves."""
    return st.integers(0, 2**64 - 1).map(random.Random).map(lambda rand: with_halves(rand, random_fold_case(rand)))


def stored_otherwise(rand: Random, arrays: list[np.ndarray], options: dict[str, object]) -> None:
    """Give the arrays of a call of attention other dtypes, in place: halves, masks and slopes of integers too."""
    halves = [np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]
    with np.errstate(over="ignore"):
        arrays[:] = [array.astype(rand.choice(halves)) for array in arrays]
        for name in ("mask", "alibi", "doc_ids"):
            value = options.get(name)
            if isinstance(value, np.ndarray) and value.dtype != np.bool_:
                dtype = rand.choice((*halves, np.dtype(np.int32), np.dtype(np.uint8)))
                whole = np.clip(np.nan_to_num(value.astype(np.float32)), 0 if dtype == np.uint8 else -100, 100)
                options[name] = (whole if dtype.kind in "iu" else value).astype(dtype)


def laid_out(rand: Random, engine: Any, array: np.ndarray) -> Any:
    """A tensor with the values of an array that lies in memory in another order, or in a larger tensor."""
    choice = rand.randrange(4)
    if choice == 0:
        return engine.array(array)
    order = list(range(array.ndim))
    rand.shuffle(order)
    if choice == 1:
        return engine.array(np.ascontiguousarray(array.transpose(order))).transpose(np.argsort(order).tolist())
    if choice == 2:
        return engine.array(np.stack([array, array, array], axis=-2))[..., 1, :]
    inside = [(rand.randrange(3), rand.randrange(3)) for _ in order]
    larger = np.pad(array.transpose(order)[::-1], [inside[axis] for axis in order])
    inner = tuple(slice(before, before + size) for (before, _), size in zip(inside, array.shape, strict=True))
    found = engine.array(np.ascontiguousarray(larger)).transpose(np.argsort(order).tolist())[inner]
    backwards = [slice(None)] * array.ndim
    backwards[order[0]] = slice(None, None, -1)
    return found[tuple(backwards)]


def random_attention(rand: Random) -> tuple[list[np.ndarray], dict[str, object]]:
    """Arrays q, k, v and the options of a call of nnk.attention."""
    lead = rand.choice(((), (2,), (2, 1)))
    groups = rand.choice((1, 2, 3))
    heads = groups * rand.choice((1, 1, 2, 3))
    queries, keys = rand.choice((1, 2, 15, 17, 40)), rand.choice((1, 3, 33, 127, 128, 130, 200))
    depth, columns = rand.choice((1, 4, 7, 16, 20)), rand.choice((1, 5, 8, 33, 65))
    options: dict[str, object] = {}
    if rand.randrange(4) == 0:
        queries = keys
        shape = (*lead, keys) if rand.randrange(2) else (keys,)
        options["doc_ids"] = np.array([rand.randrange(3) for _ in range(int(np.prod(shape)))]).reshape(shape)
    if rand.randrange(3) == 0:
        options["alibi"] = random_floats(rand, heads)
    if rand.randrange(3) == 0:
        options["scale"] = rand.choice((1.0, 0.5, -2.0, 0.1))
    full = (*lead, heads, queries, keys)
    choice = rand.randrange(4)
    if choice == 1:
        options["mask"] = "causal"
    elif choice > 1:
        shape = rand.choice((full, full[-2:], (1, keys), (*[1] * len(full[:-2]), *full[-2:]), (*lead, 1, 1, keys),
                             (*lead, 1, queries, keys)))
        values = random_floats(rand, int(np.prod(shape))).reshape(shape)
        options["mask"] = values > -0.5 if choice == 2 else values
    arrays = [random_floats(rand, int(np.prod(shape))).reshape(shape) for shape in (
        (*lead, heads, queries, depth), (*lead, groups, keys, depth), (*lead, groups, keys, columns))]
    return arrays, options
