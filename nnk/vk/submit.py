"""Command buffers, the timeline semaphore, descriptor pools: what a Recorder records into.

Made once for a device. The calls of every dispatch and submission are made by ``_fast.dispatch``.
"""

from __future__ import annotations

from typing import Any

from nnk._fast import dispatch
from nnk.vk.loader import ffi, lib
from nnk.vk.result import check, raise_result

__all__ = ["CommandResources", "address_of"]


def address_of(pointer: Any) -> int:
    """Return a handle or a function pointer as an integer."""
    return int(ffi.cast("uintptr_t", pointer))


class CommandResources:
    """Owns the command pool, the timeline semaphore and the descriptor pools of a device, and makes its Recorder."""

    def __init__(self, device: Any, queue_family: int) -> None:
        self._device = device
        self._queue = ffi.new("VkQueue*")
        self._command_pool = ffi.new("VkCommandPool*")
        self._semaphore = ffi.new("VkSemaphore*")
        self._descriptor_pools: list[Any] = []
        lib.vkGetDeviceQueue(device, queue_family, 0, self._queue)
        pool_info = ffi.new("VkCommandPoolCreateInfo*", {
            "sType": lib.VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO, "queueFamilyIndex": queue_family,
            "flags": lib.VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
        })
        check("vkCreateCommandPool", lib.vkCreateCommandPool(device, pool_info, ffi.NULL, self._command_pool))
        type_info = ffi.new("VkSemaphoreTypeCreateInfo*", {
            "sType": lib.VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
            "semaphoreType": lib.VK_SEMAPHORE_TYPE_TIMELINE, "initialValue": 0,
        })
        semaphore_info = ffi.new("VkSemaphoreCreateInfo*", {
            "sType": lib.VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, "pNext": type_info,
        })
        check("vkCreateSemaphore", lib.vkCreateSemaphore(device, semaphore_info, ffi.NULL, self._semaphore))

    def make_recorder(self, max_groups: int, alignment: int, host_reads: bool) -> dispatch.Recorder:
        """Allocate command buffers and return the Recorder that uses them."""
        info = ffi.new("VkCommandBufferAllocateInfo*", {
            "sType": lib.VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, "commandPool": self._command_pool[0],
            "level": lib.VK_COMMAND_BUFFER_LEVEL_PRIMARY, "commandBufferCount": dispatch.SLOTS,
        })
        buffers = ffi.new("VkCommandBuffer[]", dispatch.SLOTS)
        check("vkAllocateCommandBuffers", lib.vkAllocateCommandBuffers(self._device, info, buffers))
        functions = [address_of(lib.vkGetDeviceProcAddr(self._device, name.encode()))
                     for name in dispatch.FUNCTION_NAMES]
        return dispatch.Recorder(address_of(self._device), address_of(self._queue[0]), functions,
                                 [address_of(buffers[index]) for index in range(dispatch.SLOTS)],
                                 address_of(self._semaphore[0]), max_groups, alignment, host_reads, raise_result)

    def make_descriptor_pools(self) -> list[int]:
        """Return one descriptor pool for every slot of the Recorder."""
        size = ffi.new("VkDescriptorPoolSize*", {
            "type": lib.VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
            "descriptorCount": dispatch.MAX_COMMANDS * dispatch.MAX_BINDINGS,
        })
        info = ffi.new("VkDescriptorPoolCreateInfo*", {
            "sType": lib.VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO, "maxSets": dispatch.MAX_COMMANDS,
            "poolSizeCount": 1, "pPoolSizes": size,
        })
        for _ in range(dispatch.SLOTS):
            pool = ffi.new("VkDescriptorPool*")
            check("vkCreateDescriptorPool", lib.vkCreateDescriptorPool(self._device, info, ffi.NULL, pool))
            self._descriptor_pools.append(pool)
        return [address_of(pool[0]) for pool in self._descriptor_pools]

    def destroy(self) -> None:
        """Destroy everything. The device must be idle."""
        for pool in self._descriptor_pools:
            lib.vkDestroyDescriptorPool(self._device, pool[0], ffi.NULL)
        self._descriptor_pools.clear()
        lib.vkDestroySemaphore(self._device, self._semaphore[0], ffi.NULL)
        lib.vkDestroyCommandPool(self._device, self._command_pool[0], ffi.NULL)
