"""``out=``: the result goes to a tensor that exists already.

Tensors are values: no kernel writes into memory that another tensor reads. With ``out=`` the result is computed at
once, and then ``out`` owns it instead of what it had. So ``out`` may be an operand itself, as it is or through views,
and the result is the same as without. What reads the old values lazily could not be computed any more: it raises (see
:func:`nnk.expr.node.check_operands`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nnk.errors import DTypeError, ExprError, ShapeError
from nnk.expr.dtypes import info_of
from nnk.expr.node import Tensor, overwrite
from nnk.expr.promote import astype
from nnk.expr.views import broadcast_to

__all__ = ["stored"]

#: A result may go to a dtype of its own rank or a higher one.
_RANK = {"bool": 0, "uint8": 1, "int32": 2, "float32": 3, "float16": 3, "bfloat16": 3}


def _checked(op: str, out: Any) -> Tensor:
    if not isinstance(out, Tensor):
        raise DTypeError(f"Expected a tensor for out of {op}, got {type(out).__name__}; make one with nnk.array", op=op,
                         dtypes=(type(out),))
    if out.storage is None:
        raise ExprError(f"Expected a tensor with storage of its own for out of {op}, got a lazy one (shape "
                        f"{out.shape}); call its eval() first, or use the result of {op} instead", op=op)
    return out


def stored(op: str, result: Tensor, out: Tensor | None, broadcasts: bool = True) -> Tensor:
    """Return ``result``, or ``out`` with its values if that is given.

    Parameters
    ----------
    op : str
        The function, for messages.
    result : Tensor
        Lazy, in general.
    out : Tensor or None
        A tensor with storage (an array, or evaluated), of the engine of the result. It is changed. Its dtype may be
        wider, or a half for a result of float32, which is rounded: NumPy's rule "same_kind".
    broadcasts : bool
        Whether a larger ``out`` is filled with a broadcast result, as NumPy's elementwise functions do.

    Raises
    ------
    DTypeError
        If ``out`` is no tensor, or of a dtype that does not hold the result.
    ShapeError
        If the result does not fit the shape of ``out``.
    ExprError
        If ``out`` is lazy or of another engine, or a region of ``nnk.record()`` is open.
    """
    if out is None:
        return result
    out = _checked(op, out)
    if result.engine is None:
        # Of numbers alone: they are computed where the result goes.
        result = Tensor(result.op, result.args, result.attrs, result.shape, result.dtype, out.engine)
    if result.engine is not out.engine:
        raise ExprError(f"Expected out of {op} on {result.engine}, got a tensor of {out.engine}", op=op)
    if result.shape != out.shape:
        if not broadcasts or np.broadcast_shapes(result.shape, out.shape) != out.shape:
            raise ShapeError(f"Expected shape {result.shape} for out of {op}, got {out.shape}", op=op,
                             shapes=(result.shape, out.shape))
        result = broadcast_to(result, out.shape)
    if result.dtype != out.dtype:
        if _RANK[info_of(result.dtype).name] > _RANK[info_of(out.dtype).name]:
            raise DTypeError(f"Expected a dtype that holds {result.dtype} for out of {op}, got {out.dtype}; convert "
                             f"the result with astype", op=op, dtypes=(result.dtype, out.dtype))
        result = astype(result, out.dtype)
    result.eval()
    if result.storage is None:
        raise ExprError(f"Expected no open region of nnk.record() around {op} with out, which computes at once", op=op)
    overwrite(out, result)
    return out
