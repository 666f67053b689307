"""The arrow table holds in the repository, and the checker sees every way to break it."""

from pathlib import Path

import layering
import pytest

from tests import ROOT


def test_repository_follows_the_table():
    assert list(map(str, layering.check(ROOT))) == []


def test_table_is_acyclic_and_closed():
    names = set(layering.ALLOWED)
    for source, targets in layering.ALLOWED.items():
        assert targets <= names, source
    edges = {source: dict.fromkeys(targets, 1) for source, targets in layering.ALLOWED.items()}
    assert list(layering._cycles(edges)) == []


def test_siblings_never_meet():
    siblings = {"generator", "cache", "vk"}
    for sibling in siblings:
        assert not layering.ALLOWED[sibling] & (siblings - {sibling})


def build(root: Path, files: dict[str, str]) -> list[str]:
    for name in ("__init__", "errors", "config", "ops", "expr/__init__", "cache/__init__", "vk/__init__"):
        files.setdefault(f"nnk/{name}.py", "")
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return [str(finding) for finding in layering.check(root)]


def test_clean_fixture_passes(tmp_path):
    assert build(tmp_path, {
        "nnk/config.py": "import os\nfrom nnk.errors import X\nvalue = os.environ.get('A')\n",
        "nnk/expr/node.py": "import numpy as np\nfrom nnk import ops\nfrom . import spec\nfrom ..errors import E\n",
        "nnk/expr/spec.py": "",
        "nnk/cache/lock.py": "import portalocker\n",
        "nnk/_fast/a.pyx": "cimport cython\nfrom libc.stdint cimport uint8_t\nfrom nnk.errors import E\n",
    }) == []


@pytest.mark.parametrize(("files", "expected"), [
    ({"nnk/expr/a.py": "x = 1\nfrom nnk.cache import store\n"}, "nnk/expr/a.py:2: expr may not import cache"),
    ({"nnk/expr/a.py": "from ..vk import device\n"}, "nnk/expr/a.py:1: expr may not import vk"),
    ({"nnk/expr/a.py": "def f():\n    import nnk.vk\n"}, "nnk/expr/a.py:2: expr may not import vk"),
    ({"nnk/expr/a.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from nnk import vk\n"},
     "nnk/expr/a.py:3: expr may not import vk"),
    ({"nnk/expr/a.py": "import nnk\n"}, "nnk/expr/a.py:1: expr may not import __init__"),
    ({"nnk/expr/a.py": "from nnk import gelu\n"}, "nnk/expr/a.py:1: expr may not import __init__"),
    ({"nnk/errors.py": "from nnk import config\n"}, "nnk/errors.py:1: errors may not import config"),
    ({"nnk/_fast/a.pyx": "from nnk.expr cimport x\n"}, "nnk/_fast/a.pyx:1: _fast may not import expr"),
    ({"nnk/_fast/a.pyx": "from ..expr import (a,\n    b)\n"}, "nnk/_fast/a.pyx:1: _fast may not import expr"),
    ({"nnk/_fast/a.pxd": "cimport nnk.vk.device as d\n"}, "nnk/_fast/a.pxd:1: _fast may not import vk"),
    ({"nnk/helpers/a.py": "from nnk import errors\n"}, "nnk/helpers/a.py:1: room helpers has no row in ALLOWED"),
    ({"nnk/cache/a.py": "import vulkan\n"}, "nnk/cache/a.py:1: nnk.cache.a may not import vulkan; owners: vk"),
    ({"nnk/cache/a.py": "import portalocker\n"}, "nnk/cache/a.py:1: nnk.cache.a may not import portalocker"),
    ({"nnk/vk/a.py": "import numpy\n"}, "nnk/vk/a.py:1: nnk.vk.a may not import numpy"),
    ({"nnk/vk/a.py": "import argparse\n"}, "nnk/vk/a.py:1: nnk.vk.a may not import argparse"),
    ({"nnk/vk/a.py": "import torch.nn\n"}, "nnk/vk/a.py:1: nnk.vk.a imports torch, which has no owner"),
    ({"nnk/vk/a.py": "import os\nx = os.environ['A']\n"}, "nnk/vk/a.py:2: only nnk/config.py reads the environment"),
    ({"nnk/vk/a.py": "from os import getenv\n"}, "nnk/vk/a.py:1: only nnk/config.py reads the environment"),
    ({"nnk/_fast/a.pyx": "x = 1\ny = getenv('A')\n"}, "nnk/_fast/a.pyx:2: only nnk/config.py reads the environment"),
    ({"nnk/expr/a.py": "from nnk.expr import b\n", "nnk/expr/b.py": "from . import a\n"},
     "nnk/expr/b.py:1: import cycle: nnk.expr.a -> nnk.expr.b -> nnk.expr.a"),
])
def test_broken_fixture_is_found(tmp_path, files, expected):
    findings = build(tmp_path, files)
    assert any(finding.startswith(expected) for finding in findings), findings


@pytest.mark.parametrize("text", [
    "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from nnk.expr import b\n",
    "class A:\n    def method(self):\n        from nnk.expr.b import f\n        return f(self)\n",
])
def test_late_import_makes_no_cycle(tmp_path, text):
    assert build(tmp_path, {"nnk/expr/a.py": text, "nnk/expr/b.py": "from nnk.expr import a\n"}) == []


def test_typing_packages_are_free_for_type_checkers_only(tmp_path):
    text = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from typing_extensions import Buffer\n"
    assert build(tmp_path, {"nnk/cache/a.py": text}) == []
    assert build(tmp_path, {"nnk/cache/a.py": "from typing_extensions import Buffer\n"}) != []


def test_main_prints_and_exits(tmp_path, capsys):
    assert build(tmp_path, {"nnk/errors.py": "import nnk.vk\n"})
    assert layering.main([str(tmp_path)]) == 1
    assert "errors may not import vk" in capsys.readouterr().out
    assert layering.main([str(ROOT)]) == 0
