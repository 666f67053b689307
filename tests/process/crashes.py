"""Kill a save at one system call, fail one system call of it, cut its file at one byte; look at what is left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nnk.cache import files
from nnk.cache.container import Snapshot
from nnk.cache.store import KernelCache
from nnk.errors import CacheWarning
from tests import ROOT
from tests.kernels import key, spirv
from tests.process.saving import NEW

OLD = (7, 8, 9)
SYS_CLOSE, SYS_GETPID, SYS_GETEUID, SYS_GETRANDOM = 3, 39, 107, 318
#: Calls that cannot fail, and the one whose failure makes Python keep /dev/urandom open.
NEVER_FAIL = frozenset({SYS_GETPID, SYS_GETEUID, SYS_GETRANDOM})


def build(folder: Path) -> Path:
    """Compile the watcher of system calls."""
    tool = folder / "syscalls"
    subprocess.run(["gcc", "-Wall", "-O1", "-o", tool, ROOT / "tests/native/syscalls.c"], check=True)
    return tool


def watched(tool: Path, mode: Sequence[object], path: Path) -> subprocess.CompletedProcess[str]:
    command = [str(tool), *map(str, mode), sys.executable, "-m", "tests.process.saving", str(path)]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "NNK_LOCK_TIMEOUT_S": "0.2"}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


def calls_of_a_save(tool: Path, path: Path) -> list[int]:
    """Return the numbers of the system calls of one save, in order."""
    prepare(path)
    done = watched(tool, ["count"], path)
    assert done.returncode == 0, done.stderr
    return [int(line.split()[1]) for line in done.stderr.splitlines()]


def prepare(path: Path, *, damaged: bool = False) -> bytes:
    """Make the file with the old kernels, and nothing else in its folder; return its bytes."""
    path.parent.mkdir(exist_ok=True)
    for file in path.parent.iterdir():
        file.unlink()
    with KernelCache(path) as cache, cache.deferred():
        for number in OLD:
            cache.put(key(number), spirv(number))
    if damaged:
        data = bytearray(path.read_bytes())
        data[data.index(spirv(OLD[0])) + 30] ^= 4
        path.write_bytes(data)
    return path.read_bytes()


def names(path: Path) -> list[str]:
    return sorted(file.name for file in path.parent.iterdir())


def check_next_process(path: Path, *, lost: Sequence[int] = ()) -> None:
    """Open the file as the next process does: right values, at most one warning, healed afterwards."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with KernelCache(path) as cache:
            for number in OLD + NEW:
                value = cache.get(key(number))
                assert value in (None, spirv(number))
                assert number in NEW or number in lost or value is not None, f"kernel {number} is lost"
                if value is None:
                    cache.put(key(number), spirv(number))
    assert len(caught) <= 1, [str(item.message) for item in caught]
    with warnings.catch_warnings():
        warnings.simplefilter("error", CacheWarning)
        with KernelCache(path, readonly=True) as cache:
            assert [cache.get(key(number)) for number in OLD + NEW] == [spirv(number) for number in OLD + NEW]


def killed(tool: Path, path: Path, call: int) -> None:
    """Kill a save before its system call number ``call``."""
    old = prepare(path)
    done = watched(tool, ["kill", call], path)
    assert done.returncode == 137, (call, done)
    now = path.read_bytes()
    if now != old:
        snapshot = Snapshot.open(path)
        assert sorted(snapshot.keys()) == sorted(map(key, OLD + NEW))
        snapshot.close()
    assert [name for name in names(path) if ".bad-" in name] == []
    check_next_process(path)


def failed(tool: Path, path: Path, call: int, number: int, error: int) -> None:
    """Let system call ``call`` (of this number) of a save return ``error``."""
    old = prepare(path)
    done = watched(tool, ["fail", call, error], path)
    assert done.returncode == 0, (call, error, done.stderr)
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["got"] == [True] * len(NEW)
    assert len(report["warnings"]) <= 1
    assert number == SYS_CLOSE or report["descriptors"] <= 0, (call, error, report)
    assert set(names(path)) <= {path.name, path.name + ".lock"}, (call, error, names(path))
    if report["warnings"]:
        assert path.read_bytes() == old, (call, error, report)
    check_next_process(path)


def truncated(path: Path, data: bytes, size: int) -> None:
    """Cut the file at ``size`` bytes: what still stands there whole is kept."""
    for file in path.parent.iterdir():
        file.unlink()
    path.write_bytes(data[:size])
    lost = [number for number in OLD if data.index(spirv(number)) + len(spirv(number)) > size]
    check_next_process(path, lost=lost)
    assert len(files.evidence_of(path)) == (0 < size < len(data))
