"""The canonical form: idempotent, worth the same bits, and the key tells exactly canonical forms apart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nnk import exprspec
from nnk.expr.canonical import canonicalise
from nnk.expr.spec import ExprSpec, Instr, Operand
from nnk.expr.spec_rules import validate
from tests import strategies
from tests.oracle import evaluate, specrules
from tests.oracle import exprspec as oracle


@given(strategies.specs())
def test_agrees_with_the_oracle(spec):
    assert canonicalise(spec) == oracle.canonicalise(spec)


@given(strategies.specs())
def test_idempotent(spec):
    once = canonicalise(spec)
    assert canonicalise(once) == once


@given(strategies.specs())
def test_inputs_and_parameters_pass_through(spec):
    once = canonicalise(spec)
    assert once[2] == spec.views
    assert once[4:7] == spec[4:7]
    assert len(once.extras) == (len(spec.extras) if spec.instrs else 0)


@given(strategies.fold_specs())
def test_folds_are_their_own_canonical_form(spec):
    assert canonicalise(spec) is spec


@given(strategies.runnable_cases())
def test_canonical_form_is_valid(case):
    validate(canonicalise(case.spec))


def bits(outputs: list[Any]) -> list[list[int]]:
    return [output.view(np.uint32).tolist() for output in outputs]


@given(strategies.runnable_cases())
def test_value_is_the_same_bit_for_bit(case):
    once = canonicalise(case.spec)
    launch = replace(case.launch, const_bits=once.const_bits)
    assert bits(evaluate.evaluate(once, launch, case.inputs)) == bits(
        evaluate.evaluate(case.spec, case.launch, case.inputs))


# ------------------------------------------------------------------------------------------------------------- keys

def structure(spec: ExprSpec) -> Any:
    """What the key stands for: the canonical form without values, sizes and unused operands."""
    num_regs, instrs, views, consts, rparams, matmul, fold, extras = oracle.canonicalise(spec)
    if fold is not None:
        num_state, _k, inits, body, finalize, _length, segment, vecacc, tri_skip = fold
        fold = (num_state, inits, program(body), program(finalize), segment and segment[:4], vecacc, tri_skip)
    views = tuple(view[:2] if view[0] in specrules.RUNTIME_VIEWS else tuple(view) for view in views)
    return num_regs, program(instrs), views, len(consts), len(rparams), matmul and matmul[:2], fold, extras


def program(instrs: Any) -> Any:
    return tuple((instr[0], instr[1], specrules.used_operands(instr)) for instr in instrs)


@given(strategies.specs(), strategies.specs())
def test_key_tells_structures_apart(one, other):
    assert (exprspec.key(one) == exprspec.key(other)) == (structure(one) == structure(other))


@given(strategies.specs(), st.data())
def test_key_follows_every_small_change(spec, data):
    changed = data.draw(changes(spec))
    assert (exprspec.key(spec) == exprspec.key(changed)) == (structure(spec) == structure(changed))


def changes(spec: ExprSpec) -> st.SearchStrategy[ExprSpec]:
    """One instruction, view or value altered; the result may be invalid only in ways that leave it readable."""
    options = [st.just(spec._replace(const_bits=tuple(bits ^ 1 for bits in spec.const_bits))),
               st.just(spec._replace(rparam_bits=tuple(bits ^ 1 for bits in spec.rparam_bits)))]
    if spec.views:
        slots = st.integers(0, len(spec.views) - 1)
        options.append(st.tuples(slots, st.sampled_from(("negate", "param", "param2"))).map(
            lambda choice: spec._replace(views=_with(spec.views, choice[0], spec.views[choice[0]]._replace(
                **{choice[1]: getattr(spec.views[choice[0]], choice[1]) ^ 1})))))
    if spec.instrs:
        places = st.integers(0, len(spec.instrs) - 1)
        options.append(st.tuples(places, st.sampled_from((1, 2, 5, 6))).map(
            lambda choice: spec._replace(instrs=_with(spec.instrs, choice[0], _unary(spec.instrs[choice[0]],
                                                                                     choice[1])))))
    return st.one_of(options)


def _with(items: tuple[Any, ...], place: int, item: Any) -> tuple[Any, ...]:
    return (*items[:place], item, *items[place + 1:])


def _unary(instr: Instr, op: int) -> Instr:
    return instr if instr.op in specrules.REDUCES else instr._replace(op=op)


@given(strategies.top_level_specs(), st.randoms(use_true_random=False))
def test_spelling_does_not_change_the_canonical_form(spec, rand):
    """Other names for registers, fanout for reg, spare constants and garbage in unused operands."""
    names = list(range(spec.num_regs))
    rand.shuffle(names)
    pool = list(range(len(spec.const_bits)))
    rand.shuffle(pool)

    def spell(operand: Operand) -> Operand:
        if operand.kind in (specrules.REG, specrules.FANOUT):
            return Operand(rand.choice((specrules.REG, specrules.FANOUT)), names[operand.idx])
        if operand.kind == specrules.REDUCE:
            return Operand(operand.kind, names[operand.idx])
        return Operand(operand.kind, pool[operand.idx]) if operand.kind == specrules.CONST else operand

    instrs = []
    for instr in spec.instrs:
        used = [spell(operand) for operand in specrules.used_operands(instr)]
        junk = [Operand(rand.randrange(11), rand.randrange(256)) for _ in range(3)]
        instrs.append(Instr(instr.op, names[instr.dst], *(used + junk)[:3]))
    consts = [0] * len(pool)
    for old, new in enumerate(pool):
        consts[new] = spec.const_bits[old]
    spelled = spec._replace(instrs=tuple(instrs), const_bits=tuple(consts),
                            extras=tuple(names[register] for register in spec.extras))
    assert canonicalise(spelled) == canonicalise(spec)
