"""The writers' lock: one holder, a deadline, nothing left behind."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import portalocker
import pytest

from nnk.cache import lock
from nnk.errors import CacheError, CacheLockTimeout


def test_lock_excludes_and_times_out(tmp_path: Path) -> None:
    path = tmp_path / "k.nnk"
    with lock.locked(path, 1.0):
        start = time.monotonic()
        with pytest.raises(CacheLockTimeout) as caught, lock.locked(path, 0.1):
            pass
        assert 0.1 <= time.monotonic() - start < 1.0
        assert caught.value.seconds == 0.1  # type: ignore[attr-defined]
        assert caught.value.path == tmp_path / "k.nnk.lock"  # type: ignore[attr-defined]
    with lock.locked(path, 0.0):
        pass
    assert [file.name for file in tmp_path.iterdir()] == ["k.nnk.lock"]


def test_waiting_gets_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "k.nnk"
    order = []

    def hold() -> None:
        with lock.locked(path, 1.0):
            started.set()
            time.sleep(0.05)
            order.append("first")

    started = threading.Event()
    thread = threading.Thread(target=hold)
    thread.start()
    assert started.wait(5)
    with lock.locked(path, 5.0):
        order.append("second")
    thread.join()
    assert order == ["first", "second"]


def test_lock_is_free_after_an_error(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(RuntimeError), lock.locked(tmp_path / "k.nnk", 1.0):
        raise RuntimeError
    with lock.locked(tmp_path / "k.nnk", 0.0):
        pass
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> None:
        raise portalocker.LockException(OSError(37, "No locks available"))

    monkeypatch.setattr(portalocker, "lock", fail)
    with pytest.raises(CacheError, match="gives no lock"), lock.locked(tmp_path / "k.nnk", 1.0):
        pass


def test_a_planted_link_is_refused(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"keep")
    (tmp_path / "k.nnk.lock").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic links"), lock.locked(tmp_path / "k.nnk", 1.0):
        pass
    assert victim.read_bytes() == b"keep"


def test_a_forked_child_does_not_keep_the_lock(tmp_path: Path) -> None:
    read, write = os.pipe()
    with lock.locked(tmp_path / "k.nnk", 1.0):
        child = os.fork()
        if child == 0:
            os.read(read, 1)
            os._exit(0)
    try:
        with lock.locked(tmp_path / "k.nnk", 0.0):
            pass
    finally:
        os.write(write, b"x")
        os.waitpid(child, 0)
        os.close(read)
        os.close(write)


def test_a_child_of_a_dead_holder_does_not_keep_the_lock(tmp_path: Path) -> None:
    """The holder forks and is killed in its block; the grandchild lives on."""
    read, write = os.pipe()
    told, tell = os.pipe()
    holder = os.fork()
    if holder == 0:
        with lock.locked(tmp_path / "k.nnk", 1.0):
            if os.fork() == 0:
                os.write(tell, b"x")
                os.read(read, 1)
                os._exit(0)
            os.read(told, 1)
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(holder, 0)
    try:
        with lock.locked(tmp_path / "k.nnk", 0.0):
            pass
    finally:
        os.write(write, b"x")
        for fd in (read, write, told, tell):
            os.close(fd)
