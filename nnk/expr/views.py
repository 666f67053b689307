"""Views: reshape, transpose, slicing, broadcasting and take. They move no data; a kernel reads through them.

A view node holds an offset and strides, in elements, over the row-major values of its base. Views of views compose,
so that a chain of them is one strided read of one buffer.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from nnk.errors import (
    AxisError,
    DTypeError,
    ExprError,
    IndexFormError,
    IndexRangeError,
    ShapeError,
    UnsupportedOpError,
)
from nnk.expr.dtypes import INT32, info_of
from nnk.expr.meta import STRIDED_ELEMENTS
from nnk.expr.node import (
    Shape,
    Tensor,
    broadcast_shapes,
    contiguous_strides,
    elementwise,
    engine_of,
    geometry_of,
    is_row_major,
)
from nnk.expr.promote import astype

__all__ = ["broadcast_to", "expand_dims", "getitem", "moveaxis", "ravel", "reshape", "squeeze", "swapaxes", "take",
           "transpose"]


def _view(base: Tensor, offset: int, strides: Shape, shape: Shape) -> Tensor:
    if offset == 0 and shape == base.shape and strides == contiguous_strides(shape):
        return base
    return Tensor("view", (base,), (offset, strides), shape, base.dtype, base.engine)


def _flat(numbers: Any) -> tuple[Any, ...]:
    """Return the numbers of ``f(2, 3)``, ``f((2, 3))`` or ``f(2)`` as a tuple."""
    if not isinstance(numbers, (tuple, list)):
        return (numbers,)
    if len(numbers) == 1 and isinstance(numbers[0], (tuple, list)):
        return tuple(numbers[0])
    return tuple(numbers)


def _integer(value: Any, what: str, op: str) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise DTypeError(f"Expected an integer for {what} of {op}, got {type(value).__name__}", op=op,
                         dtypes=(type(value),)) from None


def _checked(value: Any, op: str) -> Tensor:
    """Return ``value``, which must be a tensor: a view has no other engine to live on."""
    if not isinstance(value, Tensor):
        raise DTypeError(f"Expected a tensor for {op}, got {type(value).__name__}; make one with nnk.array", op=op,
                         dtypes=(type(value),))
    return value


def _axis(axis: int, ndim: int, op: str) -> int:
    position = _integer(axis, "an axis", op)
    if not ndim:
        raise AxisError(f"Expected a tensor with an axis for {op}, got axis {axis} of a 0-D tensor", op=op,
                        shapes=((),))
    if not -ndim <= position < ndim:
        raise AxisError(f"Expected an axis from {-ndim} to {ndim - 1} for {op}, got {axis}", op=op)
    return position % ndim


def normalise_axes(axis: int | Sequence[int] | None, ndim: int, op: str) -> tuple[int, ...]:
    """Return ``axis`` as sorted non-negative axes; ``None`` means all."""
    if axis is None:
        return tuple(range(ndim))
    axes = [_axis(one, ndim, op) for one in (axis if isinstance(axis, (tuple, list)) else (axis,))]
    if len(set(axes)) != len(axes):
        raise ShapeError(f"Expected different axes for {op}, got {tuple(axes)}", op=op)
    return tuple(sorted(axes))


def materialised(tensor: Tensor) -> Tensor:
    """Return ``tensor`` as a row-major tensor: itself unless it is a view, else a copy kernel over it."""
    if tensor.op in ("view", "take") and tensor.storage is None:
        return elementwise("copy", tensor)
    return tensor


def packed_base(tensor: Tensor) -> Tensor | None:
    """Return the tensor that begins with the elements of ``tensor`` in row-major order, if there is one."""
    base, offset, strides = geometry_of(tensor)
    return base if is_row_major(tensor.shape, offset, strides) else None


def readable(tensor: Tensor) -> Tensor:
    """Return ``tensor``, or a copy of a view of more than one kernel binds: in order, it can be cut into pieces."""
    base = geometry_of(tensor)[0]
    most = STRIDED_ELEMENTS if tensor.engine is None else min(
        STRIDED_ELEMENTS, tensor.engine.limits.buffer_bytes // base.dtype.itemsize)
    return tensor if base.size <= most or packed_base(tensor) is not None else materialised(tensor)


def reshape(tensor: Tensor, shape: Sequence[Any]) -> Tensor:
    """Return the elements of ``tensor``, in row-major order, as ``shape``; one size may be -1.

    Raises
    ------
    ShapeError
        If the sizes do not fit.
    """
    _checked(tensor, "reshape")
    new = tuple(_integer(size, "a size", "reshape") for size in _flat(shape))
    if new.count(-1) == 1:
        known = math.prod(size for size in new if size != -1)
        if known == 0 or tensor.size % known:
            raise ShapeError(f"Expected a shape for {tensor.size} elements, got {new}", op="reshape",
                             shapes=(tensor.shape, new))
        new = tuple(tensor.size // known if size == -1 else size for size in new)
    if any(size < 0 for size in new) or math.prod(new) != tensor.size:
        raise ShapeError(f"Expected a shape for {tensor.size} elements {tensor.shape}, got {new}", op="reshape",
                         shapes=(tensor.shape, new))
    base, offset, strides = geometry_of(tensor)
    without_copy = _reshaped_strides(tensor.shape, strides, new)
    if without_copy is None:
        return _view(materialised(tensor), 0, contiguous_strides(new), new)
    return _view(base, offset, without_copy, new)


def _reshaped_strides(shape: Shape, strides: Shape, new: Shape) -> Shape | None:
    """Return the strides of ``new`` over the same elements, or None when that needs a copy."""
    if math.prod(new) == 0:
        return contiguous_strides(new)
    old = [(size, stride) for size, stride in zip(shape, strides, strict=True) if size != 1]
    result: list[int] = []
    position = 0
    for size in new:
        if size == 1:
            result.append(0)
            continue
        result.append(size)
    groups = [size for size in new if size != 1]
    out: list[int] = []
    index = 0
    while index < len(groups):
        # Take as many old axes as give a product that the new axes can cut.
        wanted, have, first = groups[index], old[position][0], position
        last = index
        while wanted != have:
            if wanted < have:
                last += 1
                wanted *= groups[last]
            else:
                position += 1
                have *= old[position][0]
        for axis in range(first, position):
            if old[axis][1] != old[axis + 1][0] * old[axis + 1][1]:
                return None
        stride = old[position][1]
        part = []
        for size in reversed(groups[index:last + 1]):
            part.append(stride)
            stride *= size
        out += reversed(part)
        index, position = last + 1, position + 1
    chosen = iter(out)
    strides_of_new = [next(chosen) if size != 1 else 0 for size in new]
    # Axes of size 1 get the row-major stride, so that a contiguous view is recognised as one.
    running = 1
    for axis in range(len(new) - 1, -1, -1):
        if new[axis] == 1:
            strides_of_new[axis] = running
        running = strides_of_new[axis] * new[axis]
    return tuple(strides_of_new)


def transpose(tensor: Tensor, axes: Sequence[Any] | None = None) -> Tensor:
    """Return ``tensor`` with its axes in the order ``axes`` (default: reversed)."""
    _checked(tensor, "transpose")
    order = _flat(axes)
    if not order or order == (None,):
        order = tuple(range(tensor.ndim - 1, -1, -1))
    positions = tuple(_axis(axis, tensor.ndim, "transpose") for axis in order)
    if sorted(positions) != list(range(tensor.ndim)):
        raise ShapeError(f"Expected a permutation of {tensor.ndim} axes for transpose, got {order}", op="transpose",
                         shapes=(tensor.shape,))
    base, offset, strides = geometry_of(tensor)
    return _view(base, offset, tuple(strides[p] for p in positions), tuple(tensor.shape[p] for p in positions))


def swapaxes(tensor: Tensor, axis1: int, axis2: int) -> Tensor:
    """Return ``tensor`` with two axes exchanged."""
    _checked(tensor, "swapaxes")
    order = list(range(tensor.ndim))
    first, second = _axis(axis1, tensor.ndim, "swapaxes"), _axis(axis2, tensor.ndim, "swapaxes")
    order[first], order[second] = order[second], order[first]
    return transpose(tensor, order)


def squeeze(tensor: Tensor, axis: int | Sequence[int] | None = None) -> Tensor:
    """Return ``tensor`` without the axes ``axis``, of size 1 each (default: all of that size).

    Raises
    ------
    ShapeError
        If one of them has another size.
    """
    sizes = _checked(tensor, "squeeze").shape
    if axis is None:
        return reshape(tensor, tuple(size for size in sizes if size != 1))
    axes = normalise_axes(axis, tensor.ndim, "squeeze")
    if any(sizes[one] != 1 for one in axes):
        raise ShapeError(f"Expected axes of size 1 for squeeze, got {axes} of shape {sizes}", op="squeeze",
                         shapes=(sizes,))
    return reshape(tensor, tuple(size for one, size in enumerate(sizes) if one not in axes))


def expand_dims(tensor: Tensor, axis: int | Sequence[int]) -> Tensor:
    """Return ``tensor`` with new axes of size 1 at the places ``axis`` of the result."""
    count = len(axis) if isinstance(axis, (tuple, list)) else 1
    if axis is None:
        raise DTypeError("Expected an integer for an axis of expand_dims, got None", op="expand_dims")
    ndim = _checked(tensor, "expand_dims").ndim + count
    axes = normalise_axes(axis, ndim, "expand_dims") if count else ()
    sizes = iter(tensor.shape)
    return reshape(tensor, tuple(1 if one in axes else next(sizes) for one in range(ndim)))


def moveaxis(tensor: Tensor, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
    """Return ``tensor`` with the axes ``source`` at the places ``destination``, the others in their order."""
    ndim = _checked(tensor, "moveaxis").ndim
    places = []
    for axes in (source, destination):
        listed = tuple(axes) if isinstance(axes, (tuple, list)) else (axes,)
        places.append([_axis(one, ndim, "moveaxis") for one in listed])
        if len(set(places[-1])) != len(places[-1]):
            raise ShapeError(f"Expected different axes for moveaxis, got {listed}", op="moveaxis")
    if len(places[0]) != len(places[1]):
        raise ShapeError(f"Expected as many places as axes for moveaxis, got {source} and {destination}", op="moveaxis")
    order = [one for one in range(ndim) if one not in places[0]]
    for to, one in sorted(zip(places[1], places[0], strict=True)):
        order.insert(to, one)
    return transpose(tensor, order) if order else tensor


def ravel(tensor: Tensor) -> Tensor:
    """Return the elements of ``tensor`` as one axis, in row-major order."""
    return reshape(tensor, (_checked(tensor, "ravel").size,))


def broadcast_to(tensor: Tensor, shape: Sequence[int]) -> Tensor:
    """Return ``tensor`` broadcast to ``shape``; repeated axes have stride 0."""
    _checked(tensor, "broadcast_to")
    shape = tuple(_integer(size, "a size", "broadcast_to") for size in _flat(shape))
    if min(shape, default=0) < 0 or broadcast_shapes("broadcast_to", [tensor.shape, shape]) != shape:
        raise ShapeError(f"Expected a shape that broadcasts to {shape}, got {tensor.shape}", op="broadcast_to",
                         shapes=(tensor.shape, shape))
    base, offset, strides = geometry_of(tensor)
    return _view(base, offset, broadcast_strides(tensor.shape, strides, shape), shape)


def broadcast_strides(shape: Shape, strides: Shape, target: Shape) -> Shape:
    """Return the strides with which a tensor of ``shape`` is read on the grid ``target``."""
    lead = len(target) - len(shape)
    return (0,) * lead + tuple(0 if size == 1 and target[lead + axis] != 1 else strides[axis]
                               for axis, size in enumerate(shape))


# ------------------------------------------------------------------------------------------ indexing

def _expanded(index: Any, ndim: int) -> list[Any]:
    """Return one entry an axis (plus None for new axes), the ellipsis filled in."""
    entries = list(index) if isinstance(index, tuple) else [index]
    used = sum(entry is not None and entry is not Ellipsis for entry in entries)
    dots = [position for position, entry in enumerate(entries) if entry is Ellipsis]
    if len(dots) > 1:
        raise IndexFormError("Expected at most one ellipsis in an index, got 2 or more", op="getitem")
    if used > ndim:
        raise IndexFormError(f"Expected at most {ndim} indices, got {used}", op="getitem")
    fill = [slice(None)] * (ndim - used)
    at = dots[0] if dots else len(entries)
    return entries[:at] + fill + entries[at + 1:]


def getitem(tensor: Tensor, index: Any) -> Tensor:
    """Return ``tensor[index]`` for integers, slices (negative steps too), None, an ellipsis or one integer array."""
    entries = _expanded(index, tensor.ndim)
    arrays = [position for position, entry in enumerate(entries)
              if isinstance(entry, (list, np.ndarray)) or (isinstance(entry, Tensor) and entry.ndim)]
    if arrays:
        if len(arrays) > 1 or any(entry is None for entry in entries):
            raise UnsupportedOpError("Expected one integer array in an index, got several or one beside None",
                                     op="getitem")
        return _with_array(tensor, entries, arrays[0])
    base, offset, strides = geometry_of(tensor)
    shape: list[int] = []
    new_strides: list[int] = []
    axis = 0
    for entry in entries:
        if entry is None:
            shape.append(1)
            new_strides.append(0)
            continue
        size, stride = tensor.shape[axis], strides[axis]
        if isinstance(entry, slice):
            start, stop, step = _slice_of(entry, size)
            count = len(range(start, stop, step))
            offset += start * stride if count else 0
            shape.append(count)
            new_strides.append(stride * step)
        else:
            offset += _index_of(entry, size, axis) * stride
        axis += 1
    return _view(base, offset, tuple(new_strides), tuple(shape))


def _with_array(tensor: Tensor, entries: list[Any], position: int) -> Tensor:
    """Return ``tensor[entries]`` with one integer array at ``position``.

    NumPy counts integers beside an array as arrays too: when a slice lies between two of them, their common axes
    come first in the result.
    """
    array, entries[position] = _index_array(entries[position]), slice(None)
    single = [axis for axis, entry in enumerate(entries) if not isinstance(entry, slice)]
    together = sorted((*single, position))
    kept = position - sum(axis < position for axis in single)
    result = take(getitem(tensor, tuple(entries)), array, kept)
    if together[-1] - together[0] == len(together) - 1 or not kept:
        return result
    count = result.ndim - (tensor.ndim - len(together))
    return transpose(result, (*range(kept, kept + count), *range(kept), *range(kept + count, result.ndim)))


def _index_array(entry: Any) -> Any:
    """Return an entry of an index, checked to be a tensor or array of integers."""
    array = entry if isinstance(entry, Tensor) else np.asarray(entry)
    if array.dtype.kind == "b":
        raise UnsupportedOpError("Expected integers as an index, got bools: the shape of a selection would depend on "
                                 "values; use nnk.where", op="getitem")
    if array.size and array.dtype.kind not in "iu":
        raise IndexFormError(f"Expected integers as an index, got {array.dtype}", op="getitem")
    return array


def _slice_of(entry: slice, size: int) -> tuple[int, int, int]:
    try:
        return entry.indices(size)
    except TypeError as error:
        raise DTypeError(f"Expected a slice of integers, got {entry}: {error}", op="getitem") from error
    except ValueError as error:
        raise ExprError(f"Expected a slice with a step that is not 0, got {entry}", op="getitem") from error


def _index_of(entry: Any, size: int, axis: int) -> int:
    if isinstance(entry, (bool, np.bool_)):
        raise UnsupportedOpError("Expected integers as an index, got a bool", op="getitem")
    try:
        position = operator.index(entry)
    except TypeError:
        raise IndexFormError(f"Expected integers, slices, None or one integer array as an index, got "
                             f"{type(entry).__name__}", op="getitem") from None
    if not -size <= position < size:
        raise IndexRangeError(f"Expected an index from {-size} to {size - 1} for axis {axis}, got {position}",
                              op="getitem", index=position, size=size)
    return position % size


def take(tensor: Tensor, indices: Any, axis: int | None = 0, *, out: Tensor | None = None) -> Tensor:
    """Return the slices of ``tensor`` at integer ``indices`` along ``axis``; None: of the flattened tensor.

    Parameters
    ----------
    indices : array of int, any shape
        A NumPy array, a list, or an int32 tensor made by :func:`nnk.array`. Negative indices count from the end, as
        in NumPy, except in a tensor.

    Returns
    -------
    Tensor of shape ``tensor.shape[:axis] + indices.shape + tensor.shape[axis + 1:]``

    Raises
    ------
    IndexError
        If an index is outside of the axis.
    DTypeError
        If the indices are not integers.
    """
    if out is not None:
        from nnk.expr.out import stored
        return stored("take", take(tensor, indices, axis), out, False)
    if axis is None:
        return take(ravel(tensor), indices, 0)
    position = _axis(axis, _checked(tensor, "take").ndim, "take")
    index = indices if isinstance(indices, Tensor) else _index_tensor(tensor, indices, position)
    if info_of(index.dtype).word != "int":
        raise DTypeError(f"Expected integer indices for take, got {index.dtype}", op="take", dtypes=(index.dtype,))
    engine = engine_of("take", (tensor, index))
    index = astype(index, INT32)
    if index.size:
        _check_range(_bounds_of(index), tensor.shape[position], position)
    if position == 0:
        longest = engine.limits.buffer_bytes // tensor.dtype.itemsize
        return (_take_rows if tensor.shape[0] <= longest else _take_from_parts)(tensor, index, longest)
    order = (position, *(other for other in range(tensor.ndim) if other != position))
    first = take(transpose(tensor, order), index, 0)
    moved = (*range(index.ndim, index.ndim + position), *range(index.ndim),
             *range(index.ndim + position, first.ndim))
    return transpose(materialised(first), moved)


def _take_rows(table: Tensor, index: Tensor, _: int = 0) -> Tensor:
    return Tensor("take", (materialised(table), index), (), index.shape + table.shape[1:], table.dtype, table.engine)


def _take_from_parts(table: Tensor, index: Tensor, longest: int) -> Tensor:
    """Return rows of a table of which a kernel cannot bind one column: each of its parts gives the rows that it has."""
    low, high = _bounds_of(index) if index.size else (0, 0)
    result: Tensor | None = None
    where = reshape(index, index.shape + (1,) * (table.ndim - 1))
    for start in range(low // longest * longest, high + 1, longest):
        part = table[start:start + longest]
        inside = elementwise("min", elementwise("max", index - start, 0), part.shape[0] - 1)
        taken = _take_rows(part, inside)
        result = taken if result is None else elementwise("select", where < start, result, taken)
    assert result is not None
    return astype(result, table.dtype)


def _bounds_of(index: Tensor) -> tuple[int, int]:
    """Return the least and the largest value of an index, which is computed for that."""
    base, offset, strides = geometry_of(index)
    if offset or base.size != index.size or strides != contiguous_strides(index.shape) or base.storage is None:
        base = index.eval()
    if not base.attrs:
        values = base.numpy()
        base.attrs = (int(values.min()), int(values.max()))
    low, high = base.attrs
    return low, high


def _check_range(bounds: tuple[int, int], size: int, axis: int, least: int = 0) -> None:
    """Check the least and the largest index before a kernel reads memory with them."""
    low, high = bounds
    if low < least or high >= size:
        worst = high if high >= size else low
        raise IndexRangeError(f"Expected indices from {least} to {size - 1} for axis {axis}, got {worst}",
                              op="take", index=worst, size=size)


def _index_tensor(tensor: Tensor, indices: Any, axis: int) -> Tensor:
    array = np.asarray(indices)
    if array.size == 0:
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise DTypeError(f"Expected integer indices for take, got {array.dtype}", op="take", dtypes=(array.dtype,))
    size = tensor.shape[axis]
    if array.size:
        _check_range((int(array.min()), int(array.max())), size, axis, -size)
    index: Tensor = tensor.engine.array(np.where(array < 0, array + size, array).astype(np.int32))
    return index
