"""Mutated records, files and kernels (short form). scripts/cache_fuzz.py is the long form."""

from __future__ import annotations

from pathlib import Path

from tests.process import mutations


def test_records() -> None:
    before = mutations.peak_memory_mb()
    counts = mutations.fuzz_records(20_000, seed=1)
    assert counts["executions"] == 20_000
    assert counts["accepted"] > 100
    assert counts["slowest_ms"] < 200
    assert mutations.peak_memory_mb() - before < 16


def test_files(tmp_path: Path) -> None:
    counts = mutations.fuzz_files(tmp_path, 500, seed=2)
    assert counts["kernels"] > 500


def test_kernels(tmp_path: Path) -> None:
    assert mutations.fuzz_kernels(tmp_path, 300, seed=3) == 300


def test_flipped_bits(tmp_path: Path) -> None:
    counts = mutations.flip_every_bit(tmp_path, 20, step=61)
    assert counts["cost one kernel"] > 10
    assert counts["cost nothing"] > 10
