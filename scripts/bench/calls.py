#!/usr/bin/env python3
"""Steady calls of tanh(x*w+3), 64 x 64, and throughput of a fused chain, against numpy in the same run.

A call builds the expression, evaluates it and drops it. "awaited" waits for the device after each call; "queued" waits
once, after all calls of a loop.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import harness

import nnk
from nnk.engines.base import Engine

_CALLS = 200


def _small(repeat: int, devices: list[Engine]) -> list[harness.Result]:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((64, 64)).astype(np.float32) for _ in range(2))
    results = [harness.measure("numpy: call", lambda: np.tanh(a * b + np.float32(3)), repeat)]
    for engine in devices:
        x, w = nnk.array(a, engine=engine), nnk.array(b, engine=engine)

        def awaited(x: nnk.Tensor = x, w: nnk.Tensor = w, engine: Engine = engine) -> None:
            nnk.tanh(x * w + 3).eval()
            engine.synchronize()

        def queued(x: nnk.Tensor = x, w: nnk.Tensor = w, engine: Engine = engine) -> None:
            for _ in range(_CALLS):
                nnk.tanh(x * w + 3).eval()
            engine.synchronize()

        results.append(harness.measure(f"nnk {engine}: awaited", awaited, repeat))
        loop = harness.measure(f"nnk {engine}: queued", queued, repeat, number=1)
        results.append(harness.Result(loop.name, tuple(seconds / _CALLS for seconds in loop.seconds)))
    return results


def _chain(repeat: int, devices: list[Engine], count: int) -> list[harness.Result]:
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(count).astype(np.float32) for _ in range(2))
    one, half = np.float32(1.5), np.float32(0.5)
    moved = 3.0 * a.nbytes

    def peer() -> np.ndarray:
        return (a * one + b) * half - a

    results = [harness.measure(f"numpy: chain {count}", peer, repeat, work=moved, unit="B")]
    for engine in devices:
        x, y = nnk.array(a, engine=engine), nnk.array(b, engine=engine)

        def chain(x: nnk.Tensor = x, y: nnk.Tensor = y, engine: Engine = engine) -> None:
            ((x * 1.5 + y) * 0.5 - x).eval()
            engine.synchronize()

        results.append(harness.measure(f"nnk {engine}: chain {count}", chain, repeat, work=moved, unit="B"))
    return results


def main() -> None:
    """Measure and print one table a workload."""
    parser = harness.arguments(__doc__ or "")
    parser.add_argument("--device", action="append", help="devices besides the CPU engine (default: vulkan)")
    options = parser.parse_args()
    devices = [nnk.engine("cpu"), *(nnk.engine(name) for name in options.device or ["vulkan"])]
    tables: list[Callable[[], list[harness.Result]]] = [
        lambda: _small(options.repeat, devices), lambda: _chain(options.repeat, devices, 1 << 20),
        lambda: _chain(options.repeat, devices, 1 << 24)]
    for make in tables:
        results = make()
        harness.report(results, options, baseline=results[0].name)
        print()


if __name__ == "__main__":
    main()
