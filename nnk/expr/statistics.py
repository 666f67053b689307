"""Reductions that are made of sums and maxima: variance, standard deviation, any, all.

Their values follow from the functions that they are written with, in that order, so they have the same bits on every
engine.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from nnk.errors import DTypeError
from nnk.expr.functions import sqrt, square
from nnk.expr.lines import Axis, axes_of, reduce_over
from nnk.expr.node import Tensor, binary_operands, elementwise, run_time_parameter
from nnk.expr.out import stored
from nnk.expr.promote import truth
from nnk.expr.reductions import mean

__all__ = ["reduce_all", "reduce_any", "std", "var"]


def _spread(name: str, x: Any, axis: Axis, ddof: float, keepdims: bool,
            finish: Callable[[Tensor], Tensor] = lambda variance: variance) -> Tensor:
    """Return finish(variance) over ``axis``."""
    (tensor,), _ = binary_operands(name, (x,))
    if not isinstance(ddof, (int, float, np.integer, np.floating)):
        raise DTypeError(f"Expected a number for ddof of {name}, got {type(ddof).__name__}", op=name,
                         dtypes=(type(ddof),))
    axes = axes_of(tensor, axis, name)
    count = math.prod(tensor.shape[position] for position in axes)
    squares = square(tensor - mean(tensor, axis, keepdims=True))
    divisor = run_time_parameter(max(count - float(ddof), 0.0))
    return reduce_over(name, "sum", squares, axes, keepdims, 0.0, finish=lambda total: finish(total / divisor))


def var(x: Any, axis: Axis = None, ddof: float = 0, keepdims: bool = False, *, out: Tensor | None = None) -> Tensor:
    """Return the variance over ``axis`` (default: all): the mean of (x - mean(x))**2, in two passes.

    Parameters
    ----------
    ddof : float
        The sum of squares is divided by max(n - ddof, 0) rounded to float32: 1 gives the unbiased estimate.

    Returns
    -------
    Tensor of the shape of ``x`` without ``axis``, or with size 1 there if ``keepdims``; NaN for no elements
    """
    return stored("var", _spread("var", x, axis, ddof, keepdims), out, False)


def std(x: Any, axis: Axis = None, ddof: float = 0, keepdims: bool = False, *, out: Tensor | None = None) -> Tensor:
    """Return the standard deviation over ``axis`` (default: all): the square root of :func:`var`."""
    return stored("std", _spread("std", x, axis, ddof, keepdims, sqrt), out, False)


def reduce_any(x: Any, axis: Axis = None, keepdims: bool = False, *, out: Tensor | None = None) -> Tensor:
    """Return whether any element over ``axis`` (default: all) is not zero; NaN is not zero."""
    (tensor,), _ = binary_operands("any", (x,))
    result = reduce_over("any", "max", tensor, axes_of(tensor, axis, "any"), keepdims, 0.0,
                         lambda lines: elementwise("ne", lines, 0.0), truth)
    return stored("any", result, out, False)


def reduce_all(x: Any, axis: Axis = None, keepdims: bool = False, *, out: Tensor | None = None) -> Tensor:
    """Return whether all elements over ``axis`` (default: all) are not zero; NaN is not zero."""
    (tensor,), _ = binary_operands("all", (x,))
    result = reduce_over("all", "max", tensor, axes_of(tensor, axis, "all"), keepdims, 0.0, _is_zero, _is_zero)
    return stored("all", result, out, False)


def _is_zero(x: Tensor) -> Tensor:
    return elementwise("eq", x, 0.0)
