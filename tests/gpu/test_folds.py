"""Folds and attention on Vulkan: the bits of the CPU engine and of the oracle."""

from __future__ import annotations

import dataclasses
import functools
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nnk
from nnk._fast.cpu import Program
from nnk.engines.parity import compare, special_values
from nnk.errors import LimitError
from nnk.expr.meta import (
    DISPATCH_SIGNATURE,
    KernelMeta,
    group_count_of,
    kernel_meta_of,
    loop_count_of,
    out_count_of,
    pack_words,
)
from nnk.generator.compile import compile_kernel
from tests import folds, half_storage
from tests.fold_strategies import (
    attention_case,
    fold_cases,
    half_fold_cases,
    laid_out,
    launch_of,
    random_attention,
)
from tests.oracle.attention import attention
from tests.oracle.evaluate import evaluate
from tests.oracle.tensors import bits_of
from tests.strategies import Case

pytestmark = pytest.mark.usefixtures("quiet_numpy")


def meta_of(case: Case) -> KernelMeta:
    return kernel_meta_of(case.spec, DISPATCH_SIGNATURE if any(case.launch.halves) else 0)


def output_of(case: Case) -> np.ndarray:
    """Room for the result, in whole words."""
    count = out_count_of(meta_of(case), case.launch)
    return np.zeros(count + count % 2, np.uint16) if half_storage.is_half(case.launch.halves) else \
        np.zeros(count, np.float32)


def on_cpu(case: Case) -> np.ndarray:
    meta, output = meta_of(case), output_of(case)
    inputs = half_storage.stored(case.inputs, case.launch.halves)
    Program(case.spec, meta).run(pack_words(meta, case.launch), inputs, [output], 2)
    return output


def on_vulkan(engine: Any, case: Case, groups: int | None = None) -> np.ndarray:
    meta, got = meta_of(case), output_of(case)
    kernel = engine.device.build_kernel(
        compile_kernel(case.spec, "test", meta.prec_sig, engine.scheduler.variant), meta)
    inputs = [engine.upload(np.ascontiguousarray(array)) for array in half_storage.stored(
        case.inputs, case.launch.halves)]
    output = engine.upload(got)
    engine.device.dispatch(kernel, inputs, [output], pack_words(meta, case.launch),
                           groups or group_count_of(meta, case.launch))
    engine.download(output, got)
    return got


def by_oracle(case: Case) -> np.ndarray:
    bits = half_storage.expected(evaluate(case.spec, case.launch, case.inputs)[0], case.launch.halves)
    found = output_of(case)
    found[:bits.size] = bits.view(found.dtype)
    return found


@given(case=fold_cases())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture],
          max_examples=max(6, settings.default.max_examples // 10))
def test_random_folds_give_the_bits_of_the_oracle(vulkan: Any, case: Case) -> None:
    got = on_vulkan(vulkan, case)
    compare(on_cpu(case), got)
    compare(by_oracle(case), got)


@given(case=half_fold_cases())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture],
          max_examples=max(6, settings.default.max_examples // 10))
def test_random_folds_of_halves_give_the_bits_of_the_oracle(vulkan: Any, case: Case) -> None:
    got = on_vulkan(vulkan, case)
    compare(on_cpu(case), got)
    compare(by_oracle(case), got)


def test_row_max_of_the_format(vulkan: Any) -> None:
    for rows, length in ((1, 1), (17, 128), (40, 300)):
        spec = folds.row_max(length)
        x = special_values((rows, length), length)
        case = Case(spec, launch_of(spec, rows, ((),)), [x.reshape(-1)])
        got = on_vulkan(vulkan, case)
        compare(on_cpu(case), got)
        compare(evaluate(case.spec, case.launch, case.inputs)[0], got)


@pytest.mark.parametrize("mask", ["plain", "causal", "causal_doc"])
def test_attention_folds_of_the_format(mask: str, vulkan: Any) -> None:
    """Keys of the published folds run; head sizes on both sides of a column group, lengths around a block."""
    for seed, (heads, length, head_size) in enumerate(((1, 1, 4), (2, 130, 33), (1, 128, 256), (1, 60, 300))):
        case = attention_case(random.Random(seed), head_size, heads, length, mask, bool(seed % 2))
        compare(on_cpu(case), on_vulkan(vulkan, case))
    compare(on_cpu(case), on_vulkan(vulkan, case, groups=1))


CALLS: dict[str, Any] = {
    "plain": lambda a: nnk.attention(a(2, 4, 37, 16), a(2, 4, 150, 16), a(2, 4, 150, 24)),
    "causal": lambda a: nnk.attention(a(3, 150, 40), a(3, 140, 40), a(3, 140, 8), "causal"),
    "grouped": lambda a: nnk.attention(a(2, 6, 20, 8), a(2, 2, 33, 8), a(2, 2, 33, 8)),
    "documents": lambda a: nnk.attention(a(2, 2, 140, 8), a(2, 2, 140, 8), a(2, 2, 140, 8), "causal",
                                         np.arange(280).reshape(2, 140) // 47, [0.5, 0.125]),
    "mask": lambda a: nnk.attention(a(2, 2, 17, 8), a(2, 2, 33, 8), a(2, 2, 33, 8), a(17, 33)),
    "padding": lambda a: nnk.attention(a(2, 2, 17, 8), a(2, 2, 33, 8), a(2, 2, 33, 8), a(2, 1, 1, 33)),
    "heads": lambda a: nnk.attention(a(2, 17, 8), a(2, 33, 8), a(2, 33, 8), a(2, 17, 33)),
    "parts of one projection": lambda a: nnk.attention(*(a(2, 20, 3, 4, 9)[:, :, part].transpose(0, 2, 1, 3)
                                                         for part in range(3)), "causal"),
    "halves in a cache": lambda a: nnk.attention(a(2, 20, 4, 8).astype("float16").eval().transpose(0, 2, 1, 3), *(
        a(2, 40, 2, 8).astype("float16").eval().transpose(0, 2, 1, 3)[:, :, 1:34] for _ in range(2))).astype("float16"),
    "transposed keys and masks": lambda a: nnk.attention(
        a(2, 17, 12), a(2, 12, 150).swapaxes(-1, -2), a(2, 9, 150).swapaxes(-1, -2), a(150, 17, 2).transpose(2, 1, 0)),
    "documents of a batch": lambda a: nnk.attention(a(2, 3, 40, 8), a(2, 3, 40, 8), a(2, 3, 40, 8), a(2, 1, 1, 40) < 1,
                                                    np.arange(80).reshape(2, 40) // 30),
    "halves": lambda a: nnk.attention(*(a(2, 2, 35, 9).astype(dtype).eval() for dtype in ("float16", "bfloat16",
                                                                                          "float16"))),
    "stored halves": lambda a: nnk.attention(a(3, 130, 9).astype("bfloat16").eval(), a(3, 140, 9), a(3, 140, 7),
                                             "causal").astype("float16"),
    "bools": lambda a: nnk.attention(a(2, 17, 8), a(2, 33, 8), a(2, 33, 8), (a(17, 33) < 0.5).eval()),
    "bytes": lambda a: nnk.attention(a(2, 17, 8), a(2, 33, 8), a(2, 33, 8), (a(1, 33) * 3).astype("uint8").eval(),
                                     None, a(2).astype("float16").eval()),
}


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_calls_give_equal_bits(name: str, special: bool, vulkan: Any, cpu: Any) -> None:
    results = []
    for engine in (cpu, vulkan):
        rng = np.random.default_rng(11)

        def array(*shape: int, engine: Any = engine, rng: Any = rng) -> Any:
            values = special_values(shape, len(shape)) if special else rng.standard_normal(shape).astype(np.float32)
            return engine.array(values)
        results.append(CALLS[name](array).numpy())
    compare(*results)
    assert special or np.isfinite(results[0]).all()


@given(seed=st.integers(0, 2**64 - 1))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture],
          max_examples=max(12, settings.default.max_examples // 8))
def test_random_calls_give_the_bits_of_the_oracle(vulkan: Any, seed: int) -> None:
    rand = random.Random(seed)
    arrays, options = random_attention(rand)
    place = functools.partial(laid_out, rand, vulkan) if rand.randrange(2) else vulkan.array
    got = nnk.attention(*map(place, arrays), **options).numpy()
    assert np.array_equal(got.view(np.uint32), bits_of(attention(*arrays, **options)))


def test_the_longest_row_of_llvmpipe_is_right(vulkan: Any) -> None:
    """A fold without a matmul has the fewest iterations in a block."""
    spec = folds.row_max(1)
    launch = launch_of(spec, 3, ((),))
    if not vulkan._loop_limit:
        assert not vulkan.info.driver_name.startswith("llvmpipe")
        return
    blocks = next(n for n in range(1, 10**6) if loop_count_of(
        kernel_meta_of(spec), dataclasses.replace(launch, cols=128 * (n + 1)), 1) > vulkan._loop_limit)
    length = 128 * blocks
    x = np.random.default_rng(1).standard_normal((3, length)).astype(np.float32)
    case = Case(spec, dataclasses.replace(launch, cols=length), [x.reshape(-1)])
    compare(x.max(1), on_vulkan(vulkan, case))


def test_the_longest_fold_of_llvmpipe_is_right_and_a_longer_one_refused(vulkan: Any, cpu: Any) -> None:
    """llvmpipe cuts loops without an error: the last length that nnk lets through must still be right."""
    limit = vulkan._loop_limit
    if not limit:
        assert not vulkan.info.driver_name.startswith("llvmpipe")
        return

    def build(engine: Any, keys: int) -> Any:
        rng = np.random.default_rng(keys)
        shapes = ((9, 97), (keys, 97), (keys, 99))
        return nnk.attention(*(engine.array(rng.standard_normal(shape).astype(np.float32)) for shape in shapes))

    step = vulkan.schedule([build(vulkan, 64)])[0].steps[-1]

    def bound(keys: int) -> int:
        return loop_count_of(step.meta, dataclasses.replace(step.launch, cols=keys), step.group_count)

    longest = next(blocks for blocks in range(1, 10**6) if bound(128 * (blocks + 1)) > limit) * 128
    compare(build(cpu, longest).numpy(), build(vulkan, longest).numpy())
    with pytest.raises(LimitError, match="loop iterations"):
        build(vulkan, longest + 1).numpy()
