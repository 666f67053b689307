"""Random specs on a real device: the bits of the evaluator oracle, kernel by kernel."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from nnk.expr.meta import group_count_of, kernel_meta_of, pack_words
from nnk.generator.compile import compile_kernel
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
    kernel = device.build_kernel(compile_kernel(case.spec, "case"), meta)
    inputs: list[Any] = []
    for array in case.inputs:
        inputs.append(device.allocate(array.nbytes, host_write=True))
        device.upload(inputs[-1], array)
    outputs = [device.allocate(4 * case.launch.out_count) for _ in range(meta.n_outputs)]
    device.dispatch(kernel, inputs, outputs, pack_words(meta, case.launch), group_count_of(meta, case.launch))
    return [np.frombuffer(device.download(output), np.uint32).tolist() for output in outputs]


def cases(form: str) -> Iterator[strategies.Case]:
    """The first cases of a form that have no view without emitted code."""
    seed = found = 0
    while found < CASES:
        case = strategies.canonical_case(strategies.random_case(random.Random(seed), form))
        seed += 1
        if all(view.kind != specrules.ROW_GATHER for view in case.spec.views):
            found += 1
            yield case


@pytest.mark.parametrize("form", strategies.FORMS)
def test_random_specs_give_the_bits_of_the_oracle(device: Device, form: str) -> None:
    for case in cases(form):
        expected = [output.view(np.uint32).tolist()
                    for output in evaluate.evaluate(case.spec, case.launch, case.inputs)]
        assert run(device, case) == expected, case.spec
