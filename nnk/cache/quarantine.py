"""Kernels that ended a process: a mark beside the cache file while a driver works on a kernel.

A process has one mark file, locked as long as it lives, with the keys that its driver works on just now. A mark file
that nobody holds and that names a key is what a dead process left: the kernel is a suspect.
"""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

from nnk.cache.entry import KEY
from nnk.cache.files import make_folder, open_private, open_regular

__all__ = ["Marks", "suspects_of"]

MAX_MARK_BYTES = 64 * 1024


def _prefix(path: Path) -> str:
    return f".{path.name}.build-"


def _try_lock(fd: int) -> bool:
    import portalocker
    try:
        portalocker.lock(fd, portalocker.LockFlags.EXCLUSIVE | portalocker.LockFlags.NON_BLOCKING)
    except portalocker.LockException:
        return False
    return True


class Marks:
    """The mark file of this process for the cache file ``path``. Without write access or locks it does nothing."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: Path | None = None
        self._fd = -1
        self._pid = os.getpid()
        self._keys: list[str] = []
        self._length = 0
        self._lock = threading.Lock()

    def begin(self, key: str) -> None:
        """Say that a driver starts to work on ``key``."""
        with self._lock:
            if self._pid != os.getpid():
                self._forget()
            if self._file is None:
                self._make()
            self._keys.append(key)
            self._write()

    def end(self, key: str) -> None:
        """Say that the driver is done with ``key``."""
        with self._lock:
            if key in self._keys:
                self._keys.remove(key)
                self._write()

    def close(self) -> None:
        """Remove the mark file."""
        with self._lock:
            if self._fd >= 0 and self._file is not None and self._pid == os.getpid():
                with contextlib.suppress(OSError):
                    os.unlink(self._file)
            self._forget()

    def _forget(self) -> None:
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.close(self._fd)
        self._fd, self._file, self._pid, self._length, self._keys = -1, None, os.getpid(), 0, []

    def _make(self) -> None:
        self._file = self._path.with_name(f"{_prefix(self._path)}{os.getpid()}-{os.urandom(4).hex()}")
        with contextlib.suppress(OSError):
            make_folder(self._path.parent)      # kernels may come from a read-only file elsewhere
            self._fd = open_private(self._file)
            if not _try_lock(self._fd):
                os.unlink(self._file)
                os.close(self._fd)
                self._fd = -1

    def _write(self) -> None:
        """Write the keys over what stood there; zeros fill the rest."""
        if self._fd >= 0:
            content = "\n".join(self._keys).encode()
            with contextlib.suppress(OSError):
                os.pwrite(self._fd, content.ljust(self._length, b"\0"), 0)
                self._length = max(self._length, len(content))


def suspects_of(path: Path) -> list[str]:
    """Return the kernels on which drivers of dead processes worked, and remove the marks."""
    keys: list[str] = []
    with contextlib.suppress(OSError), os.scandir(path.parent) as entries:
        marks = [entry.path for entry in entries if entry.name.startswith(_prefix(path))]
        for mark in marks:
            with contextlib.suppress(OSError):
                fd, _ = open_regular(Path(mark))
                try:
                    if _try_lock(fd):
                        content = os.pread(fd, MAX_MARK_BYTES, 0).rstrip(b"\0").decode("ascii", "replace")
                        keys += [key for key in content.split("\n") if KEY.fullmatch(key)]
                        os.unlink(mark)
                finally:
                    os.close(fd)
    return keys
