"""Every op has its row in the contract, its line in the documentation, its oracle, its strategy, its code."""

import re

import pytest

from nnk import numerics, ops
from tests import ROOT, integers, strategies
from tests.oracle import arith, arrays

ELEMENTWISE = [op for op in ops.OPS if op.kind != "reduce"]
REDUCES = [op for op in ops.OPS if op.kind == "reduce"]


def test_codes_and_names_are_unique():
    assert len({op.code for op in ops.OPS}) == len(ops.OPS) == len({op.name for op in ops.OPS})
    assert list(ops.OPS) == sorted(ops.OPS, key=lambda op: op.code)


def test_contract_has_exactly_the_elementwise_ops():
    assert set(numerics.FUNCTIONS) == {op.name for op in ELEMENTWISE}


@pytest.mark.parametrize("op", ELEMENTWISE, ids=lambda op: op.name)
def test_contract_expression_uses_the_operands_of_the_op(op):
    used = set(re.findall(r"\{(\w)\}", numerics.FUNCTIONS[op.name]))
    assert used == set("abc"[:op.arity])


@pytest.mark.parametrize("op", ELEMENTWISE, ids=lambda op: op.name)
def test_contract_functions_are_in_the_header(op):
    header = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "nnk/include").glob("nnk_math*.h"))
    for function in re.findall(r"\bnn_\w+", numerics.FUNCTIONS[op.name]):
        assert re.search(rf"\b{function}\(", header), function


@pytest.mark.parametrize("op", ops.OPS, ids=lambda op: op.name)
def test_documentation_has_a_line(op):
    text = (ROOT / "docs/numerics.md").read_text(encoding="utf-8")
    assert re.search(rf"^\| `{op.name}` \| {op.code} \|", text, re.MULTILINE)


@pytest.mark.parametrize("op", ELEMENTWISE, ids=lambda op: op.name)
def test_oracle_has_a_function(op):
    assert op.code in arrays.ARRAY_OPS


@pytest.mark.parametrize("op", [op for op in REDUCES if op.axis == 0], ids=lambda op: op.name)
def test_oracle_has_the_reduction(op):
    assert callable(getattr(arrays, op.name))


def test_correctly_rounded_oracle_has_no_unknown_op():
    assert set(arith.EXACT) <= {op.code for op in ELEMENTWISE}


@pytest.mark.parametrize("op", ELEMENTWISE, ids=lambda op: op.name)
def test_strategies_generate_the_op(op):
    assert (op in strategies.OPS) != (op in integers.OPS)


@pytest.mark.parametrize("op", ELEMENTWISE, ids=lambda op: op.name)
def test_compiled_engine_has_the_op(op):
    header = (ROOT / "build/generated/nnk_ops.h").read_text(encoding="utf-8")
    assert f"#define NNK_OP_{op.name.upper()} {op.code}\n" in header
    assert re.search(rf"X\({op.code}, {op.name}, ", header)
