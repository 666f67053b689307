"""Many processes over one cache file."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

from nnk.cache.container import Snapshot
from nnk.cache.store import KernelCache
from tests import ROOT
from tests.kernels import key, spirv


def start(path: Path, first: int, count: int, *more: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.process.writing", str(path), str(first), str(count), *map(str, more)]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "NNK_LOCK_TIMEOUT_S": "60"}
    return subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def release(children: list[subprocess.Popen[str]], path: Path) -> None:
    """Let the children go at the same moment, once all of them are ready."""
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    path.write_bytes(b"")


def look(path: Path) -> int:
    """Read the whole file as a reader does, without a lock; every entry in it must be whole. Return their number."""
    snapshot = Snapshot.open(path)
    try:
        assert snapshot.state in ("absent", "good"), snapshot.problems
        names = snapshot.keys()
        for name in names:
            entry = snapshot.read(name)
            assert entry is not None
            assert entry.spirv == spirv(int(name[3:], 16))
        return len(names)
    finally:
        snapshot.close()


def writers(path: Path, *, processes: int, each: int) -> None:
    """Let processes write distinct kernels at once, with a reader that looks all the time."""
    go = path.with_name("go")
    children = [start(path, number * each, each, go) for number in range(processes)]
    release(children, go)
    seen = 0
    while any(child.poll() is None for child in children):
        now = look(path)
        assert now >= seen, "a reader saw the file shrink"
        seen = now
    for child in children:
        out, err = child.communicate()
        assert child.returncode == 0, err
        assert out.splitlines()[-1] == "warnings 0", out
    assert look(path) == processes * each


def first_runs(path: Path, *, processes: int) -> None:
    """Let processes make the same first kernel at once, in a folder that does not exist."""
    go = path.parent.with_name("go")
    children = [start(path, 5, 1, go) for _ in range(processes)]
    release(children, go)
    for child in children:
        out, err = child.communicate()
        assert child.returncode == 0, err
        assert out.splitlines()[-1] == "warnings 0", out
    assert look(path) == 1


def killing(path: Path, *, processes: int, seconds: float, seed: int) -> dict[str, int]:
    """Kill writers at random moments. What a writer reported as flushed must be there at the end."""
    chance = random.Random(seed)
    deadline = time.monotonic() + seconds
    children: list[subprocess.Popen[str]] = []
    committed: set[int] = set()
    counts = {"started": 0, "killed": 0, "committed": 0}

    def reap(child: subprocess.Popen[str]) -> None:
        out, err = child.communicate()
        assert child.returncode in (0, -signal.SIGKILL), err
        lines = [line for line in out.split("\n")[:-1] if line.isdigit()]
        committed.update(map(int, lines))

    # A slow machine gets the time that it needs to commit something before a kill.
    while time.monotonic() < deadline or (not committed and time.monotonic() < deadline + 60):
        while len(children) < processes:
            children.append(start(path, 1000 * counts["started"], 1000))
            counts["started"] += 1
        time.sleep(chance.uniform(0.05, 0.4))
        child = children.pop(chance.randrange(len(children)))
        if child.poll() is None:
            child.send_signal(signal.SIGKILL)
            counts["killed"] += 1
        reap(child)
        look(path)
    for child in children:
        child.send_signal(signal.SIGKILL)
        reap(child)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with KernelCache(path, readonly=True) as cache:
            for number in committed:
                assert cache.get(key(number)) == spirv(number), f"kernel {number} was committed and is lost"
    counts["committed"] = len(committed)
    return counts
