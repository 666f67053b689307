#!/usr/bin/env python3
"""Throughput of single kernels on one device, bit-exact: elementwise, row reductions, matmul.

The baseline is relu of the same array, which reads and writes each element once and computes next to nothing: a copy.
Give a GPU arrays that are larger than its caches (``--elements 67108864``).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import harness

import nnk
from nnk.engines.base import Engine

#: Clocks of a GPU rise under load: each measurement starts with this much of its own work.
_WARM_UP_S = 0.5


def _measure(name: str, make: Callable[[], nnk.Tensor], engine: Engine, repeat: int, work: float,
             unit: str) -> harness.Result:
    """Time ``make().eval()``, queued ten at a time; seconds are per kernel."""
    def queued() -> None:
        for _ in range(10):
            make().eval()
        engine.synchronize()

    start = time.perf_counter()
    while time.perf_counter() - start < _WARM_UP_S:
        queued()
    loop = harness.measure(name, queued, repeat, number=1)
    return harness.Result(name, tuple(seconds / 10 for seconds in loop.seconds), work, unit)


def _elementwise(engine: Engine, count: int, repeat: int) -> list[harness.Result]:
    rng = np.random.default_rng(0)
    x, y = (nnk.array(rng.standard_normal(count, dtype=np.float32), engine=engine) for _ in range(2))
    rows: list[tuple[str, Callable[[], nnk.Tensor], int]] = [
        ("copy (relu)", lambda: nnk.relu(x), 2), ("x*y+3", lambda: x * y + 3, 3), ("x/y", lambda: x / y, 3),
        ("exp", lambda: nnk.exp(x), 2), ("log", lambda: nnk.log(x), 2), ("sqrt", lambda: nnk.sqrt(x), 2),
        ("tanh(x*y+3)", lambda: nnk.tanh(x * y + 3), 3), ("sigmoid", lambda: nnk.sigmoid(x), 2),
        ("gelu", lambda: nnk.gelu(x), 2)]
    return [_measure(name, make, engine, repeat, 4.0 * count * arrays, "B") for name, make, arrays in rows]


def _rows(engine: Engine, rows: int, cols: int, repeat: int) -> list[harness.Result]:
    x = nnk.array(np.random.default_rng(1).standard_normal((rows, cols), dtype=np.float32), engine=engine)
    size = 4.0 * rows * cols
    return [_measure("copy (relu)", lambda: nnk.relu(x), engine, repeat, 2 * size, "B"),
            _measure("row sum", lambda: x.sum(-1), engine, repeat, size, "B"),
            _measure("softmax", lambda: nnk.softmax(x), engine, repeat, 2 * size, "B"),
            _measure("rms_norm", lambda: nnk.rms_norm(x), engine, repeat, 2 * size, "B"),
            _measure("layer_norm", lambda: nnk.layer_norm(x), engine, repeat, 2 * size, "B")]


def _matmul(engine: Engine, side: int, repeat: int) -> list[harness.Result]:
    rng = np.random.default_rng(2)
    a, b = (nnk.array(rng.standard_normal((side, side), dtype=np.float32), engine=engine) for _ in range(2))
    half_a, half_b = (tensor.astype("float16").eval() for tensor in (a, b))
    rows = [(f"matmul {side}", lambda: a @ b), (f"matmul {side}, float16", lambda: half_a @ half_b)]
    return [_measure(name, make, engine, repeat, 2.0 * side ** 3, "FLOP") for name, make in rows]


def main() -> None:
    """Measure and print one table a kind of kernel."""
    parser = harness.arguments(__doc__ or "")
    parser.add_argument("--device", default="auto", help="device to measure (default: auto)")
    parser.add_argument("--elements", type=int, default=1 << 22, help="elements of an elementwise kernel")
    parser.add_argument("--rows", type=int, default=1024, help="rows of a row reduction, of 4096 elements each")
    parser.add_argument("--side", type=int, default=512, help="side of the square matrices")
    options = parser.parse_args()
    engine = nnk.engine(options.device)
    print(f"{engine.name}: {engine.device_name}\n")
    for results in (_elementwise(engine, options.elements, options.repeat),
                    _rows(engine, options.rows, 4096, options.repeat),
                    _matmul(engine, options.side, options.repeat)):
        harness.report(results, options, baseline=results[0].name)
        print()


if __name__ == "__main__":
    main()
