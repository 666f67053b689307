"""Matrix products."""

from __future__ import annotations

from typing import Any

from nnk.errors import ShapeError
from nnk.expr.node import FLOAT32, Tensor, broadcast_shapes, constant
from nnk.expr.out import stored
from nnk.expr.promote import as_real
from nnk.expr.views import broadcast_to, reshape

__all__ = ["matmul"]


def matmul(a: Any, b: Any, *, out: Tensor | None = None) -> Tensor:
    """Return the matrix product of a (..., m, k) and b (..., k, n) as (..., m, n); batches broadcast.

    A 1-D operand is a row (left) or a column (right), and its axis is dropped from the result, as in NumPy. Sums run
    over k in increasing order (docs/numerics.md R8).

    Raises
    ------
    ShapeError
        If an operand is 0-D or the inner sizes differ.
    """
    if out is not None:
        return stored("matmul", matmul(a, b), out, False)
    (left, right), engine = as_real("matmul", (a, b))
    if left.ndim == 0 or right.ndim == 0:
        raise ShapeError(f"Expected operands with at least one axis for matmul, got {left.shape} and {right.shape}",
                         op="matmul", shapes=(left.shape, right.shape))
    inner = (left.shape[-1], right.shape[max(right.ndim - 2, 0)])
    if inner[0] != inner[1]:
        raise ShapeError(f"Expected equal inner sizes for matmul, got {left.shape} and {right.shape} ({inner[0]} and "
                         f"{inner[1]})", op="matmul", shapes=(left.shape, right.shape))
    if left.ndim == 1:
        product = matmul(reshape(left, (1, left.shape[0])), right)
        return reshape(product, (*product.shape[:-2], product.shape[-1]) if right.ndim > 1 else product.shape[1:])
    if right.ndim == 1:
        product = matmul(left, reshape(right, (right.shape[0], 1)))
        return reshape(product, product.shape[:-1])
    (m, k), n = left.shape[-2:], right.shape[-1]
    batch = broadcast_shapes("matmul", [left.shape[:-2], right.shape[:-2]])
    if k == 0:
        return Tensor("const", (), constant(0.0).attrs, (*batch, m, n), FLOAT32, engine)
    if right.ndim > 2:
        left = broadcast_to(left, (*batch, m, k))
        right = broadcast_to(right, (*batch, k, n))
    return Tensor("matmul", (left, right), (), (*batch, m, n), FLOAT32, engine)
