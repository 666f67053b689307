"""Large launches in pieces: parts of the grid, each with windows of the buffers that a device can bind.

A kernel never learns that it runs on a part: the piece's words are those of a smaller launch, and its windows begin
where the part does (:mod:`nnk.engines.windows`). So every piece runs the one compiled kernel and gives the bits of the
whole, whatever the limits are. A window that a device cannot bind, because it is not contiguous or not aligned, is
copied to a buffer of its own first, and a result from there.

The grid is cut in halves until every window fits. Rows are cut only where the row numbers that views take apart stay
simple: at common multiples of their periods, or so that the lower part lies within one period of each. A matmul whose
single lines do not fit is cut along k as well: the sums wait in the output from piece to piece.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nnk import ops
from nnk.engines.limits import Limits
from nnk.engines.windows import Box, Window, Windows, most_bytes
from nnk.errors import LimitError
from nnk.expr.dtypes import half_words, slot_letters
from nnk.expr.lower import LoweredKernel
from nnk.expr.meta import MATMUL_BLOCK, KernelMeta, Launch, group_count_of, pack_words
from nnk.expr.spec import ExprSpec
from nnk.expr.spec_rules import validate

if TYPE_CHECKING:
    from nnk.engines.base import Engine
    from nnk.engines.schedule import Step

__all__ = ["Piece", "fits", "pieces_of", "run_pieces", "with_own_operands"]

#: Cuts are at multiples of so many rows, columns or values of k where they can: windows then start aligned on every
#: device.
_GRAIN = 64

#: Most launches of one kernel: beyond it a view jumps so far from row to row that something else is better.
MAX_PIECES = 16384

#: View -> what of it is never cut.
_WHOLE = {"grouped_reduce_sum": "a group of rows", "grouped_reduce_max": "a group of rows",
          "rotate_half": "a block of rows", "take": "a column of a table", "row_gather": "a column of a table"}

_INPUT = ops.OPERAND_BY_NAME["input"].code


@dataclass(frozen=True, slots=True)
class Piece:
    """One launch of a step: what it is a launch of, and what its kernel binds."""

    launch: Launch
    words: bytes
    group_count: int
    inputs: tuple[Window, ...]
    output: Window

    @property
    def goes_on(self) -> bool:
        """Whether the piece adds to sums that the one before it left in the same window."""
        return self.launch.mm_range is not None and self.launch.mm_range[0] > 0

    @property
    def ends(self) -> bool:
        """Whether the piece leaves results, and not sums that the next one goes on with."""
        return self.launch.mm_range is None or self.launch.mm_range[1] == self.launch.mm_k


class _Cutter:
    """Cuts the launch of one kernel."""

    def __init__(self, lowered: LoweredKernel, meta: KernelMeta, limits: Limits) -> None:
        self.windows = Windows(lowered, meta, limits)
        self.spec, self.meta, self.launch, self.limits = lowered.spec, meta, lowered.launch, limits
        self.row_grain, self.col_grain = self.windows.row_grain, self.windows.col_grain

    # ---------------------------------------------------------------------------------- limits

    def over(self, box: Box) -> list[tuple[str, int, int]]:
        """Return (what, requested, maximum) of each limit that a launch over ``box`` passes."""
        columns = self.launch.out_cols or box.cols
        found = [("elements of a grid", box.rows * columns, self.limits.elements),
                 ("maxStorageBufferRange", self.windows.output(box).nbytes, self.limits.buffer_bytes)]
        for slot, (view, item) in enumerate(zip(self.spec.views, self.windows.items, strict=True)):
            window, _ = self.windows.window(slot, box)
            found.append(("maxStorageBufferRange", window.nbytes, most_bytes(view, item, self.limits)))
        return [entry for entry in found if entry[1] > entry[2]]

    def excess(self, box: Box) -> float:
        """Return how far a launch over ``box`` passes the limits, 0 when it fits."""
        return sum(requested / maximum for _, requested, maximum in self.over(box))

    # ---------------------------------------------------------------------------------- cuts

    def row_cut(self, box: Box) -> int:
        """Return the number of rows of ``box`` above a cut, 0 when its rows cannot be cut."""
        rows = box.rows
        grain = math.lcm(self.row_grain, self.windows.height) if rows > self.windows.height else self.row_grain
        if not grain or rows <= grain:
            return 0
        spanned = [period for period in self.windows.periods if period < rows]
        step = math.lcm(grain, *spanned)
        if step < rows:
            upper = (-(-rows // step) + 1) // 2 * step
            return upper - (box.row + upper) % _GRAIN if step == 1 and rows >= 2 * _GRAIN else upper
        # No common multiple: the lower part lies within the last period of those that it does not begin with.
        starts = [(rows - 1) // multiple * multiple for multiple in (math.lcm(grain, period) for period in spanned)]
        return max((start for start in starts if all(
            start % period == 0 or start // period == (rows - 1) // period for period in spanned)), default=0)

    def row_halves(self, box: Box) -> tuple[Box, Box] | None:
        """Return the two parts of ``box`` above and below a cut, or None when its rows cannot be cut."""
        upper = self.row_cut(box)
        if not upper:
            return None
        return (dataclasses.replace(box, rows=upper),
                dataclasses.replace(box, row=box.row + upper, rows=box.rows - upper))

    def column_halves(self, box: Box) -> tuple[Box, Box] | None:
        """Return the two parts of ``box`` left and right of a cut, or None when its columns cannot be cut."""
        if not self.col_grain or box.cols <= self.col_grain:
            return None
        left = (-(-box.cols // self.col_grain) + 1) // 2 * self.col_grain
        if self.col_grain == 1 and box.cols >= 2 * _GRAIN:
            left -= (box.col + left) % _GRAIN
        return (dataclasses.replace(box, cols=left),
                dataclasses.replace(box, col=box.col + left, cols=box.cols - left))

    def smallest(self, box: Box) -> tuple[Box, Box]:
        """Return ``box`` with its rows, and with its columns, cut to the end."""
        return (dataclasses.replace(box, rows=min(self.row_grain or box.rows, box.rows)),
                dataclasses.replace(box, cols=min(self.col_grain or box.cols, box.cols)))

    def k_step(self) -> int:
        """Return how many values of k a launch may bind: all, unless single rows and columns of operands are too long.

        A block of results then fits as well, if it can: fewer pieces read an operand again.
        """
        depth, height = self.launch.mm_k, self.windows.height
        if (self.meta.form != "matmul" or self.windows.out_item != 4
                or not self.over(Box(0, 1, 0, 1, 0, depth))):
            return depth
        for side in (MATMUL_BLOCK, 1):
            step = depth
            while step > _GRAIN:
                step = -(-step // (2 * _GRAIN)) * _GRAIN
                part = Box(0, min(height, side), 0, min(self.launch.cols, side), 0, min(depth, step + _GRAIN + 1))
                if not self.over(part):
                    return step
        return depth

    def boxes(self) -> Iterator[Box]:
        """Return parts of the grid that fit, row by row."""
        step, height = self.k_step(), self.windows.height
        whole = self.windows.whole
        stack = [whole]
        if step < whole.depth:
            bound = min(whole.depth, step + _GRAIN + 1)
            stack = [dataclasses.replace(whole, row=row, rows=height, depth=bound)
                     for row in reversed(range(0, whole.rows, height))]
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
            few_rows, few_columns = self.smallest(box)
            if rows is None or (columns is not None and self.excess(few_rows) > self.excess(few_columns)):
                rows = columns
            if rows is None:
                raise self.refusal(box)
            stack += reversed(rows)

    def refusal(self, box: Box) -> LimitError:
        """Return the error for a launch that cannot be cut any further."""
        limit, requested, maximum = max(self.over(box), key=lambda entry: entry[1] / entry[2])
        return LimitError(f"Expected {limit} of at most {maximum} in one kernel launch on {self.limits.device}, got "
                          f"{requested} for {self.launch.rows} x {self.launch.cols} (k {self.launch.mm_k}): "
                          f"{self.what_is_whole(box)} cannot be cut; use smaller tensors or another device",
                          limit=limit, requested=requested, maximum=maximum)

    def what_is_whole(self, box: Box) -> str:
        """Say why a part cannot be cut any further."""
        if self.meta.reduce_axis >= 0:
            return ("a row that is reduced", "a column that is reduced")[self.meta.reduce_axis]
        slot = max(range(self.meta.n_inputs), key=lambda slot: self.windows.window(slot, box)[0].nbytes, default=0)
        name = self.windows.names[slot] if self.meta.n_inputs else ""
        if name in _WHOLE and slot not in self.windows.operands:
            return _WHOLE[name]
        if self.row_grain != 1 or (self.col_grain == 0 and self.spec.fold is None):
            return "rows and columns whose numbers the kernel reads"
        if self.spec.fold is not None:
            return "the items of a fold"
        return "the k axis of a matmul" if slot in self.windows.operands else "what one element reads"

    # ---------------------------------------------------------------------------------- pieces

    def pieces(self) -> Iterator[Piece]:
        """Return the launches over all parts."""
        step, depth = self.k_step(), self.launch.mm_k
        for box in self.boxes():
            if step == depth:
                yield self.piece(box, None)
                continue
            for first in range(0, depth, step):
                end = min(first + step, depth)
                # A kernel that goes on begins behind the first value of k, and one that stops ends before the last.
                low, high = max(first - _GRAIN, 0), min(end + 1, depth)
                part = dataclasses.replace(box, k=low, depth=high - low)
                yield self.piece(part, (first - low, end - low))

    def piece(self, box: Box, mm_range: tuple[int, int] | None) -> Piece:
        """Return the launch over a part of the grid."""
        windows = [self.windows.window(slot, box) for slot in range(self.meta.n_inputs)]
        batch, batches = self.windows.batches(box)
        launch = dataclasses.replace(self.launch, rows=box.rows, cols=box.cols, mm_k=box.depth, mm_range=mm_range,
                                     first_row=box.row % self.windows.height, first_batch=batch,
                                     view_params=tuple(words for _, words in windows),
                                     mm_batch=batches if self.meta.has_matmul else 1)
        return Piece(launch, pack_words(self.meta, launch), group_count_of(self.meta, launch),
                     tuple(window for window, _ in windows), self.windows.output(box))


def fits(lowered: LoweredKernel, limits: Limits) -> bool:
    """Say whether the launch of a kernel fits the limits as a whole."""
    launch, root = lowered.launch, lowered.root
    return (launch.rows * (launch.out_cols or launch.cols) <= limits.elements and root.nbytes <= limits.buffer_bytes
            and all(node.nbytes <= most_bytes(view, node.dtype.itemsize, limits)
                    for view, node in zip(lowered.spec.views, lowered.inputs, strict=True)))


def _read_slots(spec: ExprSpec) -> set[int]:
    """Return the input slots that a program reads element by element."""
    instrs = spec.instrs if spec.fold is None else spec.fold.body
    return {operand.idx for instr in instrs for operand in (instr.a, instr.b, instr.c) if operand.kind == _INPUT}


def with_own_operands(lowered: LoweredKernel) -> LoweredKernel:
    """Return a kernel whose operands, of a matmul and of a fold, are inputs of their own.

    ``x @ x.T`` has one input for both, but a part of its result needs two parts of it.
    """
    spec, launch = lowered.spec, lowered.launch
    matmul = spec.matmul if spec.fold is None else spec.fold.matmul
    vecacc = None if spec.fold is None else spec.fold.vecacc
    views, params, inputs = list(spec.views), list(launch.view_params), list(lowered.inputs)
    taken = _read_slots(spec)

    def own(slot: int) -> int:
        if slot in taken:
            views.append(views[slot])
            params.append(params[slot])
            inputs.append(inputs[slot])
            slot = len(views) - 1
        taken.add(slot)
        return slot

    if matmul is not None:
        matmul = matmul._replace(a_input=own(matmul.a_input), b_input=own(matmul.b_input))
    if vecacc is not None:
        vecacc = vecacc._replace(b_input=own(vecacc.b_input))
    if len(views) == len(spec.views):
        return lowered
    spec = spec._replace(views=tuple(views))
    spec = spec._replace(matmul=matmul) if spec.fold is None else \
        spec._replace(fold=spec.fold._replace(matmul=matmul, vecacc=vecacc))
    validate(spec)
    dtypes, outputs = [node.dtype for node in inputs], [node.dtype for node in (lowered.root, *lowered.more_roots)]
    launch = dataclasses.replace(launch, view_params=tuple(params), halves=half_words(dtypes, outputs[0]))
    return dataclasses.replace(lowered, spec=spec, launch=launch, inputs=tuple(inputs),
                               slots=slot_letters(dtypes, outputs))


def pieces_of(lowered: LoweredKernel, meta: KernelMeta, limits: Limits) -> tuple[Piece, ...]:
    """Return the launches that the launch of a kernel :func:`with_own_operands` is cut into.

    Raises
    ------
    LimitError
        If something that cannot be cut passes a limit: a row that is reduced, the items of a fold.
    """
    return tuple(_Cutter(lowered, meta, limits).pieces())


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
    packed: list[Any] = []
    for piece in step.pieces:
        window = piece.output
        part = dataclasses.replace(step, launch=piece.launch, words=piece.words, group_count=piece.group_count,
                                   out_bytes=window.nbytes, pieces=())
        sources = [_bound(engine, storage, window) for storage, window in zip(inputs, piece.inputs, strict=True)]
        # Elements smaller than a word are stored by whole words: the next piece's may not share one.
        if _is_bindable(window, engine.limits) and window.nbytes % 4 == 0:
            engine.run(part, sources, *(engine.window(output, window.start, window.nbytes) for output in outputs))
            continue
        if not piece.goes_on:
            packed = [engine.allocate(window.nbytes) for _ in outputs]
        engine.run(part, sources, *packed)
        for result, output in zip(packed, outputs, strict=True):
            if piece.ends:
                engine.copy_rows(result, 0, window.row_bytes, output, window.start, window.step, window.row_bytes,
                                 window.rows)
