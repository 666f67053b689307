"""Which op of the table a call means for operands of given dtypes, and the dtype of its result.

The rules are NumPy's, without the types that tensors cannot have: what NumPy makes an int64 is int32 here, what it
makes a float64 is float32. They look at dtypes alone, never at sizes or values. Python numbers are weak: they take the
dtype of the tensors beside them if that can hold their kind. float16 and bfloat16 are storage dtypes: they are read as
float32, and every function returns float32; :func:`astype` rounds. So a result does not depend on which ops share a
kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from nnk import ops
from nnk.errors import DTypeError
from nnk.expr.dtypes import BOOL, FLOAT32, INT32, UINT8, dtype_of, info_of, is_half
from nnk.expr.node import Tensor, broadcast_shapes, constant, engine_of

__all__ = ["apply", "as_floats", "as_tensor", "astype", "common_dtype", "integer_constant",
           "operands_of", "truth"]

#: Dtypes by rank: the result of mixed operands is the highest of them. The halves rank as float32.
_RANKS = (BOOL, UINT8, INT32, FLOAT32)
_RANK = {"bool": 0, "uint8": 1, "int32": 2, "float32": 3, "float16": 3, "bfloat16": 3}

#: Float op -> op on integers. A pair of operands that is exchanged is marked by "~".
INTEGER_FORM = {"add": "iadd", "sub": "isub", "mul": "imul", "neg": "ineg", "abs": "iabs", "max": "imax",
                "min": "imin", "lt": "ilt", "le": "ile", "gt": "~ilt", "ge": "~ile", "eq": "ieq", "ne": "ine",
                "remainder": "imod", "pow": "ipow"}

#: Float op -> op on the words 1.0 and 0.0 of bools, as NumPy defines it; None: NumPy refuses it.
BOOL_FORM = {"add": "ior", "mul": "iand", "max": "ior", "min": "iand", "abs": "copy", "sub": None, "neg": None,
             "sign": None}

_COMPARES = frozenset(op.name for op in ops.OPS if op.kind == "compare")
_TESTS = frozenset(("isnan", "isinf", "isfinite"))
_BITS = frozenset(("iand", "ior", "ixor", "inot"))
_INTEGER_ONLY = _BITS | {"ishl", "ishr", "idiv", "imod", "ipow"}

#: Ops that leave integers as they are.
_WHOLE = frozenset(("floor", "ceil", "trunc", "rint"))

#: Integer ops that can leave the range of a uint8.
_WRAPS = frozenset(("iadd", "isub", "imul", "ineg", "inot", "ishl", "ipow"))

_Weak = (bool, int, float)


# ------------------------------------------------------------------------------------------ operands

def integer_constant(value: int, dtype: np.dtype[Any], op: str = "array") -> Tensor:
    """Return a scalar constant of an integer dtype or bool.

    Raises
    ------
    DTypeError
        If ``value`` does not fit the dtype.
    """
    if dtype == BOOL:
        return Tensor("const", (), constant(float(bool(value))).attrs, (), BOOL, None)
    limits = np.iinfo(dtype)
    if not limits.min <= value <= limits.max:
        raise DTypeError(f"Expected an integer from {limits.min} to {limits.max} beside a tensor of {dtype.name} for "
                         f"{op}, got {value if abs(value) < 10**20 else f'one of {value.bit_length()} bits'}", op=op,
                         dtypes=(dtype, type(value)))
    return Tensor("const", (), (value & 0xFFFFFFFF,), (), dtype, None)


def _number(value: Any, dtype: np.dtype[Any], op: str) -> Tensor:
    """Return the Python number ``value`` as a constant of ``dtype``."""
    if dtype != FLOAT32:
        return integer_constant(value, dtype, op)
    try:
        return constant(float(value))
    except OverflowError:
        raise DTypeError(f"Expected a number in the range of a float for an operand of {op}, got an integer of "
                         f"{int(value).bit_length()} bits", op=op, dtypes=(type(value),)) from None


def as_tensor(value: Any, engine: Any, op: str) -> Tensor:
    """Return ``value`` as a tensor: a tensor itself, a NumPy scalar as a constant, or an array for ``engine``."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, np.bool_):
        return integer_constant(int(value), BOOL, op)
    if isinstance(value, np.integer):
        return integer_constant(int(value), UINT8 if value.dtype == UINT8 else INT32, op)
    if isinstance(value, np.floating):
        return constant(float(value))
    if isinstance(value, (np.ndarray, list, tuple)):
        if engine is None:
            raise DTypeError(f"Expected at least one tensor among the operands of {op}, got arrays alone; make one "
                             f"with nnk.array", op=op, dtypes=(type(value),))
        tensor: Tensor = engine.array(value)
        return tensor
    raise DTypeError(f"Expected a tensor, a number or an array for an operand of {op}, got {type(value).__name__}",
                     op=op, dtypes=(type(value),))


def common_dtype(dtypes: Iterable[np.dtype[Any]], numbers: Iterable[Any] = ()) -> np.dtype[Any]:
    """Return the dtype in which operands of ``dtypes`` and Python ``numbers`` meet: bool, uint8, int32 or float32."""
    ranks = [_RANK[dtype.name] for dtype in dtypes]
    if not ranks:
        return FLOAT32
    rank = max(ranks)
    for number in numbers:
        if isinstance(number, float):
            rank = 3
        elif not isinstance(number, bool) and rank == 0:
            rank = 2
    return _RANKS[rank]


def operands_of(op: str, values: Sequence[Any]) -> tuple[list[Tensor], np.dtype[Any], Any]:
    """Return ``values`` as tensors, the dtype in which they meet, and their engine. Numbers have that dtype."""
    engine = engine_of(op, (value for value in values if isinstance(value, Tensor)))
    numbers = [value for value in values if type(value) in _Weak]
    found = [value if type(value) in _Weak else as_tensor(value, engine, op) for value in values]
    dtype = common_dtype((tensor.dtype for tensor in found if isinstance(tensor, Tensor)), numbers)
    return [value if isinstance(value, Tensor) else _number(value, dtype, op) for value in found], dtype, engine


def as_floats(op: str, values: Sequence[Any]) -> tuple[tuple[Tensor, ...], Any]:
    """Return ``values`` as tensors of float dtypes, and their engine: integers and bools become float32."""
    engine = engine_of(op, (value for value in values if isinstance(value, Tensor)))
    tensors = [_number(value, FLOAT32, op) if type(value) in _Weak else as_tensor(value, engine, op)
               for value in values]
    return tuple(tensor if info_of(tensor.dtype).word == "float" else astype(tensor, FLOAT32)
                 for tensor in tensors), engine


# ------------------------------------------------------------------------------------------ words

def _node(op: str, args: Sequence[Tensor], dtype: np.dtype[Any]) -> Tensor:
    assert len(args) == ops.OP_BY_NAME[op].arity, op
    shape = args[0].shape if len(args) == 1 else broadcast_shapes(op, [arg.shape for arg in args])
    return Tensor(op, tuple(args), (), shape, dtype, engine_of(op, args))


def _in_words_of(tensor: Tensor, dtype: np.dtype[Any]) -> Tensor:
    """Return ``tensor`` with the words that ``dtype`` has in a register; bools are floats already."""
    word, wanted = info_of(tensor.dtype).word, info_of(dtype).word
    if word == wanted or (word == "bool" and wanted == "float"):
        return tensor
    if wanted == "float":
        return _node("i2f", [tensor], FLOAT32)
    assert (word, wanted) == ("bool", "int"), (word, wanted)
    return _node("b2i", [tensor], dtype)


def truth(tensor: Tensor) -> Tensor:
    """Return a bool tensor: where ``tensor`` is not zero (NaN is not zero)."""
    word = info_of(tensor.dtype).word
    if word == "bool":
        return tensor
    if word == "int":
        return _node("ine", [tensor, integer_constant(0, tensor.dtype)], BOOL)
    return _node("ne", [tensor, constant(0.0)], BOOL)


def astype(tensor: Tensor, dtype: Any) -> Tensor:
    """Return the values of ``tensor`` as ``dtype``; see :meth:`nnk.Tensor.astype`."""
    target = dtype_of(dtype, "astype")
    if target == tensor.dtype:
        return tensor
    word, wanted = info_of(tensor.dtype).word, info_of(target).word
    if wanted == "bool":
        return truth(tensor)
    if wanted == "int":
        if word == "float":
            return _node("f2u8" if target == UINT8 else "f2i", [tensor], target)
        if word == "bool":
            return _node("b2i", [tensor], target)
        return _node("wrap_u8" if target == UINT8 else "copy", [tensor], target)
    values = _in_words_of(tensor, FLOAT32)
    if is_half(target) and word != "bool":
        return _node("round_f16" if target.name == "float16" else "round_bf16", [values], target)
    return values if values.dtype == target else _node("copy", [values], target)


# ------------------------------------------------------------------------------------------ ops

def _wrapped(op: str, args: Sequence[Tensor], dtype: np.dtype[Any]) -> Tensor:
    """Return an integer op, brought back into the range of a uint8."""
    result = _node(op, args, dtype)
    return _node("wrap_u8", [result], dtype) if dtype == UINT8 and op in _WRAPS else result


def _refuse(op: str, tensors: Sequence[Tensor], expected: str) -> DTypeError:
    found = ", ".join(tensor.dtype.name for tensor in tensors)
    return DTypeError(f"Expected {expected} for {op}, got {found}; convert with astype", op=op,
                      dtypes=tuple(tensor.dtype for tensor in tensors))


def _select(values: Sequence[Any]) -> Tensor:
    (condition,), _, _ = operands_of("where", values[:1])
    engine = engine_of("where", (value for value in values if isinstance(value, Tensor)))
    listed = [as_tensor(value, engine, "where") if isinstance(value, (list, tuple, np.ndarray)) else value
              for value in values[1:]]
    tensors, dtype, _ = operands_of("where", listed)
    if info_of(condition.dtype).word == "int":
        condition = truth(condition)
    return _node("select", [condition, *(_in_words_of(tensor, dtype) for tensor in tensors)], dtype)


def _integer(op: str, tensors: Sequence[Tensor], dtype: np.dtype[Any]) -> Tensor | None:
    """Return the op on integers, or None if it has no form for them."""
    words = [_in_words_of(tensor, dtype) for tensor in tensors]
    if op in _WHOLE:
        return words[0]
    if op == "sign":
        above = _node("imin", [words[0], integer_constant(1, dtype)], dtype)
        return above if dtype == UINT8 else _node("imax", [above, integer_constant(-1, dtype)], dtype)
    if op == "abs" and dtype == UINT8:
        return words[0]
    form = INTEGER_FORM.get(op, op if op in _INTEGER_ONLY else None)
    if form is None:
        return None
    if op in _COMPARES:
        return _node(form.lstrip("~"), words[::-1] if form[0] == "~" else words, BOOL)
    return _wrapped(form, words, dtype)


def _bool(op: str, tensors: Sequence[Tensor]) -> Tensor | None:
    """Return the op on bools, or None if they are taken as floats."""
    if op in _BITS:
        return _node("eq", [tensors[0], constant(0.0)], BOOL) if op == "inot" else _node(op, tensors, BOOL)
    if op in _INTEGER_ONLY or op in ("pow", "remainder"):
        return _integer(op, tensors, INT32)
    if op in _WHOLE:
        return tensors[0]
    form = BOOL_FORM.get(op, "")
    if form is None:
        raise _refuse(op, tensors, "numbers that are not bool")
    return _node(form, tensors, BOOL) if form else None


def apply(op: str, values: Sequence[Any]) -> Tensor:
    """Return the elementwise op named ``op`` of the op table over ``values``, by the rules of this module."""
    if op == "select":
        return _select(values)
    tensors, dtype, _ = operands_of(op, values)
    if op == "copy":
        return _node(op, tensors, tensors[0].dtype)
    found: Tensor | None = None
    if dtype == BOOL:
        found = _bool(op, tensors)
    elif dtype != FLOAT32:
        found = _integer(op, tensors, dtype)
    elif op in _INTEGER_ONLY:
        raise _refuse(op, tensors, "integers")
    if found is not None:
        return found
    result = BOOL if op in _COMPARES or op in _TESTS else FLOAT32
    return _node(op, [_in_words_of(tensor, FLOAT32) for tensor in tensors], result)
