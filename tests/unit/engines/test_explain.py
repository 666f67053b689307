"""Explanations: what would run, as text and as data, without running it."""

import json
import re

import numpy as np
import pytest

import nnk
from nnk.engines.explain import spec_text
from nnk.errors import ExprError
from nnk.expr.spec import ExprSpec, Instr, Matmul, Operand, ViewSpec


@pytest.fixture
def x(cpu):
    return cpu.array(np.ones((4, 8), np.float32))


def test_nothing_is_run(x):
    y = nnk.softmax(x)
    before = x.engine.dispatch_count
    nnk.explain(y)
    assert not y.is_evaluated
    assert x.engine.dispatch_count == before


def test_kernels_are_counted_once(x):
    y = ((x @ x.T) @ x) * 2.0
    found = nnk.explain(y + 1.0)
    assert found.dispatch_count == 2
    z = x
    for _ in range(3):
        z = z @ x.T @ x
    found = nnk.explain(z)
    # The first product reads one tensor twice: one input slot.
    assert (found.dispatch_count, [kernel.runs for kernel in found.kernels]) == (6, [1, 5])
    assert found.engine == "cpu (CPU)"


def test_a_kernel_explains_itself(x):
    (kernel,) = nnk.explain(nnk.tanh(x * 2.0 + 1.0)).kernels
    assert kernel.key.startswith("v")
    assert (kernel.form, kernel.rows, kernel.cols, kernel.runs, kernel.cached) == ("elementwise", 4, 8, 1, "none")
    assert kernel.spec.splitlines() == ["in0: linear", "c0 = 2.0", "c1 = 1.0", "r0 = mul(in0, c0)", "r1 = add(r0, c1)",
                                        "r0 = tanh(r1)"]
    assert "void main()" in kernel.glsl
    assert kernel.meta["n_inputs"] == 1


def test_text_has_every_part(x):
    text = str(nnk.explain(nnk.rms_norm(x)))
    assert re.match(r"plan [0-9a-f]{16}: 1 dispatches of 1 kernels on cpu \(CPU\)", text)
    for part in ("  reduce  4 x 8  x1  cache: none", "in0: linear", "row_sum(", "div(reduce r", "p0 = 8.0",
                 "meta: form=reduce", "#version 450"):
        assert part in text


def test_explanation_is_plain_data(x):
    data = nnk.explain(x + 1.0).as_dict()
    assert json.loads(json.dumps(data))["kernels"][0]["form"] == "elementwise"


def test_several_tensors_and_lists(x):
    shared = nnk.exp(x)
    found = nnk.explain(shared + 1.0, [shared * 2.0])
    assert found.dispatch_count == 1
    assert found.kernels[0].spec.splitlines()[-1] == "outputs r2, r1"
    assert nnk.explain(x).dispatch_count == 0
    assert nnk.explain((x + 1.0).eval()).kernels == ()


def test_a_tensor_without_an_engine(x):
    with pytest.raises(ExprError, match="Expected a tensor of an engine to explain"):
        nnk.explain(nnk.exp(1.0))
    with pytest.raises(ExprError, match="to explain, got none"):
        nnk.explain()


def test_cache_hit_and_miss(vulkan):
    x = vulkan.array(np.ones((3, 5), np.float32))
    y = nnk.sigmoid(nnk.sigmoid(nnk.erf(x * 3.0 - x)))
    assert [kernel.cached for kernel in nnk.explain(y).kernels] == ["miss"]
    nnk.sigmoid(nnk.sigmoid(nnk.erf(x * 4.0 - x))).eval()
    assert [kernel.cached for kernel in nnk.explain(y).kernels] == ["hit"]


def test_text_of_a_spec_with_every_operand():
    spec = ExprSpec(2, (Instr(7, 0, Operand(5, 0), Operand(8, 0)), Instr(7, 1, Operand(0, 0), Operand(9, 0))),
                    (ViewSpec(0), ViewSpec(2, 0, 5)), (), (0x3F000000,), Matmul(0, 1))
    assert spec_text(spec).splitlines() == ["in0: linear", "in1: row_mod(5)", "p0 = 0.5", "matmul = in0 @ in1",
                                            "r0 = add(matmul, batch)", "r1 = add(r0, p0)"]
