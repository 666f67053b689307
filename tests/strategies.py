"""Hypothesis strategies: float bits, valid ExprSpecs of every form, and cases that the engines run.

The builders take a ``random.Random``: Hypothesis gives one that it can replay and shrink, a fuzz script a seeded one.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from nnk import ops
from nnk.expr.meta import Launch
from nnk.expr.spec import ExprSpec, Fold, Instr, Matmul, Operand, VecAcc, ViewSpec
from tests.oracle import exprspec
from tests.oracle import specrules as rules

Random = random.Random

#: Every elementwise op on floats: the builders pick from it. Ops on integers would see what a NaN carries, which is
#: free inside a kernel (R4); tests/typed_programs.py builds programs of them.
OPS = tuple(op for op in ops.OPS if op.kind not in ("reduce", "integer", "cast"))
ROW_REDUCES = (rules.ROW_SUM, rules.ROW_MAX)
COLUMN_REDUCES = (rules.COL_SUM, rules.COL_MAX)

#: Zeros, ones, subnormals, extremes, infinities, NaNs with and without payload and sign.
SPECIAL_BITS = tuple(sign | bits for sign in (0, 0x80000000) for bits in (
    0x00000000, 0x00000001, 0x007FFFFF, 0x00800000, 0x00800001, 0x01000000, 0x20000000, 0x33800000, 0x3F000000,
    0x3F7FFFFF, 0x3F800000, 0x3F800001, 0x40000000, 0x42B17218, 0x4B800000, 0x7F7FFFFF, 0x7F800000, 0x7F800001,
    0x7FC00000, 0x7FC12345, 0x7FFFFFFF))

#: Where the contract's functions change their branch.
EDGE_BITS = tuple(sign | bits for sign in (0, 0x80000000) for bits in (
    0x39000000, 0x39800000, 0x3F200000, 0x3F3504F3, 0x3F490FDA, 0x3F6C0000, 0x407B0000, 0x40800000, 0x41000000,
    0x41200000, 0x41680000, 0x41700000, 0x42B00000, 0x42CFF1B5, 0x42D00000, 0x42DC0000, 0x33000000, 0x3EB17218,
    0x3FC90FDB, 0x40200000, 0x41900000, 0x43000000, 0x43160000, 0x4AFFFFFF, 0x4B000000, 0x6D46E3BB))

#: Constants that the identities of the canonical form look for, and their neighbours.
CONSTANTS = (0x00000000, 0x80000000, 0x3F800000, 0x3F800001, 0xBF800000, 0x40000000, 0x7F800000, 0x7FC00000,
             0x7FC00001, 0xFFC00000, 0x00000001, 0x7F7FFFFF, 0x3F000000)


def float_bits() -> st.SearchStrategy[int]:
    """Float32 bit patterns, dense in special values and in branch borders."""
    near = st.tuples(st.sampled_from(SPECIAL_BITS + EDGE_BITS), st.integers(-3, 3)).map(
        lambda pair: (pair[0] + pair[1]) & 0xFFFFFFFF)
    ordinary = st.tuples(st.integers(0, 1), st.integers(96, 160), st.integers(0, 0x7FFFFF)).map(
        lambda parts: parts[0] << 31 | parts[1] << 23 | parts[2])
    return st.sampled_from(SPECIAL_BITS) | near | ordinary | st.integers(0, 0xFFFFFFFF)


def random_bits(rand: Random) -> int:
    choice = rand.randrange(4)
    if choice == 0:
        return rand.choice(CONSTANTS if rand.randrange(2) else CONSTANTS[:3])
    if choice == 1:
        return rand.choice(SPECIAL_BITS)
    return rand.getrandbits(32) if choice == 2 else rand.randrange(0x3C000000, 0x44000000)


def as_spec(fields: Any) -> ExprSpec:
    """Turn nested plain tuples into the named tuples of nnk.expr.spec."""
    num_regs, instrs, views, consts, rparams, matmul, fold, extras = fields
    if fold is not None:
        fold = Fold(*fold[:3], _instrs(fold[3]), _instrs(fold[4]), fold[5], _maybe(Matmul, fold[6]),
                    _maybe(VecAcc, fold[7]), fold[8])
    return ExprSpec(num_regs, _instrs(instrs), tuple(ViewSpec(*view) for view in views), tuple(consts),
                    tuple(rparams), _maybe(Matmul, matmul), fold, tuple(extras))


def _maybe(kind: Any, fields: Any) -> Any:
    return None if fields is None else kind(*fields)


def _instrs(instrs: Any) -> tuple[Instr, ...]:
    return tuple(Instr(op, dst, *(Operand(*operand) for operand in operands)) for op, dst, *operands in instrs)


# ------------------------------------------------------------------------------------------------------ valid specs

def _size(rand: Random, limit: int) -> int:
    """Mostly small, at times the limit itself."""
    return limit if rand.randrange(12) == 0 else rand.randrange(min(limit, 5) + 1)


def _u32(rand: Random) -> int:
    return rand.choice((0, 1, 2, 3, 7, 64, 0xFFFFFFFF, rand.getrandbits(32)))


def random_view(rand: Random, slot: int, inputs: int, kinds: tuple[int, ...]) -> ViewSpec:
    """A view of one of these kinds that breaks no rule."""
    kind = rand.choice(kinds)
    param, param2 = _u32(rand), _u32(rand)
    if kind == rules.TAKE and inputs < 2:
        kind = rules.LINEAR
    if kind == rules.ROTATE_HALF:
        param = 2 * rand.randrange(1, 40)
    elif kind in rules.GROUPED_VIEWS:
        param = max(param, 1)
    elif kind == rules.ROW_GATHER:
        param = rand.randrange(inputs)
    elif kind == rules.TAKE:
        param = rand.choice([other for other in range(inputs) if other != slot])
    elif kind == rules.STRIDED:
        param = rand.choice((3, 7))
    return ViewSpec(kind, rand.randrange(2), param, param2)


class ProgramBuilder:
    """Builds instructions that the rules accept: registers hold either elements or reductions, never both in turn."""

    def __init__(self, rand: Random, num_regs: int, leaves: list[Operand], reduces: tuple[int, ...]) -> None:
        self.rand, self.leaves, self.reduces = rand, leaves, reduces
        self.constants = [leaf for leaf in leaves if leaf.kind == rules.CONST]
        registers = list(range(num_regs))
        rand.shuffle(registers)
        held_back = min(len(registers) // 3, 4) if reduces else 0
        self.reduce_registers, self.registers = registers[:held_back], registers[held_back:]
        self.defined: list[int] = []
        self.reduced: list[int] = []
        self.instrs: list[Instr] = []

    def operand(self) -> Operand:
        rand = self.rand
        if self.reduced and rand.randrange(4) == 0:
            return Operand(rules.REDUCE, rand.choice(self.reduced))
        if self.defined and (not self.leaves or rand.randrange(3)):
            # Recent results first: long chains, not a forest of leaves.
            recent = self.defined[-3:] if rand.randrange(2) else self.defined
            return Operand(rand.choice((rules.REG, rules.REG, rules.FANOUT)), rand.choice(recent))
        return rand.choice(self.leaves)

    def step(self) -> None:
        rand = self.rand
        if self.instrs and rand.randrange(6) == 0:
            # The same instruction once more: food for common subexpressions and max(x, x).
            old = rand.choice(self.instrs)
            op, operands = old.op, [old.a, old.b, old.c][:rules.ARITY[old.op]]
        elif self.constants and rand.randrange(4) == 0:
            # A constant beside a value: food for the identities.
            op = rand.choice((rules.ADD, rules.SUB, rules.MUL, rules.DIV, rules.SELECT))
            operands = [rand.choice(self.constants), *(self.operand() for _ in range(rules.ARITY[op] - 1))]
            if op != rules.SELECT:
                rand.shuffle(operands)
        else:
            op = rand.choice(self.reduces) if self.reduce_registers and rand.randrange(4) == 0 else \
                rand.choice(OPS).code
            operands = [self.operand() for _ in range(rules.ARITY[op])]
        reducing = op in rules.REDUCES
        dst = rand.choice(self.reduce_registers if reducing else self.registers)
        if any(operand.kind == rules.REDUCE and operand.idx == dst for operand in operands):
            return
        self.instrs.append(Instr(op, dst, *operands))
        known = self.reduced if reducing else self.defined
        if dst in known:
            known.remove(dst)
        known.append(dst)

    def build(self, count: int) -> tuple[Instr, ...]:
        while len(self.instrs) < count:
            self.step()
        return tuple(self.instrs)


def _leaves(rand: Random, inputs: int, consts: int, rparams: int, matmul: bool) -> list[Operand]:
    leaves = [Operand(rules.INPUT, slot) for slot in range(inputs)] * 2
    leaves += [Operand(rules.CONST, slot) for slot in range(consts)]
    leaves += [Operand(rules.RPARAM, slot) for slot in range(rparams)]
    if rand.randrange(3) == 0:
        leaves += [Operand(kind, 0) for kind in (rules.ROW, rules.COL, rules.BATCH)]
    if matmul:
        leaves += [Operand(rules.MATMUL, 0)] * 3
    return leaves or [Operand(rules.COL, 0)]


def random_matmul(rand: Random, inputs: int) -> Matmul:
    return Matmul(rand.randrange(inputs), rand.randrange(inputs), rand.randrange(2), rand.randrange(2), _u32(rand),
                  max(_u32(rand), 1))


def random_top_level_spec(rand: Random) -> ExprSpec:
    """An elementwise, reduce or matmul spec, every view and operand of the format included."""
    form = rand.choice(("elementwise", "row", "column", "both", "matmul"))
    inputs, consts, rparams = _size(rand, 16), _size(rand, 16), _size(rand, 16)
    matmul = None
    if form == "matmul" or rand.randrange(6) == 0:
        inputs = max(inputs, 1)
        matmul = random_matmul(rand, inputs)
    kinds: tuple[int, ...] = rules.VIEW_KINDS
    if form == "elementwise":
        kinds = tuple(kind for kind in kinds if kind not in (*rules.COL_VIEWS, *rules.ROW_VIEWS))
    views = tuple(random_view(rand, slot, inputs, kinds) for slot in range(inputs))
    reduces = {"row": ROW_REDUCES, "column": COLUMN_REDUCES, "both": rules.REDUCES}.get(form, ())
    num_regs = rand.randrange(1, 33) if rand.randrange(8) else 32
    builder = ProgramBuilder(rand, num_regs, _leaves(rand, inputs, consts, rparams, matmul is not None), reduces)
    count = 64 if rand.randrange(20) == 0 else rand.randrange(0 if matmul else 1, 14)
    instrs = builder.build(count)
    extras: tuple[int, ...] = ()
    if form == "elementwise" and matmul is None and rand.randrange(2):
        extras = tuple(rand.choice(builder.defined) for _ in range(_size(rand, 32)))
    return ExprSpec(num_regs, instrs, views, tuple(random_bits(rand) for _ in range(consts)),
                    tuple(random_bits(rand) for _ in range(rparams)), matmul, None, extras)


class _BodyBuilder:
    """Builds a fold body: every register keeps one role (state, row scalar, element or block reduction)."""

    def __init__(self, rand: Random, num_state: int, num_regs: int, leaves: list[Operand]) -> None:
        self.rand = rand
        self.scalars = [leaf for leaf in leaves if leaf.kind not in (rules.INPUT, rules.MATMUL, rules.COL)]
        self.elements = [leaf for leaf in leaves if leaf.kind in (rules.INPUT, rules.MATMUL, rules.COL)]
        self.scalars += [Operand(rules.REG, state) for state in range(num_state)]
        locals_ = list(range(num_state, num_regs))
        self.element_registers, self.reduce_registers = locals_[0::3], locals_[1::3]
        self.scalar_registers = [*range(num_state), *locals_[2::3]]
        self.instrs: list[Instr] = []

    def _add(self, op: int, dst: int, operands: list[Operand]) -> None:
        self.instrs.append(Instr(op, dst, *operands))

    def step(self) -> None:
        rand = self.rand
        role = rand.choice(("element", "scalar", "reduce"))
        if role == "reduce" and self.reduce_registers:
            dst = rand.choice(self.reduce_registers)
            source = rand.choice(self.elements or self.scalars)
            if source != Operand(rules.REDUCE, dst):
                self._add(rand.choice(ROW_REDUCES), dst, [source])
                self.scalars.append(Operand(rules.REDUCE, dst))
        elif role == "element" and self.element_registers and self.elements:
            op = rand.choice(OPS).code
            operands = [rand.choice(self.elements), *(rand.choice(self.elements + self.scalars) for _ in "bc")]
            dst = rand.choice(self.element_registers)
            self._add(op, dst, operands[:rules.ARITY[op]])
            self.elements.append(Operand(rand.choice((rules.REG, rules.FANOUT)), dst))
        else:
            op = rand.choice(OPS).code
            dst = rand.choice(self.scalar_registers)
            self._add(op, dst, [rand.choice(self.scalars) for _ in range(rules.ARITY[op])])
            self.scalars.append(Operand(rules.REG, dst))


def random_fold_spec(rand: Random) -> ExprSpec:
    """A fold with or without matmul, vector state and tri_skip."""
    inputs, consts, rparams = max(_size(rand, 16), 1), _size(rand, 16), _size(rand, 4)
    matmul = random_matmul(rand, inputs)._replace(k=rand.randrange(1025)) if rand.randrange(2) else None
    kinds = [rules.LINEAR, rules.ROW_MOD, rules.ROW_BROADCAST, rules.STRIDED]
    kinds += [] if matmul is None else [rules.BATCH_MOD, rules.BATCH_COL]
    views = tuple(random_view(rand, slot, inputs, tuple(kinds)) for slot in range(inputs))
    if matmul is not None:
        a, b = (views[slot].kind != rules.STRIDED for slot in matmul[:2])
        matmul = matmul._replace(trans_a=matmul.trans_a * a, trans_b=matmul.trans_b * b)
    num_state = rand.randrange(1, 9)
    num_regs = rand.randrange(num_state, 33)
    leaves = [leaf for leaf in _leaves(rand, inputs, consts, rparams, matmul is not None)
              if matmul is not None or leaf.kind not in (rules.ROW, rules.COL, rules.BATCH)]
    builder = _BodyBuilder(rand, num_state, num_regs, leaves)
    for _ in range(48 if rand.randrange(12) == 0 else rand.randrange(1, 12)):
        builder.step()
    if not builder.instrs:
        builder._add(rules.NEG, 0, [Operand(rules.REG, 0)])
    vec_state_len = rand.choice((1, 16, 1024)) if rand.randrange(2) else 0
    vecacc = None
    if vec_state_len:
        vecacc = VecAcc(0, rand.randrange(num_regs), rand.randrange(inputs), rand.randrange(num_state),
                        rand.randrange(2))
    fold = Fold(num_state, max(_u32(rand), 1), tuple(random_bits(rand) for _ in range(num_state)),
                tuple(builder.instrs), _finalize(rand, num_state, num_regs, consts, vec_state_len), vec_state_len,
                matmul, vecacc, int(matmul is not None and rand.randrange(2) == 0))
    return ExprSpec(num_regs, (), views, tuple(random_bits(rand) for _ in range(consts)),
                    tuple(random_bits(rand) for _ in range(rparams)), None, fold)


def _finalize(rand: Random, num_state: int, num_regs: int, consts: int, vec_state_len: int) -> tuple[Instr, ...]:
    sources = [Operand(rules.REG, state) for state in range(num_state)]
    sources += [Operand(rules.CONST, slot) for slot in range(consts)]
    targets = list(range(num_regs))
    if vec_state_len:
        sources += [Operand(rules.VEC_STATE, 0)] * 2
        targets = list(range(num_state, num_regs))
        if not targets:
            # Every register is a state: what is written may not be read.
            targets = [num_regs - 1]
            sources = [source for source in sources if source != Operand(rules.REG, num_regs - 1)]
    instrs = []
    for _ in range(16 if rand.randrange(12) == 0 else rand.randrange(1, 4)):
        op = rand.choice(OPS).code
        instrs.append(Instr(op, rand.choice(targets), *(rand.choice(sources) for _ in range(rules.ARITY[op]))))
    return tuple(instrs)


def random_spec(rand: Random) -> ExprSpec:
    return random_fold_spec(rand) if rand.randrange(4) == 0 else random_top_level_spec(rand)


def _randoms() -> st.SearchStrategy[Random]:
    """Small cases that shrink, and large ones that do not (a seed)."""
    return st.randoms(use_true_random=False) | st.integers(0, 2**64 - 1).map(Random)


def specs() -> st.SearchStrategy[ExprSpec]:
    """Valid ExprSpecs of every form, limits included."""
    return _randoms().map(random_spec)


def top_level_specs() -> st.SearchStrategy[ExprSpec]:
    """Valid ExprSpecs without a fold."""
    return _randoms().map(random_top_level_spec)


def fold_specs() -> st.SearchStrategy[ExprSpec]:
    """Valid ExprSpecs with a fold."""
    return _randoms().map(random_fold_spec)


# ---------------------------------------------------------------------------------------------------- runnable cases

class Case(NamedTuple):
    """A spec with a launch and inputs that fit: flat float32 arrays, int32 for index slots.

    ``dtypes`` has one for each input and output slot (tests/typed_programs.py); empty: all are float32.
    """

    spec: ExprSpec
    launch: Launch
    inputs: list[npt.NDArray[Any]]
    dtypes: tuple[str, ...] = ()


def random_floats(rand: Random, count: int) -> npt.NDArray[np.float32]:
    """Ordinary values with special ones and random bits between them, in a mix that differs from array to array."""
    generator = np.random.default_rng(rand.getrandbits(32))
    values = generator.standard_normal(count, np.float32) * generator.choice(np.array([0.1, 1, 30], np.float32))
    bits = values.view(np.uint32)
    special, wild = generator.choice([0.0, 0.03, 0.3]), generator.choice([0.0, 0.03, 0.3])
    where = generator.random(count, np.float32)
    chosen = np.flatnonzero(where < special)
    bits[chosen] = generator.choice(np.array(SPECIAL_BITS, np.uint32), chosen.size)
    chosen = np.flatnonzero(where >= 1 - wild)
    bits[chosen] = generator.integers(0, 2**32, chosen.size, dtype=np.uint32)
    return values


def random_indices(rand: Random, count: int, below: int) -> npt.NDArray[np.int32]:
    return np.random.default_rng(rand.getrandbits(32)).integers(0, below, count, dtype=np.int32)


def random_labels(rand: Random, count: int, below: int) -> npt.NDArray[np.float32]:
    """Labels of a row_gather: floats whose whole part is a row, -0.0 among them."""
    rows = random_indices(rand, count, below).astype(np.float32)
    rows += np.random.default_rng(rand.getrandbits(32)).choice(np.array([0, 0.5, 0.9375], np.float32), count)
    return np.where(rows == 0, np.float32(-0.0), rows)


def _factors(rand: Random, rows: int, n: int) -> list[int]:
    """n sizes whose product is rows."""
    sizes = [1] * n
    rest = rows
    divisor = 2
    while rest > 1:
        if rest % divisor == 0:
            sizes[rand.randrange(n)] *= divisor
            rest //= divisor
        else:
            divisor += 1
    return sizes


def strided_words(rand: Random, rows: int, cols: int, n: int, last: int) -> tuple[tuple[int, ...], int]:
    """The words of a strided view over the grid, and the number of elements that its buffer needs.

    ``last`` is the size of the innermost row dimension, 0 for any.
    """
    sizes = [*_factors(rand, rows // last, n - 1), last] if last else _factors(rand, rows, n)
    strides = [rand.choice((0, 1, 2, -1, rand.randrange(-9, 10), *((cols, -cols) if size * cols < 50000 else ())))
               for size in (*sizes, cols)]
    reach = [(size - 1) * stride for size, stride in zip((*sizes, cols), strides, strict=True)]
    offset = -sum(min(step, 0) for step in reach) + rand.randrange(3)
    needed = offset + sum(max(step, 0) for step in reach) + 1
    return tuple(word % 2**32 for word in (offset, *sizes[1:], *strides)), needed


@dataclass
class Slots:
    """Input slots under construction: views, run-time words and arrays, one entry a slot."""

    rand: Random
    rows: int
    cols: int
    batch: int
    views: list[ViewSpec]
    words: list[tuple[int, ...]]
    arrays: list[npt.NDArray[Any]]

    def add(self, view: ViewSpec, words: tuple[int, ...], array: npt.NDArray[Any]) -> int:
        self.views.append(view)
        self.words.append(words)
        self.arrays.append(array)
        return len(self.views) - 1

    def add_floats(self, kind: int, words: tuple[int, ...], count: int, param: int = 0) -> int:
        return self.add(ViewSpec(kind, self.rand.randrange(2) if kind == rules.ROTATE_HALF else 0, param), words,
                        random_floats(self.rand, count))

    def add_strided(self, rows: int, cols: int, last: int = 0) -> int:
        """A strided slot; the right operand of a matmul has k as its innermost row dimension."""
        n = self.rand.choice((3, 7))
        words, needed = strided_words(self.rand, rows, cols, n, last)
        return self.add_floats(rules.STRIDED, words, needed, n)

    def add_gathered(self, kind: int) -> int:
        """The data slot first, then its index slot."""
        table = self.rand.randrange(1, 9)
        slot = self.add_floats(kind, (), table * self.cols, len(self.views) + 1)
        if kind == rules.TAKE:
            self.add(ViewSpec(rules.ROW_BROADCAST), (), random_indices(self.rand, self.rows, table))
        else:
            self.add(ViewSpec(rules.COL_BROADCAST), (), random_labels(self.rand, self.cols, table))
        return slot

    def add_view(self, kind: int) -> int:
        """One input that the program may read; returns its slot."""
        rand, rows, cols = self.rand, self.rows, self.cols
        if kind == rules.STRIDED:
            return self.add_strided(rows, cols)
        if kind in (rules.ROW_GATHER, rules.TAKE):
            return self.add_gathered(kind)
        count = rand.randrange(1, 8)
        if kind == rules.ROTATE_HALF:
            block = 2 * count
            return self.add_floats(kind, (block,), -(-rows // block) * block * cols, block)
        if kind == rules.ROW_MOD:
            return self.add_floats(kind, (count,), count * cols, count)
        if kind == rules.BATCH_MOD:
            return self.add_floats(kind, (count,), count, count)
        if kind == rules.BATCH_COL:
            return self.add_floats(kind, (cols + count,), self.batch * (cols + count), cols + count)
        if kind == rules.ROW_ACCESS:
            offset = rand.randrange(4)
            slot = self.add_floats(kind, (count, offset), (count + offset) * cols, count)
            self.views[slot] = self.views[slot]._replace(param2=offset)
            return slot
        if kind in rules.GROUPED_VIEWS:
            count = _group_size(rand, rows * cols)
            return self.add_floats(kind, (count,), rows * count * cols, count)
        if kind == rules.HEAD_GROUP:
            return self.add_floats(kind, (count,), rows * cols, count)
        sizes = {rules.ROW_BROADCAST: rows, rules.COL_BROADCAST: cols}
        return self.add_floats(kind, (), sizes.get(kind, rows * cols))

    def add_operand(self, rows: int, cols: int, last: int = 0) -> int:
        """A matmul operand of rows x cols a batch; ``last`` as in add_strided."""
        choice = self.rand.randrange(4)
        if choice == 0:
            return self.add_strided(self.batch * rows, cols, last)
        if choice == 1:
            ratio = self.rand.randrange(1, 4)
            return self.add_floats(rules.HEAD_GROUP, (ratio,), -(-self.batch // ratio) * rows * cols, ratio)
        return self.add_floats(rules.LINEAR, (), self.batch * rows * cols)


def _group_size(rand: Random, elements: int) -> int:
    """Mostly a few values, at times more than lanes, now and then more than a chunk."""
    if elements < 400 and rand.randrange(4) == 0:
        return rand.choice((31, 255, 256, 257, 300, 600))
    return 16500 if elements < 8 and rand.randrange(3) == 0 else rand.randrange(1, 10)


#: The views that every form runs.
RUNNABLE_VIEWS = (rules.LINEAR, rules.LINEAR, rules.ROW_MOD, rules.ROW_BROADCAST, rules.COL_BROADCAST, rules.STRIDED,
                  rules.STRIDED, rules.TAKE, rules.ROW_GATHER, rules.BATCH_MOD, rules.BATCH_COL, rules.ROW_ACCESS,
                  rules.ROTATE_HALF, *rules.GROUPED_VIEWS, rules.HEAD_GROUP)


class FormParts(NamedTuple):
    """What a kernel form has: a matmul, and the ops and the views that it reduces by."""

    has_matmul: bool
    reduces: tuple[int, ...]
    reduce_views: tuple[int, ...]


FORM_PARTS = {
    "elementwise": FormParts(False, (), ()),
    "reduce": FormParts(False, ROW_REDUCES, rules.ROW_VIEWS),
    "columns": FormParts(False, COLUMN_REDUCES, rules.COL_VIEWS),
    "matmul": FormParts(True, (), ()),
    "reduce a matmul": FormParts(True, ROW_REDUCES, rules.ROW_VIEWS),
    "columns of a matmul": FormParts(True, COLUMN_REDUCES, rules.COL_VIEWS),
}
FORMS = tuple(FORM_PARTS)


def _grid_of(rand: Random, form: str) -> tuple[int, int]:
    if form in ("reduce", "columns") and rand.randrange(8) == 0:
        line, lines = rand.choice((255, 256, 257, 1000, 16384, 16385, 33000)), rand.randrange(1, 3)
        return (lines, line) if form == "reduce" else (line, lines)
    if rand.randrange(8) == 0:
        return rand.randrange(1, 140), rand.randrange(1, 140)
    return rand.randrange(1, 12), rand.choice((1, 2, 3, 4, 5, 7, 8, 16, 33))


def random_case(rand: Random, form: str | None = None) -> Case:
    """A spec of a form that the engines run, not yet canonical, with its launch and inputs."""
    form = form or rand.choice(FORMS)
    has_matmul, reduces, reduce_views = FORM_PARTS[form]
    rows, cols = _grid_of(rand, form)
    matmul = None
    slots = Slots(rand, rows, cols, 1, [], [], [])
    if has_matmul:
        batch, k, trans = rand.choice((1, 1, 2, 3)), rand.choice((1, 2, 5, 16, 17, 40)), rand.randrange(4)
        slots.batch = batch
        slots.rows = batch * rows
        matmul = Matmul(slots.add_operand(rows, k), slots.add_operand(k, cols, k), trans & 1, trans >> 1, k, batch)
    readable = [slots.add_view(rand.choice(RUNNABLE_VIEWS + 2 * reduce_views)) for _ in range(_size(rand, 6))]
    consts = tuple(random_bits(rand) for _ in range(_size(rand, 16)))
    rparams = tuple(random_bits(rand) for _ in range(_size(rand, 4)))
    leaves = _leaves(rand, 0, len(consts), len(rparams), matmul is not None)
    leaves += [Operand(rules.INPUT, slot) for slot in readable] * 3
    num_regs = rand.randrange(2, 25)
    builder = ProgramBuilder(rand, num_regs, leaves, reduces)
    # A reduction comes first and the result hangs on one, unless a view reduces: the canonical form keeps it then.
    by_view = any(slots.views[slot].kind in reduce_views for slot in readable)
    by_instr = bool(reduces) and not (by_view and rand.randrange(2))
    if by_instr:
        builder.reduce_registers = builder.reduce_registers or [num_regs]
        num_regs = max(num_regs, builder.reduce_registers[0] + 1)
        first = Instr(rand.choice(reduces), builder.reduce_registers[0], builder.operand())
        builder.instrs.append(first)
        builder.reduced.append(first.dst)
    instrs = builder.build(rand.randrange(0 if matmul else 1, 10))
    if by_instr:
        last = Operand(rules.REG, builder.defined[-1]) if builder.defined else rand.choice(leaves)
        builder.instrs.append(Instr(rules.ADD, rand.choice(builder.registers),
                                    Operand(rules.REDUCE, rand.choice(builder.reduced)), last))
        instrs = tuple(builder.instrs)
    extras = tuple(rand.choice(builder.defined) for _ in range(rand.randrange(3))) if form == "elementwise" else ()
    spec = ExprSpec(num_regs, instrs, tuple(slots.views), consts, rparams, matmul, None, extras)
    return Case(spec, launch_of(spec, slots.rows, cols, tuple(slots.words), rand.randrange(2) == 1), slots.arrays)


def launch_of(spec: ExprSpec, rows: int, cols: int, words: tuple[tuple[int, ...], ...], vector_out: bool) -> Launch:
    """The launch of a spec with the spec's own constants and sizes."""
    reduces = any(instr.op in rules.REDUCES for instr in spec.instrs) or \
        any(view.kind in (*rules.ROW_VIEWS, *rules.COL_VIEWS) for view in spec.views)
    k, batch, trans = (spec.matmul.k, spec.matmul.batch, spec.matmul.trans_a | spec.matmul.trans_b << 1) \
        if spec.matmul else (0, 1, 0)
    return Launch(rows, cols, words, spec.const_bits, spec.rparam_bits, int(vector_out and reduces), k, batch, trans)


def canonical_case(case: Case) -> Case:
    """The case with the canonical form of its spec, as engines take it."""
    spec = as_spec(exprspec.canonicalise(case.spec))
    return case._replace(spec=spec, launch=replace(case.launch, const_bits=spec.const_bits))


def runnable_cases(form: str | None = None) -> st.SearchStrategy[Case]:
    """Cases of the forms that the engines run (one form, or all)."""
    return _randoms().map(lambda rand: random_case(rand, form))
