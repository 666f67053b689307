"""Cutting and checking modules: agreement with a slow reading of the same rules, over good and damaged words."""

from __future__ import annotations

import struct
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnk import spirv
from nnk._fast import spirvcut
from tests.glsl import build

SMALL = array("I", build("o0[i] = b0[i] + uintBitsToFloat(w[1]);", param_words=2)[0])
SECTIONS, RESULTS = spirv._SECTION_TABLE, spirv._RESULT_TABLE


def cut_slowly(words: array[int]) -> tuple[list[int], list[int], int]:
    at, ops, starts = 5, [], []
    while at < len(words) and words[at] >> 16:
        ops.append(words[at] % 65536)
        starts.append(at)
        at += words[at] >> 16
    return ops, starts, at


def is_sound(words: array[int]) -> bool:
    """Read the rules one after the other."""
    ops, starts, end = cut_slowly(words)
    assert end == len(words)
    where = [n for n, op in enumerate(ops) if op == 54]
    ends = [n for n, op in enumerate(ops) if op == 56]
    if not where or len(where) != len(ends):
        return False
    if any(not begin < end for begin, end in zip(where, ends, strict=True)):
        return False
    if any(end > begin for end, begin in zip(ends, where[1:], strict=False)):
        return False
    inside = {n for begin, end in zip(where, ends, strict=True) for n in range(begin, end + 1)}
    section = 0
    for n, op in enumerate(ops):
        place = SECTIONS[op] if op < len(SECTIONS) else 0
        if n in inside or place == 255:
            continue
        if n > where[0] or (place == 0 and op != 12) or 0 < place < section:
            return False
        section = max(section, place)
    defined: set[int] = set()
    for op, start in zip(ops, starts, strict=True):
        place = RESULTS[op] if op < len(RESULTS) else 0
        if not place:
            continue
        operands = words[start + 1:start + (words[start] >> 16)]
        if len(operands) < place or (place == 2 and operands[0] not in defined):
            return False
        if operands[place - 1] in defined or not 0 < operands[place - 1] < words[3]:
            return False
        defined.add(operands[place - 1])
    return True


def test_a_good_module() -> None:
    assert spirvcut.cut(SMALL) == cut_slowly(SMALL)
    assert is_sound(SMALL)
    assert spirvcut.find_problem(SMALL, SECTIONS, RESULTS, bytearray(SMALL[3])) is None


@pytest.mark.parametrize("words", [[], [1], [1, 2, 3, 4, 5], [0] * 5 + [17], [0] * 5 + [0x50011], [0] * 5 + [0x20011]])
def test_odd_cuts(words: list[int]) -> None:
    assert spirvcut.cut(array("I", words)) == cut_slowly(array("I", words))


@given(st.data())
def test_agrees_with_the_slow_reading(data: st.DataObject) -> None:
    """Instructions are removed, repeated, moved, and their words changed; lengths stay right."""
    ops, starts, _ = cut_slowly(SMALL)
    rows = [list(SMALL[start:start + (SMALL[start] >> 16)]) for start in starts]
    for _ in range(data.draw(st.integers(1, 3))):
        n = data.draw(st.integers(0, len(rows) - 1))
        kind = data.draw(st.sampled_from(["drop", "repeat", "move", "word", "op"]))
        if kind == "drop" and len(rows) > 1:
            del rows[n]
        elif kind == "repeat":
            rows.insert(data.draw(st.integers(0, len(rows))), list(rows[n]))
        elif kind == "move":
            rows.insert(data.draw(st.integers(0, len(rows) - 1)), rows.pop(n))
        elif kind == "op":
            rows[n][0] = rows[n][0] & 0xFFFF0000 | data.draw(st.sampled_from([*ops, 8, 12, 317, 6143, 6144, 65535]))
        elif len(rows[n]) > 1:
            at = data.draw(st.integers(1, len(rows[n]) - 1))
            rows[n][at] = data.draw(st.one_of(st.integers(0, SMALL[3]), st.integers(0, 2**32 - 1)))
    words = array("I", [*SMALL[:5], *(word for row in rows for word in row)])
    problem = spirvcut.find_problem(words, SECTIONS, RESULTS, bytearray(words[3]))
    assert (problem is None) == is_sound(words), problem
    assert problem is None or 5 <= problem[1] <= len(words)


def test_tables_may_be_short() -> None:
    words = array("I", struct.pack("<8I", 0x07230203, 0x10500, 0, 9, 0, 0x10036, 0x100FD, 0x10038))
    assert spirvcut.find_problem(words, b"", b"", bytearray(9)) is None
    assert spirvcut.find_problem(words, bytes(55), bytes(54) + b"\2", bytearray(9)) == (
        "instruction 54 is too short for a result", 5)
    with pytest.raises(TypeError):
        spirvcut.find_problem(words, b"", b"", None)  # type: ignore[arg-type]
