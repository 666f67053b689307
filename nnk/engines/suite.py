"""The fixed suite of ``nnk parity`` beyond expressions, and the anchors: the digests that its results must have.

The anchors are one file, written by ``scripts/golden_anchors.py`` alone, which refuses to change a digest unless the
contract or the generator version has moved. They ship with the package, so that an installation can be held to them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nnk.engines.base import Engine
from nnk.engines.parity import ordinary_values, special_values
from nnk.expr import functions, norms
from nnk.expr.node import Tensor

__all__ = ["CASES", "PATH", "Anchors", "anchors"]

PATH = Path(__file__).with_name("anchors.json")


@dataclass(frozen=True)
class Anchors:
    """Digests by name, and the versions under which they were written."""

    contract_version: int
    generator_version: int
    digests: dict[str, str]


def anchors() -> Anchors:
    """Return the anchors of this version."""
    return Anchors(**json.loads(PATH.read_text(encoding="utf-8")))


def _values(engine: Engine, *shape: int, seed: int = 1) -> Tensor:
    return engine.array(special_values(shape, seed))


def _ordinary(engine: Engine, *shape: int, seed: int = 1) -> Tensor:
    return engine.array(ordinary_values(shape, seed))


def _matmul(engine: Engine, a: tuple[int, ...], b: tuple[int, ...]) -> Tensor:
    return _ordinary(engine, *a) @ _ordinary(engine, *b, seed=2)


def _many_inputs(engine: Engine) -> Tensor:
    total = _values(engine, 5, 7)
    for seed in range(2, 20):
        total = total * 0.5 + _values(engine, 5, 7, seed=seed)
    return total


def _normalised(x: Tensor) -> Tensor:
    return (x - x.mean(axis=0)) / x.std(axis=0, ddof=1)


#: Name -> what to compute: layouts and sizes that no expression of the command has.
CASES: dict[str, Callable[[Engine], Tensor]] = {
    "sum of rows of 33000": lambda engine: _ordinary(engine, 3, 33000).sum(axis=-1),
    "sum of special rows of 1025": lambda engine: _values(engine, 5, 1025).sum(axis=-1),
    "sum over two of three axes": lambda engine: _ordinary(engine, 7, 9, 33).sum(axis=(0, 2)),
    "maximum over the first axis": lambda engine: _values(engine, 65, 33).max(axis=0),
    "sum over an empty axis": lambda engine: _values(engine, 4, 0).sum(axis=-1),
    "maximum over all": lambda engine: _ordinary(engine, 129, 65).max(),
    "batched matmul": lambda engine: _matmul(engine, (3, 17, 40), (3, 40, 9)),
    "matmul of special values": lambda engine: _values(engine, 65, 33) @ _values(engine, 33, 65, seed=2),
    "matmul with k = 0": lambda engine: _matmul(engine, (3, 0), (0, 5)),
    "matmul with k = 1000": lambda engine: _matmul(engine, (65, 1000), (1000, 70)),
    "matmul of a transposed stack": lambda engine: _ordinary(engine, 2, 33, 20).transpose(0, 2, 1) @ _ordinary(
        engine, 33, 17, seed=2),
    "negative and broadcast strides": lambda engine: _values(engine, 33, 20)[::2, ::-3].T + _values(engine, 17, seed=2),
    "rows by index": lambda engine: _values(engine, 50, 33).take(np.arange(70, dtype=np.int32) * 7 % 50) * 2,
    "normalised rows": lambda engine: norms.layer_norm(_ordinary(engine, 9, 384)),
    "softmax of rows of 20000": lambda engine: norms.softmax(_ordinary(engine, 2, 20000)),
    "sum of a row of 200000": lambda engine: _ordinary(engine, 1, 200000).sum(axis=-1),
    "sum of columns of 70000": lambda engine: _ordinary(engine, 70000, 3).sum(axis=0),
    "softmax of columns": lambda engine: norms.softmax(_ordinary(engine, 300, 33), 0),
    "normalised columns": lambda engine: _normalised(_ordinary(engine, 400, 33)),
    "one element": lambda engine: functions.exp(_ordinary(engine)),
    "19 inputs": _many_inputs,
}
