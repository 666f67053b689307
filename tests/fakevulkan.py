"""A Vulkan driver made of ctypes callbacks: it logs every call, and fails or lags on request."""

from __future__ import annotations

import ctypes
from typing import Any

from nnk._fast import dispatch
from nnk._fast.dispatch import Kernel, Recorder
from nnk._fast.spans import Buffer, Span
from nnk.errors import VulkanError
from nnk.vk.instance import DeviceInfo

_HANDLE, _POINTER, _U32, _I32 = ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int32

_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "vkBeginCommandBuffer": (_I32, _POINTER, _POINTER),
    "vkEndCommandBuffer": (_I32, _POINTER),
    "vkQueueSubmit": (_I32, _POINTER, _U32, _POINTER, _HANDLE),
    "vkWaitSemaphores": (_I32, _POINTER, _POINTER, _HANDLE),
    "vkGetSemaphoreCounterValue": (_I32, _POINTER, _HANDLE, ctypes.POINTER(_HANDLE)),
    "vkAllocateDescriptorSets": (_I32, _POINTER, _POINTER, ctypes.POINTER(_HANDLE)),
    "vkResetDescriptorPool": (_I32, _POINTER, _HANDLE, _U32),
    "vkUpdateDescriptorSets": (None, _POINTER, _U32, _POINTER, _U32, _POINTER),
    "vkDestroyPipeline": (None, _POINTER, _HANDLE, _POINTER),
    "vkCmdBindPipeline": (None, _POINTER, _I32, _HANDLE),
    "vkCmdBindDescriptorSets": (None, _POINTER, _I32, _HANDLE, _U32, _U32, ctypes.POINTER(_HANDLE), _U32, _POINTER),
    "vkCmdPushConstants": (None, _POINTER, _HANDLE, _U32, _U32, _U32, _POINTER),
    "vkCmdPipelineBarrier": (None, _POINTER, _U32, _U32, _U32, _U32, _POINTER, _U32, _POINTER, _U32, _POINTER),
    "vkCmdDispatch": (None, _POINTER, _U32, _U32, _U32),
    "vkCmdCopyBuffer": (None, _POINTER, _HANDLE, _HANDLE, _U32, _POINTER),
    "vkCmdPushDescriptorSetKHR": (None, _POINTER, _I32, _HANDLE, _U32, _U32, _POINTER),
}


class _BufferInfo(ctypes.Structure):
    _fields_ = [("buffer", _HANDLE), ("offset", _HANDLE), ("range", _HANDLE)]


class _Write(ctypes.Structure):
    _fields_ = [("type", _I32), ("next", _POINTER), ("set", _HANDLE), ("binding", _U32), ("element", _U32),
                ("count", _U32), ("kind", _I32), ("images", _POINTER), ("buffers", ctypes.POINTER(_BufferInfo)),
                ("texels", _POINTER)]


class _Copy(ctypes.Structure):
    _fields_ = [("source", _HANDLE), ("target", _HANDLE), ("size", _HANDLE)]


class FakeDriver:
    """Has the functions that a Recorder calls.

    ``log`` holds tuples whose first item is the function's name without ``vk``; ``codes`` maps names to the result that
    they return; ``lag`` submissions are never completed before somebody waits.
    """

    def __init__(self, **options: Any) -> None:
        self.log: list[tuple[Any, ...]] = []
        self.codes: dict[str, int] = {}
        self.lag = 0
        self.submitted = 0
        self._sets = 1000
        self._callbacks = {name: ctypes.CFUNCTYPE(*_SIGNATURES[name])(getattr(self, "_" + name, None) or
                                                                      self._plain(name))
                           for name in dispatch.FUNCTION_NAMES}
        settings: dict[str, Any] = {"max_groups": 65535, "alignment": 64, "host_reads": True, **options}
        self.recorder = Recorder(11, 22, self.addresses(), range(100, 100 + dispatch.SLOTS), 33,
                                 raise_result=self.raise_result, **settings)

    def addresses(self) -> list[int]:
        """Return the functions' addresses in the Recorder's order."""
        return [ctypes.cast(callback, ctypes.c_void_p).value or 0 for callback in self._callbacks.values()]

    @staticmethod
    def raise_result(call: str, code: int) -> None:
        """Stand in for vk.result.raise_result."""
        raise VulkanError(f"{call} {code}", call=call, result=str(code))

    def names(self) -> list[str]:
        """Return the names of the calls so far."""
        return [entry[0] for entry in self.log]

    def count(self, name: str) -> int:
        """Return how often a function was called."""
        return self.names().count(name)

    def take(self) -> list[str]:
        """Return the names of the calls so far and forget them."""
        names = self.names()
        self.log.clear()
        return names

    # ---- objects -------------------------------------------------------------------------------------------------

    def kernel(self, n_inputs: int = 1, n_outputs: int = 1, param_bytes: int = 4, *, in_buffer: bool = False,
               push: bool = True, pipeline: int = 500) -> Kernel:
        """Return a kernel that exists in name only."""
        return Kernel(self.recorder, pipeline, 600, 700, n_inputs, n_outputs, param_bytes, in_buffer, push)

    def buffer(self, nbytes: int = 64, handle: int = 900, offset: int = 0) -> Buffer:
        """Return a buffer that is mapped nowhere."""
        cache = self.recorder.cache
        return Buffer(cache, Span(handle, offset, cache.capacity_of(nbytes), 0, 0), nbytes)

    # ---- functions -----------------------------------------------------------------------------------------------

    def _plain(self, name: str) -> Any:
        short, returns = name.removeprefix("vk"), _SIGNATURES[name][0]

        def call(*arguments: Any) -> Any:
            self.log.append((short, *arguments))
            return None if returns is None else self.codes.get(name, 0)
        return call

    def _vkQueueSubmit(self, *arguments: Any) -> int:
        self.log.append(("QueueSubmit", *arguments))
        code = self.codes.get("vkQueueSubmit", 0)
        self.submitted += code == 0
        return code

    def _vkGetSemaphoreCounterValue(self, device: int, semaphore: int, value: Any) -> int:
        self.log.append(("GetSemaphoreCounterValue", device, semaphore))
        value[0] = max(self.submitted - self.lag, 0)
        return self.codes.get("vkGetSemaphoreCounterValue", 0)

    def _vkAllocateDescriptorSets(self, device: int, info: int, sets: Any) -> int:
        self.log.append(("AllocateDescriptorSets", device))
        self._sets += 1
        sets[0] = self._sets
        return self.codes.get("vkAllocateDescriptorSets", 0)

    def _vkCmdBindDescriptorSets(self, commands: int, point: int, layout: int, first: int, count: int, sets: Any,
                                 *rest: Any) -> None:
        self.log.append(("CmdBindDescriptorSets", layout, [sets[index] for index in range(count)]))

    def _writes(self, count: int, pointer: int) -> list[tuple[int, ...]]:
        writes = ctypes.cast(pointer, ctypes.POINTER(_Write))
        return [(writes[i].binding, writes[i].count, writes[i].kind, writes[i].buffers[0].buffer,
                 writes[i].buffers[0].offset, writes[i].buffers[0].range) for i in range(count)]

    def _vkUpdateDescriptorSets(self, device: int, count: int, writes: int, *rest: Any) -> None:
        target = ctypes.cast(writes, ctypes.POINTER(_Write))[0].set
        self.log.append(("UpdateDescriptorSets", target, self._writes(count, writes)))

    def _vkCmdPushDescriptorSetKHR(self, commands: int, point: int, layout: int, number: int, count: int,
                                   writes: int) -> None:
        self.log.append(("CmdPushDescriptorSetKHR", layout, self._writes(count, writes)))

    def _vkCmdPushConstants(self, commands: int, layout: int, stages: int, offset: int, size: int,
                            words: int) -> None:
        self.log.append(("CmdPushConstants", layout, stages, offset, ctypes.string_at(words, size)))

    def _vkCmdPipelineBarrier(self, commands: int, stages: int, to_stages: int, flags: int, count: int, barrier: int,
                              *rest: Any) -> None:
        access = (ctypes.c_uint32 * 6).from_address(barrier)
        self.log.append(("CmdPipelineBarrier", stages, to_stages, access[4], access[5]))

    def _vkCmdCopyBuffer(self, commands: int, source: int, target: int, count: int, regions: int) -> None:
        for copy in (_Copy * count).from_address(regions):
            self.log.append(("CmdCopyBuffer", source, target, copy.source, copy.target, copy.size))


def info_of(index: int, name: str, kind: str, controls: set[str] | None = None) -> DeviceInfo:
    """Return a made-up device."""
    return DeviceInfo(index=index, name=name, kind=kind, vendor_id=1, device_id=2, driver_name="d", driver_version="1",
                      api_version=(1, 3, 0), uuid=f"{index:032x}", memory_bytes=1 << 30, subgroup_size=32,
                      extensions=frozenset(),
                      limits={"minStorageBufferOffsetAlignment": 16, "maxComputeWorkGroupCount": (65535, 1, 1)},
                      float_controls=frozenset(controls or ()))
