"""Tiers T2 and T3 forced on a device that needs neither: the bits of the contract, from other code.

The code of these tiers is long, and a software device compiles it for seconds: few kernels, dense in values. The
long form is ``scripts/gpu_parity --tier T3``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import nnk
from nnk import config
from nnk.engines.parity import SUITE, compare, special_values
from nnk.engines.select import get_engine
from nnk.errors import LimitError
from nnk.expr.canonical import canonicalise
from nnk.expr.meta import group_count_of, kernel_meta_of, out_count_of, pack_words
from nnk.generator.compile import compile_kernel
from nnk.numerics import VARIANTS
from tests import strategies
from tests.expression_strategies import Program, check, programs
from tests.oracle import evaluate
from tests.oracle import tensors as oracle

pytestmark = pytest.mark.usefixtures("quiet_numpy")

TIERS = ("T2", "T3")

#: Random examples: one for so many of the profile's, and at least this many.
SHARE, FEWEST = 25, 3

#: Expressions of the parity command that a software device compiles in good time, by tier.
QUICK = {
    "T2": [text for text in SUITE if "attention" not in text and text not in {
        "gelu(x @ w + 1) + x", "layer_norm(x)", "softmax(x @ transpose(w)) @ w", "x @ transpose(w)", "rms_norm(x)",
        "tanh(x * w + 3)", "mean(x)"}],
    "T3": ["x + w * 2 - 1", "x / w", "-abs(x)", "maximum(x, w)", "where(x < w, x, w)", "exp(x)", "log(x)", "sqrt(x)",
           "rsqrt(x)", "sigmoid(x)", "sin(x * 100)", "sum(x)", "softmax(x)", "x @ w", "floor(x * w)", "sign(x)"],
}


@pytest.fixture(params=TIERS)
def tier(request: pytest.FixtureRequest, vulkan: Any) -> Iterator[Any]:
    """Return an engine of the tier."""
    with config.override(tier=request.param):
        engine: Any = get_engine("vulkan")
        assert (engine.tier, engine is vulkan) == (request.param, False)
        yield engine


def subnormal_values(shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Return values whose sums and products lie around the underflow range, with some special ones."""
    rng = np.random.default_rng(seed)
    exponents = rng.choice([-149, -140, -127, -126, -125, -103, -99, -75, -63, -49, -3, 0], shape)
    values = (rng.uniform(-2, 2, shape) * 2.0 ** exponents).astype(np.float32)
    return np.where(rng.random(shape) < 0.1, special_values(shape, seed), values)


def same(build: Any, cpu: Any, engine: Any) -> np.ndarray:
    """Return the bits of ``build(engine)``, which both engines must agree on."""
    results = [build(which).numpy() for which in (cpu, engine)]
    compare(*results)
    return results[0].view(np.uint32)


def test_expressions_of_the_parity_command(tier: Any, cpu: Any) -> None:
    from nnk.cli.parser import tensor_of
    before = len(tier.kernels.compiled) + len(tier.kernels.hits)
    assert set(QUICK[tier.tier]) <= set(SUITE)
    for text in QUICK[tier.tier]:
        x, w = (special_values((33, 33), seed) for seed in (1, 2))
        names = [{"x": engine.array(x), "w": engine.array(w)} for engine in (cpu, tier)]
        compare(*(tensor_of(text, values).numpy() for values in names))
    keys = (tier.kernels.compiled + tier.kernels.hits)[before:]
    # Precision in front, dtypes behind: #xt2suu.
    assert all(VARIANTS[tier.tier] in key.partition("#")[2] for key in keys)


def test_arithmetic_around_underflow(tier: Any, cpu: Any) -> None:
    for seed in range(3):
        x, y, z = (subnormal_values((70, 130), 3 * seed + n) for n in range(3))
        same(lambda e, x=x, y=y, z=z: e.array(x) * e.array(y) + e.array(z) - e.array(x), cpu, tier)


def test_reductions_around_underflow(tier: Any, cpu: Any) -> None:
    for length in (1, 31, 257, 1000):
        x = subnormal_values((9, length), length)
        got = same(lambda e, x=x: nnk.sum(e.array(x), -1), cpu, tier)
        assert np.array_equal(got, oracle.bits_of(oracle.sum_of(x, -1)))
        finite = (np.random.default_rng(length).standard_normal((3, length)) * 2.0 ** -140).astype(np.float32)
        same(lambda e, x=finite: nnk.sum(e.array(x), -1), cpu, tier)


def test_matmul_around_underflow(tier: Any, cpu: Any) -> None:
    for m, k, n in ((9, 37, 70), (65, 16, 3)):
        a, b = subnormal_values((m, k), m), subnormal_values((k, n), n)
        got = same(lambda e, a=a, b=b: e.array(a) @ e.array(b), cpu, tier)
        assert np.array_equal(got, oracle.bits_of(oracle.matmul(a, b)))


def test_attention(vulkan: Any, cpu: Any, rng: np.random.Generator) -> None:
    """One fold, in the tier that compiles faster; the other one's is checked statically, with all forms."""
    q, k, v = (rng.standard_normal((1, 1, 6, 4)).astype(np.float32) for _ in range(3))
    with config.override(tier="T2"):
        engine = get_engine("vulkan")
    same(lambda e: nnk.attention(e.array(q), e.array(k), e.array(v), mask="causal"), cpu, engine)


def test_loops_of_calls_are_counted(vulkan: Any, cpu: Any, rng: np.random.Generator) -> None:
    """llvmpipe would cut the loops over the components of vectors: long products go in parts, long folds nowhere."""
    with config.override(tier="T2"):
        engine = get_engine("vulkan")
    assert engine.limits.longest_k < vulkan.limits.longest_k
    a, b = rng.standard_normal((3, 1500)).astype(np.float32), rng.standard_normal((1500, 5)).astype(np.float32)
    same(lambda e: (e.array(a) @ e.array(b)).astype("float16").astype("float32"), cpu, engine)
    q, k, v = (rng.standard_normal((1, 1, length, 8)).astype(np.float32) for length in (2, 600, 600))
    same(lambda e: nnk.attention(e.array(q), e.array(k), e.array(v)), cpu, engine)
    k, v = (np.tile(array, (1, 1, 8, 1)) for array in (k, v))
    same(lambda e: nnk.attention(e.array(q), e.array(k), e.array(v)), cpu, vulkan)
    with pytest.raises(LimitError, match="loop iterations"):
        nnk.attention(engine.array(q), engine.array(k), engine.array(v)).numpy()


def run(device: Any, case: strategies.Case, variant: str) -> list[list[int]]:
    """Compile, dispatch and read back, without an engine."""
    spec = canonicalise(case.spec)
    launch = strategies.canonical_case(case).launch
    meta = kernel_meta_of(spec)
    kernel = device.build_kernel(compile_kernel(spec, "case", 0, variant), meta)
    inputs: list[Any] = []
    for array in case.inputs:
        inputs.append(device.allocate(array.nbytes, host_write=True))
        device.upload(inputs[-1], np.ascontiguousarray(array))
    outputs = [device.allocate(4 * out_count_of(meta, launch)) for _ in range(meta.n_outputs)]
    device.dispatch(kernel, inputs, outputs, pack_words(meta, launch), group_count_of(meta, launch))
    return [np.frombuffer(device.download(output), np.uint32).tolist() for output in outputs]


@pytest.mark.parametrize("tier_name", TIERS)
def test_random_specs(tier_name: str, vulkan: Any) -> None:
    @given(case=strategies.runnable_cases())
    @settings(max_examples=max(FEWEST, settings.default.max_examples // SHARE))
    def specs_give_the_bits_of_the_oracle(case: strategies.Case) -> None:
        found = run(vulkan.device, case, VARIANTS[tier_name])
        plain = strategies.canonical_case(case)
        with np.errstate(all="ignore"):
            expected = evaluate.evaluate(plain.spec, plain.launch, plain.inputs)
        assert found == [output.view(np.uint32).reshape(-1).tolist() for output in expected]
    specs_give_the_bits_of_the_oracle()


@given(program=programs(max_calls=4))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture],
          max_examples=max(FEWEST, settings.default.max_examples // SHARE))
def test_random_programs(tier: Any, program: Program) -> None:
    with np.errstate(all="ignore"), tier.cache.deferred():
        check(program, tier)
