"""The start-up self-test of a device (docs/numerics.md R10): one small kernel, compared with the exact result.

It finds drivers that contract, reassociate or flush subnormals although they were told not to. Every Vulkan engine
runs it when it opens; the kernel is cached like any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nnk.errors import DeviceError
from nnk.expr.functions import where

if TYPE_CHECKING:
    from nnk.engines.gpu import GpuEngine

__all__ = ["PROBES", "check_device"]

_E = 2.0 ** -12

#: Name, kind (1: x*y + z, 0: (x+y) - x), x, y, z. NumPy's float32 arithmetic is the contract's (R1), one op a time.
PROBES: tuple[tuple[str, int, float, float, float], ...] = (
    ("contraction to fma", 1, 1.0 + _E, 1.0 + _E, -(1.0 + 2 * _E)),
    ("reassociation", 0, 1.0, 2.0 ** -25, 0.0),
    ("subnormal product flushed", 1, 2.0 ** -100, 2.0 ** -40, -0.0),
    ("subnormal factor flushed", 1, 2.0 ** -140, 2.0 ** 20, -0.0),
    ("subnormal sum flushed", 0, 2.0 ** -140, 2.0 ** -141, 0.0),
    ("tininess after rounding", 1, float(np.uint32(0x00FFFFFF).view(np.float32)), 0.5, -0.0),
)


def check_device(engine: GpuEngine) -> None:
    """Run the probes on ``engine``.

    Raises
    ------
    DeviceError
        If the device cannot give the contract's bits; the message names the probes that failed.
    """
    info = engine.info
    if info.tier == "T3":
        raise DeviceError(f"Expected a device that rounds float32 to nearest even and preserves signed zeros, "
                          f"infinities and NaNs, got {info.name} without; use the CPU engine")
    kind, x, y, z = (np.array([row[column] for row in PROBES], np.float32) for column in range(1, 5))
    expected = np.where(kind == 1, x * y + z, (x + y) - x)
    a, b, c, k = (engine.array(values) for values in (x, y, z, kind))
    found = where(k, a * b + c, (a + b) - a).numpy()
    wrong = [row[0] for row, left, right in zip(PROBES, expected.view(np.uint32), found.view(np.uint32), strict=True)
             if left != right]
    if wrong:
        raise DeviceError(f"Expected exact float32 arithmetic on {info.name} ({info.driver_name}), found: "
                          f"{', '.join(wrong)}; use the CPU engine")
