"""The bounds of docs/numerics.md, over a sample; scripts/accuracy.py measures all floats."""

import importlib.util

import numpy as np
import pytest

from tests import ROOT

_SPEC = importlib.util.spec_from_file_location("accuracy", ROOT / "scripts/accuracy.py")
assert _SPEC is not None
assert _SPEC.loader is not None
accuracy = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(accuracy)

#: A prime: every exponent and many fractions of it.
STEP = 8191


@pytest.mark.parametrize("name", [*accuracy.UNARY, *accuracy.BINARY])
def test_errors_are_within_the_bounds_of_the_contract(name):
    state = accuracy.measure(name, STEP)
    assert state.count > 500_000 or name in accuracy.BINARY
    assert (state.largest_above if name in accuracy.ABOVE else state.largest) <= accuracy.bounds()[name]
    assert state.wrong_kind == 0


def test_measured_errors_are_within_their_bounds():
    text = accuracy.PAGE.read_text(encoding="utf-8")
    rows = {name: (float(bound), float(largest)) for name, bound, largest in accuracy._ROW.findall(text)}
    assert rows.keys() == {*accuracy.UNARY, *accuracy.BINARY}
    assert all(largest <= bound for bound, largest in rows.values())


@pytest.mark.parametrize(("bits", "kind", "error"), [
    (0x3F800001, 0, 1.0), (0x3F7FFFFF, 0, 0.5), (0xBF800000, 1, 2.0**24), (0x7FC00000, 1, 0.0)])
def test_wrong_results_are_found(bits, kind, error, monkeypatch):
    """exp(0) is 1; ulps are counted in the exact result's."""
    monkeypatch.setattr(accuracy, "compute", lambda name, operands: np.array([bits], np.uint32).view(np.float32))
    state = accuracy.measure_chunk("exp", [np.zeros(1, np.float32)])
    assert (state.count, state.wrong_kind, state.largest) == (1, kind, error)


def test_overflow_and_underflow_are_counted_in_ulps(monkeypatch):
    for x, bits, error in ((89.0, 0x7F800000, 0.0), (-104.0, 0, 0.0), (-104.0, 3, 3.0), (0.0, 0x7F800000, 2.0**151)):
        monkeypatch.setattr(accuracy, "compute",
                            lambda name, operands, bits=bits: np.array([bits], np.uint32).view(np.float32))
        found = accuracy.measure_chunk("exp", [np.array([x], np.float32)]).largest
        assert found == pytest.approx(error, abs=0.5, rel=1e-6)


def test_rows_are_written(tmp_path, monkeypatch, capsys):
    page = tmp_path / "numerics.md"
    page.write_text("| `exp` | 0.8 | 0.0000 | - | - | - |\n| `log` | 0.7 | 0.0000 | - | - | - |\n", encoding="utf-8")
    monkeypatch.setattr(accuracy, "PAGE", page)
    assert accuracy.main(["--step", "65537", "--only", "exp", "--jobs", "1", "--write"]) == 0
    first, second = page.read_text(encoding="utf-8").splitlines()
    assert first == capsys.readouterr().out.strip()
    assert first.startswith("| `exp` | 0.8 | 0.5")
    assert "| 0 million |" in first
    assert second == "| `log` | 0.7 | 0.0000 | - | - | - |"
    page.write_text("| `exp` | 0.5 | 0.0000 | - | - | - |\n", encoding="utf-8")
    assert accuracy.main(["--step", "65537", "--only", "exp", "--jobs", "1"]) == 1
