"""Each rewrite of the canonical form, the rewrites that would change a bit, and the limits."""

from __future__ import annotations

import pytest

from nnk import ops
from nnk.expr.canonical import canonicalise, fold_constant
from nnk.expr.spec import ExprSpec, Instr, Matmul, Operand, ViewSpec, bits_of
from nnk.expr.spec_rules import validate
from tests import strategies
from tests.oracle import arith, specrules
from tests.oracle import exprspec as oracle

CODE = {op.name: op.code for op in ops.OPS}
LINEAR = ViewSpec(0)
X, Y = Operand(specrules.INPUT, 0), Operand(specrules.INPUT, 1)
PLUS_ZERO, MINUS_ZERO, ONE, NAN = 0x00000000, 0x80000000, 0x3F800000, 0x7FC00000


def reg(number):
    return Operand(specrules.REG, number)


def const(slot):
    return Operand(specrules.CONST, slot)


def spec_of(*program, consts=(), **parts):
    """A spec with one register for each (op name, operands...) of the program."""
    instrs = tuple(Instr(CODE[name], dst, *operands) for dst, (name, *operands) in enumerate(program))
    return ExprSpec(len(program), instrs, (LINEAR, LINEAR), tuple(consts))._replace(**parts)


def program_of(spec):
    return [(ops.OP_BY_CODE[instr.op].name, instr.dst, *specrules.used_operands(instr)) for instr in spec.instrs]


def canonical(*program, consts=(), **parts):
    spec = spec_of(*program, consts=consts, **parts)
    validate(spec)
    once = canonicalise(spec)
    assert once == oracle.canonicalise(spec)
    return once


@pytest.mark.parametrize(("bits", "step"), [
    (PLUS_ZERO, ("sub", X, const(0))), (MINUS_ZERO, ("add", X, const(0))), (MINUS_ZERO, ("add", const(0), X)),
    (ONE, ("mul", X, const(0))), (ONE, ("mul", const(0), X)), (ONE, ("div", X, const(0))),
    (NAN, ("select", const(0), X, Y)), (PLUS_ZERO, ("select", const(0), Y, X)),
    (MINUS_ZERO, ("select", const(0), Y, X)), (ONE, ("select", const(0), X, Y)),
    (ONE, ("max", X, X)), (ONE, ("min", X, X)), (ONE, ("select", Y, X, X))])
def test_exact_identity_is_applied(bits, step):
    assert program_of(canonical(step, ("exp", reg(0)), consts=(bits,))) == [("exp", 0, X)]


@pytest.mark.parametrize(("bits", "step"), [
    (PLUS_ZERO, ("add", X, const(0))), (PLUS_ZERO, ("add", const(0), X)), (MINUS_ZERO, ("sub", X, const(0))),
    (PLUS_ZERO, ("sub", const(0), X)), (PLUS_ZERO, ("mul", X, const(0))), (PLUS_ZERO, ("mul", const(0), X)),
    (ONE, ("div", const(0), X)), (0x3F800001, ("mul", X, const(0))), (NAN, ("add", X, const(0))),
    (ONE, ("sub", X, X)), (ONE, ("div", X, X)), (ONE, ("eq", X, X)), (ONE, ("max", X, Y)), (ONE, ("exp", X))])
def test_inexact_identity_is_not_applied(bits, step):
    kept = canonical(step, ("exp", reg(0)), consts=(bits,))
    assert [name for name, *_ in program_of(kept)] == [step[0], "exp"]


def test_double_negation():
    assert program_of(canonical(("neg", X), ("neg", reg(0)), ("exp", reg(1)))) == [("exp", 0, X)]
    assert len(canonical(("neg", X), ("neg", reg(0)), ("neg", reg(1)), ("exp", reg(2))).instrs) == 2


def test_last_instruction_is_kept():
    assert program_of(canonical(("max", X, X))) == [("max", 0, X, X)]
    assert program_of(canonical(("neg", X), ("neg", reg(0)))) == [("neg", 0, X), ("neg", 1, reg(0))]
    assert program_of(canonical(("add", const(0), const(1)), consts=(1, 2))) == [("add", 0, const(0), const(1))]


def test_constants_are_folded_in_float32():
    folded = canonical(("add", const(0), const(1)), ("mul", X, reg(0)), consts=(bits_of(16777216.0), bits_of(1.0)))
    assert program_of(folded) == [("mul", 0, X, const(0))]
    assert folded.const_bits == (bits_of(16777216.0),)


def test_functions_of_constants_are_not_folded():
    assert len(canonical(("exp", const(0)), ("mul", X, reg(0)), consts=(ONE,)).instrs) == 2


def test_constants_are_pooled_by_bits():
    program = [("add", X, const(i)) if i == 0 else ("add", reg(i - 1), const(i)) for i in range(5)]
    pooled = canonical(*program, consts=(PLUS_ZERO, MINUS_ZERO ^ 1, PLUS_ZERO, 0x7FC00001, 0x7FC00001))
    assert pooled.const_bits == (PLUS_ZERO, MINUS_ZERO ^ 1, 0x7FC00001)


def test_constants_are_in_order_of_first_use():
    used = canonical(("add", X, const(2)), ("mul", reg(0), const(0)), consts=(7, 8, 9))
    assert used.const_bits == (9, 7)


def test_dead_code_goes():
    assert program_of(canonical(("exp", X), ("log", Y), ("neg", reg(0)))) == [("exp", 0, X), ("neg", 1, reg(0))]


def test_common_subexpressions_are_shared_until_nothing_changes():
    shared = canonical(("exp", X), ("exp", X), ("max", reg(0), reg(1)), ("neg", reg(2)))
    assert program_of(shared) == [("exp", 0, X), ("neg", 1, reg(0))]


def test_reductions_are_shared_and_get_registers_of_their_own():
    total = Operand(specrules.REDUCE, 1)
    again = Operand(specrules.REDUCE, 2)
    shared = canonical(("exp", X), ("row_sum", reg(0)), ("row_sum", reg(0)), ("add", total, again))
    assert program_of(shared) == [("exp", 0, X), ("row_sum", 1, reg(0)), ("add", 0, total, total)]
    assert shared.num_regs == 2


def test_reductions_come_after_all_elementwise_registers():
    program = canonical(("row_max", X), ("sub", X, Operand(specrules.REDUCE, 0)), ("exp", reg(1)),
                        ("row_sum", reg(2)), ("div", reg(2), Operand(specrules.REDUCE, 3)))
    assert [dst for _name, dst, *_ in program_of(program)] == [2, 0, 1, 3, 0]
    assert program.num_regs == 4


def test_registers_are_free_after_the_last_use_and_not_at_it():
    chain = canonical(("exp", X), ("neg", reg(0)), ("abs", reg(1)), ("log", reg(2)))
    assert [dst for _name, dst, *_ in program_of(chain)] == [0, 1, 0, 1]
    assert chain.num_regs == 2


def test_register_written_twice():
    spec = ExprSpec(1, (Instr(CODE["exp"], 0, X), Instr(CODE["neg"], 0, reg(0)), Instr(CODE["abs"], 0, reg(0))),
                    (LINEAR,))
    assert program_of(canonicalise(spec)) == [("exp", 0, X), ("neg", 1, reg(0)), ("abs", 0, reg(1))]


def test_extras_are_outputs():
    both = canonical(("exp", X), ("max", reg(0), reg(0)), ("neg", reg(0)), ("log", Y), extras=(1, 0))
    assert program_of(both) == [("exp", 0, X), ("max", 1, reg(0), reg(0)), ("log", 2, Y)]
    assert both.extras == (1, 0)


def test_matmul_alone_has_no_registers_and_no_constants():
    bare = ExprSpec(5, (), (LINEAR, LINEAR), (1, 2), (3,), Matmul(0, 1))
    assert canonicalise(bare) == bare._replace(num_regs=0, const_bits=()) == oracle.canonicalise(bare)


def test_form_over_the_limit_of_constants_is_left_alone():
    program = [("neg", const(0)), ("add", X, reg(0))]
    for slot in range(16):
        program += [("neg", const(slot)), ("add", reg(len(program) - 1), reg(len(program)))]
    for slot in range(14):
        program.append(("add", reg(len(program) - 1), const(slot)))
    instrs = tuple(Instr(CODE[name], dst % 4, *(Operand(kind, idx % 4) if kind == specrules.REG else Operand(kind, idx)
                                                for kind, idx in operands))
                   for dst, (name, *operands) in enumerate(program))
    spec = ExprSpec(4, instrs, (LINEAR,), tuple(range(1, 17)))
    validate(spec)
    assert canonicalise(spec) is spec
    assert oracle.canonicalise(spec) is spec


@pytest.mark.parametrize("op", [op for op in ops.OPS if op.foldable], ids=lambda op: op.name)
def test_folding_agrees_with_exact_arithmetic(op):
    values = strategies.SPECIAL_BITS
    for a in values:
        for b in values if op.arity > 1 else values[:1]:
            operands = (a, b, 0x3F800001)[:op.arity]
            assert fold_constant(op.code, operands) == arith.EXACT[op.code](*operands), operands
