#!/usr/bin/env python3
"""Process start to first result of tanh(x*w+3), 64 x 64: cold (empty caches) and warm, against numpy in the same run.

Mesa's shader cache is part of a cold start, so it is emptied too. "first call" is measured inside the process, from
the engine that is open to the values.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import harness

_PROGRAM = """
import json, sys, time
import numpy as np
x = np.full((64, 64), 0.5, np.float32)
w = np.full((64, 64), 2.0, np.float32)
if sys.argv[1] == "numpy":
    opened = time.perf_counter()
    y = np.tanh(x * w + np.float32(3))
    compiled = 0
else:
    import nnk
    engine = nnk.engine(sys.argv[1])
    opened = time.perf_counter()
    y = nnk.tanh(nnk.array(x, engine=engine) * nnk.array(w, engine=engine) + 3).numpy()
    compiled = len(engine.kernels.compiled)
end = time.perf_counter()
json.dump({"first_call": end - opened, "compiled": compiled, "checksum": float(y.sum())}, sys.stdout)
"""


def _once(device: str, environment: dict[str, str]) -> tuple[float, float, int]:
    """Return (whole process, first call, kernels compiled) in seconds."""
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", _PROGRAM, device], env={**os.environ, **environment}, check=True,
                          capture_output=True, text=True)
    total = time.perf_counter() - start
    answer = json.loads(done.stdout)
    return total, answer["first_call"], answer["compiled"]


def _results(device: str, cold: bool, repeat: int) -> list[harness.Result]:
    totals, calls, compiled = [], [], 0
    with tempfile.TemporaryDirectory() as folder:
        caches = Path(folder, "caches")
        environment = {"NN_KERNEL_CACHE_DIR": str(caches / "nnk"), "MESA_SHADER_CACHE_DIR": str(caches / "mesa")}
        for index in range(repeat + 1):
            if cold:
                shutil.rmtree(caches, ignore_errors=True)
            total, call, compiled = _once(device, environment)
            # The first run fills the caches, and the file system's pages, for the warm ones.
            if index:
                totals.append(total)
                calls.append(call)
    label = device if device == "numpy" else f"nnk {device} {'cold' if cold else 'warm'}"
    notes = {"compiled": compiled}
    return [harness.Result(f"{label}: total", tuple(totals), notes=notes),
            harness.Result(f"{label}: first call", tuple(calls), notes=notes)]


def main() -> None:
    """Measure and print."""
    options = harness.arguments(__doc__ or "").parse_args()
    results = [*_results("numpy", False, options.repeat), *_results("cpu", False, options.repeat),
               *_results("vulkan", True, options.repeat), *_results("vulkan", False, options.repeat)]
    harness.report(results, options, baseline="numpy: total")


if __name__ == "__main__":
    main()
