#!/usr/bin/env python3
"""Measure large kernel caches: 50 000 kernels in 1 GB, and 10 000 kernels under a cap of 8 MB.

``python scripts/cache_scale.py [--kernels N]`` prints times and sizes; it needs 1 GB in the folder for temporary
files. Long form of tests/process/test_cache_scale.py.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.process import sizes


def main() -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernels", type=int, default=50_000, help="kernels of 20 kB in the large file")
    options = parser.parse_args()
    for kernels, words in ((10_000, 1250), (options.kernels, 5000)):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "kernels.nnk")
            size = sizes.make_large(path, kernels=kernels, words=words)
            report = json.loads(sizes.open_large(path, kernels))
            print(f"{kernels} kernels, {size / 1e6:.0f} MB: opened in {report['opened_ms']:.0f} ms, "
                  f"{report['growth_mb']:.1f} MB more memory, {report['hit_us']:.1f} us a first hit", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        counts = sizes.under_a_cap(Path(folder, "kernels.nnk"), kernels=10_000, cap_mb=8, hot=100, burst=200, words=500)
        print(f"10 000 kernels under 8 MB: largest file {counts['largest_file']} bytes, {counts['evicted']} evicted, "
              f"100 hot ones stayed", flush=True)


if __name__ == "__main__":
    main()
