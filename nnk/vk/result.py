"""VkResult to exception: the one table."""

from __future__ import annotations

from nnk.errors import DeviceLostError, OutOfDeviceMemoryError, VulkanError

__all__ = ["RESULT_NAMES", "check", "raise_result"]

RESULT_NAMES: dict[int, str] = {
    0: "VK_SUCCESS",
    1: "VK_NOT_READY",
    2: "VK_TIMEOUT",
    5: "VK_INCOMPLETE",
    -1: "VK_ERROR_OUT_OF_HOST_MEMORY",
    -2: "VK_ERROR_OUT_OF_DEVICE_MEMORY",
    -3: "VK_ERROR_INITIALIZATION_FAILED",
    -4: "VK_ERROR_DEVICE_LOST",
    -5: "VK_ERROR_MEMORY_MAP_FAILED",
    -6: "VK_ERROR_LAYER_NOT_PRESENT",
    -7: "VK_ERROR_EXTENSION_NOT_PRESENT",
    -8: "VK_ERROR_FEATURE_NOT_PRESENT",
    -9: "VK_ERROR_INCOMPATIBLE_DRIVER",
    -10: "VK_ERROR_TOO_MANY_OBJECTS",
    -12: "VK_ERROR_FRAGMENTED_POOL",
    -13: "VK_ERROR_UNKNOWN",
    -1000069000: "VK_ERROR_OUT_OF_POOL_MEMORY",
    -1000012000: "VK_ERROR_INVALID_SHADER_NV",
}

_ERRORS: dict[int, tuple[type[VulkanError], str]] = {
    -1: (OutOfDeviceMemoryError, "the host has no memory left"),
    -2: (OutOfDeviceMemoryError, "the device has no memory left; release tensors or use smaller ones"),
    -3: (VulkanError, "the driver could not start"),
    -4: (DeviceLostError, "the device was lost (driver reset or removal); make a new engine"),
    -9: (VulkanError, "no driver fits the Vulkan loader"),
    -10: (OutOfDeviceMemoryError, "the driver has too many allocations; release tensors"),
}


def raise_result(call: str, code: int) -> None:
    """Raise the error of a failed Vulkan call.

    Parameters
    ----------
    call : str
        Name of the Vulkan function.
    code : int
        Its VkResult.

    Raises
    ------
    VulkanError
        Always; OutOfDeviceMemoryError and DeviceLostError for their codes.
    """
    name = RESULT_NAMES.get(code, "VkResult")
    error, meaning = _ERRORS.get(code, (VulkanError, "the driver refused it"))
    raise error(f"{call} failed with {name} ({code}): {meaning}", call=call, result=f"{name} ({code})")


def check(call: str, code: int) -> None:
    """Raise unless ``code`` is VK_SUCCESS."""
    if code != 0:
        raise_result(call, code)
