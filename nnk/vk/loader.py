"""The ``vulkan`` package and the Vulkan loader, or one error that says what is missing.

The rest of the room uses ``ffi`` and ``lib`` (plain cffi) and builds its structs itself: the wrapper functions of the
package cost more than the calls, and its structs do not keep alive what they point to.
"""

from __future__ import annotations

from typing import Any

from nnk.errors import NoDeviceError

__all__ = ["HINTS", "ffi", "lib", "vk"]

#: What a machine needs before it has a Vulkan device.
HINTS = [
    "install the Python package vulkan: pip install vulkan",
    "install the Vulkan loader: apt-get install libvulkan1",
    "install a driver: the GPU vendor's, or apt-get install mesa-vulkan-drivers (llvmpipe in it needs no GPU)",
    "if VK_DRIVER_FILES (or VK_ICD_FILENAMES) is set, it must name driver files that exist",
    "containers need the GPU's device files and driver files from the host",
]


def _load() -> Any:
    try:
        import vulkan
    except ImportError as exc:
        raise NoDeviceError(f"The Python package vulkan cannot be imported ({exc}); pip install vulkan",
                            hints=HINTS) from exc
    except OSError as exc:
        raise NoDeviceError("The Vulkan loader libvulkan.so.1 is missing; apt-get install libvulkan1 "
                            "mesa-vulkan-drivers", hints=HINTS[1:]) from exc
    return vulkan


vk = _load()
ffi = vk.ffi
lib = vk.lib
