"""The op table: every op, operand kind and view of the ExprSpec IR, with its code.

This table is the single source: the encoder, the validator, the emitter, the CPU engine (through a C header that
setup.py writes from it), the parser and the documentation read it. It imports nothing, so that setup.py can run it.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "BYTES_PER_INSTR",
    "FIRST_OWN_CODE",
    "LIMITS",
    "OPERANDS",
    "OPERAND_BY_NAME",
    "OPS",
    "OP_BY_CODE",
    "OP_BY_NAME",
    "STRIDED_RANKS",
    "VIEWS",
    "VIEW_BY_CODE",
    "VIEW_BY_NAME",
    "Op",
    "OperandKind",
    "View",
    "view_param_words",
]

#: Numbers below this one belong to the format; nnk's own ops and views start here.
FIRST_OWN_CODE = 64

BYTES_PER_INSTR = 8


@dataclass(frozen=True, slots=True)
class Op:
    """One op. ``kind`` is ``unary``, ``binary``, ``compare``, ``select`` or ``reduce``, over float32 values;
    ``integer``, over 32-bit integers; or ``cast``, from the ones to the others.

    ``axis`` is 0 for a row reduction, 1 for a column reduction (exprspec 3.10) and -1 otherwise. ``foldable`` says
    that canonicalisation may evaluate the op on constants.
    """

    code: int
    name: str
    arity: int
    kind: str
    doc: str
    axis: int = -1
    foldable: bool = False


OPS: tuple[Op, ...] = (
    Op(0, "neg", 1, "unary", "-a", foldable=True),
    Op(1, "exp", 1, "unary", "e**a"),
    Op(2, "log", 1, "unary", "natural logarithm of a"),
    Op(3, "sqrt", 1, "unary", "square root of a, correctly rounded"),
    Op(4, "rsqrt", 1, "unary", "1 / sqrt(a), correctly rounded"),
    Op(5, "abs", 1, "unary", "|a|", foldable=True),
    Op(6, "tanh", 1, "unary", "hyperbolic tangent of a"),
    Op(7, "add", 2, "binary", "a + b", foldable=True),
    Op(8, "sub", 2, "binary", "a - b", foldable=True),
    Op(9, "mul", 2, "binary", "a * b", foldable=True),
    Op(10, "div", 2, "binary", "a / b, correctly rounded", foldable=True),
    Op(11, "max", 2, "binary", "IEEE 754-2019 maximum", foldable=True),
    Op(12, "min", 2, "binary", "IEEE 754-2019 minimum", foldable=True),
    Op(13, "lt", 2, "compare", "1.0 where a < b, else 0.0", foldable=True),
    Op(14, "le", 2, "compare", "1.0 where a <= b, else 0.0", foldable=True),
    Op(15, "gt", 2, "compare", "1.0 where a > b, else 0.0", foldable=True),
    Op(16, "ge", 2, "compare", "1.0 where a >= b, else 0.0", foldable=True),
    Op(17, "eq", 2, "compare", "1.0 where a == b, else 0.0", foldable=True),
    Op(18, "ne", 2, "compare", "1.0 where a != b, else 0.0", foldable=True),
    Op(19, "select", 3, "select", "b where a != 0, else c", foldable=True),
    Op(20, "col_sum", 1, "reduce", "sum over the rows, one value a column", axis=1),
    Op(21, "col_max", 1, "reduce", "maximum over the rows, one value a column", axis=1),
    Op(22, "row_sum", 1, "reduce", "sum over the columns, one value a row", axis=0),
    Op(23, "row_max", 1, "reduce", "maximum over the columns, one value a row", axis=0),
    Op(64, "erf", 1, "unary", "error function of a"),
    Op(65, "sigmoid", 1, "unary", "1 / (1 + e**-a)"),
    Op(66, "silu", 1, "unary", "a * sigmoid(a)"),
    Op(67, "gelu", 1, "unary", "a * Phi(a), Phi the normal distribution function"),
    Op(68, "gelu_tanh", 1, "unary", "a * sigmoid(2 sqrt(2/pi) (a + 0.044715 a**3))"),
    Op(69, "copy", 1, "unary", "a itself"),
    Op(70, "sin", 1, "unary", "sine of a, a in radians"),
    Op(71, "cos", 1, "unary", "cosine of a, a in radians"),
    Op(72, "floor", 1, "unary", "largest integer that is not above a"),
    Op(73, "ceil", 1, "unary", "smallest integer that is not below a"),
    Op(74, "trunc", 1, "unary", "a without its fraction"),
    Op(75, "rint", 1, "unary", "integer nearest to a, halves to the even one"),
    Op(76, "sign", 1, "unary", "-1.0, +0.0 or 1.0 as a is below, at or above zero"),
    Op(77, "isnan", 1, "unary", "1.0 where a is NaN, else 0.0"),
    Op(78, "isinf", 1, "unary", "1.0 where a is an infinity, else 0.0"),
    Op(79, "isfinite", 1, "unary", "1.0 where a is neither an infinity nor NaN, else 0.0"),
    Op(80, "exp2", 1, "unary", "2**a"),
    Op(81, "log2", 1, "unary", "logarithm of a to base 2"),
    Op(82, "log1p", 1, "unary", "log(1 + a)"),
    Op(83, "expm1", 1, "unary", "e**a - 1"),
    Op(84, "pow", 2, "binary", "a**b"),
    Op(85, "atan2", 2, "binary", "angle of the point (b, a) in radians, from -pi to pi"),
    Op(86, "fmod", 2, "binary", "a - b trunc(a / b), exact, with the sign of a"),
    Op(87, "remainder", 2, "binary", "a - b floor(a / b), with the sign of b"),
    Op(100, "round_f16", 1, "unary", "a rounded to float16"),
    Op(101, "round_bf16", 1, "unary", "a rounded to bfloat16"),
    Op(102, "i2f", 1, "cast", "int32 to float32, correctly rounded"),
    Op(103, "f2i", 1, "cast", "float32 to int32, toward zero, saturating; NaN gives 0"),
    Op(104, "f2u8", 1, "cast", "float32 to an integer from 0 to 255, toward zero, saturating; NaN gives 0"),
    Op(105, "b2i", 1, "cast", "1 for 1.0, 0 for 0.0"),
    Op(106, "wrap_u8", 1, "cast", "integer a modulo 256"),
    Op(107, "iadd", 2, "integer", "integer a + b modulo 2**32"),
    Op(108, "isub", 2, "integer", "integer a - b modulo 2**32"),
    Op(109, "imul", 2, "integer", "integer a * b modulo 2**32"),
    Op(110, "ineg", 1, "integer", "integer -a modulo 2**32"),
    Op(111, "iabs", 1, "integer", "integer |a| modulo 2**32"),
    Op(112, "imin", 2, "integer", "the smaller integer"),
    Op(113, "imax", 2, "integer", "the larger integer"),
    Op(114, "ilt", 2, "integer", "1.0 where integer a < b, else 0.0"),
    Op(115, "ile", 2, "integer", "1.0 where integer a <= b, else 0.0"),
    Op(116, "ieq", 2, "integer", "1.0 where integer a == b, else 0.0"),
    Op(117, "ine", 2, "integer", "1.0 where integer a != b, else 0.0"),
    Op(118, "iand", 2, "integer", "bits of a and b"),
    Op(119, "ior", 2, "integer", "bits of a or b"),
    Op(120, "ixor", 2, "integer", "bits of either a or b"),
    Op(121, "inot", 1, "integer", "bits that a has not"),
    Op(122, "ishl", 2, "integer", "a shifted left by b bits; 0 unless b is from 0 to 31"),
    Op(123, "ishr", 2, "integer", "a shifted right by b bits, with its sign; a count outside of 0 to 31 counts as 31"),
    Op(124, "idiv", 2, "integer", "integer a / b rounded down; 0 where b is 0"),
    Op(125, "imod", 2, "integer", "a - b * idiv(a, b); 0 where b is 0"),
    Op(126, "ipow", 2, "integer", "integer a**b modulo 2**32; where b is negative 1 / a**-b toward zero, 0 for a = 0"),
)


@dataclass(frozen=True, slots=True)
class OperandKind:
    """One kind of operand; ``indexed`` says whether its idx byte is a slot or register number."""

    code: int
    name: str
    indexed: bool
    doc: str


OPERANDS: tuple[OperandKind, ...] = (
    OperandKind(0, "reg", True, "register: an earlier result"),
    OperandKind(1, "input", True, "input slot, read through its view"),
    OperandKind(2, "const", True, "constant slot"),
    OperandKind(3, "fanout", True, "same as reg"),
    OperandKind(4, "reduce", True, "register of a reduce instruction, broadcast"),
    OperandKind(5, "matmul", False, "value of the matmul segment"),
    OperandKind(6, "row", False, "row number inside its batch, as a float"),
    OperandKind(7, "col", False, "column number, as a float"),
    OperandKind(8, "batch", False, "batch number, as a float"),
    OperandKind(9, "rparam", True, "run-time parameter slot"),
    OperandKind(10, "vec_state", False, "vector state of a fold at the output column"),
)


@dataclass(frozen=True, slots=True)
class View:
    """One way to read an input at (row r, column c) of the grid.

    ``param_words`` is the number of run-time u32 words that a kernel takes for a slot with this view (0: none; see
    :func:`view_param_words` for the strided view). The two param fields are part of the structure key exactly when
    ``keyed`` is true. ``axis`` as in :class:`Op`.
    """

    code: int
    name: str
    param_words: int
    keyed: bool
    doc: str
    axis: int = -1


VIEWS: tuple[View, ...] = (
    View(0, "linear", 0, True, "data[r*cols + c]"),
    View(1, "rotate_half", 1, False, "rows rotated by half a block of param rows"),
    View(2, "row_mod", 1, False, "data[(r mod param)*cols + c]"),
    View(3, "col_reduce_sum", 0, True, "sum over the rows at column c", axis=1),
    View(4, "col_reduce_max", 0, True, "maximum over the rows at column c", axis=1),
    View(5, "row_reduce_sum", 0, True, "sum over the columns at row r", axis=0),
    View(6, "row_reduce_max", 0, True, "maximum over the columns at row r", axis=0),
    View(7, "row_broadcast", 0, True, "data[r]"),
    View(8, "col_broadcast", 0, True, "data[c]"),
    View(9, "row_gather", 0, True, "data[labels[c]*cols + c], labels in input slot param"),
    View(10, "batch_mod", 1, False, "data[batch mod param]"),
    View(11, "batch_col", 1, False, "data[batch*param + c]"),
    View(12, "row_access", 2, False, "data[(param2 + r mod param)*cols + c]"),
    View(13, "grouped_reduce_sum", 1, False, "sum of param consecutive rows at column c"),
    View(14, "grouped_reduce_max", 1, False, "maximum of param consecutive rows at column c"),
    View(15, "head_group", 1, False, "data[r*cols + c]; param = row blocks of a matmul or fold that share one"),
    View(64, "strided", 0, True,
         "data[offset + i[0]*s[0] + ... + i[n-1]*s[n-1] + c*sc], n = param (3 or 7) row dimensions"),
    View(65, "take", 0, True, "data[index[r]*cols + c], int32 index in input slot param"),
)

#: Numbers of row dimensions that a strided view may have: few kernels, whatever the shapes are.
STRIDED_RANKS = (3, 7)


def view_param_words(code: int, param: int) -> int:
    """Return the number of run-time u32 words of a view.

    A strided view of n row dimensions takes 2n+1 words: offset, the sizes of dimensions 1 to n-1, the strides of
    dimensions 0 to n-1, the column stride. Offsets and strides count elements, modulo 2**32.
    """
    if code == VIEW_BY_NAME["strided"].code:
        return 2 * param + 1
    return VIEW_BY_CODE[code].param_words


OP_BY_CODE = {op.code: op for op in OPS}
OP_BY_NAME = {op.name: op for op in OPS}
OPERAND_BY_NAME = {kind.name: kind for kind in OPERANDS}
VIEW_BY_CODE = {view.code: view for view in VIEWS}
VIEW_BY_NAME = {view.name: view for view in VIEWS}

#: Limits of an ExprSpec (exprspec 3.8).
LIMITS = {
    "inputs": 16,
    "consts": 16,
    "rparams": 16,
    "regs": 32,
    "instrs": 64,
    "fold_body": 48,
    "fold_finalize": 16,
    "fold_states": 8,
    "vec_state_len": 1024,
    "fold_matmul_k": 1024,
    "extras": 32,
}
