"""The public face of the ExprSpec format: its parts, bytes, rules, canonical form and key.

>>> from nnk import exprspec
>>> relu = exprspec.ExprSpec(1, (exprspec.Instr(11, 0, exprspec.Operand(1, 0), exprspec.Operand(2, 0)),),
...                          (exprspec.ViewSpec(0),), const_bits=(0,))
>>> exprspec.key(relu)
'cb3d830f25b84895'
"""

from __future__ import annotations

from typing import Any

from nnk._fast import exprspec as _fast
from nnk.expr.canonical import canonicalise
from nnk.expr.spec import ExprSpec, Fold, Instr, Matmul, Operand, VecAcc, ViewSpec
from nnk.expr.spec_rules import validate

__all__ = ["ExprSpec", "Fold", "Instr", "Matmul", "Operand", "VecAcc", "ViewSpec", "canonicalise", "decode", "encode",
           "key", "validate"]


def encode(spec: ExprSpec) -> bytes:
    """Return the payload bytes of ``spec``.

    Raises
    ------
    ExprError
        If a value does not fit its field.
    """
    return _fast.encode(spec)


def _instr(fields: tuple[Any, ...]) -> Instr:
    return Instr(fields[0], fields[1], *(Operand(*operand) for operand in fields[2:]))


def _fold(fields: tuple[Any, ...]) -> Fold:
    num_state, k, inits, body, finalize, vec_state_len, matmul, vecacc, tri_skip = fields
    return Fold(num_state, k, inits, tuple(map(_instr, body)), tuple(map(_instr, finalize)), vec_state_len,
                None if matmul is None else Matmul(*matmul), None if vecacc is None else VecAcc(*vecacc), tri_skip)


def decode(data: bytes | bytearray | memoryview) -> ExprSpec:
    """Return the spec in ``data``, bit exact: ``encode(decode(data)) == data``.

    Raises
    ------
    SpecDecodeError
        If the bytes are not exactly one payload of this version.
    """
    num_regs, instrs, views, consts, rparams, matmul, fold, extras = _fast.decode(data)
    return ExprSpec(num_regs, tuple(map(_instr, instrs)), tuple(ViewSpec(*view) for view in views), consts, rparams,
                    None if matmul is None else Matmul(*matmul), None if fold is None else _fold(fold), extras)


def key(spec: ExprSpec) -> str:
    """Return the structure key of a valid ``spec``: 16 lower-case hex digits over its canonical form."""
    return f"{_fast.spec_key(canonicalise(spec)):016x}"
