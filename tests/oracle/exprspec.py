"""ExprSpec bytes, key and canonical form in pure Python.

Specs are plain nested tuples in the order of ``nnk/expr/spec.py``: operands (kind, idx); instructions (op, dst, a, b,
c); views (kind, negate, param, param2); constants and run-time parameters as float32 bit patterns.
"""

from __future__ import annotations

import struct
from typing import Any

from nnk.errors import SpecDecodeError
from tests.oracle import arith
from tests.oracle.specrules import (
    ADD,
    ARITY,
    COL_MAX,
    COL_SUM,
    COL_VIEWS,
    CONST,
    DIV,
    FANOUT,
    FOLDABLE,
    MAX,
    MIN,
    MUL,
    NEG,
    NEG_ZERO,
    ONE,
    OPERAND_KINDS,
    POS_ZERO,
    REDUCE,
    REDUCES,
    REG,
    ROW_MAX,
    ROW_SUM,
    ROW_VIEWS,
    RUNTIME_VIEWS,
    SELECT,
    SUB,
    VIEW_KINDS,
    Spec,
    used_operands,
)

MAGIC = b"NNEXP"
VERSION = 10

# ---------------------------------------------------------------------------------------------------------- bytes

def _instr_bytes(instr: Spec) -> bytes:
    op, dst, a, b, c = instr
    return bytes([op, dst, *a, *b, *c])


def _u32s(values: Any) -> bytes:
    return b"".join(struct.pack("<I", value) for value in values)


def _counted(items: list[bytes]) -> bytes:
    return struct.pack("<I", len(items)) + b"".join(items)


def _matmul_bytes(matmul: Spec | None) -> bytes:
    if matmul is None:
        return b"\0"
    a, b, trans_a, trans_b, k, batch = matmul
    return bytes([1, a, b, trans_a, trans_b]) + struct.pack("<II", k, batch)


def _fold_bytes(fold: Spec | None) -> bytes:
    if fold is None:
        return b"\0"
    num_state, k, inits, body, finalize, vec_state_len, matmul, vecacc, tri_skip = fold
    out = bytes([1, num_state]) + struct.pack("<I", k)
    out += _counted([struct.pack("<I", bits) for bits in inits])
    out += _counted([_instr_bytes(instr) for instr in body])
    out += _counted([_instr_bytes(instr) for instr in finalize])
    out += struct.pack("<I", vec_state_len)
    out += _matmul_bytes(matmul)
    out += b"\0" if vecacc is None else bytes([1, *vecacc])
    return out + bytes([tri_skip])


def encode(spec: Spec) -> bytes:
    num_regs, instrs, views, consts, rparams, matmul, fold, extras = spec
    out = MAGIC + bytes([VERSION]) + struct.pack("<I", 1)
    out += struct.pack("<I", num_regs)
    out += _counted([_instr_bytes(instr) for instr in instrs])
    out += _counted([struct.pack("<BBII", *view) for view in views])
    out += _counted([struct.pack("<I", bits) for bits in consts])
    out += _counted([struct.pack("<I", bits) for bits in rparams])
    out += _matmul_bytes(matmul)
    out += _fold_bytes(fold)
    return out + _counted([bytes([register]) for register in extras])


class _Reader:
    """Reads one field after the other; every error carries the position of the field's first byte."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def _take(self, size: int) -> int:
        if self.at + size > len(self.data):
            raise SpecDecodeError(f"SpecDecodeError at byte {self.at}: the data ends", offset=self.at)
        value = int.from_bytes(self.data[self.at:self.at + size], "little")
        self.at += size
        return value

    def _refuse(self, size: int, what: str) -> SpecDecodeError:
        start = self.at - size
        return SpecDecodeError(f"SpecDecodeError at byte {start}: {what}", offset=start)

    def u8(self) -> int:
        return self._take(1)

    def u32(self) -> int:
        return self._take(4)

    def known(self, numbers: Any, what: str) -> int:
        value = self.u8()
        if value not in numbers:
            raise self._refuse(1, f"unknown {what} {value}")
        return value

    def boolean(self) -> int:
        return self.known((0, 1), "boolean")

    def count(self, limit: int) -> int:
        value = self.u32()
        if value > limit:
            raise self._refuse(4, f"count {value} is over {limit}")
        return value

    def operand(self) -> Spec:
        return (self.known(OPERAND_KINDS, "operand"), self.u8())

    def instrs(self, limit: int) -> Spec:
        return tuple((self.known(ARITY, "op"), self.u8(), self.operand(), self.operand(), self.operand())
                     for _ in range(self.count(limit)))

    def words(self, limit: int) -> tuple[int, ...]:
        return tuple(self.u32() for _ in range(self.count(limit)))

    def matmul(self) -> Spec | None:
        if not self.boolean():
            return None
        return (self.u8(), self.u8(), self.boolean(), self.boolean(), self.u32(), self.u32())

    def fold(self) -> Spec | None:
        if not self.boolean():
            return None
        num_state = self.known(range(9), "number of states")
        k = self.u32()
        inits = self.words(8)
        body = self.instrs(48)
        finalize = self.instrs(16)
        vec_state_len = self.count(1024)
        matmul = self.matmul()
        vecacc = (self.u8(), self.u8(), self.u8(), self.u8(), self.boolean()) if self.boolean() else None
        return (num_state, k, inits, body, finalize, vec_state_len, matmul, vecacc, self.boolean())


def decode(data: bytes) -> Spec:
    if data[:5] != MAGIC:
        raise SpecDecodeError("SpecDecodeError at byte 0: wrong magic", offset=0)
    reader = _Reader(data)
    reader.at = 5
    reader.known((VERSION,), "version")
    if reader.u32() != 1:
        raise SpecDecodeError("SpecDecodeError at byte 6: expected one spec", offset=6)
    num_regs = reader.count(32)
    instrs = reader.instrs(64)
    views = tuple((reader.known(VIEW_KINDS, "view"), reader.boolean(), reader.u32(), reader.u32())
                  for _ in range(reader.count(16)))
    consts = reader.words(16)
    rparams = reader.words(16)
    matmul = reader.matmul()
    fold = reader.fold()
    extras = tuple(reader.u8() for _ in range(reader.count(32)))
    if reader.at != len(data):
        raise SpecDecodeError(f"SpecDecodeError at byte {reader.at}: trailing bytes", offset=reader.at)
    return (num_regs, instrs, views, consts, rparams, matmul, fold, extras)


# ------------------------------------------------------------------------------------------------------------ key

def _fed_instr(instr: Spec) -> bytes:
    operands = [*used_operands(instr), (0, 0), (0, 0), (0, 0)][:3]
    return _instr_bytes((instr[0], instr[1], *operands))


def key_bytes(spec: Spec) -> bytes:
    """The bytes that the key is the hash of (exprspec 4.1)."""
    num_regs, instrs, views, consts, rparams, matmul, fold, extras = spec
    out = struct.pack("<II", num_regs, len(instrs))
    out += b"".join(_fed_instr(instr) for instr in instrs)
    out += struct.pack("<I", len(views))
    for kind, negate, param, param2 in views:
        out += bytes([kind, negate])
        if kind not in RUNTIME_VIEWS:
            out += struct.pack("<II", param, param2)
    out += struct.pack("<II", len(consts), len(rparams))
    if matmul is not None:
        out += bytes([matmul[0], matmul[1]])
    if fold is not None:
        num_state, _k, inits, body, finalize, _length, fold_matmul, vecacc, tri_skip = fold
        out += bytes([num_state]) + struct.pack("<I", len(inits)) + _u32s(inits)
        out += struct.pack("<I", len(body)) + b"".join(_fed_instr(instr) for instr in body)
        out += struct.pack("<I", len(finalize)) + b"".join(_fed_instr(instr) for instr in finalize)
        if fold_matmul is not None:
            out += bytes(fold_matmul[:4])
        if vecacc is not None:
            out += bytes(vecacc)
        out += bytes([tri_skip])
    if extras:
        out += struct.pack("<I", len(extras)) + bytes(extras)
    return out


def fnv1a_64(data: bytes) -> int:
    state = 0xCBF29CE484222325
    for byte in data:
        state = ((state ^ byte) * 0x100000001B3) % 2**64
    return state


def raw_key(spec: Spec) -> int:
    """The key of a spec as it stands."""
    return fnv1a_64(key_bytes(spec))


def key(spec: Spec) -> str:
    """The key of a spec's canonical form, 16 hex digits."""
    return f"{raw_key(canonicalise(spec)):016x}"


def reduce_axis(spec: Spec) -> int:
    """-1 none, 0 all row, 1 all column, -2 mixed (exprspec 3.10)."""
    kinds = [view[0] for view in spec[2]]
    ops = [instr[0] for instr in spec[1]]
    row = any(kind in ROW_VIEWS for kind in kinds) or any(op in (ROW_SUM, ROW_MAX) for op in ops)
    column = any(kind in COL_VIEWS for kind in kinds) or any(op in (COL_SUM, COL_MAX) for op in ops)
    return {(False, False): -1, (True, False): 0, (False, True): 1, (True, True): -2}[row, column]


# -------------------------------------------------------------------------------------------------- canonical form
#
# The passes work on "values": instruction i makes value i, and a Reg, Fanout or Reduce operand names the value that
# the register holds when the instruction runs. So a register that is written twice needs no care.

Value = list[Any]


def _values_of(instrs: Spec) -> tuple[list[Value], dict[int, int]]:
    """[op, operands] of every instruction, registers replaced by values; and the last value of every register."""
    writer: dict[int, int] = {}
    values = []
    for number, instr in enumerate(instrs):
        operands = []
        for kind, idx in used_operands(instr):
            if kind in (REG, FANOUT):
                operands.append((REG, writer[idx]))
            elif kind == REDUCE:
                operands.append((REDUCE, writer[idx]))
            else:
                operands.append((kind, idx))
        values.append([instr[0], operands])
        writer[instr[1]] = number
    return values, writer


class _Pool:
    """Constants by bit pattern, in order of first occurrence."""

    def __init__(self) -> None:
        self.bits: list[int] = []

    def slot(self, bits: int) -> int:
        if bits not in self.bits:
            self.bits.append(bits)
        return self.bits.index(bits)


def _fold_constants(op: int, bits: list[int]) -> int:
    return arith.EXACT[op](*bits)


def _identity(op: int, operands: list[Spec], pool: _Pool, negated: dict[int, Spec]) -> Spec | None:
    """The operand that the instruction is equal to for every float32, if there is one."""
    def is_const(operand: Spec, bits: int) -> bool:
        return operand[0] == CONST and pool.bits[operand[1]] == bits

    if op == NEG and operands[0][0] == REG:
        return negated.get(operands[0][1])
    if op == ADD and is_const(operands[0], NEG_ZERO):
        return operands[1]
    if op == ADD and is_const(operands[1], NEG_ZERO):
        return operands[0]
    if op == SUB and is_const(operands[1], POS_ZERO):
        return operands[0]
    if op == MUL and is_const(operands[0], ONE):
        return operands[1]
    if op in (MUL, DIV) and is_const(operands[1], ONE):
        return operands[0]
    if op in (MAX, MIN) and operands[0] == operands[1]:
        return operands[0]
    if op == SELECT:
        condition, then, other = operands
        if condition[0] == CONST:
            return other if arith.is_zero(pool.bits[condition[1]]) else then
        if then == other:
            return then
    return None


def _simplify(values: dict[int, Value], consts: tuple[int, ...], outputs: list[int]) -> tuple[dict[int, Value], Any]:
    """P1: pool constants, fold them, replace identities. Reductions and outputs stay."""
    pool = _Pool()
    slots = [pool.slot(bits) for bits in consts]
    replaced: dict[int, Spec] = {}
    negated: dict[int, Spec] = {}
    kept: dict[int, Value] = {}
    for number, (op, old) in values.items():
        operands = []
        for kind, idx in old:
            if kind == CONST:
                operands.append((CONST, slots[idx]))
            elif kind == REG and idx in replaced:
                operands.append(replaced[idx])
            else:
                operands.append((kind, idx))
        if op not in REDUCES and number not in outputs:
            if op in FOLDABLE and all(kind == CONST for kind, _idx in operands):
                replaced[number] = (CONST, pool.slot(_fold_constants(op, [pool.bits[idx] for _kind, idx in operands])))
                continue
            same = _identity(op, operands, pool, negated)
            if same is not None:
                replaced[number] = same
                continue
        if op == NEG:
            negated[number] = operands[0]
        kept[number] = [op, operands]
    return kept, pool.bits


def _remove_dead(values: dict[int, Value], outputs: list[int]) -> dict[int, Value]:
    """P2."""
    alive = set(outputs)
    for number in reversed(list(values)):
        if number in alive:
            alive |= {idx for kind, idx in values[number][1] if kind in (REG, REDUCE)}
    return {number: value for number, value in values.items() if number in alive}


def _renumber_consts(values: dict[int, Value], pool: list[int]) -> tuple[dict[int, Value], tuple[int, ...]]:
    """The const half of P3: keep what is used, in order of first use."""
    order: list[int] = []
    for _op, operands in values.values():
        order += [idx for kind, idx in operands if kind == CONST and idx not in order]
        order = list(dict.fromkeys(order))
    renamed = {number: [op, [(CONST, order.index(idx)) if kind == CONST else (kind, idx) for kind, idx in operands]]
               for number, (op, operands) in values.items()}
    return renamed, tuple(pool[idx] for idx in order)


def _merge_equal(values: dict[int, Value], outputs: list[int]) -> tuple[dict[int, Value], list[int]]:
    """P4: a value that was computed before is that value. The last instruction stays."""
    merged: dict[int, int] = {}
    seen: dict[Any, int] = {}
    kept: dict[int, Value] = {}
    last = max(values)
    for number, (op, old) in values.items():
        operands = [(kind, merged.get(idx, idx)) if kind in (REG, REDUCE) else (kind, idx) for kind, idx in old]
        same = seen.setdefault((op, *operands), number)
        if same != number and number != last:
            merged[number] = same
        else:
            kept[number] = [op, operands]
    return kept, [merged.get(number, number) for number in outputs]


def _allocate(values: dict[int, Value], outputs: list[int]) -> dict[int, int]:
    """P5: the register of every value; a register is free again strictly after its last use."""
    order = list(values)
    position = {number: i for i, number in enumerate(order)}
    release = {}
    for number in order:
        for kind, idx in values[number][1]:
            if kind == REG:
                release[idx] = position[number]
    for number in outputs:
        release[number] = len(order) - 1
    register: dict[int, int] = {}
    busy: dict[int, int] = {}
    total = 0
    for number in order:
        if values[number][0] in REDUCES:
            continue
        busy = {reg: until for reg, until in busy.items() if until >= position[number]}
        free = next(reg for reg in range(len(order)) if reg not in busy)
        register[number] = free
        busy[free] = release[number]
        total = max(total, free + 1)
    for number in order:
        if values[number][0] in REDUCES:
            register[number] = total
            total += 1
    return register


def canonicalise(spec: Spec) -> Spec:
    """The canonical form (exprspec 5.1, restricted by the numerics contract); a spec with a fold is its own."""
    _num_regs, instrs, views, consts, rparams, matmul, fold, extras = spec
    if fold is not None:
        return spec
    if not instrs:
        return (0, (), views, (), rparams, matmul, None, extras)
    listed, writer = _values_of(instrs)
    values = dict(enumerate(listed))
    outputs = [len(instrs) - 1, *(writer[register] for register in extras)]
    while True:
        before = (values, consts, outputs)
        values, pool = _simplify(values, consts, outputs)
        values = _remove_dead(values, outputs)
        values, consts = _renumber_consts(values, pool)
        values, outputs = _merge_equal(values, outputs)
        # Merging may leave max(x, x) behind: the passes repeat until nothing changes.
        if (values, consts, outputs) == before:
            break
    register = _allocate(values, outputs)
    program = []
    for number, (op, operands) in values.items():
        renamed = [(kind, register[idx]) if kind in (REG, REDUCE) else (kind, idx) for kind, idx in operands]
        a, b, c = [*renamed, (0, 0), (0, 0), (0, 0)][:3]
        program.append((op, register[number], a, b, c))
    num_regs = max(register.values()) + 1
    if num_regs > 32 or len(consts) > 16:
        # Folding can make constants, and sharing can keep registers busy: a spec that would not fit stays as it is.
        return spec
    return (num_regs, tuple(program), views, consts, rparams, matmul, None,
            tuple(register[number] for number in outputs[1:]))
