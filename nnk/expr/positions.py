"""Positions of the largest and the smallest elements: argmax, argmin.

A position is found in the kernel that finds the maximum: among the elements that equal it, the one with the largest
negated number along the line. Such numbers are floats, exact because a kernel reduces no line beyond
:data:`nnk.expr.lines.LONGEST_LINE`. A longer line is searched in parts, and the number of the part is put together with
the number inside of it as integers.
"""

from __future__ import annotations

import math
from typing import Any

from nnk.errors import ShapeError
from nnk.expr import lines
from nnk.expr.dtypes import FLOAT32, INT32, info_of
from nnk.expr.lines import axes_of, lines_to_reduce, reduce_lines, reduced_shape
from nnk.expr.node import Tensor, column_numbers, elementwise, row_numbers
from nnk.expr.out import stored
from nnk.expr.promote import astype, operands_of
from nnk.expr.views import readable, reshape, transpose

__all__ = ["argmax", "argmin"]

_NOWHERE = -math.inf


def _maximum(direction: str, values: Tensor) -> Tensor:
    return reduce_lines(f"{direction}_max", values, ())


class _Floats:
    """Floats, bytes and bools. If there is a NaN, the NaNs are the largest."""

    def __init__(self, smallest: bool) -> None:
        self.smallest = smallest

    def values(self, part: Tensor) -> Tensor:
        """Return what the largest is searched of."""
        values = part if info_of(part.dtype).word == "float" else astype(part, FLOAT32)
        return elementwise("neg", values) if self.smallest else values

    def largest(self, found: Tensor, direction: str) -> tuple[Tensor, ...]:
        """Return the largest values of lines."""
        return (_maximum(direction, self.values(found)),)

    def matches(self, part: Tensor, largest: tuple[Tensor, ...]) -> Tensor:
        """Return where lines, or parts of them, have the largest value."""
        values = self.values(part)
        equal = elementwise("eq", values, largest[0])
        return elementwise("ior", equal, elementwise("isnan", values)) if info_of(part.dtype).word == "float" else equal


class _Integers:
    """int32, whose halves are exact as floats: the upper ones decide, then the lower ones."""

    def __init__(self, smallest: bool) -> None:
        self.smallest = smallest

    def upper(self, part: Tensor) -> Tensor:
        """Return the upper halves."""
        return astype((~part if self.smallest else part) >> 16, FLOAT32)

    def lower(self, part: Tensor, high: Tensor) -> Tensor:
        """Return the lower halves where the upper ones are ``high``, else -1."""
        lower = astype((~part if self.smallest else part) & 0xFFFF, FLOAT32)
        return elementwise("select", elementwise("eq", self.upper(part), high), lower, -1.0)

    def largest(self, found: Tensor, direction: str) -> tuple[Tensor, ...]:
        """Return the halves of the largest values of lines."""
        high = _maximum(direction, self.upper(found))
        return high, _maximum(direction, self.lower(found, high))

    def matches(self, part: Tensor, largest: tuple[Tensor, ...]) -> Tensor:
        """Return where lines, or parts of them, have the largest value."""
        high, low = largest
        return elementwise("eq", self.lower(part, high), low)


def _first(direction: str, matches: Tensor) -> Tensor:
    """Return the negated number of the first match in each line, or -inf if there is none."""
    numbers = column_numbers(matches.shape) if direction == "row" else row_numbers(matches.shape)
    return _maximum(direction, elementwise("select", matches, elementwise("neg", numbers), _NOWHERE))


def _position(negated: Tensor) -> Tensor:
    return astype(elementwise("neg", negated), INT32)


def _in_parts(rows: Tensor, kind: _Floats | _Integers, longest: int) -> Tensor:
    """Return positions (..., 1) in rows of any length."""
    count = rows.shape[-1]
    whole = count // longest * longest
    largest = kind.largest(rows, "row")
    heads = reshape(rows[..., :whole], (*rows.shape[:-1], whole // longest, longest))
    inside = _first("row", kind.matches(heads, tuple(reshape(value, (*value.shape, 1)) for value in largest)))
    inside = reshape(inside, inside.shape[:-1])
    part = _first("row", elementwise("ne", inside, _NOWHERE))
    chosen = elementwise("eq", elementwise("neg", column_numbers(inside.shape)), part)
    within = _maximum("row", elementwise("select", chosen, inside, _NOWHERE))
    result = _position(part) * longest + _position(within)
    if whole == count:
        return result
    tail = _position(_first("row", kind.matches(rows[..., whole:], largest)))
    return elementwise("select", elementwise("eq", part, _NOWHERE), tail + whole, result)


def _search(name: str, x: Any, axis: int | None, keepdims: bool, smallest: bool) -> Tensor:
    (tensor,), _, _ = operands_of(name, (x,))
    axes = axes_of(tensor, axis if axis is None else (axis,), name)
    shape = reduced_shape(tensor, axes, keepdims)
    if tensor.ndim == 0:
        return Tensor("const", (), (0,), (), INT32, tensor.engine)
    count = math.prod(tensor.shape[position] for position in axes)
    if not 0 < count <= 2**31:
        raise ShapeError(f"Expected from 1 to 2**31 elements to search for {name}, got shape {tensor.shape}", op=name,
                         shapes=(tensor.shape,))
    kind = _Integers(smallest) if tensor.dtype == INT32 else _Floats(smallest)
    found, direction = lines_to_reduce(tensor, axes)
    if count <= lines.LONGEST_LINE:
        result = _position(_first(direction, kind.matches(found, kind.largest(found, direction))))
    else:
        if direction == "col":
            kept = tuple(position for position in range(tensor.ndim) if position not in axes)
            found = transpose(tensor, kept + axes)
        result = _in_parts(readable(found), kind, lines.LONGEST_LINE)
    return result if result.shape == shape else reshape(result, shape)


def argmax(x: Any, axis: int | None = None, keepdims: bool = False, *, out: Tensor | None = None) -> Tensor:
    """Return the position of the largest element along ``axis`` as int32, of the first of them; NaN is the largest.

    Without an axis, positions are those of the flattened tensor.

    Raises
    ------
    ShapeError
        If there is no element.
    """
    return stored("argmax", _search("argmax", x, axis, keepdims, False), out, False)


def argmin(x: Any, axis: int | None = None, keepdims: bool = False, *, out: Tensor | None = None) -> Tensor:
    """Return the position of the smallest element along ``axis`` as int32, of the first of them; NaN is the smallest.

    Without an axis, positions are those of the flattened tensor.

    Raises
    ------
    ShapeError
        If there is no element.
    """
    return stored("argmin", _search("argmin", x, axis, keepdims, True), out, False)
