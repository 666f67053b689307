"""Odd environments: no home, no user entry, full disks, read-only folders, foreign owners, odd names."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import portalocker.portalocker
import pytest

from nnk import config
from nnk.cache import location, store
from nnk.cache.store import KernelCache
from nnk.errors import CacheError
from tests import ROOT
from tests.kernels import fill, key, spirv

#: A user without an entry in the system's table.
STRANGER = 54321


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yield a folder that other users can reach, unlike those of pytest."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def in_child(work: Callable[[], Any], *, user: int | None = None) -> Any:
    """Run ``work`` in a forked process, as another user where this one may become one, and return its result."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        result: Any = {"error": "died"}
        try:
            if user is not None and os.geteuid() == 0:
                os.setgroups([])
                os.setgid(user)
                os.setuid(user)
            result = work()
        except BaseException as exc:
            result = {"error": repr(exc)}
        finally:
            os.write(write, json.dumps(result).encode())
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        result = json.loads(pipe.read())
    os.waitpid(child, 0)
    assert not isinstance(result, dict) or "error" not in result, result
    return result


def use(path: Path | None, *numbers: int) -> dict[str, Any]:
    """Look kernels up, put what is missing, look again; return what was found and the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cache = KernelCache(path)
        first = [cache.get(key(n)) == spirv(n) for n in numbers]
        for number, found in zip(numbers, first, strict=True):
            if not found:
                cache.put(key(number), spirv(number))
        second = [cache.get(key(n)) == spirv(n) for n in numbers]
        cache.close()
    return {"first": first, "second": second, "warnings": [str(item.message) for item in caught]}


def test_no_home_no_user_no_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "NN_KERNEL_CACHE_DIR", "XDG_CACHE_HOME", "USER", "LOGNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    config.reset()
    folder.chmod(0o1777)

    def work() -> dict[str, Any]:
        return {"path": str(location.cache_path()), **use(None, 1)}

    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    report = in_child(work, user=STRANGER)
    assert report["second"] == [True]
    assert report["warnings"] == []
    assert report["path"].startswith(f"{folder}/nnk-")


def test_a_read_only_folder_gives_all_hits(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no attempt to write, although the kernels were last used on another day."""
    path = folder / "kernels.nnk"
    monkeypatch.setattr(store, "today", lambda: 20_000)
    fill(path, 1, 2, 3)
    monkeypatch.undo()
    path.chmod(0o644)
    before = sorted(os.listdir(folder))
    attempts: list[object] = []
    real_access = os.access

    def work() -> dict[str, Any]:
        monkeypatch.setattr(store, "save", lambda *args, **more: attempts.append(args))
        if os.geteuid() == 0:
            raise AssertionError("root may write everywhere")
        return {"attempts": len(attempts), **use(path, 1, 2, 3), "later": len(attempts)}

    if os.geteuid() != 0:
        monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and real_access(path, mode))
    report = in_child(work, user=STRANGER)
    assert report == {"attempts": 0, "later": 0, "first": [True] * 3, "second": [True] * 3, "warnings": []}
    assert sorted(os.listdir(folder)) == before


def test_a_miss_in_a_read_only_folder_warns_once(folder: Path) -> None:
    path = folder / "kernels.nnk"
    fill(path, 1)
    path.chmod(0o644)
    content = path.read_bytes()
    if os.geteuid() != 0:
        folder.chmod(0o555)
    report = in_child(lambda: use(path, 1, 2, 3), user=STRANGER)
    folder.chmod(0o755)
    assert report["first"] == [True, False, False]
    assert report["second"] == [True] * 3
    assert len(report["warnings"]) == 1
    assert path.read_bytes() == content


def as_another(user: int) -> Callable[[], None]:
    """Return what makes this process another user where it may not become one."""
    def change() -> None:
        if os.geteuid() != user:
            os.geteuid = lambda: user  # type: ignore[assignment]
    return change


@pytest.mark.parametrize("what", ["file", "folder", "lock"])
def test_a_foreign_owner_is_refused(folder: Path, what: str) -> None:
    """What another user (not root) made is not used, and stays as it was."""
    inner = folder / "inner"
    path = inner / "kernels.nnk"
    inner.mkdir()
    fill(path, 1)
    if os.geteuid() == 0:
        os.chown(inner, STRANGER if what != "folder" else STRANGER + 1, 0)
        os.chown(path, STRANGER + 1 if what == "file" else STRANGER, 0)
        os.chown(path.with_name("kernels.nnk.lock"), STRANGER + 1 if what == "lock" else STRANGER, 0)
        inner.chmod(0o755)
        for file in inner.iterdir():
            file.chmod(0o644)
    content = path.read_bytes()

    def work() -> dict[str, Any]:
        as_another(STRANGER)()
        return use(path, 1, 2)

    report = in_child(work, user=STRANGER)
    assert report["second"] == [True, True]
    assert len(report["warnings"]) == 1
    assert path.read_bytes() == content
    assert [file.name for file in inner.iterdir() if ".tmp-" in file.name] == []
    if what != "lock" and os.geteuid() == 0:
        assert report["first"] == [False, False]


@pytest.mark.parametrize("limit", [0, 100, 300])
def test_a_file_size_limit(folder: Path, limit: int) -> None:
    path = folder / "kernels.nnk"
    fill(path, 1)
    content = path.read_bytes()

    def work() -> dict[str, Any]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        return use(path, 1, 2, 3, 4, 5)

    report = in_child(work)
    assert report["second"] == [True] * 5
    assert len(report["warnings"]) == 1
    assert os.strerror(errno.EFBIG) in report["warnings"][0]
    assert path.read_bytes() == content
    assert sorted(os.listdir(folder)) == ["kernels.nnk", "kernels.nnk.lock"]


def test_no_descriptors_left(folder: Path) -> None:
    path = folder / "kernels.nnk"
    fill(path, 1)

    def work() -> dict[str, Any]:
        import portalocker  # noqa: F401  modules cannot be loaded without descriptors either
        soft = max(map(int, os.listdir("/proc/self/fd")))
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, soft))
        return use(path, 1, 2)

    report = in_child(work)
    assert report["second"] == [True, True]
    assert len(report["warnings"]) <= 1


@pytest.mark.parametrize("name", [b"\xff\xfe odd", b"new\nline", b"-rf", "ünï 中".encode()])
def test_odd_bytes_in_the_path(folder: Path, name: bytes) -> None:
    path = folder / os.fsdecode(name) / "kernels.nnk"
    assert use(path, 1) == {"first": [False], "second": [True], "warnings": []}
    assert use(path, 1)["first"] == [True]
    path.write_bytes(b"damaged")
    report = use(path, 1)
    assert len(report["warnings"]) == 1
    assert report["warnings"][0].isprintable() or b"\n" in name
    assert str(KernelCache(path)).encode()


def test_a_file_in_place_of_the_folder(folder: Path) -> None:
    (folder / "file").write_bytes(b"")
    report = use(folder / "file" / "inner" / "kernels.nnk", 1)
    assert report["second"] == [True]
    assert len(report["warnings"]) == 1


def test_a_folder_in_place_of_the_file(folder: Path) -> None:
    (folder / "kernels.nnk").mkdir()
    report = use(folder / "kernels.nnk", 1)
    assert report["second"] == [True]
    assert len(report["warnings"]) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cache = KernelCache(folder / "kernels.nnk")
        cache.put(key(1), spirv(1))
        with pytest.raises(CacheError):
            cache.flush()
        cache.close()


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_modes_do_not_depend_on_the_umask(folder: Path, umask: int) -> None:
    path = folder / "a" / "b" / "kernels.nnk"

    def work() -> dict[str, Any]:
        os.umask(umask)
        report = use(path, 1)
        cache = KernelCache(path)
        with cache.building(key(1)):
            report["modes"] = {str(file.relative_to(folder)).partition(".build-")[0]: file.stat().st_mode & 0o7777
                               for file in sorted(folder.rglob("*"))}
        cache.close()
        return report

    report = in_child(work)
    assert report["warnings"] == []
    assert report["modes"] == {"a": 0o700, "a/b": 0o700, "a/b/kernels.nnk": 0o600, "a/b/kernels.nnk.lock": 0o600,
                               "a/b/.kernels.nnk": 0o600}


@pytest.mark.parametrize("error", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks(folder: Path, error: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there is hit; what is new stays in memory, with one warning; nothing is written."""
    path = folder / "kernels.nnk"
    fill(path, 1)
    before = path.read_bytes()

    def fail(*args: object) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(portalocker.portalocker, "LOCKER", fail)
    report = use(path, 1, 2, 3)
    assert (report["first"], report["second"]) == ([True, False, False], [True] * 3)
    assert len(report["warnings"]) == 1
    assert "gives no lock" in report["warnings"][0]
    assert path.read_bytes() == before
    assert sorted(os.listdir(folder)) == ["kernels.nnk", "kernels.nnk.lock"]


def test_puts_while_the_interpreter_shuts_down(folder: Path) -> None:
    """From handlers that run after nnk's own, and from a finalizer; no thread can start any more."""
    code = ("import atexit, sys\n"
            "def late():\n"
            "    cache.put(key(1), spirv(1)); assert cache.get(key(1)) == spirv(1)\n"
            "    cache.put(key(2), spirv(2)); assert cache.get(key(9)) is None\n"
            "atexit.register(late)\n"
            "from nnk.cache.store import KernelCache; from tests.kernels import fill, key, spirv\n"
            f"cache = KernelCache({str(folder / 'kernels.nnk')!r})\n"
            "class Last:\n"
            "    def __del__(self, cache=cache, key=key, spirv=spirv): cache.put(key(3), spirv(3))\n"
            "sys.last = Last()\n"
            "for n in range(10, 40): cache.put(key(n), spirv(n))\n")
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=ROOT, capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert use(folder / "kernels.nnk", 1, 2, *range(10, 40))["first"] == [True] * 32


def test_stale_temporaries_leave_with_the_next_save(folder: Path) -> None:
    path = folder / "kernels.nnk"
    old, new, other = (folder / name for name in (".kernels.nnk.tmp-1-a", ".kernels.nnk.tmp-2-b", ".other.tmp-1-a"))
    for file in (old, new, other):
        file.write_bytes(b"x")
    for file in (old, other):
        os.utime(file, (0, 0))
    fill(path, 1)
    assert (old.exists(), new.exists(), other.exists()) == (False, True, True)


def test_work_pending_at_exit(folder: Path) -> None:
    code = ("from nnk.cache.store import KernelCache; from tests.kernels import fill, key, spirv\n"
            f"cache = KernelCache({str(folder / 'kernels.nnk')!r})\n"
            "for n in range(30): cache.put(key(n), spirv(n))\n")
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=ROOT, capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert use(folder / "kernels.nnk", *range(30))["first"] == [True] * 30
