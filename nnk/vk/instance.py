"""The Vulkan instance of the process, its physical devices, and the choice of one.

The instance is made on first use and destroyed at exit, after all devices. A forked child of a process that used Vulkan
gets none: drivers keep threads and exit handlers that do not survive a fork.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

from nnk.errors import NoDeviceError
from nnk.spirv import GROUP_CAPABILITIES, KERNEL_CAPABILITIES
from nnk.vk.loader import HINTS, ffi, lib
from nnk.vk.result import check

__all__ = ["DeviceInfo", "physical_devices", "physical_handle", "select"]

#: Vulkan 1.2 brings SPIR-V 1.5, timeline semaphores and float controls.
MIN_API_VERSION = (1, 2)

#: What to do instead of using Vulkan on both sides of a fork.
FORK_HINTS = ["start processes with the spawn or forkserver method, or use Vulkan in the child only",
              'use the engine "cpu" in the child']

_KINDS = {0: "other", 1: "integrated", 2: "discrete", 3: "virtual", 4: "cpu"}
_KIND_ORDER = ("discrete", "integrated", "virtual", "cpu", "other")

#: Limits that a DeviceInfo records, by their Vulkan names.
_LIMITS = ("maxStorageBufferRange", "maxPushConstantsSize", "maxComputeWorkGroupInvocations",
           "maxComputeSharedMemorySize", "minStorageBufferOffsetAlignment", "maxPerStageDescriptorStorageBuffers",
           "maxDescriptorSetStorageBuffers", "maxPerStageResources", "maxMemoryAllocationCount",
           "nonCoherentAtomSize", "minMemoryMapAlignment")
_ARRAY_LIMITS = ("maxComputeWorkGroupCount", "maxComputeWorkGroupSize")


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """What is known of a physical device without opening it.

    ``index`` is its place in :func:`physical_devices`; ``memory_bytes`` the size of its largest device-local heap;
    ``limits`` has Vulkan's names. ``float_controls`` has the names of ``nnk.spirv.FLOAT_MODES`` that the device
    guarantees; ``subgroup_operations`` are the bits of VkSubgroupFeatureFlags that hold in compute shaders;
    ``pipeline_cache_uuid`` changes with everything that makes the driver's pipelines. ``tier`` is the
    numerics tier (docs/numerics.md, R10) that ``float_controls`` allow; ``T1'`` holds by self-test only.
    """

    index: int
    name: str
    kind: str
    vendor_id: int
    device_id: int
    driver_name: str
    driver_version: str
    api_version: tuple[int, int, int]
    uuid: str
    memory_bytes: int
    subgroup_size: int
    extensions: frozenset[str] = field(repr=False)
    limits: dict[str, int | tuple[int, ...]] = field(repr=False)
    float_controls: frozenset[str] = frozenset()
    pipeline_cache_uuid: str = field(default="0" * 32, repr=False)
    subgroup_operations: int = field(default=0, repr=False)

    @property
    def tier(self) -> str:
        """Numerics tier that the properties promise: ``T1``, ``T1'`` or ``T3``. The self-test has the last word."""
        if not {"rounding_rte", "signed_zero_inf_nan_preserve"} <= self.float_controls:
            return "T3"
        return "T1" if "denorm_preserve" in self.float_controls else "T1'"

    @property
    def spirv_capabilities(self) -> frozenset[int]:
        """Capabilities that a kernel may declare on this device: those of kernels that the device has."""
        return frozenset(capability for capability in KERNEL_CAPABILITIES
                         if not (bit := GROUP_CAPABILITIES.get(capability, 0)) or self.subgroup_operations & bit)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain data for JSON."""
        facts = {row.name: getattr(self, row.name) for row in fields(self)}
        return {**facts, "extensions": sorted(self.extensions), "float_controls": sorted(self.float_controls),
                "tier": self.tier}

    def limit(self, name: str) -> int:
        """Return a limit that is one number."""
        value = self.limits[name]
        if isinstance(value, tuple):
            raise TypeError(f"{name} is a tuple")
        return value


class _Closable(Protocol):
    def close(self) -> None:
        """Free everything."""

    def abandon(self) -> None:
        """Forget everything without a call into the driver: the process was forked."""


@dataclass(slots=True)
class _State:
    """The instance and what was found through it."""

    instance: Any
    handles: list[Any]
    infos: list[DeviceInfo]
    too_old: list[str]


_state: _State | None = None
_forked = False
_lock = threading.Lock()
_open: weakref.WeakSet[_Closable] = weakref.WeakSet()


def register(device: _Closable) -> None:
    """Have an open device closed before the instance is destroyed at exit."""
    _open.add(device)


def _create_instance() -> Any:
    name = ffi.new("char[]", b"nnk")
    application = ffi.new("VkApplicationInfo*", {
        "sType": lib.VK_STRUCTURE_TYPE_APPLICATION_INFO, "pApplicationName": name, "pEngineName": name,
        "apiVersion": MIN_API_VERSION[0] << 22 | MIN_API_VERSION[1] << 12,
    })
    info = ffi.new("VkInstanceCreateInfo*", {
        "sType": lib.VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, "pApplicationInfo": application,
    })
    handle = ffi.new("VkInstance*")
    code = lib.vkCreateInstance(info, ffi.NULL, handle)
    if code == lib.VK_ERROR_INCOMPATIBLE_DRIVER:
        raise _no_device("The Vulkan loader finds no driver")
    check("vkCreateInstance", code)
    return handle[0]


def _no_device(what: str) -> NoDeviceError:
    hints = HINTS[2:]
    return NoDeviceError(f"{what}. To get one: {'; '.join(hints)}", hints=hints)


def _enumerate(instance: Any) -> list[Any]:
    count = ffi.new("uint32_t*")
    check("vkEnumeratePhysicalDevices", lib.vkEnumeratePhysicalDevices(instance, count, ffi.NULL))
    if not count[0]:
        return []
    handles = ffi.new("VkPhysicalDevice[]", count[0])
    check("vkEnumeratePhysicalDevices", lib.vkEnumeratePhysicalDevices(instance, count, handles))
    return [handles[index] for index in range(count[0])]


def _extensions_of(handle: Any) -> dict[str, int]:
    count = ffi.new("uint32_t*")
    check("vkEnumerateDeviceExtensionProperties",
          lib.vkEnumerateDeviceExtensionProperties(handle, ffi.NULL, count, ffi.NULL))
    rows = ffi.new("VkExtensionProperties[]", max(count[0], 1))
    check("vkEnumerateDeviceExtensionProperties",
          lib.vkEnumerateDeviceExtensionProperties(handle, ffi.NULL, count, rows))
    return {ffi.string(rows[index].extensionName).decode(): rows[index].specVersion for index in range(count[0])}


def _memory_bytes_of(handle: Any) -> int:
    memory = ffi.new("VkPhysicalDeviceMemoryProperties*")
    lib.vkGetPhysicalDeviceMemoryProperties(handle, memory)
    heaps = [memory.memoryHeaps[index] for index in range(memory.memoryHeapCount)]
    local = [heap.size for heap in heaps if heap.flags & lib.VK_MEMORY_HEAP_DEVICE_LOCAL_BIT]
    return int(max(local or [heap.size for heap in heaps], default=0))


def _describe(index: int, handle: Any) -> DeviceInfo:
    extensions = _extensions_of(handle)
    chain: dict[str, Any] = {}
    following = ffi.NULL
    parts = [("float", "VkPhysicalDeviceFloatControlsProperties",
              lib.VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FLOAT_CONTROLS_PROPERTIES),
             ("driver", "VkPhysicalDeviceDriverProperties", lib.VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES),
             ("id", "VkPhysicalDeviceIDProperties", lib.VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES),
             ("sizes", "VkPhysicalDeviceMaintenance3Properties",
              lib.VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES),
             ("subgroup", "VkPhysicalDeviceSubgroupProperties",
              lib.VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES)]
    if "VK_KHR_push_descriptor" in extensions:
        parts.append(("push", "VkPhysicalDevicePushDescriptorPropertiesKHR",
                      lib.VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PUSH_DESCRIPTOR_PROPERTIES_KHR))
    for key, struct_name, structure_type in parts:
        chain[key] = ffi.new(f"{struct_name}*", {"sType": structure_type, "pNext": following})
        following = chain[key]
    whole = ffi.new("VkPhysicalDeviceProperties2*",
                    {"sType": lib.VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, "pNext": following})
    lib.vkGetPhysicalDeviceProperties2(handle, whole)
    properties = whole.properties
    limits: dict[str, int | tuple[int, ...]] = {name: int(getattr(properties.limits, name)) for name in _LIMITS}
    limits.update({name: tuple(getattr(properties.limits, name)) for name in _ARRAY_LIMITS})
    limits["maxMemoryAllocationSize"] = int(chain["sizes"].maxMemoryAllocationSize)
    limits["maxPushDescriptors"] = int(chain["push"].maxPushDescriptors) if "push" in chain else 0
    controls = chain["float"]
    modes = {"denorm_preserve": controls.shaderDenormPreserveFloat32,
             "signed_zero_inf_nan_preserve": controls.shaderSignedZeroInfNanPreserveFloat32,
             "rounding_rte": controls.shaderRoundingModeRTEFloat32}
    return DeviceInfo(
        index=index,
        name=ffi.string(properties.deviceName).decode(errors="replace"),
        kind=_KINDS.get(properties.deviceType, "other"),
        vendor_id=properties.vendorID,
        device_id=properties.deviceID,
        driver_name=ffi.string(chain["driver"].driverName).decode(errors="replace"),
        driver_version=ffi.string(chain["driver"].driverInfo).decode(errors="replace") or str(properties.driverVersion),
        api_version=_version_of(properties.apiVersion),
        uuid=bytes(chain["id"].deviceUUID).hex(),
        memory_bytes=_memory_bytes_of(handle),
        subgroup_size=chain["subgroup"].subgroupSize,
        extensions=frozenset(extensions),
        limits=limits,
        float_controls=frozenset(name for name, is_set in modes.items() if is_set),
        pipeline_cache_uuid=bytes(properties.pipelineCacheUUID).hex(),
        subgroup_operations=(int(chain["subgroup"].supportedOperations)
                             if chain["subgroup"].supportedStages & lib.VK_SHADER_STAGE_COMPUTE_BIT else 0),
    )


def _version_of(packed: int) -> tuple[int, int, int]:
    return (packed >> 22 & 0x7F, packed >> 12 & 0x3FF, packed & 0xFFF)


def _start() -> _State:
    global _state
    with _lock:
        if _state is not None:
            return _state
        if _forked:
            raise NoDeviceError(f"Vulkan was in use before this process was forked, and its drivers do not survive "
                                f"that; {FORK_HINTS[0]}", hints=FORK_HINTS)
        state = _State(_create_instance(), [], [], [])
        for handle in _enumerate(state.instance):
            properties = ffi.new("VkPhysicalDeviceProperties*")
            lib.vkGetPhysicalDeviceProperties(handle, properties)
            if _version_of(properties.apiVersion) < MIN_API_VERSION:
                state.too_old.append(ffi.string(properties.deviceName).decode(errors="replace"))
                continue
            state.infos.append(_describe(len(state.infos), handle))
            state.handles.append(handle)
        atexit.register(_stop)
        _state = state
        return state


def _stop() -> None:
    global _state
    for device in list(_open):
        device.close()
    state, _state = _state, None
    if state is not None:
        lib.vkDestroyInstance(state.instance, ffi.NULL)


def _after_fork() -> None:
    """Forget the parent's instance and devices: a driver's threads do not exist in the child."""
    global _state, _lock, _forked
    _forked = _forked or _state is not None
    _state = None
    _lock = threading.Lock()
    atexit.unregister(_stop)
    for device in list(_open):
        device.abandon()
    _open.clear()


os.register_at_fork(after_in_child=_after_fork)


def physical_devices() -> list[DeviceInfo]:
    """Return all devices that can run nnk, in the loader's order.

    Raises
    ------
    NoDeviceError
        If no driver is installed. ``hints`` lists what to install or set.
    """
    return list(_start().infos)


def physical_handle(info: DeviceInfo) -> tuple[Any, Any]:
    """Return the instance and the physical device handle of ``info``."""
    state = _start()
    for handle, candidate in zip(state.handles, state.infos, strict=True):
        if candidate.index == info.index and candidate.uuid == info.uuid:
            return state.instance, handle
    raise _no_device(f"The device {info.name!r} is no longer there")


def select(name: str = "vulkan") -> DeviceInfo:
    """Return a device by name.

    Parameters
    ----------
    name : str
        ``"vulkan"`` for the best one (discrete before integrated, virtual and CPU devices), ``"vulkan:N"`` for number N
        of :func:`physical_devices`, or a part of a device's name in any case. Of several the best one is taken.

    Raises
    ------
    NoDeviceError
        If no device fits.
    """
    state = _start()
    infos = sorted(state.infos, key=lambda info: (_KIND_ORDER.index(info.kind), info.index))
    if not infos:
        old = f" ({', '.join(state.too_old)} have no Vulkan 1.2)" if state.too_old else ""
        raise _no_device(f"No Vulkan device is present{old}")
    wanted = name.strip().lower()
    if wanted == "vulkan":
        return infos[0]
    if wanted.startswith("vulkan:"):
        number = wanted.removeprefix("vulkan:")
        found = [info for info in infos if str(info.index) == number]
    else:
        found = [info for info in infos if wanted and wanted in info.name.lower()]
    if found:
        return found[0]
    listing = ", ".join(f"vulkan:{info.index} ({info.name}, {info.kind})" for info in state.infos)
    raise NoDeviceError(f"No Vulkan device is called {name!r}; there are {listing}",
                        hints=[f"choose one of {listing}"])
