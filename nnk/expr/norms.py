"""The compositions that models use: softmax and norms, one kernel each."""

from __future__ import annotations

from typing import Any

from nnk.errors import ShapeError
from nnk.expr.functions import exp, rsqrt
from nnk.expr.node import Tensor, binary_operands, run_time_parameter
from nnk.expr.reductions import mean, reduce_max, reduce_sum
from nnk.expr.views import normalise_axes, reshape, swapaxes

__all__ = ["layer_norm", "rms_norm", "softmax"]


def softmax(x: Any, axis: int = -1) -> Tensor:
    """Return exp(x - max(x)) / sum(exp(x - max(x))) over ``axis``: one kernel over the last or the first axis.

    A row of only -inf gives NaN.
    """
    (tensor,), _ = binary_operands("softmax", (x,))
    (position,) = normalise_axes(axis, tensor.ndim, "softmax")
    if tensor.size == 0:
        return tensor
    if position == 0 and tensor.ndim > 2:
        return reshape(softmax(reshape(tensor, (tensor.shape[0], -1)), 0), tensor.shape)
    if position != tensor.ndim - 1 and tensor.ndim > 2:
        return swapaxes(softmax(swapaxes(tensor, position, -1)), position, -1)
    weights = exp(tensor - reduce_max(tensor, position, keepdims=True))
    return weights / reduce_sum(weights, position, keepdims=True)


def _norm_parameters(op: str, x: Tensor, *parameters: Any) -> list[Tensor | None]:
    """Return weight and bias as tensors of shape (n,), or () for numbers."""
    tensors = [None if parameter is None else binary_operands(op, (x, parameter))[0][1] for parameter in parameters]
    for tensor in tensors:
        if tensor is not None and tensor.op != "const" and tensor.shape != x.shape[-1:]:
            raise ShapeError(f"Expected shape {x.shape[-1:]} for weight and bias of {op}, got {tensor.shape}", op=op,
                             shapes=(x.shape, tensor.shape))
    return tensors


def layer_norm(x: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Tensor:
    """Return (x - mean) * rsqrt(var + eps) * weight + bias over the last axis: one kernel (Ba et al., 2016).

    Parameters
    ----------
    x : Tensor of shape (..., n)
    weight, bias : Tensor of shape (n,), optional
    eps : float
        Added to the variance (mean of squared differences).
    """
    (tensor,), _ = binary_operands("layer_norm", (x,))
    weight, bias = _norm_parameters("layer_norm", tensor, weight, bias)
    centred = tensor - mean(tensor, -1, keepdims=True)
    result = centred * rsqrt(mean(centred * centred, -1, keepdims=True) + run_time_parameter(eps))
    if weight is not None:
        result = result * weight
    return result if bias is None else result + bias


def rms_norm(x: Any, weight: Any = None, eps: float = 1e-6) -> Tensor:
    """Return x * rsqrt(mean(x**2) + eps) * weight over the last axis: one kernel (Zhang and Sennrich, 2019).

    Parameters
    ----------
    x : Tensor of shape (..., n)
    weight : Tensor of shape (n,), optional
    """
    (tensor,), _ = binary_operands("rms_norm", (x,))
    (weight,) = _norm_parameters("rms_norm", tensor, weight)
    result = tensor * rsqrt(mean(tensor * tensor, -1, keepdims=True) + run_time_parameter(eps))
    return result if weight is None else result * weight
