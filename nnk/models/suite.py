"""A fixed run of every model that nnk has: what ``nnk digest --model`` hashes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nnk.engines.base import Engine
from nnk.errors import ModelError

__all__ = ["MODELS", "model_outputs"]

#: Texts of the fixed run of sentence models: empty, short, long beyond the limit, other scripts.
TEXTS = ("", "A cat sleeps.", "A kitten naps.", "Shaders become SPIR-V, and SPIR-V becomes machine code.",
         "The same bits, " * 300, "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.",
         "数値の再現性は大切です。", "x" * 120, "1 2 3 4 5 6 7 8 9 10")

Outputs = dict[str, np.ndarray[Any, Any]]


def _minilm(engine: Engine) -> Outputs:
    from nnk.models.minilm import MiniLM
    model = MiniLM(engine)
    return {"embeddings": model.encode(TEXTS), "embedding of one text": model.encode(TEXTS[1:2])}


#: Model name -> its fixed run.
MODELS: dict[str, Callable[[Engine], Outputs]] = {"all-MiniLM-L6-v2": _minilm}


def model_outputs(name: str, engine: Engine) -> Outputs:
    """Return the outputs of the fixed run of a model, by name.

    Raises
    ------
    ModelError
        If nnk has no such model, or its weights are not installed.
    """
    if name not in MODELS:
        raise ModelError(f"Expected one of {', '.join(MODELS)} for a model, got {name!r}", model=name)
    return MODELS[name](engine)
