"""Every validation rule of the format has a spec that breaks exactly it, and the oracle agrees."""

from __future__ import annotations

import re

import pytest

from nnk.errors import ExprError
from nnk.expr.spec import ExprSpec, Fold, Instr, Matmul, Operand, VecAcc, ViewSpec
from nnk.expr.spec_rules import operands_of, validate
from tests.oracle import specrules

R0, R1, R2 = (Operand(specrules.REG, i) for i in range(3))
IN0, IN1, IN2 = (Operand(specrules.INPUT, i) for i in range(3))
C0, C1 = (Operand(specrules.CONST, i) for i in range(2))
P0 = Operand(specrules.RPARAM, 0)
RED1, RED2 = Operand(specrules.REDUCE, 1), Operand(specrules.REDUCE, 2)
MM, ROW, COL, BATCH, VEC = (Operand(kind, 0) for kind in (specrules.MATMUL, specrules.ROW, specrules.COL,
                                                          specrules.BATCH, specrules.VEC_STATE))
NEG, ADD, MAX, SELECT = specrules.NEG, specrules.ADD, specrules.MAX, specrules.SELECT
ROW_SUM, ROW_MAX, COL_SUM = specrules.ROW_SUM, specrules.ROW_MAX, specrules.COL_SUM
LINEAR = ViewSpec(0)

PLAIN = ExprSpec(3, (Instr(ADD, 0, IN0, C0), Instr(NEG, 1, R0)), (LINEAR, LINEAR), (0,), (0,))
WITH_MATMUL = PLAIN._replace(instrs=(Instr(ADD, 0, MM, C0),), matmul=Matmul(0, 1))

#: A running maximum; and the vector accumulation of an attention-like fold.
ROWMAX = Fold(1, 9, (0xFF800000,), (Instr(ROW_MAX, 1, IN0), Instr(MAX, 0, R0, RED1)), (Instr(ADD, 0, R0, C0),))
ATTENTION = Fold(1, 9, (0xFF800000,), (Instr(ADD, 1, MM, C0), Instr(ROW_MAX, 2, R1), Instr(MAX, 0, R0, RED2)),
                 (Instr(ADD, 3, VEC, R0),), 4, Matmul(0, 1, 1, 0, 5, 2), VecAcc(0, 1, 2, 0, 1), 1)


def with_fold(fold, **parts):
    return ExprSpec(4, (), (LINEAR,) * 3, (0,), (0,), None, fold)._replace(**parts)


def rowmax(**parts):
    return with_fold(ROWMAX._replace(**parts))


def attention(**parts):
    return with_fold(ATTENTION._replace(**parts))


VALID = {
    "plain": PLAIN,
    "matmul": WITH_MATMUL,
    "matmul alone": WITH_MATMUL._replace(instrs=(), num_regs=0),
    "fold": rowmax(),
    "fold with everything": attention(),
    "fold over strides": with_fold(ATTENTION._replace(matmul=Matmul(0, 1, 0, 0, 5, 2)),
                                   views=(ViewSpec(64, 0, 3),) * 3),
    "strided body": with_fold(ROWMAX, views=(ViewSpec(64, 0, 7), LINEAR, LINEAR)),
    "extras": PLAIN._replace(extras=(0, 1)),
    "reduce": PLAIN._replace(instrs=(Instr(ROW_SUM, 1, IN0), Instr(ADD, 0, RED1, IN0))),
    "body reads a batch": attention(body=(Instr(ADD, 1, BATCH, ROW), *ATTENTION.body)),
    "limits": PLAIN._replace(num_regs=32, instrs=(Instr(NEG, 31, IN0),) * 64, views=(LINEAR,) * 16,
                             const_bits=(0,) * 16, rparam_bits=(0,) * 16, extras=(31,) * 32),
    "take": PLAIN._replace(views=(ViewSpec(65, 0, 1), LINEAR)),
    "rotate half": PLAIN._replace(views=(ViewSpec(1, 1, 2), LINEAR)),
    "unused operands hold anything": PLAIN._replace(instrs=(Instr(NEG, 0, IN0, Operand(99, 99), VEC),)),
}

BROKEN = [
    (0, PLAIN._replace(instrs=(Instr(24, 0, IN0),))),
    (0, PLAIN._replace(instrs=(Instr(255, 0, IN0),))),
    (0, PLAIN._replace(instrs=(Instr(NEG, 0, Operand(11, 0)),))),
    (0, PLAIN._replace(views=(ViewSpec(16), LINEAR))),
    (0, rowmax(body=(Instr(24, 0, IN0),))),
    (1, PLAIN._replace(instrs=())),
    (2, PLAIN._replace(instrs=PLAIN.instrs * 33)),
    (3, PLAIN._replace(num_regs=33)),
    (4, PLAIN._replace(views=(LINEAR,) * 17)),
    (5, PLAIN._replace(const_bits=(0,) * 17)),
    (6, PLAIN._replace(rparam_bits=(0,) * 17)),
    (8, WITH_MATMUL._replace(matmul=Matmul(2, 1))),
    (8, WITH_MATMUL._replace(matmul=Matmul(0, 2))),
    (8, WITH_MATMUL._replace(matmul=Matmul(0, 1, batch=0))),
    (9, PLAIN._replace(views=(ViewSpec(13, 0, 0), LINEAR))),
    (9, PLAIN._replace(views=(LINEAR, ViewSpec(14, 0, 0)))),
    (10, with_fold(ROWMAX, matmul=Matmul(0, 1))),
    (11, with_fold(ROWMAX, instrs=(Instr(NEG, 0, IN0),))),
    (12, rowmax(num_state=0, init_bits=())),
    (12, rowmax(num_state=9, init_bits=(0,) * 9)),
    (12, rowmax(init_bits=(0, 0))),
    (13, rowmax(k=0)),
    (14, rowmax(body=())),
    (14, rowmax(body=ROWMAX.body * 25)),
    (15, rowmax(finalize=())),
    (15, rowmax(finalize=ROWMAX.finalize * 17)),
    (16, with_fold(ROWMAX._replace(num_state=5, init_bits=(0,) * 5))),
    (17, attention(vec_state_len=1025)),
    (18, attention(vec_state_len=0)),
    (18, attention(vecacc=None)),
    (19, attention(matmul=Matmul(3, 1, 0, 0, 5, 2))),
    (19, attention(matmul=Matmul(0, 3, 0, 0, 5, 2))),
    (19, attention(matmul=Matmul(0, 1, 0, 0, 5, 0))),
    (19, attention(matmul=Matmul(0, 1, 0, 0, 1025, 1))),
    (19, with_fold(ATTENTION, views=(ViewSpec(64, 0, 3), LINEAR, LINEAR))),
    (19, with_fold(ATTENTION._replace(matmul=Matmul(0, 1, 0, 1, 5, 2)), views=(LINEAR, ViewSpec(64, 0, 7), LINEAR))),
    (20, rowmax(tri_skip=1)),
    (21, attention(vecacc=VecAcc(1, 1, 2, 0, 1))),
    (21, attention(vecacc=VecAcc(0, 4, 2, 0, 1))),
    (21, attention(vecacc=VecAcc(0, 1, 3, 0, 1))),
    (21, attention(vecacc=VecAcc(0, 1, 2, 4, 0))),
    *((22, rowmax(body=(Instr(NEG, 1, operand), *ROWMAX.body))) for operand in (MM, ROW, COL, BATCH)),
    (22, rowmax(finalize=(Instr(NEG, 0, ROW),))),
    (23, rowmax(body=(Instr(COL_SUM, 1, IN0),))),
    (23, rowmax(body=(Instr(NEG, 4, IN0),))),
    (23, rowmax(body=(Instr(MAX, 0, R0, RED1),))),
    (23, rowmax(body=(Instr(ROW_MAX, 1, RED1),))),
    (23, rowmax(body=(Instr(ROW_MAX, 1, IN0), Instr(MAX, 0, R0, R1)))),
    (23, rowmax(body=(Instr(NEG, 1, R2),))),
    (23, rowmax(body=(Instr(NEG, 1, Operand(3, 9)),))),
    (23, rowmax(body=(Instr(NEG, 1, Operand(1, 3)),))),
    (23, with_fold(ROWMAX, views=(ViewSpec(5), LINEAR, LINEAR))),
    (23, with_fold(ROWMAX, views=(ViewSpec(8), LINEAR, LINEAR))),
    (23, with_fold(ROWMAX, views=(ViewSpec(10, 0, 2), LINEAR, LINEAR))),
    (23, rowmax(body=(Instr(NEG, 1, C1),))),
    (23, rowmax(body=(Instr(NEG, 1, Operand(9, 1)),))),
    (24, rowmax(finalize=(Instr(ROW_SUM, 0, R0),))),
    (24, rowmax(finalize=(Instr(NEG, 4, R0),))),
    (24, rowmax(finalize=(Instr(NEG, 0, RED1),))),
    (24, rowmax(finalize=(Instr(NEG, 0, IN0),))),
    (24, rowmax(finalize=(Instr(NEG, 0, VEC),))),
    (24, attention(finalize=(Instr(NEG, 3, Operand(10, 1)),))),
    (24, rowmax(finalize=(Instr(NEG, 0, R1),))),
    (24, rowmax(finalize=(Instr(NEG, 0, C1),))),
    (25, rowmax(body=(Instr(NEG, 0, IN0),))),
    (25, rowmax(body=(Instr(NEG, 1, IN0), Instr(ADD, 0, R0, R1)))),
    (25, rowmax(body=(Instr(NEG, 1, VEC),))),
    (26, attention(vecacc=VecAcc(0, 1, 2, 1, 1))),
    (26, attention(vecacc=VecAcc(0, 1, 2, 1, 0))),
    (27, attention(finalize=(Instr(ADD, 0, VEC, R0),))),
    (28, PLAIN._replace(views=(ViewSpec(9, 0, 2), LINEAR))),
    (28, PLAIN._replace(views=(ViewSpec(65, 0, 2), LINEAR))),
    (28, PLAIN._replace(views=(ViewSpec(65, 0, 0), LINEAR))),
    (28, PLAIN._replace(views=(ViewSpec(64, 0, 4), LINEAR))),
    (29, PLAIN._replace(instrs=(Instr(NEG, 3, IN0),))),
    (29, PLAIN._replace(instrs=(Instr(NEG, 0, Operand(0, 3)),))),
    (29, PLAIN._replace(instrs=(Instr(NEG, 0, Operand(3, 3)),))),
    (29, PLAIN._replace(instrs=(Instr(NEG, 0, IN2),))),
    (29, PLAIN._replace(instrs=(Instr(NEG, 0, C1),))),
    (29, PLAIN._replace(instrs=(Instr(NEG, 0, Operand(9, 1)),))),
    (29, PLAIN._replace(instrs=(Instr(NEG, 0, MM),))),
    (29, PLAIN._replace(instrs=(Instr(SELECT, 0, IN0, P0, C1),))),
    (30, PLAIN._replace(instrs=(Instr(ADD, 0, RED1, IN0),))),
    (30, PLAIN._replace(instrs=(Instr(ROW_SUM, 1, RED1),))),
    (30, PLAIN._replace(instrs=(Instr(ROW_SUM, 1, IN0), Instr(NEG, 0, R1)))),
    (30, PLAIN._replace(instrs=(Instr(NEG, 1, IN0), Instr(ROW_SUM, 1, IN0), Instr(NEG, 0, RED1)))),
    (30, PLAIN._replace(instrs=(Instr(NEG, 0, Operand(4, 3)),))),
    (31, PLAIN._replace(instrs=(Instr(NEG, 0, VEC),))),
    (32, PLAIN._replace(instrs=(Instr(NEG, 0, R0),))),
    (32, PLAIN._replace(instrs=(Instr(NEG, 0, Operand(3, 1)), Instr(NEG, 1, IN0)))),
    (33, PLAIN._replace(views=(ViewSpec(1, 0, 3), LINEAR))),
    (33, PLAIN._replace(views=(ViewSpec(1, 0, 0), LINEAR))),
    (34, PLAIN._replace(extras=(2,))),
    (34, PLAIN._replace(extras=(0,) * 33)),
    (34, WITH_MATMUL._replace(extras=(0,))),
    (34, with_fold(ROWMAX, extras=(0,))),
    (34, PLAIN._replace(views=(ViewSpec(5), LINEAR), extras=(0,))),
    (34, PLAIN._replace(instrs=(Instr(ROW_SUM, 1, IN0), Instr(ADD, 0, RED1, IN0)), extras=(0,))),
]


@pytest.mark.parametrize("spec", VALID.values(), ids=VALID)
def test_valid_spec(spec):
    validate(spec)
    specrules.validate(spec)


@pytest.mark.parametrize(("rule", "spec"), BROKEN, ids=lambda value: f"rule{value}" if isinstance(value, int) else "")
def test_broken_rule_is_named(rule, spec):
    with pytest.raises(ExprError, match=rf"\brule {rule}\b" if rule else "known") as caught:
        validate(spec)
    assert re.match(r"ExprSpec rule|Expected", str(caught.value))
    with pytest.raises(ExprError, match=rf"\brule {rule}:"):
        specrules.validate(spec)


def test_every_rule_is_broken_once():
    # Rule 7 cannot be broken: a spec has one view for each input by construction.
    assert {rule for rule, _spec in BROKEN} == set(range(35)) - {7}


def test_first_rule_wins():
    spec = PLAIN._replace(num_regs=33, const_bits=(0,) * 17, views=(ViewSpec(1, 0, 3),) * 17)
    with pytest.raises(ExprError, match=r"\brule 3\b"):
        validate(spec)


def test_operands_of_leaves_unused_ones_out():
    assert operands_of(Instr(NEG, 0, IN0, IN1, IN2)) == (IN0,)
    assert operands_of(Instr(ADD, 0, IN0, IN1, IN2)) == (IN0, IN1)
    assert operands_of(Instr(SELECT, 0, IN0, IN1, IN2)) == (IN0, IN1, IN2)
