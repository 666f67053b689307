"""Regions: evaluations that are asked for one after the other and run together.

Inside of ``with nnk.record():`` an evaluation only says that a tensor is wanted; at the end of the region all of them
are computed as one graph, so that parts they share are computed once and elementwise work of one shape shares kernels
(:mod:`nnk.expr.merge`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from nnk.errors import ExprError
from nnk.expr.node import Tensor

__all__ = ["Region", "active", "evaluate", "record"]

_thread = threading.local()


class Region:
    """What a region was asked for.

    Attributes
    ----------
    engine : Engine or None
        The one engine of the region, once a tensor is wanted.
    tensors : list of Tensor
        The wanted tensors, in order.
    """

    def __init__(self) -> None:
        self.engine: Any = None
        self.tensors: list[Tensor] = []

    def add(self, engine: Any, tensors: Iterable[Tensor]) -> None:
        """Note that ``tensors`` are wanted from ``engine``."""
        if self.engine is not None and self.engine is not engine:
            raise ExprError(f"Expected tensors of {self.engine} in a region of nnk.record(), got one of {engine}: a "
                            f"region has one engine", op="record")
        self.engine = engine
        self.tensors.extend(tensors)


def active() -> Region | None:
    """Return the open region of this thread."""
    region: Region | None = getattr(_thread, "region", None)
    return region


@contextmanager
def record() -> Iterator[Region]:
    """Open a region: ``with nnk.record():``. What is evaluated in it is computed together at its end.

    Only this thread records. Values can be read after the region, not in it. When the body raises, nothing is computed.

    Yields
    ------
    Region

    Raises
    ------
    ExprError
        If a region is open already, if its tensors belong to several engines, or if a value is read inside of it.
    """
    if active() is not None:
        raise ExprError("Expected no open region for nnk.record(), got a region inside of another", op="record")
    region = _thread.region = Region()
    try:
        yield region
    finally:
        _thread.region = None
    if region.engine is not None:
        region.engine.evaluate(region.tensors)


def evaluate(*tensors: Tensor | Sequence[Tensor]) -> None:
    """Compute tensors together, now: parts that they share once, elementwise work of one shape in common kernels.

    Parameters
    ----------
    *tensors : Tensor, or list or tuple of Tensor
        Of one engine.

    Raises
    ------
    ExprError
        If they belong to several engines, or one to none.
    """
    flat: list[Tensor] = []
    for item in tensors:
        flat.extend(item if isinstance(item, (list, tuple)) else [item])  # type: ignore[list-item]
    for tensor in flat:
        if not isinstance(tensor, Tensor):
            raise ExprError(f"Expected tensors for nnk.eval, got {type(tensor).__name__}", op="eval")
    if flat:
        engine = next((tensor.engine for tensor in flat if tensor.engine is not None), None)
        if engine is None:
            raise ExprError("Expected a tensor that belongs to an engine, got a bare constant", op="eval")
        engine.evaluate(flat)
