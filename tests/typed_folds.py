"""Folds over integers, bools and floats, made of folds over floats.

An integer input is converted before it is used, and some instructions become integer ones between conversions. What a
state or a result is does not change, but the last instruction may make an integer or a bool of the result.
"""

from __future__ import annotations

import random

from nnk import ops
from nnk.expr.spec import ExprSpec, Fold, Instr, Operand
from tests.oracle import specrules as rules
from tests.typed_programs import BOOL, DTYPES, INT, SIGNATURES

__all__ = ["typed_fold"]

Random = random.Random

_CODE = {op.name: op.code for op in ops.OPS}

#: Ops of two integers, and of one.
_OF_INTEGERS = {arity: tuple(op.code for op in ops.OPS if SIGNATURES[op.code][0][0] == (INT,) * arity)
                for arity in (1, 2)}
#: Casts of a float -> the dtypes of an output that holds the result.
_LAST = {"f2i": ("int32", "uint8"), "f2u8": ("uint8", "int32"), "isnan": ("bool", "float32"),
         "isfinite": ("bool", "float32")}
MOST_CHANGED = 3


class _Rewriter:
    """Rewrites the body of a fold; new registers keep one role each."""

    def __init__(self, rand: Random, spec: ExprSpec, integers: frozenset[int]) -> None:
        self.rand, self.integers, self.num_regs = rand, integers, spec.num_regs
        self.instrs: list[Instr] = []
        self.floats: dict[int, Operand] = {}
        self.changed = 0

    def register(self) -> Operand:
        self.num_regs += 1
        return Operand(rules.REG, self.num_regs - 1)

    def emit(self, op: int, dst: Operand, *operands: Operand) -> Operand:
        self.instrs.append(Instr(op, dst.idx, *operands))
        return dst

    def as_float(self, operand: Operand) -> Operand:
        """An operand of the old body. An integer input becomes a float once, at times after an op on it."""
        if operand.kind != rules.INPUT or operand.idx not in self.integers:
            return operand
        if operand.idx not in self.floats:
            word = self.register()
            if self.rand.randrange(2):
                self.emit(self.rand.choice(_OF_INTEGERS[2]), word, operand, operand)
            else:
                self.emit(self.rand.choice(_OF_INTEGERS[1]), word, operand)
            self.floats[operand.idx] = self.back(word, self.register())
        return self.floats[operand.idx]

    def back(self, word: Operand, dst: Operand) -> Operand:
        """The result of the last instruction, an integer or a truth, as a float."""
        last = self.instrs[-1].op
        result = next(result for arguments, result in SIGNATURES[last] if set(arguments) != {BOOL})
        return self.emit(_CODE["i2f" if result == INT else "copy"], dst, word)

    def rewrite(self, instr: Instr) -> None:
        arity = rules.ARITY[instr.op]
        operands = [self.as_float(operand) for operand in rules.used_operands(instr)]
        if instr.op in rules.REDUCES or arity > 2 or self.changed >= MOST_CHANGED or self.rand.randrange(3):
            self.instrs.append(Instr(instr.op, instr.dst, *operands))
            return
        self.changed += 1
        words = [self.emit(_CODE["f2i"], self.register(), operand) for operand in operands]
        word = self.emit(self.rand.choice(_OF_INTEGERS[arity]), self.register(), *words)
        self.back(word, Operand(rules.REG, instr.dst))


def _operand_slots(fold: Fold) -> set[int]:
    """The slots that a matmul or the vectors read: floats or bools."""
    slots = set() if fold.matmul is None else {fold.matmul.a_input, fold.matmul.b_input}
    return slots if fold.vecacc is None else slots | {fold.vecacc.b_input}


def typed_fold(rand: Random, spec: ExprSpec) -> tuple[ExprSpec, tuple[str, ...]]:
    """A fold like ``spec`` with other dtypes, and the dtypes of its input slots and its output."""
    fold = spec.fold
    assert fold is not None
    floats = _operand_slots(fold)
    dtypes = [rand.choice(("float32", "bool") if slot in floats else tuple(DTYPES)) for slot in range(len(spec.views))]
    integers = frozenset(slot for slot, dtype in enumerate(dtypes) if DTYPES[dtype][2] == INT)
    rewriter = _Rewriter(rand, spec, integers)
    for instr in fold.body:
        rewriter.rewrite(instr)
    finalize, output = fold.finalize, rand.choice(("float32", "float32", "bool"))
    if rand.randrange(3) == 0:
        name = rand.choice(tuple(_LAST))
        last = finalize[-1]
        # What the last instruction reads is a float that outlives the blocks; a constant may be anything.
        finalize = (*finalize[:-1], Instr(_CODE[name], last.dst, last.a))
        output = rand.choice(_LAST[name])
    typed = spec._replace(num_regs=rewriter.num_regs,
                          fold=fold._replace(body=tuple(rewriter.instrs), finalize=finalize))
    if rewriter.num_regs > ops.LIMITS["regs"] or len(rewriter.instrs) > ops.LIMITS["fold_body"]:
        return spec, (*("bool" if dtype == "bool" else "float32" for dtype in dtypes), "float32")
    return typed, (*dtypes, output)
