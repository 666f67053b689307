"""Launches of a given fold at other sizes, as tests.fitting makes them for other kernels.

Lengths, depths and numbers of columns are shape data: the fold of a launch says its own, and every kernel of the
structure must serve it.
"""

from __future__ import annotations

import random
from typing import Any

import numpy.typing as npt

from nnk.expr.spec import ExprSpec, Fold, ViewSpec
from tests import fold_strategies, folds, typed_programs
from tests.fitting import Grid, random_side, read_slot, strided, within
from tests.oracle import specrules as rules
from tests.strategies import Case

__all__ = ["fit_fold", "random_fold_spec"]

Random = random.Random
Words = tuple[int, ...]

#: The format's bounds of a fold.
MAX_COLUMNS = MAX_DEPTH = 1024


def random_fold_spec(rand: Random) -> ExprSpec:
    """Any fold that the engines run, at times one of attention."""
    if rand.randrange(6) == 0:
        return folds.attention(4, 2, 8, rand.choice(("plain", "causal", "causal_doc")), rand.randrange(2) == 1)
    return fold_strategies.random_fold_case(rand).spec


def _sizes(rand: Random, fold: Fold, budget: int) -> tuple[int, int, int, int, int]:
    """Rows of a batch, batches, length, depth of the matmul, columns of the vector state."""
    batch = rand.choice((1, 1, 2, 3, 5, 6, 8)) if fold.matmul is not None else 1
    depth = min(random_side(rand), MAX_DEPTH) if fold.matmul is not None else 0
    columns = min(max(random_side(rand), 1), MAX_COLUMNS) if fold.vecacc is not None else 1
    rows, length = max(random_side(rand), 1), max(random_side(rand), 1)
    steps = len(fold.body) + 1
    rows, length, depth = within(rand, [rows, length, depth], max(budget // batch, 1))
    rows, length, columns = within(rand, [rows, length, columns], max(budget // batch, 1))
    rows, length = within(rand, [rows, length], max(budget // (batch * steps), 1))
    return rows, batch, length, depth, columns


def _blocks(rand: Random, view: ViewSpec, batch: int, rows: int, columns: int) -> tuple[Words, int]:
    """An operand of one block a batch, or a head group's, or read by strides."""
    if view.kind == rules.STRIDED:
        return strided(rand, batch * rows, columns, view.param, rows)[:2]
    if view.kind == rules.HEAD_GROUP:
        ratio = rand.choice((1, 2, 3, 7))
        return (ratio,), -(-batch // ratio) * rows * columns
    return (), batch * rows * columns


def fit_fold(rand: Random, spec: ExprSpec, budget: int, dtypes: tuple[str, ...] = ()) -> Case:
    """The fold at other sizes, with random values that are dense in special ones; ``dtypes`` as in Case."""
    fold = spec.fold
    assert fold is not None
    rows, batch, length, depth, columns = _sizes(rand, fold, budget)
    sizes: dict[int, tuple[int, int]] = {}
    if fold.matmul is not None:
        sizes = {fold.matmul.a_input: (rows, depth), fold.matmul.b_input: (depth, length)}
        fold = fold._replace(matmul=fold.matmul._replace(k=depth, batch=batch))
    if fold.vecacc is not None:
        sizes[fold.vecacc.b_input] = (length, columns)
        fold = fold._replace(vec_state_len=columns)
    spec = spec._replace(fold=fold._replace(k=length))
    words: list[Words] = []
    inputs: list[npt.NDArray[Any]] = []
    for slot, view in enumerate(spec.views):
        if slot in sizes:
            slot_words, count = _blocks(rand, view, batch, *sizes[slot])
        elif view.kind == rules.STRIDED:
            slot_words, count = strided(rand, batch * rows, length, view.param, rows)[:2]
        else:
            need = read_slot(rand, view.kind, view.param, Grid(batch * rows, length, batch), 1)
            slot_words, count = need.words, need.count
        words.append(slot_words)
        inputs.append(typed_programs.random_values(rand, dtypes[slot] if dtypes else "float32", count))
    return Case(spec, fold_strategies.launch_of(spec, batch * rows, tuple(words)), inputs, dtypes)
