"""Launches of given specs cut into pieces on the CPU engine, and the same launches uncut.

A case (tests.strategies.Case) becomes a lowered kernel over stored tensors, as if the public functions had made it.
"""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import numpy as np
import numpy.typing as npt

from nnk.engines.base import Engine
from nnk.engines.limits import Limits
from nnk.engines.pieces import pieces_of, run_pieces, with_own_operands
from nnk.engines.schedule import Step
from nnk.expr.key import kernel_identity
from nnk.expr.lower import LoweredKernel
from nnk.expr.meta import Launch, group_count_of, kernel_meta_of, out_count_of, pack_words, reduce_axis_of
from nnk.expr.node import leaf
from nnk.expr.spec import ExprSpec
from tests import fitting, fold_fitting, fold_strategies, strategies
from tests.oracle import specrules as rules
from tests.strategies import Case

__all__ = ["lowered_of", "random_cut_case", "random_limits", "run_cut", "run_whole"]

Random = random.Random
Bits = npt.NDArray[np.uint32]

#: Work of a case: elements times instructions, about.
BUDGET = 20_000


def random_cut_case(rand: Random, form: str) -> Case:
    """A case of a form, canonical, small or with an odd side."""
    if form == "fold":
        if rand.randrange(2):
            return fold_strategies.random_fold_case(rand)
        return fold_fitting.fit_fold(rand, fold_fitting.random_fold_spec(rand), BUDGET)
    case = strategies.random_case(rand, form)
    if rand.randrange(2):
        grid = fitting.random_grid(rand, case.spec, BUDGET)
        vector_out = grid.rows * grid.cols > 0 and reduce_axis_of(strategies.canonical_case(case).spec) >= 0
        case = fitting.fit(rand, case.spec, grid, vector_out and rand.randrange(2) == 0)
    return strategies.canonical_case(case)


def random_limits(rand: Random, case: Case) -> Limits:
    """Limits that a launch of the case passes, or just fits."""
    count = out_count_of(kernel_meta_of(case.spec), case.launch)
    largest = max((4 * count, *(array.nbytes for array in case.inputs)))
    alignment = rand.choice((4, 4, 16, 64))
    nbytes = max(largest // rand.choice((1, 2, 3, 5, 9, 20, 60)), 64) // alignment * alignment
    return Limits("small", nbytes, alignment, rand.choice((10**9, 10**9, max(count // 3, 1))))


def _signed(spec: ExprSpec, launch: Launch) -> Launch:
    """The launch with offsets and strides as they are before they become words."""
    def sign(word: int) -> int:
        return word - 2**32 if word >= 2**31 else word

    params = []
    for view, words in zip(spec.views, launch.view_params, strict=True):
        rank = view.param if view.kind == rules.STRIDED else len(words)
        params.append(tuple(sign(word) if index >= rank else word for index, word in enumerate(words)))
    return dataclasses.replace(launch, view_params=tuple(params))


def lowered_of(engine: Engine, case: Case) -> LoweredKernel:
    """The kernel of a case, whose inputs lie in buffers of ``engine``."""
    inputs = tuple(leaf(engine, engine.upload(array), array.shape, array.dtype) for array in case.inputs)
    launch = _signed(case.spec, case.launch)
    count = out_count_of(kernel_meta_of(case.spec), launch)
    return LoweredKernel(leaf(engine, None, (count,)), case.spec, launch, inputs)


def _step_of(lowered: LoweredKernel) -> Step:
    spec, launch, meta = lowered.spec, lowered.launch, kernel_meta_of(lowered.spec)
    return Step("", kernel_identity(spec, 0, 0), spec, meta, launch, pack_words(meta, launch),
                group_count_of(meta, launch), (), 0, 4 * out_count_of(meta, launch), ())


def _read(engine: Engine, step: Step, outputs: list[Any]) -> list[Bits]:
    found = [np.empty(step.out_bytes // 4, np.uint32) for _ in outputs]
    for storage, bits in zip(outputs, found, strict=True):
        engine.download(storage, bits)
    return found


def run_whole(engine: Engine, case: Case) -> list[Bits]:
    """The outputs of a case as bits, in one launch."""
    lowered = lowered_of(engine, case)
    step = _step_of(lowered)
    outputs = [engine.allocate(step.out_bytes) for _ in range(step.meta.n_outputs)]
    engine.run(step, [node.storage for node in lowered.inputs], *outputs)
    return _read(engine, step, outputs)


def run_cut(engine: Engine, case: Case) -> tuple[list[Bits], int]:
    """The outputs of a case as bits, in pieces that fit the limits of ``engine``, and the number of pieces.

    Raises
    ------
    LimitError
        If something that cannot be cut passes a limit.
    """
    lowered = with_own_operands(lowered_of(engine, case))
    step = _step_of(lowered)
    step = dataclasses.replace(step, words=b"", pieces=pieces_of(lowered, step.meta, engine.limits))
    sizes = [node.nbytes for node in (*lowered.inputs, lowered.root)]
    for piece in step.pieces:
        for window, size in zip((*piece.inputs, piece.output), sizes, strict=True):
            assert window.nbytes <= engine.limits.buffer_bytes
            assert window.start + (window.rows - 1) * window.step + window.row_bytes <= size
    outputs = [engine.allocate(step.out_bytes) for _ in range(step.meta.n_outputs)]
    run_pieces(engine, step, [node.storage for node in lowered.inputs], outputs)
    return _read(engine, step, outputs), len(step.pieces)
