"""The writers' lock: exclusive, on ``<file>.lock``, with a deadline.

The lock is a kernel lock on an open file, so it ends with its process, however that dies. The lock file itself is
never removed: a rename or removal would let two writers hold locks on two inodes of one name.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from nnk.cache.files import open_private
from nnk.cache.location import shown
from nnk.errors import CacheError, CacheLockTimeout

__all__ = ["lock_path", "locked"]

FIRST_POLL_S = 0.0005
LONGEST_POLL_S = 0.02

#: Descriptors that hold a lock in this process. A forked child closes its copies, or it would keep the lock.
_held: set[int] = set()


def _forget_in_child() -> None:
    for fd in _held:
        with contextlib.suppress(OSError):
            os.close(fd)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)


def lock_path(path: Path) -> Path:
    """Return the lock file of the cache file ``path``."""
    return path.with_name(path.name + ".lock")


def _acquire(fd: int, path: Path, timeout_s: float) -> None:
    import portalocker
    deadline = time.monotonic() + timeout_s
    poll_s = FIRST_POLL_S
    while True:
        try:
            portalocker.lock(fd, portalocker.LockFlags.EXCLUSIVE | portalocker.LockFlags.NON_BLOCKING)
            return
        except portalocker.AlreadyLocked as exc:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise CacheLockTimeout(f"Expected the lock {shown(path)} within {timeout_s:g} s, got none: another "
                                       f"process holds it; NNK_LOCK_TIMEOUT_S sets the limit", path=path,
                                       seconds=timeout_s) from exc
            # Jitter keeps many waiting processes from polling in step.
            time.sleep(min(left_s, poll_s * (0.5 + os.urandom(1)[0] / 256)))
            poll_s = min(2 * poll_s, LONGEST_POLL_S)
        except portalocker.LockException as exc:
            raise CacheError(f"The file system of {shown(path)} gives no lock: {exc}; set NN_KERNEL_CACHE_DIR to a "
                             f"local directory", path=path) from exc


def _release(fd: int, pid: int) -> None:
    """Unlock at once: closing alone would leave the lock with a child that forked in the block."""
    import portalocker
    if os.getpid() == pid:
        with contextlib.suppress(OSError, portalocker.LockException):
            portalocker.unlock(fd)


@contextlib.contextmanager
def locked(path: Path, timeout_s: float) -> Iterator[None]:
    """Hold the lock of the cache file ``path`` within a block.

    Parameters
    ----------
    path : Path
        The cache file.
    timeout_s : float
        Longest wait, in seconds.

    Raises
    ------
    CacheLockTimeout
        If another process or thread holds the lock for longer.
    CacheError
        If the lock file is a link or belongs to another user, or the file system has no locks.
    OSError
        If the lock file cannot be created.
    """
    lock = lock_path(path)
    fd = open_private(lock)
    pid = os.getpid()
    _held.add(fd)
    try:
        _acquire(fd, lock, timeout_s)
        try:
            yield
        finally:
            _release(fd, pid)
    finally:
        # In a child forked inside the block the descriptor is closed already, and its number may be another file's.
        if os.getpid() == pid:
            _held.discard(fd)
            with contextlib.suppress(OSError):      # a network file system may report old trouble here
                os.close(fd)
