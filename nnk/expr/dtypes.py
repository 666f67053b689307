"""The dtypes of tensors: how each is stored, and what it is inside a kernel.

A kernel computes on 32-bit words. An element of a half-precision dtype becomes a float32 word when it is loaded, and
is rounded once when it is stored: the halves are storage dtypes. What a kernel must know of a buffer at compile time
is one letter a slot (:func:`input_letter`, :func:`output_letter`); which of the float slots are halves is known at run
time, from two words of the parameters (:func:`half_words`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnk.errors import DTypeError

__all__ = ["BOOL", "DTYPES", "FLOAT16", "FLOAT32", "INT32", "UINT8", "DTypeInfo", "bfloat16", "dtype_of", "half_words",
           "info_of", "input_letter", "is_half", "output_letter", "slot_letters"]

FLOAT32 = np.dtype(np.float32)
FLOAT16 = np.dtype(np.float16)
INT32 = np.dtype(np.int32)
UINT8 = np.dtype(np.uint8)
BOOL = np.dtype(np.bool_)


@dataclass(frozen=True, slots=True)
class DTypeInfo:
    """One row of the dtype table.

    ``word`` is what an element is in a register: ``float`` (float32 bits), ``int`` (int32 bits) or ``bool`` (the
    float32 bits of 1.0 or 0.0). ``load`` and ``store`` are the letters of an input and an output slot.
    """

    name: str
    word: str
    load: str
    store: str
    doc: str


#: Letters: w a 32-bit word, f a float32 (NaN made canonical; a half where the parameters say so), i an int32,
#: u a uint8, b a bool (one byte, 0 or 1).
DTYPES: dict[str, DTypeInfo] = {row.name: row for row in (
    DTypeInfo("float32", "float", "w", "f", "IEEE 754 binary32"),
    DTypeInfo("float16", "float", "w", "f", "IEEE 754 binary16; storage only"),
    DTypeInfo("bfloat16", "float", "w", "f", "the upper half of a binary32; storage only"),
    DTypeInfo("int32", "int", "w", "i", "two's complement, wraps around"),
    DTypeInfo("uint8", "int", "u", "u", "0 to 255, wraps around"),
    DTypeInfo("bool", "bool", "b", "b", "one byte, 0 or 1"),
)}

#: Position of the output's bit in the words of :func:`half_words` (exprspec 4.3).
OUTPUT_BIT = 16


def bfloat16() -> np.dtype[Any]:
    """Return NumPy's dtype for bfloat16, which the package ml_dtypes defines; it is loaded by the first use."""
    import ml_dtypes
    dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return dtype


def dtype_of(dtype: Any, op: str) -> np.dtype[Any]:
    """Return the dtype that ``dtype`` names: a name, a NumPy dtype or scalar type, or Python's bool, int or float.

    Python's ``int`` and ``float`` mean int32 and float32, the widest that there are.

    Raises
    ------
    DTypeError
        If tensors cannot have it.
    """
    if dtype is float or dtype is int:
        return FLOAT32 if dtype is float else INT32
    if isinstance(dtype, str) and dtype == "bfloat16":
        return bfloat16()
    try:
        found: np.dtype[Any] | None = np.dtype(dtype)
    except TypeError:
        found = None
    if found is None or found.name not in DTYPES:
        names = [*DTYPES]
        raise DTypeError(f"Expected {', '.join(names[:-1])} or {names[-1]} for the dtype of {op}, got "
                         f"{dtype if found is None else found}", op=op, dtypes=(dtype,))
    return found.newbyteorder("=") if found.byteorder == ">" else found


def info_of(dtype: np.dtype[Any]) -> DTypeInfo:
    """Return the table's row of a tensor's dtype."""
    return DTYPES[dtype.name]


def is_half(dtype: np.dtype[Any]) -> bool:
    """Say whether ``dtype`` is float16 or bfloat16."""
    return dtype.name in ("float16", "bfloat16")


def input_letter(dtype: np.dtype[Any]) -> str:
    """Return the letter of an input slot of ``dtype``."""
    return info_of(dtype).load


def output_letter(dtype: np.dtype[Any]) -> str:
    """Return the letter of an output slot of ``dtype``."""
    return info_of(dtype).store


def slot_letters(inputs: Sequence[np.dtype[Any]], outputs: Sequence[np.dtype[Any]]) -> str:
    """Return one letter for each input, then for each output; the empty text when all are plain floats or words."""
    letters = "".join((*map(input_letter, inputs), *map(output_letter, outputs)))
    return "" if letters == "w" * len(inputs) + "f" * len(outputs) else letters


def half_words(inputs: Sequence[np.dtype[Any]], output: np.dtype[Any]) -> tuple[int, int]:
    """Return (float16 bits, bfloat16 bits): bit i for input i, bit 16 for the outputs. Both 0: no slot is a half."""
    words = [0, 0]
    for bit, dtype in [*enumerate(inputs), (OUTPUT_BIT, output)]:
        if is_half(dtype):
            words[dtype.name == "bfloat16"] |= 1 << bit
    return words[0], words[1]
