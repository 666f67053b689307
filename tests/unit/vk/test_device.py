"""Choices that opening a device makes. A real device is tested in tests/gpu/test_vk_device.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from nnk.errors import DeviceError, NoDeviceError
from nnk.vk import device as device_module
from nnk.vk.device import Device, float_modes_of
from tests.fakevulkan import info_of

GRAPHICS, COMPUTE, TRANSFER = 1, 2, 4


def test_float_modes_are_those_the_device_guarantees() -> None:
    assert float_modes_of(info_of(0, "x", "cpu")) == ()
    controls = {"rounding_rte", "signed_zero_inf_nan_preserve"}
    assert float_modes_of(info_of(0, "x", "cpu", controls)) == ("signed_zero_inf_nan_preserve", "rounding_rte")
    assert len(float_modes_of(info_of(0, "x", "cpu", {*controls, "denorm_preserve"}))) == 3


@pytest.mark.parametrize(("families", "chosen"), [
    ([GRAPHICS | COMPUTE | TRANSFER], 0),
    ([GRAPHICS, COMPUTE], 1),
    ([GRAPHICS | COMPUTE, TRANSFER, COMPUTE | TRANSFER], 2),
    ([TRANSFER, GRAPHICS | COMPUTE], 1),
    ([TRANSFER], None),
    ([], None),
])
def test_queue_family(monkeypatch: pytest.MonkeyPatch, families: list[int], chosen: int | None) -> None:
    def properties(physical: Any, count: Any, rows: Any) -> None:
        count[0] = len(families)
        for index, flags in enumerate(families if rows else []):
            rows[index].queueFlags = flags

    monkeypatch.setattr(device_module, "lib", SimpleNamespace(
        vkGetPhysicalDeviceQueueFamilyProperties=properties, VK_QUEUE_COMPUTE_BIT=COMPUTE,
        VK_QUEUE_GRAPHICS_BIT=GRAPHICS))
    if chosen is None:
        with pytest.raises(NoDeviceError, match="no compute queue"):
            device_module._compute_family(None, info_of(0, "x", "cpu"))
    else:
        assert device_module._compute_family(None, info_of(0, "x", "cpu")) == chosen


def test_a_failed_start_takes_back_what_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def open_half(self: Device, unified: bool, cache: bytes) -> None:
        self._teardown.callback(done.append, "device")
        self._teardown.callback(done.append, "memory")
        raise DeviceError("no more")

    monkeypatch.setattr(Device, "_open", open_half)
    with pytest.raises(DeviceError, match="no more"):
        Device(info_of(0, "x", "cpu"))
    assert done == ["memory", "device"]
