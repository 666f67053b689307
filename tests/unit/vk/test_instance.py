"""Device choice, over a made-up list of devices."""

from __future__ import annotations

import dataclasses

import pytest

from nnk.errors import NoDeviceError
from nnk.spirv import KERNEL_CAPABILITIES
from nnk.vk import instance
from nnk.vk.instance import DeviceInfo
from tests.fakevulkan import info_of


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> list[DeviceInfo]:
    infos = [info_of(0, "llvmpipe (LLVM 15)", "cpu"), info_of(1, "Some Integrated", "integrated"),
             info_of(2, "Big GPU A", "discrete"), info_of(3, "Big GPU B", "discrete")]
    monkeypatch.setattr(instance, "_state", instance._State(None, [object()] * 4, infos, []))
    return infos


@pytest.mark.parametrize(("name", "index"), [
    ("vulkan", 2), (" Vulkan ", 2), ("vulkan:0", 0), ("vulkan:3", 3), ("llvm", 0), ("big gpu b", 3), ("GPU", 2),
    ("integrated", 1),
])
def test_select(devices: list[DeviceInfo], name: str, index: int) -> None:
    assert instance.select(name).index == index


@pytest.mark.parametrize("name", ["", "vulkan:4", "vulkan:-1", "vulkan:x", "vulkan:", "no such device"])
def test_unknown_name_lists_what_there_is(devices: list[DeviceInfo], name: str) -> None:
    with pytest.raises(NoDeviceError, match=r"there are vulkan:0 \(llvmpipe \(LLVM 15\), cpu\), vulkan:1") as caught:
        instance.select(name)
    assert caught.value.hints  # type: ignore[attr-defined]


def test_no_device_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instance, "_state", instance._State(None, [], [], ["Old GPU"]))
    assert instance.physical_devices() == []
    with pytest.raises(NoDeviceError, match=r"No Vulkan device is present \(Old GPU have no Vulkan 1.2\)"):
        instance.select()


def test_handle_of_a_device_that_went_away(devices: list[DeviceInfo]) -> None:
    assert instance.physical_handle(devices[1])[1] is not None
    with pytest.raises(NoDeviceError, match="no longer there"):
        instance.physical_handle(info_of(9, "gone", "cpu"))


@pytest.mark.parametrize(("controls", "tier"), [
    (set(), "T3"), ({"rounding_rte"}, "T3"), ({"signed_zero_inf_nan_preserve", "denorm_preserve"}, "T3"),
    ({"rounding_rte", "signed_zero_inf_nan_preserve"}, "T1'"),
    ({"rounding_rte", "signed_zero_inf_nan_preserve", "denorm_preserve"}, "T1"),
])
def test_tier(controls: set[str], tier: str) -> None:
    assert info_of(0, "x", "cpu", controls).tier == tier


def test_capabilities_are_those_that_the_device_has() -> None:
    device = info_of(0, "x", "cpu")
    assert device.spirv_capabilities == {1}
    everything = dataclasses.replace(device, subgroup_operations=0xFFFF)
    assert everything.spirv_capabilities == KERNEL_CAPABILITIES
    assert dataclasses.replace(device, subgroup_operations=1 | 16).spirv_capabilities == {1, 61, 65}


def test_limit_is_one_number() -> None:
    assert info_of(0, "x", "cpu").limit("minStorageBufferOffsetAlignment") == 16
    with pytest.raises(TypeError):
        info_of(0, "x", "cpu").limit("maxComputeWorkGroupCount")


def test_list_is_a_copy(devices: list[DeviceInfo]) -> None:
    instance.physical_devices().clear()
    assert len(instance.physical_devices()) == 4
