"""Warm-up: run a model once so that the cache holds its kernels."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from nnk.engines.base import Engine
from nnk.engines.select import get_engine
from nnk.expr.node import Tensor

__all__ = ["WarmupReport", "model_warmup"]


@dataclass(frozen=True)
class WarmupReport:
    """What a warm-up did: new kernels compiled, kernels found in the cache, seconds, and the device."""

    compiled: int
    hits: int
    seconds: float
    device: str
    keys: tuple[str, ...]


def _tensors_in(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors_in(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors_in(item)


def _engine_for(model: Any, sample: tuple[Any, ...]) -> Engine:
    engine = getattr(model, "engine", None)
    if isinstance(engine, Engine):
        return engine
    for tensor in _tensors_in(sample):
        if isinstance(tensor.engine, Engine):
            return tensor.engine
    return get_engine()


def model_warmup(model: Callable[..., Any], *sample: Any) -> WarmupReport:
    """Run ``model(*sample)`` once and write the kernels that it compiled to the cache, all at once.

    Parameters
    ----------
    model : callable
        Returns tensors (also nested in lists, tuples, dicts) or anything else. Its ``engine`` attribute names the
        engine; otherwise the first tensor of ``sample`` does, otherwise it is the default engine.

    Returns
    -------
    WarmupReport

    Warns
    -----
    CacheWarning
        If the cache file cannot be written; the kernels then stay in this process.
    """
    engine = _engine_for(model, sample)
    compiled, hits = len(engine.kernels.compiled), len(engine.kernels.hits)
    start = time.perf_counter()
    cache = getattr(engine, "cache", None)
    with contextlib.nullcontext() if cache is None else cache.deferred():
        # A bare constant among the results needs no kernel and has no engine.
        engine.evaluate(tensor for tensor in _tensors_in(model(*sample)) if tensor.engine is not None)
        engine.synchronize()
    keys = tuple(engine.kernels.compiled[compiled:])
    return WarmupReport(len(keys), len(engine.kernels.hits) - hits, time.perf_counter() - start, engine.device_name,
                        keys)
