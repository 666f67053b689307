"""scripts/golden_anchors.py refuses to change a digest under the same versions."""

import importlib.util
import json

import pytest

from nnk.engines.suite import PATH, Anchors
from tests import ROOT

OLD = Anchors(3, 7, {"a": "1" * 16, "b": "2" * 16})


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("golden_anchors", ROOT / "scripts/golden_anchors.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def computed(script, monkeypatch):
    """Return a function that says what the engine computes now."""
    def compute(contract, generator, **digests):
        monkeypatch.setattr(script, "current", lambda: Anchors(contract, generator, digests))
    return compute


@pytest.fixture
def file(script, tmp_path):
    path = tmp_path / "anchors.json"
    path.write_text(script.text_of(OLD), encoding="utf-8")
    return path


def stored(path):
    return Anchors(**json.loads(path.read_text(encoding="utf-8")))


def test_new_names_are_welcome(script, computed, file):
    computed(3, 7, **OLD.digests, c="3" * 16)
    assert script.main(["--file", str(file), "--check"]) == 1
    assert script.main(["--file", str(file)]) == 0
    assert stored(file).digests == {**OLD.digests, "c": "3" * 16}
    assert script.main(["--file", str(file), "--check"]) == 0


@pytest.mark.parametrize("digests", [{"a": "1" * 16}, {"a": "1" * 16, "b": "4" * 16}])
def test_a_change_needs_a_new_version(digests, script, computed, file, capsys):
    computed(3, 7, **digests)
    assert script.main(["--file", str(file)]) == 1
    assert "1 digests changed or went, the first is that of 'b'" in capsys.readouterr().out
    assert stored(file) == OLD
    for contract, generator in ((4, 7), (3, 8)):
        file.write_text(script.text_of(OLD), encoding="utf-8")
        computed(contract, generator, **digests)
        assert script.main(["--file", str(file)]) == 0
        assert stored(file) == Anchors(contract, generator, digests)


def test_a_missing_file(script, computed, tmp_path):
    computed(3, 7, a="1" * 16)
    path = tmp_path / "anchors.json"
    assert script.main(["--file", str(path), "--check"]) == 1
    assert script.main(["--file", str(path)]) == 0
    assert stored(path) == Anchors(3, 7, {"a": "1" * 16})


def test_anchors_are_current(script, capsys):
    """What the CPU engine computes now is what the file says."""
    assert script.main(["--check"]) == 0, capsys.readouterr().out


def test_they_are_one_file_in_two_places():
    """The golden folder's and the package's, which an installation has too."""
    golden = ROOT / "tests" / "golden" / "anchors.json"
    assert golden.resolve() == PATH.resolve()
    assert golden.read_bytes() == PATH.read_bytes()
