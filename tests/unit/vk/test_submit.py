"""Command resources: what they hand to a Recorder. Recording itself is tested in tests/unit/_fast/test_dispatch.py."""

from __future__ import annotations

from typing import Any

import pytest

from nnk._fast import dispatch
from nnk.errors import OutOfDeviceMemoryError
from nnk.vk import submit
from nnk.vk.loader import ffi, lib
from nnk.vk.submit import CommandResources, address_of


class FakeLibrary:
    """Counts objects made and destroyed; ``failing`` is the function that fails."""

    def __init__(self, failing: str = "") -> None:
        self.failing = failing
        self.live: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("VK_"):
            return getattr(lib, name)

        def call(*arguments: Any) -> int:
            if name == self.failing:
                return -2
            if name.startswith("vkCreate"):
                self.live.append(name.removeprefix("vkCreate"))
                arguments[-1][0] = ffi.cast(f"Vk{self.live[-1]}", len(self.live))
            if name.startswith("vkDestroy"):
                self.live.remove(name.removeprefix("vkDestroy"))
            return 0
        return call


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> FakeLibrary:
    fake = FakeLibrary()
    monkeypatch.setattr(submit, "lib", fake)
    return fake


def test_everything_made_is_destroyed(library: FakeLibrary) -> None:
    resources = CommandResources(ffi.NULL, 0)
    pools = resources.make_descriptor_pools()
    assert len(pools) == dispatch.SLOTS
    assert all(pools)
    assert sorted(set(library.live)) == ["CommandPool", "DescriptorPool", "Semaphore"]
    resources.destroy()
    assert library.live == []


def test_failure_is_an_error(library: FakeLibrary) -> None:
    library.failing = "vkCreateCommandPool"
    with pytest.raises(OutOfDeviceMemoryError, match="vkCreateCommandPool failed"):
        CommandResources(ffi.NULL, 0)


def test_recorder_gets_the_device_functions(library: FakeLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def address(device: Any, name: bytes) -> Any:
        asked.append(name.decode())
        return ffi.cast("void*", 0x1000 + len(asked))

    monkeypatch.setattr(library, "vkGetDeviceProcAddr", address, raising=False)
    resources = CommandResources(ffi.NULL, 0)
    recorder = resources.make_recorder(65535, 64, True)
    assert tuple(asked) == dispatch.FUNCTION_NAMES
    assert (recorder.serial, recorder.completed) == (1, 0)


def test_address_of_handles() -> None:
    assert address_of(ffi.cast("VkBuffer", 2**63 + 5)) == 2**63 + 5
    assert address_of(ffi.NULL) == 0
