"""Kernel keys: structure key, precision signature and generator version, and their explanation."""

from __future__ import annotations

import hashlib

from nnk import ops
from nnk._fast import exprspec as _fast
from nnk.expr.spec import ExprSpec, Fold, ViewSpec

__all__ = ["explain_key", "kernel_key", "precision_suffix", "spec_key"]

#: Precision signature of a kernel that reads its precision at run time.
DISPATCH_SIGNATURE = 0x00020000


def spec_key(spec: ExprSpec) -> str:
    """Return the structure key of a canonical ``spec`` as 16 hex digits."""
    return f"{_fast.spec_key(spec):016x}"


def precision_suffix(prec_sig: int) -> str:
    """Return the suffix of a precision signature: none for all float32, ``#x`` run-time, ``#a`` native float16."""
    if prec_sig == 0:
        return ""
    return "#x" if prec_sig == DISPATCH_SIGNATURE else "#a"


def kernel_key(structure_key: str, prec_sig: int, generator_version: int) -> str:
    """Return the cache key ``v<generator version>.<structure key><precision suffix>``."""
    return f"v{generator_version}.{structure_key}{precision_suffix(prec_sig)}"


def _keyed_view(view: ViewSpec) -> tuple[int, ...]:
    return tuple(view) if ops.VIEW_BY_CODE[view.kind].keyed else view[:2]


def _keyed_fold(fold: Fold) -> tuple[object, ...]:
    return tuple(fold._replace(k=0, vec_state_len=0, matmul=None)), fold.matmul and fold.matmul[:4]


def explain_key(spec: ExprSpec, prec_sig: int, generator_version: int) -> list[tuple[str, str]]:
    """Return each part of a kernel key with a hash of its own, so that two logs show why two keys differ."""
    parts: list[tuple[str, object]] = [
        ("generator_version", generator_version), ("precision", precision_suffix(prec_sig)),
        ("num_regs", spec.num_regs),
        ("instrs", spec.instrs), ("views", tuple(map(_keyed_view, spec.views))),
        ("const_count", len(spec.const_bits)), ("rparam_count", len(spec.rparam_bits)),
        ("matmul", spec.matmul and spec.matmul[:2]), ("fold", spec.fold and _keyed_fold(spec.fold)),
        ("extras", spec.extras)]
    return [(name, hashlib.sha256(repr(tuple(part) if isinstance(part, tuple) else part).encode()).hexdigest()[:12])
            for name, part in parts]
