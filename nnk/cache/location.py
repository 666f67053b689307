"""Where the kernel cache is: two environment variables, then the user's cache folder of the system."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from nnk import config

__all__ = ["FILE_NAME", "cache_path", "extra_paths", "shown"]

FILE_NAME = "kernels.nnk"


def _absolute(path: str) -> Path:
    """Return ``path`` as an absolute path that a later chdir does not move; ``~`` is expanded where possible."""
    return Path(os.path.abspath(os.path.expanduser(path)))


def _system_folder() -> Path:
    import platformdirs
    with contextlib.suppress(RuntimeError):     # no HOME and no entry for this uid
        folder = platformdirs.user_cache_path("nnk", appauthor=False)
        if folder.is_absolute():
            return folder
    # A predictable name in a shared folder: the store checks who owns it before use.
    user = os.getuid() if hasattr(os, "getuid") else "user"
    return Path(tempfile.gettempdir(), f"nnk-{user}")


def cache_path() -> Path:
    """Return the path of the kernel cache file; nothing is created.

    ``NN_KERNEL_CACHE_PATH`` names the file itself and wins; ``NN_KERNEL_CACHE_DIR`` names the directory of
    `kernels.nnk`; without both it is in the user's cache folder (``~/.cache/nnk`` on Linux).
    """
    path = config.get("cache_path")
    if path:
        return _absolute(path)
    folder = config.get("cache_dir")
    return (_absolute(folder) if folder else _system_folder()) / FILE_NAME


def extra_paths() -> tuple[Path, ...]:
    """Return the read-only cache files of ``NNK_CACHE_EXTRA``, in search order."""
    return tuple(_absolute(path) for path in config.get("cache_extra").split(os.pathsep) if path)


def shown(path: str | os.PathLike[str]) -> str:
    """Return ``path`` for a message: bytes that are no UTF-8 appear as escapes."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
