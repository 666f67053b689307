"""How a reduction reads a tensor: axes moved to where a kernel reduces them, long lines in parts.

A line is a row or a column of what a kernel reads; a reduction gives one value for each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from nnk.errors import ShapeError
from nnk.expr.node import CHUNKED, FLOAT32, Tensor, constant, geometry_of
from nnk.expr.promote import astype
from nnk.expr.views import normalise_axes, reshape, transpose
from nnk.numerics import REDUCE_CHUNK

__all__ = ["LONGEST_LINE", "Axis", "axes_of", "lines_to_reduce", "reduce_lines", "reduce_over", "reduced_shape"]

Axis = int | Sequence[int] | None

#: Longest line that one kernel reduces. It depends on nothing but the length, so that all devices make the same cut.
LONGEST_LINE = 4 * REDUCE_CHUNK


def _is_by_column(x: Tensor, kept: tuple[int, ...], reduced: tuple[int, ...]) -> bool:
    """Say whether a reduction reads whole lines of memory when its lines are columns: kept values lie side by side."""
    if not kept or kept != tuple(range(kept[0], kept[-1] + 1)):
        return False
    strides = geometry_of(x)[2]
    inner_kept, inner_reduced = strides[kept[-1]], strides[reduced[-1]]
    if inner_kept == inner_reduced:
        return kept[-1] > reduced[-1]
    return inner_kept == 1 and all(strides[axis] == strides[axis + 1] * x.shape[axis + 1] for axis in kept[:-1])


def lines_to_reduce(x: Tensor, reduced: tuple[int, ...]) -> tuple[Tensor, str]:
    """Return (tensor, "row") with the reduced axes merged into the last one, or (tensor, "col") with them in front."""
    if len(reduced) == x.ndim == 1:
        return x, "row"
    kept = tuple(axis for axis in range(x.ndim) if axis not in reduced)
    by_column = _is_by_column(x, kept, reduced)
    order = reduced + kept if by_column else kept + reduced
    moved = x if order == tuple(range(x.ndim)) else transpose(x, order)
    if by_column:
        # All axes but the last are rows of a column.
        return moved if len(kept) == 1 else reshape(moved, (_count(x, reduced), _count(x, kept))), "col"
    if len(reduced) == 1:
        return moved, "row"
    return reshape(moved, (*(x.shape[axis] for axis in kept), _count(x, reduced))), "row"


def _count(x: Tensor, axes: tuple[int, ...]) -> int:
    return math.prod(x.shape[axis] for axis in axes)


def reduce_lines(op: str, values: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return one value a row (op ``row_...``) or a column (``col_...``) of ``values``.

    Lines that are long go through the results of their chunks, in kernels of their own: chunks of one line then run
    side by side, and rule R7 gives the same bits. ``shape`` is the wanted shape of the result, if it broadcasts.
    """
    is_row = op.startswith("row")
    while (length := values.shape[-1] if is_row else math.prod(values.shape[:-1])) > LONGEST_LINE:
        chunks = -(-length // REDUCE_CHUNK)
        cut = (*values.shape[:-1], chunks) if is_row else (chunks, values.shape[-1])
        values = Tensor(op, (values,), CHUNKED, cut, FLOAT32, values.engine)
    if is_row:
        shape = (*values.shape[:-1], 1)
    elif shape[-1:] != values.shape[-1:] or len(shape) > values.ndim or math.prod(shape) != shape[-1]:
        shape = (*(1,) * (values.ndim - 1), values.shape[-1])
    return Tensor(op, (values,), (), shape, FLOAT32, values.engine)


def axes_of(x: Tensor, axis: Axis, op: str) -> tuple[int, ...]:
    """Return the axes to reduce. A 0-D tensor has axis 0 in reductions, as in NumPy."""
    return normalise_axes(axis, x.ndim, op) if x.ndim else normalise_axes(axis, 1, op)[:0]


def reduced_shape(x: Tensor, axes: tuple[int, ...], keepdims: bool) -> tuple[int, ...]:
    """Return the shape of a reduction of ``x`` over ``axes``."""
    if keepdims:
        return tuple(1 if axis in axes else size for axis, size in enumerate(x.shape))
    return tuple(size for axis, size in enumerate(x.shape) if axis not in axes)


def reduce_over(name: str, op: str, tensor: Tensor, axes: tuple[int, ...], keepdims: bool, empty: float | None,
                begin: Callable[[Tensor], Tensor] = lambda lines: lines,
                finish: Callable[[Tensor], Tensor] = lambda result: result) -> Tensor:
    """Return finish(op(begin(lines))) for the reduction ``op`` (sum or max); ``name`` is what the caller calls it.

    ``begin`` comes after the axes are moved, ``finish`` before they are dropped: both then belong to the one kernel.
    """
    if tensor.ndim == 0:
        tensor, axes, keepdims = reshape(tensor, (1,)), (0,), False
    if not axes:
        return finish(begin(astype(tensor, FLOAT32)))
    shape = reduced_shape(tensor, axes, keepdims)
    if math.prod(tensor.shape[a] for a in axes) == 0:
        if empty is None:
            raise ShapeError(f"Expected at least one element to reduce for {name}, got shape {tensor.shape}", op=name,
                             shapes=(tensor.shape,))
        return finish(Tensor("const", (), constant(empty).attrs, shape, FLOAT32, tensor.engine))
    lines, direction = lines_to_reduce(tensor, axes)
    result = finish(reduce_lines(f"{direction}_{op}", begin(lines), shape))
    return result if result.shape == shape else reshape(result, shape)
