"""Files of the cache: who may own them, how one is replaced as a whole.

Every function raises ``OSError`` as the system gives it, or :class:`~nnk.errors.CacheError` for a file that is not
to be trusted. The store turns both into its own errors and warnings.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections.abc import Iterable
from pathlib import Path

from nnk.cache.location import shown
from nnk.errors import CacheError

__all__ = ["check_folder", "check_owner", "device_files", "evidence_of", "make_folder", "open_private", "open_regular",
           "publish", "remove_spare", "remove_stale", "set_aside", "sync_folder", "temporary_prefix"]

#: A temporary file older than this belongs to a writer that died.
STALE_AFTER_S = 3600.0

#: Damaged files that are kept as evidence; older ones are removed.
EVIDENCE_FILES = 2

#: Files of one kind for devices and drivers. A new driver version has a new file, and nothing asks for the old one.
DEVICE_FILES = 8
_OF_DEVICE = re.compile(r"(pipelines-[0-9a-f]{32}-[0-9a-f]{16}\.nnp|selftest-[0-9a-f]{32}-[0-9a-f]{16}\.nns)")

_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_CLOEXEC = getattr(os, "O_CLOEXEC", 0)
_NONBLOCK = getattr(os, "O_NONBLOCK", 0)
_BINARY = getattr(os, "O_BINARY", 0)


def _own_uid() -> int | None:
    return os.geteuid() if hasattr(os, "geteuid") else None


def check_owner(info: os.stat_result, path: Path, *, what: str) -> None:
    """Refuse a file or folder that another user could have written.

    Raises
    ------
    CacheError
        If it belongs to another user than this one or root, or if everybody may write to it (a folder with the
        sticky bit is allowed: only owners can replace files there).
    """
    uid = _own_uid()
    if uid is None:
        return
    if info.st_uid not in (uid, 0):
        raise CacheError(f"Expected {what} {shown(path)} to belong to user {uid} or to root, got user {info.st_uid}: "
                         f"nnk does not use it; set NN_KERNEL_CACHE_DIR to a directory of your own", path=path)
    sticky = stat.S_ISDIR(info.st_mode) and info.st_mode & stat.S_ISVTX
    if info.st_mode & stat.S_IWOTH and not sticky:
        raise CacheError(f"Expected {what} {shown(path)} not to be writable by everybody, got mode "
                         f"{stat.S_IMODE(info.st_mode):04o}: nnk does not use it; run `chmod o-w` on it or set "
                         f"NN_KERNEL_CACHE_DIR to a directory of your own", path=path)


def check_folder(folder: Path) -> None:
    """Check the folder that holds the cache file; ``FileNotFoundError`` if it does not exist."""
    check_owner(os.stat(folder), folder, what="the directory")


def make_folder(folder: Path) -> None:
    """Create ``folder`` and its missing parents with mode 0700, whatever the umask, and check it."""
    missing = []
    parent = folder
    while not parent.exists() and parent != parent.parent:
        missing.append(parent)
        parent = parent.parent
    for path in reversed(missing):
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
            os.chmod(path, 0o700)
    check_folder(folder)


def open_regular(path: Path) -> tuple[int, os.stat_result]:
    """Open ``path`` for reading and return (descriptor, status).

    Links, devices and pipes are refused, and so are files that another user could have written.
    """
    fd = os.open(path, os.O_RDONLY | _NOFOLLOW | _CLOEXEC | _NONBLOCK | _BINARY)
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            raise CacheError(f"Expected a regular file at {shown(path)}, got something else", path=path)
        check_owner(info, path, what="the file")
    except BaseException:
        os.close(fd)
        raise
    return fd, info


def open_private(path: Path) -> int:
    """Open ``path`` for reading and writing, created with mode 0600; refuse a link and a foreign file."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | _NOFOLLOW | _CLOEXEC | _NONBLOCK | _BINARY, 0o600)
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            raise CacheError(f"Expected a regular file at {shown(path)}, got something else", path=path)
        check_owner(info, path, what="the file")
        if info.st_size == 0 and stat.S_IMODE(info.st_mode) != 0o600 and info.st_uid == _own_uid():
            os.fchmod(fd, 0o600)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _write_all(fd: int, chunk: bytes | memoryview) -> None:
    view = memoryview(chunk)
    while view:
        view = view[os.write(fd, view):]


def sync_folder(folder: Path) -> None:
    """Make a rename in ``folder`` durable."""
    fd = os.open(folder, os.O_RDONLY | _CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def temporary_prefix(path: Path) -> str:
    """Return how the names of the temporary files beside ``path`` start."""
    return f".{path.name}.tmp-"


def publish(path: Path, chunks: Iterable[bytes | memoryview]) -> int:
    """Replace ``path`` by a file with this content, all or nothing; return its size in bytes.

    A temporary file in the same folder is written, synced and renamed. Whatever fails, ``path`` keeps its old content
    and the temporary file is gone; a rename whose folder could not be synced counts as done.
    """
    temporary = path.with_name(f"{temporary_prefix(path)}{os.getpid()}-{os.urandom(8).hex()}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW | _CLOEXEC | _BINARY, 0o600)
    size = 0
    buffered: list[bytes | memoryview] = []
    waiting = 0
    try:
        try:
            os.fchmod(fd, 0o600)
            for chunk in chunks:
                buffered.append(chunk)
                waiting += len(chunk)
                size += len(chunk)
                if waiting >= 1 << 20:
                    _write_all(fd, b"".join(buffered))
                    buffered.clear()
                    waiting = 0
            _write_all(fd, b"".join(buffered))
            os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    with contextlib.suppress(OSError):
        sync_folder(path.parent)
    return size


def remove_stale(path: Path, *, now: float | None = None) -> int:
    """Remove temporary files beside ``path`` that a dead writer left; return their number."""
    now = time.time() if now is None else now
    prefix = temporary_prefix(path)
    removed = 0
    with contextlib.suppress(OSError), os.scandir(path.parent) as entries:
        for entry in entries:
            if not entry.name.startswith(prefix):
                continue
            with contextlib.suppress(OSError):
                if now - entry.stat(follow_symlinks=False).st_mtime > STALE_AFTER_S:
                    os.unlink(entry.path)
                    removed += 1
    return removed


def device_files(path: Path) -> list[Path]:
    """Return the files beside ``path`` that belong to one device and driver, the one written last first."""
    found = []
    with contextlib.suppress(OSError), os.scandir(path.parent) as entries:
        for entry in entries:
            if _OF_DEVICE.fullmatch(entry.name):
                with contextlib.suppress(OSError):
                    found.append((entry.stat(follow_symlinks=False).st_mtime_ns, entry.path))
    return [Path(name) for _, name in sorted(found, reverse=True)]


def remove_spare(path: Path) -> None:
    """Keep the newest files of the kind of ``path``, a file of one device and driver, and remove the others."""
    same = [other for other in device_files(path) if other.suffix == path.suffix]
    for spare in same[DEVICE_FILES:]:
        with contextlib.suppress(OSError):
            spare.unlink()


def evidence_of(path: Path) -> list[Path]:
    """Return the damaged files that were set aside for ``path``, oldest first."""
    prefix = f"{path.name}.bad-"
    with contextlib.suppress(OSError), os.scandir(path.parent) as entries:
        return sorted(path.with_name(entry.name) for entry in entries if entry.name.startswith(prefix))
    return []


def set_aside(path: Path) -> Path | None:
    """Keep the damaged file ``path`` under the name ``<name>.bad-<time>``; it also stays where it is.

    A second name costs no copy, and ``path`` is then replaced by :func:`publish`. Where the file system has no hard
    links, nothing is kept and None is returned.
    """
    kept = path.with_name(f"{path.name}.bad-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")
    old = evidence_of(path)
    try:
        if kept not in old:
            os.link(path, kept, follow_symlinks=False)
            old.append(kept)
    except (OSError, NotImplementedError):
        return None
    for spare in old[:-EVIDENCE_FILES]:
        with contextlib.suppress(OSError):
            os.unlink(spare)
    return kept
