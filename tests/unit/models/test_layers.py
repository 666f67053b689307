"""Layers against NumPy in float64, and that padding changes no bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nnk.engines.parity import digest
from nnk.errors import ExprError, ShapeError
from nnk.models.layers import add_norm, l2_normalise, linear, mean_pool, self_attention

Array = np.ndarray[Any, Any]


def floats(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def close(found: Any, expected: Array, tolerance: float = 2e-6) -> None:
    array = found.numpy()
    assert array.shape == expected.shape
    assert np.abs(array - expected).max() <= tolerance


def test_linear(cpu: Any, rng: np.random.Generator) -> None:
    x, weight, bias = floats(rng, 2, 5, 8), floats(rng, 8, 3), floats(rng, 3)
    found = linear(*map(cpu.array, (x, weight, bias)))
    close(found, x.astype(np.float64) @ weight + bias)
    with pytest.raises(ShapeError, match="inner sizes"):
        linear(cpu.array(x), cpu.array(weight.T), cpu.array(bias))


def test_add_norm(cpu: Any, rng: np.random.Generator) -> None:
    x, residual, weight, bias = floats(rng, 4, 16), floats(rng, 4, 16), floats(rng, 16), floats(rng, 16)
    total = x.astype(np.float64) + residual
    expected = (total - total.mean(-1, keepdims=True)) / np.sqrt(total.var(-1, keepdims=True) + 0.5) * weight + bias
    close(add_norm(*map(cpu.array, (x, residual, weight, bias)), 0.5), expected)


def attention(qkv: Array, mask: Array, heads: int) -> Array:
    """Return the attention one head and one text at a time."""
    batch, tokens, width = qkv.shape
    features = width // 3
    size = features // heads
    result = np.zeros((batch, tokens, features))
    for text in range(batch):
        for head in range(heads):
            query, key, value = (qkv[text, :, start + head * size:start + (head + 1) * size].astype(np.float64)
                                 for start in (0, features, 2 * features))
            scores = query @ key.T / np.sqrt(size)
            weights = np.exp(scores - scores.max()) * mask[text]
            result[text, :, head * size:(head + 1) * size] = weights / weights.sum(-1, keepdims=True) @ value
    return result


@pytest.mark.parametrize(("batch", "tokens", "heads", "size"), [(1, 1, 1, 4), (2, 5, 3, 4), (3, 7, 2, 8)])
def test_self_attention(batch: int, tokens: int, heads: int, size: int, cpu: Any, rng: np.random.Generator) -> None:
    qkv = floats(rng, batch, tokens, 3 * heads * size)
    mask = np.ones((batch, tokens), bool)
    mask[-1, tokens // 2 + 1:] = False
    bias = np.where(mask, 0, -np.inf).astype(np.float32)[:, None, None, :]
    close(self_attention(cpu.array(qkv), cpu.array(bias), heads), attention(qkv, mask, heads))


def test_mean_pool(cpu: Any, rng: np.random.Generator) -> None:
    x = floats(rng, 3, 6, 5)
    mask = np.arange(6) < np.array([[6], [1], [4]])
    counts = mask.sum(1, keepdims=True)
    expected = (x.astype(np.float64) * mask[:, :, None]).sum(1) / counts
    found = mean_pool(cpu.array(x), cpu.array(mask.astype(np.float32)[:, None, :]),
                      cpu.array(counts.astype(np.float32)))
    close(found, expected)


def test_padding_changes_no_bit_of_a_mean(cpu: Any, rng: np.random.Generator) -> None:
    """Also where the sum is -0.0, and whatever stands in the padding."""
    x = floats(rng, 1, 3, 4)
    x[0, :, 0] = -0.0
    padded = np.concatenate([x, np.full((1, 5, 4), np.nan, np.float32)], axis=1)
    results = [mean_pool(cpu.array(values), cpu.array((np.arange(values.shape[1]) < 3).astype(np.float32)[None, None]),
                         cpu.array([[3.0]])) for values in (x, padded)]
    assert digest(results[0]) == digest(results[1])
    assert np.signbit(results[0].numpy()[0, 0])


def test_l2_normalise(cpu: Any, rng: np.random.Generator) -> None:
    x = floats(rng, 3, 8)
    x[1] = 0
    expected = x.astype(np.float64) / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    close(l2_normalise(cpu.array(x)), expected)
    close(l2_normalise(cpu.array([[3.0, 4.0]]), eps=10.0), np.array([[0.3, 0.4]]))


def test_layers_agree_on_both_engines(cpu: Any, vulkan: Any, rng: np.random.Generator) -> None:
    qkv, weight, bias = floats(rng, 2, 5, 24), floats(rng, 8, 8), floats(rng, 8)
    masked = np.zeros((2, 1, 1, 5), np.float32)
    masked[1, ..., 3:] = -np.inf
    results = []
    for engine in (cpu, vulkan):
        w, b = engine.array(weight), engine.array(bias)
        x = self_attention(engine.array(qkv), engine.array(masked), 2)
        x = add_norm(linear(x, w, b), x, b, b, 1e-12)
        keep = engine.array(np.ones((2, 1, 5), np.float32))
        results.append(digest(l2_normalise(mean_pool(x, keep, engine.array([[5.0], [5.0]])))))
    assert results[0] == results[1]


def test_engines_do_not_mix(cpu: Any, vulkan: Any) -> None:
    with pytest.raises(ExprError, match="one engine"):
        linear(cpu.array(np.ones((2, 2))), vulkan.array(np.ones((2, 2))), cpu.array(np.ones(2)))
