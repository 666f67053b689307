"""Tensors from nothing but a shape, that of another one, or a range."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nnk.engines.base import Engine, dtype_for
from nnk.engines.select import get_engine
from nnk.errors import DTypeError, OutOfDeviceMemoryError, ShapeError
from nnk.expr.dtypes import dtype_of
from nnk.expr.node import Tensor

__all__ = ["arange", "full", "full_like"]


def _made(op: str, engine: Engine, make: Callable[[], Any], dtype: Any) -> Tensor:
    """Return what ``make`` gives as a tensor of ``dtype`` (default: NumPy's, as :func:`nnk.array` takes it)."""
    wanted = None if dtype is None else dtype_of(dtype, op)
    def refusal(error: Exception) -> ShapeError:
        return ShapeError(f"Expected sizes and numbers for {op}, got what NumPy refuses: {error}", op=op)

    try:
        values = make()
    except (TypeError, ValueError, ZeroDivisionError, MemoryError) as error:
        raise refusal(error) from error
    try:
        return engine.array(values, wanted)
    except OutOfDeviceMemoryError:
        raise
    except MemoryError as error:
        raise refusal(error) from error


def full(op: str, engine: Engine, shape: Any, value: Any, dtype: Any) -> Tensor:
    """Return a tensor of ``shape`` with one value everywhere."""
    # A view: the tensor's own copy is the only one.
    return _made(op, engine, lambda: np.broadcast_to(np.asarray(value), shape), dtype)


def full_like(op: str, x: Any, value: Any, dtype: Any, engine: Any) -> Tensor:
    """Return a tensor of the shape of ``x``, and by default of its dtype and engine, with one value everywhere."""
    if not isinstance(x, Tensor):
        x = np.asarray(x)
        if dtype is None and x.dtype.kind not in "fiub" and x.dtype.name != "bfloat16":
            raise DTypeError(f"Expected a tensor or numbers for {op}, got dtype {x.dtype}", op=op, dtypes=(x.dtype,))
    elif engine is None:
        engine = x.engine
    return full(op, get_engine(engine), x.shape, value, dtype_for(x.dtype) if dtype is None else dtype)


def arange(engine: Engine, start: Any, stop: Any, step: Any, dtype: Any) -> Tensor:
    """Return the numbers from ``start`` to ``stop``, without it, ``step`` apart; from 0 to ``start`` without a stop."""
    first, end = (0, start) if stop is None else (start, stop)
    return _made("arange", engine, lambda: np.arange(first, end, step), dtype)
