"""Fast numerics: other kernels, errors within Vulkan's bounds, and nothing of it without being asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnk
from nnk import config
from nnk.engines.parity import SUITE, special_values
from nnk.numerics import FAST_FUNCTIONS, FAST_VARIANT
from tests.fast_bounds import BOUNDS, errors, operands

pytestmark = pytest.mark.usefixtures("quiet_numpy")

#: Op -> function over tensors, where the names differ.
FUNCTIONS = {"gelu_tanh": lambda x: nnk.gelu(x, approximate="tanh"), "div": lambda x: 1.0 / x}


@pytest.fixture
def fast(vulkan: Any) -> Any:
    """Return the fast engine of the device."""
    return nnk.engine("vulkan", numerics="fast")


def call(name: str, x: Any) -> np.ndarray:
    op = name.partition(" ")[0]
    return FUNCTIONS.get(op, getattr(nnk, op, None))(x).numpy()


@pytest.mark.parametrize("name", BOUNDS)
def test_errors_are_within_the_bounds(name: str, fast: Any, rng: np.random.Generator) -> None:
    x = operands(name, 200_000, rng)
    largest, share = errors(name, x, call(name, fast.array(x)))
    assert share <= 1, largest


def test_every_native_function_has_a_bound() -> None:
    assert {name.partition(" ")[0] for name in BOUNDS} == set(FAST_FUNCTIONS) - {"div"}


def test_quotients(fast: Any, rng: np.random.Generator) -> None:
    a, b = (np.exp(rng.uniform(-30, 30, 100_000)).astype(np.float32) for _ in range(2))
    exact = a.astype(np.float64) / b
    found = (fast.array(a) / fast.array(b)).numpy()
    assert np.abs((found - exact) / np.spacing(exact.astype(np.float32))).max() <= 2.5


def test_results_without_a_native_function_stay_near(fast: Any, cpu: Any) -> None:
    """Exact functions keep their rounding where the driver may contract: their errors do not grow."""
    x = np.random.default_rng(1).standard_normal(5000).astype(np.float32) * 3
    for function in (nnk.erf, nnk.gelu, nnk.expm1):
        assert np.array_equal(*(function(engine.array(x)).numpy() for engine in (fast, cpu)))


def test_reductions_and_products_stay_near(fast: Any, cpu: Any, rng: np.random.Generator) -> None:
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((33, 200), (200, 65)))
    for build in (lambda e: e.array(a) @ e.array(b), lambda e: nnk.softmax(e.array(a)),
                  lambda e: nnk.layer_norm(e.array(a)), lambda e: e.array(a).sum(-1)):
        found, exact = (build(engine).numpy() for engine in (fast, cpu))
        assert np.allclose(found, exact, rtol=1e-4, atol=1e-4)


def test_the_whole_suite_runs(fast: Any, cpu: Any) -> None:
    from nnk.cli.parser import tensor_of
    x, w = (np.abs(special_values((20, 20), seed)) for seed in (1, 2))
    x, w = (np.where(np.isfinite(v) & (v > 1e-3) & (v < 1e3), v, np.float32(0.5)) for v in (x, w))
    before = len(fast.kernels.compiled) + len(fast.kernels.hits)
    for text in SUITE:
        found, exact = (tensor_of(text, {"x": engine.array(x), "w": engine.array(w)}).numpy()
                        for engine in (fast, cpu))
        # Outside of a domain both are NaN.
        assert np.allclose(found, exact, rtol=1e-2, atol=1e-2, equal_nan=True), text
    keys = (fast.kernels.compiled + fast.kernels.hits)[before:]
    assert keys
    assert all(FAST_VARIANT in key.partition("#")[2] for key in keys)


def test_kernels_say_that_they_are_fast(fast: Any, vulkan: Any) -> None:
    text = str(nnk.explain(nnk.exp(fast.array([1.0]))))
    assert "variant: fast" in text
    assert "=exp(x0)" in text
    assert "variant" not in str(nnk.explain(nnk.exp(vulkan.array([1.0])))).splitlines()[2]
    assert (fast.tier, fast.self_test) == ("none", None)


def test_the_setting_and_nothing_else_chooses_it(vulkan: Any, fast: Any) -> None:
    assert nnk.engine().numerics == "exact"
    with config.override(numerics="fast"):
        assert nnk.engine() is fast
    assert nnk.engine() is vulkan
