"""Validation of an ExprSpec: the numbered rules of docs/formats/exprspec.md, in order.

The first violation is the error. A rule is a small function; :func:`validate` runs them in the order of the format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from nnk import ops
from nnk.errors import ExprError
from nnk.expr.spec import ExprSpec, Fold, Instr, Operand

__all__ = ["operands_of", "validate"]

_LIMITS = ops.LIMITS
_REG, _INPUT, _CONST, _FANOUT, _REDUCE, _MATMUL, _ROW, _COL, _BATCH, _RPARAM, _VEC_STATE = (
    ops.OPERAND_BY_NAME[name].code
    for name in ("reg", "input", "const", "fanout", "reduce", "matmul", "row", "col", "batch", "rparam", "vec_state"))
_GRID = frozenset((_MATMUL, _ROW, _COL, _BATCH))
_COLUMN_OPS = frozenset((ops.OP_BY_NAME["col_sum"].code, ops.OP_BY_NAME["col_max"].code))
_REDUCE_OPS = frozenset(op.code for op in ops.OPS if op.kind == "reduce")
_VIEW = {view.name: view.code for view in ops.VIEWS}
_GROUPED = frozenset((_VIEW["grouped_reduce_sum"], _VIEW["grouped_reduce_max"]))
_FOLD_VIEWS = frozenset((_VIEW["linear"], _VIEW["row_mod"], _VIEW["row_broadcast"], _VIEW["strided"]))
_FOLD_MATMUL_VIEWS = _FOLD_VIEWS | {_VIEW["batch_mod"], _VIEW["batch_col"]}


def operands_of(instr: Instr) -> tuple[Operand, ...]:
    """Return the operands that the op of ``instr`` uses."""
    return (instr.a, instr.b, instr.c)[:ops.OP_BY_CODE[instr.op].arity]


def _fail(rule: int, text: str, op: str | None = None) -> None:
    raise ExprError(f"ExprSpec rule {rule}: {text}", op=op)


def _require(rule: int, claim: bool, text: str) -> None:
    if not claim:
        _fail(rule, text)


def _at_most(rule: int, what: str, found: int, limit: int) -> None:
    _require(rule, found <= limit, f"expected at most {limit} {what}, got {found}")


def _below(rule: int, what: str, found: int, limit: int) -> None:
    _require(rule, found < limit, f"expected {what} below {limit}, got {found}")


def _rule_sizes(spec: ExprSpec) -> None:
    _require(1, bool(spec.instrs) or spec.matmul is not None or spec.fold is not None,
             "a spec without instructions needs a matmul or a fold")
    _at_most(2, "instructions", len(spec.instrs), _LIMITS["instrs"])
    _at_most(3, "registers", spec.num_regs, _LIMITS["regs"])
    _at_most(4, "inputs", len(spec.views), _LIMITS["inputs"])
    _at_most(5, "constants", len(spec.const_bits), _LIMITS["consts"])
    _at_most(6, "run-time parameters", len(spec.rparam_bits), _LIMITS["rparams"])
    # Rule 7 (as many views as inputs) holds by construction: the views are the inputs.


def _rule_matmul(spec: ExprSpec) -> None:
    if spec.matmul is not None:
        _below(8, "matmul a_input", spec.matmul.a_input, len(spec.views))
        _below(8, "matmul b_input", spec.matmul.b_input, len(spec.views))
        _require(8, spec.matmul.batch > 0, "expected a matmul batch above 0, got 0")


def _rule_grouped(spec: ExprSpec) -> None:
    for slot, view in enumerate(spec.views):
        _require(9, view.kind not in _GROUPED or view.param > 0,
                 f"expected a group size above 0 for the view of input {slot}, got 0")


def _rule_fold_shape(spec: ExprSpec, fold: Fold) -> None:
    _require(10, spec.matmul is None, "a fold excludes a top-level matmul")
    _require(11, not spec.instrs, "a fold excludes top-level instructions")
    _require(12, 1 <= fold.num_state <= _LIMITS["fold_states"],
             f"expected 1 to {_LIMITS['fold_states']} fold states, got {fold.num_state}")
    _require(12, len(fold.init_bits) == fold.num_state,
             f"expected {fold.num_state} initial values, got {len(fold.init_bits)}")
    _require(13, fold.k > 0, "expected a fold length above 0, got 0")
    _require(14, 1 <= len(fold.body) <= _LIMITS["fold_body"],
             f"expected 1 to {_LIMITS['fold_body']} body instructions, got {len(fold.body)}")
    _require(15, 1 <= len(fold.finalize) <= _LIMITS["fold_finalize"],
             f"expected 1 to {_LIMITS['fold_finalize']} finalize instructions, got {len(fold.finalize)}")
    _require(16, spec.num_regs >= fold.num_state,
             f"expected at least {fold.num_state} registers for the states, got {spec.num_regs}")
    _at_most(17, "vector state elements", fold.vec_state_len, _LIMITS["vec_state_len"])
    _require(18, (fold.vec_state_len > 0) == (fold.vecacc is not None),
             "a vector state and a vector accumulation need each other")


def _rule_fold_parts(spec: ExprSpec, fold: Fold) -> None:
    if fold.matmul is not None:
        _below(19, "fold matmul a_input", fold.matmul.a_input, len(spec.views))
        _below(19, "fold matmul b_input", fold.matmul.b_input, len(spec.views))
        _require(19, fold.matmul.batch > 0, "expected a fold matmul batch above 0, got 0")
        _at_most(19, "as fold matmul k", fold.matmul.k, _LIMITS["fold_matmul_k"])
        for slot, trans in ((fold.matmul.a_input, fold.matmul.trans_a), (fold.matmul.b_input, fold.matmul.trans_b)):
            _require(19, not trans or spec.views[slot].kind != _VIEW["strided"],
                     f"the strided operand in input {slot} is transposed; its strides say all")
    _require(20, not fold.tri_skip or fold.matmul is not None, "tri_skip needs a fold matmul")
    if fold.vecacc is not None:
        _require(21, fold.vecacc.vec_state == 0, f"expected vec_state 0, got {fold.vecacc.vec_state}")
        _below(21, "weight_reg", fold.vecacc.weight_reg, spec.num_regs)
        _below(21, "b_input", fold.vecacc.b_input, len(spec.views))
        _below(21, "scale_reg", fold.vecacc.scale_reg, spec.num_regs)
    if fold.matmul is None:
        for instr in (*fold.body, *fold.finalize):
            for operand in operands_of(instr):
                _require(22, operand.kind not in _GRID, "matmul, row, col and batch operands need the fold matmul")


def _check_slot(rule: int, spec: ExprSpec, operand: Operand) -> None:
    if operand.kind == _CONST:
        _below(rule, "constant slot", operand.idx, len(spec.const_bits))
    elif operand.kind == _RPARAM:
        _below(rule, "run-time parameter slot", operand.idx, len(spec.rparam_bits))


def _check_body_operand(spec: ExprSpec, fold: Fold, instr: Instr, operand: Operand, defined: set[int],
                        reduced: set[int]) -> None:
    if operand.kind == _REDUCE:
        _below(23, "reduce register", operand.idx, spec.num_regs)
        _require(23, operand.idx != instr.dst and operand.idx in reduced,
                 f"register {operand.idx} is not an earlier block reduction")
    elif operand.kind in (_REG, _FANOUT):
        _below(23, "register", operand.idx, spec.num_regs)
        _require(23, operand.idx not in reduced, f"block reduction {operand.idx} is read as a register")
        _require(23, operand.idx in defined, f"register {operand.idx} is read before it is written")
    elif operand.kind == _INPUT:
        _below(23, "input", operand.idx, len(spec.views))
        allowed = _FOLD_VIEWS if fold.matmul is None else _FOLD_MATMUL_VIEWS
        _require(23, spec.views[operand.idx].kind in allowed,
                 f"the view of input {operand.idx} is not allowed in a fold body")
    _check_slot(23, spec, operand)


def _rule_fold_body(spec: ExprSpec, fold: Fold) -> None:
    defined = set(range(fold.num_state))
    reduced: set[int] = set()
    for instr in fold.body:
        _require(23, instr.op not in _COLUMN_OPS, "a fold body has no column reductions")
        _below(23, "body register", instr.dst, spec.num_regs)
        for operand in operands_of(instr):
            _check_body_operand(spec, fold, instr, operand, defined, reduced)
        if instr.op in _REDUCE_OPS:
            reduced.add(instr.dst)
        defined.add(instr.dst)


def _rule_fold_finalize(spec: ExprSpec, fold: Fold) -> None:
    for instr in fold.finalize:
        _require(24, instr.op not in _REDUCE_OPS, "finalize has no reductions")
        _below(24, "finalize register", instr.dst, spec.num_regs)
        for operand in operands_of(instr):
            _require(24, operand.kind not in (_REDUCE, _INPUT), "finalize reads no reduction and no input")
            if operand.kind == _VEC_STATE:
                _require(24, fold.vec_state_len > 0 and operand.idx == 0, "vec_state needs a vector state and idx 0")
            elif operand.kind in (_REG, _FANOUT):
                _below(24, "finalize register", operand.idx, spec.num_regs)
                _below(24, "finalize register (a state)", operand.idx, fold.num_state)
            _check_slot(24, spec, operand)


def _classes_of(fold: Fold) -> set[int]:
    """Return the element-class registers of a fold body (exprspec 3.6.1)."""
    element: set[int] = set()
    reduced: set[int] = set()
    for instr in fold.body:
        is_element = False
        for operand in operands_of(instr):
            if operand.kind in (_INPUT, _MATMUL, _COL):
                is_element = True
            elif operand.kind in (_REG, _FANOUT):
                is_element |= operand.idx in element and operand.idx not in reduced
            elif operand.kind == _VEC_STATE:
                _fail(25, "vec_state is read in the body")
        if instr.op in _REDUCE_OPS:
            reduced.add(instr.dst)
            element.discard(instr.dst)
            is_element = False
        _require(25, not (is_element and instr.dst < fold.num_state),
                 f"state {instr.dst} would be overwritten for every element")
        if is_element:
            element.add(instr.dst)
    return element


def _rule_fold_classes(spec: ExprSpec, fold: Fold) -> None:
    element = _classes_of(fold)
    if fold.vecacc is not None:
        _require(26, fold.vecacc.scale_reg not in element,
                 f"scale register {fold.vecacc.scale_reg} is not a row scalar")
    if fold.vec_state_len > 0:
        written = {instr.dst for instr in fold.finalize}
        read = {operand.idx for instr in fold.finalize for operand in operands_of(instr)
                if operand.kind in (_REG, _FANOUT)}
        _require(27, not written & read, "finalize reads a register that it also writes")


def _rule_gather(spec: ExprSpec) -> None:
    for slot, view in enumerate(spec.views):
        if view.kind in (_VIEW["row_gather"], _VIEW["take"]):
            _below(28, f"the index slot of input {slot}", view.param, len(spec.views))
            _require(28, view.kind != _VIEW["take"] or view.param != slot, f"input {slot} is its own index")
        if view.kind == _VIEW["strided"]:
            _require(28, view.param in ops.STRIDED_RANKS,
                     f"expected {' or '.join(map(str, ops.STRIDED_RANKS))} row dimensions for the strided view of "
                     f"input {slot}, got {view.param}")


def _rule_operands(spec: ExprSpec) -> None:
    for instr in spec.instrs:
        _below(29, "register", instr.dst, spec.num_regs)
        for operand in operands_of(instr):
            if operand.kind in (_REG, _FANOUT):
                _below(29, "register", operand.idx, spec.num_regs)
            elif operand.kind == _INPUT:
                _below(29, "input", operand.idx, len(spec.views))
            elif operand.kind == _MATMUL:
                _require(29, spec.matmul is not None, "a matmul operand needs the matmul segment")
            _check_slot(29, spec, operand)


def _rule_reduces(spec: ExprSpec) -> None:
    reduced: set[int] = set()
    element: set[int] = set()
    for instr in spec.instrs:
        (reduced if instr.op in _REDUCE_OPS else element).add(instr.dst)
        for operand in operands_of(instr):
            if operand.kind == _REDUCE:
                _below(30, "reduce register", operand.idx, spec.num_regs)
                _require(30, operand.idx != instr.dst and operand.idx in reduced and operand.idx not in element,
                         f"register {operand.idx} does not hold a reduction")
            elif operand.kind in (_REG, _FANOUT):
                _require(30, operand.idx not in reduced, f"reduction {operand.idx} is read as a register")


def _rule_vec_state(spec: ExprSpec) -> None:
    for instr in spec.instrs:
        for operand in operands_of(instr):
            _require(31, operand.kind != _VEC_STATE, "vec_state outside of finalize")


def _rule_defined(spec: ExprSpec) -> None:
    defined: set[int] = set()
    for instr in spec.instrs:
        for operand in operands_of(instr):
            if operand.kind in (_REG, _FANOUT, _REDUCE):
                _require(32, operand.idx in defined, f"register {operand.idx} is read before it is written")
        defined.add(instr.dst)


def _rule_rotate(spec: ExprSpec) -> None:
    for slot, view in enumerate(spec.views):
        if view.kind == _VIEW["rotate_half"]:
            _require(33, view.param > 0 and view.param % 2 == 0,
                     f"expected an even block above 0 for the rotate_half view of input {slot}, got {view.param}")


def _rule_extras(spec: ExprSpec) -> None:
    if not spec.extras:
        return
    pure = spec.matmul is None and spec.fold is None and all(instr.op not in _REDUCE_OPS for instr in spec.instrs)
    pure = pure and all(ops.VIEW_BY_CODE[view.kind].axis == -1 for view in spec.views)
    _require(34, pure, "only a pure elementwise spec has more than one output")
    _at_most(34, "extra outputs", len(spec.extras), _LIMITS["extras"])
    written = {instr.dst for instr in spec.instrs}
    for register in spec.extras:
        _require(34, register in written, f"extra output {register} is a register that nothing writes")


_FOLD_RULES: tuple[Callable[[ExprSpec, Fold], None], ...] = (
    _rule_fold_shape, _rule_fold_parts, _rule_fold_body, _rule_fold_finalize, _rule_fold_classes)
_BEFORE_FOLD: tuple[Callable[[ExprSpec], None], ...] = (_rule_sizes, _rule_matmul, _rule_grouped)
_AFTER_FOLD: tuple[Callable[[ExprSpec], None], ...] = (
    _rule_gather, _rule_operands, _rule_reduces, _rule_vec_state, _rule_defined, _rule_rotate, _rule_extras)


def _known_codes(instrs: Iterable[Instr]) -> None:
    for instr in instrs:
        if instr.op not in ops.OP_BY_CODE:
            raise ExprError(f"Expected a known op in an ExprSpec, got {instr.op}")
        for operand in operands_of(instr):
            if not 0 <= operand.kind < len(ops.OPERANDS):
                raise ExprError(f"Expected a known operand kind in an ExprSpec, got {operand.kind}")


def validate(spec: ExprSpec) -> None:
    """Check every rule of the format.

    Raises
    ------
    ExprError
        For the first rule that does not hold; the message starts with its number.
    """
    _known_codes(spec.instrs if spec.fold is None else (*spec.instrs, *spec.fold.body, *spec.fold.finalize))
    for view in spec.views:
        if view.kind not in ops.VIEW_BY_CODE:
            raise ExprError(f"Expected a known view in an ExprSpec, got {view.kind}")
    for rule in _BEFORE_FOLD:
        rule(spec)
    if spec.fold is not None:
        for fold_rule in _FOLD_RULES:
            fold_rule(spec, spec.fold)
    for rule in _AFTER_FOLD:
        rule(spec)
