"""The harness of the benchmarks."""

import importlib.util
import json
import subprocess
import sys

import pytest

from tests import ROOT

_SPEC = importlib.util.spec_from_file_location("bench_harness", ROOT / "scripts/bench/harness.py")
harness = importlib.util.module_from_spec(_SPEC)
sys.modules["bench_harness"] = harness
_SPEC.loader.exec_module(harness)


def test_measure_counts_calls(monkeypatch):
    monkeypatch.setattr(harness, "MIN_LOOP_S", 0.0005)
    calls = []
    result = harness.measure("append", lambda: calls.append(1), repeat=3, work=2.0, unit="calls")
    assert len(result.seconds) == 3
    assert result.best <= result.median < 0.001
    assert len(calls) >= 3 * result.notes["calls"]
    assert result.rate == pytest.approx(2.0 / result.median)


def test_process_is_timed_and_its_failure_is_seen():
    prepared = []
    result = harness.measure_process("start", ["-c", "pass"], repeat=2, before=lambda: prepared.append(1))
    assert len(prepared) == 2
    assert result.best > 0.001
    with pytest.raises(subprocess.CalledProcessError):
        harness.measure_process("fail", ["-c", "raise SystemExit(3)"], repeat=1)


def test_table_has_ratios():
    results = [harness.Result("numpy", (1e-3, 2e-3, 3e-3)), harness.Result("nnk", (1e-3,), work=1e6, unit="B")]
    lines = harness.table(results, baseline="numpy").splitlines()
    assert lines[1].split() == ["numpy", "2", "ms", "1", "ms", "1.00x"]
    assert lines[2].split() == ["nnk", "1", "ms", "1", "ms", "0.50x", "1e+09", "B/s"]


def test_report_writes_json(tmp_path, capsys):
    options = harness.arguments("x").parse_args(["--json", str(tmp_path / "out.json")])
    harness.report([harness.Result("a", (0.5,))], options)
    assert "500 ms" in capsys.readouterr().out
    written = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert written["results"][0]["median_s"] == 0.5
    assert written["machine"]["cores"] >= 1
