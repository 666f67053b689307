"""Write or check tests/golden/numerics: input bits and output bits of every op, from the arithmetic oracle.

Outputs may change only together with CONTRACT_VERSION in nnk/numerics.py; new files and new inputs are always welcome.
Usage: python scripts/golden.py [--check] [--folder FOLDER]. Exit code 1: a file is out of date (--check), or an output
changed without a new contract version.
"""

from __future__ import annotations

import argparse
import functools
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from nnk import ops  # noqa: E402
from nnk.numerics import CONTRACT_VERSION  # noqa: E402
from tests.oracle import arrays  # noqa: E402

FOLDER = ROOT / "tests" / "golden" / "numerics"

SPECIAL = [sign | bits for bits in (
    0x00000000, 0x00000001, 0x00000002, 0x007FFFFF, 0x00800000, 0x00800001, 0x00FFFFFF, 0x01000000, 0x33800000,
    0x3F000000, 0x3F7FFFFF, 0x3F800000, 0x3F800001, 0x3FC00000, 0x40000000, 0x40490FDB, 0x4B800000, 0x7F7FFFFF,
    0x7F800000, 0x7F800001, 0x7FC00000, 0x7FC12345, 0x7FFFFFFF) for sign in (0, 0x80000000)]

#: Where a function of the contract changes its formula, its scale or its result.
BORDERS = (0x1FFFFFFF, 0x20000000, 0x39000000, 0x39800000, 0x3F200000, 0x3F3504F3, 0x3F490FDA, 0x3F6C0000, 0x40200000,
           0x407B0000, 0x40800000, 0x41000000, 0x41200000, 0x41680000, 0x41700000, 0x42AEAC50, 0x42B0C0A5, 0x42B17218,
           0x42CFF1B5, 0x42D00000, 0x42DC0000)

#: The same for single ops.
OWN_BORDERS = {
    **dict.fromkeys(("floor", "ceil", "trunc", "rint"), (0x3EFFFFFF, 0x40200000, 0x4AFFFFFF, 0x4B000001, 0x4B7FFFFF)),
    **dict.fromkeys(("sin", "cos"), (0x3FC90FDB, 0x4016CBE4, 0x45CE4D2A, 0x6D46E3BB, 0x7F7FFFFE)),
    "silu": (0x33000000, 0x42000000),
    "gelu": (0x32800000,),
    "gelu_tanh": (0x32800000, 0x41300000),
    "exp2": (0x42FFFFFF, 0x43000000, 0x42FC0000, 0x43150000, 0x43160000, 0x43170000, 0x33000000),
    "expm1": (0x33000000, 0x3EB17218, 0x3F851592, 0x418AA123, 0x41900000),
    "log2": (0x00400000, 0x3F3504F4, 0x3FB504F3, 0x40000000, 0x7F000000),
    "log1p": (0x33000000, 0x3ED413CD, 0x3E95F619, 0x3F7FFFFE, 0x4B000000)}

MATMUL_SHAPES = ((1, 1, 1), (1, 2, 2), (2, 3, 4), (3, 17, 5), (2, 64, 3))
ROW_LENGTHS = (1, 2, 3, 7, 255, 256, 257, 300, 512, 1000, 16384, 16385, 40000)


def _ordinary(rand: random.Random, count: int) -> list[int]:
    """Half of moderate size, half of any exponent."""
    moderate = [rand.getrandbits(1) << 31 | rand.randrange(118, 134) << 23 | rand.getrandbits(23)
                for _ in range(count // 2)]
    return moderate + [rand.getrandbits(1) << 31 | rand.randrange(0, 255) << 23 | rand.getrandbits(23)
                       for _ in range(count - count // 2)]


def _inputs(op: ops.Op) -> list[list[int]]:
    rand = random.Random(op.code)
    if op.arity == 1:
        borders = BORDERS + OWN_BORDERS.get(op.name, ())
        near = [sign | (bits + step) for bits in borders for step in (-1, 0, 1) for sign in (0, 0x80000000)]
        return [[bits] for bits in SPECIAL + near + _ordinary(rand, 200)]
    pairs = [[a, b] for a in SPECIAL[::3] for b in SPECIAL[::2]]
    ordinary = _ordinary(rand, 300)
    pairs += [[a, b] for a, b in zip(ordinary[0::2], ordinary[1::2], strict=True)]
    # Neighbours: cancellation, ties and quotients near one.
    pairs += [[a, (a + step) & 0xFFFFFFFF ^ flip] for a in ordinary[:40] for step, flip in ((1, 0), (1, 0x80000000))]
    if op.arity == 2:
        return pairs
    return [[condition, a, b] for a, b in pairs[::2] for condition in rand.sample(SPECIAL, 2)]


def _hex(bits: Any) -> list[str]:
    return [f"{int(value):08x}" for value in np.asarray(bits, np.uint32).reshape(-1)]


def _output_bits(values: arrays.Floats) -> list[str]:
    return _hex(arrays.bits_of(arrays.canonical(values)))


def _elementwise(op: ops.Op) -> Iterator[dict[str, Any]]:
    rows = _inputs(op)
    columns = [arrays.floats_of(np.array(column, np.uint32)) for column in zip(*rows, strict=True)]
    for row, output in zip(rows, _output_bits(arrays.ARRAY_OPS[op.code](*columns)), strict=True):
        yield {"in": _hex(row), "out": [output]}


def _reduction(op: ops.Op) -> Iterator[dict[str, Any]]:
    """One row (or column) each: a pattern, repeated up to the length."""
    rand = random.Random(op.code)
    patterns = [_ordinary(rand, 31), [0x80000000], [0x00000001, 0x80000001, 0x00000003], [0x3DCCCCCD],
                [0x7F7FFFFF, 0x7F7FFFFF, 0xFF7FFFFF], [0x3F800000] * 6 + [0x7F800000],
                [0x3F800000] * 4 + [0xFFC00001], [0x7F800000, 0xFF800000], _ordinary(rand, 53)]
    function = arrays.row_sum if op.name.endswith("sum") else arrays.row_max
    for length in ROW_LENGTHS:
        for pattern in patterns:
            row = arrays.floats_of(np.resize(np.array(pattern, np.uint32), length))
            yield {"length": length, "in": _hex(pattern), "out": _output_bits(function(row[None, :]))}


def _matmul() -> Iterator[dict[str, Any]]:
    rand = random.Random(8)
    for m, k, n in MATMUL_SHAPES:
        for special in (0, 2):
            a, b = ([rand.choice(SPECIAL) if rand.randrange(10) < special else
                     rand.getrandbits(1) << 31 | rand.randrange(120, 132) << 23 | rand.getrandbits(23)
                     for _ in range(count)] for count in (m * k, k * n))
            result = arrays.matmul(arrays.floats_of(np.array(a, np.uint32).reshape(m, k)),
                                   arrays.floats_of(np.array(b, np.uint32).reshape(k, n)))
            yield {"shape": [m, k, n], "a": _hex(a), "b": _hex(b), "out": _output_bits(result)}


@functools.cache
def documents() -> dict[str, dict[str, Any]]:
    """Return every golden document by name."""
    cases = {op.name: list(_reduction(op) if op.kind == "reduce" else _elementwise(op)) for op in ops.OPS}
    cases["matmul"] = list(_matmul())
    return {name: {"op": name, "contract_version": CONTRACT_VERSION, "cases": rows} for name, rows in cases.items()}


def text_of(document: dict[str, Any]) -> str:
    """Return the JSON text of a document: one case a line."""
    lines = ",\n".join("  " + json.dumps(case) for case in document["cases"])
    head = json.dumps({key: value for key, value in document.items() if key != "cases"})[:-1]
    return f'{head}, "cases": [\n{lines}\n]}}\n'


def changed_outputs(old: dict[str, Any], new: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the cases of ``old`` whose inputs are in ``new`` with other outputs."""
    def question(case: dict[str, Any]) -> str:
        return json.dumps({key: value for key, value in case.items() if key != "out"})

    answers = {question(case): case["out"] for case in new["cases"]}
    return [case for case in old["cases"] if answers.get(question(case), case["out"]) != case["out"]]


def main(arguments: list[str] | None = None) -> int:
    """Run the script."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file is missing or differs")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    options = parser.parse_args(arguments)
    findings = []
    texts = {}
    for name, document in documents().items():
        path = options.folder / f"{name}.json"
        texts[path] = text_of(document)
        if not path.exists():
            findings += [f"{path.name}: missing"] if options.check else []
            continue
        old = json.loads(path.read_text(encoding="utf-8"))
        changed = changed_outputs(old, document)
        if changed and old["contract_version"] == CONTRACT_VERSION:
            findings.append(f"{path.name}: {len(changed)} outputs changed under contract version {CONTRACT_VERSION}, "
                            f"the first for {changed[0]}; raise CONTRACT_VERSION in nnk/numerics.py if that is meant")
        elif options.check and path.read_text(encoding="utf-8") != texts[path]:
            findings.append(f"{path.name}: out of date; run scripts/golden.py")
    print("\n".join(findings) or f"{len(texts)} golden files are current")
    if not findings and not options.check:
        options.folder.mkdir(parents=True, exist_ok=True)
        for path, text in texts.items():
            path.write_text(text, encoding="utf-8")
    return 1 if findings else 0


if __name__ == "__main__":
    raise SystemExit(main())
