#!/usr/bin/env python3
"""Let many processes write one kernel cache at once, and kill them.

``python scripts/cache_race.py [--seconds N] [--seed N]`` prints counts; the first finding ends it with a traceback.
Long form of tests/process/test_cache_race.py.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.process import races


def main() -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="how long writers are killed")
    parser.add_argument("--seed", type=int, default=0, help="start of the random numbers")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        races.writers(Path(folder, "kernels.nnk"), processes=8, each=100)
        print("8 processes x 100 kernels, each saved by itself: 800 entries, no partial state seen", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        races.first_runs(Path(folder, "cache", "kernels.nnk"), processes=64)
        print("64 first runs at once: no error, no warning, 1 entry", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        counts = races.killing(Path(folder, "kernels.nnk"), processes=8, seconds=options.seconds, seed=options.seed)
        print(f"kill -9 for {options.seconds:.0f} s: {counts['started']} writers started, {counts['killed']} killed, "
              f"{counts['committed']} committed kernels, none lost", flush=True)


if __name__ == "__main__":
    main()
