"""Bodies of folds in single assignment form."""

import pytest

from nnk import ops
from nnk.errors import ExprError
from nnk.expr.spec import Instr, Operand, VecAcc
from nnk.generator.fold_values import FoldValues
from tests import folds

OP = {op.name: op.code for op in ops.OPS}
KIND = {kind.name: kind.code for kind in ops.OPERANDS}
ATTENTION = folds.attention(4, 2, 6, "causal", True)


def arg(kind, idx=0):
    return Operand(KIND[kind], idx)


def values_of(*body, spec=ATTENTION, **changes):
    if body:
        changes["body"] = tuple(Instr(OP[op], dst, *operands) for op, dst, *operands in body)
    fold = spec.fold._replace(**changes)
    return FoldValues(spec._replace(fold=fold), fold)


def test_levels_and_classes_of_attention():
    """Scores, then what the maximum gives, then what the sum gives."""
    values = values_of()
    assert values.levels == 3
    assert len(values.live) == len(ATTENTION.fold.body)
    names = [[ops.OP_BY_CODE[values.values[n].instr.op].name for n in values.at(level, False)] for level in range(3)]
    assert names == [["add"], ["max", "sub", "exp", "mul"], ["add"]]
    assert [ops.OP_BY_CODE[values.values[n].instr.op].name
            for level in range(3) for n in values.at(level, False, True)] == ["row_max", "row_sum"]
    assert [len(values.at(level, True)) for level in range(3)] == [7, 2, 0]


def test_registers_are_read_as_they_were_written_last():
    values = values_of(("neg", 5, arg("matmul")), ("neg", 5, arg("reg", 5)), ("row_sum", 6, arg("reg", 5)),
                       ("add", 0, arg("reg", 0), arg("reduce", 6)), ("add", 0, arg("reg", 0), arg("reg", 1)),
                       vecacc=None, vec_state_len=0)
    assert [value.instr.a.idx for value in values.values] == [0, 0, 1, -1, 3]
    assert values.values[4].instr.b.idx == -2
    assert values.now[0] == 4
    assert values.now[1] == -2
    assert values.results() == [4, -2]


def test_what_nothing_reads_is_left_out():
    values = values_of(("exp", 5, arg("matmul")), ("row_max", 6, arg("matmul")), ("neg", 0, arg("reduce", 6)),
                       vecacc=None, vec_state_len=0)
    assert values.live == [1, 2]
    assert values.levels == 2


def test_a_register_of_elements_may_become_one_of_a_row():
    values = values_of(("exp", 5, arg("matmul")), ("neg", 5, arg("reg", 1)), ("neg", 0, arg("reg", 5)),
                       vecacc=None, vec_state_len=0)
    assert [value.is_element for value in values.values] == [True, False, False]


@pytest.mark.parametrize(("changes", "text"), [
    ({"vecacc": VecAcc(0, 18, 2, 9, 1)}, "weight register 18 of the fold is never written"),
    ({"vecacc": VecAcc(0, 2, 2, 2, 1)}, "scale register 2 of the fold holds no value of a row"),
    ({"vecacc": VecAcc(0, 2, 2, 18, 1)}, "scale register 18 of the fold holds no value of a row")])
def test_what_the_rules_leave_open_is_refused(changes, text):
    with pytest.raises(ExprError, match=text):
        values_of(**changes)


def test_a_state_of_elements_is_refused():
    with pytest.raises(ExprError, match="State 0 of the fold is overwritten for every element"):
        values_of(("add", 0, arg("matmul"), arg("const")))
