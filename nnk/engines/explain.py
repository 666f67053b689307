"""What a tensor would run: kernels with key, spec, GLSL, meta data, and whether the cache has them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nnk import ops
from nnk.engines.base import Engine
from nnk.engines.schedule import Step
from nnk.errors import ExprError
from nnk.expr.node import Tensor
from nnk.expr.spec import ExprSpec, Fold, Instr, Operand, float_of
from nnk.generator.glsl import emit

__all__ = ["Explanation", "KernelExplanation", "explain", "spec_text"]

_KIND = {kind.code: kind for kind in ops.OPERANDS}
_PREFIX = {"reg": "r", "input": "in", "const": "c", "fanout": "r", "reduce": "reduce r", "rparam": "p"}


def _operand_text(operand: Operand) -> str:
    kind = _KIND[operand.kind]
    return f"{_PREFIX[kind.name]}{operand.idx}" if kind.indexed else kind.name


def _instr_text(instr: Instr) -> str:
    op = ops.OP_BY_CODE[instr.op]
    return f"r{instr.dst} = {op.name}({', '.join(map(_operand_text, (instr.a, instr.b, instr.c)[:op.arity]))})"


def _fold_text(fold: Fold) -> list[str]:
    """Return a fold: its states, what a block does, what follows the last one."""
    skip = ", items up to the diagonal" if fold.tri_skip else ""
    lines = [f"fold over {fold.k}{skip}:",
             *(f"  r{state} = {float_of(bits)!r} at first" for state, bits in enumerate(fold.init_bits))]
    if fold.matmul is not None:
        a, b = ("^T" if trans else "" for trans in (fold.matmul.trans_a, fold.matmul.trans_b))
        lines.append(f"  matmul = in{fold.matmul.a_input}{a} @ in{fold.matmul.b_input}{b}")
    lines += ["  " + _instr_text(instr) for instr in fold.body]
    if fold.vecacc is not None:
        scaled = f"r{fold.vecacc.scale_reg} * vec_state" if fold.vecacc.has_scale else "vec_state"
        lines.append(f"  vec_state = {scaled} + r{fold.vecacc.weight_reg} @ in{fold.vecacc.b_input}")
    return [*lines, "then:", *("  " + _instr_text(instr) for instr in fold.finalize)]


def spec_text(spec: ExprSpec) -> str:
    """Return ``spec`` as readable lines: inputs with their views, values, instructions."""
    lines = []
    for slot, view in enumerate(spec.views):
        row = ops.VIEW_BY_CODE[view.kind]
        lines.append(f"in{slot}: {row.name}" + (f"({view.param})" if view.param else ""))
    lines += [f"c{slot} = {float_of(bits)!r}" for slot, bits in enumerate(spec.const_bits)]
    lines += [f"p{slot} = {float_of(bits)!r}" for slot, bits in enumerate(spec.rparam_bits)]
    if spec.matmul is not None:
        lines.append(f"matmul = in{spec.matmul.a_input} @ in{spec.matmul.b_input}")
    lines += map(_instr_text, spec.instrs)
    if spec.fold is not None:
        lines += _fold_text(spec.fold)
    if spec.extras:
        lines.append("outputs " + ", ".join(f"r{register}" for register in (spec.instrs[-1].dst, *spec.extras)))
    return "\n".join(lines)


@dataclass(frozen=True)
class KernelExplanation:
    """One kernel.

    ``cached`` is "hit", "miss", or "none" on an engine without a kernel cache; ``variant`` is that of the code, a value
    of :data:`nnk.numerics.VARIANTS`.
    """

    key: str
    form: str
    spec: str
    glsl: str
    meta: dict[str, Any]
    rows: int
    cols: int
    runs: int
    cached: str
    variant: str = ""

    def __str__(self) -> str:
        head = f"kernel {self.key}  {self.form}  {self.rows} x {self.cols}  x{self.runs}  cache: {self.cached}"
        if self.variant:
            head += f"  variant: {self.variant}"
        meta = ", ".join(f"{name}={value}" for name, value in self.meta.items())
        return "\n".join((head, _indented(self.spec), f"  meta: {meta}", _indented(self.glsl)))


def _indented(text: str) -> str:
    return "\n".join("  " + line for line in text.splitlines())


@dataclass(frozen=True)
class Explanation:
    """The kernels of a tensor in order of first use. ``str()`` prints them all.

    ``plan`` is equal for equal sequences of kernels, shapes and dependencies; see
    :attr:`nnk.engines.schedule.Schedule.key`.
    """

    engine: str
    plan: str
    dispatch_count: int
    kernels: tuple[KernelExplanation, ...]

    def __str__(self) -> str:
        head = f"plan {self.plan}: {self.dispatch_count} dispatches of {len(self.kernels)} kernels on {self.engine}"
        return "\n\n".join((head, *map(str, self.kernels)))

    def as_dict(self) -> dict[str, Any]:
        """Return the explanation as plain data for JSON."""
        return dataclasses.asdict(self)


def _kernel(engine: Engine, step: Step, runs: int) -> KernelExplanation:
    cache = getattr(engine, "cache", None)
    cached = "none" if cache is None else ("hit" if cache.has(step.key, identity=step.identity) else "miss")
    glsl = emit(step.spec, step.meta.prec_sig, step.variant, step.meta.slots)
    return KernelExplanation(step.key, step.meta.form, spec_text(step.spec), glsl, dataclasses.asdict(step.meta),
                             step.launch.rows, step.launch.cols, runs, cached, step.variant)


def explain(*tensors: Tensor | Sequence[Tensor]) -> Explanation:
    """Return the kernels that evaluating ``tensors`` would run now; nothing is run.

    An evaluated tensor needs no kernel.
    """
    flat = [tensor for item in tensors for tensor in ([item] if isinstance(item, Tensor) else item)]
    engine = next((tensor.engine for tensor in flat if tensor.engine is not None), None)
    if engine is None:
        raise ExprError("Expected a tensor of an engine to explain, got none", op="explain")
    schedule, _ = engine.schedule(flat)
    runs: dict[str, int] = {}
    first: dict[str, Step] = {}
    for step in schedule.steps:
        runs[step.key] = runs.get(step.key, 0) + 1
        first.setdefault(step.key, step)
    kernels = tuple(_kernel(engine, step, runs[key]) for key, step in first.items())
    return Explanation(f"{engine.name} ({engine.device_name})", schedule.key, len(schedule.steps), kernels)
