"""The ExprSpec: a small program over a (rows, cols) grid, as immutable tuples.

The layout of these tuples is what :mod:`nnk._fast.exprspec` encodes, decodes and hashes. Constants and run-time
parameters are kept as float32 bit patterns, so that NaN payloads and the sign of zero survive.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

__all__ = ["ExprSpec", "Fold", "Instr", "Matmul", "Operand", "VecAcc", "ViewSpec", "bits_of", "float_of"]


class Operand(NamedTuple):
    """An operand: ``kind`` is a code of :data:`nnk.ops.OPERANDS`, ``idx`` a slot or register number."""

    kind: int
    idx: int


#: What an unused operand holds. No pass may read it as register 0.
NO_OPERAND = Operand(0, 0)


class Instr(NamedTuple):
    """An instruction: ``regs[dst] = op(a, b, c)``."""

    op: int
    dst: int
    a: Operand = NO_OPERAND
    b: Operand = NO_OPERAND
    c: Operand = NO_OPERAND


class ViewSpec(NamedTuple):
    """How input slot i is read: ``kind`` is a code of :data:`nnk.ops.VIEWS`."""

    kind: int
    negate: int = 0
    param: int = 0
    param2: int = 0


class Matmul(NamedTuple):
    """The matmul segment: inputs a and b, transposes (0 or 1), inner size k, number of batches."""

    a_input: int
    b_input: int
    trans_a: int = 0
    trans_b: int = 0
    k: int = 0
    batch: int = 1


class VecAcc(NamedTuple):
    """Vector accumulation of a fold: ``O[d] = O[d] * reg[scale_reg] + sum of reg[weight_reg](j) * input[j, d]``."""

    vec_state: int
    weight_reg: int
    b_input: int
    scale_reg: int
    has_scale: int


class Fold(NamedTuple):
    """A blocked streaming reduction along an axis of length k (exprspec 3.6). ``init_bits`` are float32 bits."""

    num_state: int
    k: int
    init_bits: tuple[int, ...]
    body: tuple[Instr, ...]
    finalize: tuple[Instr, ...]
    vec_state_len: int = 0
    matmul: Matmul | None = None
    vecacc: VecAcc | None = None
    tri_skip: int = 0


class ExprSpec(NamedTuple):
    """One kernel's program. Two specs are equal exactly when all their bits are."""

    num_regs: int
    instrs: tuple[Instr, ...]
    views: tuple[ViewSpec, ...]
    const_bits: tuple[int, ...] = ()
    rparam_bits: tuple[int, ...] = ()
    matmul: Matmul | None = None
    fold: Fold | None = None
    extras: tuple[int, ...] = ()

    @property
    def consts(self) -> tuple[float, ...]:
        """The constants as floats."""
        return tuple(map(float_of, self.const_bits))

    @property
    def rparams(self) -> tuple[float, ...]:
        """The run-time parameters as floats."""
        return tuple(map(float_of, self.rparam_bits))


def bits_of(value: float) -> int:
    """Return the float32 bit pattern nearest to ``value`` (overflow gives an infinity, as NumPy does)."""
    try:
        bits: int = struct.unpack("<I", struct.pack("<f", value))[0]
    except OverflowError:
        bits = 0x7F800000 if value > 0 else 0xFF800000
    return bits


def float_of(bits: int) -> float:
    """Return the float with the float32 bit pattern ``bits``."""
    value: float = struct.unpack("<f", struct.pack("<I", bits))[0]
    return value
