"""Storage of slots for the fuzz: exact values of stored halves, and the one rounding of a result.

Written from the contract: a float16 or bfloat16 element is its exact float32 value, a result is rounded once to the
nearest, ties to even, beyond the range to an infinity, and every NaN becomes the one NaN of its format.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["FLOAT32_SLOT", "draw", "expected", "halves_of", "is_half", "narrow", "stored", "widen"]

Random = random.Random
Words = npt.NDArray[np.uint32]
Halves = npt.NDArray[np.uint16]

#: What a slot holds: float32, float16 or bfloat16.
FLOAT32_SLOT, FLOAT16_SLOT, BFLOAT16_SLOT = range(3)

#: Bit of the outputs in the words that say which slots are halves (exprspec 4.3).
OUTPUT_BIT = 16


def widen(bits: Halves, kind: int) -> npt.NDArray[np.float32]:
    """The values of stored halves."""
    if kind == FLOAT16_SLOT:
        with np.errstate(all="ignore"):
            return bits.view(np.float16).astype(np.float32)
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def narrow(values: npt.NDArray[np.float32], kind: int) -> Halves:
    """The halves that results become."""
    words = np.ascontiguousarray(values).view(np.uint32)
    is_nan = words & np.uint32(0x7FFFFFFF) > 0x7F800000
    if kind == FLOAT16_SLOT:
        with np.errstate(all="ignore"):
            return np.where(is_nan, np.uint16(0x7E00), values.astype(np.float16).view(np.uint16))
    even = words >> np.uint32(16) & np.uint32(1)
    with np.errstate(over="ignore"):
        rounded = words + np.uint32(0x7FFF) + even >> np.uint32(16)
    return np.where(is_nan, np.uint16(0x7FC0), rounded.astype(np.uint16)).astype(np.uint16)


def draw(rand: Random, slots: frozenset[int], outputs: bool = True) -> tuple[int, int]:
    """Which slots are halves, at least one: of these inputs, and the outputs if they may be."""
    bits = (*sorted(slots), *((OUTPUT_BIT,) if outputs else ()))
    while bits:
        words = [0, 0]
        for bit in bits:
            kind = rand.randrange(3)
            if kind != FLOAT32_SLOT:
                words[kind == BFLOAT16_SLOT] |= 1 << bit
        if words != [0, 0]:
            return words[0], words[1]
    return 0, 0


def halves_of(halves: tuple[int, int], bit: int) -> int:
    """What the slot of this bit holds."""
    return FLOAT16_SLOT if halves[0] >> bit & 1 else BFLOAT16_SLOT if halves[1] >> bit & 1 else FLOAT32_SLOT


def is_half(halves: tuple[int, int]) -> bool:
    """Whether the outputs are halves."""
    return halves_of(halves, OUTPUT_BIT) != FLOAT32_SLOT


def stored(inputs: list[npt.NDArray[Any]], halves: tuple[int, int]) -> list[npt.NDArray[Any]]:
    """The arrays that an engine gets; halves and bytes are padded to whole words."""
    arrays = []
    for slot, array in enumerate(inputs):
        kind = halves_of(halves, slot)
        if kind != FLOAT32_SLOT:
            array = narrow(array, kind)
        missing = -array.size % (4 // array.itemsize)
        arrays.append(np.concatenate([array, np.zeros(missing, array.dtype)]) if missing else array)
    return arrays


def exact(rand: Random, inputs: list[npt.NDArray[Any]], halves: tuple[int, int]) -> list[npt.NDArray[Any]]:
    """The inputs with every element of a half slot a value that it can hold."""
    arrays = []
    for slot, array in enumerate(inputs):
        kind = halves_of(halves, slot)
        if kind != FLOAT32_SLOT:
            bits = narrow(array, kind)
            if rand.randrange(4) == 0:
                # Any bits: subnormals and NaNs with payloads among them.
                bits = np.random.default_rng(rand.getrandbits(32)).integers(0, 65536, array.size, dtype=np.uint16)
            array = widen(bits, kind)
        arrays.append(array)
    return arrays


def expected(values: npt.NDArray[Any], halves: tuple[int, int]) -> npt.NDArray[Any]:
    """The bits that an output must have: uint32 words, uint16 halves or bytes."""
    kind = halves_of(halves, OUTPUT_BIT)
    if kind != FLOAT32_SLOT:
        return narrow(values, kind)
    return values if values.itemsize == 1 else np.ascontiguousarray(values).view(np.uint32)
