"""Measure the error of every function of the contract against C's double functions; write the table of the docs.

Functions of one operand are measured over all 2**32 floats, or with --step N over every Nth; those of two over
--pairs N pairs: special values with each other, any bits, close operands, and for pow mostly results in range. The CPU
engine computes on its widest instruction set. Errors are in units in the last place of the exact result, 2**-149 for
subnormal ones.

Usage: python scripts/accuracy.py [--step N] [--pairs N] [--only NAME,NAME] [--jobs N] [--write]. --write puts the rows
that were measured into the table of docs/numerics.md. Exit code 1: an error is above its bound there, or a result is of
another kind (NaN, sign) than the exact one.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from nnk import ops  # noqa: E402
from nnk._fast import cpu  # noqa: E402
from nnk.expr.meta import Launch, kernel_meta_of, pack_words  # noqa: E402
from nnk.expr.spec import ExprSpec, Instr, Operand, ViewSpec  # noqa: E402

PAGE = ROOT / "docs" / "numerics.md"
UNARY = ("exp", "log", "sqrt", "rsqrt", "tanh", "erf", "sigmoid", "silu", "gelu", "gelu_tanh", "sin", "cos", "exp2",
         "log2", "log1p", "expm1")
BINARY = ("pow", "atan2", "fmod", "remainder")

#: gelu_tanh is bounded where its result is larger; far below zero the cube of its argument costs more.
ABOVE = {"gelu_tanh": 1e-30}

CHUNK = 1 << 18
Floats = npt.NDArray[np.float32]


class State(ctypes.Structure):
    """The counts and largest errors of one function (accuracy.c)."""

    _fields_ = (("largest", ctypes.c_double), ("largest_above", ctypes.c_double), ("at", ctypes.c_uint32 * 2),
                ("above_at", ctypes.c_uint32 * 2), ("count", ctypes.c_uint64), ("rounded_wrongly", ctypes.c_uint64),
                ("wrong_kind", ctypes.c_uint64))

    def merge(self, other: State) -> None:
        """Take the counts and the larger errors of ``other`` in."""
        for name in ("count", "rounded_wrongly", "wrong_kind"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for value, place in (("largest", "at"), ("largest_above", "above_at")):
            if getattr(other, value) > getattr(self, value):
                setattr(self, value, getattr(other, value))
                setattr(self, place, getattr(other, place))


@functools.cache
def reference() -> Any:
    """Compile accuracy.c and return its function ``accuracy_add``."""
    folder = tempfile.mkdtemp(prefix="nnk-accuracy-")
    library = str(Path(folder, "accuracy.so"))
    command = ["gcc", "-O3", "-march=native", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-shared",
               "-fPIC", str(Path(__file__).with_suffix(".c")), "-o", library]
    # glibc's vector functions where they are, else one call an element.
    if subprocess.run([*command, "-DVECTOR_LIBRARY", "-lmvec", "-lm"], check=False, capture_output=True).returncode:
        subprocess.run([*command, "-lm"], check=True)
    function = ctypes.CDLL(library).accuracy_add
    shutil.rmtree(folder)
    function.argtypes = [ctypes.c_char_p, *[ctypes.c_void_p] * 3, ctypes.c_long, ctypes.c_double,
                         ctypes.POINTER(State)]
    return function


@functools.cache
def _program(name: str) -> tuple[ExprSpec, Any, Any]:
    op = ops.OP_BY_NAME[name]
    kind = ops.OPERAND_BY_NAME["input"].code
    views = (ViewSpec(ops.VIEW_BY_NAME["linear"].code),) * op.arity
    spec = ExprSpec(1, (Instr(op.code, 0, *(Operand(kind, slot) for slot in range(op.arity))),), views)
    meta = kernel_meta_of(spec)
    return spec, meta, cpu.Program(spec, meta)


def compute(name: str, operands: list[Floats]) -> Floats:
    """Return the engine's results."""
    spec, meta, program = _program(name)
    found = np.empty_like(operands[0])
    words = pack_words(meta, Launch(1, found.size, ((),) * len(operands), spec.const_bits, ()))
    program.run(words, operands, (found,), 1)
    return found


def measure_chunk(name: str, operands: list[Floats]) -> State:
    """Measure one chunk of operands."""
    state = State()
    found = compute(name, operands)
    places = [array.ctypes.data for array in operands]
    done = reference()(name.encode(), places[0], places[-1], found.ctypes.data, found.size, ABOVE.get(name, 0.0),
                       ctypes.byref(state))
    assert done, name
    return state


def every(step: int) -> Iterator[Callable[[], list[Floats]]]:
    """Yield makers of chunks that cover every ``step``-th float."""
    offsets = (np.arange(CHUNK, dtype=np.uint64) * step % 2**32).astype(np.uint32)
    for first in range(0, 2**32, CHUNK * step):
        count = min(CHUNK, -(-(2**32 - first) // step))
        yield lambda first=first, count=count: [(offsets[:count] + np.uint32(first)).view(np.float32)]  # type: ignore[misc]


SPECIAL = np.array([sign | bits for sign in (0, 0x80000000) for bits in (
    0, 1, 2, 0x7FFFFF, 0x800000, 0x800001, 0x3EFFFFFF, 0x3F000000, 0x3F7FFFFF, 0x3F800000, 0x3F800001, 0x3FC00000,
    0x40000000, 0x40400000, 0x40A00000, 0x42C80000, 0x4B000000, 0x4B000001, 0x4B7FFFFF, 0x4B800000, 0x4B800001,
    0x7F000000, 0x7F7FFFFF, 0x7F800000, 0x7FC00000)], np.uint32)


def _close(rng: np.random.Generator, x: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    return x ^ rng.integers(0, 2 ** rng.integers(1, 32, x.size), dtype=np.uint32)


def _pairs(name: str, seed: int) -> list[Floats]:
    rng = np.random.default_rng((seed, len(name)))
    x, y = rng.integers(0, 2**32, (2, CHUNK), dtype=np.uint32)
    third = CHUNK // 3
    if name == "pow":
        # Bases of any size and bases near one, exponents for results from underflow to overflow, and whole ones.
        x[:2 * third] &= np.uint32(0x7FFFFFFF)
        x[:third] = _close(rng, np.full(third, 0x3F800000, np.uint32)) & np.uint32(0x7FFFFFFF)
        with np.errstate(all="ignore"):
            base = x.view(np.float32)[:2 * third].astype(np.float64)
            y[:2 * third] = (rng.uniform(-151, 129, 2 * third) / np.log2(base)).astype(np.float32).view(np.uint32)
            x[-third // 2:] = (rng.standard_normal(third // 2 + 1) * 30).astype(np.float32).view(np.uint32)
        y[-third // 2:] = (rng.integers(-60, 61, third // 2 + 1) / 2).astype(np.float32).view(np.uint32)
    else:
        y[:third] = _close(rng, x[:third])
        x[third:2 * third] &= np.uint32(0x83FFFFFF)
        y[CHUNK // 2:CHUNK // 2 + third] &= np.uint32(0xFFF00000)
    if seed == 0:
        grid = [side.reshape(-1) for side in np.meshgrid(SPECIAL, SPECIAL)]
        x[:grid[0].size], y[:grid[0].size] = grid
    return [x.view(np.float32), y.view(np.float32)]


def pairs(name: str, count: int) -> Iterator[Callable[[], list[Floats]]]:
    """Yield makers of chunks of pairs, ``count`` pairs or a few more."""
    for seed in range(-(-count // CHUNK)):
        yield functools.partial(_pairs, name, seed)


def measure(name: str, step: int = 1, count: int = CHUNK, jobs: int = 1) -> State:
    """Measure a function over every ``step``-th float, or over ``count`` pairs."""
    total = State()
    makers = pairs(name, count) if name in BINARY else every(step)
    reference()
    _program(name)
    with ThreadPoolExecutor(jobs) as pool:
        for state in pool.map(lambda make: measure_chunk(name, make()), makers):
            total.merge(state)
    return total


# ------------------------------------------------------------------------------------------ the table

_ROW = re.compile(r"^\| `(\w+)` \| ([\d.]+) \| ([\d.]+) \| .* \|$", re.MULTILINE)


def bounds() -> dict[str, float]:
    """Return the bound of every function that docs/numerics.md states."""
    return {name: float(bound) for name, bound, _ in _ROW.findall(PAGE.read_text(encoding="utf-8"))}


def row_of(name: str, bound: float, state: State, step: int) -> str:
    """Return the row of a function: bound, largest error, where, inputs, how many are not the nearest float."""
    error, place = (state.largest_above, state.above_at) if name in ABOVE else (state.largest, state.at)
    inputs = "all 2^32" if name in UNARY and step == 1 else f"{state.count / 1e6:.0f} million"
    where = ", ".join(f"0x{place[i]:08x}" for i in range(ops.OP_BY_NAME[name].arity)) if error > 0.5 else "-"
    wrongly = 100 * state.rounded_wrongly / max(1, state.count)
    return f"| `{name}` | {bound:.1f} | {error:.4f} | {where} | {inputs} | {wrongly:.3f} % |"


def main(arguments: list[str] | None = None) -> int:
    """Run the script."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--step", type=int, default=1, help="take every Nth float (1: all)")
    parser.add_argument("--pairs", type=int, default=200_000_000, help="pairs for a function of two operands")
    parser.add_argument("--only", default="", help="names of functions, separated by commas")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="threads")
    parser.add_argument("--write", action="store_true", help="write the rows into docs/numerics.md")
    options = parser.parse_args(arguments)
    known = bounds()
    failed = False
    for name in options.only.split(",") if options.only else (*UNARY, *BINARY):
        state = measure(name, options.step, options.pairs, options.jobs)
        row = row_of(name, known[name], state, options.step)
        above = state.largest_above if name in ABOVE else state.largest
        failed |= above > known[name] or state.wrong_kind > 0
        print(row + (f" {state.wrong_kind} of a wrong kind" if state.wrong_kind else "")
              + (f" everywhere {state.largest:.4f} at 0x{state.at[0]:08x}" if name in ABOVE else ""), flush=True)
        if options.write:
            text = PAGE.read_text(encoding="utf-8")
            old = next(found.group(0) for found in _ROW.finditer(text) if found.group(1) == name)
            PAGE.write_text(text.replace(old, row), encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
