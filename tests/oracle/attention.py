"""Scaled dot-product attention over NumPy arrays, by rules F1 to F7 of the contract.

Written from the definition, not from the spec of a fold: each step is one rounded operation over all rows at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tests.oracle import arrays, tensors
from tests.oracle.tensors import elementwise

Floats = npt.NDArray[np.float32]

BLOCK = 128
LOWEST = arrays.floats_of([0xFF7FFFFF])[0]


def _scores(q: Floats, k: Floats, mask: Any, doc_ids: Any, alibi: Any, scale: float | None) -> Floats:
    """Scaled, biased and masked scores of shape (..., hq, n, m)."""
    n, m = q.shape[-2], k.shape[-2]
    factor = np.float32(1.0 / np.sqrt(q.shape[-1]) if scale is None else scale)
    scores = elementwise("mul", tensors.matmul(q, np.swapaxes(k, -1, -2)), factor)
    i, j = np.arange(n, dtype=np.float32)[:, None], np.arange(m, dtype=np.float32)
    if mask is not None and not isinstance(mask, str):
        allowed = np.asarray(mask)
        added = np.where(allowed, np.float32(0), np.float32(-np.inf)) if allowed.dtype == bool else allowed
        scores = elementwise("add", scores, added.astype(np.float32))
    if alibi is not None:
        slopes = np.asarray(alibi, np.float32)[:, None, None]
        scores = elementwise("add", scores, elementwise("mul", slopes, elementwise("sub", j, i)))
    if doc_ids is not None:
        ids = np.asarray(doc_ids, np.float32)
        ids = ids[..., None, :] if q.ndim > 2 else ids
        scores = elementwise("select", elementwise("ne", ids[..., :, None], ids[..., None, :]), -np.inf, scores)
    return scores


def attention(q: Floats, k: Floats, v: Floats, mask: Any = None, doc_ids: Any = None, alibi: Any = None,
              scale: float | None = None) -> Floats:
    """The result of nnk.attention, any NaN payload."""
    if q.ndim > 2:
        k, v = (np.repeat(x, q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    scores = _scores(q, k, mask, doc_ids, alibi, scale)
    n, m = scores.shape[-2:]
    values = np.broadcast_to(v, (*scores.shape[:-2], *v.shape[-2:]))
    there = np.broadcast_to(np.arange(n)[:, None] >= np.arange(m) if isinstance(mask, str) else True, scores.shape)
    largest = np.full((*scores.shape[:-1], 1), -np.inf, np.float32)
    total = np.zeros_like(largest)
    result = np.full((*scores.shape[:-1], v.shape[-1]), -0.0, np.float32)
    for first in range(0, m, BLOCK):
        block = slice(first, first + BLOCK)
        some = there[..., block].any(-1, keepdims=True)
        top = tensors.max_of(np.where(there[..., block], scores[..., block], LOWEST), -1, True)
        new = elementwise("max", largest, elementwise("max", top, LOWEST))
        factor = elementwise("exp", elementwise("sub", largest, new))
        weights = elementwise("exp", elementwise("sub", scores[..., block], new))
        added = tensors.sum_of(np.where(there[..., block], weights, np.float32(-0.0)), -1, True)
        total = np.where(some, elementwise("add", elementwise("mul", total, factor), added), total)
        result = np.where(some, elementwise("mul", result, factor), result)
        for j in range(weights.shape[-1]):
            step = elementwise("mul", weights[..., j:j + 1], values[..., None, first + j, :])
            result = np.where(there[..., first + j:first + j + 1], elementwise("add", result, step), result)
        largest = np.where(some, new, largest)
    return elementwise("div", result, total)
