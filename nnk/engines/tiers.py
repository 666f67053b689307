"""The numerics tiers of devices (docs/numerics.md R10): the probes, their right results, and the decision.

A probe is a few operands and one of a handful of expressions, which separate float instructions compute. Its right
result is that of NumPy, whose float32 arithmetic is the contract's (R1). A fault decides how far down a device goes:
one that only flushes subnormals takes tier T2, any other takes T3, where no float instruction counts but the seeds of
division and roots.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from nnk.expr.functions import rsqrt, sqrt, where
from nnk.expr.node import Tensor

__all__ = ["PROBES", "TIERS", "Probe", "decide", "operands", "probe_tensor", "right_bits", "wrong_probes"]

#: From the fastest to the slowest; T1' counts as T1.
TIERS = ("T1", "T2", "T3")

_E = 2.0 ** -12
_ULP = 2.0 ** -23
_INF = float("inf")
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class Probe:
    """``kind`` is the expression: ``fma`` x*y + z, ``twosum`` (x + y) - x, ``div`` x / y, ``sqrt`` x, ``rsqrt`` x.

    ``is_underflow`` says that a failure means flushed subnormals, and nothing worse.
    """

    name: str
    kind: str
    x: float
    y: float = 1.0
    z: float = -0.0
    is_underflow: bool = False


PROBES: tuple[Probe, ...] = (
    Probe("contraction to fma", "fma", 1.0 + _E, 1.0 + _E, -(1.0 + 2 * _E)),
    Probe("reassociation", "twosum", 1.0, 2.0 ** -25),
    Probe("sum of a tie rounded up", "fma", 1.0, 1.0, _ULP / 2),
    Probe("sum of a tie rounded down", "fma", 1.0 + _ULP, 1.0, _ULP / 2),
    Probe("sum rounded toward zero", "fma", 1.0, 1.0, 0.75 * _ULP),
    Probe("negative sum rounded toward zero", "fma", -1.0, 1.0, -0.75 * _ULP),
    Probe("product of a tie rounded down", "fma", 1.0 + _ULP, 1.5),
    Probe("product of a tie rounded up", "fma", 1.0 + 3 * _ULP, 1.5),
    Probe("negative product rounded toward zero", "fma", -(1.0 + _ULP), 1.75),
    Probe("sign of a zero sum", "fma", -1.0, 0.0, -0.0),
    Probe("sign of a zero difference", "fma", 1.0, 1.0, -1.0),
    Probe("infinity times zero", "fma", _INF, 0.0, 1.0),
    Probe("infinity minus infinity", "twosum", _INF, 1.0),
    Probe("NaN times zero", "fma", float("nan"), 0.0, 1.0),
    Probe("overflow of a product", "fma", -_LARGEST, 2.0, 1.0),
    Probe("overflow of a sum", "fma", _LARGEST, 1.0, _LARGEST),
    Probe("subnormal product flushed", "fma", 2.0 ** -100, 2.0 ** -40, is_underflow=True),
    Probe("subnormal factor flushed", "fma", 2.0 ** -140, 2.0 ** 20, is_underflow=True),
    Probe("subnormal sum flushed", "twosum", 2.0 ** -140, 2.0 ** -141, is_underflow=True),
    Probe("subnormal difference flushed", "fma", 1.5 * 2.0 ** -126, 1.0, -(2.0 ** -126), is_underflow=True),
    Probe("tininess after rounding", "fma", float(np.uint32(0x00FFFFFF).view(np.float32)), 0.5, is_underflow=True),
    Probe("subnormal product rounded", "fma", 1.25 * 2.0 ** -70, 1.75 * 2.0 ** -72, is_underflow=True),
    Probe("quotient", "div", 1.0, 3.0),
    Probe("quotient near one", "div", 2.0 - _ULP, 2.0 - 2 * _ULP),
    Probe("quotient of subnormals", "div", 2.0 ** -140, 3 * 2.0 ** -149),
    Probe("subnormal quotient", "div", 1.0 + _ULP, 2.0 ** 127),
    Probe("square root", "sqrt", 2.0),
    Probe("square root near four", "sqrt", 4.0 - 2 * _ULP),
    Probe("square root of a subnormal", "sqrt", 3 * 2.0 ** -149),
    Probe("reciprocal square root", "rsqrt", 3.0),
    Probe("reciprocal square root of a subnormal", "rsqrt", 5 * 2.0 ** -149),
)

_KINDS = ("fma", "twosum", "div", "sqrt", "rsqrt")


def operands() -> list[np.ndarray[tuple[int], np.dtype[np.float32]]]:
    """Return x, y, z and the number of the kind of every probe, each as a float32 array."""
    columns = [[getattr(probe, name) for probe in PROBES] for name in ("x", "y", "z")]
    columns.append([_KINDS.index(probe.kind) for probe in PROBES])
    return [np.array(column, np.float32) for column in columns]


def probe_tensor(x: Tensor, y: Tensor, z: Tensor, kind: Tensor) -> Tensor:
    """Return all probes as one expression of their operands."""
    # Every operand is a value that the driver cannot know, so that it folds nothing.
    roots = where(kind == _KINDS.index("sqrt"), sqrt(x), rsqrt(x))
    rest = where(kind == _KINDS.index("div"), x / y, roots)
    return where(kind == _KINDS.index("fma"), x * y + z, where(kind == _KINDS.index("twosum"), (x + y) - x, rest))


@functools.cache
def right_bits() -> tuple[int, ...]:
    """Return the right result of every probe as bits."""
    x, y, z, kind = operands()
    with np.errstate(all="ignore"):
        results = [x * y + z, (x + y) - x, x / y, np.sqrt(x),
                   (1.0 / np.sqrt(x.astype(np.float64))).astype(np.float32)]
        bits = np.choose(kind.astype(np.int64), results).astype(np.float32).view(np.uint32)
    nan = (bits & 0x7FFFFFFF) > 0x7F800000
    return tuple(int(value) for value in np.where(nan, np.uint32(0x7FC00000), bits))


def wrong_probes(bits: bytes) -> tuple[Probe, ...]:
    """Return the probes whose little-endian result in ``bits`` is not the right one; all if their number differs."""
    found = np.frombuffer(bits, "<u4").tolist() if len(bits) % 4 == 0 else []
    if len(found) != len(PROBES):
        return PROBES
    return tuple(probe for probe, left, right in zip(PROBES, found, right_bits(), strict=True) if left != right)


def decide(promised: str, wrong: tuple[Probe, ...]) -> str:
    """Return the tier of a device.

    Parameters
    ----------
    promised : str
        What its float-controls properties allow, ``T1``, ``T1'`` or ``T3``: ``DeviceInfo.tier``.
    wrong : tuple of Probe
        The probes that native float instructions fail.
    """
    if promised == "T3" or any(not probe.is_underflow for probe in wrong):
        return "T3"
    return "T2" if wrong else promised
