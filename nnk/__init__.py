"""nnk: tensor expressions, one fused Vulkan compute kernel each, the same bits on every device.

>>> import nnk
>>> engine = nnk.engine("cpu")
>>> x = nnk.array([[1.0, 2.0], [3.0, 4.0]], engine=engine)
>>> (x * 2 + 1).numpy().tolist()
[[3.0, 5.0], [7.0, 9.0]]

Importing nnk loads neither vulkan nor shaderc and touches no device: names are loaded when they are used first.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from nnk._version import __version__

if TYPE_CHECKING:
    from nnk import exprspec as exprspec
    from nnk import kvrecord as kvrecord
    from nnk.api import (
        arange,
        array,
        asarray,
        cache_path,
        devices,
        empty,
        empty_like,
        engine,
        full,
        full_like,
        ones,
        ones_like,
        zeros,
        zeros_like,
    )
    from nnk.cache.store import KernelCache
    from nnk.engines.explain import explain
    from nnk.engines.parity import digest
    from nnk.expr.attention import attention
    from nnk.expr.functions import (
        absolute,
        arccos,
        arcsin,
        arctan,
        arctan2,
        bitwise_and,
        bitwise_or,
        bitwise_xor,
        ceil,
        clip,
        cos,
        erf,
        exp,
        exp2,
        expm1,
        floor,
        floor_divide,
        fmod,
        gelu,
        hypot,
        invert,
        isfinite,
        isinf,
        isnan,
        left_shift,
        log,
        log1p,
        log2,
        log10,
        logical_and,
        logical_not,
        logical_or,
        logical_xor,
        maximum,
        minimum,
        negative,
        power,
        reciprocal,
        relu,
        remainder,
        right_shift,
        rsqrt,
        sigmoid,
        sign,
        silu,
        sin,
        sqrt,
        square,
        tanh,
        trunc,
        where,
    )
    from nnk.expr.functions import rint as round
    from nnk.expr.node import Tensor
    from nnk.expr.norms import layer_norm, rms_norm, softmax
    from nnk.expr.operators import (
        add,
        divide,
        equal,
        greater,
        greater_equal,
        less,
        less_equal,
        multiply,
        not_equal,
        subtract,
    )
    from nnk.expr.positions import argmax, argmin
    from nnk.expr.products import matmul
    from nnk.expr.reductions import mean
    from nnk.expr.reductions import reduce_max as amax
    from nnk.expr.reductions import reduce_max as max
    from nnk.expr.reductions import reduce_min as amin
    from nnk.expr.reductions import reduce_min as min
    from nnk.expr.reductions import reduce_sum as sum
    from nnk.expr.statistics import reduce_all as all
    from nnk.expr.statistics import reduce_any as any
    from nnk.expr.statistics import std, var
    from nnk.expr.views import (
        broadcast_to,
        expand_dims,
        moveaxis,
        ravel,
        reshape,
        squeeze,
        swapaxes,
        take,
        transpose,
    )
    from nnk.models.warmup import model_warmup

__all__ = [
    "KernelCache",
    "Tensor",
    "__version__",
    "absolute",
    "add",
    "all",
    "amax",
    "amin",
    "any",
    "arange",
    "arccos",
    "arcsin",
    "arctan",
    "arctan2",
    "argmax",
    "argmin",
    "array",
    "asarray",
    "attention",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "broadcast_to",
    "cache_path",
    "ceil",
    "clip",
    "cos",
    "devices",
    "digest",
    "divide",
    "empty",
    "empty_like",
    "engine",
    "equal",
    "erf",
    "eval",
    "exp",
    "exp2",
    "expand_dims",
    "explain",
    "expm1",
    "exprspec",
    "floor",
    "floor_divide",
    "fmod",
    "full",
    "full_like",
    "gelu",
    "greater",
    "greater_equal",
    "hypot",
    "invert",
    "isfinite",
    "isinf",
    "isnan",
    "kvrecord",
    "layer_norm",
    "left_shift",
    "less",
    "less_equal",
    "log",
    "log1p",
    "log2",
    "log10",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "matmul",
    "max",
    "maximum",
    "mean",
    "min",
    "minimum",
    "model_warmup",
    "moveaxis",
    "multiply",
    "negative",
    "not_equal",
    "ones",
    "ones_like",
    "power",
    "ravel",
    "reciprocal",
    "record",
    "relu",
    "remainder",
    "reshape",
    "right_shift",
    "rms_norm",
    "round",
    "rsqrt",
    "sigmoid",
    "sign",
    "silu",
    "sin",
    "softmax",
    "sqrt",
    "square",
    "squeeze",
    "std",
    "subtract",
    "sum",
    "swapaxes",
    "take",
    "tanh",
    "transpose",
    "trunc",
    "var",
    "where",
    "zeros",
    "zeros_like",
]

#: Public name -> (module, name there): where a name is loaded from on first use.
_SOURCES: dict[str, tuple[str, str]] = {
    **{name: ("nnk.api", name) for name in (
        "arange", "array", "asarray", "cache_path", "devices", "empty", "empty_like", "engine", "full", "full_like",
        "ones", "ones_like", "zeros", "zeros_like")},
    **{name: ("nnk.expr.functions", name) for name in (
        "absolute", "arccos", "arcsin", "arctan", "arctan2", "bitwise_and", "bitwise_or", "bitwise_xor", "ceil", "clip",
        "cos", "erf", "exp", "exp2", "expm1", "floor", "floor_divide", "fmod", "gelu", "hypot", "invert", "isfinite",
        "isinf", "isnan", "left_shift", "log", "log10", "log1p", "log2", "logical_and", "logical_not", "logical_or",
        "logical_xor", "maximum", "minimum", "negative", "power", "reciprocal", "relu", "remainder", "right_shift",
        "rsqrt", "sigmoid", "sign", "silu", "sin", "sqrt", "square", "tanh", "trunc", "where")},
    **{name: ("nnk.expr.positions", name) for name in ("argmax", "argmin")},
    **{name: ("nnk.expr.norms", name) for name in ("layer_norm", "rms_norm", "softmax")},
    **{name: ("nnk.expr.operators", name) for name in (
        "add", "divide", "equal", "greater", "greater_equal", "less", "less_equal", "multiply", "not_equal",
        "subtract")},
    **{name: ("nnk.expr.reductions", f"reduce_{name}") for name in ("max", "min", "sum")},
    **{f"a{name}": ("nnk.expr.reductions", f"reduce_{name}") for name in ("max", "min")},
    **{name: ("nnk.expr.statistics", f"reduce_{name}") for name in ("all", "any")},
    **{name: ("nnk.expr.statistics", name) for name in ("std", "var")},
    **{name: ("nnk.expr.views", name) for name in (
        "broadcast_to", "expand_dims", "moveaxis", "ravel", "reshape", "squeeze", "swapaxes", "take", "transpose")},
    "matmul": ("nnk.expr.products", "matmul"),
    "mean": ("nnk.expr.reductions", "mean"),
    "KernelCache": ("nnk.cache.store", "KernelCache"),
    "Tensor": ("nnk.expr.node", "Tensor"),
    "attention": ("nnk.expr.attention", "attention"),
    "digest": ("nnk.engines.parity", "digest"),
    "eval": ("nnk.engines.region", "evaluate"),
    "explain": ("nnk.engines.explain", "explain"),
    "record": ("nnk.engines.region", "record"),
    "model_warmup": ("nnk.models.warmup", "model_warmup"),
    "round": ("nnk.expr.functions", "rint"),
}


def __getattr__(name: str) -> Any:
    if name in ("exprspec", "kvrecord"):
        return importlib.import_module(f"nnk.{name}")
    try:
        module, source = _SOURCES[name]
    except KeyError:
        raise AttributeError(f"module 'nnk' has no attribute {name!r}") from None
    value = getattr(importlib.import_module(module), source)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
