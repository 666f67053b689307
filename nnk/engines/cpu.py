"""The CPU engine: the same bits as Vulkan, with neither a GPU nor a compiler.

It takes the same canonical specs and the same packed parameter words as the Vulkan engine and runs them in
:mod:`nnk._fast.cpu`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nnk import config
from nnk._fast.cpu import Program
from nnk.engines.base import Engine
from nnk.engines.schedule import Step

__all__ = ["CpuEngine"]


class CpuEngine(Engine):
    """Runs kernels on the CPU's cores. ``threads`` never changes a bit; 0 means all cores."""

    name = "cpu"
    device_name = "CPU"

    def __init__(self, threads: int | None = None) -> None:
        super().__init__()
        self.threads: int = config.get("threads") if threads is None else threads
        self._programs: dict[bytes, Program] = {}

    def allocate(self, nbytes: int) -> Any:
        """Return an array of ``nbytes`` bytes."""
        return np.empty(nbytes, np.uint8)

    def upload(self, array: np.ndarray[Any, Any]) -> Any:
        """Return ``array`` itself: the base class has copied it."""
        return array.reshape(-1).view(np.uint8)

    def download(self, storage: Any, out: np.ndarray[Any, Any]) -> None:
        """Copy the storage to ``out``."""
        out.reshape(-1).view(np.uint8)[:] = storage[:out.nbytes]

    def window(self, storage: Any, start: int, nbytes: int) -> Any:
        """Return a part of an array."""
        return storage[start:start + nbytes]

    def copy_rows(self, source: Any, source_start: int, source_step: int, target: Any, target_start: int,
                  target_step: int, row_bytes: int, rows: int) -> None:
        """Copy runs of bytes."""
        def runs(array: Any, start: int, step: int) -> Any:
            return np.lib.stride_tricks.as_strided(array[start:], (rows, row_bytes), (step, 1))
        runs(target, target_start, target_step)[...] = runs(source, source_start, source_step)

    def run(self, step: Step, inputs: Sequence[Any], *outputs: Any) -> None:
        """Run one kernel to its end."""
        program = self._programs.get(step.identity)
        if program is None:
            program = self._programs[step.identity] = Program(step.spec, step.meta)
        program.run(step.words, inputs, outputs, self.threads)
