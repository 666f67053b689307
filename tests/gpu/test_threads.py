"""Many threads on one engine: every kernel is compiled once, whoever asks for it first."""

from __future__ import annotations

import collections
import threading
import time

import numpy as np
import pytest

import nnk
from nnk.cache.store import KernelCache
from nnk.engines import gpu, select
from nnk.engines.gpu import GpuEngine

THREADS = 32
KERNELS = 6


@pytest.fixture
def compiled(monkeypatch):
    """Count the compilations of each key. Each takes long enough for every other thread to come by meanwhile."""
    counts = collections.Counter()
    compile_kernel = gpu.compile_kernel

    def slow(spec, key, *more):
        counts[key] += 1
        time.sleep(0.05)
        return compile_kernel(spec, key, *more)

    monkeypatch.setattr(gpu, "compile_kernel", slow)
    return counts


def run(work):
    """Run ``work(n)`` in all threads at once; the first error is raised here."""
    barrier, errors = threading.Barrier(THREADS), []

    def start(n):
        try:
            barrier.wait(30)
            work(n)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=start, args=(n,)) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert errors == []
    assert not any(thread.is_alive() for thread in threads)


def chain(x, length):
    for _ in range(length):
        x = x * x + 1.0
    return x


@pytest.mark.parametrize("kernels", [1, KERNELS])
def test_one_compile_per_key(vulkan, compiled, tmp_path, kernels):
    engine = GpuEngine(vulkan.info, KernelCache(tmp_path / "kernels.nnk"))
    compiled.clear()
    values = np.array([0.5, 0.25], np.float32)
    expected = [chain(values, 1 + n) for n in range(kernels)]
    try:
        def work(n):
            for step in range(kernels):
                kind = (n + step) % kernels
                got = chain(engine.array(values), 1 + kind).numpy()
                assert np.array_equal(got, expected[kind])

        run(work)
        assert len(compiled) == kernels
        assert set(compiled.values()) == {1}, compiled
        assert engine.cache.stats().compiles >= kernels
    finally:
        engine.close()


def test_one_engine_per_device():
    """Threads that ask first at the same moment get the same engine."""
    select.forget_engines()
    found = []
    run(lambda n: found.append(nnk.engine("vulkan")))
    assert len({id(engine) for engine in found}) == 1
