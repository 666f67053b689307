"""A real device, with kernels written by hand: results, hazards, limits, teardown. No device is a failure."""

from __future__ import annotations

import gc
import struct
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from nnk import config
from nnk._fast import dispatch
from nnk.errors import DeviceError, FormatError, LimitError, VulkanError
from nnk.vk import instance, memory
from nnk.vk.device import Device
from tests.glsl import build, meta_of

ADD = "o0[i] = b0[i] + b1[i];"
STEP = "o0[i] = b0[i] * 2.0 + 1.0;"


@pytest.fixture(params=["push", "sets", "staged"])
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    """An open device: with push descriptors, with descriptor sets, with memory that the host does not see."""
    with config.override(push_descriptors=request.param != "sets"):
        opened = Device(instance.select(), unified=False if request.param == "staged" else None)
    assert opened.push_descriptors or request.param == "sets"
    with opened:
        yield opened


def words(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}I", *values)


def filled(device: Device, array: np.ndarray[Any, Any]) -> Any:
    buffer = device.allocate(array.nbytes, host_write=True)
    device.upload(buffer, array)
    return buffer


def floats(device: Device, buffer: Any) -> np.ndarray[Any, Any]:
    return np.frombuffer(device.download(buffer), np.float32)


def test_devices_describe_themselves() -> None:
    infos = instance.physical_devices()
    assert [info.index for info in infos] == list(range(len(infos)))
    for info in infos:
        assert info.name
        assert info.api_version >= (1, 2)
        assert info.kind in ("discrete", "integrated", "virtual", "cpu", "other")
        assert info.memory_bytes > 0
        assert len(bytes.fromhex(info.uuid)) == 16
        assert info.limit("maxPushConstantsSize") >= 128
        assert info.tier in ("T1", "T1'", "T3")
    assert instance.select().index in range(len(infos))


def test_a_kernel_adds(device: Device, rng: np.random.Generator) -> None:
    a, b = rng.random((2, 1000), np.float32)
    kernel = device.build_kernel(*build(ADD, 2))
    out = device.allocate(a.nbytes)
    device.dispatch(kernel, [filled(device, a), filled(device, b)], (out,), words(1000), 4)
    assert np.array_equal(floats(device, out), a + b)


def test_several_outputs_and_no_inputs(device: Device) -> None:
    kernel = device.build_kernel(*build("o0[i] = float(int(i)); o1[i] = float(int(i * 2u));", 0, 2))
    first, second = device.allocate(400), device.allocate(400)
    device.dispatch(kernel, [], [first, second], words(100), 1)
    assert np.array_equal(floats(device, first), np.arange(100, dtype=np.float32))
    assert np.array_equal(floats(device, second), 2 * np.arange(100, dtype=np.float32))


def test_chain_of_dependent_dispatches(device: Device) -> None:
    start = np.linspace(0, 1, 5000, dtype=np.float32)
    kernel = device.build_kernel(*build("o0[i] = b0[i] * 0.75 + 1.0;"))
    a, b = filled(device, start), device.allocate(start.nbytes)
    expected = start
    for _ in range(200):
        device.dispatch(kernel, [a], [b], words(5000), 20)
        a, b = b, a
        expected = expected * np.float32(0.75) + np.float32(1.0)
    assert np.array_equal(floats(device, a), expected)
    assert device.stats()["dispatches"] == 200
    assert device.stats()["barriers"] >= 199


def test_write_after_read(device: Device) -> None:
    """The second kernel overwrites what the first one reads; many times, as a race shows now and then only."""
    count = 1 << 16
    kernel = device.build_kernel(*build("o0[i] = b0[w[0] - 1u - i] + 1.0;"))
    fill = device.build_kernel(*build("o0[i] = float(int(w[1]));", 0, 1, 2))
    a, b = device.allocate(4 * count), device.allocate(4 * count)
    for number in range(30):
        device.dispatch(fill, [], [a], words(count, number), 64)
        device.dispatch(kernel, [a], [b], words(count), 64)
        device.dispatch(fill, [], [a], words(count, 1000), 64)
        assert np.array_equal(floats(device, b), np.full(count, number + 1, np.float32))


def test_independent_dispatches_have_no_barrier(device: Device) -> None:
    a = filled(device, np.ones(64, np.float32))
    device.wait()
    before = device.stats()["barriers"]
    kernel = device.build_kernel(*build(STEP))
    outs = [device.allocate(256) for _ in range(20)]
    for out in outs:
        device.dispatch(kernel, [a], [out], words(64), 1)
    assert device.stats()["barriers"] - before <= 1
    for out in outs:
        assert np.array_equal(floats(device, out), np.full(64, 3, np.float32))


def test_memory_of_a_dropped_buffer_is_reused_in_order(device: Device) -> None:
    """A result is dropped before the device has read it, and its memory is written by the next kernel."""
    kernel = device.build_kernel(*build(STEP))
    x = filled(device, np.zeros(4096, np.float32))
    results = []
    for number in range(40):
        fresh = filled(device, np.full(4096, number, np.float32))
        middle = device.allocate(4 * 4096)
        device.dispatch(kernel, [fresh], [middle], words(4096), 16)
        last = device.allocate(4 * 4096)
        device.dispatch(kernel, [middle], [last], words(4096), 16)
        results.append(last)
    for number, result in enumerate(results):
        assert np.array_equal(floats(device, result), np.full(4096, number * 4 + 3, np.float32))
    assert floats(device, x)[0] == 0


def test_upload_waits_for_the_reader(device: Device) -> None:
    kernel = device.build_kernel(*build(STEP))
    source = filled(device, np.full(1 << 16, 5, np.float32))
    out = device.allocate(4 << 16)
    device.dispatch(kernel, [source], [out], words(1 << 16), 64)
    device.upload(source, np.full(1 << 16, 7, np.float32))
    again = device.allocate(4 << 16)
    device.dispatch(kernel, [source], [again], words(1 << 16), 64)
    assert set(floats(device, out)) == {11.0}
    assert set(floats(device, again)) == {15.0}


def test_parameters_in_a_buffer(device: Device) -> None:
    """100 words, none of which fits push constants; more launches than one command buffer has room for."""
    kernel = device.build_kernel(*build("o0[i] = uintBitsToFloat(w[1u + i]);", 0, 1, 300))
    assert kernel.params_in_buffer
    outs = []
    for number in range(150):
        values = np.arange(299, dtype=np.float32) + number
        out = device.allocate(4 * 299)
        device.dispatch(kernel, [], [out], words(299) + values.tobytes(), 2)
        outs.append((out, values))
    for out, values in outs:
        assert np.array_equal(floats(device, out), values)


def test_more_groups_than_the_device_takes(device: Device) -> None:
    limit = device.info.limits["maxComputeWorkGroupCount"]
    assert isinstance(limit, tuple)
    kernel = device.build_kernel(*build("o0[i] = float(int(gl_NumWorkGroups.x));", 0))
    out = device.allocate(4)
    device.dispatch(kernel, [], [out], words(1), 70000)
    assert floats(device, out)[0] == min(70000, limit[0])


@pytest.mark.parametrize("size", [0, 1, 2, 3, 5, 15, 16, 17, 63, 65, 1000, 4095, 65537, 5 << 20])
def test_odd_sizes_round_trip(device: Device, size: int, rng: np.random.Generator) -> None:
    data = rng.integers(0, 256, size, np.uint8).tobytes()
    buffer = device.allocate(size)
    assert buffer.nbytes == size
    device.upload(buffer, data)
    assert device.download(buffer) == data
    target = np.zeros(size, np.uint8)
    assert device.download(buffer, target) is target
    assert target.tobytes() == data


def test_parts_of_a_buffer(device: Device) -> None:
    buffer = device.allocate(10)
    device.upload(buffer, b"0123456789")
    device.upload(buffer, b"ab", 3)
    assert device.download(buffer) == b"012ab56789"
    assert device.download(buffer, bytearray(4), 6) == b"6789"
    assert device.download(buffer, offset=8) == b"89"
    for call in (lambda: device.upload(buffer, bytes(11)), lambda: device.upload(buffer, b"x", 10),
                 lambda: device.download(buffer, bytearray(11)), lambda: device.download(buffer, b"read only!")):
        with pytest.raises(DeviceError, match="Expected"):
            call()


def test_empty_buffer_can_be_bound(device: Device) -> None:
    kernel = device.build_kernel(*build(STEP))
    device.dispatch(kernel, [device.allocate(0)], [device.allocate(0)], words(0), 1)
    device.wait()


def test_many_bindings(device: Device) -> None:
    body = "o0[i] = " + " + ".join(f"b{index}[i]" for index in range(16)) + ";"
    kernel = device.build_kernel(*build(body, 16))
    inputs = [filled(device, np.full(64, 1 << index, np.float32)) for index in range(16)]
    out = device.allocate(256)
    device.dispatch(kernel, inputs, [out], words(64), 1)
    assert set(floats(device, out)) == {65535.0}


def test_too_large_for_the_device(device: Device) -> None:
    maximum = device.info.limit("maxMemoryAllocationSize")
    with pytest.raises(LimitError, match=f"got {maximum + 1}; use smaller tensors") as caught:
        device.allocate(maximum + 1)
    assert caught.value.requested == maximum + 1  # type: ignore[attr-defined]
    with pytest.raises(LimitError):
        device.allocate(-1)
    with pytest.raises(LimitError, match="storage buffers"):
        device.build_kernel(build(ADD, 2)[0], meta_of(dispatch.MAX_BINDINGS, 1, 1))


def test_bytes_that_are_no_module(device: Device) -> None:
    for data in (b"", b"1234" * 20):
        with pytest.raises(FormatError):
            device.build_kernel(data, meta_of(1, 1, 1))


def test_wrong_use_is_refused(device: Device) -> None:
    kernel = device.build_kernel(*build(ADD, 2))
    a = device.allocate(64)
    with pytest.raises(DeviceError, match="Expected 2 input buffers, got 1"):
        device.dispatch(kernel, [a], [a], words(1), 1)
    with Device(instance.select()) as other, pytest.raises(DeviceError, match="another device"):
        device.dispatch(kernel, [a, other.allocate(64)], [a], words(1), 1)


def test_kernel_dropped_before_it_ran(device: Device) -> None:
    out = device.allocate(400)
    for number in range(5):
        kernel = device.build_kernel(*build(f"o0[i] = {number}.5;", 0))
        device.dispatch(kernel, [], [out], words(100), 1)
        del kernel
    assert set(floats(device, out)) == {4.5}
    device.wait()
    gc.collect()
    device.wait()
    assert device.stats()["pipelines"] == 0


def test_closed_device_says_so(device: Device) -> None:
    kernel = device.build_kernel(*build(ADD, 2))
    a = device.allocate(64)
    device.dispatch(kernel, [a, a], [device.allocate(64)], words(16), 1)
    device.close()
    device.close()
    assert device.closed
    uses = (lambda: device.allocate(1), lambda: device.upload(a, b"x"), lambda: device.download(a), device.flush,
            device.wait, lambda: device.build_kernel(*build(ADD, 2)), device.pipeline_cache_data, device.trim,
            lambda: device.dispatch(kernel, [a, a], [a], words(16), 1))
    for use in uses:
        with pytest.raises(DeviceError, match="closed"):
            use()


def test_pipeline_cache_goes_in_and_out(device: Device) -> None:
    device.build_kernel(*build(ADD, 2))
    data = device.pipeline_cache_data()
    assert isinstance(data, bytes)
    with Device(instance.select(), pipeline_cache=data) as again:
        again.build_kernel(*build(ADD, 2))


def test_threads_share_a_device(device: Device) -> None:
    kernel = device.build_kernel(*build(STEP))
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(15):
                value = float(number * 100 + turn)
                x = filled(device, np.full(3000, value, np.float32))
                for _ in range(4):
                    y = device.allocate(x.nbytes)
                    device.dispatch(kernel, [x], [y], words(3000), 12)
                    x, value = y, value * 2 + 1
                assert set(floats(device, x)) == {value}
        except BaseException as exc:
            failures.append(exc)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_execution_modes_keep_subnormals_and_signed_zeros(device: Device) -> None:
    """Tier T1' is a self-test: with RTE and SignedZeroInfNanPreserve, subnormals survive."""
    values = np.array([1e-45, 1e-40, -1e-39, 1.1754942e-38, -0.0, np.inf, 3.0], np.float32)
    kernel = device.build_kernel(*build("o0[i] = b0[i] * 0.5 + b0[i];"))
    out = device.allocate(values.nbytes)
    device.dispatch(kernel, [filled(device, values)], [out], words(len(values)), 1)
    expected = values * np.float32(0.5) + values
    assert np.array_equal(floats(device, out).view(np.uint32), expected.view(np.uint32))


def test_integrated_device_without_shared_memory_is_staged(monkeypatch: pytest.MonkeyPatch) -> None:
    choose, both = memory.choose_memory_type, memory._HOST | memory._LOCAL

    def no_shared_type(properties: Any, allowed: int, required: int, preferred: int = 0) -> int | None:
        return None if required == both else choose(properties, allowed, required, preferred)

    monkeypatch.setattr(memory, "choose_memory_type", no_shared_type)
    with Device(instance.select(), unified=True) as device:
        buffer = device.allocate(10)
        device.upload(buffer, b"0123456789")
        assert buffer.span.address == 0
        assert device.download(buffer) == b"0123456789"


def test_driver_refusal_is_a_vulkan_error() -> None:
    with Device(instance.select()) as device, pytest.raises(VulkanError, match=r"vkCreateBuffer|vkAllocateMemory"):
        device._memory._local.make(1 << 62)
