"""A logical device: queue, memory, kernels, and the order in which they go.

A Device owns every Vulkan object made through it. Buffers and kernels may outlive it; using them then raises.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from nnk import config
from nnk import spirv as spirv_words
from nnk._fast import dispatch
from nnk._fast.spans import Buffer
from nnk.errors import DeviceError, NoDeviceError
from nnk.expr.meta import KernelMeta
from nnk.vk import instance
from nnk.vk.instance import DeviceInfo
from nnk.vk.loader import ffi, lib
from nnk.vk.memory import MIN_ALIGNMENT, Memory
from nnk.vk.pipeline import PipelineBuilder
from nnk.vk.result import check
from nnk.vk.submit import CommandResources

__all__ = ["Device", "float_modes_of"]

#: Parameter words that one command buffer has room for, where they do not fit push constants.
PARAMS_SLOT_BYTES = 64 << 10

_PUSH_DESCRIPTOR = "VK_KHR_push_descriptor"


def float_modes_of(info: DeviceInfo) -> tuple[str, ...]:
    """Return the float execution modes that kernels get on a device: all of the contract's that it has (R10)."""
    return tuple(name for name in spirv_words.FLOAT_MODES if name in info.float_controls)


class Device:
    """An open device.

    Parameters
    ----------
    info : DeviceInfo
        Which one; see :func:`nnk.vk.instance.select`.
    unified : bool, optional
        Whether buffers are in memory that host and device share. Default: on CPU and integrated devices.
    pipeline_cache : bytes
        Data of :meth:`pipeline_cache_data` from the same device and driver.
    """

    def __init__(self, info: DeviceInfo, *, unified: bool | None = None, pipeline_cache: bytes = b"") -> None:
        self.info = info
        self.float_modes = float_modes_of(info)
        self.push_descriptors = bool(config.get("push_descriptors")) and _PUSH_DESCRIPTOR in info.extensions
        self._unusable = ""
        self._process = os.getpid()
        self._arena_ready = self._pools_ready = False
        self._alignment = max(MIN_ALIGNMENT, info.limit("minStorageBufferOffsetAlignment"))
        self._lock = threading.RLock()
        #: Runs from the last entry to the first: everything is destroyed before what it was made from.
        self._teardown = ExitStack()
        try:
            self._open(info.kind in ("cpu", "integrated") if unified is None else unified, pipeline_cache)
        except BaseException:
            self.close()
            raise
        #: Record one kernel launch; see :meth:`nnk._fast.dispatch.Recorder.dispatch`.
        self.dispatch = self._recorder.dispatch
        self._reuse = self._recorder.cache.reuse
        instance.register(self)

    def _open(self, unified: bool, pipeline_cache: bytes) -> None:
        _, physical = instance.physical_handle(self.info)
        family = _compute_family(physical, self.info)
        self._handle = self._create(physical, family)
        self._teardown.callback(lib.vkDestroyDevice, self._handle, ffi.NULL)
        self._resources = CommandResources(self._handle, family)
        self._teardown.callback(self._resources.destroy)
        groups = self.info.limits["maxComputeWorkGroupCount"]
        assert isinstance(groups, tuple)
        self._recorder = self._resources.make_recorder(groups[0], self._alignment, unified)
        self._memory = Memory(self._handle, physical, self.info, self._recorder, unified)
        self._teardown.callback(self._memory.destroy)
        self._pipelines = PipelineBuilder(self._handle, self.info, self._recorder, self.float_modes,
                                          self.push_descriptors, pipeline_cache)
        self._teardown.callback(self._pipelines.destroy)
        self._teardown.callback(lib.vkDeviceWaitIdle, self._handle)
        self._teardown.callback(self._recorder.close)

    def _create(self, physical: Any, family: int) -> Any:
        priority = ffi.new("float*", 1.0)
        queue = ffi.new("VkDeviceQueueCreateInfo*", {
            "sType": lib.VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, "queueFamilyIndex": family, "queueCount": 1,
            "pQueuePriorities": priority,
        })
        features = ffi.new("VkPhysicalDeviceVulkan12Features*", {
            "sType": lib.VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES, "timelineSemaphore": 1,
        })
        names = [ffi.new("char[]", _PUSH_DESCRIPTOR.encode())] if self.push_descriptors else []
        extensions = ffi.new("char*[]", names)
        request = ffi.new("VkDeviceCreateInfo*", {
            "sType": lib.VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO, "pNext": features, "queueCreateInfoCount": 1,
            "pQueueCreateInfos": queue, "enabledExtensionCount": len(names), "ppEnabledExtensionNames": extensions,
        })
        handle = ffi.new("VkDevice*")
        check("vkCreateDevice", lib.vkCreateDevice(physical, request, ffi.NULL, handle))
        return handle[0]

    # ---- buffers -------------------------------------------------------------------------------------------------

    def allocate(self, nbytes: int, *, host_write: bool = False) -> Buffer:
        """Return a buffer with undefined content.

        Parameters
        ----------
        nbytes : int
            Size in bytes; 0 is allowed.
        host_write : bool
            Whether it is filled by :meth:`upload` next; then memory that the device still uses is avoided.

        Raises
        ------
        LimitError
            If ``nbytes`` is more than the device allocates at a time.
        OutOfDeviceMemoryError
            If the device has no room.
        """
        if nbytes >= 0 and not host_write:
            buffer = self._reuse(nbytes)
            if buffer is not None:
                return buffer
        self._check_open()
        return self._memory.allocate(nbytes, host_write)

    def upload(self, buffer: Buffer, data: Any, offset: int = 0) -> None:
        """Copy host bytes into a buffer.

        Parameters
        ----------
        buffer : Buffer
            Where to.
        data
            A contiguous object with the buffer protocol.
        offset : int
            First byte of the buffer.

        Raises
        ------
        DeviceError
            If the bytes do not fit the buffer, or are not contiguous.
        """
        self._check_open()
        self._memory.upload(buffer, data, offset)

    def download(self, buffer: Buffer, target: Any = None, offset: int = 0) -> Any:
        """Wait for the device and copy bytes of a buffer to the host.

        Parameters
        ----------
        buffer : Buffer
            Where from.
        target : optional
            A contiguous writable object with the buffer protocol; it is filled. Default: a new bytearray.
        offset : int
            First byte of the buffer.

        Returns
        -------
        bytearray or the target
        """
        self._check_open()
        return self._memory.download(buffer, target, offset)

    def copy_rows(self, source: Buffer, source_offset: int, source_step: int, target: Buffer, target_offset: int,
                  target_step: int, row_bytes: int, rows: int) -> None:
        """Copy ``rows`` runs of ``row_bytes`` from buffer to buffer, in order with the kernels around it.

        Offsets and steps from run to run are in bytes and multiples of 4, as ``row_bytes`` is. The two buffers must be
        different memory.
        """
        self._check_open()
        self._recorder.copy(source.span, source.offset + source_offset, target.span, target.offset + target_offset,
                            row_bytes, False, rows, source_step, target_step)

    def trim(self) -> None:
        """Give unused memory back to the driver; this waits for the device."""
        self._check_open()
        self._memory.trim()

    def stats(self) -> dict[str, int]:
        """Return counts of buffers, blocks, pipelines, dispatches, barriers and submissions, and bytes."""
        return {**self._memory.stats(), "pipelines": self._recorder.pipeline_count,
                "dispatches": self._recorder.dispatch_count, "barriers": self._recorder.barrier_count,
                "submits": self._recorder.submit_count}

    # ---- kernels -------------------------------------------------------------------------------------------------

    def build_kernel(self, spirv: bytes, meta: KernelMeta) -> dispatch.Kernel:
        """Build the pipeline of a SPIR-V module.

        The execution modes of the device's tier are added. The module must fit ``meta``: see
        :func:`nnk.spirv.check_interface`.

        Raises
        ------
        FormatError
            If the bytes are not a module.
        LimitError
            If the device is too small for the kernel.
        VulkanError
            If the driver refuses the module.
        """
        self._check_open()
        with self._lock:
            if meta.params_in_buffer and not self._arena_ready:
                arena = self._memory.host_span(PARAMS_SLOT_BYTES * dispatch.SLOTS)
                self._recorder.set_params_arena(arena, PARAMS_SLOT_BYTES, self._alignment)
                self._arena_ready = True
            if not self._pools_ready and not self._pipelines.uses_push_descriptors(meta.binding_count):
                self._recorder.set_descriptor_pools(self._resources.make_descriptor_pools())
                self._pools_ready = True
        return self._pipelines.build(spirv, meta)

    def pipeline_cache_data(self) -> bytes:
        """Return the driver's compiled pipelines, for a later ``pipeline_cache`` argument."""
        self._check_open()
        return self._pipelines.cache_data()

    def flush(self) -> None:
        """Have the device begin with everything recorded so far."""
        self._recorder.flush()

    def wait(self) -> None:
        """Wait until the device has completed everything recorded so far."""
        self._recorder.wait()

    # ---- end -----------------------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether the device was closed."""
        return bool(self._unusable)

    def _check_open(self) -> None:
        if self._unusable:
            raise DeviceError(self._unusable)

    def close(self) -> None:
        """Wait for the device and destroy everything. Closing twice does nothing."""
        if os.getpid() != self._process:
            # Dropped in a forked child before anybody told it of the fork.
            self.abandon()
            return
        with self._lock:
            self._unusable = self._unusable or "Expected an open Vulkan device, got one that was closed"
            self._teardown.close()

    def abandon(self) -> None:
        """Make the device unusable in a forked child. The parent's driver threads do not exist here."""
        self._lock = threading.RLock()
        self._teardown.pop_all()
        self._unusable = f"This Vulkan device belongs to the parent process; {instance.FORK_HINTS[0]}"
        if hasattr(self, "_recorder"):
            self._recorder.disable(self._unusable)

    def __del__(self) -> None:
        # A device that nobody refers to any more; missing attributes mean that __init__ did not get far.
        if hasattr(self, "_teardown"):
            self.close()

    def __enter__(self) -> Device:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Device vulkan:{self.info.index} {self.info.name}{', closed' if self.closed else ''}>"


def _compute_family(physical: Any, info: DeviceInfo) -> int:
    """Return a queue family for compute: one without graphics where there is one, as it is the least shared."""
    count = ffi.new("uint32_t*")
    lib.vkGetPhysicalDeviceQueueFamilyProperties(physical, count, ffi.NULL)
    families = ffi.new("VkQueueFamilyProperties[]", max(count[0], 1))
    lib.vkGetPhysicalDeviceQueueFamilyProperties(physical, count, families)
    compute: Sequence[int] = [index for index in range(count[0])
                              if families[index].queueFlags & lib.VK_QUEUE_COMPUTE_BIT]
    alone = [index for index in compute if not families[index].queueFlags & lib.VK_QUEUE_GRAPHICS_BIT]
    if not compute:
        raise NoDeviceError(f"{info.name} has no compute queue", hints=["choose another device with NNK_DEVICE"])
    return (alone or compute)[0]
