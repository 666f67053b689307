"""The sample folds of the format (exprspec 3.7), built instruction by instruction."""

from __future__ import annotations

from nnk.expr.spec import ExprSpec, Fold, Instr, Matmul, Operand, VecAcc, ViewSpec
from tests.oracle import specrules as rules

NEG_INF = 0xFF800000
EXP, GT, NE = 1, 15, 18
ZERO, MASKED = Operand(rules.CONST, 0), Operand(rules.CONST, 1)
COL, ROW, SCORE = Operand(rules.COL, 0), Operand(rules.ROW, 0), Operand(rules.MATMUL, 0)
R0, R1 = Operand(rules.REG, 0), Operand(rules.REG, 1)


class _Body:
    """Registers are handed out upward from the first one after the states."""

    def __init__(self, num_state: int) -> None:
        self.instrs: list[Instr] = []
        self.next = num_state

    def emit(self, op: int, *operands: Operand, dst: int | None = None) -> Operand:
        if dst is None:
            dst, self.next = self.next, self.next + 1
        self.instrs.append(Instr(op, dst, *operands))
        return Operand(rules.REG, dst)


def _reduced(register: Operand) -> Operand:
    return Operand(rules.REDUCE, register.idx)


def attention(head_size: int, heads: int, length: int, mask: str = "plain", bias: bool = False) -> ExprSpec:
    """The attention fold: mask ``plain``, ``causal`` or ``causal_doc``.

    Inputs: Q, K (heads * head_size, length), V (heads * length, head_size), slopes if bias, doc_col and doc_ids if the
    mask looks at documents.
    """
    views = [ViewSpec(rules.LINEAR)] * 3
    slopes = Operand(rules.INPUT, len(views))
    if bias:
        views.append(ViewSpec(rules.BATCH_MOD, 0, heads))
    doc_col, doc_ids = (Operand(rules.INPUT, len(views) + i) for i in range(2))
    if mask == "causal_doc":
        views += [ViewSpec(rules.ROW_BROADCAST), ViewSpec(rules.BATCH_COL, 0, length)]
    body = _Body(2)
    s = body.emit(rules.ADD, SCORE, ZERO)
    if mask != "plain":
        g = body.emit(GT, COL, ROW)
        s = body.emit(rules.ADD, s, body.emit(rules.SELECT, g, MASKED, ZERO))
    if mask == "causal_doc":
        n = body.emit(NE, doc_col, doc_ids)
        s = body.emit(rules.ADD, s, body.emit(rules.SELECT, n, MASKED, ZERO))
    if bias:
        o = body.emit(rules.SUB, COL, ROW)
        s = body.emit(rules.ADD, s, body.emit(rules.MUL, slopes, o))
    mo = body.emit(rules.ADD, R0, ZERO)
    bm = body.emit(rules.ROW_MAX, s)
    body.emit(rules.MAX, mo, _reduced(bm), dst=0)
    al = body.emit(EXP, body.emit(rules.SUB, mo, R0))
    w = body.emit(EXP, body.emit(rules.SUB, s, R0))
    bl = body.emit(rules.ROW_SUM, w)
    la = body.emit(rules.MUL, R1, al)
    body.emit(rules.ADD, la, _reduced(bl), dst=1)
    finalize = (Instr(rules.DIV, body.next, Operand(rules.VEC_STATE, 0), R1),)
    fold = Fold(2, length, (NEG_INF, 0), tuple(body.instrs), finalize, head_size,
                Matmul(0, 1, 1, 0, head_size, heads), VecAcc(0, w.idx, 2, al.idx, 1), int(mask != "plain"))
    return ExprSpec(body.next + 1, (), tuple(views), (0, NEG_INF), (), None, fold)


def row_max(length: int) -> ExprSpec:
    """The running maximum of a row, written out by ``state + 0``."""
    body = (Instr(rules.ROW_MAX, 1, Operand(rules.INPUT, 0)), Instr(rules.MAX, 0, R0, Operand(rules.REDUCE, 1)))
    fold = Fold(1, length, (NEG_INF,), body, (Instr(rules.ADD, 0, R0, ZERO),))
    return ExprSpec(2, (), (ViewSpec(rules.LINEAR),), (0,), (), None, fold)
