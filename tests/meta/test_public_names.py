"""``__all__`` of every module is sorted and true; ``nnk.__all__`` is everything public that ``nnk`` shows."""

import ast
import re

import pytest

import nnk
from tests import ROOT

MODULES = sorted(path.relative_to(ROOT) for path in (ROOT / "nnk").rglob("*.py") if path.name != "__main__.py")


def all_of(text):
    """Return the literal ``__all__`` of a module, or None."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return ast.literal_eval(node.value)
    return None


def sort_key(name):
    """Constants, then classes, then functions, numbers by their value: the order that ruff (RUF022) keeps."""
    parts = [(part.isdigit(), int(part) if part.isdigit() else part) for part in re.split(r"(\d+)", name)]
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, parts)


def defined_names(text):
    names = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    return names


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_all_is_sorted_and_defined(path):
    text = (ROOT / path).read_text(encoding="utf-8")
    names = all_of(text)
    if names is None:
        assert path.name in ("__init__.py", "_version.py", "version.py"), f"{path} has no __all__"
        return
    assert names == sorted(set(names), key=sort_key)
    if path.as_posix() != "nnk/__init__.py":
        assert set(names) <= defined_names(text)


def test_every_public_name_is_there():
    for name in nnk.__all__:
        assert getattr(nnk, name) is not None, name
    assert set(nnk.__all__) <= set(dir(nnk))


def test_nothing_public_is_left_out():
    rooms = {path.stem for path in (ROOT / "nnk").iterdir()}
    shown = {name for name in dir(nnk) if not name.startswith("_")}
    extra = {name for name in shown - set(nnk.__all__) - rooms
             if str(getattr(getattr(nnk, name), "__module__", "")).startswith("nnk")}
    assert extra == set()


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = nnk.no_such_name
