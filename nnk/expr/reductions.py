"""Sums, maxima, minima and means over axes."""

from __future__ import annotations

import math
from typing import Any

from nnk.expr.dtypes import info_of
from nnk.expr.functions import negative
from nnk.expr.lines import Axis, axes_of, reduce_over
from nnk.expr.node import Tensor, binary_operands, run_time_parameter
from nnk.expr.out import stored
from nnk.expr.promote import operands_of
from nnk.expr.whole import integer_max, integer_min, integer_sum

__all__ = ["mean", "reduce_max", "reduce_min", "reduce_sum"]


def reduce_sum(x: Any, axis: Axis = None, keepdims: bool = False, *, out: Tensor | None = None) -> Tensor:
    """Return the sum over ``axis`` (default: all), in the fixed order of docs/numerics.md R7; int32 for integers.

    The elements of several axes are added in row-major order of these axes. The sum of no elements is +0.
    """
    if out is not None:
        return stored("sum", reduce_sum(x, axis, keepdims), out, False)
    (tensor,), _, _ = operands_of("sum", (x,))
    if info_of(tensor.dtype).word != "float":
        return integer_sum(tensor, axes_of(tensor, axis, "sum"), keepdims)
    return reduce_over("sum", "sum", tensor, axes_of(tensor, axis, "sum"), keepdims, 0.0)


def reduce_max(x: Any, axis: Axis = None, keepdims: bool = False, *, out: Tensor | None = None) -> Tensor:
    """Return the maximum over ``axis`` (default: all), NaN if any element is NaN; a ShapeError if there is none."""
    if out is not None:
        return stored("max", reduce_max(x, axis, keepdims), out, False)
    (tensor,), _, _ = operands_of("max", (x,))
    if info_of(tensor.dtype).word != "float":
        return integer_max(tensor, axes_of(tensor, axis, "max"), keepdims)
    return reduce_over("max", "max", tensor, axes_of(tensor, axis, "max"), keepdims, None)


def reduce_min(x: Any, axis: Axis = None, keepdims: bool = False, *, out: Tensor | None = None) -> Tensor:
    """Return the minimum over ``axis`` (default: all), NaN if any element is NaN; a ShapeError if there is none."""
    if out is not None:
        return stored("min", reduce_min(x, axis, keepdims), out, False)
    (tensor,), _, _ = operands_of("min", (x,))
    if info_of(tensor.dtype).word != "float":
        return integer_min(tensor, axes_of(tensor, axis, "min"), keepdims)
    return reduce_over("min", "max", tensor, axes_of(tensor, axis, "min"), keepdims, None, negative, negative)


def mean(x: Any, axis: Axis = None, keepdims: bool = False, *, out: Tensor | None = None) -> Tensor:
    """Return sum(x, axis) / n over ``axis`` (default: all); NaN for no elements."""
    (tensor,), _ = binary_operands("mean", (x,))
    axes = axes_of(tensor, axis, "mean")
    count = math.prod(tensor.shape[a] for a in axes)
    result = reduce_over("mean", "sum", tensor, axes, keepdims, 0.0,
                         finish=lambda total: total / run_time_parameter(count))
    return stored("mean", result, out, False)
