"""The CPU engine: storage in host memory, programs kept by kernel, threads that change nothing."""

import subprocess
import sys

import numpy as np
import pytest

import nnk
from nnk import config
from nnk.engines.cpu import CpuEngine
from nnk.engines.parity import special_values


def test_storage_round_trip():
    engine = CpuEngine()
    data = special_values((5, 7), 1)
    storage = engine.upload(data.copy())
    out = np.empty((5, 7), np.float32)
    engine.download(storage, out)
    assert out.tobytes() == data.tobytes()
    assert engine.allocate(12).nbytes == 12
    assert engine.allocate(0).nbytes == 0


def test_one_program_a_kernel():
    engine = CpuEngine()
    for rows in (1, 5):
        for scale in (2.0, 3.0):
            (engine.array(np.ones((rows, 4), np.float32)) * scale).eval()
    assert len(engine._programs) == 1
    assert engine.dispatch_count == 4
    (engine.array([1.0]) * 2.0 - 1.0).eval()
    assert len(engine._programs) == 2


@pytest.mark.parametrize("threads", [1, 2, 3, 16])
def test_threads_change_no_bit(threads, quiet_numpy):
    x, w = special_values((130, 65), 1), special_values((65, 70), 2)

    def digests(engine):
        a, b = engine.array(x), engine.array(w)
        y = nnk.gelu(a @ b)
        return [nnk.digest(t) for t in (y, nnk.softmax(y), y.T.sum(-1), nnk.layer_norm(a), a.take([5, 1, 129]))]

    assert digests(CpuEngine(threads)) == digests(CpuEngine(1))


def test_threads_come_from_the_settings():
    with config.override(threads=3):
        assert CpuEngine().threads == 3
        assert CpuEngine(2).threads == 2


def test_engine_loads_neither_vulkan_nor_the_compiler():
    code = ("import sys, nnk; y = nnk.softmax(nnk.array([1.0, 2.0], engine='cpu') @ [[1.0], [2.0]]); y.numpy(); "
            "nnk.digest(y); print(sorted({'vulkan', 'nnk._fast.shaderc', 'nnk.vk.device'} & set(sys.modules)))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
