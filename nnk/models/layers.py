"""Layers as functions on tensors. Shapes: b texts, t tokens, h heads, d head size, e = h * d features."""

from __future__ import annotations

import math

from nnk.expr.functions import maximum, sqrt, where
from nnk.expr.node import Tensor, run_time_parameter
from nnk.expr.norms import layer_norm, softmax
from nnk.expr.products import matmul
from nnk.expr.reductions import reduce_sum

__all__ = ["add_norm", "l2_normalise", "linear", "mean_pool", "self_attention"]


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return ``x @ weight + bias``.

    Parameters
    ----------
    x : Tensor of shape (..., in)
    weight : Tensor of shape (in, out)
    bias : Tensor of shape (out,)
    """
    return matmul(x, weight) + bias


def add_norm(x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """Return the layer norm of ``x + residual`` over the last axis (post-norm transformer block)."""
    return layer_norm(x + residual, weight, bias, eps)


def self_attention(qkv: Tensor, mask_bias: Tensor, heads: int) -> Tensor:
    """Return softmax(q k^T / sqrt(d) + mask_bias) v, the heads side by side (Vaswani et al., 2017).

    Parameters
    ----------
    qkv : Tensor of shape (b, t, 3 * e)
        Queries, keys and values after another.
    mask_bias : Tensor of shape (b, 1, 1, t)
        0 for a token, -inf for padding.

    Returns
    -------
    Tensor of shape (b, t, e)
    """
    batch, tokens, width = qkv.shape
    features = width // 3
    size = features // heads
    split = qkv.reshape(batch, tokens, 3, heads, size)
    query, key, value = (split[:, :, part].permute(0, 2, 1, 3) for part in range(3))
    scores = matmul(query, key.swapaxes(-1, -2)) * run_time_parameter(1.0 / math.sqrt(size))
    mixed = matmul(softmax(scores + mask_bias), value)
    return mixed.permute(0, 2, 1, 3).reshape(batch, tokens, features)


def mean_pool(x: Tensor, mask: Tensor, counts: Tensor) -> Tensor:
    """Return the mean over the tokens that ``mask`` keeps.

    A dropped token enters the sum as -0.0, which changes no sum, so that padding changes no bit.

    Parameters
    ----------
    x : Tensor of shape (b, t, e)
    mask : Tensor of shape (b, 1, t)
        1 for a token, 0 for padding.
    counts : Tensor of shape (b, 1)
        Tokens of each text.

    Returns
    -------
    Tensor of shape (b, e)
    """
    kept = where(mask, x.permute(0, 2, 1), -0.0)
    return reduce_sum(kept, -1, keepdims=True).reshape(x.shape[0], x.shape[2]) / counts


def l2_normalise(x: Tensor, eps: float = 1e-12) -> Tensor:
    """Return ``x`` divided by its Euclidean norm (at least ``eps``) over the last axis."""
    norm = sqrt(reduce_sum(x * x, -1, keepdims=True))
    return x / maximum(norm, run_time_parameter(eps))
