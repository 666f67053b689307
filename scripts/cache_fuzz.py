#!/usr/bin/env python3
"""Fuzz the readers of KVRecord and of the kernel cache, and flip every bit of a file of 20 kernels.

``python scripts/cache_fuzz.py [--executions N] [--seed N] [--sanitize]`` prints counts; the first finding ends it with
a traceback. ``--sanitize`` builds the compiled readers with ASan and UBSan in a temporary folder and fuzzes those.
Long form of tests/process/test_cache_fuzz.py.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def run_sanitized(arguments: list[str]) -> int:
    """Build a copy of the package with sanitizers and run this script there."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in ("nnk", "tests", "scripts"):
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        for name in ("setup.py", "pyproject.toml"):
            shutil.copy(ROOT / name, copy)
        (copy / "README.md").touch()
        env = {**os.environ, "NNK_BUILD_ONLY": "kvrecord,keyindex", "NNK_BUILD_SANITIZE": "1"}
        subprocess.run([sys.executable, "setup.py", "-q", "build_ext", "-i"], cwd=copy, env=env, check=True)
        libraries = [subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True,
                                    check=True).stdout.strip() for name in ("libasan.so", "libubsan.so")]
        # The interpreter itself leaks by design; everything else ends the run.
        env = {**os.environ, "LD_PRELOAD": ":".join(libraries), "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1",
               "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1", "PYTHONPATH": str(copy)}
        return subprocess.run([sys.executable, "scripts/cache_fuzz.py", *arguments], cwd=copy, env=env,
                              check=False).returncode


def main() -> int:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--executions", type=int, default=1_000_000, help="mutated records")
    parser.add_argument("--files", type=int, default=20_000, help="mutated cache files")
    parser.add_argument("--kernels", type=int, default=10_000, help="mutated kernels")
    parser.add_argument("--seed", type=int, default=0, help="start of the random numbers")
    parser.add_argument("--sanitize", action="store_true", help="with ASan and UBSan")
    options = parser.parse_args()
    if options.sanitize:
        return run_sanitized([argument for argument in sys.argv[1:] if argument != "--sanitize"])
    sys.path.insert(0, str(ROOT))
    from tests.process import mutations

    before = mutations.peak_memory_mb()
    counts = mutations.fuzz_records(options.executions, seed=options.seed)
    growth = mutations.peak_memory_mb() - before
    print(f"records: {counts['executions']:.0f} executions, {counts['accepted']:.0f} accepted, slowest "
          f"{counts['slowest_ms']:.2f} ms, {growth:.1f} MB more memory", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        counts = mutations.fuzz_files(Path(folder), options.files, seed=options.seed)
        print(f"files: {counts['executions']:.0f} executions, {counts['kernels']:.0f} right kernels read, none wrong, "
              f"slowest {counts['slowest_ms']:.2f} ms", flush=True)
        tried = mutations.fuzz_kernels(Path(folder), options.kernels, seed=options.seed)
        print(f"kernels: {tried} changed, none returned", flush=True)
        flips = mutations.flip_every_bit(Path(folder), 20, heal_every=11)
        print("flips: " + ", ".join(f"{count} {name}" for name, count in flips.items()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
