"""VkResult to exception."""

from __future__ import annotations

import pytest

from nnk.errors import DeviceLostError, OutOfDeviceMemoryError, VulkanError
from nnk.vk.loader import lib
from nnk.vk.result import RESULT_NAMES, check, raise_result


@pytest.mark.parametrize(("code", "error", "name"), [
    (-1, OutOfDeviceMemoryError, "VK_ERROR_OUT_OF_HOST_MEMORY"),
    (-2, OutOfDeviceMemoryError, "VK_ERROR_OUT_OF_DEVICE_MEMORY"),
    (-4, DeviceLostError, "VK_ERROR_DEVICE_LOST"),
    (-13, VulkanError, "VK_ERROR_UNKNOWN"),
    (-424242, VulkanError, "VkResult"),
    (2, VulkanError, "VK_TIMEOUT"),
])
def test_codes_have_their_class_and_name(code: int, error: type[VulkanError], name: str) -> None:
    with pytest.raises(error) as caught:
        raise_result("vkDoIt", code)
    assert type(caught.value) is error
    assert str(caught.value).startswith(f"vkDoIt failed with {name} ({code}): ")
    assert caught.value.call == "vkDoIt"  # type: ignore[attr-defined]
    assert caught.value.result == f"{name} ({code})"  # type: ignore[attr-defined]


def test_success_is_silent() -> None:
    check("vkDoIt", 0)
    with pytest.raises(VulkanError):
        check("vkDoIt", 1)


def test_names_are_those_of_vulkan() -> None:
    for code, name in RESULT_NAMES.items():
        # The package declares no code of an extension.
        assert getattr(lib, name, code) == code, name
