"""Create and release: counts and memory return to where they began."""

from __future__ import annotations

import gc
import resource
import struct
from collections.abc import Iterator

import numpy as np
import pytest

from nnk.vk import instance
from nnk.vk.device import Device
from tests.glsl import build

WORDS = struct.pack("<I", 64)


def resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


@pytest.fixture(params=[True, False], ids=["unified", "staged"])
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    with Device(instance.select(), unified=request.param) as opened:
        yield opened


def test_buffers_come_and_go(device: Device, rng: np.random.Generator) -> None:
    device.trim()
    start = device.stats()
    sizes = rng.integers(0, 200_000, 400)
    for _ in range(3):
        buffers = [device.allocate(int(size)) for size in sizes]
        assert device.stats()["buffers"] == start["buffers"] + len(buffers)
        for index in rng.permutation(len(buffers))[:200]:
            buffers[index].release()
        buffers += [device.allocate(int(size)) for size in sizes[:100]]
        del buffers
        gc.collect()
        assert device.stats()["buffers"] == start["buffers"]
        assert device.stats()["buffer_bytes"] == start["buffer_bytes"]
    device.trim()
    end = device.stats()
    assert {key: end[key] for key in ("blocks", "block_bytes", "reusable_bytes")} == {
        key: start[key] for key in ("blocks", "block_bytes", "reusable_bytes")}


def test_same_sizes_use_the_same_memory(device: Device) -> None:
    for _ in range(1000):
        device.allocate(1 << 20)
    assert device.stats()["block_bytes"] <= 32 << 20


def test_other_sizes_use_the_same_memory(device: Device) -> None:
    """Freed memory of one size is joined and cut anew for other sizes before more is asked for."""
    for size in range(1 << 20, 15 << 20, 1 << 20):
        buffers = [device.allocate(size) for _ in range((15 << 20) // size)]
        del buffers
    assert device.stats()["block_bytes"] <= 48 << 20


def test_kernels_come_and_go(device: Device) -> None:
    module = build("o0[i] = b0[i];")
    x, y = device.allocate(256), device.allocate(256)
    for _ in range(30):
        kernel = device.build_kernel(*module)
        device.dispatch(kernel, [x], [y], WORDS, 1)
        del kernel
        device.wait()
        assert device.stats()["pipelines"] == 0


def test_devices_come_and_go() -> None:
    module = build("o0[i] = b0[i] + 1.0;")

    def use_one() -> None:
        with Device(instance.select()) as opened:
            kernel = opened.build_kernel(*module)
            x, y = opened.allocate(1 << 20), opened.allocate(1 << 20)
            opened.upload(x, np.zeros(1 << 18, np.float32))
            opened.dispatch(kernel, [x], [y], WORDS, 1)
            assert np.frombuffer(opened.download(y), np.float32)[0] == 1

    for _ in range(5):
        use_one()
    gc.collect()
    before = resident_bytes()
    for _ in range(30):
        use_one()
    gc.collect()
    assert resident_bytes() - before < 30 << 20


def test_steady_work_takes_no_more_memory(device: Device) -> None:
    module = build("o0[i] = b0[i] + 1.0;")
    kernel = device.build_kernel(*module)

    def work() -> None:
        x = device.allocate(256, host_write=True)
        device.upload(x, np.zeros(64, np.float32))
        for _ in range(20):
            y = device.allocate(256)
            device.dispatch(kernel, [x], [y], WORDS, 1)
            x = y
        assert np.frombuffer(device.download(x), np.float32)[0] == 20

    for _ in range(50):
        work()
    gc.collect()
    before, blocks = resident_bytes(), device.stats()["block_bytes"]
    for _ in range(300):
        work()
    gc.collect()
    assert device.stats()["block_bytes"] == blocks
    assert resident_bytes() - before < 8 << 20
