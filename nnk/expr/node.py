"""Tensor: a lazy N-D array, one node of an expression graph.

A tensor is a leaf (it has storage), a constant, or an op over other tensors. Nothing is computed before a value is
asked for; then the engine cuts the graph into kernels (:mod:`nnk.expr.fuse`), runs them, and the tensor becomes a
leaf. Shapes and dtypes are checked when the node is made.

A tensor carries its engine as an object with ``evaluate(tensors)``, ``read(tensor)`` and ``upload(array)``: this
module never imports one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from nnk.errors import DTypeError, ExprError, ShapeError, UnsupportedOpError
from nnk.expr.dtypes import FLOAT32, INT32
from nnk.expr.spec import bits_of

__all__ = ["CHUNKED", "FLOAT32", "INT32", "MAX_RANK", "Tensor", "binary_operands", "check_operands", "column_numbers",
           "constant", "elementwise", "geometry_of", "is_row_major", "leaf", "overwrite", "row_numbers",
           "run_time_parameter"]

#: Attributes of a reduction that gives the results of the chunks of each line (docs/numerics.md R7).
CHUNKED = ("chunks",)

#: Most axes of a tensor: 7 row dimensions and the columns of a strided view.
MAX_RANK = 8

Shape = tuple[int, ...]

#: Counts nodes and overwritten tensors: which came first decides whether a node can still be computed.
_clock = itertools.count(1)


def contiguous_strides(shape: Shape) -> Shape:
    """Return the row-major strides of ``shape``, in elements."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return tuple(strides)


class Tensor:
    """A lazy N-D array of float32, float16, bfloat16, int32, uint8 or bool.

    Attributes
    ----------
    shape : tuple of int
    dtype : numpy.dtype
    engine : Engine or None
        The engine that evaluates it; ``None`` for a bare constant.
    """

    __slots__ = ("__weakref__", "args", "attrs", "dtype", "engine", "made", "op", "shape", "storage", "written")

    #: NumPy must not take the operators over: ``array + tensor`` is a tensor.
    __array_ufunc__ = None

    def __init__(self, op: str, args: tuple[Tensor, ...], attrs: tuple[Any, ...], shape: Shape, dtype: np.dtype[Any],
                 engine: Any, storage: Any = None) -> None:
        if len(shape) > MAX_RANK:
            raise ShapeError(f"Expected at most {MAX_RANK} axes, got {len(shape)} (shape {shape}) for {op}", op=op,
                             shapes=(shape,))
        self.op = op
        self.args = args
        self.attrs = attrs
        self.shape = shape
        self.dtype = dtype
        self.engine = engine
        self.storage = storage
        self.made = next(_clock)
        self.written = 0

    # -------------------------------------------------------------------------------------- facts

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Size of the elements in bytes."""
        return self.size * self.dtype.itemsize

    @property
    def is_evaluated(self) -> bool:
        """Whether the values exist already."""
        return self.storage is not None

    def __len__(self) -> int:
        if not self.shape:
            raise DTypeError("Expected a tensor with at least one axis for len(), got shape ()", op="len")
        return self.shape[0]

    def __repr__(self) -> str:
        state = "evaluated" if self.is_evaluated else "lazy"
        where = "no engine" if self.engine is None else str(self.engine)
        return f"<nnk.Tensor shape={self.shape} dtype={self.dtype} {state} on {where}>"

    # -------------------------------------------------------------------------------------- values

    def eval(self) -> Tensor:
        """Compute the values now and return the tensor itself."""
        if self.storage is None:
            if self.engine is None:
                raise ExprError("Expected a tensor that belongs to an engine, got a bare constant", op="eval")
            self.engine.evaluate([self])
        return self

    def numpy(self) -> np.ndarray[Any, Any]:
        """Return the values as a new NumPy array of the same shape and dtype."""
        self.eval()
        array: np.ndarray[Any, Any] = self.engine.read(self)
        return array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ExprError("Expected copy=None or copy=True: values leave a device by a copy", op="__array__")
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    def tolist(self) -> Any:
        """Return the values as nested Python lists."""
        return self.numpy().tolist()

    def item(self) -> float | int | bool:
        """Return the only value as a Python number.

        Raises
        ------
        ShapeError
            If there is not exactly one element.
        """
        if self.size != 1:
            raise ShapeError(f"Expected a tensor of one element for item(), got shape {self.shape}", op="item",
                             shapes=(self.shape,))
        value: float | int | bool = self.numpy().reshape(()).item()
        return value

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ShapeError(f"The truth value of a tensor of shape {self.shape} is ambiguous; expected one element",
                             op="bool", shapes=(self.shape,))
        return bool(self.item())

    # -------------------------------------------------------------------------------------- operators

    def __add__(self, other: Any) -> Tensor:
        return elementwise("add", self, other)

    def __radd__(self, other: Any) -> Tensor:
        return elementwise("add", other, self)

    def __sub__(self, other: Any) -> Tensor:
        return elementwise("sub", self, other)

    def __rsub__(self, other: Any) -> Tensor:
        return elementwise("sub", other, self)

    def __mul__(self, other: Any) -> Tensor:
        return elementwise("mul", self, other)

    def __rmul__(self, other: Any) -> Tensor:
        return elementwise("mul", other, self)

    def __truediv__(self, other: Any) -> Tensor:
        return elementwise("div", self, other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return elementwise("div", other, self)

    def __and__(self, other: Any) -> Tensor:
        return elementwise("iand", self, other)

    def __rand__(self, other: Any) -> Tensor:
        return elementwise("iand", other, self)

    def __or__(self, other: Any) -> Tensor:
        return elementwise("ior", self, other)

    def __ror__(self, other: Any) -> Tensor:
        return elementwise("ior", other, self)

    def __xor__(self, other: Any) -> Tensor:
        return elementwise("ixor", self, other)

    def __rxor__(self, other: Any) -> Tensor:
        return elementwise("ixor", other, self)

    def __lshift__(self, other: Any) -> Tensor:
        return elementwise("ishl", self, other)

    def __rlshift__(self, other: Any) -> Tensor:
        return elementwise("ishl", other, self)

    def __rshift__(self, other: Any) -> Tensor:
        return elementwise("ishr", self, other)

    def __rrshift__(self, other: Any) -> Tensor:
        return elementwise("ishr", other, self)

    def __invert__(self) -> Tensor:
        return elementwise("inot", self)

    def __neg__(self) -> Tensor:
        return elementwise("neg", self)

    def __pos__(self) -> Tensor:
        return self

    def __abs__(self) -> Tensor:
        return elementwise("abs", self)

    def __lt__(self, other: Any) -> Tensor:
        return elementwise("lt", self, other)

    def __le__(self, other: Any) -> Tensor:
        return elementwise("le", self, other)

    def __gt__(self, other: Any) -> Tensor:
        return elementwise("gt", self, other)

    def __ge__(self, other: Any) -> Tensor:
        return elementwise("ge", self, other)

    def __eq__(self, other: object) -> Tensor:  # type: ignore[override]
        return elementwise("eq", self, other)

    def __ne__(self, other: object) -> Tensor:  # type: ignore[override]
        return elementwise("ne", self, other)

    # Equality is elementwise, so identity is what a hash can stand for.
    __hash__ = object.__hash__

    def __pow__(self, exponent: Any) -> Tensor:
        from nnk.expr.functions import power
        return power(self, exponent)

    def __rpow__(self, base: Any) -> Tensor:
        from nnk.expr.functions import power
        return power(base, self)

    def __mod__(self, other: Any) -> Tensor:
        return elementwise("remainder", self, other)

    def __rmod__(self, other: Any) -> Tensor:
        return elementwise("remainder", other, self)

    def __floordiv__(self, other: Any) -> Tensor:
        from nnk.expr.functions import floor_divide
        return floor_divide(self, other)

    def __rfloordiv__(self, other: Any) -> Tensor:
        from nnk.expr.functions import floor_divide
        return floor_divide(other, self)

    def __matmul__(self, other: Any) -> Tensor:
        from nnk.expr.products import matmul
        return matmul(self, other)

    def __rmatmul__(self, other: Any) -> Tensor:
        from nnk.expr.products import matmul
        return matmul(other, self)

    def __getitem__(self, index: Any) -> Tensor:
        from nnk.expr.views import getitem
        return getitem(self, index)

    def __iter__(self) -> Iterable[Tensor]:
        return (self[i] for i in range(len(self)))

    # -------------------------------------------------------------------------------------- methods

    def sum(self, axis: int | Sequence[int] | None = None, keepdims: bool = False, *,
            out: Tensor | None = None) -> Tensor:
        """Return the sum over ``axis`` (default: all); see :func:`nnk.sum`."""
        from nnk.expr.reductions import reduce_sum
        return reduce_sum(self, axis, keepdims, out=out)

    def mean(self, axis: int | Sequence[int] | None = None, keepdims: bool = False, *,
             out: Tensor | None = None) -> Tensor:
        """Return the mean over ``axis`` (default: all); see :func:`nnk.mean`."""
        from nnk.expr.reductions import mean
        return mean(self, axis, keepdims, out=out)

    def max(self, axis: int | Sequence[int] | None = None, keepdims: bool = False, *,
            out: Tensor | None = None) -> Tensor:
        """Return the maximum over ``axis`` (default: all); see :func:`nnk.max`."""
        from nnk.expr.reductions import reduce_max
        return reduce_max(self, axis, keepdims, out=out)

    def min(self, axis: int | Sequence[int] | None = None, keepdims: bool = False, *,
            out: Tensor | None = None) -> Tensor:
        """Return the minimum over ``axis`` (default: all); see :func:`nnk.min`."""
        from nnk.expr.reductions import reduce_min
        return reduce_min(self, axis, keepdims, out=out)

    def argmax(self, axis: int | None = None, keepdims: bool = False, *, out: Tensor | None = None) -> Tensor:
        """Return the position of the first largest element along ``axis``; see :func:`nnk.argmax`."""
        from nnk.expr.positions import argmax
        return argmax(self, axis, keepdims, out=out)

    def argmin(self, axis: int | None = None, keepdims: bool = False, *, out: Tensor | None = None) -> Tensor:
        """Return the position of the first smallest element along ``axis``; see :func:`nnk.argmin`."""
        from nnk.expr.positions import argmin
        return argmin(self, axis, keepdims, out=out)

    def var(self, axis: int | Sequence[int] | None = None, ddof: float = 0, keepdims: bool = False, *,
            out: Tensor | None = None) -> Tensor:
        """Return the variance over ``axis`` (default: all); see :func:`nnk.var`."""
        from nnk.expr.statistics import var
        return var(self, axis, ddof, keepdims, out=out)

    def std(self, axis: int | Sequence[int] | None = None, ddof: float = 0, keepdims: bool = False, *,
            out: Tensor | None = None) -> Tensor:
        """Return the standard deviation over ``axis`` (default: all); see :func:`nnk.std`."""
        from nnk.expr.statistics import std
        return std(self, axis, ddof, keepdims, out=out)

    def any(self, axis: int | Sequence[int] | None = None, keepdims: bool = False, *,
            out: Tensor | None = None) -> Tensor:
        """Return whether any element over ``axis`` (default: all) is not zero; see :func:`nnk.any`."""
        from nnk.expr.statistics import reduce_any
        return reduce_any(self, axis, keepdims, out=out)

    def all(self, axis: int | Sequence[int] | None = None, keepdims: bool = False, *,
            out: Tensor | None = None) -> Tensor:
        """Return whether all elements over ``axis`` (default: all) are not zero; see :func:`nnk.all`."""
        from nnk.expr.statistics import reduce_all
        return reduce_all(self, axis, keepdims, out=out)

    def reshape(self, *shape: int | Sequence[int]) -> Tensor:
        """Return the same elements in another shape; one size may be -1."""
        from nnk.expr.views import reshape
        return reshape(self, shape)

    def transpose(self, *axes: int | Sequence[int]) -> Tensor:
        """Return the tensor with its axes permuted (default: reversed)."""
        from nnk.expr.views import transpose
        return transpose(self, axes)

    def permute(self, *axes: int | Sequence[int]) -> Tensor:
        """Return the tensor with its axes permuted, as :meth:`transpose`."""
        return self.transpose(*axes)

    def swapaxes(self, axis1: int, axis2: int) -> Tensor:
        """Return the tensor with two axes exchanged."""
        from nnk.expr.views import swapaxes
        return swapaxes(self, axis1, axis2)

    def squeeze(self, axis: int | Sequence[int] | None = None) -> Tensor:
        """Return the tensor without axes of size 1 (default: all of them); see :func:`nnk.squeeze`."""
        from nnk.expr.views import squeeze
        return squeeze(self, axis)

    def ravel(self) -> Tensor:
        """Return the elements as one axis, in row-major order."""
        return self.reshape(self.size)

    def flatten(self) -> Tensor:
        """Return the elements as one axis, as :meth:`ravel`: tensors are values, nobody can tell a copy."""
        return self.reshape(self.size)

    def broadcast_to(self, shape: Sequence[int]) -> Tensor:
        """Return the tensor broadcast to ``shape`` by NumPy's rules."""
        from nnk.expr.views import broadcast_to
        return broadcast_to(self, shape)

    def astype(self, dtype: Any) -> Tensor:
        """Return the values as another dtype (docs/numerics.md, casts).

        Parameters
        ----------
        dtype : str or numpy.dtype
            float32, float16, bfloat16, int32, uint8 or bool.

        Raises
        ------
        DTypeError
            If tensors cannot have the dtype.
        """
        from nnk.expr.promote import astype
        return astype(self, dtype)

    def take(self, indices: Any, axis: int | None = 0, *, out: Tensor | None = None) -> Tensor:
        """Return the slices at integer ``indices`` along ``axis``; see :func:`nnk.take`."""
        from nnk.expr.views import take
        return take(self, indices, axis, out=out)

    @property
    def T(self) -> Tensor:
        """The tensor with its axes reversed."""
        return self.transpose()


def constant(value: float) -> Tensor:
    """Return a scalar constant; its value travels as a push constant and is never part of a kernel's key."""
    return Tensor("const", (), (bits_of(value),), (), FLOAT32, None)


def run_time_parameter(value: float) -> Tensor:
    """Return a scalar that depends on shapes (1/sqrt(d), eps, n): never pooled with equal constants."""
    return Tensor("rparam", (), (bits_of(value),), (), FLOAT32, None)


def row_numbers(grid: Shape) -> Tensor:
    """Return the numbers of the rows of ``grid``, one a row, as floats: for reductions of its columns alone."""
    return Tensor("row", (), (), (*grid[:-1], 1), FLOAT32, None)


def column_numbers(grid: Shape) -> Tensor:
    """Return the numbers of the columns of ``grid``, one a column, as floats: for reductions of its rows alone."""
    return Tensor("col", (), (), grid[-1:], FLOAT32, None)


def leaf(engine: Any, storage: Any, shape: Shape, dtype: np.dtype[Any] = FLOAT32,
         bounds: tuple[int, ...] = ()) -> Tensor:
    """Return an evaluated tensor over row-major ``storage``; ``bounds``: the least and the largest index in it."""
    return Tensor("leaf", (), bounds, shape, dtype, engine, storage)


def engine_of(op: str, tensors: Iterable[Tensor]) -> Any:
    """Return the one engine of ``tensors`` (constants have none)."""
    engine = None
    for tensor in tensors:
        if tensor.engine is not None:
            if engine is not None and tensor.engine is not engine:
                raise ExprError(f"Expected tensors of one engine for {op}, got {engine} and {tensor.engine}; "
                                f"move one with nnk.array(t.numpy(), engine=...)", op=op)
            engine = tensor.engine
    return engine


def binary_operands(op: str, values: Sequence[Any]) -> tuple[tuple[Tensor, ...], Any]:
    """Return ``values`` as tensors of float dtypes of one engine, and that engine."""
    from nnk.expr.promote import as_floats
    return as_floats(op, values)


def broadcast_shapes(op: str, shapes: Sequence[Shape]) -> Shape:
    """Return the common shape of ``shapes`` by NumPy's rules.

    Raises
    ------
    ShapeError
        If they do not broadcast.
    """
    first = shapes[0]
    if all(shape == first for shape in shapes):
        return first
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise ShapeError(f"Expected shapes that broadcast for {op}, got {' and '.join(map(str, shapes))}", op=op,
                         shapes=tuple(shapes)) from None


def elementwise(op: str, *values: Any) -> Tensor:
    """Return the elementwise op named ``op`` of the op table over ``values``; see :mod:`nnk.expr.promote`."""
    from nnk.expr.promote import apply
    return apply(op, values)


def overwrite(target: Tensor, source: Tensor) -> None:
    """Give ``target`` the values of the evaluated ``source``, of the same shape and dtype.

    The storage is shared: nothing ever writes into storage that has a value.
    """
    target.attrs = source.attrs
    target.storage = source.storage
    target.written = next(_clock)


def check_operands(node: Tensor, operands: Iterable[Tensor]) -> None:
    """Check that no operand of a lazy node was overwritten after the node was made.

    Raises
    ------
    ExprError
        If one was: the values that the node stands for are gone.
    """
    for operand in operands:
        if operand.written > node.made:
            raise ExprError(f"Expected the values that an operand of {node.op} (shape {operand.shape}) had when "
                            f"{node.op} was called, but out= has overwritten it since; evaluate with eval() before, or "
                            f"call {node.op} again", op=node.op)


def geometry_of(tensor: Tensor) -> tuple[Tensor, int, Shape]:
    """Return (base, offset, strides) in elements: how ``tensor`` reads the row-major values of ``base``."""
    # Another thread may be turning the tensor into a leaf; it clears what is read here after op and storage.
    args, attrs = tensor.args, tensor.attrs
    if tensor.op == "view" and tensor.storage is None:
        check_operands(tensor, args)
        return args[0], attrs[0], attrs[1]
    return tensor, 0, contiguous_strides(tensor.shape)


def is_row_major(shape: Shape, offset: int, strides: Shape) -> bool:
    """Say whether a view walks its base in row-major order from the start; axes of size 1 may have any stride."""
    """Say whether a view is linear, whatever its sizes are: a permuted axis of size 1 is still a permuted axis."""
    expected = contiguous_strides(shape)
    return offset == 0 and all(stride == wanted or (size == 1 and stride == 0)
                               for size, stride, wanted in zip(shape, strides, expected, strict=True))


def unsupported(op: str, text: str) -> UnsupportedOpError:
    """Return the one error for what this version does not run."""
    return UnsupportedOpError(f"This version does not run {text}", op=op)
