#!/usr/bin/env python3
"""Compare the CPU engine, a Vulkan device and the oracle on random specs, bit for bit.

``python scripts/parity_fuzz.py --count 20000 --jobs 2`` is the usual run, ``--count 1000000`` the long one. Each spec
is one kernel, run on several grids from empty to 3000 a side. The numbers of a failure are printed, the failing launch
is shrunk and written to a file, and ``--replay FILE`` runs that again. Short form: tests/gpu/test_parity_fuzz.py.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

#: Failures that end a run: more would only repeat the same fault.
MAX_FAILURES = 10


def open_device(name: str, stack: ExitStack) -> Any:
    """Return the open device, or None for the CPU engine and the oracle alone."""
    if name == "none":
        return None
    from nnk.vk import instance
    from nnk.vk.device import Device
    return stack.enter_context(Device(instance.select(name)))


def report(fuzzer: Any, options: argparse.Namespace, index: int, error: Exception) -> None:
    """Print a failure and how to repeat it; keep the launch in a file if one launch is to blame."""
    from tests import parity_fuzz
    print(f"seed {options.seed} index {index}: {type(error).__name__}: {error}", flush=True)
    print(f"  again: python scripts/parity_fuzz.py --seed {options.seed} --start {index} --count 1 "
          f"--device {options.device}")
    if isinstance(error, parity_fuzz.Mismatch):
        path = Path(options.failures) / f"parity-{options.seed}-{index}.npz"
        path.parent.mkdir(parents=True, exist_ok=True)
        parity_fuzz.save(path, parity_fuzz.shrink(fuzzer, error.case))
        print(f"  shrunk: python scripts/parity_fuzz.py --replay {path} --device {options.device}", flush=True)


def work(options: argparse.Namespace, job: int) -> tuple[Counter[str], Counter[tuple[str, str]], int]:
    """Run every sample whose number leaves the remainder ``job``.

    Returns what was run, the same by op, view, operand, dtype and form, and the number of failures.
    """
    from nnk.errors import NnkError
    from tests import parity_fuzz
    end = time.monotonic() + options.seconds if options.seconds else float("inf")
    failures = 0
    with ExitStack() as stack:
        fuzzer = parity_fuzz.Fuzzer(open_device(options.device, stack), spirv_val=options.spirv_val)
        for index in range(options.start + job, options.start + options.count, options.jobs):
            if time.monotonic() > end or failures >= MAX_FAILURES:
                break
            try:
                fuzzer.run(options.seed, index)
            except (AssertionError, NnkError) as error:
                failures += 1
                report(fuzzer, options, index, error)
            if job == 0 and index % 1000 < options.jobs:
                print(f"  at {index}", file=sys.stderr, flush=True)
    return fuzzer.counts, fuzzer.drawn, failures


def replay(options: argparse.Namespace) -> int:
    """Run the launch of a file."""
    from tests import parity_fuzz
    case = parity_fuzz.load(Path(options.replay))
    print(case.spec, case.launch, sep="\n")
    with ExitStack() as stack:
        fuzzer = parity_fuzz.Fuzzer(open_device(options.device, stack), spirv_val=options.spirv_val)
        try:
            fuzzer.check_alone(case)
        except parity_fuzz.Mismatch as error:
            print(error)
            return 1
    print("equal")
    return 0


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000, help="specs (default: 1000)")
    parser.add_argument("--seed", type=int, default=0, help="start of the random numbers (default: 0)")
    parser.add_argument("--start", type=int, default=0, help="number of the first spec (default: 0)")
    parser.add_argument("--seconds", type=float, default=0, help="stop after so long (default: never)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: 1)")
    parser.add_argument("--device", default="vulkan",
                        help='"vulkan", "vulkan:N", a part of a device\'s name, or "none" for CPU engine and oracle')
    parser.add_argument("--tier", choices=("T1", "T2", "T3"), help="force a numerics tier (default: the setting)")
    parser.add_argument("--spirv-val", action="store_true",
                        help="have spirv-val judge every kernel, also without a device")
    parser.add_argument("--failures", default=os.path.join(tempfile.gettempdir(), "nnk-parity-failures"),
                        help="folder for the launches that failed")
    parser.add_argument("--replay", metavar="FILE", help="run the launch of this file only")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run all of it."""
    options = parse(arguments)
    if options.tier:
        os.environ["NNK_TIER"] = options.tier
    if options.replay:
        return replay(options)
    began = time.monotonic()
    if options.jobs == 1:
        results = [work(options, 0)]
    else:
        # One thread of Mesa's software device for each process: more would only wait for each other.
        os.environ.setdefault("LP_NUM_THREADS", "1")
        with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
            results = pool.starmap(work, [(options, job) for job in range(options.jobs)], chunksize=1)
    from tests import fuzz_coverage
    counts: Counter[str] = sum((found for found, _, _ in results), Counter())
    failures = sum(failed for _, _, failed in results)
    print(*fuzz_coverage.lines(sum((drawn for _, drawn, _ in results), Counter())), sep="\n")
    for name, count in sorted(counts.items()):
        print(f"{count:10} {name}")
    print(f"{failures:10} failures in {time.monotonic() - began:.0f} s, seed {options.seed}, device {options.device}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
