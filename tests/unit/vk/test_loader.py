"""What a machine without the vulkan package or without the loader says."""

from __future__ import annotations

import subprocess
import sys

import pytest

from nnk.vk import loader

MISSING = """
import sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "vulkan":
            raise {error}
sys.meta_path.insert(0, Finder())
from nnk.errors import NoDeviceError
try:
    import nnk.vk.instance
except NoDeviceError as exc:
    print(str(exc))
    print(" | ".join(exc.hints))
"""


@pytest.mark.parametrize(("error", "text"), [
    ("ImportError('no such package')", "The Python package vulkan cannot be imported (no such package)"),
    ("OSError('Cannot find Vulkan SDK version')", "The Vulkan loader libvulkan.so.1 is missing"),
])
def test_missing_parts_are_one_error_with_hints(error: str, text: str) -> None:
    done = subprocess.run([sys.executable, "-c", MISSING.format(error=error)], capture_output=True, text=True,
                          check=True, timeout=60)
    message, hints = done.stdout.splitlines()
    assert message.startswith(text)
    for word in ("libvulkan1", "mesa-vulkan-drivers", "VK_DRIVER_FILES"):
        assert word in hints


def test_hints_name_everything_that_may_be_missing() -> None:
    hints = "\n".join(loader.HINTS)
    for word in ("pip install vulkan", "libvulkan1", "mesa-vulkan-drivers", "VK_DRIVER_FILES"):
        assert word in hints
