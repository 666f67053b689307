"""tests/unit mirrors nnk: one test file for each module, no test file without its module."""

import pytest

from tests import ROOT

#: Modules without behaviour of their own, with the reason.
NO_TEST_FILE = {
    "nnk/__main__.py": "calls cli.main; tests/unit/cli runs it",
    "nnk/_version.py": "one constant",
    "nnk/generator/version.py": "one constant; tests/meta/test_generator_fingerprint.py guards it",
}


def module_files():
    for path in sorted((ROOT / "nnk").rglob("*.py*")):
        if path.suffix in (".py", ".pyx"):
            yield path.relative_to(ROOT)


def unit_file_of(path):
    """nnk/expr/node.py -> tests/unit/expr/test_node.py; a room's __init__ -> tests/unit/<room>/test_init.py."""
    inside = path.relative_to("nnk")
    stem = "init" if inside.stem == "__init__" else inside.stem
    return ROOT / "tests" / "unit" / inside.parent / f"test_{stem}.py"


def has_behaviour(path):
    """A room's __init__ that only describes the room needs no test."""
    text = (ROOT / path).read_text(encoding="utf-8")
    return path.name != "__init__.py" or "\ndef " in text or "\nclass " in text or "\nimport " in text


@pytest.mark.parametrize("path", list(module_files()), ids=str)
def test_module_has_its_test_file(path):
    if path.as_posix() in NO_TEST_FILE or not has_behaviour(path):
        assert path.as_posix() in NO_TEST_FILE or path.name == "__init__.py"
        return
    assert unit_file_of(path).is_file(), f"{path} has no {unit_file_of(path).relative_to(ROOT)}"


def test_every_unit_test_file_has_its_module():
    wanted = {unit_file_of(path) for path in module_files()}
    found = set((ROOT / "tests" / "unit").rglob("test_*.py"))
    assert sorted(str(path.relative_to(ROOT)) for path in found - wanted) == []


def test_exceptions_exist():
    for name in NO_TEST_FILE:
        assert (ROOT / name).is_file(), name
