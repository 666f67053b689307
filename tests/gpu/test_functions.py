"""Every elementwise op on a Vulkan device: the golden bits, and the CPU engine's over any bits and subnormals."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from nnk import ops
from nnk.engines.parity import compare
from nnk.expr.node import elementwise
from tests import ROOT
from tests.oracle import arrays
from tests.strategies import SPECIAL_BITS

pytestmark = pytest.mark.usefixtures("quiet_numpy")

#: Ops that a user writes for integers alone. The other ops of integers come from promotion; they take any words.
INTEGERS_ONLY = {"iand", "ior", "ixor", "inot", "ishl", "ishr", "idiv", "imod", "ipow"}
ELEMENTWISE = [op for op in ops.OPS if op.kind != "reduce"]


def result_of(op: ops.Op, engine: Any, columns: list[np.ndarray]) -> np.ndarray:
    """The words that ``op`` makes of words: a bool is 1.0 or 0.0, as in a register."""
    dtype = np.int32 if op.name in INTEGERS_ONLY else np.float32
    result = elementwise(op.name, *(engine.array(column.view(dtype)) for column in columns)).numpy()
    return result.astype(np.float32) if result.dtype == np.bool_ else result


@pytest.mark.parametrize("op", ELEMENTWISE, ids=lambda op: op.name)
def test_golden_results(op: ops.Op, vulkan: Any) -> None:
    cases = json.loads((ROOT / f"tests/golden/numerics/{op.name}.json").read_text(encoding="utf-8"))["cases"]
    columns = zip(*(case["in"] for case in cases), strict=True)
    operands = [np.array([int(text, 16) for text in column], np.uint32) for column in columns]
    want = np.array([int(case["out"][0], 16) for case in cases], np.uint32)
    got = result_of(op, vulkan, operands)
    # The golden files hold what a float output keeps: one NaN.
    compare(want.view(np.float32), arrays.canonical(got.view(np.float32)))


def _columns(rng: np.random.Generator, arity: int) -> list[np.ndarray]:
    """Bits for each operand: any, subnormals, ordinary numbers; of two operands also close ones and special pairs."""
    count = 4000
    signs = rng.integers(0, 2, (arity, count), dtype=np.uint32) << np.uint32(31)
    ordinary = rng.standard_normal((arity, count)) * 10.0 ** rng.integers(-3, 3, count)
    rows = [rng.integers(0, 2**32, (arity, count), dtype=np.uint32),
            rng.integers(0, 2**24, (arity, count), dtype=np.uint32) | signs,
            ordinary.astype(np.float32).view(np.uint32)]
    if arity == 2:
        close = rows[0][0] ^ rng.integers(0, 16, count, dtype=np.uint32)
        rows += [np.stack([rows[0][0], close]), np.array(np.meshgrid(*[SPECIAL_BITS] * 2), np.uint32).reshape(2, -1)]
    return list(np.concatenate(rows, axis=1))


@pytest.mark.parametrize("op", ELEMENTWISE, ids=lambda op: op.name)
def test_any_bits_give_the_bits_of_the_cpu(op: ops.Op, vulkan: Any, cpu: Any, rng: np.random.Generator) -> None:
    operands = _columns(rng, op.arity)
    on_cpu, on_vulkan = (result_of(op, engine, operands) for engine in (cpu, vulkan))
    compare(on_cpu, on_vulkan)
