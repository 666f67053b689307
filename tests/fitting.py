"""Launches of a given spec at other sizes: grids from empty to 3000 a side, and inputs that fit.

``tests.strategies`` makes a spec together with one small launch. Here a spec stays and its run-time side varies, as
with one kernel that serves many shapes: one compilation, several launches.
"""

from __future__ import annotations

import dataclasses
import random
from typing import Any, NamedTuple

import numpy.typing as npt

from nnk import ops
from nnk.expr.meta import reduce_axis_of
from nnk.expr.spec import ExprSpec
from tests import strategies, typed_programs
from tests.oracle import specrules as rules
from tests.strategies import Case

__all__ = ["MAX_SIDE", "Grid", "fit", "random_grid", "random_side", "read_slot", "strided",
           "within"]

Random = random.Random
Words = tuple[int, ...]

#: Longest side of a grid.
MAX_SIDE = 3000

#: Sides around which kernels change their path: vectors, rows of threads, blocks, lanes.
SIDES = (0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 513, 1000,
         1023, 1024, 1025, 2047, 2999, 3000)


class Grid(NamedTuple):
    """Sizes of a launch: the grid of all batches, and the inner size of a matmul."""

    rows: int
    cols: int
    batch: int = 1
    k: int = 0
    trans: int = 0


def random_side(rand: Random) -> int:
    """A side: small, at an edge, or anything."""
    choice = rand.randrange(8)
    if choice < 4:
        return rand.randrange(1, 40)
    return rand.choice(SIDES) if choice < 7 else int(MAX_SIDE ** rand.random())


def within(rand: Random, sides: list[int], budget: int) -> list[int]:
    """The sides, cut in random order until their product fits the budget."""
    order = list(range(len(sides)))
    rand.shuffle(order)
    for which in order:
        others = 1
        for index, side in enumerate(sides):
            if index != which:
                others *= max(side, 1)
        sides[which] = min(sides[which], max(budget // others, 1))
    return sides


def random_grid(rand: Random, spec: ExprSpec, budget: int) -> Grid:
    """Sizes whose work (elements times instructions, products of a matmul) is about the budget at most."""
    steps = len(spec.instrs) + 1
    if spec.matmul is None:
        rows, cols = within(rand, [random_side(rand), random_side(rand)], max(budget // steps, 1))
        axis = reduce_axis_of(spec)
        if rand.randrange(16) == 0 and axis >= 0:
            # Chunks of a line, and lines of chunks.
            lines, length = rand.randrange(1, 3), min(rand.choice((16383, 16384, 16385, 33000)), budget)
            rows, cols = (lines, length) if axis == 0 else (length, lines)
        return Grid(rows, cols)
    batch = rand.choice((1, 1, 1, 2, 3, 7))
    rows, cols, k = within(rand, [random_side(rand), random_side(rand), random_side(rand)], max(budget // batch, 1))
    if reduce_axis_of(spec) >= 0:
        # A GPU computes each value of a reduced product in one loop, and again in every pass over the line.
        k = min(k, 40)
    rows, cols = within(rand, [rows, cols], max(budget // (steps * batch), 1))
    return Grid(batch * rows, cols, batch, k, rand.randrange(4))


class _Slot(NamedTuple):
    """What a slot needs: its run-time words, its number of elements, the bound of its indices (0: it has none)."""

    words: Words
    count: int
    below: int = 0
    kind: int = 0


def strided(rand: Random, rows: int, cols: int, rank: int, last: int = 0) -> _Slot:
    """A strided slot; ``last`` is the innermost row dimension of a matmul's right operand."""
    if not rows or not cols:
        rows, cols, last = max(rows, 1), max(cols, 1), 0
    words, count = strategies.strided_words(rand, rows, cols, rank, last)
    return _Slot(words, count)


def read_slot(rand: Random, kind: int, param: int, grid: Grid, table: int) -> _Slot:
    """A slot that the program reads through a view (exprspec 3.4); ``table`` is the height of gathered tables."""
    rows, cols = grid.rows, grid.cols
    count = rand.choice((1, 2, 3, 5, 8, 64))
    if kind == rules.STRIDED:
        return strided(rand, rows, cols, param)
    if kind in (rules.TAKE, rules.ROW_GATHER):
        return _Slot((), table * cols)
    if kind == rules.ROTATE_HALF:
        return _Slot((2 * count,), -(-rows // (2 * count)) * 2 * count * cols)
    if kind == rules.ROW_MOD:
        return _Slot((count,), count * cols)
    if kind == rules.BATCH_MOD:
        return _Slot((count,), count)
    if kind == rules.BATCH_COL:
        return _Slot((cols + count,), grid.batch * (cols + count))
    if kind == rules.ROW_ACCESS:
        offset = rand.randrange(4)
        return _Slot((count, offset), (count + offset) * cols)
    if kind in rules.GROUPED_VIEWS:
        return _Slot((count,), rows * count * cols)
    if kind == rules.ROW_BROADCAST:
        return _Slot((), rows)
    if kind == rules.COL_BROADCAST:
        return _Slot((), cols)
    if kind == rules.HEAD_GROUP:
        return _Slot((rand.choice((1, 2, 3, 5)),), rows * cols)
    assert not ops.view_param_words(kind, param)
    return _Slot((), rows * cols)


def _operand_counts(spec: ExprSpec, grid: Grid) -> dict[int, int]:
    """The elements that the matmul reads of its linear operands, by slot."""
    if spec.matmul is None:
        return {}
    a, b = grid.rows * grid.k, grid.batch * grid.k * grid.cols
    counts = {spec.matmul.a_input: a}
    counts[spec.matmul.b_input] = max(counts.get(spec.matmul.b_input, 0), b)
    return counts


def _strided_operand(rand: Random, spec: ExprSpec, slot: int, grid: Grid) -> _Slot:
    assert spec.matmul is not None
    rank = spec.views[slot].param
    if slot == spec.matmul.a_input:
        return strided(rand, grid.rows, grid.k, rank)
    return strided(rand, grid.batch * grid.k, grid.cols, rank, grid.k)


def _index_tables(rand: Random, spec: ExprSpec, grid: Grid) -> dict[int, _Slot]:
    """The index slots: their length, and the height of the tables that they index."""
    tables: dict[int, _Slot] = {}
    for view in spec.views:
        if view.kind in (rules.TAKE, rules.ROW_GATHER):
            old = tables.get(view.param, _Slot((), 0, rand.randrange(1, 9)))
            count = grid.rows if view.kind == rules.TAKE else grid.cols
            tables[view.param] = old._replace(count=max(old.count, count), kind=view.kind)
    return tables


def fit(rand: Random, spec: ExprSpec, grid: Grid, vector_out: bool, dtypes: tuple[str, ...] = ()) -> Case:
    """The spec on a grid, with random values that are dense in special ones; ``dtypes`` as in :class:`Case`."""
    tables = _index_tables(rand, spec, grid)
    operands = _operand_counts(spec, grid)
    words: list[Words] = []
    inputs: list[npt.NDArray[Any]] = []
    for slot, view in enumerate(spec.views):
        if slot in tables:
            words.append(())
            make = strategies.random_indices if tables[slot].kind == rules.TAKE else strategies.random_labels
            inputs.append(make(rand, tables[slot].count, tables[slot].below))
            continue
        if slot in operands and view.kind == rules.STRIDED:
            need = _strided_operand(rand, spec, slot, grid)
        else:
            need = read_slot(rand, view.kind, view.param, grid, tables[view.param].below if view.kind in (
                rules.TAKE, rules.ROW_GATHER) else 1)
        words.append(need.words)
        inputs.append(typed_programs.random_values(rand, dtypes[slot] if dtypes else "float32",
                                                   max(need.count, operands.get(slot, 0))))
    launch = strategies.launch_of(spec, grid.rows, grid.cols, tuple(words), vector_out)
    if spec.matmul is not None:
        launch = dataclasses.replace(launch, mm_k=grid.k, mm_batch=grid.batch, mm_trans=grid.trans)
    return Case(spec, launch, inputs, dtypes)
