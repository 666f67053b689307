"""Large launches in pieces: parts of the grid, each with windows of the buffers that a device can bind.

A kernel never learns that it runs on a part: the piece's words are those of a smaller launch, and its windows begin
where the part does. So every piece runs the one compiled kernel and gives the bits of the whole, whatever the limits
are. A window that a device cannot bind, because it is not contiguous or not aligned, is copied to a buffer of its own
first, and a result from there.

The grid is cut in halves until every window fits. Rows are cut only where the row numbers that strided and periodic
views take apart stay simple: at multiples of the periods of all views, from the longest to the shortest. They come from
one grid, so that each divides the next.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nnk import ops
from nnk.engines.limits import Limits
from nnk.errors import LimitError
from nnk.expr.dtypes import half_words, slot_letters
from nnk.expr.lower import LoweredKernel
from nnk.expr.meta import CHUNKS_OUT, KernelMeta, Launch, group_count_of, pack_words
from nnk.expr.spec import ExprSpec, Matmul
from nnk.expr.spec_rules import validate
from nnk.numerics import REDUCE_CHUNK

if TYPE_CHECKING:
    from nnk.engines.base import Engine
    from nnk.engines.schedule import Step

__all__ = ["Piece", "Window", "fits", "pieces_of", "run_pieces", "with_own_operands"]

#: Cuts are at multiples of so many rows or columns where they can: windows then start aligned on every device.
_GRAIN = 64

#: Most launches of one kernel: beyond it a view jumps so far from row to row that something else is better.
MAX_PIECES = 16384

_VIEW = {view.code: view.name for view in ops.VIEWS}
_INPUT = ops.OPERAND_BY_NAME["input"].code
_GRID_OPERANDS = frozenset(ops.OPERAND_BY_NAME[name].code for name in ("row", "col", "batch"))
_CUT_VIEWS = frozenset(("linear", "row_mod", "row_broadcast", "col_broadcast", "strided", "take"))


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
class Piece:
    """One launch of a step: what it is a launch of, and what its kernel binds."""

    launch: Launch
    words: bytes
    group_count: int
    inputs: tuple[Window, ...]
    output: Window


@dataclass(frozen=True, slots=True)
class _Box:
    """A part of the grid."""

    row: int
    rows: int
    col: int
    cols: int


def _block(row: int, rows: int, width: int, col: int, cols: int, item: int) -> Window:
    """Return rows and columns of a row-major matrix of ``width`` columns as a window."""
    start = (row * width + col) * item
    if cols == width or rows == 1:
        return Window(start, rows * cols * item)
    return Window(start, cols * item, rows, width * item)


class _Cutter:
    """Cuts the launch of one kernel."""

    def __init__(self, lowered: LoweredKernel, meta: KernelMeta, limits: Limits) -> None:
        spec, launch = lowered.spec, lowered.launch
        self.spec, self.meta, self.launch, self.limits = spec, meta, launch, limits
        self.sizes = [node.size for node in lowered.inputs]
        self.items = [node.dtype.itemsize for node in lowered.inputs]
        self.out_item = lowered.root.dtype.itemsize
        self.height = launch.rows // launch.mm_batch
        self.operands: tuple[int, ...] = ()
        if spec.matmul is not None:
            self.operands = spec.matmul.a_input, spec.matmul.b_input
        #: Rows and columns are cut at multiples of so many; 0: never. A line that is reduced is one piece, but the
        #: chunks of a line are results of their own.
        chunk = REDUCE_CHUNK if launch.vector_out == CHUNKS_OUT else 0
        self.row_grain = chunk if meta.reduce_axis == 1 else 1
        self.col_grain = chunk if meta.reduce_axis == 0 else 1
        self.periods = self._periods()

    # ---------------------------------------------------------------------------------- windows

    def strided(self, slot: int, row: int, rows: int, col: int, cols: int) -> tuple[Window, tuple[int, ...]]:
        """Return window and words of a strided view over some rows and columns.

        Dimensions inside of the cut keep their sizes; those outside of it have one index, which goes into the offset.
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
        if (window.nbytes > self.limits.buffer_bytes and len(far) == 1 and new_strides[far[0]] >= cols
                and (col_stride == 1 or cols == 1)):
            # Rows that lie apart, as the columns of a slice do: without what is between them.
            window = Window(low * item, cols * item, rows, new_strides[far[0]] * item)
            offset, new_strides[far[0]] = 0, cols
        return window, (offset, *reversed(new_sizes[:-1]), *reversed(new_strides), col_stride if cols > 1 else 0)

    def window(self, slot: int, box: _Box) -> tuple[Window, tuple[int, ...]]:
        """Return the window of an input, and the words of its view."""
        item, cols = self.items[slot], self.launch.cols
        name = _VIEW[self.spec.views[slot].kind]
        if slot in self.operands:
            return self.operand(slot, box)
        if name == "strided":
            return self.strided(slot, box.row, box.rows, box.col, box.cols)
        if name == "row_broadcast":
            return Window(box.row * item, box.rows * item), ()
        if name == "col_broadcast":
            return Window(box.col * item, box.cols * item), ()
        if name == "take":
            return _block(0, self.sizes[slot] // cols, cols, box.col, box.cols, item), ()
        if name == "row_mod":
            period = min(self.launch.view_params[slot][0], box.rows)
            return _block(box.row % self.launch.view_params[slot][0], period, cols, box.col, box.cols, item), (period,)
        return _block(box.row, box.rows, cols, box.col, box.cols, item), ()

    def operand(self, slot: int, box: _Box) -> tuple[Window, tuple[int, ...]]:
        """Return the window of an operand of the matmul: whole batches, or some rows and columns of one."""
        depth, item, cols = self.launch.mm_k, self.items[slot], self.launch.cols
        batch, batches = box.row // self.height, max(1, box.rows // self.height)
        is_strided = _VIEW[self.spec.views[slot].kind] == "strided"
        if slot == self.operands[0]:
            if is_strided:
                return self.strided(slot, box.row, box.rows, 0, depth)
            if not self.launch.mm_trans & 1:
                return _block(box.row, box.rows, depth, 0, depth, item), ()
            return _block(batch * depth, batches * depth, self.height, box.row % self.height,
                          min(box.rows, self.height), item), ()
        if is_strided:
            return self.strided(slot, batch * depth, batches * depth, box.col, box.cols)
        if not self.launch.mm_trans & 2:
            return _block(batch * depth, batches * depth, cols, box.col, box.cols, item), ()
        return _block(batch, batches, cols * depth, box.col * depth, box.cols * depth, item), ()

    def output(self, box: _Box) -> Window:
        """Return the window of the result."""
        if self.launch.vector_out:
            return self.line_results(box)
        return _block(box.row, box.rows, self.launch.cols, box.col, box.cols, self.out_item)

    def line_results(self, box: _Box) -> Window:
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

    # ---------------------------------------------------------------------------------- cuts

    def _periods(self) -> list[int]:
        """Return the numbers of rows at whose multiples the grid may be cut, the longest first."""
        found = {self.height, self.launch.rows}
        for slot, view in enumerate(self.spec.views):
            words = self.launch.view_params[slot]
            name = _VIEW[view.kind]
            if name == "row_mod":
                found.add(words[0])
            elif name == "strided":
                inner = 1
                for size in reversed(words[1:view.param]):
                    inner *= size
                    if self.operands[1:] != (slot,):
                        found.add(inner)
                    elif inner >= self.launch.mm_k:
                        # The rows of the right operand are k; those of its outer axes are batches.
                        found.add(inner // self.launch.mm_k * self.height)
        periods = sorted((period for period in found if period <= self.launch.rows), reverse=True)
        for longer, shorter in itertools.pairwise(periods):
            assert longer % shorter == 0, (periods, self.spec)
        return periods if periods[-1] == 1 else [*periods, 1]

    def over(self, box: _Box) -> list[tuple[str, int, int]]:
        """Return (what, requested, maximum) of each limit that a launch over ``box`` passes."""
        found = [("elements of a grid", box.rows * box.cols, self.limits.elements)]
        windows = [self.window(slot, box)[0] for slot in range(self.meta.n_inputs)] + [self.output(box)]
        found += [("maxStorageBufferRange", window.nbytes, self.limits.buffer_bytes) for window in windows]
        return [entry for entry in found if entry[1] > entry[2]]

    def excess(self, box: _Box) -> float:
        """Return how far a launch over ``box`` passes the limits, 0 when it fits."""
        return sum(requested / maximum for _, requested, maximum in self.over(box))

    def row_halves(self, box: _Box) -> tuple[_Box, _Box] | None:
        """Return the two parts of ``box`` above and below a cut, or None when its rows cannot be cut."""
        if not self.row_grain or box.rows <= self.row_grain:
            return None
        period = next(period for period in self.periods if period < box.rows)
        if self.row_grain > 1:
            # Chunks of a column, unless views take their row numbers apart.
            if period > 1:
                return None
            period = self.row_grain
        upper = (-(-box.rows // period) + 1) // 2 * period
        if period == 1 and box.rows >= 2 * _GRAIN:
            upper -= (box.row + upper) % _GRAIN
        return (dataclasses.replace(box, rows=upper),
                dataclasses.replace(box, row=box.row + upper, rows=box.rows - upper))

    def column_halves(self, box: _Box) -> tuple[_Box, _Box] | None:
        """Return the two parts of ``box`` left and right of a cut, or None when its columns cannot be cut."""
        if not self.col_grain or box.cols <= self.col_grain:
            return None
        left = (-(-box.cols // self.col_grain) + 1) // 2 * self.col_grain
        if self.col_grain == 1 and box.cols >= 2 * _GRAIN:
            left -= (box.col + left) % _GRAIN
        return (dataclasses.replace(box, cols=left),
                dataclasses.replace(box, col=box.col + left, cols=box.cols - left))

    def boxes(self) -> Iterator[_Box]:
        """Return parts of the grid that fit, row by row."""
        stack = [_Box(0, self.launch.rows, 0, self.launch.cols)]
        count = 0
        while stack:
            box = stack.pop()
            count += 1
            if count > 2 * MAX_PIECES:
                raise LimitError(f"Expected at most {MAX_PIECES} launches for one kernel on {self.limits.device}, got "
                                 f"more for {self.launch.rows} x {self.launch.cols}: a view jumps too far from row to "
                                 f"row; use smaller tensors or store a copy in another order first (t.eval())",
                                 limit="launches", maximum=MAX_PIECES)
            excess = self.excess(box)
            if not excess:
                yield box
                continue
            rows, columns = self.row_halves(box), self.column_halves(box)
            # The axis that leaves less when it is cut to the end: a transposed view spans its buffer in every row.
            if rows is None or (columns is not None and self.excess(dataclasses.replace(
                    box, rows=self.row_grain)) > self.excess(dataclasses.replace(box, cols=self.col_grain))):
                rows = columns
            if rows is None:
                raise self.refusal(box)
            stack += reversed(rows)

    def refusal(self, box: _Box) -> LimitError:
        """Return the error for a launch that cannot be cut any further."""
        limit, requested, maximum = max(self.over(box), key=lambda entry: entry[1] / entry[2])
        whole = {0: "a row that is reduced", 1: "a column that is reduced"}.get(
            self.meta.reduce_axis, "the k axis of a matmul" if self.operands else "what one element reads")
        return LimitError(f"Expected {limit} of at most {maximum} in one kernel launch on {self.limits.device}, got "
                          f"{requested} for {self.launch.rows} x {self.launch.cols} (k {self.launch.mm_k}): {whole} "
                          f"cannot be cut; use smaller tensors or another device", limit=limit, requested=requested,
                          maximum=maximum)

    def piece(self, box: _Box) -> Piece:
        """Return the launch over a part of the grid."""
        windows = [self.window(slot, box) for slot in range(self.meta.n_inputs)]
        launch = dataclasses.replace(self.launch, rows=box.rows, cols=box.cols,
                                     view_params=tuple(words for _, words in windows),
                                     mm_batch=max(1, box.rows // self.height) if self.operands else 1)
        return Piece(launch, pack_words(self.meta, launch), group_count_of(self.meta, launch),
                     tuple(window for window, _ in windows), self.output(box))


def fits(lowered: LoweredKernel, limits: Limits) -> bool:
    """Say whether the launch of a kernel fits the limits as a whole."""
    launch, root = lowered.launch, lowered.root
    largest = max(node.nbytes for node in (root, *lowered.inputs))
    return largest <= limits.buffer_bytes and launch.rows * (launch.out_cols or launch.cols) <= limits.elements


def with_own_operands(lowered: LoweredKernel) -> LoweredKernel:
    """Return a kernel whose matmul operands are inputs of their own.

    ``x @ x.T`` has one input for both, but a part of its result needs two parts of it.
    """
    spec, launch = lowered.spec, lowered.launch
    if spec.matmul is None:
        return lowered
    views, params, inputs = list(spec.views), list(launch.view_params), list(lowered.inputs)
    taken = {operand.idx for instr in spec.instrs for operand in (instr.a, instr.b, instr.c) if operand.kind == _INPUT}
    slots = []
    for slot in (spec.matmul.a_input, spec.matmul.b_input):
        own = slot
        if slot in taken:
            own = len(views)
            views.append(views[slot])
            params.append(params[slot])
            inputs.append(inputs[slot])
        taken.add(own)
        slots.append(own)
    spec = spec._replace(views=tuple(views), matmul=Matmul(*slots))
    validate(spec)
    dtypes, outputs = [node.dtype for node in inputs], [node.dtype for node in (lowered.root, *lowered.more_roots)]
    launch = dataclasses.replace(launch, view_params=tuple(params), halves=half_words(dtypes, outputs[0]))
    return dataclasses.replace(lowered, spec=spec, launch=launch, inputs=tuple(inputs),
                               slots=slot_letters(dtypes, outputs))


def _check_cuttable(spec: ExprSpec, limits: Limits) -> None:
    operands = [operand for instr in spec.instrs for operand in (instr.a, instr.b, instr.c)]
    views = sorted({_VIEW[view.kind] for view in spec.views} - _CUT_VIEWS)
    if views or spec.fold is not None or any(operand.kind in _GRID_OPERANDS for operand in operands):
        what = f"the view {views[0]}" if views else "a fold" if spec.fold is not None else "row or column numbers"
        raise LimitError(f"Expected buffers of at most {limits.buffer_bytes} bytes and grids of at most "
                         f"{limits.elements} elements on {limits.device} for a kernel with {what}, which cannot be cut",
                         limit="maxStorageBufferRange", maximum=limits.buffer_bytes)


def pieces_of(lowered: LoweredKernel, meta: KernelMeta, limits: Limits) -> tuple[Piece, ...]:
    """Return the launches that the launch of a kernel :func:`with_own_operands` is cut into.

    Raises
    ------
    LimitError
        If something that cannot be cut passes a limit: a row that is reduced, the k axis of a matmul.
    """
    _check_cuttable(lowered.spec, limits)
    cutter = _Cutter(lowered, meta, limits)
    return tuple(map(cutter.piece, cutter.boxes()))


# ------------------------------------------------------------------------------------------ execution

def _is_bindable(window: Window, limits: Limits) -> bool:
    return window.rows == 1 and window.start % limits.alignment == 0


def _bound(engine: Engine, storage: Any, window: Window) -> Any:
    """Return storage of an engine for the content of a window: the window itself, or a copy."""
    if _is_bindable(window, engine.limits):
        return engine.window(storage, window.start, window.nbytes)
    packed = engine.allocate(window.nbytes)
    engine.copy_rows(storage, window.start, window.step, packed, 0, window.row_bytes, window.row_bytes, window.rows)
    return packed


def run_pieces(engine: Engine, step: Step, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
    """Run the pieces of a step one after the other."""
    for piece in step.pieces:
        window = piece.output
        part = dataclasses.replace(step, launch=piece.launch, words=piece.words, group_count=piece.group_count,
                                   out_bytes=window.nbytes, pieces=())
        sources = [_bound(engine, storage, window) for storage, window in zip(inputs, piece.inputs, strict=True)]
        # Elements smaller than a word are stored by whole words: the next piece's may not share one.
        if _is_bindable(window, engine.limits) and window.nbytes % 4 == 0:
            engine.run(part, sources, *(engine.window(output, window.start, window.nbytes) for output in outputs))
            continue
        packed = [engine.allocate(window.nbytes) for _ in outputs]
        engine.run(part, sources, *packed)
        for result, output in zip(packed, outputs, strict=True):
            engine.copy_rows(result, 0, window.row_bytes, output, window.start, window.step, window.row_bytes,
                             window.rows)
