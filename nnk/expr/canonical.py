"""The canonical form of an ExprSpec: an ordered list of small pure passes, idempotent.

Every rewrite is exact for all float32 values, NaN, infinities and -0 included (docs/numerics.md R2): ``x + (+0)``,
``0 * x`` and ``0 - x`` stay as they are. Constants are pooled by bit pattern. Folds are left unchanged.

The passes work on a value form, in which an instruction is named by its position and operands refer to positions;
registers come back in the last pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from nnk import ops
from nnk.expr.spec import NO_OPERAND, ExprSpec, Instr, Operand
from nnk.numerics import NAN_BITS

__all__ = ["ValueForm", "canonicalise", "fold_constant", "to_values"]

_REG, _CONST, _FANOUT, _REDUCE = (ops.OPERAND_BY_NAME[name].code for name in ("reg", "const", "fanout", "reduce"))
_VALUE_KINDS = frozenset((_REG, _FANOUT, _REDUCE))
_NAME = {op.code: op.name for op in ops.OPS}
_ONE, _PLUS_ZERO, _MINUS_ZERO = 0x3F800000, 0x00000000, 0x80000000


@dataclass(frozen=True)
class ValueForm:
    """Instructions whose dst and register operands are positions in ``instrs``."""

    instrs: tuple[Instr, ...]
    consts: tuple[int, ...]
    outputs: tuple[int, ...]


def _is_reduce(instr: Instr) -> bool:
    return ops.OP_BY_CODE[instr.op].kind == "reduce"


def _remap(instr: Instr, dst: int, operand_of: Callable[[Operand], Operand]) -> Instr:
    arity = ops.OP_BY_CODE[instr.op].arity
    used = [operand_of(operand) for operand in (instr.a, instr.b, instr.c)[:arity]]
    used += [NO_OPERAND] * (3 - arity)
    return Instr(instr.op, dst, *used)


def to_values(spec: ExprSpec) -> ValueForm:
    """Rename registers to the position of the instruction that wrote them last."""
    writer: dict[int, int] = {}
    instrs = []
    for position, instr in enumerate(spec.instrs):
        instrs.append(_remap(instr, position, lambda operand: Operand(operand.kind, writer[operand.idx])
                             if operand.kind in _VALUE_KINDS else operand))
        writer[instr.dst] = position
    outputs = (len(instrs) - 1, *(writer[register] for register in spec.extras))
    return ValueForm(tuple(instrs), spec.const_bits, outputs)


# ------------------------------------------------------------------------------------------ constants

def _is_nan(bits: int) -> bool:
    return bits & 0x7FFFFFFF > 0x7F800000


def _order(bits: int) -> int:
    """Map float bits to an integer with the same order, -0 below +0 (R6)."""
    return bits if bits < 0x80000000 else -(bits & 0x7FFFFFFF) - 1


def _pick(larger: bool, a: int, b: int) -> int:
    if _is_nan(a) or _is_nan(b):
        return NAN_BITS
    return a if (_order(a) >= _order(b)) == larger else b


def _arithmetic(name: str, a: int, b: int) -> int:
    x = np.array(a, np.uint32).view(np.float32)
    y = np.array(b, np.uint32).view(np.float32)
    function = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}[name]
    with np.errstate(all="ignore"):
        bits = int(np.asarray(function(x, y, dtype=np.float32)).view(np.uint32))
    return NAN_BITS if _is_nan(bits) else bits


def _compare(name: str, a: int, b: int) -> int:
    if _is_nan(a) or _is_nan(b):
        return _ONE if name == "ne" else 0
    x, y = (0 if bits == _MINUS_ZERO else _order(bits) for bits in (a, b))
    truth = {"lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y, "eq": x == y, "ne": x != y}[name]
    return _ONE if truth else 0


def fold_constant(op: int, operands: tuple[int, ...]) -> int:
    """Return the float32 bits of a foldable op applied to constant bits, by the numerics contract."""
    row = ops.OP_BY_CODE[op]
    if row.name == "neg":
        return operands[0] ^ 0x80000000
    if row.name == "abs":
        return operands[0] & 0x7FFFFFFF
    if row.name in ("max", "min"):
        return _pick(row.name == "max", *operands)
    if row.name == "select":
        return operands[1] if operands[0] & 0x7FFFFFFF else operands[2]
    if row.kind == "compare":
        return _compare(row.name, *operands)
    return _arithmetic(row.name, *operands)


# ------------------------------------------------------------------------------------------ simplification

class _Simplifier:
    """Pass 1: pool constants by bits, fold constant instructions, apply the exact identities."""

    def __init__(self, program: ValueForm) -> None:
        self.program = program
        self.consts: list[int] = []
        self.emitted: list[Instr] = []
        self.value: dict[int, Operand] = {}

    def pool(self, bits: int) -> Operand:
        if bits not in self.consts:
            self.consts.append(bits)
        return Operand(_CONST, self.consts.index(bits))

    def operand(self, operand: Operand) -> Operand:
        if operand.kind == _CONST:
            return self.pool(self.program.consts[operand.idx])
        if operand.kind == _REDUCE:
            return Operand(_REDUCE, self.value[operand.idx].idx)
        if operand.kind in _VALUE_KINDS:
            # Fanout is another name of reg, so that max(reg x, fanout x) is x already here.
            return self.value[operand.idx]
        return operand

    def bits(self, operand: Operand) -> int | None:
        return self.consts[operand.idx] if operand.kind == _CONST else None

    def replacement(self, instr: Instr) -> Operand | None:
        """Return the operand that equals ``instr`` for every input, if there is one."""
        name = _NAME[instr.op]
        arity = ops.OP_BY_CODE[instr.op].arity
        known = [self.bits(operand) for operand in (instr.a, instr.b, instr.c)[:arity]]
        if ops.OP_BY_CODE[instr.op].foldable and None not in known:
            return self.pool(fold_constant(instr.op, tuple(bits for bits in known if bits is not None)))
        if name == "neg" and instr.a.kind in (_REG, _FANOUT) and _NAME[self.emitted[instr.a.idx].op] == "neg":
            return self.emitted[instr.a.idx].a
        if (name, known[-1]) in _RIGHT_IDENTITIES:
            return instr.a
        if (name, known[0]) in _LEFT_IDENTITIES:
            return instr.b
        if name in ("max", "min") and instr.a == instr.b:
            return instr.a
        if name == "select":
            if known[0] is not None:
                return instr.b if known[0] & 0x7FFFFFFF else instr.c
            if instr.b == instr.c:
                return instr.b
        return None

    def run(self) -> ValueForm:
        pinned = set(self.program.outputs)
        for position, old in enumerate(self.program.instrs):
            instr = _remap(old, len(self.emitted), self.operand)
            replaced = None if position in pinned or _is_reduce(old) else self.replacement(instr)
            if replaced is None:
                self.value[position] = Operand(_REG, len(self.emitted))
                self.emitted.append(instr)
            else:
                self.value[position] = replaced
        outputs = tuple(self.value[position].idx for position in self.program.outputs)
        return ValueForm(tuple(self.emitted), tuple(self.consts), outputs)


#: op name and the constant (bits) on its right that leaves the left operand unchanged, and the mirror image.
_RIGHT_IDENTITIES = frozenset((("sub", _PLUS_ZERO), ("add", _MINUS_ZERO), ("mul", _ONE), ("div", _ONE)))
_LEFT_IDENTITIES = frozenset((("add", _MINUS_ZERO), ("mul", _ONE)))


def _simplify(program: ValueForm) -> ValueForm:
    return _Simplifier(program).run()


def _drop_dead(program: ValueForm) -> ValueForm:
    """Pass 2: keep what an output needs."""
    live = set(program.outputs)
    for position in range(len(program.instrs) - 1, -1, -1):
        if position in live:
            instr = program.instrs[position]
            arity = ops.OP_BY_CODE[instr.op].arity
            live.update(operand.idx for operand in (instr.a, instr.b, instr.c)[:arity]
                        if operand.kind in _VALUE_KINDS)
    return _keep(program, sorted(live))


def _keep(program: ValueForm, positions: list[int]) -> ValueForm:
    new = {old: index for index, old in enumerate(positions)}
    instrs = tuple(_remap(program.instrs[old], index, lambda operand: Operand(operand.kind, new[operand.idx])
                          if operand.kind in _VALUE_KINDS else operand) for index, old in enumerate(positions))
    return replace(program, instrs=instrs, outputs=tuple(new[position] for position in program.outputs))


def _renumber_consts(program: ValueForm) -> ValueForm:
    """Pass 3: keep the constants that are used, in the order of their first use."""
    order: list[int] = []

    def operand_of(operand: Operand) -> Operand:
        if operand.kind != _CONST:
            return operand
        if operand.idx not in order:
            order.append(operand.idx)
        return Operand(_CONST, order.index(operand.idx))

    instrs = tuple(_remap(instr, instr.dst, operand_of) for instr in program.instrs)
    return replace(program, instrs=instrs, consts=tuple(program.consts[index] for index in order))


def _share(program: ValueForm) -> ValueForm:
    """Pass 4: common subexpressions; fanout becomes reg. The last instruction is always kept."""
    seen: dict[tuple[int, Operand, Operand, Operand], int] = {}
    new: dict[int, int] = {}
    instrs: list[Instr] = []

    def operand_of(operand: Operand) -> Operand:
        if operand.kind == _REDUCE:
            return Operand(_REDUCE, new[operand.idx])
        if operand.kind in _VALUE_KINDS:
            return Operand(_REG, new[operand.idx])
        return operand

    for position, old in enumerate(program.instrs):
        instr = _remap(old, len(instrs), operand_of)
        key = (instr.op, instr.a, instr.b, instr.c)
        if key in seen and position != len(program.instrs) - 1:
            new[position] = seen[key]
            continue
        seen.setdefault(key, len(instrs))
        new[position] = len(instrs)
        instrs.append(instr)
    return ValueForm(tuple(instrs), program.consts, tuple(new[position] for position in program.outputs))


def _allocate(program: ValueForm) -> tuple[tuple[Instr, ...], dict[int, int], int]:
    """Pass 5: registers. Strict release: an operand's register is not reused by its last consumer."""
    last_use = dict.fromkeys(program.outputs, len(program.instrs) - 1)
    for position, instr in enumerate(program.instrs):
        for operand in (instr.a, instr.b, instr.c)[:ops.OP_BY_CODE[instr.op].arity]:
            if operand.kind in _VALUE_KINDS:
                last_use[operand.idx] = max(position, last_use.get(operand.idx, 0))
    register: dict[int, int] = {}
    free: list[int] = []
    busy: list[tuple[int, int]] = []
    total = 0
    for position, instr in enumerate(program.instrs):
        if _is_reduce(instr):
            continue
        free += [reg for end, reg in busy if end < position]
        busy = [(end, reg) for end, reg in busy if end >= position]
        if free:
            chosen = min(free)
            free.remove(chosen)
        else:
            chosen = total
            total += 1
        register[position] = chosen
        busy.append((last_use.get(position, position), chosen))
    for position, instr in enumerate(program.instrs):
        if _is_reduce(instr):
            register[position] = total
            total += 1
    instrs = tuple(_remap(instr, register[position], lambda operand: Operand(operand.kind, register[operand.idx])
                          if operand.kind in _VALUE_KINDS else operand)
                   for position, instr in enumerate(program.instrs))
    return instrs, register, total


_PASSES: tuple[Callable[[ValueForm], ValueForm], ...] = (_simplify, _drop_dead, _renumber_consts, _share)


def canonicalise(spec: ExprSpec) -> ExprSpec:
    """Return the canonical form of a valid ``spec``; its key is the key of the kernel.

    Inputs, views, run-time parameters and the matmul segment pass through. A fold is returned unchanged, and so is a
    spec whose rewritten form would need more registers or constants than the format allows.
    """
    if spec.fold is not None:
        return spec
    if not spec.instrs:
        return spec._replace(num_regs=0, const_bits=(), extras=())
    program = to_values(spec)
    while True:
        before = program
        for rewrite in _PASSES:
            program = rewrite(program)
        if program == before:
            break
    instrs, register, total = _allocate(program)
    if total > ops.LIMITS["regs"] or len(program.consts) > ops.LIMITS["consts"]:
        return spec
    return spec._replace(num_regs=total, instrs=instrs, const_bits=program.consts,
                         extras=tuple(register[position] for position in program.outputs[1:]))
