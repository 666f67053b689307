"""Lowering: a planned kernel becomes a canonical ExprSpec, its inputs, and its launch.

Leaves are registered left to right in the order in which the program reads them; the same tensor read through the
same view is one input slot.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace

from nnk import ops
from nnk.errors import UnsupportedOpError
from nnk.expr import meta
from nnk.expr.canonical import canonicalise
from nnk.expr.dtypes import half_words, slot_letters
from nnk.expr.fuse import GRID_NUMBERS, PlannedKernel
from nnk.expr.meta import Launch
from nnk.expr.node import Shape, Tensor, contiguous_strides, geometry_of, is_row_major
from nnk.expr.spec import ExprSpec, Instr, Matmul, Operand, ViewSpec
from nnk.expr.spec_rules import validate
from nnk.expr.views import broadcast_strides

__all__ = ["LoweredKernel", "lower", "merge_axes", "strided_view"]

_VIEW = {view.name: view.code for view in ops.VIEWS}
_KIND = {kind.name: kind.code for kind in ops.OPERANDS}

Axes = list[tuple[int, int]]

@dataclass(frozen=True)
class LoweredKernel:
    """A kernel ready to run: ``inputs`` are the tensors whose storage its input slots bind, in order.

    ``more_roots`` are the tensors of the output slots after that of ``root``.
    """

    root: Tensor
    spec: ExprSpec
    launch: Launch
    inputs: tuple[Tensor, ...]
    more_roots: tuple[Tensor, ...] = ()
    prec_sig: int = 0
    slots: str = ""


# ------------------------------------------------------------------------------------------ addressing

def merge_axes(axes: Axes) -> Axes:
    """Join neighbouring (size, stride) axes that walk memory as one; drop axes of size 1."""
    merged: Axes = []
    for size, stride in axes:
        if size == 1:
            continue
        if merged and merged[-1][1] == size * stride:
            merged[-1] = (merged[-1][0] * size, stride)
        else:
            merged.append((size, stride))
    return merged


def _geometry(node: Tensor, stored: Collection[int]) -> tuple[Tensor, int, Shape]:
    """Return how ``node`` is read, as :func:`geometry_of`; a stored view is a tensor of its own."""
    return (node, 0, contiguous_strides(node.shape)) if id(node) in stored else geometry_of(node)


def strided_view(offset: int, row_axes: Axes, column_stride: int) -> tuple[ViewSpec, tuple[int, ...]]:
    """Return a strided view of the smallest rank that holds ``row_axes``, and its words."""
    rank = next((rank for rank in ops.STRIDED_RANKS if rank >= len(row_axes)), None)
    if rank is None:
        raise UnsupportedOpError(f"This version reads at most {ops.STRIDED_RANKS[-1]} row axes through one view, got "
                                 f"{len(row_axes)}", op="view")
    padded = [(1, 0)] * (rank - len(row_axes)) + row_axes
    words = (offset, *(size for size, _ in padded[1:]), *(stride for _, stride in padded), column_stride)
    return ViewSpec(_VIEW["strided"], 0, rank), words


def _view_of(node: Tensor, grid: Shape, stored: Collection[int]) -> tuple[Tensor, ViewSpec, tuple[int, ...]]:
    """Return (base, view, words): how ``node`` is read on ``grid``; ``stored`` as for :func:`lower`.

    The special views are chosen by how shapes are written, not by their sizes, so that a kernel serves every batch
    size: (n,) is a column vector of every grid (..., n), even when the grid has one row.
    """
    base, offset, strides = _geometry(node, stored)
    if is_row_major(node.shape, offset, strides):
        if node.shape == grid:
            return base, ViewSpec(_VIEW["linear"]), ()
        own = node.shape
        while own and own[0] == 1:
            own = own[1:]
        if own and own == grid[-len(own):]:
            if len(own) == 1:
                return base, ViewSpec(_VIEW["col_broadcast"]), ()
            return base, ViewSpec(_VIEW["row_mod"], 0, math.prod(own[:-1])), (math.prod(own[:-1]),)
        if node.shape == (*grid[:-1], 1):
            return base, ViewSpec(_VIEW["row_broadcast"]), ()
    on_grid = broadcast_strides(node.shape, strides, grid)
    view, words = strided_view(offset, merge_axes(list(zip(grid[:-1], on_grid[:-1], strict=True))), on_grid[-1])
    return base, view, words


def _operand_view(node: Tensor, is_right: bool, has_batches: bool,
                  stored: Collection[int]) -> tuple[Tensor, ViewSpec, tuple[int, ...], int]:
    """Return (base, view, words, transposed): how a matmul reads the operand ``node`` of shape (..., rows, columns).

    The row axis of a right operand is never merged with a batch axis: the kernel walks k by its stride alone. A stack
    of transposed left matrices is one linear read only if the matmul ``has_batches``: otherwise they are one tall
    matrix, whose rows jump from matrix to matrix.
    """
    base, offset, strides = _geometry(node, stored)
    if is_row_major(node.shape, offset, strides):
        return base, ViewSpec(_VIEW["linear"]), (), 0
    swapped = (*node.shape[:-2], node.shape[-1], node.shape[-2])
    if (node.ndim == 2 or has_batches) and is_row_major(swapped, offset, (*strides[:-2], strides[-1], strides[-2])):
        return base, ViewSpec(_VIEW["linear"]), (), 1
    axes = list(zip(node.shape[:-1], strides[:-1], strict=True))
    row_axes = [*merge_axes(axes[:-1]), axes[-1]] if is_right else merge_axes(axes)
    view, words = strided_view(offset, row_axes, strides[-1])
    return base, view, words, 0


# ------------------------------------------------------------------------------------------ program

class _Lowering:
    """Walks one planned kernel from its root and collects instructions, inputs and values."""

    def __init__(self, kernel: PlannedKernel, stored: frozenset[int]) -> None:
        self.kernel = kernel
        #: The kernel that stores a view reads its base.
        self.stored = stored - {id(kernel.root)}
        # A grid always has a column axis: a 0-D tensor is a grid of one element.
        self.grid = kernel.grid or (1,)
        self.instrs: list[Instr] = []
        self.views: list[ViewSpec] = []
        self.words: list[tuple[int, ...]] = []
        self.inputs: list[Tensor] = []
        self.slot_of: dict[tuple[int, ViewSpec, tuple[int, ...]], int] = {}
        self.consts: list[int] = []
        self.rparams: list[int] = []
        self.operand_of: dict[int, Operand] = {}
        self.matmul: Matmul | None = None
        self.mm_k, self.mm_batch, self.mm_trans = 0, 1, 0

    def slot(self, base: Tensor, view: ViewSpec, words: tuple[int, ...] = ()) -> int:
        key = (id(base), view, words)
        if key not in self.slot_of:
            self.slot_of[key] = self.add(base, view, words)
        return self.slot_of[key]

    def add(self, base: Tensor, view: ViewSpec, words: tuple[int, ...] = ()) -> int:
        """Return the number of a new input slot."""
        self.views.append(view)
        self.words.append(words)
        self.inputs.append(base)
        return len(self.views) - 1

    def read(self, node: Tensor) -> Operand:
        """Return the operand of a node that this kernel does not compute."""
        if node.storage is None and node.op == "const":
            if node.attrs[0] not in self.consts:
                self.consts.append(node.attrs[0])
            return Operand(_KIND["const"], self.consts.index(node.attrs[0]))
        if node.storage is None and node.op == "rparam":
            self.rparams.append(node.attrs[0])
            return Operand(_KIND["rparam"], len(self.rparams) - 1)
        if node.storage is None and node.op in GRID_NUMBERS:
            return Operand(_KIND[node.op], 0)
        if node.storage is None and node.op == "take" and (node is self.kernel.root or id(node) in self.kernel.takes):
            table, index = node.args
            data = self.add(table, ViewSpec(_VIEW["take"], 0, len(self.views) + 1))
            self.add(geometry_of(index)[0], ViewSpec(_VIEW["row_broadcast"]))
            return Operand(_KIND["input"], data)
        shaped = node if node.shape or self.kernel.grid else _as_one_element(node)
        return Operand(_KIND["input"], self.slot(*_view_of(shaped, self.grid, self.stored)))

    def multiply(self, node: Tensor) -> Operand:
        left, right = node.args
        base, view, words, trans_a = _operand_view(left, False, right.ndim > 2, self.stored)
        a_slot = self.slot(base, view, words)
        base, view, words, trans_b = _operand_view(right, True, right.ndim > 2, self.stored)
        b_slot = self.slot(base, view, words)
        self.matmul = Matmul(a_slot, b_slot)
        self.mm_k = left.shape[-1]
        self.mm_batch = math.prod(right.shape[:-2])
        self.mm_trans = trans_a | trans_b << 1
        return Operand(_KIND["matmul"], 0)

    def compute(self, node: Tensor) -> Operand:
        if node.op == "matmul":
            return self.multiply(node)
        op = ops.OP_BY_NAME[node.op]
        operands = [self.operand_of[id(arg)] for arg in node.args]
        register = len(self.instrs)
        self.instrs.append(Instr(op.code, register, *operands))
        return Operand(_KIND["reduce" if op.kind == "reduce" else "reg"], register)

    def walk(self, root: Tensor) -> Operand:
        """Return the operand of ``root``, arguments left to right before their user, without recursion."""
        stack = [(root, False)]
        while stack:
            node, ready = stack.pop()
            if id(node) in self.operand_of:
                continue
            if id(node) not in self.kernel.members:
                self.operand_of[id(node)] = self.read(node)
            elif ready or node.op == "matmul":
                self.operand_of[id(node)] = self.compute(node)
            else:
                stack.append((node, True))
                stack.extend((arg, False) for arg in reversed(node.args))
        return self.operand_of[id(root)]

    def run(self) -> LoweredKernel:
        root = self.kernel.root
        # The root comes last, so that its instruction is the last one.
        extras = tuple(self.walk(other).idx for other in self.kernel.more_roots)
        result = self.walk(root)
        if id(root) not in self.kernel.members:
            self.instrs.append(Instr(ops.OP_BY_NAME["copy"].code, len(self.instrs), result))
        raw = ExprSpec(len(self.instrs), tuple(self.instrs), tuple(self.views), tuple(self.consts),
                       tuple(self.rparams), self.matmul, extras=extras)
        validate(raw)
        spec = canonicalise(raw)
        rows, cols, vector_out = math.prod(self.grid[:-1]), self.grid[-1], self.kernel.vector_out
        if vector_out and not any(ops.OP_BY_CODE[instr.op].kind == "reduce" for instr in spec.instrs):
            # The canonical form needs no reduction (where(1, x, sum)): what is left has one value a line.
            rows, cols = (rows, 1) if self.kernel.reduce_axis == 0 else (1, cols)
            vector_out = 0
        dtypes = [base.dtype for base in self.inputs]
        halves = half_words(dtypes, root.dtype)
        launch = Launch(rows=rows, cols=cols, view_params=tuple(self.words),
                        const_bits=spec.const_bits, rparam_bits=spec.rparam_bits, vector_out=vector_out,
                        mm_k=self.mm_k, mm_batch=self.mm_batch, mm_trans=self.mm_trans, halves=halves)
        return LoweredKernel(root, spec, launch, tuple(self.inputs), self.kernel.more_roots,
                             meta.DISPATCH_SIGNATURE if any(halves) else 0,
                             slot_letters(dtypes, [root.dtype] * (1 + len(self.kernel.more_roots))))


def _lower_fold(fold: Tensor, root: Tensor) -> LoweredKernel:
    """Return a fold as it was made; ``root`` says how its result is stored, and its inputs how they are."""
    spec, launch = fold.attrs
    validate(spec)
    inputs = tuple(geometry_of(arg)[0] for arg in fold.args)
    dtypes = [base.dtype for base in inputs]
    halves = half_words(dtypes, root.dtype)
    return LoweredKernel(root, spec, replace(launch, halves=halves), inputs, (),
                         meta.DISPATCH_SIGNATURE if any(halves) else 0, slot_letters(dtypes, [root.dtype]))


def _as_one_element(node: Tensor) -> Tensor:
    base, offset, _ = geometry_of(node)
    if offset == 0:
        return Tensor("view", (base,), (0, (1,)), (1,), node.dtype, node.engine)
    return Tensor("view", (base,), (offset, (0,)), (1,), node.dtype, node.engine)


def lower(kernel: PlannedKernel, stored: frozenset[int] = frozenset()) -> LoweredKernel:
    """Return the canonical spec, the inputs and the launch of ``kernel``.

    ``stored`` has the ids of the views that kernels of their own store, in row-major order, before they are read.

    Raises
    ------
    UnsupportedOpError
        If a view needs more axes than the format has.
    """
    return _Lowering(kernel, stored).run() if kernel.fold is None else _lower_fold(kernel.fold, kernel.root)
