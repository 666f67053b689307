"""Random specs on a real device: the bits of the evaluator oracle, kernel by kernel."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from nnk import config
from nnk.expr.meta import group_count_of, kernel_meta_of, out_count_of, pack_words
from nnk.expr.spec import ExprSpec, Instr, Operand, ViewSpec
from nnk.generator.compile import compile_kernel
from nnk.numerics import VARIANTS
from nnk.vk import instance
from nnk.vk.device import Device
from tests import strategies
from tests.oracle import evaluate, specrules

#: Cases a form; a software device takes a good second for each.
CASES = 10


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    """An open device for all cases."""
    with Device(instance.select()) as opened:
        yield opened


def run(device: Device, case: strategies.Case) -> list[list[int]]:
    """Compile, dispatch and read back, without an engine."""
    meta = kernel_meta_of(case.spec)
    kernel = device.build_kernel(compile_kernel(case.spec, "case", 0, VARIANTS.get(config.get("tier"), "")), meta)
    inputs: list[Any] = []
    for array in case.inputs:
        inputs.append(device.allocate(array.nbytes, host_write=True))
        device.upload(inputs[-1], array)
    outputs = [device.allocate(4 * out_count_of(meta, case.launch)) for _ in range(meta.n_outputs)]
    device.dispatch(kernel, inputs, outputs, pack_words(meta, case.launch), group_count_of(meta, case.launch))
    return [np.frombuffer(device.download(output), np.uint32).tolist() for output in outputs]


def cases(form: str) -> Iterator[strategies.Case]:
    """The first cases of a form."""
    for seed in range(CASES):
        yield strategies.canonical_case(strategies.random_case(random.Random(seed), form))


@pytest.mark.parametrize("form", strategies.FORMS)
def test_random_specs_give_the_bits_of_the_oracle(device: Device, form: str) -> None:
    for case in cases(form):
        expected = [output.view(np.uint32).tolist()
                    for output in evaluate.evaluate(case.spec, case.launch, case.inputs)]
        assert run(device, case) == expected, case.spec


def case_of(instrs: tuple[Instr, ...], inputs: list[Any], rows: int, cols: int, vector_out: bool = False) -> Any:
    """A case over linear inputs, with -0.0 as its run-time parameter."""
    views = (ViewSpec(specrules.LINEAR),) * len(inputs)
    spec = ExprSpec(4, instrs, views, (), (0x80000000,))
    return strategies.Case(spec, strategies.launch_of(spec, rows, cols, ((),) * len(inputs), vector_out), inputs)


TINY = np.full(19 * 8, 1.5617169e-22, np.float32)
X, BATCH, PARAM = Operand(specrules.INPUT, 0), Operand(specrules.BATCH, 0), Operand(specrules.RPARAM, 0)
TOTAL, R0 = Operand(specrules.REDUCE, 1), Operand(specrules.REG, 0)
SPECIAL = np.array(strategies.SPECIAL_BITS, np.uint32).view(np.float32)
LT, GT, ISNAN = 13, 15, 77
KNOWN = {
    "sum of a zero that is known": case_of((Instr(specrules.ROW_SUM, 1, BATCH), Instr(specrules.ADD, 0, TOTAL, BATCH)),
                                           [], 3, 7),
    "negative zero and the batch": case_of((Instr(specrules.ADD, 0, PARAM, BATCH),), [], 3, 7),
    "product with lt(x, x)": case_of((Instr(LT, 0, X, X), Instr(specrules.MUL, 2, X, R0)), [SPECIAL], 1, len(SPECIAL)),
    "sum with gt(x, x)": case_of((Instr(GT, 0, X, X), Instr(specrules.ADD, 2, X, R0)), [SPECIAL], 1, len(SPECIAL)),
    "product with isnan of a comparison": case_of(
        (Instr(LT, 0, X, PARAM), Instr(ISNAN, 2, R0), Instr(specrules.MUL, 3, X, Operand(specrules.REG, 2))),
        [SPECIAL], 1, len(SPECIAL)),
    "sum with isnan of isnan": case_of(
        (Instr(ISNAN, 0, X), Instr(ISNAN, 2, R0), Instr(specrules.ADD, 3, X, Operand(specrules.REG, 2))),
        [SPECIAL], 1, len(SPECIAL)),
    "one value a row over a linear input": case_of(
        (Instr(specrules.ROW_SUM, 1, X), Instr(specrules.SUB, 0, X, TOTAL)),
        [np.arange(35, dtype=np.float32)], 5, 7, vector_out=True),
    # The product of the column's maximum is 17 * 2**-149: read as bits by the second maximum, as a float by the sum.
    "negated subnormal product": case_of(
        (Instr(specrules.COL_MAX, 1, X), Instr(specrules.MUL, 0, TOTAL, TOTAL), Instr(specrules.NEG, 2, R0),
         Instr(specrules.COL_MAX, 3, Operand(specrules.REG, 2)),
         Instr(specrules.ADD, 0, Operand(specrules.REDUCE, 3), Operand(specrules.REG, 2))), [TINY], 19, 8),
}


@pytest.mark.parametrize("case", KNOWN.values(), ids=KNOWN)
def test_known_traps(device: Device, case: strategies.Case) -> None:
    expected = [output.view(np.uint32).tolist() for output in evaluate.evaluate(case.spec, case.launch, case.inputs)]
    assert run(device, case) == expected
