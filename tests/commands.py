"""Runs `nnk` in a process of its own, with an environment that a test decides on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from tests import ROOT

#: What makes a machine look as if it had no Vulkan driver; both names, for old and new loaders.
NO_VULKAN = {"VK_DRIVER_FILES": "/nonexistent/icd.json", "VK_ICD_FILENAMES": "/nonexistent/icd.json",
             "VK_ADD_DRIVER_FILES": None}


def environment(**changes: str | None) -> dict[str, str]:
    """Return this process's environment with the repository importable and ``changes`` made; None removes."""
    changed: dict[str, str | None] = {**os.environ, "PYTHONPATH": str(ROOT), **changes}
    return {name: value for name, value in changed.items() if value is not None}


def nnk_command(*arguments: str) -> list[str]:
    """Return the command line of ``nnk`` with ``arguments``."""
    return [sys.executable, "-m", "nnk", *arguments]


def run(command: Sequence[str], timeout_s: float = 120, **changes: Any) -> subprocess.CompletedProcess[str]:
    """Run ``command`` to its end and return its exit code and output."""
    return subprocess.run(command, env=environment(**changes), capture_output=True, encoding="utf-8", check=False,
                          timeout=timeout_s, stdin=subprocess.DEVNULL)


def nnk(*arguments: str, **changes: Any) -> subprocess.CompletedProcess[str]:
    """Run ``nnk`` with ``arguments``."""
    return run(nnk_command(*arguments), **changes)


def python(code: str, *arguments: str, **changes: Any) -> subprocess.CompletedProcess[str]:
    """Run Python code; a warning stays a warning there."""
    return run([sys.executable, "-c", code, *arguments], **changes)
