"""all-MiniLM-L6-v2 end to end: tokens, the same bits on every path, and how far they are from exact arithmetic."""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from nnk.cache.store import KernelCache
from nnk.engines.cpu import CpuEngine
from nnk.engines.gpu import GpuEngine
from nnk.engines.parity import digest
from nnk.engines.select import vulkan_devices
from nnk.generator.version import GENERATOR_VERSION
from nnk.models.minilm import DISTRIBUTION, PACKAGE, MiniLM
from nnk.models.weights import load_safetensors, package_folder
from tests import ROOT
from tests.texts import LONG, TEXTS

LAYERS = 6
CLS, SEP = 101, 102


@pytest.fixture(scope="module")
def model() -> MiniLM:
    """The model on the CPU engine with two threads."""
    return MiniLM(CpuEngine(threads=2))


@pytest.fixture(scope="module")
def vectors(model: MiniLM) -> np.ndarray[Any, Any]:
    """The embeddings of all texts, as one batch on the CPU engine."""
    return model.encode(TEXTS, batch_size=len(TEXTS))


@pytest.fixture(scope="module")
def vulkan_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MiniLM]:
    """The model on the best Vulkan device, with a cache of its own."""
    cache = KernelCache(tmp_path_factory.mktemp("minilm") / "kernels.nnk", generator_version=GENERATOR_VERSION)
    engine = GpuEngine(vulkan_devices()[0], cache)
    yield MiniLM(engine)
    engine.close()


def test_forty_texts() -> None:
    assert len(TEXTS) == 40
    assert "" in TEXTS
    assert len(set(TEXTS)) == 39


def test_tokens_are_those_of_the_package(model: MiniLM) -> None:
    from tokenizers import Tokenizer
    expected = Tokenizer.from_file(str(package_folder(PACKAGE, DISTRIBUTION) / "model" / "tokenizer.json"))
    expected.no_padding()
    expected.enable_truncation(max_length=256)
    tokens = model.tokenize(TEXTS)
    assert tokens == [expected.encode(text).ids for text in TEXTS]
    for ids in tokens:
        assert (ids[0], ids[-1]) == (CLS, SEP)
        assert len(ids) <= 256
    assert tokens[0] == [CLS, SEP]
    assert model.tokenize(["a cat", "A cat "]) == [[CLS, 1037, 4937, SEP]] * 2
    assert len(model.tokenize([LONG])[0]) == 256


def test_vectors_have_unit_length(vectors: np.ndarray[Any, Any]) -> None:
    assert vectors.shape == (40, 384)
    assert vectors.dtype == np.float32
    assert np.abs(np.linalg.norm(vectors.astype(np.float64), axis=1) - 1).max() < 1e-6
    assert np.array_equal(vectors[TEXTS.index("cat")], vectors[TEXTS.index("cat") + 1])


def test_digest_is_the_published_one(vectors: np.ndarray[Any, Any]) -> None:
    """The regression lock: a change of one bit is a change of the numerics contract."""
    golden = json.loads((ROOT / "tests" / "golden" / "cli" / "embed.json").read_text(encoding="utf-8"))
    assert digest(vectors) == golden["digest"]


def test_one_text_at_a_time(model: MiniLM, vectors: np.ndarray[Any, Any]) -> None:
    for position, text in enumerate(TEXTS):
        assert digest(model.encode([text])[0]) == digest(vectors[position]), text
    assert digest(model.encode(TEXTS, batch_size=1)) == digest(vectors)
    assert digest(model.encode(TEXTS, batch_size=7)) == digest(vectors)


def test_order_of_texts(model: MiniLM, vectors: np.ndarray[Any, Any]) -> None:
    assert digest(model.encode(TEXTS[::-1])[::-1]) == digest(vectors)


def test_threads(vectors: np.ndarray[Any, Any]) -> None:
    for threads in (1, 3):
        assert digest(MiniLM(CpuEngine(threads)).encode(TEXTS, batch_size=len(TEXTS))) == digest(vectors)


def test_vulkan_gives_the_same_bits(vulkan_model: MiniLM, vectors: np.ndarray[Any, Any]) -> None:
    found = vulkan_model.encode(TEXTS, batch_size=len(TEXTS))
    different = [text for text, left, right in zip(TEXTS, found, vectors, strict=True) if digest(left) != digest(right)]
    assert different == []
    assert digest(found) == digest(vectors)


def inputs_of(model: MiniLM, texts: list[str]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    tokens = model.tokenize(texts)
    width = max(map(len, tokens))
    mask = np.array([[column < len(ids) for column in range(width)] for ids in tokens])
    return np.array([ids + [0] * (width - len(ids)) for ids in tokens], np.int32), mask


def with_layers(model: MiniLM, layers: int) -> MiniLM:
    changed = copy.copy(model)
    changed.config = dataclasses.replace(model.config, layers=layers)
    return changed


def test_kernels_of_a_forward(vulkan_model: MiniLM) -> None:
    engine = vulkan_model.engine
    ids, mask = inputs_of(vulkan_model, ["a", "a cat"])
    counts = [len(engine.schedule([with_layers(vulkan_model, layers).forward(ids, mask)])[0].steps)
              for layers in (0, 1, LAYERS)]
    assert counts[2] - counts[1] == (LAYERS - 1) * (counts[1] - counts[0])
    a_layer = counts[1] - counts[0]
    schedule, _ = engine.schedule([vulkan_model.forward(ids, mask)])
    kernels = {step.key for step in schedule.steps}
    print(f"{a_layer} dispatches a layer, {len(schedule.steps)} in all, {len(kernels)} distinct kernels")
    assert a_layer <= 14
    assert len(kernels) <= 16
    before = engine.dispatch_count
    vulkan_model.forward(ids, mask).numpy()
    assert engine.dispatch_count - before == len(schedule.steps)


def test_explain_shows_the_kernels(vulkan_model: MiniLM) -> None:
    import nnk
    ids, mask = inputs_of(vulkan_model, ["a", "a cat"])
    explanation = nnk.explain(vulkan_model.forward(ids, mask))
    assert len(explanation.kernels) <= 16
    assert sum(kernel.runs for kernel in explanation.kernels) == explanation.dispatch_count
    text = str(explanation)
    for kernel in explanation.kernels:
        assert kernel.key in text
        assert "#version 450" in kernel.glsl
        assert kernel.cached in ("hit", "miss")


# --------------------------------------------------------------------------- the exact model

def exact_forward(ids: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the unit vectors of texts of one length in float64, from the published description of the model."""
    w = weights()

    def dense(x: Any, name: str) -> Any:
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def norm(x: Any, name: str) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        variance = (centred ** 2).mean(-1, keepdims=True)
        return centred / np.sqrt(variance + 1e-12) * w[f"{name}.weight"] + w[f"{name}.bias"]

    def heads(x: Any) -> Any:
        return x.reshape(*ids.shape, 12, 32).transpose(0, 2, 1, 3)

    erf = np.vectorize(math.erf, otypes=[np.float64])
    x = (w["embeddings.word_embeddings.weight"][ids] + w["embeddings.position_embeddings.weight"][:ids.shape[1]]
         + w["embeddings.token_type_embeddings.weight"][0])
    x = norm(x, "embeddings.LayerNorm")
    for layer in range(LAYERS):
        name = f"encoder.layer.{layer}."
        query, key, value = (heads(dense(x, f"{name}attention.self.{part}")) for part in ("query", "key", "value"))
        scores = query @ key.transpose(0, 1, 3, 2) / math.sqrt(32)
        weight = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (weight / weight.sum(-1, keepdims=True)) @ value
        mixed = mixed.transpose(0, 2, 1, 3).reshape(*ids.shape, 384)
        x = norm(x + dense(mixed, f"{name}attention.output.dense"), f"{name}attention.output.LayerNorm")
        up = dense(x, f"{name}intermediate.dense")
        x = norm(x + dense(up * 0.5 * (1 + erf(up / math.sqrt(2))), f"{name}output.dense"), f"{name}output.LayerNorm")
    pooled = x.mean(1)
    return pooled / np.linalg.norm(pooled, axis=1, keepdims=True)


@functools.cache
def weights() -> dict[str, np.ndarray[Any, Any]]:
    arrays = load_safetensors(package_folder(PACKAGE, DISTRIBUTION) / "model" / "model.safetensors")
    return {name: array.astype(np.float64) for name, array in arrays.items() if array.dtype == np.float32}


def test_distance_from_the_exact_model(model: MiniLM, vectors: np.ndarray[Any, Any]) -> None:
    tokens = model.tokenize(TEXTS)
    exact = np.empty(vectors.shape)
    for length in {len(ids) for ids in tokens}:
        chosen = [position for position, ids in enumerate(tokens) if len(ids) == length]
        exact[chosen] = exact_forward(np.array([tokens[position] for position in chosen]))
    error = np.abs(exact - vectors).max(axis=1)
    print(f"largest error {error.max():.2e} at {TEXTS[int(error.argmax())]!r}, mean {error.mean():.2e}")
    assert error.max() <= 1e-6
