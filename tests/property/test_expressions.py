"""Random tensor expressions on the CPU engine: NumPy's shapes, and the contract's bits node by node.

tests/gpu/test_parity.py runs the same programs on Vulkan.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings

import nnk
from tests.expression_strategies import CALLS, Call, Program, check, programs, random_program
from tests.oracle import tensors as oracle

SEEDS = 400


def run_on_cpu(program: Program) -> None:
    with np.errstate(all="ignore"):
        check(program, nnk.engine("cpu"))


@given(programs())
@settings(max_examples=settings.default.max_examples * 3)
def test_programs_give_the_bits_of_the_contract(program: Program) -> None:
    run_on_cpu(program)


@given(programs(max_calls=60))
@settings(max_examples=settings.default.max_examples // 4)
def test_long_programs_give_the_bits_of_the_contract(program: Program) -> None:
    run_on_cpu(program)


@given(programs())
def test_order_of_evaluation_changes_no_bit(program: Program) -> None:
    """One value after the other, each a leaf for the next, gives what one evaluation of fused kernels gives."""
    engine = nnk.engine("cpu")
    together = program.run(engine)
    step_by_step = program.tensors(engine)
    for tensor in step_by_step:
        tensor.eval()
    for number, values in zip(program.outputs, together, strict=True):
        assert np.array_equal(oracle.bits_of(values), oracle.bits_of(step_by_step[number].numpy()))


@given(programs())
@settings(max_examples=settings.default.max_examples // 2)
def test_threads_change_no_bit(program: Program) -> None:
    from nnk.engines.cpu import CpuEngine
    results = [[nnk.digest(values) for values in program.run(engine)]
               for engine in (CpuEngine(threads=1), CpuEngine(threads=3))]
    assert results[0] == results[1]


def test_the_strategy_reaches_every_call_and_shape() -> None:
    """A strategy that stopped drawing something would make the tests above pass without it."""
    calls: set[str] = set()
    ranks: set[int] = set()
    empty = steps = 0
    for seed in range(SEEDS):
        with np.errstate(all="ignore"):
            program = random_program(random.Random(seed))
            values = program.expected()
        calls |= {step.name for step in program.steps if isinstance(step, Call)}
        ranks |= {value.ndim for value in values}
        empty += any(value.size == 0 for value in values)
        steps += len(program.steps)
    assert calls == set(CALLS)
    assert ranks >= set(range(8))
    assert empty > SEEDS // 50
    assert steps > 5 * SEEDS


class OneBitOff:
    """The CPU engine with the last bit of every input flipped."""

    def array(self, data: np.ndarray) -> nnk.Tensor:
        return nnk.array((data.view(np.uint32) ^ np.uint32(1)).view(np.float32), engine="cpu")

    def evaluate(self, tensors: list[nnk.Tensor]) -> None:
        nnk.engine("cpu").evaluate(tensors)


def test_a_wrong_bit_is_found() -> None:
    program = Program()
    program.steps = [np.ones((2, 3), np.float32), Call("neg", (0,))]
    program.outputs = [1]
    check(program, nnk.engine("cpu"))
    with pytest.raises(AssertionError, match=r"v1 on .*6 of 6 differ, first at 0: 0xbf800001, expected 0xbf800000"):
        check(program, OneBitOff())
