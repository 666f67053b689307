"""Programs over integers, bools and floats at once: every op of the table, each on operands of its own kind.

A register holds the word of a float, of an int32 or of a bool (1.0 or +0.0, so that a bool is a float too). An integer
op never gets a float: it would see what a NaN carries, which is free inside a kernel (R4). The signatures are written
here from the table of dtypes in the contract.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from nnk import ops
from nnk.expr.spec import ExprSpec, Instr, Matmul, Operand
from tests import strategies
from tests.oracle import specrules as rules
from tests.strategies import ProgramBuilder

__all__ = ["DTYPES", "SPECIAL_INTEGERS", "check_types", "float_slots", "letters_of", "random_typed_case",
           "random_values", "word_types"]

Random = random.Random

FLOAT, INT, BOOL = "float", "int", "bool"

#: Dtype of a slot -> letter of an input, letter of an output, what its word is. Halves are float32 here: which of
#: the float slots are halves is data of a launch.
DTYPES = {"float32": ("w", "f", FLOAT), "int32": ("w", "i", INT), "uint8": ("u", "u", INT), "bool": ("b", "b", BOOL)}

#: Zeros, ones, extremes, borders of bytes, of shift counts, of exact floats, and what a float NaN looks like.
SPECIAL_INTEGERS = tuple(value & 0xFFFFFFFF for value in (
    0, 1, 2, -1, -2, 3, 7, 31, 32, 33, 63, 127, 128, 254, 255, 256, 257, 65535, 65536, 2**24 - 1, 2**24, 2**24 + 1,
    2**25 + 3, 2**30, 2**31 - 1, 2**31 - 64, -2**31, -2**31 + 1, -255, -256, 0x7F800001, 0x7FC00000, -0x7F800001))

_CODE = {op.name: op.code for op in ops.OPS}


def _signatures() -> dict[int, tuple[tuple[tuple[str, ...], str], ...]]:
    """Op code -> the ways to use it: the kinds of its operands, and that of its result."""
    table: dict[int, tuple[tuple[tuple[str, ...], str], ...]] = {}
    for op in ops.OPS:
        floats, integers = (FLOAT,) * op.arity, (INT,) * op.arity
        if op.kind == "compare" or op.name in ("isnan", "isinf", "isfinite"):
            table[op.code] = ((floats, BOOL),)
        elif op.kind == "integer":
            table[op.code] = ((integers, BOOL if op.name in ("ilt", "ile", "ieq", "ine") else INT),)
        else:
            table[op.code] = ((floats, FLOAT),)
    casts = {"i2f": (INT, FLOAT), "f2i": (FLOAT, INT), "f2u8": (FLOAT, INT), "b2i": (BOOL, INT), "wrap_u8": (INT, INT)}
    table.update({_CODE[name]: (((source,), result),) for name, (source, result) in casts.items()})
    for name in ("iand", "ior", "ixor", "max", "min"):
        table[_CODE[name]] += (((BOOL, BOOL), BOOL),)
    for kind in (INT, BOOL):
        table[_CODE["copy"]] += (((kind,), kind),)
        table[_CODE["select"]] += (((FLOAT, kind, kind), kind),)
    return table


SIGNATURES = _signatures()
_ELEMENTWISE = tuple(op.code for op in ops.OPS if op.kind != "reduce")
_INTEGER_OPS = tuple(op.code for op in ops.OPS if op.kind in ("integer", "cast"))
ONE = 0x3F800000


# ------------------------------------------------------------------------------------------------------- kinds

def _kinds_of_bits(bits: int) -> frozenset[str]:
    """A constant is whatever reads it, a bool if it is 1.0 or +0.0."""
    return frozenset((FLOAT, INT, BOOL)) if bits in (0, ONE) else frozenset((FLOAT, INT))


def word_types(spec: ExprSpec, dtypes: tuple[str, ...]) -> dict[int, frozenset[str]]:
    """What each register can be taken for after the program; an instruction without a way to run leaves it empty."""
    kinds: dict[int, frozenset[str]] = {}

    def of(operand: Operand) -> frozenset[str]:
        kind, idx = operand
        if kind in (rules.REG, rules.FANOUT, rules.REDUCE):
            return kinds[idx]
        if kind in (rules.CONST, rules.RPARAM):
            return _kinds_of_bits((spec.const_bits if kind == rules.CONST else spec.rparam_bits)[idx])
        if kind != rules.INPUT:
            return frozenset((FLOAT,))
        return frozenset((_kind_of_slot(spec, idx, dtypes[idx]),)) | _also_float(_kind_of_slot(spec, idx, dtypes[idx]))

    for instr in spec.instrs:
        operands = [of(operand) for operand in rules.used_operands(instr)]
        results = {result for arguments, result in SIGNATURES[instr.op]
                   if all(kind in known for kind, known in zip(arguments, operands, strict=True))}
        kinds[instr.dst] = frozenset(results).union(*map(_also_float, results))
    return kinds


def _also_float(kind: str) -> frozenset[str]:
    return frozenset((FLOAT,)) if kind == BOOL else frozenset()


def _kind_of_slot(spec: ExprSpec, slot: int, dtype: str) -> str:
    """What a view of a slot gives: sums of bools, and bools with a sign, are floats."""
    view = spec.views[slot]
    is_bool = dtype == "bool" and not (view.kind == rules.ROTATE_HALF and view.negate)
    kind = DTYPES[dtype][2]
    return kind if kind != BOOL or (is_bool and not _reduces(view.kind)) else FLOAT


def _reduces(kind: int) -> bool:
    return kind in (*rules.ROW_VIEWS, *rules.COL_VIEWS, *rules.GROUPED_VIEWS)


def check_types(spec: ExprSpec, dtypes: tuple[str, ...]) -> bool:
    """Whether every instruction has operands of its kind, and every output slot a dtype of its own.

    The programs of folds are made by tests/typed_folds.py and never changed.
    """
    if spec.fold is not None:
        return True
    inputs, outputs = dtypes[:len(spec.views)], dtypes[len(spec.views):]
    if any(DTYPES[dtype][2] == INT and _reduces(view.kind) for view, dtype in zip(spec.views, inputs, strict=True)):
        return False
    matmul = spec.matmul
    if matmul is not None and INT in {DTYPES[inputs[slot]][2] for slot in (matmul.a_input, matmul.b_input)}:
        return False
    # A result that an instruction leaves without a kind may be overwritten: look after each one.
    for end in range(1, len(spec.instrs) + 1):
        if not word_types(spec._replace(instrs=spec.instrs[:end]), inputs)[spec.instrs[end - 1].dst]:
            return False
    kinds = word_types(spec, inputs)
    results = [kinds[spec.instrs[-1].dst], *(kinds[register] for register in spec.extras)] if spec.instrs else \
        [frozenset((FLOAT,))]
    return all((INT if DTYPES[dtype][2] == INT else FLOAT) in known
               for dtype, known in zip(outputs, results, strict=True))


def letters_of(spec: ExprSpec, dtypes: tuple[str, ...]) -> str:
    """The letters of the input and output slots, empty where all are plain."""
    if not dtypes:
        return ""
    inputs = len(spec.views)
    letters = "".join(DTYPES[dtype][slot >= inputs] for slot, dtype in enumerate(dtypes))
    return "" if letters == "w" * inputs + "f" * (len(dtypes) - inputs) else letters


def float_slots(spec: ExprSpec, dtypes: tuple[str, ...]) -> tuple[frozenset[int], bool]:
    """The input slots that may hold halves as far as dtypes say, and whether the outputs may."""
    slots = range(len(spec.views))
    if not dtypes:
        return frozenset(slots), True
    return frozenset(slot for slot in slots if dtypes[slot] == "float32"), \
        all(dtype == "float32" for dtype in dtypes[len(spec.views):])


# ------------------------------------------------------------------------------------------------------- values

def random_integer(rand: Random) -> int:
    """An int32 as bits."""
    choice = rand.randrange(4)
    if choice == 0:
        return rand.getrandbits(32)
    return rand.choice(SPECIAL_INTEGERS) if choice < 3 else rand.randrange(-40, 40) & 0xFFFFFFFF


def random_values(rand: Random, dtype: str, count: int) -> npt.NDArray[Any]:
    """Values of a dtype in storage, dense in special ones. A byte of a bool is any number: what is not 0 is true."""
    if dtype == "float32":
        return strategies.random_floats(rand, count)
    generator = np.random.default_rng(rand.getrandbits(32))
    if dtype == "bool":
        return np.where(generator.random(count) < rand.choice((0.1, 0.5, 0.9)), 0,
                        generator.choice(np.array([1, 1, 1, 2, 128, 255], np.uint8), count)).astype(np.uint8)
    special = np.array(SPECIAL_INTEGERS, np.uint32)
    words = generator.integers(0, 2**32, count, dtype=np.uint32)
    small = generator.integers(-9, 9, count).astype(np.int32).view(np.uint32)
    where, dense = generator.random(count), generator.choice([0.1, 0.5, 0.9])
    words = np.where(where < dense, generator.choice(special, count), np.where(where < (1 + dense) / 2, small, words))
    return words.view(np.int32) if dtype == "int32" else (words & 0xFF).astype(np.uint8)


# ------------------------------------------------------------------------------------------------------- programs

class TypedBuilder(ProgramBuilder):
    """Builds instructions whose operands are of the kinds that they need."""

    def __init__(self, rand: Random, num_regs: int, leaves: Iterable[tuple[Operand, str]],
                 reduces: tuple[int, ...]) -> None:
        self.kinds = dict(leaves)
        super().__init__(rand, num_regs, list(self.kinds), reduces)
        self.register_kind: dict[int, str] = {}

    def known(self, kind: str) -> tuple[list[Operand], list[Operand]]:
        """Leaves and results that can be taken for this kind; later results last."""
        def fits(found: str) -> bool:
            return found == kind or (kind == FLOAT and found == BOOL)
        leaves = [leaf for leaf in self.leaves if fits(self.kinds[leaf])]
        leaves += 3 * [leaf for leaf in leaves if leaf.kind == rules.INPUT]
        results = [Operand(self.rand.choice((rules.REG, rules.REG, rules.FANOUT)), register)
                   for register in self.defined if fits(self.register_kind[register])]
        if kind == FLOAT and self.rand.randrange(3) == 0:
            results += [Operand(rules.REDUCE, register) for register in self.reduced]
        return leaves, results

    def pick(self, kind: str) -> Operand:
        """An operand of this kind, mostly a recent result. There is a constant of every kind."""
        leaves, results = self.known(kind)
        if results and self.rand.randrange(3):
            return self.rand.choice(results[-3:] if self.rand.randrange(2) else results)
        return self.rand.choice(leaves)

    def add(self, op: int, dst: int, kind: str, operands: list[Operand]) -> None:
        """Append an instruction whose result is of this kind."""
        self.instrs.append(Instr(op, dst, *operands))
        known = self.reduced if op in rules.REDUCES else self.defined
        if dst in known:
            known.remove(dst)
        known.append(dst)
        self.register_kind[dst] = kind

    def step(self) -> None:
        rand = self.rand
        if self.reduce_registers and rand.randrange(4) == 0:
            operand, dst = self.pick(FLOAT), rand.choice(self.reduce_registers)
            if operand != Operand(rules.REDUCE, dst):
                self.add(rand.choice(self.reduces), dst, FLOAT, [operand])
            return
        op = rand.choice(_INTEGER_OPS if rand.randrange(3) else _ELEMENTWISE)
        arguments, result = rand.choice(SIGNATURES[op])
        self.add(op, rand.choice(self.registers), result, [self.pick(kind) for kind in arguments])

    def maximum(self, reduce_op: int) -> None:
        """The maximum of int32 as the public function makes it: the upper halves, then the lower ones of the largest.

        The last instruction is its result.
        """
        rand, high, low = self.rand, self.reduce_registers[0], self.reduce_registers[1]
        value, consts = self.pick(INT), {bits: Operand(rules.CONST, slot) for slot, bits in MAXIMUM_CONSTS}
        a, b, c = rand.sample(self.registers, 3)
        reg, held = (lambda idx: Operand(rules.REG, idx)), (lambda idx: Operand(rules.REDUCE, idx))
        if value.kind in (rules.REG, rules.FANOUT) and value.idx in (a, b, c):
            value = rand.choice([leaf for leaf in self.leaves if self.kinds[leaf] == INT])
        for name, dst, kind, operands in (
                ("ishr", a, INT, [value, consts[16]]), ("i2f", a, FLOAT, [reg(a)]), ("", high, FLOAT, [reg(a)]),
                ("eq", b, BOOL, [reg(a), held(high)]), ("iand", c, INT, [value, consts[0xFFFF]]),
                ("i2f", c, FLOAT, [reg(c)]), ("select", b, FLOAT, [reg(b), reg(c), consts[0xBF800000]]),
                ("", low, FLOAT, [reg(b)]), ("f2i", a, INT, [held(high)]), ("ishl", a, INT, [reg(a), consts[16]]),
                ("f2i", b, INT, [held(low)]), ("ior", c, INT, [reg(a), reg(b)])):
            self.add(_CODE[name] if name else reduce_op, dst, kind, operands)


#: Constant slots of every program, so that there is an operand of each kind: for :meth:`TypedBuilder.maximum`, a zero
#: and a one.
MAXIMUM_CONSTS = ((0, 16), (1, 0xFFFF), (2, 0xBF800000))
_FIXED_CONSTS = (*(bits for _, bits in MAXIMUM_CONSTS), 0, ONE)


def _leaves(rand: Random, dtypes: list[str], spec: ExprSpec, readable: list[int]) -> list[tuple[Operand, str]]:
    leaves = [(Operand(rules.INPUT, slot), _kind_of_slot(spec, slot, dtypes[slot])) for slot in readable]
    kinds = [INT, INT, FLOAT, BOOL, BOOL]
    kinds += [rand.choice((INT, FLOAT)) for _ in spec.const_bits[len(kinds):]]
    leaves += [(Operand(rules.CONST, slot), kind) for slot, kind in enumerate(kinds)]
    leaves += [(Operand(rules.RPARAM, slot), FLOAT if slot % 2 else INT) for slot in range(len(spec.rparam_bits))]
    if rand.randrange(3) == 0:
        leaves += [(Operand(kind, 0), FLOAT) for kind in (rules.ROW, rules.COL, rules.BATCH)]
    if spec.matmul is not None:
        leaves.append((Operand(rules.MATMUL, 0), FLOAT))
    return leaves


def _output_dtype(rand: Random, kind: str) -> str:
    """A float may be stored as a bool: it is not zero."""
    choices = {FLOAT: ("float32", "float32", "float32", "bool"), INT: ("int32", "int32", "uint8"),
               BOOL: ("bool", "bool", "float32")}
    return rand.choice(choices[kind])


def _last(rand: Random, builder: TypedBuilder) -> None:
    """A last instruction that hangs on a reduction, of any kind."""
    dst, kind = rand.choice(builder.registers), rand.choice((FLOAT, INT, BOOL))
    held = Operand(rules.REDUCE, rand.choice(builder.reduced))
    op, operands = {FLOAT: (rules.ADD, [held, builder.pick(FLOAT)]), INT: (_CODE["f2i"], [held]),
                    BOOL: (_CODE["gt"], [builder.pick(FLOAT), held])}[kind]
    builder.add(op, dst, kind, operands)


def random_typed_case(rand: Random, form: str) -> tuple[ExprSpec, tuple[str, ...]]:
    """A spec of a form that the engines run, not yet canonical, and the dtypes of its input and output slots."""
    parts = strategies.FORM_PARTS[form]
    slots = strategies.Slots(rand, 4, 4, 1, [], [], [])
    matmul = Matmul(slots.add_operand(4, 2), slots.add_operand(2, 4, 2)) if parts.has_matmul else None
    operands = range(len(slots.views))
    views = strategies.RUNNABLE_VIEWS + 2 * parts.reduce_views
    readable = [slots.add_view(rand.choice(views)) for _ in range(rand.randrange(1, 6))]
    dtypes = ["float32"] * len(slots.views)
    for slot in (*operands, *readable):
        floats = slot in operands or _reduces(slots.views[slot].kind)
        dtypes[slot] = rand.choice(("float32", "float32", "bool") if floats else tuple(DTYPES))
    for view in slots.views:
        if view.kind == rules.TAKE:
            dtypes[view.param] = "int32"
    consts = _FIXED_CONSTS + tuple(random_integer(rand) if rand.randrange(3) else strategies.random_bits(rand)
                                   for _ in range(rand.randrange(8)))
    rparams = tuple(random_integer(rand) for _ in range(rand.randrange(3)))
    num_regs = rand.randrange(8, 25)
    empty = ExprSpec(num_regs, (), tuple(slots.views), consts, rparams, matmul)
    builder = TypedBuilder(rand, num_regs, _leaves(rand, dtypes, empty, readable), parts.reduces)
    by_view = any(slots.views[slot].kind in parts.reduce_views for slot in readable)
    by_instr = bool(parts.reduces) and not (by_view and rand.randrange(2))
    if not by_instr:
        builder.reduce_registers = []
    else:
        builder.add(rand.choice(parts.reduces), builder.reduce_registers[-1], FLOAT, [builder.pick(FLOAT)])
    instrs = builder.build(rand.randrange(1, 12))
    if by_instr and rand.randrange(4) == 0:
        builder.maximum(parts.reduces[1])
    elif by_instr:
        _last(rand, builder)
    instrs = tuple(builder.instrs)
    extras = tuple(rand.choice(builder.defined) for _ in range(rand.randrange(6))) if form == "elementwise" else ()
    spec = empty._replace(instrs=instrs, extras=extras)
    kinds = [builder.register_kind[register] for register in (instrs[-1].dst, *extras)]
    return spec, (*dtypes, *(_output_dtype(rand, kind) for kind in kinds))
