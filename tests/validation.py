"""Vulkan under the Khronos validation layer with synchronisation validation.

The layer is chosen by the environment when a process makes its Vulkan instance, and prints what it finds to stdout.
This process prints and goes on; a child has its output read by the test that started it, if at all, so that in a child
the first message ends the process with SIGTRAP.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import re
import shutil
import tempfile
from pathlib import Path

#: What turns the layer on.
ENVIRONMENT = {
    "VK_INSTANCE_LAYERS": "VK_LAYER_KHRONOS_validation",
    "VK_LAYER_ENABLES": "VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT"
                        ":VALIDATION_CHECK_ENABLE_SYNCHRONIZATION_VALIDATION_QUEUE_SUBMIT",
}

#: What makes it end the process with its first message.
BREAK = ("khronos_validation.debug_action = VK_DBG_LAYER_ACTION_LOG_MSG,VK_DBG_LAYER_ACTION_BREAK\n"
         "khronos_validation.log_filename = stdout\n")

FINDING = re.compile(r"\b(?:VUID|SYNC-HAZARD|UNASSIGNED)-[\w-]+")


def findings(output: str) -> list[str]:
    """The names of what the layer reports in an output, each once."""
    return list(dict.fromkeys(FINDING.findall(output)))


def break_settings(folder: Path) -> dict[str, str]:
    """Write the layer's settings file into the folder; return the environment of a process that ends with a message."""
    (folder / "vk_layer_settings.txt").write_text(BREAK, encoding="utf-8")
    return {**ENVIRONMENT, "VK_LAYER_SETTINGS_PATH": str(folder)}


def start() -> None:
    """Validate all Vulkan work of this process and of its children from now on."""
    os.environ.update(ENVIRONMENT)
    from nnk.vk import instance
    instance.physical_devices()
    folder = Path(tempfile.mkdtemp(prefix="nnk-validation-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ.update(break_settings(folder))


def flush() -> None:
    """Hand over what the layer has printed so far: it prints through C."""
    ctypes.CDLL(None).fflush(None)
