"""The CPU engine's core against the oracle and the golden files: the same bits, whatever the threads."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnk import ops
from nnk._fast import cpu
from nnk.expr.meta import Launch, kernel_meta_of, out_count_of, pack_words
from nnk.expr.spec import ExprSpec, Instr, Matmul, Operand, ViewSpec
from tests import ROOT, strategies
from tests.oracle import evaluate, specrules

#: A float that no result leaves in place: an output that was not written shows.
UNWRITTEN = np.float32(-7.25)


def run(spec: ExprSpec, launch: Launch, inputs: list[Any], threads: int) -> list[list[int]]:
    meta = kernel_meta_of(spec)
    outputs = [np.full(out_count_of(meta, launch), UNWRITTEN) for _ in range(meta.n_outputs)]
    cpu.Program(spec, meta).run(pack_words(meta, launch), inputs, outputs, threads)
    return [output.view(np.uint32).tolist() for output in outputs]


@pytest.mark.parametrize("form", strategies.FORMS)
@given(data=st.data(), threads=st.integers(1, 3))
def test_random_specs_give_the_bits_of_the_oracle(form, data, threads):
    case = strategies.canonical_case(data.draw(strategies.runnable_cases(form)))
    expected = [output.view(np.uint32).tolist()
                for output in evaluate.evaluate(case.spec, case.launch, case.inputs)]
    assert run(case.spec, case.launch, case.inputs, threads) == expected


def golden(name: str) -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = json.loads(
        (ROOT / f"tests/golden/numerics/{name}.json").read_text(encoding="utf-8"))["cases"]
    return cases


def floats(words: list[str]) -> Any:
    return np.array([int(word, 16) for word in words], np.uint32).view(np.float32)


def words(values: list[int]) -> list[str]:
    return [f"{value:08x}" for value in values]


@pytest.mark.parametrize("op", [op for op in ops.OPS if op.kind != "reduce"], ids=lambda op: op.name)
def test_golden_elementwise(op):
    cases = golden(op.name)
    operands = [Operand(specrules.INPUT, slot) for slot in range(op.arity)]
    spec = ExprSpec(1, (Instr(op.code, 0, *operands),), (ViewSpec(specrules.LINEAR),) * op.arity)
    inputs = [floats(list(column)) for column in zip(*(case["in"] for case in cases), strict=True)]
    found = run(spec, Launch(1, len(cases), ((),) * op.arity), inputs, 1)[0]
    assert words(found) == [case["out"][0] for case in cases]


@pytest.mark.parametrize("op", [op for op in ops.OPS if op.axis == 0], ids=lambda op: op.name)
def test_golden_row_reductions(op):
    spec = ExprSpec(1, (Instr(op.code, 0, Operand(specrules.INPUT, 0)),), (ViewSpec(specrules.LINEAR),))
    for case in golden(op.name):
        row = np.resize(floats(case["in"]), case["length"])
        found = run(spec, Launch(1, case["length"], ((),), vector_out=True), [row], 2)[0]
        assert words(found) == case["out"], case


def test_golden_matmul():
    spec = ExprSpec(0, (), (ViewSpec(specrules.LINEAR),) * 2, matmul=Matmul(0, 1))
    for case in golden("matmul"):
        m, k, n = case["shape"]
        found = run(spec, Launch(m, n, ((), ()), mm_k=k), [floats(case["a"]), floats(case["b"])], 2)[0]
        assert words(found) == case["out"], case["shape"]
