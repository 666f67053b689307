"""A fold's body in single assignment form: classes, levels, and what is read after it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from nnk import ops
from nnk.errors import ExprError
from nnk.expr.spec import ExprSpec, Fold, Instr, Operand

__all__ = ["REGISTER_KINDS", "FoldValues", "Value"]

_KIND = {kind.code: kind.name for kind in ops.OPERANDS}
_REG = ops.OPERAND_BY_NAME["reg"].code
_VIEW = {view.code: view.name for view in ops.VIEWS}
_ROW_VIEWS = frozenset(("row_broadcast", "batch_mod"))
REGISTER_KINDS = frozenset(("reg", "fanout", "reduce"))


@dataclass(frozen=True)
class Value:
    """What one instruction of the body makes. A register operand below 0 is a state: -1 is state 0."""

    instr: Instr
    is_element: bool
    is_reduce: bool
    level: int


class FoldValues:
    """A body in single assignment form: the values, and what registers hold after it."""

    def __init__(self, spec: ExprSpec, fold: Fold) -> None:
        self.spec, self.fold = spec, fold
        self.values: list[Value] = []
        self.now = {state: -1 - state for state in range(fold.num_state)}
        for instr in fold.body:
            self.add(instr)
        self.check()
        self.live = self.reached()

    def is_element(self, operand: Operand) -> bool:
        """Say whether an operand has a value of its own for each element of a block."""
        kind = _KIND[operand.kind]
        if kind == "input":
            return _VIEW[self.spec.views[operand.idx].kind] not in _ROW_VIEWS
        if kind in REGISTER_KINDS:
            return operand.idx >= 0 and self.values[operand.idx].is_element
        return kind in ("matmul", "col")

    def level_of(self, operand: Operand) -> int:
        """Return the number of block reductions that lie before an operand."""
        if _KIND[operand.kind] not in REGISTER_KINDS or operand.idx < 0:
            return 0
        value = self.values[operand.idx]
        return value.level + value.is_reduce

    def add(self, instr: Instr) -> None:
        """Append the value of an instruction, its registers replaced by the values that they hold."""
        op = ops.OP_BY_CODE[instr.op]
        operands = [Operand(_REG, self.now[operand.idx]) if _KIND[operand.kind] in REGISTER_KINDS else operand
                    for operand in (instr.a, instr.b, instr.c)[:op.arity]]
        is_reduce = op.kind == "reduce"
        is_element = not is_reduce and any(map(self.is_element, operands))
        level = max(map(self.level_of, operands), default=0)
        number = len(self.values)
        self.values.append(Value(Instr(instr.op, number, *operands), is_element, is_reduce, level))
        self.now[instr.dst] = number

    def check(self) -> None:
        """Refuse what the format's rules leave open, as the CPU engine does."""
        for state in range(self.fold.num_state):
            if self.is_element(Operand(_REG, self.now[state])):
                raise ExprError(f"State {state} of the fold is overwritten for every element", op="fold")
        vecacc = self.fold.vecacc
        if vecacc is None:
            return
        if vecacc.weight_reg not in self.now:
            raise ExprError(f"The weight register {vecacc.weight_reg} of the fold is never written", op="fold")
        scale = self.now.get(vecacc.scale_reg)
        if vecacc.has_scale and (scale is None or self.is_element(Operand(_REG, scale))):
            raise ExprError(f"The scale register {vecacc.scale_reg} of the fold holds no value of a row", op="fold")

    def sources(self, number: int) -> Iterable[int]:
        """Return the values that value ``number`` is made of."""
        instr = self.values[number].instr
        for operand in (instr.a, instr.b, instr.c)[:ops.OP_BY_CODE[instr.op].arity]:
            if _KIND[operand.kind] in REGISTER_KINDS and operand.idx >= 0:
                yield operand.idx

    def results(self) -> list[int]:
        """Return what is read after the body: states, weight and scale."""
        vecacc = self.fold.vecacc
        registers = list(range(self.fold.num_state))
        if vecacc is not None:
            registers += [vecacc.weight_reg] + [vecacc.scale_reg] * vecacc.has_scale
        return [self.now[register] for register in registers]

    def reached(self) -> list[int]:
        """Return the values that the results are made of."""
        found: set[int] = set()
        stack = [number for number in self.results() if number >= 0]
        while stack:
            number = stack.pop()
            if number not in found:
                found.add(number)
                stack.extend(self.sources(number))
        return sorted(found)

    @property
    def levels(self) -> int:
        """Number of levels: one more than the most reductions one after the other."""
        return 1 + max((self.values[n].level + self.values[n].is_reduce for n in self.live), default=0)

    def at(self, level: int, is_element: bool, is_reduce: bool = False) -> list[int]:
        """Return the live values of one level and kind, in program order."""
        return [n for n in self.live if self.values[n].level == level
                and self.values[n].is_element == is_element and self.values[n].is_reduce == is_reduce]
