"""Halves, integers and bools on a Vulkan device: the CPU engine's bits for every kernel form and way to store."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nnk
from nnk.engines.parity import compare
from nnk.errors import DTypeError
from tests.integers import BINARY, UNARY, values
from tests.property.test_integers import FLOATS, HALVES, floats_around_halves

pytestmark = pytest.mark.usefixtures("quiet_numpy")


def same(cpu: Any, vulkan: Any, call: Callable[..., Any], *arrays: Any) -> np.ndarray[Any, Any]:
    """The result of a call, equal on both engines."""
    want, got = (call(*map(engine.array, arrays)).numpy() for engine in (cpu, vulkan))
    compare(want, got)
    return got


@pytest.mark.parametrize("name", HALVES)
def test_every_half_both_ways(name: str, cpu: Any, vulkan: Any, rng: Any) -> None:
    every = np.arange(65536, dtype=np.uint16).view(HALVES[name][0])
    wide = same(cpu, vulkan, lambda x: x.astype("float32"), every)
    assert same(cpu, vulkan, lambda x: x.astype(name), wide).dtype == every.dtype
    same(cpu, vulkan, lambda x: x.astype(name), floats_around_halves(rng, name))


def test_every_form_reads_and_writes_halves(cpu: Any, vulkan: Any, rng: Any) -> None:
    def draw(*shape: int, dtype: Any = np.float16) -> Any:
        return rng.standard_normal(shape).astype(dtype)

    bf16 = ml_dtypes.bfloat16
    for rows, cols in ((1, 1), (7, 33), (5, 64), (3, 1), (1, 257)):
        x, row, column = draw(rows, cols), draw(cols, dtype=bf16), draw(rows, 1)
        same(cpu, vulkan, lambda a, b, c: (nnk.tanh(a * b + 1) - c).astype("float16"), x, row, column)
        same(cpu, vulkan, lambda a: (a.transpose() * 2).astype("bfloat16"), x)
        same(cpu, vulkan, lambda a: a.transpose(), x)
        same(cpu, vulkan, lambda a, b: nnk.softmax(a + b).astype("float16"), x, row)
        same(cpu, vulkan, lambda a, b: nnk.layer_norm(a, b).astype("bfloat16"), x, row)
        same(cpu, vulkan, lambda a: a.sum(axis=-1).astype("float16"), x)
        same(cpu, vulkan, lambda a: a.take([-1, 0]), x)
        same(cpu, vulkan, lambda a, b: (a @ b).astype("float16"), x, draw(cols, 9, dtype=bf16))
        same(cpu, vulkan, lambda a, b: nnk.gelu(a @ b.transpose()).astype("bfloat16"), x, draw(70, cols))
    same(cpu, vulkan, lambda a, b: (a @ b + 1).astype("float16"), draw(3, 5, 7), draw(3, 7, 9))
    same(cpu, vulkan, lambda a, b: a.transpose() @ b, draw(50, 40), draw(50, 70, dtype=np.float32))


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32"])
def test_integer_functions(dtype: str, cpu: Any, vulkan: Any) -> None:
    rand = random.Random(7)
    a, b = values(rand, dtype, (5, 29)), values(rand, dtype, (5, 29))
    calls = [(ours, (a, b)) for ours, _ in BINARY.values()] + [(ours, (a,)) for ours, _ in UNARY.values()]
    ran = 0
    with vulkan.cache.deferred():
        for ours, operands in calls:
            try:
                ours(*map(cpu.array, operands))
            except DTypeError:
                continue
            same(cpu, vulkan, ours, *operands)
            ran += 1
        same(cpu, vulkan, lambda x: x.transpose(), a)
        same(cpu, vulkan, lambda x, y: nnk.where(x.transpose(), y.transpose(), y.transpose()).transpose(), a, b)
        same(cpu, vulkan, lambda x: x.astype("float32") / 3, a)
    assert ran >= 20


def test_casts(cpu: Any, vulkan: Any, rng: Any) -> None:
    bits = rng.integers(0, 2**32, 5001, dtype=np.uint64).astype(np.uint32).view(np.float32)
    for target in ("int32", "uint8", "bool"):
        same(cpu, vulkan, lambda x, t=target: x.astype(t), np.concatenate([FLOATS, bits]))
    whole = values(random.Random(1), "int32", (3001,))
    for target in ("float32", "uint8", "bool", "float16", "bfloat16"):
        same(cpu, vulkan, lambda x, t=target: x.astype(t), whole)


def test_one_kernel_serves_every_mix_of_halves(vulkan: Any) -> None:
    arrays = [np.ones((3, 5), dtype) for dtype in (np.float16, ml_dtypes.bfloat16, np.float32)]

    def run(i: int, j: int) -> None:
        (vulkan.array(arrays[i]) * 1.5 + vulkan.array(arrays[j]) * 1.25).astype("float16").numpy()

    run(0, 1)
    before = len(vulkan.kernels.compiled) + len(vulkan.kernels.hits)
    for i in range(3):
        for j in range(3):
            run(i, j)
    assert len(vulkan.kernels.compiled) + len(vulkan.kernels.hits) == before
