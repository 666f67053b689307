"""Many processes over one file: no entry lost, no partial state seen, no error (short form).

scripts/cache_race.py is the long form.
"""

from __future__ import annotations

from pathlib import Path

from tests.process import races


def test_eight_writers_lose_nothing(tmp_path: Path) -> None:
    races.writers(tmp_path / "kernels.nnk", processes=8, each=25)


def test_sixteen_first_runs_of_one_script(tmp_path: Path) -> None:
    races.first_runs(tmp_path / "cache" / "kernels.nnk", processes=16)


def test_writers_under_kill(tmp_path: Path) -> None:
    counts = races.killing(tmp_path / "kernels.nnk", processes=4, seconds=3.0, seed=1)
    assert counts["killed"] > 0
    assert counts["committed"] > 0
