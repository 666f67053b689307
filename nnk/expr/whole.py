"""Reductions of integers and bools, from those of floats: exact, because float sums of small integers are.

A sum of at most 2**24 / m integers below m has no rounding in float32, in any order. So a sum of int32 is four sums of
bytes, put together modulo 2**32; longer lines are cut. A maximum of int32 is that of the upper halves, then that of the
lower halves where the upper one is largest. All run in the kernels of float reductions.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from nnk.errors import ShapeError
from nnk.expr.dtypes import BOOL, FLOAT32, INT32, UINT8
from nnk.expr.lines import lines_to_reduce, reduce_lines, reduce_over, reduced_shape
from nnk.expr.node import Tensor, elementwise
from nnk.expr.promote import astype
from nnk.expr.views import readable, reshape, transpose

__all__ = ["LONGEST_BYTES", "integer_max", "integer_min", "integer_sum"]

#: Longest line of bytes, and of bools, that float32 adds without rounding.
LONGEST_BYTES, LONGEST_BOOLS = 2**16, 2**24


def _byte(number: int) -> Callable[[Tensor], Tensor]:
    """Return the function from an int32 tensor to its bytes of this number, as floats."""
    return lambda lines: astype((lines >> 8 * number) & 255, FLOAT32)


def _as_floats(lines: Tensor) -> Tensor:
    return astype(lines, FLOAT32)


def _short_sum(tensor: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    """Return the sum over lines that float32 adds without rounding: one kernel, unless bools make it a long line."""
    shape = reduced_shape(tensor, axes, keepdims)
    if not math.prod(tensor.shape[axis] for axis in axes):
        return Tensor("const", (), (0,), shape, INT32, tensor.engine)
    lines, direction = lines_to_reduce(tensor, axes)
    planes = [_byte(number) for number in range(4)] if tensor.dtype == INT32 else [_as_floats]
    total: Tensor | None = None
    for number, plane in enumerate(planes):
        part = astype(reduce_lines(f"{direction}_sum", plane(lines), shape), INT32)
        total = part if total is None else total + (part << 8 * number)
    assert total is not None
    return total if total.shape == shape else reshape(total, shape)


def integer_sum(tensor: Tensor, axes: tuple[int, ...], keepdims: bool = False) -> Tensor:
    """Return the sum of a tensor of integers or bools over ``axes`` as int32, modulo 2**32."""
    if not axes:
        return astype(tensor, INT32)
    count = math.prod(tensor.shape[axis] for axis in axes)
    longest = LONGEST_BOOLS if tensor.dtype == BOOL else LONGEST_BYTES
    if count <= longest:
        return _short_sum(tensor, axes, keepdims)
    kept = tuple(axis for axis in range(tensor.ndim) if axis not in axes)
    lines = reshape(readable(transpose(tensor, kept + axes)), (*(tensor.shape[axis] for axis in kept), count))
    whole = count // longest * longest
    last = lines.ndim - 1
    pieces = reshape(lines[..., :whole], (*lines.shape[:-1], whole // longest, longest))
    total = integer_sum(_short_sum(pieces, (last + 1,), False), (last,))
    if whole < count:
        total = total + _short_sum(lines[..., whole:], (last,), False)
    return reshape(total, reduced_shape(tensor, axes, keepdims))


def integer_max(tensor: Tensor, axes: tuple[int, ...], keepdims: bool = False, name: str = "max") -> Tensor:
    """Return the maximum of a tensor of integers or bools over ``axes``, of its dtype; ``name`` as in ``reduce_over``.

    Raises
    ------
    ShapeError
        If there are no elements.
    """
    if not axes:
        return tensor
    if tensor.dtype in (BOOL, UINT8):
        largest = reduce_over(name, "max", tensor, axes, keepdims, None, _as_floats)
        return astype(largest, tensor.dtype)
    shape = reduced_shape(tensor, axes, keepdims)
    if not math.prod(tensor.shape[axis] for axis in axes):
        raise ShapeError(f"Expected at least one element to reduce for {name}, got shape {tensor.shape}", op=name,
                         shapes=(tensor.shape,))
    lines, direction = lines_to_reduce(tensor, axes)
    upper = astype(lines >> 16, FLOAT32)
    high = reduce_lines(f"{direction}_max", upper, shape)
    lower = elementwise("select", upper == high, astype(lines & 0xFFFF, FLOAT32), -1.0)
    low = reduce_lines(f"{direction}_max", lower, shape)
    result = (astype(high, INT32) << 16) | astype(low, INT32)
    return result if result.shape == shape else reshape(result, shape)


def integer_min(tensor: Tensor, axes: tuple[int, ...], keepdims: bool = False) -> Tensor:
    """Return the minimum of a tensor of integers or bools over ``axes``, of its dtype: inverting reverses the order.

    Raises
    ------
    ShapeError
        If there are no elements.
    """
    return ~integer_max(~tensor, axes, keepdims, "min") if axes else tensor
