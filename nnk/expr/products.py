"""Matrix products: of floats as the matmul of a kernel, of integers and bools as sums of products.

The kernels' matmul adds floats, and reads bools as 0.0 and 1.0. A product of integers reads both operands broadcast on
the grid (m, n, k), where they lie, and reduces k with the exact sum of integers: modulo 2**32 every order gives the
same.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nnk.errors import ShapeError
from nnk.expr.dtypes import BOOL
from nnk.expr.node import FLOAT32, MAX_RANK, Tensor, binary_operands, broadcast_shapes, constant, elementwise
from nnk.expr.out import stored
from nnk.expr.promote import astype, operands_of, truth
from nnk.expr.views import broadcast_to, readable, reshape, swapaxes
from nnk.expr.whole import LONGEST_BYTES, integer_sum

__all__ = ["matmul"]


def _whole_product(left: Tensor, right: Tensor, dtype: np.dtype[Any]) -> Tensor:
    """Return the product of integers (..., m, k) and (..., k, n), one of which may be bools, in ``dtype``."""
    count, last = left.shape[-1], max(left.ndim, right.ndim)
    whole = count // LONGEST_BYTES * LONGEST_BYTES
    most = MAX_RANK - (4 if whole else 3)
    if last - 2 > most:
        raise ShapeError(f"Expected at most {most} batch axes for matmul of integers over k = {count}, got {last - 2} "
                         f"for {left.shape} and {right.shape}; merge some by reshape", op="matmul",
                         shapes=(left.shape, right.shape))
    # (..., m, 1, k) and (..., 1, n, k): views, which broadcast in the kernel.
    rows = readable(left)[..., :, None, :]
    columns = readable(swapaxes(right, -1, -2))[..., None, :, :]
    total: Tensor | None = None
    if whole < count:
        total = integer_sum(elementwise("mul", rows[..., whole:], columns[..., whole:]), (last,), True)
    if whole:
        heads = [reshape(t[..., :whole], (*t.shape[:-1], whole // LONGEST_BYTES, LONGEST_BYTES))
                 for t in (rows, columns)]
        sums = integer_sum(elementwise("mul", *heads), (last + 1,), True)
        sums = integer_sum(reshape(sums, sums.shape[:-1]), (last,), True)
        total = sums if total is None else elementwise("add", sums, total)
    assert total is not None
    total = astype(total, dtype)
    return reshape(total, total.shape[:-1])


def matmul(a: Any, b: Any, *, out: Tensor | None = None) -> Tensor:
    """Return the matrix product of a (..., m, k) and b (..., k, n) as (..., m, n); batches broadcast.

    A 1-D operand is a row (left) or a column (right), and its axis is dropped from the result, as in NumPy. Sums of
    floats run over k in increasing order (docs/numerics.md R8). Integers have a product of their common dtype, which
    wraps around; that of bools is bool: whether any k has both.

    Raises
    ------
    ShapeError
        If an operand is 0-D, the inner sizes differ, or integers have more than 5 batch axes (4 for k >= 65536).
    """
    if out is not None:
        return stored("matmul", matmul(a, b), out, False)
    (left, right), dtype, engine = operands_of("matmul", (a, b))
    if dtype == FLOAT32:
        (left, right), engine = binary_operands("matmul", (left, right))
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
        return Tensor("const", (), constant(0.0).attrs, (*batch, m, n), dtype, engine)
    if dtype not in (FLOAT32, BOOL):
        return _whole_product(left, right, dtype)
    if right.ndim > 2:
        left = broadcast_to(left, (*batch, m, k))
        right = broadcast_to(right, (*batch, k, n))
    product = Tensor("matmul", (left, right), (), (*batch, m, n), FLOAT32, engine)
    # A sum of ones is never rounded to zero.
    return truth(product) if dtype == BOOL else product
