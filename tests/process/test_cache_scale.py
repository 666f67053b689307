"""Large caches (short form). scripts/cache_scale.py is the long form."""

from __future__ import annotations

import json
from pathlib import Path

from tests.process import sizes


def test_opening_reads_the_table_alone(tmp_path: Path) -> None:
    path = tmp_path / "kernels.nnk"
    size = sizes.make_large(path, kernels=5000, words=1250)
    report = json.loads(sizes.open_large(path, 5000))
    assert report["found"]
    assert size > 25_000_000
    assert report["growth_mb"] < 16
    assert report["opened_ms"] < 500


def test_hot_kernels_survive_under_a_cap(tmp_path: Path) -> None:
    counts = sizes.under_a_cap(tmp_path / "kernels.nnk", kernels=1500, cap_mb=1, hot=50, burst=250, words=500)
    assert counts["evicted"] > 500
