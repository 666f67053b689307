"""Devices and processes: no driver, no loader, fork, exit with work pending, little memory."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

SETUP = """
import gc, os, struct, sys, warnings
from nnk.errors import *
from nnk.vk import instance
from nnk.vk.device import Device
from tests.glsl import build
import numpy as np
def run(device, count=64):
    kernel = device.build_kernel(*build("o0[i] = b0[i] * 2.0 + 1.0;"))
    x, y = device.allocate(4 * count), device.allocate(4 * count)
    device.upload(x, np.arange(count, dtype=np.float32))
    device.dispatch(kernel, [x], [y], struct.pack("<I", count), 1)
    return y
"""


def python(code: str, *, check: bool = True, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-X", "dev", "-c", SETUP + textwrap.dedent(code)], capture_output=True,
                          text=True, check=check, timeout=120, env={**os.environ, **environment})


DRIVER_VARIABLES = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES")


@pytest.mark.parametrize("variable", DRIVER_VARIABLES)
def test_no_driver(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # The first of them wins, and a test run may pin a driver with it.
    for name in DRIVER_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    done = python("""
        for call in (instance.physical_devices, instance.select):
            try:
                call()
            except NoDeviceError as exc:
                print(exc)
                print(" | ".join(exc.hints))
    """, **{variable: "/nonexistent"})
    lines = done.stdout.splitlines()
    assert len(lines) == 4
    assert lines[0].startswith("The Vulkan loader finds no driver. To get one: ")
    for word in ("mesa-vulkan-drivers", "VK_DRIVER_FILES"):
        assert word in lines[1]


def test_fork_after_use_is_an_error_in_the_child_alone() -> None:
    done = python("""
        device = Device(instance.select())
        y = run(device)
        device.flush()
        child = os.fork()
        if child == 0:
            texts = []
            for use in (device.flush, device.wait, lambda: device.allocate(4), lambda: device.download(y),
                        lambda: run(device)):
                try:
                    use()
                except DeviceError as exc:
                    texts.append(str(exc))
            wanted = "belongs to the parent process; start processes with the spawn"
            ok = len(texts) == 5 and all(wanted in text for text in texts)
            del y, device
            gc.collect()
            os._exit(0 if ok else 3)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        print(np.frombuffer(device.download(y), np.float32)[:3])
    """)
    assert done.stdout.splitlines() == ["0", "[1. 3. 5.]"]


def test_device_dropped_in_the_child_is_left_to_the_parent() -> None:
    done = python("""
        device = Device(instance.select())
        y = run(device)
        instance._open.clear()          # as if the child's first hook dropped the device
        child = os.fork()
        if child == 0:
            del device, y
            gc.collect()
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        print(np.frombuffer(device.download(y), np.float32)[:3])
        device.close()
    """)
    assert done.stdout.splitlines() == ["0", "[1. 3. 5.]"]


def test_child_of_a_user_of_vulkan_gets_no_device() -> None:
    """Drivers hang or crash in such a child, at its exit at the latest."""
    done = python("""
        import nnk
        warnings.simplefilter("ignore", DeprecationWarning)
        x = np.linspace(-2, 2, 5000, dtype=np.float32)
        def digest(name):
            return nnk.digest(nnk.exp(nnk.array(x, engine=nnk.engine(name))))
        expected = digest("vulkan")
        child = os.fork()
        if child == 0:
            try:
                nnk.engine("vulkan")
            except NoDeviceError as exc:
                print(exc, "|", *exc.hints)
            warnings.simplefilter("ignore", PerformanceWarning)
            print(nnk.engine("auto").name, digest("cpu") == expected, flush=True)
            sys.exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        print(digest("vulkan") == expected)
    """)
    first, second, *rest = done.stdout.splitlines()
    assert first.startswith("Vulkan was in use before this process was forked")
    assert "spawn" in first
    assert second == "cpu True"
    assert rest == ["0", "True"]


def test_child_of_another_process_opens_a_device() -> None:
    done = python("""
        import nnk.vk.device
        child = os.fork()
        if child == 0:
            with Device(instance.select()) as own:
                good = np.frombuffer(own.download(run(own)), np.float32)[2] == 5
            sys.exit(0 if good else 3)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        print(np.frombuffer((device := Device(instance.select())).download(run(device)), np.float32)[2])
    """)
    assert done.stdout.split() == ["0", "5.0"]


@pytest.mark.parametrize("ending", ["", "device.close()", "del device", "sys.exit(0)", "del y; gc.collect()",
                                    "device.wait()", "kept = device.dispatch"])
def test_exit_with_work_pending(ending: str) -> None:
    done = python(f"""
        device = Device(instance.select())
        for _ in range(100):
            y = run(device)
        print("end", flush=True)
        {ending}
    """)
    assert (done.stdout, done.stderr) == ("end\n", "")


def test_device_that_nobody_holds_is_closed() -> None:
    done = python("""
        for _ in range(3):
            device = Device(instance.select())
            y = run(device)
            recorder = device._recorder
            del device
            gc.collect()
            try:
                recorder.flush()
            except DeviceError as exc:
                print("closed" in str(exc))
            del y
    """)
    assert done.stdout.split() == ["True"] * 3


def test_out_of_memory_is_one_clear_sentence() -> None:
    done = python("""
        import resource
        device = Device(instance.select())
        keep = [run(device)]
        size = min(device.info.limit("maxStorageBufferRange"), 64 << 20)
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (600 << 20), resource.RLIM_INFINITY))
        try:
            for _ in range(100000):
                keep.append(device.allocate(size))
        except OutOfDeviceMemoryError as exc:
            text = str(exc)
        count = len(keep)
        del keep
        device.trim()
        again = device.allocate(size)
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        print(1 < count < 20, text)
        print(np.frombuffer(device.download(run(device)), np.float32)[:2])
    """)
    first, second = done.stdout.splitlines()
    assert first.startswith("True ")
    assert "has no room for" in first
    assert "release tensors or use smaller ones" in first
    assert second == "[1. 3.]"
