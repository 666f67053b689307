"""The ``vulkan`` package and the Vulkan loader, or one error that says what is missing.

The rest of the room uses plain cffi: ``ffi`` makes structs, ``lib`` has functions and constants. The package's wrapper
functions cost more than the calls, and its structs do not keep alive what they point to.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os.path
from typing import Any

from nnk.errors import NoDeviceError

__all__ = ["HINTS", "ffi", "lib"]

#: What a machine needs before it has a Vulkan device.
HINTS = [
    "install the Python package vulkan: pip install vulkan",
    "install the Vulkan loader: apt-get install libvulkan1",
    "install a driver: the GPU vendor's, or apt-get install mesa-vulkan-drivers (llvmpipe in it needs no GPU)",
    "if VK_DRIVER_FILES (or VK_ICD_FILENAMES) is set, it must name driver files that exist",
    "containers need the GPU's device files and driver files from the host",
]


#: File names of the Vulkan loader.
LIBRARIES = ("libvulkan.so.1", "vulkan-1.dll", "libvulkan.dylib")


def _load_ffi() -> Any:
    """Return the declarations of Vulkan.

    They are one file of the package. Loading it alone takes half the time of ``import vulkan``, which runs 22 000 lines
    of wrapper functions that nnk does not call.
    """
    spec = importlib.util.find_spec("vulkan")
    if spec is None:
        raise ImportError("no module named vulkan")
    for folder in spec.submodule_search_locations or ():
        path = os.path.join(folder, "_vulkancache.py")
        if os.path.exists(path):
            part = importlib.util.spec_from_file_location("vulkan._vulkancache", path)
            assert part is not None
            assert part.loader is not None
            module = importlib.util.module_from_spec(part)
            part.loader.exec_module(module)
            return module.ffi
    return importlib.import_module("vulkan").ffi


def _load() -> tuple[Any, Any]:
    try:
        declarations = _load_ffi()
    except ImportError as exc:
        raise NoDeviceError(f"The Python package vulkan cannot be imported ({exc}); pip install vulkan",
                            hints=HINTS) from exc
    for name in LIBRARIES:
        with contextlib.suppress(OSError):
            return declarations, declarations.dlopen(name)
    raise NoDeviceError("The Vulkan loader libvulkan.so.1 is missing; apt-get install libvulkan1 mesa-vulkan-drivers",
                        hints=HINTS[1:])


ffi, lib = _load()
