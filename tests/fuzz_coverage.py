"""What the parity fuzz has drawn: kernels by op, view, operand, dtype and form, and what of nnk's tables is missing."""

from __future__ import annotations

import textwrap
from collections import Counter

from nnk import ops
from nnk.expr import meta
from nnk.expr.dtypes import DTYPES
from nnk.expr.spec import ExprSpec, Instr
from tests import half_storage
from tests.oracle import specrules as rules
from tests.strategies import Case

__all__ = ["TABLES", "drawn", "lines", "missing"]

_OP = {op.code: op.name for op in ops.OPS}
_VIEW = {view.code: view.name for view in ops.VIEWS}
_OPERAND = {kind.code: kind.name for kind in ops.OPERANDS}

#: What is counted -> every name that nnk has for it.
TABLES: dict[str, tuple[str, ...]] = {
    "op": tuple(_OP.values()),
    "view": tuple(_VIEW.values()),
    "operand": tuple(_OPERAND.values()),
    "input": tuple(DTYPES),
    "output": tuple(DTYPES),
    "form": tuple(meta.HEADS),
}


def _instrs(spec: ExprSpec) -> tuple[Instr, ...]:
    return spec.instrs if spec.fold is None else (*spec.fold.body, *spec.fold.finalize)


def _read_slots(spec: ExprSpec) -> set[int]:
    """The input slots that the kernel reads."""
    slots = {operand.idx for instr in _instrs(spec) for operand in rules.used_operands(instr)
             if operand.kind == rules.INPUT}
    matmul = spec.matmul if spec.fold is None else spec.fold.matmul
    if matmul is not None:
        slots |= {matmul.a_input, matmul.b_input}
    if spec.fold is not None and spec.fold.vecacc is not None:
        slots.add(spec.fold.vecacc.b_input)
    return slots | {spec.views[slot].param for slot in slots if spec.views[slot].kind in (rules.TAKE, rules.ROW_GATHER)}


def _dtype(case: Case, slot: int, bit: int) -> str:
    if any(view.kind == rules.TAKE and view.param == slot for view in case.spec.views):
        return "int32"
    kind = half_storage.halves_of(case.launch.halves, bit)
    named = case.dtypes[slot] if case.dtypes else "float32"
    if kind != half_storage.FLOAT32_SLOT and named == "float32":
        return "float16" if kind == half_storage.FLOAT16_SLOT else "bfloat16"
    return named


def drawn(case: Case) -> set[tuple[str, str]]:
    """What one launch of a kernel has, as (name of a table, name of a row)."""
    spec, inputs = case.spec, len(case.spec.views)
    kernel = meta.kernel_meta_of(spec)
    found = {("form", "reduce_matmul" if kernel.form == "reduce" and kernel.has_matmul else kernel.form)}
    for instr in _instrs(spec):
        found.add(("op", _OP[instr.op]))
        found |= {("operand", _OPERAND[operand.kind]) for operand in rules.used_operands(instr)}
    for slot in _read_slots(spec):
        found |= {("view", _VIEW[spec.views[slot].kind]), ("input", _dtype(case, slot, slot))}
    return found | {("output", _dtype(case, inputs + index, half_storage.OUTPUT_BIT))
                    for index in range(1 + len(spec.extras))}


def missing(counts: Counter[tuple[str, str]]) -> list[str]:
    """The rows of the tables that nothing had."""
    return [f"{table} {name}" for table, names in TABLES.items() for name in names if not counts[table, name]]


def lines(counts: Counter[tuple[str, str]]) -> list[str]:
    """The counts by table, and a last line that names what is missing."""
    text = []
    for table, names in TABLES.items():
        row = ", ".join(f"{name} {counts[table, name]}" for name in names)
        text += textwrap.wrap(f"by {table}: {row}", 110, subsequent_indent="  ")
    absent = missing(counts)
    text += textwrap.wrap("never drawn: " + (", ".join(absent) or "nothing of the tables"), 110,
                          subsequent_indent="  ")
    return text
