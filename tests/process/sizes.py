"""Large caches: how long opening takes, how much memory it needs, what the cap keeps."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from nnk import config
from nnk.cache import files
from nnk.cache.container import layout
from nnk.cache.entry import Item, check_of
from nnk.cache.store import KernelCache
from tests import ROOT
from tests.kernels import key, spirv

_OPEN = """
import json, os, sys, time
from nnk.cache.store import KernelCache
from tests.kernels import key
import xxhash

def resident_mb():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20

before = resident_mb()
start = time.perf_counter()
cache = KernelCache(sys.argv[1], readonly=True)
first = cache.get(key(int(sys.argv[2]) - 1))
opened_ms = 1000 * (time.perf_counter() - start)
growth_mb = resident_mb() - before
start = time.perf_counter()
for number in range(1000):
    assert cache.get(key(number)) is not None
hit_us = 1000 * (time.perf_counter() - start)
print(json.dumps({"found": first is not None, "opened_ms": opened_ms, "growth_mb": growth_mb, "hit_us": hit_us}))
"""


def make_large(path: Path, *, kernels: int, words: int) -> int:
    """Write a file of this many kernels without a cache object; return its size in bytes."""
    value = spirv(1, words=words)
    check = check_of(value)
    items = (Item(key(n), len(value), check, b"i" * 16, b"", 20_000, lambda: value) for n in range(kernels))
    return files.publish(path, layout(items, generator_version="1", compiler="glslang 12"))


def open_large(path: Path, kernels: int) -> str:
    """Open the file in a new process, read one kernel, then a thousand; return its JSON line."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", _OPEN, str(path), str(kernels)], cwd=ROOT, env=env,
                          capture_output=True, text=True, check=True)
    return done.stdout


def under_a_cap(path: Path, *, kernels: int, cap_mb: int, hot: int, burst: int, words: int) -> dict[str, int]:
    """Put kernels in bursts and use the first ``hot`` all the time; check the cap after every burst."""
    largest = 0
    with config.override(cache_max_mb=cap_mb), KernelCache(path) as cache:
        with cache.deferred():
            for number in range(hot):
                cache.put(key(number), spirv(number, words=words))
        for start in range(hot, kernels, burst):
            with cache.deferred():
                for number in range(start, min(start + burst, kernels)):
                    cache.put(key(number), spirv(number, words=words))
                for number in range(hot):
                    assert cache.get(key(number)) == spirv(number, words=words)
            largest = max(largest, path.stat().st_size)
            assert largest <= cap_mb * 10**6
        evicted = cache.stats().evicted
    return {"largest_file": largest, "evicted": evicted}
