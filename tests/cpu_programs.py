"""Specs, launches and comparisons for tests of the CPU engine's core."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nnk import ops
from nnk._fast import cpu
from nnk.errors import ShapeError
from nnk.expr.meta import Launch, kernel_meta_of, out_count_of, pack_words
from nnk.expr.spec import ExprSpec, Instr, Matmul, Operand, ViewSpec
from tests.oracle.evaluate import evaluate
from tests.strategies import SPECIAL_BITS

OP = {name: op.code for name, op in ops.OP_BY_NAME.items()}
VIEW = {name: view.code for name, view in ops.VIEW_BY_NAME.items()}
KIND = {name: kind.code for name, kind in ops.OPERAND_BY_NAME.items()}
GUARD = np.float32(12345.0)
ISAS = cpu.isas()


def arg(kind: str, idx: int = 0) -> Operand:
    return Operand(KIND[kind], idx)


def instr(op: str, dst: int, *operands: Operand) -> Instr:
    return Instr(OP[op], dst, *operands)


def views(*names: str) -> tuple[ViewSpec, ...]:
    return tuple(ViewSpec(VIEW[name]) for name in names)


def launch_of(spec: ExprSpec, rows: int, cols: int, words: Any = None, **more: int) -> Launch:
    return Launch(rows, cols, words or ((),) * len(spec.views), spec.const_bits, spec.rparam_bits, **more)


def run(spec: ExprSpec, launch: Launch, inputs: list[Any], threads: int = 1) -> list[Any]:
    """Return the outputs as bits; a guard behind each of them must survive."""
    meta = kernel_meta_of(spec)
    size = out_count_of(meta, launch)
    outputs = [np.full(size + 5, GUARD, np.float32) for _ in range(meta.n_outputs)]
    cpu.Program(spec, meta).run(pack_words(meta, launch), inputs, outputs, threads)
    assert all((output[size:] == GUARD).all() for output in outputs)
    return [output[:size].view(np.uint32) for output in outputs]


def check(spec: ExprSpec, launch: Launch, inputs: list[Any], threads: tuple[int, ...] = (1, 3),
          isas: tuple[str, ...] = ISAS) -> None:
    """Compare all outputs with the oracle, bit for bit."""
    with np.errstate(all="ignore"):
        expected = [np.ascontiguousarray(value).view(np.uint32) for value in evaluate(spec, launch, inputs)]
    for isa in isas:
        cpu.set_isa(isa)
        for count in threads:
            for got, wanted in zip(run(spec, launch, inputs, count), expected, strict=True):
                differ = np.flatnonzero(got != wanted)
                assert differ.size == 0, (isa, count, f"{differ.size} of {got.size} differ, first at {differ[0]}: "
                                          f"{got[differ[0]]:#x}, expected {wanted[differ[0]]:#x}")


def floats(rng: np.random.Generator, count: int, special: float = 0.1) -> Any:
    bits = (rng.standard_normal(count) * 3).astype(np.float32).view(np.uint32)
    chosen = rng.choice(np.array(SPECIAL_BITS, np.uint32), count)
    return np.where(rng.random(count) < special, chosen, bits).astype(np.uint32).view(np.float32)


def refused(spec: ExprSpec, launch: Launch, inputs: list[Any], error: type[Exception] = ShapeError,
            outputs: list[Any] | None = None, match: str | None = None) -> None:
    """Run and expect an error before anything is written."""
    meta = kernel_meta_of(spec)
    outputs = outputs or [np.zeros(out_count_of(meta, launch), np.float32) for _ in range(meta.n_outputs)]
    with pytest.raises(error, match=match):
        cpu.Program(spec, meta).run(pack_words(meta, launch), inputs, outputs)
    assert not any(np.any(output) for output in outputs if isinstance(output, np.ndarray))


SOFTMAX = ExprSpec(6, (
    instr("row_max", 0, arg("input")), instr("sub", 1, arg("input"), arg("reduce", 0)), instr("exp", 2, arg("reg", 1)),
    instr("row_sum", 3, arg("reg", 2)), instr("div", 4, arg("reg", 2), arg("reduce", 3))), views("linear"))
ROW_SUM = ExprSpec(1, (instr("row_sum", 0, arg("input")),), views("linear"))
ROW_MAX = ExprSpec(1, (instr("row_max", 0, arg("input")),), views("linear"))
PURE = ExprSpec(0, (), views("linear", "linear"), matmul=Matmul(0, 1))
