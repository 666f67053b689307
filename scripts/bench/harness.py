"""What every benchmark uses: timing in repeats, new processes, ratios against a baseline, a table and JSON.

A benchmark makes a list of :class:`Result` and hands it to :func:`report`. Ratios of results of one run are what
counts; absolute times say little about another machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: A timed loop runs at least this long, so that the clock's resolution does not matter.
MIN_LOOP_S = 0.02


@dataclass(frozen=True, slots=True)
class Result:
    """Seconds of one thing, repeated. ``work`` is the size of one repeat in ``unit`` (bytes, elements, calls)."""

    name: str
    seconds: tuple[float, ...]
    work: float = 0.0
    unit: str = ""
    notes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def median(self) -> float:
        """Median of the repeats, in seconds."""
        return statistics.median(self.seconds)

    @property
    def best(self) -> float:
        """Shortest repeat, in seconds."""
        return min(self.seconds)

    @property
    def rate(self) -> float:
        """Work a second, from the median."""
        return self.work / self.median


def measure(name: str, function: Callable[[], object], repeat: int = 7, number: int = 0, work: float = 0.0,
            unit: str = "") -> Result:
    """Time ``function``: ``repeat`` loops of ``number`` calls (0: as many as fill a loop); seconds are per call."""
    function()
    if not number:
        number = 1
        while True:
            start = time.perf_counter()
            for _ in range(number):
                function()
            elapsed = time.perf_counter() - start
            if elapsed >= MIN_LOOP_S:
                break
            number = max(2 * number, int(number * MIN_LOOP_S / max(elapsed, 1e-9)))
    seconds = []
    for _ in range(repeat):
        start = time.perf_counter()
        for _ in range(number):
            function()
        seconds.append((time.perf_counter() - start) / number)
    return Result(name, tuple(seconds), work, unit, {"calls": number})


def measure_process(name: str, arguments: Sequence[str], repeat: int = 7, environment: Mapping[str, str] | None = None,
                    before: Callable[[], object] | None = None) -> Result:
    """Time whole processes: ``python *arguments`` from start to exit. ``before`` runs ahead of each, not timed.

    Raises
    ------
    subprocess.CalledProcessError
        If a process fails.
    """
    merged = {**os.environ, **(environment or {})}
    seconds = []
    for _ in range(repeat):
        if before is not None:
            before()
        start = time.perf_counter()
        subprocess.run([sys.executable, *arguments], env=merged, check=True, stdout=subprocess.DEVNULL)
        seconds.append(time.perf_counter() - start)
    return Result(name, tuple(seconds))


def machine() -> dict[str, Any]:
    """Describe where the numbers come from."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
        model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), model)
    return {"cpu": model, "cores": os.cpu_count(), "system": platform.platform(), "python": platform.python_version(),
            "date": time.strftime("%Y-%m-%d")}


def _scaled(seconds: float) -> str:
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "us")):
        if seconds * factor >= 1.0:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def table(results: Sequence[Result], baseline: str = "") -> str:
    """Return the results as text. With a ``baseline`` each row has its time divided by the baseline's."""
    base = next((result.median for result in results if result.name == baseline), None)
    rows = [("name", "median", "best", "ratio", "rate")]
    for result in results:
        ratio = f"{result.median / base:.2f}x" if base else ""
        rate = f"{result.rate:.3g} {result.unit}/s" if result.work else ""
        rows.append((result.name, _scaled(result.median), _scaled(result.best), ratio, rate))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
                     for row in rows)


def arguments(description: str) -> argparse.ArgumentParser:
    """Return the parser that all benchmarks share; a benchmark adds its own options."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--repeat", type=int, default=7, help="repeats of each measurement")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    return parser


def report(results: Sequence[Result], options: argparse.Namespace, baseline: str = "") -> None:
    """Print the table; write JSON if asked."""
    print(table(results, baseline))
    if options.json is not None:
        rows = [{"name": result.name, "median_s": result.median, "best_s": result.best, "seconds": result.seconds,
                 "work": result.work, "unit": result.unit, "notes": dict(result.notes)} for result in results]
        options.json.write_text(json.dumps({"machine": machine(), "baseline": baseline, "results": rows}, indent=1),
                                encoding="utf-8")
