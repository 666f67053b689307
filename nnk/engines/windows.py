"""Which parts of its buffers a launch over a part of the grid binds, and the words of its views there.

A window begins where the part of the grid does, so that a kernel counts from 0 in it as it does in the whole. That is
right only for some parts: rows begin at a multiple of the period of each view that takes row numbers apart, or lie
within one period of it. :attr:`Windows.periods` and the two grains say where the grid may be cut.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from nnk import ops
from nnk.engines.limits import Limits
from nnk.expr.lower import LoweredKernel
from nnk.expr.meta import CHUNKS_OUT, STRIDED_ELEMENTS, KernelMeta
from nnk.expr.spec import ExprSpec, ViewSpec
from nnk.numerics import REDUCE_CHUNK

__all__ = ["Box", "Window", "Windows", "most_bytes", "operand_slots"]

_VIEW = {view.code: view.name for view in ops.VIEWS}
_KIND = {kind.code: kind.name for kind in ops.OPERANDS}

Words = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Window:
    """Part of a buffer, in bytes: ``rows`` runs of ``row_bytes``, one every ``step`` bytes from ``start`` on."""

    start: int
    row_bytes: int
    rows: int = 1
    step: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes of all rows."""
        return self.row_bytes * self.rows


@dataclass(frozen=True, slots=True)
class Box:
    """A part of the grid, and the part of a matmul's k that is bound for it: ``depth`` values from ``k`` on."""

    row: int
    rows: int
    col: int
    cols: int
    k: int = 0
    depth: int = 0


def _block(row: int, rows: int, width: int, col: int, cols: int, item: int) -> Window:
    """Return rows and columns of a row-major matrix of ``width`` columns as a window."""
    start = (row * width + col) * item
    if cols == width or rows == 1:
        return Window(start, rows * cols * item)
    return Window(start, cols * item, rows, width * item)


def most_bytes(view: ViewSpec, item: int, limits: Limits) -> int:
    """Return the largest part of a buffer that a view of elements of ``item`` bytes reads."""
    is_strided = _VIEW[view.kind] == "strided"
    return min(limits.buffer_bytes, STRIDED_ELEMENTS * item) if is_strided else limits.buffer_bytes


def operand_slots(spec: ExprSpec) -> dict[int, str]:
    """Return the slots that are read as a whole: ``a`` and ``b`` of a matmul, ``v`` with the vectors of a fold."""
    matmul = spec.matmul if spec.fold is None else spec.fold.matmul
    found = {} if matmul is None else {matmul.a_input: "a", matmul.b_input: "b"}
    if spec.fold is not None and spec.fold.vecacc is not None:
        found[spec.fold.vecacc.b_input] = "v"
    return found


def _numbers_read(spec: ExprSpec) -> set[str]:
    """Return which of ``row``, ``col`` and ``batch`` a program reads as numbers."""
    kinds = {_KIND[operand.kind] for instr in spec.instrs
             for operand in (instr.a, instr.b, instr.c)[:ops.OP_BY_CODE[instr.op].arity]}
    return kinds & {"row", "col", "batch"}


class Windows:
    """The windows of one kernel's launch, for any part of its grid.

    Attributes
    ----------
    height : int
        Rows of a batch; a part of more rows has whole batches.
    periods : list of int
        A part of more rows than a period begins at a multiple of it, a smaller one lies within one.
    row_grain, col_grain : int
        Rows and columns are cut at multiples of these; 0: never.
    """

    def __init__(self, lowered: LoweredKernel, meta: KernelMeta, limits: Limits) -> None:
        spec, launch = lowered.spec, lowered.launch
        self.spec, self.meta, self.launch, self.limits = spec, meta, launch, limits
        self.sizes = [node.size for node in lowered.inputs]
        self.items = [node.dtype.itemsize for node in lowered.inputs]
        self.out_item = lowered.root.dtype.itemsize
        self.height = launch.rows // launch.mm_batch
        self.operands = operand_slots(spec)
        self.names = [_VIEW[view.kind] for view in spec.views]
        for view in spec.views:
            if _VIEW[view.kind] in ("take", "row_gather"):
                self.names[view.param] = "row_broadcast" if _VIEW[view.kind] == "take" else "col_broadcast"
        self.periods = sorted(set(self._periods()))
        self.row_grain, self.col_grain = self._grains()

    def _periods(self) -> Iterator[int]:
        for slot, name in enumerate(self.names):
            words = self.launch.view_params[slot]
            if name in ("row_mod", "row_access"):
                yield words[0]
            elif name == "batch_mod" or (name == "head_group" and slot in self.operands):
                yield words[0] * self.height
            elif name == "strided":
                # The rows of a right operand are k, and those of vectors the items; its outer axes are batches.
                rows = {"b": self.launch.mm_k, "v": self.launch.cols}.get(self.operands.get(slot, ""))
                inner = 1
                for size in reversed(words[1:self.spec.views[slot].param]):
                    inner *= size
                    if rows is None:
                        yield inner
                    elif 0 < rows <= inner:
                        yield inner // rows * self.height

    def _grains(self) -> tuple[int, int]:
        # A line that is reduced is one piece, but the chunks of a line are results of their own.
        chunk = REDUCE_CHUNK if self.launch.vector_out == CHUNKS_OUT else 0
        rows = chunk if self.meta.reduce_axis == 1 else 1
        cols = chunk if self.meta.reduce_axis == 0 else 1
        # Half a block of rows is read from where the other half lies.
        rows = math.lcm(rows, *(self.launch.view_params[slot][0] for slot, name in enumerate(self.names)
                                if name == "rotate_half"))
        if self.spec.fold is not None:
            # It is told the numbers of its first row and batch.
            return 1, 0
        numbers = _numbers_read(self.spec)
        if "row" in numbers:
            rows = math.lcm(rows, self.height)
        if "batch" in numbers and self.launch.mm_batch > 1:
            rows = 0
        if "col" in numbers:
            cols = 0
        return rows, cols

    @property
    def whole(self) -> Box:
        """The whole grid."""
        return Box(0, self.launch.rows, 0, self.launch.cols, 0, self.launch.mm_k)

    # ---------------------------------------------------------------------------------- inputs

    def strided(self, slot: int, row: int, rows: int, col: int, cols: int,
                is_operand: bool = False) -> tuple[Window, Words]:
        """Return window and words of a strided view over some rows and columns.

        Dimensions inside of the cut keep their sizes; those outside of it have one index, which goes into the offset.
        Where the window of an operand is too large, its columns may be copied as well as its rows: it cannot be cut.
        """
        rank, item = self.spec.views[slot].param, self.items[slot]
        words = self.launch.view_params[slot]
        sizes, strides, col_stride = (row + rows, *words[1:rank]), words[rank:2 * rank], words[2 * rank]
        first, low, high = words[0] + col * col_stride, 0, 0
        inner = 1
        new_sizes, new_strides = [], []
        for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
            extent = min(size, -(-rows // inner))
            first += row // inner % size * stride
            low += min(0, (extent - 1) * stride)
            high += max(0, (extent - 1) * stride)
            new_sizes.append(extent)
            new_strides.append(stride if extent > 1 else 0)
            inner *= size
        low += first + min(0, (cols - 1) * col_stride)
        high += first + max(0, (cols - 1) * col_stride)
        start = low * item // self.limits.alignment * self.limits.alignment
        window, offset = Window(start, (high + 1) * item - start), first - start // item
        far = [axis for axis, extent in enumerate(new_sizes) if extent > 1]
        if window.nbytes > most_bytes(self.spec.views[slot], item, self.limits) and len(far) == 1:
            apart = new_strides[far[0]]
            if apart >= cols and (col_stride == 1 or cols == 1):
                # Rows that lie apart, as the columns of a slice do: without what is between them.
                window = Window(low * item, cols * item, rows, apart * item)
                offset, new_strides[far[0]] = 0, cols
            elif is_operand and apart == 1 and col_stride >= rows:
                window = Window(low * item, rows * item, cols, col_stride * item)
                offset, col_stride = 0, rows
        return window, (offset, *reversed(new_sizes[:-1]), *reversed(new_strides), col_stride if cols > 1 else 0)

    def batches(self, box: Box) -> tuple[int, int]:
        """Return the first batch and the number of batches of a part."""
        return box.row // self.height, max(1, box.rows // self.height)

    def window(self, slot: int, box: Box) -> tuple[Window, Words]:
        """Return the window of an input, and the words of its view."""
        if slot in self.operands:
            return self.operand(slot, box)
        item, cols, words = self.items[slot], self.launch.cols, self.launch.view_params[slot]
        name = self.names[slot]
        if name == "strided":
            return self.strided(slot, box.row, box.rows, box.col, box.cols)
        if name == "row_broadcast":
            return Window(box.row * item, box.rows * item), ()
        if name == "col_broadcast":
            return Window(box.col * item, box.cols * item), ()
        if name == "batch_mod":
            first, count = self.batches(box)
            count = min(count, words[0])
            return Window(first % words[0] * item, count * item), (count,)
        if name == "batch_col":
            return self.batch_lines(words[0], box, item)
        first, count, new = self.rows_of(slot, box)
        return _block(first, count, cols, box.col, box.cols, item), new

    def rows_of(self, slot: int, box: Box) -> tuple[int, int, Words]:
        """Return which rows of an input as wide as the grid a part reads, and the words of its view."""
        name, words = self.names[slot], self.launch.view_params[slot]
        if name in ("take", "row_gather"):
            return 0, self.sizes[slot] // self.launch.cols, ()
        if name in ("row_mod", "row_access"):
            period = min(words[0], box.rows)
            first = box.row % words[0] + sum(words[1:])
            return first, period, (period, 0)[:len(words)]
        if name in ("grouped_reduce_sum", "grouped_reduce_max"):
            return box.row * words[0], box.rows * words[0], words
        if name == "rotate_half":
            whole, rest = box.rows // words[0] * words[0], box.rows % words[0]
            # The last block may be cut; a row of it reads in the other half.
            last = 0 if not rest else words[0] if rest > words[0] // 2 else words[0] // 2 + rest
            return box.row, whole + last, words
        return box.row, box.rows, words

    def batch_lines(self, width: int, box: Box, item: int) -> tuple[Window, Words]:
        """Return the window of one line a batch, ``width`` elements after the other, and the new width."""
        first, count = self.batches(box)
        start = (first * width + box.col) * item
        if count == 1 or box.cols == self.launch.cols:
            return Window(start, ((count - 1) * width + box.cols) * item), (width,)
        return Window(start, box.cols * item, count, width * item), (box.cols,)

    # ---------------------------------------------------------------------------------- operands

    def operand(self, slot: int, box: Box) -> tuple[Window, Words]:
        """Return the window of an operand: whole blocks of neighbouring batches, or some rows and columns of one."""
        if not self.launch.mm_k and self.operands[slot] != "v":
            # Nothing is read.
            return Window(0, min(self.sizes[slot], 1) * self.items[slot]), self.launch.view_params[slot]
        batch, batches = self.batches(box)
        height, row, rows, width, col, cols = self.part_of_block(self.operands[slot], slot, box)
        if self.names[slot] == "strided":
            return self.strided(slot, batch * height + row, batches * height if batches > 1 else rows, col, cols, True)
        words, item = self.launch.view_params[slot], self.items[slot]
        group = words[0] if self.names[slot] == "head_group" else 1
        first, count = batch // group, -(-batches // group)
        if count == 1 or rows == height:
            return _block(first * height + row, count * height if count > 1 else rows, width, col, cols, item), words
        assert cols == width, (box, self.spec)
        return _block(first, count, height * width, row * width, rows * width, item), words

    def part_of_block(self, role: str, slot: int, box: Box) -> tuple[int, int, int, int, int, int]:
        """Return the rows of an operand's block, the part of them that is read, and the same of its columns."""
        length, depth = self.launch.cols, self.launch.mm_k
        fold = self.spec.fold
        if role == "v":
            return length, 0, length, self.launch.out_cols, 0, self.launch.out_cols
        if fold is not None and fold.matmul is not None:
            transposed = fold.matmul.trans_a if role == "a" else fold.matmul.trans_b
        else:
            transposed = self.launch.mm_trans & (1 if role == "a" else 2)
        if self.names[slot] == "strided":
            transposed = 0
        inner = depth, box.k, box.depth
        outer = (self.height, box.row % self.height, min(box.rows, self.height)) if role == "a" else \
            (length, box.col, box.cols)
        return (*outer, *inner) if (role == "a") != bool(transposed) else (*inner, *outer)

    # ---------------------------------------------------------------------------------- output

    def output(self, box: Box) -> Window:
        """Return the window of the result."""
        if self.launch.vector_out:
            return self.line_results(box)
        if self.launch.out_cols:
            return Window(box.row * self.launch.out_cols * self.out_item,
                          box.rows * self.launch.out_cols * self.out_item)
        return _block(box.row, box.rows, self.launch.cols, box.col, box.cols, self.out_item)

    def line_results(self, box: Box) -> Window:
        """Return the window of one value a line, or one a chunk of each: (rows, chunks), or (chunks, columns)."""
        def chunks(start: int, count: int) -> tuple[int, int]:
            if self.launch.vector_out != CHUNKS_OUT:
                return 0, 1
            return start // REDUCE_CHUNK, -(-count // REDUCE_CHUNK)

        if self.meta.reduce_axis == 1:
            first, count = chunks(box.row, box.rows)
            return _block(first, count, self.launch.cols, box.col, box.cols, self.out_item)
        first, count = chunks(box.col, box.cols)
        return _block(box.row, box.rows, chunks(0, self.launch.cols)[1], first, count, self.out_item)
