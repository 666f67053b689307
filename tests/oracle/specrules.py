"""The numbers of the ExprSpec format and its validation rules (exprspec 3.9), in order.

Rule 0 stands for numbers that are in no table; rule 34 for extras; the view kinds of this project are checked under
rule 28.
"""

from __future__ import annotations

from typing import Any

from nnk.errors import ExprError

#: Op number -> number of operands it uses.
ARITY = {
    0: 1, 1: 1, 2: 1, 3: 1, 4: 1, 5: 1, 6: 1,
    7: 2, 8: 2, 9: 2, 10: 2, 11: 2, 12: 2, 13: 2, 14: 2, 15: 2, 16: 2, 17: 2, 18: 2,
    19: 3,
    20: 1, 21: 1, 22: 1, 23: 1,
    64: 1, 65: 1, 66: 1, 67: 1, 68: 1, 69: 1, 70: 1, 71: 1, 72: 1, 73: 1,
    74: 1, 75: 1, 76: 1, 77: 1, 78: 1, 79: 1, 80: 1, 81: 1, 82: 1, 83: 1,
    84: 2, 85: 2, 86: 2, 87: 2,
    100: 1, 101: 1, 102: 1, 103: 1, 104: 1, 105: 1, 106: 1, 107: 2, 108: 2, 109: 2, 110: 1, 111: 1, 112: 2, 113: 2,
    114: 2, 115: 2, 116: 2, 117: 2, 118: 2, 119: 2, 120: 2, 121: 1, 122: 2, 123: 2, 124: 2, 125: 2, 126: 2,
}
NEG, ABS, ADD, SUB, MUL, DIV, MAX, MIN, SELECT = 0, 5, 7, 8, 9, 10, 11, 12, 19
COL_SUM, COL_MAX, ROW_SUM, ROW_MAX = 20, 21, 22, 23
REDUCES = (COL_SUM, COL_MAX, ROW_SUM, ROW_MAX)
FOLDABLE = (NEG, ABS, ADD, SUB, MUL, DIV, MAX, MIN, 13, 14, 15, 16, 17, 18, SELECT)

REG, INPUT, CONST, FANOUT, REDUCE, MATMUL, ROW, COL, BATCH, RPARAM, VEC_STATE = range(11)
OPERAND_KINDS = range(11)

LINEAR, ROTATE_HALF, ROW_MOD = 0, 1, 2
COL_VIEWS, ROW_VIEWS = (3, 4), (5, 6)
ROW_BROADCAST, COL_BROADCAST, ROW_GATHER, BATCH_MOD, BATCH_COL, ROW_ACCESS = 7, 8, 9, 10, 11, 12
GROUPED_VIEWS = (13, 14)
HEAD_GROUP, STRIDED, TAKE = 15, 64, 65
VIEW_KINDS = (*range(16), STRIDED, TAKE)
#: Views whose params are shape data and therefore no part of the key.
RUNTIME_VIEWS = (ROTATE_HALF, ROW_MOD, BATCH_MOD, BATCH_COL, ROW_ACCESS, *GROUPED_VIEWS, HEAD_GROUP)

POS_ZERO, NEG_ZERO, ONE = 0x00000000, 0x80000000, 0x3F800000

#: Plain nested tuples in the order of nnk/expr/spec.py.
Spec = tuple[Any, ...]


def used_operands(instr: Spec) -> Spec:
    """The operands that the op really takes: an unused (0, 0) is no register."""
    return instr[2:2 + ARITY[instr[0]]]


def _require(condition: bool, rule: int, text: str) -> None:
    if not condition:
        raise ExprError(f"rule {rule}: {text}")


def _check_numbers(spec: Spec) -> None:
    """Numbers of no table have no rule of their own: they are refused before the rules (3.2)."""
    _regs, instrs, views, _consts, _rparams, _matmul, fold, _extras = spec
    programs = [instrs] if fold is None else [instrs, fold[3], fold[4]]
    for instr in (instr for program in programs for instr in program):
        _require(instr[0] in ARITY, 0, f"op {instr[0]}")
        for kind, _idx in used_operands(instr):
            _require(kind in OPERAND_KINDS, 0, f"operand kind {kind}")
    for view in views:
        _require(view[0] in VIEW_KINDS, 0, f"view {view[0]}")


def _check_sizes(spec: Spec) -> None:
    num_regs, instrs, views, consts, rparams, matmul, fold, _extras = spec
    _require(bool(instrs) or matmul is not None or fold is not None, 1, "no instructions")
    _require(len(instrs) <= 64, 2, "instructions")
    _require(num_regs <= 32, 3, "registers")
    _require(len(views) <= 16, 4, "inputs")
    _require(len(consts) <= 16, 5, "constants")
    _require(len(rparams) <= 16, 6, "run-time parameters")
    # Rule 7 holds by construction: a spec has as many inputs as views.
    if matmul is not None:
        _require(matmul[0] < len(views) and matmul[1] < len(views) and matmul[5] > 0, 8, "matmul")
    for kind, _negate, param, _param2 in views:
        _require(kind not in GROUPED_VIEWS or param > 0, 9, "group size")


def _check_fold_sizes(spec: Spec) -> None:
    num_regs, instrs, views, _consts, _rparams, top_matmul, fold, _extras = spec
    num_state, k, inits, body, finalize, vec_state_len, matmul, vecacc, tri_skip = fold
    _require(top_matmul is None, 10, "top-level matmul")
    _require(not instrs, 11, "top-level instructions")
    _require(1 <= num_state <= 8 and len(inits) == num_state, 12, "states")
    _require(k > 0, 13, "k")
    _require(1 <= len(body) <= 48, 14, "body")
    _require(1 <= len(finalize) <= 16, 15, "finalize")
    _require(num_regs >= num_state, 16, "registers for the states")
    _require(vec_state_len <= 1024, 17, "vec_state_len")
    _require((vec_state_len > 0) == (vecacc is not None), 18, "vecacc without vector state, or the reverse")
    if matmul is not None:
        _require(matmul[0] < len(views) and matmul[1] < len(views) and matmul[5] > 0 and matmul[4] <= 1024,
                 19, "fold matmul")
        for slot, transposed in ((matmul[0], matmul[2]), (matmul[1], matmul[3])):
            _require(not transposed or views[slot][0] != STRIDED, 19, "transposed strided operand")
    _require(not tri_skip or matmul is not None, 20, "tri_skip")
    if vecacc is not None:
        vec_state, weight_reg, b_input, scale_reg, _has_scale = vecacc
        _require(vec_state == 0 and weight_reg < num_regs and b_input < len(views) and scale_reg < num_regs,
                 21, "vecacc")
    if matmul is None:
        for instr in (*body, *finalize):
            for kind, _idx in used_operands(instr):
                _require(kind not in (MATMUL, ROW, COL, BATCH), 22, "operand without fold matmul")


def _check_body(spec: Spec) -> None:
    num_regs, _instrs, views, consts, rparams, _top, fold, _extras = spec
    allowed_views = [LINEAR, ROW_MOD, ROW_BROADCAST, STRIDED]
    if fold[6] is not None:
        allowed_views += [BATCH_MOD, BATCH_COL]
    defined = set(range(fold[0]))
    reduced: set[int] = set()
    for instr in fold[3]:
        op, dst = instr[:2]
        _require(op not in (COL_SUM, COL_MAX), 23, "column reduction in the body")
        _require(dst < num_regs, 23, "dst")
        for kind, idx in used_operands(instr):
            if kind == REDUCE:
                _require(idx < num_regs and idx != dst and idx in reduced, 23, "reduce operand")
            elif kind in (REG, FANOUT):
                _require(idx < num_regs and idx not in reduced and idx in defined, 23, "register operand")
            elif kind == INPUT:
                _require(idx < len(views) and views[idx][0] in allowed_views, 23, "input operand")
            elif kind == CONST:
                _require(idx < len(consts), 23, "constant operand")
            elif kind == RPARAM:
                _require(idx < len(rparams), 23, "run-time parameter operand")
        if op in REDUCES:
            reduced.add(dst)
        defined.add(dst)


def _check_finalize(spec: Spec) -> None:
    num_regs, _instrs, _views, consts, rparams, _top, fold, _extras = spec
    for instr in fold[4]:
        op, dst = instr[:2]
        _require(op not in REDUCES, 24, "reduction in finalize")
        _require(dst < num_regs, 24, "dst")
        for kind, idx in used_operands(instr):
            _require(kind not in (REDUCE, INPUT), 24, "operand of finalize")
            if kind == VEC_STATE:
                _require(fold[5] > 0 and idx == 0, 24, "vector state")
            elif kind in (REG, FANOUT):
                _require(idx < num_regs and idx < fold[0], 24, "block-local register")
            elif kind == CONST:
                _require(idx < len(consts), 24, "constant operand")
            elif kind == RPARAM:
                _require(idx < len(rparams), 24, "run-time parameter operand")


def body_classes(fold: Spec) -> tuple[list[int], dict[int, int]]:
    """The class of every body instruction and of every register after the body: 1 per element, 0 per row (3.6.1)."""
    classes: dict[int, int] = {}
    reduced: set[int] = set()
    of_instr = []
    for instr in fold[3]:
        op, dst = instr[:2]
        highest = 0
        for kind, idx in used_operands(instr):
            if kind in (INPUT, MATMUL, COL):
                source = 1
            elif kind in (ROW, BATCH, CONST, RPARAM, REDUCE):
                source = 0
            elif kind in (REG, FANOUT):
                source = 0 if idx in reduced else classes.get(idx, 0)
            else:
                raise ExprError("rule 25: vector state in the body")
            highest = max(highest, source)
        if op in REDUCES:
            reduced.add(dst)
            classes[dst] = 0
        else:
            _require(not (dst < fold[0] and highest == 1), 25, "a state is overwritten for every element")
            if highest == 1:
                classes[dst] = 1
        of_instr.append(highest)
    return of_instr, classes


def _check_fold(spec: Spec) -> None:
    fold = spec[6]
    _check_fold_sizes(spec)
    _check_body(spec)
    _check_finalize(spec)
    _of_instr, classes = body_classes(fold)
    if fold[7] is not None:
        _require(classes.get(fold[7][3], 0) == 0, 26, "scale register per element")
    if fold[5] > 0:
        written = {instr[1] for instr in fold[4]}
        read = {idx for instr in fold[4] for kind, idx in used_operands(instr) if kind in (REG, FANOUT)}
        _require(not written & read, 27, "finalize reads what it writes")


def _check_operands(spec: Spec) -> None:
    num_regs, instrs, views, consts, rparams, matmul, _fold, _extras = spec
    limits = {REG: num_regs, FANOUT: num_regs, INPUT: len(views), CONST: len(consts), RPARAM: len(rparams)}
    for instr in instrs:
        _require(instr[1] < num_regs, 29, "dst")
        for kind, idx in used_operands(instr):
            _require(idx < limits.get(kind, 256), 29, "operand out of range")
            _require(kind != MATMUL or matmul is not None, 29, "matmul operand")


def _check_reduces(spec: Spec) -> None:
    num_regs, instrs = spec[:2]
    reduced: set[int] = set()
    elementwise: set[int] = set()
    for instr in instrs:
        op, dst = instr[:2]
        (reduced if op in REDUCES else elementwise).add(dst)
        for kind, idx in used_operands(instr):
            if kind == REDUCE:
                _require(idx < num_regs and idx != dst and idx in reduced and idx not in elementwise,
                         30, "reduce operand")
            elif kind in (REG, FANOUT):
                _require(idx not in reduced, 30, "register of a reduction")


def _check_order(spec: Spec) -> None:
    instrs = spec[1]
    for instr in instrs:
        for kind, _idx in used_operands(instr):
            _require(kind != VEC_STATE, 31, "vector state outside of finalize")
    defined: set[int] = set()
    for instr in instrs:
        for kind, idx in used_operands(instr):
            _require(kind not in (REG, FANOUT) or idx in defined, 32, "register read before it is written")
        defined.add(instr[1])


def _check_extras(spec: Spec) -> None:
    """More outputs than one: pure elementwise specs only (3.11)."""
    _regs, instrs, views, _consts, _rparams, matmul, fold, extras = spec
    if extras:
        reducing = any(instr[0] in REDUCES for instr in instrs)
        reducing |= any(view[0] in (*COL_VIEWS, *ROW_VIEWS) for view in views)
        _require(matmul is None and fold is None and not reducing, 34, "extras of a spec that is not elementwise")
        _require(len(extras) <= 32, 34, "extras")
        written = {instr[1] for instr in instrs}
        _require(all(register in written for register in extras), 34, "an extra that nothing writes")


def validate(spec: Spec) -> None:
    """Raise ExprError for the first rule of exprspec 3.9 that the spec breaks."""
    _check_numbers(spec)
    _check_sizes(spec)
    if spec[6] is not None:
        _check_fold(spec)
    for slot, (kind, _negate, param, _param2) in enumerate(spec[2]):
        _require(kind not in (ROW_GATHER, TAKE) or param < len(spec[2]), 28, "index slot")
        _require(kind != TAKE or param != slot, 28, "an input is its own index")
        _require(kind != STRIDED or param in (3, 7), 28, "row dimensions")
    _check_operands(spec)
    _check_reduces(spec)
    _check_order(spec)
    for kind, _negate, param, _param2 in spec[2]:
        _require(kind != ROTATE_HALF or (param > 0 and param % 2 == 0), 33, "rotate_half rows")
    _check_extras(spec)
