"""The public module: names load on first use, and say what they are."""

import subprocess
import sys

import pytest

import nnk


def test_version_is_the_one_of_the_package():
    from nnk._version import __version__
    assert nnk.__version__ == __version__


def test_first_use_loads_and_keeps_a_name():
    code = ("import sys, nnk\n"
            "assert 'nnk.expr.functions' not in sys.modules\n"
            "assert 'gelu' in dir(nnk) and 'gelu' not in vars(nnk)\n"
            "first = nnk.gelu\n"
            "assert vars(nnk)['gelu'] is first is nnk.gelu\n"
            "assert 'vulkan' not in sys.modules\n")
    subprocess.run([sys.executable, "-c", code], check=True)


def test_star_import_gives_the_public_names():
    names = {}
    exec("from nnk import *", names)
    assert set(nnk.__all__) <= set(names)


def test_unknown_name_names_itself():
    with pytest.raises(AttributeError, match="module 'nnk' has no attribute 'gelo'"):
        _ = nnk.gelo


def test_format_modules_are_public():
    assert nnk.exprspec.encode is not None
    assert nnk.kvrecord.loads is not None
