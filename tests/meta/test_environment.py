"""One reader of the environment, and settings that hold together."""

import os
import subprocess
import sys

import pytest

from nnk import config
from nnk.errors import ConfigError
from tests import ROOT


def test_only_config_mentions_the_environment():
    readers = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "nnk").rglob("*.py*"))
               if path.suffix in (".py", ".pyx", ".pxd")
               and any(word in path.read_text(encoding="utf-8") for word in ("environ.", "environ[", "getenv("))]
    assert readers == ["nnk/config.py"]


@pytest.mark.parametrize("setting", config.SETTINGS.values(), ids=lambda setting: setting.name)
def test_setting_is_well_formed(setting):
    assert setting.env.startswith(("NN_", "NNK_"))
    assert setting.group in ("cache", "device", "generator", "debug")
    assert setting.doc.endswith(".")
    assert setting.expected
    assert isinstance(setting.default, str | int | float | bool)


@pytest.mark.parametrize("name", ["NNK_LOCK_TIMEOUT_S", "NNK_THREADS", "NNK_EXPLAIN"])
def test_wrong_value_names_variable_value_and_expectation(name, monkeypatch):
    monkeypatch.setenv(name, "several")
    config.reset()
    setting = next(setting for setting in config.SETTINGS.values() if setting.env == name)
    with pytest.raises(ConfigError, match=name) as caught:
        config.get(setting.name)
    assert (caught.value.variable, caught.value.value) == (name, "several")
    assert setting.expected in str(caught.value)


def test_no_setting_is_read_at_import():
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NNK_THREADS": "several", "NNK_LOCK_TIMEOUT_S": "late"}
    subprocess.run([sys.executable, "-c", "import nnk"], env=environment, check=True)
