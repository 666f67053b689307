"""What a machine without the vulkan package or without the loader says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nnk.errors import NoDeviceError
from nnk.vk import loader

PROBE = """
from nnk.errors import NoDeviceError
try:
    import nnk.vk.instance
except NoDeviceError as exc:
    print(str(exc))
    print(" | ".join(exc.hints))
else:
    print(nnk.vk.loader.ffi, nnk.vk.loader.lib)
"""

NO_LOADER = """
class Declarations:
    def dlopen(self, name):
        raise OSError(f"cannot open {name}")
ffi = Declarations()
"""

OTHER_LAYOUT = """
class Declarations:
    def dlopen(self, name):
        return type("Library", (), {"__getattr__": lambda self, name: 0})()
    def __getattr__(self, name):
        return lambda *arguments: None
ffi = Declarations()
"""


def lines_with(package: Path, files: dict[str, str]) -> list[str]:
    """Run the probe with another ``vulkan`` package in front of the installed one."""
    package.mkdir()
    for name, text in files.items():
        (package / name).write_text(text, encoding="utf-8")
    path = os.pathsep.join([str(package.parent), *sys.path])
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True, timeout=60,
                          env={**os.environ, "PYTHONPATH": path})
    return done.stdout.splitlines()


@pytest.mark.parametrize(("files", "text"), [
    ({"__init__.py": "raise ImportError('broken package')"},
     "The Python package vulkan cannot be imported (broken package); pip install vulkan"),
    ({"__init__.py": "", "_vulkancache.py": "import no_such_module"},
     "The Python package vulkan cannot be imported (No module named 'no_such_module')"),
    ({"__init__.py": "", "_vulkancache.py": NO_LOADER},
     "The Vulkan loader libvulkan.so.1 is missing; apt-get install libvulkan1"),
])
def test_missing_parts_are_one_error_with_hints(tmp_path: Path, files: dict[str, str], text: str) -> None:
    message, hints = lines_with(tmp_path / "vulkan", files)
    assert message.startswith(text)
    for word in ("libvulkan1", "mesa-vulkan-drivers", "VK_DRIVER_FILES"):
        assert word in hints


def test_no_package_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(NoDeviceError, match="no module named vulkan"):
        loader._load()


def test_package_of_another_layout_is_imported_whole(tmp_path: Path) -> None:
    (line,) = lines_with(tmp_path / "vulkan", {"__init__.py": OTHER_LAYOUT})
    assert "Declarations object" in line


def test_the_wrapper_module_is_not_loaded() -> None:
    code = "import sys, nnk.vk.device; print([name for name in sys.modules if name.startswith('vulkan')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_hints_name_everything_that_may_be_missing() -> None:
    hints = "\n".join(loader.HINTS)
    for word in ("pip install vulkan", "libvulkan1", "mesa-vulkan-drivers", "VK_DRIVER_FILES"):
        assert word in hints
