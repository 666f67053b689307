"""Evaluate an ExprSpec over NumPy inputs, by the format and the numerics contract, one output array a slot.

Inputs are flat float32 arrays (index inputs int32), or arrays of the dtypes that a caller names; the launch gives the
run-time side (``nnk.expr.meta.Launch``). Registers are whole (rows, cols) grids of words, held as float32, so the
evaluator is obvious rather than lean.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.oracle import arrays
from tests.oracle import specrules as rules
from tests.oracle.specrules import Spec

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

#: Length of a block of a fold.
FOLD_BLOCK = 128

#: Where a maximum inside a fold starts: a masked block must not make -inf - -inf.
LOWEST = arrays.floats_of([0xFF7FFFFF])[0]


class _Grid:
    """The shape side of a launch: row r, column c and batch of every element of the output grid."""

    def __init__(self, launch: Any, has_matmul: bool, cols: int | None = None) -> None:
        self.rows = launch.rows
        self.cols = launch.cols if cols is None else cols
        self.r: Ints = np.arange(self.rows, dtype=np.int64)[:, None]
        self.c: Ints = np.arange(self.cols, dtype=np.int64)[None, :]
        self.batch_count = launch.mm_batch if has_matmul else 1
        # A batch count that does not divide the rows makes one batch of all of them.
        divides = self.batch_count > 0 and self.rows % self.batch_count == 0
        self.rows_per_batch = max(self.rows // self.batch_count if divides else self.rows, 1)
        self.batch = self.r // self.rows_per_batch

    def full(self, values: Any) -> Floats:
        return np.ascontiguousarray(np.broadcast_to(values, (self.rows, self.cols)), dtype=np.float32)


def _strided_index(words: tuple[int, ...], n: int, r: Ints, c: Ints) -> Ints:
    offset, sizes, strides, column = words[0], words[1:n], words[n:2 * n], words[2 * n]
    index = np.full_like(r, offset)
    rest = r
    for dimension in range(n - 1, 0, -1):
        size = max(sizes[dimension - 1], 1)
        index = index + rest % size * strides[dimension]
        rest = rest // size
    return (index + rest * strides[0] + c * column) % 2**32


def _whole_number(data: npt.NDArray[Any]) -> Ints:
    """Index values: integers, or the whole part of floats."""
    return np.trunc(data).astype(np.int64)


def _grouped(grid: _Grid, data: Floats, count: int) -> Floats:
    """The count consecutive rows of every output row, on a last axis."""
    rows = data[:grid.rows * count * grid.cols].reshape(grid.rows, count, grid.cols)
    return np.moveaxis(rows, 1, 2)


def read_view(spec: Spec, launch: Any, inputs: list[Any], slot: int, grid: _Grid) -> Floats:
    """The value of an input slot at every element of the grid (exprspec 3.4)."""
    kind, negate, param, _param2 = spec[2][slot]
    data = inputs[slot]
    words = tuple(launch.view_params[slot])
    r, c, cols = grid.r, grid.c, grid.cols
    if kind in (rules.LINEAR, rules.HEAD_GROUP):
        return grid.full(data[r * cols + c])
    if kind == rules.ROTATE_HALF:
        return _rotate_half(data, words[0], negate, grid)
    if kind == rules.ROW_MOD:
        return grid.full(data[r % words[0] * cols + c])
    if kind in (*rules.COL_VIEWS, *rules.ROW_VIEWS):
        whole = grid.full(data[r * cols + c])
        return grid.full(_reduce(kind in (3, 5), kind in rules.COL_VIEWS, whole))
    if kind == rules.ROW_BROADCAST:
        return grid.full(data[r])
    if kind == rules.COL_BROADCAST:
        return grid.full(data[c])
    if kind == rules.ROW_GATHER:
        return grid.full(data[_whole_number(inputs[param])[c] * cols + c])
    if kind == rules.BATCH_MOD:
        return grid.full(data[grid.batch % words[0]])
    if kind == rules.BATCH_COL:
        return grid.full(data[grid.batch * words[0] + c])
    if kind == rules.ROW_ACCESS:
        return grid.full(data[(words[1] + r % words[0]) * cols + c])
    if kind in rules.GROUPED_VIEWS:
        return grid.full((arrays.row_sum if kind == 13 else arrays.row_max)(_grouped(grid, data, words[0])))
    if kind == rules.STRIDED:
        return grid.full(data[_strided_index(words, param, r, c)])
    if kind == rules.TAKE:
        return grid.full(data[_whole_number(inputs[param])[r] * cols + c])
    raise AssertionError(kind)


def _rotate_half(data: Floats, block: int, negate: int, grid: _Grid) -> Floats:
    half = block // 2
    place = grid.r % block
    lower = place < half
    source = np.where(lower, grid.r + half, grid.r - half)
    value = grid.full(data[source * grid.cols + grid.c])
    flipped = arrays.ARRAY_OPS[rules.NEG](value)
    return grid.full(np.where(lower & bool(negate), flipped, value))


def _reduce(is_sum: bool, over_rows: bool, values: Floats) -> Floats:
    """Reduce a grid over rows or columns, keeping the axis with size 1."""
    line = np.ascontiguousarray(values.T) if over_rows else values
    result = (arrays.row_sum if is_sum else arrays.row_max)(line)
    return result[None, :] if over_rows else result[:, None]


def _segment(spec: Spec, launch: Any, inputs: list[Any], slot: int, rows: int, cols: int, transposed: bool,
             batch: int) -> Floats:
    """A matmul operand on its grid, as (batch, rows, cols)."""
    kind, _negate, param, _param2 = spec[2][slot]
    if kind == rules.STRIDED:
        r = np.arange(batch * rows, dtype=np.int64)[:, None]
        c = np.arange(cols, dtype=np.int64)[None, :]
        return inputs[slot][_strided_index(tuple(launch.view_params[slot]), param, r, c)].reshape(batch, rows, cols)
    shared = launch.view_params[slot][0] if kind == rules.HEAD_GROUP else 1
    blocks = -(-batch // shared)
    data = inputs[slot][:blocks * rows * cols]
    data = np.moveaxis(data.reshape(blocks, cols, rows), 1, 2) if transposed else data.reshape(blocks, rows, cols)
    return data[np.arange(batch) // shared]


def matmul_grid(spec: Spec, launch: Any, inputs: list[Any], grid: _Grid) -> Floats:
    """The matmul segment's value at every element of the grid (exprspec 3.5)."""
    a_input, b_input = spec[5][:2]
    k, m = launch.mm_k, grid.rows_per_batch
    batch = grid.rows // m
    a = _segment(spec, launch, inputs, a_input, m, k, bool(launch.mm_trans & 1), batch)
    b = _segment(spec, launch, inputs, b_input, k, grid.cols, bool(launch.mm_trans & 2), batch)
    return grid.full(np.concatenate([arrays.matmul(a[i], b[i]) for i in range(batch)])
                     if batch else np.zeros((0, grid.cols), np.float32))


class _Evaluation:
    """Runs the top-level instructions; registers are grids, reductions keep their axis with size 1."""

    def __init__(self, spec: Spec, launch: Any, inputs: list[Any]) -> None:
        self.spec, self.launch, self.inputs = spec, launch, inputs
        self.grid = _Grid(launch, spec[5] is not None)
        self.registers: dict[int, Floats] = {}

    @functools.cached_property
    def segment(self) -> Floats:
        return matmul_grid(self.spec, self.launch, self.inputs, self.grid)

    def operand(self, operand: Spec) -> Floats:
        kind, idx = operand
        grid = self.grid
        if kind in (rules.REG, rules.FANOUT, rules.REDUCE):
            return grid.full(self.registers[idx])
        if kind == rules.INPUT:
            return read_view(self.spec, self.launch, self.inputs, idx, grid)
        if kind == rules.CONST:
            return grid.full(arrays.floats_of([self.launch.const_bits[idx]]))
        if kind == rules.RPARAM:
            return grid.full(arrays.floats_of([self.launch.rparam_bits[idx]]))
        if kind == rules.MATMUL:
            return self.segment
        if kind == rules.ROW:
            return grid.full((grid.r % grid.rows_per_batch).astype(np.float32))
        if kind == rules.COL:
            return grid.full(grid.c.astype(np.float32))
        if kind == rules.BATCH:
            return grid.full(grid.batch.astype(np.float32))
        raise AssertionError(kind)

    def step(self, instr: Spec) -> None:
        operands = [self.operand(operand) for operand in rules.used_operands(instr)]
        if instr[0] in rules.REDUCES:
            self.registers[instr[1]] = _reduce(instr[0] in (rules.ROW_SUM, rules.COL_SUM),
                                               instr[0] in (rules.COL_SUM, rules.COL_MAX), operands[0])
        else:
            self.registers[instr[1]] = arrays.ARRAY_OPS[instr[0]](*operands)

    def outputs(self) -> list[Floats]:
        if not self.spec[1]:
            return [self.segment]
        for instr in self.spec[1]:
            self.step(instr)
        return [self.grid.full(self.registers[register]) for register in (self.spec[1][-1][1], *self.spec[7])]


def words_of(data: npt.NDArray[Any], dtype: str) -> Floats:
    """What elements are in a register: bytes become integers, bools 1.0 or +0.0, all else keeps its bits."""
    if dtype == "bool":
        return np.where(data != 0, np.float32(1), np.float32(0))
    if dtype == "uint8":
        return arrays.floats_of(data.astype(np.uint32))
    return data.view(np.float32)


def stored_as(words: Floats, dtype: str) -> npt.NDArray[Any]:
    """What an output slot of this dtype keeps of registers."""
    if dtype == "bool":
        return (arrays.bits_of(words) & 0x7FFFFFFF != 0).astype(np.uint8)
    if dtype == "uint8":
        return (arrays.bits_of(words) & 0xFF).astype(np.uint8)
    return words.view(np.int32) if dtype == "int32" else arrays.canonical(words)


def evaluate(spec: Spec, launch: Any, inputs: list[Any], dtypes: tuple[str, ...] = ()) -> list[npt.NDArray[Any]]:
    """The flat outputs of a launch, slot by slot, floats with canonical NaNs.

    ``dtypes`` has one for each input and output slot: float32, int32, uint8 or bool (one byte); empty: all are
    float32. With ``launch.vector_out`` an output is the value at column 0 of every row, or at row 0 of every column for
    column reductions.
    """
    slots = len(spec[2])
    if dtypes:
        indices = {view[2] for view in spec[2] if view[0] in (rules.TAKE, rules.ROW_GATHER)}
        inputs = [data if slot in indices else words_of(data, dtype)
                  for slot, (data, dtype) in enumerate(zip(inputs, dtypes[:slots], strict=True))]
    values = evaluate_fold(spec, launch, inputs) if spec[6] is not None else \
        _Evaluation(spec, launch, inputs).outputs()
    if launch.vector_out:
        column = any(view[0] in rules.COL_VIEWS for view in spec[2]) or \
            any(instr[0] in (rules.COL_SUM, rules.COL_MAX) for instr in spec[1])
        values = [value[:1] if column else value[:, :1] for value in values]
    outputs = dtypes[slots:] or ("float32",) * len(values)
    return [stored_as(np.ascontiguousarray(value), dtype).reshape(-1)
            for value, dtype in zip(values, outputs, strict=True)]


# ----------------------------------------------------------------------------------------------------------- folds

def _block_of(spec: Spec, launch: Any, slot: int, batch: Ints) -> Ints:
    """The block of an operand that a batch reads: its own, or that of its head group."""
    return batch // launch.view_params[slot][0] if spec[2][slot][0] == rules.HEAD_GROUP else batch


class _FoldRun:
    """A fold (exprspec 3.6) over some rows: row scalars are (rows, 1), block elements (rows, width of the block).

    ``stop`` is the number of items of these rows (F7).
    """

    def __init__(self, spec: Spec, launch: Any, inputs: list[Any], grid: _Grid, views: dict[int, Floats],
                 scores: Floats | None, rows: Ints, stop: int) -> None:
        self.spec, self.launch, self.inputs, self.grid = spec, launch, inputs, grid
        self.num_state, _k, inits, self.body, self.finalize, _length, _matmul, self.vecacc, _tri_skip = spec[6]
        self.rows, self.stop_at = rows, stop
        self.views = {slot: view[rows] for slot, view in views.items()}
        self.scores = None if scores is None else scores[rows]
        self.registers: dict[int, Floats] = {
            i: np.full((len(rows), 1), arrays.floats_of([bits])[0]) for i, bits in enumerate(inits)}
        self.vector = np.full((len(rows), launch.out_cols), -0.0, np.float32)
        self.start = self.stop = 0

    def operand(self, operand: Spec, columns: Ints | None) -> Floats:
        """The value of an operand; finalize gives the numbers of the output columns, as one row."""
        kind, idx = operand
        block = slice(self.start, self.stop)
        grid = self.grid
        if kind in (rules.REG, rules.FANOUT, rules.REDUCE):
            return self.registers[idx]
        if kind == rules.INPUT:
            return self.views[idx][:, block]
        if kind == rules.MATMUL:
            assert self.scores is not None
            return self.scores[:, block]
        if kind == rules.COL:
            return (grid.c[:, block] if columns is None else columns).astype(np.float32)
        if kind == rules.ROW:
            return (grid.r[self.rows] % grid.rows_per_batch).astype(np.float32)
        if kind == rules.BATCH:
            return grid.batch[self.rows].astype(np.float32)
        if kind == rules.CONST:
            return arrays.floats_of([[self.launch.const_bits[idx]]])
        if kind == rules.RPARAM:
            return arrays.floats_of([[self.launch.rparam_bits[idx]]])
        assert kind == rules.VEC_STATE
        return self.vector

    def _apply(self, instr: Spec, columns: Ints | None = None) -> Floats:
        operands = [self.operand(operand, columns) for operand in rules.used_operands(instr)]
        if instr[0] in rules.REDUCES:
            rows, width = len(self.rows), self.stop - self.start
            values = np.ascontiguousarray(np.broadcast_to(operands[0], (rows, width)))
            if instr[0] == rules.ROW_SUM:
                return _reduce(True, False, values)
            return arrays.maximum_array(_reduce(False, False, values), np.full((rows, 1), LOWEST))
        shape = np.broadcast_shapes(*(operand.shape for operand in operands))
        return arrays.ARRAY_OPS[instr[0]](*(np.broadcast_to(operand, shape) for operand in operands))

    def _accumulate(self) -> None:
        """O[d] = O[d] * scale, then the block's weighted rows one after the other (F5)."""
        _vec_state, weight_reg, b_input, scale_reg, has_scale = self.vecacc
        add, mul = arrays.ARRAY_OPS[rules.ADD], arrays.ARRAY_OPS[rules.MUL]
        if has_scale:
            self.vector = mul(self.vector, np.broadcast_to(self.registers[scale_reg], self.vector.shape))
        width = self.stop - self.start
        weights = np.broadcast_to(self.registers[weight_reg], (len(self.rows), width))
        length, columns = self.launch.cols, self.launch.out_cols
        blocks = _block_of(self.spec, self.launch, b_input, self.grid.batch[self.rows, 0])
        for j in range(width):
            at = (blocks * length + self.start + j)[:, None]
            if self.spec[2][b_input][0] == rules.STRIDED:
                at = _strided_index(tuple(self.launch.view_params[b_input]), self.spec[2][b_input][2], at,
                                    np.arange(columns)[None, :])
            else:
                at = at * columns + np.arange(columns)
            row = self.inputs[b_input][at]
            self.vector = add(self.vector, mul(np.broadcast_to(weights[:, j:j + 1], row.shape), row))

    def run(self) -> None:
        """All blocks of these rows."""
        for first in range(0, self.stop_at, FOLD_BLOCK):
            self.start, self.stop = first, min(first + FOLD_BLOCK, self.stop_at)
            for instr in self.body:
                self.registers[instr[1]] = self._apply(instr)
            if self.vecacc is not None:
                self._accumulate()

    def finish(self) -> Floats:
        """Finalize, all output columns at once: each works on the states as the blocks left them (F6)."""
        shape = (len(self.rows), self.launch.out_cols)
        columns = np.arange(self.launch.out_cols)[None, :]
        for instr in self.finalize:
            self.registers[instr[1]] = self._apply(instr, columns)
        return np.broadcast_to(self.registers[self.finalize[-1][1]], shape)


def _fold_scores(spec: Spec, launch: Any, inputs: list[Any], grid: _Grid) -> Floats:
    """The fold's matmul on the grid (rows, length), by R8."""
    a_input, b_input, trans_a, trans_b = spec[6][6][:4]
    depth, m, length = launch.mm_k, grid.rows_per_batch, launch.cols
    products = []
    for batch in range(grid.rows // m):
        number = np.array([batch])
        sides = []
        for slot, size, swapped in ((a_input, m, trans_a), (b_input, length, not trans_b)):
            if spec[2][slot][0] == rules.STRIDED:
                shape = (m, depth) if not sides else (depth, length)
                grid_rows = batch * shape[0] + np.arange(shape[0], dtype=np.int64)[:, None]
                at = _strided_index(tuple(launch.view_params[slot]), spec[2][slot][2], grid_rows,
                                    np.arange(shape[1], dtype=np.int64)[None, :])
                sides.append(inputs[slot][at] if not sides else inputs[slot][at].T)
                continue
            block = int(_block_of(spec, launch, slot, number)[0])
            data = inputs[slot][block * size * depth:(block + 1) * size * depth]
            # Rows of m or length vectors of depth values, unless the operand is stored the other way round.
            sides.append(data.reshape(depth, size).T if swapped else data.reshape(size, depth))
        products.append(arrays.matmul(np.ascontiguousarray(sides[0]), np.ascontiguousarray(sides[1].T)))
    return np.concatenate(products)


def evaluate_fold(spec: Spec, launch: Any, inputs: list[Any]) -> list[Floats]:
    fold = spec[6]
    grid = _Grid(launch, fold[6] is not None)
    slots = {idx for instr in fold[3] for kind, idx in rules.used_operands(instr) if kind == rules.INPUT}
    views = {slot: read_view(spec, launch, inputs, slot, grid) for slot in slots}
    scores = _fold_scores(spec, launch, inputs, grid) if fold[6] is not None and grid.rows else None
    every = np.arange(grid.rows)
    stops = np.full(grid.rows, launch.cols)
    if fold[8]:
        stops = np.minimum(every % grid.rows_per_batch + 1, launch.cols)
    result = _FoldRun(spec, launch, inputs, grid, views, scores, every, launch.cols)
    for stop in np.unique(stops):
        # Rows with as many items as each other run together; finalize takes all rows again.
        rows = np.flatnonzero(stops == stop)
        part = _FoldRun(spec, launch, inputs, grid, views, scores, rows, int(stop))
        part.run()
        for state in range(part.num_state):
            result.registers[state][rows] = part.registers[state]
        result.vector[rows] = part.vector
    return [result.finish()]
