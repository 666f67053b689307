"""Comparison of results: digests and the first difference in bits."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from nnk.errors import ParityError
from nnk.expr.node import Tensor

__all__ = ["SUITE", "compare", "digest", "ordinary_values", "random_words", "special_values"]

#: Expressions of ``nnk parity``: every op, every kernel form.
SUITE = (
    "x + w * 2 - 1", "x / w", "-abs(x)", "x ** 3", "x ** -2", "power(abs(x), w) + x ** w",
    "arctan2(x, w) + arctan(w)", "fmod(x, w)", "remainder(x * 100, w)", "floor_divide(x, w)",
    "maximum(x, w)", "minimum(x, w)", "where(x < w, x, w)",
    "(x <= w) + (x > w) + (x >= w) + (x == w) + (x != w)", "exp(x)", "log(x)", "sqrt(x)", "rsqrt(x)", "tanh(x * w + 3)",
    "sigmoid(x)", "erf(x)", "relu(x)", "silu(x)", "gelu(x)", "gelu_tanh(x)", "sum(x)", "max(x)", "min(x)", "mean(x)",
    "softmax(x)", "layer_norm(x)", "rms_norm(x)", "x @ w", "gelu(x @ w + 1) + x", "x @ transpose(w)",
    "softmax(x @ transpose(w)) @ w", "sin(x * 100)", "cos(x)", "exp2(x * w)", "log2(x)", "log1p(x)", "expm1(x)",
    "floor(x * w)", "ceil(x * w)", "trunc(x * 2)", "round(x * 2)", "sign(x)",
    "isnan(x / w) + 2 * isinf(x / w) + 4 * isfinite(x)", "logical_or(x, logical_and(x != w, logical_not(w)))",
    "clip(x, -1, w)", "attention(x, w, x + w)", "causal_attention(x, w, x)", "attention(x, w, w, x)",
    "square(x) + reciprocal(w)",
    # Dtypes: halves as inputs and outputs of every form, casts, integers and bools.
    "float16(x)", "bfloat16(x)", "tanh(float16(x) * bfloat16(w) + 1)", "bfloat16(softmax(float16(x)))",
    "float16(transpose(bfloat16(x)) + 1)", "float16(float16(x) @ bfloat16(w))", "bfloat16(gelu(x @ float16(w)) + x)",
    "int32(x * 1000)", "uint8(x * 100 + 100)", "float32(int32(x * 1e9))", "int32(uint8(w * 50)) - int32(x > w)",
    "uint8(int32(x * 1000)) * 3 + uint8(x)", "abs(int32(x * 3)) - int32(x) * int32(w * 1e5)", "-int32(x * 1e9)",
    "maximum(int32(x * 9), int32(w * 9))", "minimum(int32(x * 9), 2)", "int32(x * 9) // int32(w * 3)",
    "int32(x * 9) % int32(w * 3)", "(int32(x * 9) < 3) & (int32(w * 9) >= int32(x * 9))", "(int32(x) != 0) | (x > w)",
    "(int32(x) <= 1) ^ (uint8(w) == 1)", "~uint8(x * 9) & 60 | uint8(w)", "int32(x * 9) << (int32(w) + 2)",
    "int32(x * 1e9) >> uint8(w * 9)", "where(x > w, uint8(x), uint8(w))", "transpose(x) > 0", "transpose(uint8(x * 9))",
    "sum(int32(x * 1e9))", "max(int32(x * 1e9)) - min(int32(w * 1e9))", "sum(x > w) + max(uint8(x * 99))",
    "argmax(x) * 1000 + argmin(int32(w * 9))",
    "int32(x * 9) ** int32(abs(w) * 99) + fmod(int32(x * 999), int32(w * 9))",
    "int32(x * 1e6) @ int32(w * 1e5)", "uint8(x * 99) @ transpose(uint8(w * 99))", "(x > 1) @ (w > 1)",
    "log10(abs(x)) + hypot(x, w)", "arcsin(x / 16) - arccos(w / 16)")

#: Bit patterns where kernels go wrong: zeros, infinities, NaNs with payloads, subnormals, boundaries.
_SPECIAL = np.array([
    0x00000000, 0x80000000, 0x3F800000, 0xBF800000, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001, 0x7F800001,
    0x00000001, 0x80000001, 0x007FFFFF, 0x00800000, 0x807FFFFF, 0x7F7FFFFF, 0xFF7FFFFF, 0x3F7FFFFF, 0x3F800001,
    0x42B17218, 0xC2CFF1B5, 0x40490FDB, 0x4B800000, 0x00FFFFFF, 0x33800000], np.uint32)


def random_words(count: int, seed: int) -> np.ndarray[Any, Any]:
    """Return ``count`` random 32-bit words: SplitMix64 (Steele, Lea, Flood 2014) over counters.

    They are integer arithmetic alone and therefore the same with every version of NumPy and every C library, as
    digests over results need them to be.
    """
    with np.errstate(over="ignore"):
        z = (np.arange(1, count + 1, dtype=np.uint64) + np.uint64(seed << 32)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        return (z >> np.uint64(32) ^ z & np.uint64(0xFFFFFFFF)).astype(np.uint32)


def ordinary_values(shape: tuple[int, ...], seed: int) -> np.ndarray[Any, Any]:
    """Return float32 values of ``shape`` with magnitudes from 2**-7 to 16; equal for equal seeds, everywhere."""
    words = random_words(math.prod(shape), seed)
    exponents = np.uint32(120) + (words >> np.uint32(23) & np.uint32(255)) % np.uint32(11)
    bits = words & np.uint32(0x807FFFFF) | exponents << np.uint32(23)
    return bits.view(np.float32).reshape(shape)


def special_values(shape: tuple[int, ...], seed: int) -> np.ndarray[Any, Any]:
    """Return float32 values of ``shape``, ordinary ones with every eighth a special one; equal for equal seeds.

    The first row has no NaN or infinity, so that sums and products over it stay finite and informative.
    """
    bits = ordinary_values(shape, seed).view(np.uint32)
    choice = random_words(bits.size, seed ^ 0x5EED).reshape(shape)
    chosen = choice % np.uint32(8) == 0
    if len(shape) > 1:
        chosen[:1] = False
    specials = _SPECIAL[(choice >> np.uint32(3)) % np.uint32(_SPECIAL.size)]
    return np.where(chosen, specials, bits).astype(np.uint32).view(np.float32)


def digest(value: Tensor | np.ndarray[Any, Any] | Mapping[str, Any]) -> str:
    """Return 16 hex digits over shape, dtype and bits of ``value``: equal digests mean equal results.

    The hash is BLAKE2b with 8 bytes over the dtype's name, the shape as text, and the row-major little-endian
    elements. Of a mapping it is taken over the lines ``digest name`` in the order of the names. It is stable between
    versions, engines and machines.
    """
    if isinstance(value, Mapping):
        lines = "".join(f"{digest(value[name])} {name}\n" for name in sorted(value))
        return hashlib.blake2b(lines.encode(), digest_size=8).hexdigest()
    array = value.numpy() if isinstance(value, Tensor) else np.asarray(value)
    data = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    state = hashlib.blake2b(digest_size=8)
    state.update(f"{array.dtype.name}:{','.join(map(str, array.shape))}:".encode())
    state.update(data.tobytes())
    return state.hexdigest()


def compare(cpu: np.ndarray[Any, Any], gpu: np.ndarray[Any, Any]) -> None:
    """Check that two results have the same shape, dtype and bits.

    Raises
    ------
    ParityError
        With the index of the first difference and both bit patterns.
    """
    if cpu.shape != gpu.shape:
        raise ParityError(f"Expected equal shapes, got {cpu.shape} and {gpu.shape}")
    if cpu.dtype != gpu.dtype:
        raise ParityError(f"Expected equal dtypes, got {cpu.dtype} and {gpu.dtype}")
    bits = np.dtype(f"u{cpu.dtype.itemsize}")
    left, right = (np.ascontiguousarray(array).reshape(-1).view(bits) for array in (cpu, gpu))
    different = np.flatnonzero(left != right)
    if different.size:
        first = int(different[0])
        index = tuple(int(i) for i in np.unravel_index(first, cpu.shape)) if cpu.shape else ()
        raise ParityError(f"{different.size} of {left.size} elements differ; the first at {index}: "
                          f"0x{int(left[first]):0{2 * bits.itemsize}x} and "
                          f"0x{int(right[first]):0{2 * bits.itemsize}x}",
                          index=index, cpu_bits=int(left[first]), gpu_bits=int(right[first]))
