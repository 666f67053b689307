"""SPIR-V to compute pipeline: shader module, descriptor set layout, pipeline layout, pipeline.

Layouts depend on two numbers only (bindings, push constant bytes), so kernels share them.
"""

from __future__ import annotations

import threading
from typing import Any

from nnk import spirv as spirv_words
from nnk._fast import dispatch
from nnk.errors import LimitError
from nnk.expr.meta import KernelMeta
from nnk.vk.instance import DeviceInfo
from nnk.vk.loader import ffi, lib
from nnk.vk.result import check
from nnk.vk.submit import address_of

__all__ = ["PipelineBuilder"]


class PipelineBuilder:
    """Builds the kernels of one device and owns their layouts and the VkPipelineCache."""

    def __init__(self, device: Any, info: DeviceInfo, recorder: dispatch.Recorder, float_modes: tuple[str, ...],
                 push_descriptors: bool, cache_data: bytes) -> None:
        self._device = device
        self._info = info
        self._recorder = recorder
        self._float_modes = float_modes
        self._push_descriptors = push_descriptors
        self._lock = threading.Lock()
        self._layouts: dict[tuple[int, int, bool], tuple[Any, Any]] = {}
        self._entry_name = ffi.new("char[]", b"main")
        self._cache = ffi.new("VkPipelineCache*")
        data = ffi.from_buffer("char[]", cache_data) if cache_data else ffi.NULL
        cache_info = ffi.new("VkPipelineCacheCreateInfo*", {
            "sType": lib.VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO, "initialDataSize": len(cache_data),
            "pInitialData": data,
        })
        check("vkCreatePipelineCache", lib.vkCreatePipelineCache(device, cache_info, ffi.NULL, self._cache))

    def uses_push_descriptors(self, binding_count: int) -> bool:
        """Say whether a kernel of so many bindings gets its buffers by push descriptors."""
        return self._push_descriptors and binding_count <= self._info.limit("maxPushDescriptors")

    def build(self, spirv: bytes, meta: KernelMeta) -> dispatch.Kernel:
        """Build the pipeline of a module; its interface must be that of ``meta``.

        Raises
        ------
        LimitError
            If the device has too few bindings, invocations or push constants for the kernel.
        VulkanError
            If the driver refuses the module.
        """
        self._check_limits(meta)
        push_bytes = 0 if meta.params_in_buffer else 4 * meta.param_words
        push = self.uses_push_descriptors(meta.binding_count)
        set_layout, layout = self._layouts_of(meta.binding_count, push_bytes, push)
        module = self._shader_module(spirv_words.add_execution_modes(spirv, self._float_modes))
        try:
            pipeline = self._pipeline(module, layout)
        finally:
            lib.vkDestroyShaderModule(self._device, module, ffi.NULL)
        return dispatch.Kernel(self._recorder, address_of(pipeline), address_of(layout), address_of(set_layout),
                               meta.n_inputs, meta.n_outputs, 4 * meta.param_words, meta.params_in_buffer, push)

    def _check_limits(self, meta: KernelMeta) -> None:
        bindings = min(self._info.limit("maxPerStageDescriptorStorageBuffers"),
                       self._info.limit("maxDescriptorSetStorageBuffers"), self._info.limit("maxPerStageResources"),
                       dispatch.MAX_BINDINGS)
        x, y, z = meta.local_size
        rows = [("storage buffers", meta.binding_count, bindings),
                ("invocations in a workgroup", x * y * z, self._info.limit("maxComputeWorkGroupInvocations"))]
        if not meta.params_in_buffer:
            rows.append(("push constant bytes", 4 * meta.param_words, self._info.limit("maxPushConstantsSize")))
        for what, requested, maximum in rows:
            if requested > maximum:
                raise LimitError(f"Expected at most {maximum} {what} on {self._info.name}, got {requested}",
                                 limit=what, requested=requested, maximum=maximum)

    def _layouts_of(self, binding_count: int, push_bytes: int, push_descriptors: bool) -> tuple[Any, Any]:
        key = (binding_count, push_bytes, push_descriptors)
        with self._lock:
            if key not in self._layouts:
                self._layouts[key] = self._make_layouts(*key)
            return self._layouts[key]

    def _make_layouts(self, binding_count: int, push_bytes: int, push_descriptors: bool) -> tuple[Any, Any]:
        bindings = ffi.new("VkDescriptorSetLayoutBinding[]", [
            {"binding": index, "descriptorType": lib.VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, "descriptorCount": 1,
             "stageFlags": lib.VK_SHADER_STAGE_COMPUTE_BIT} for index in range(binding_count)])
        set_info = ffi.new("VkDescriptorSetLayoutCreateInfo*", {
            "sType": lib.VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO, "bindingCount": binding_count,
            "pBindings": bindings,
            "flags": lib.VK_DESCRIPTOR_SET_LAYOUT_CREATE_PUSH_DESCRIPTOR_BIT_KHR if push_descriptors else 0,
        })
        set_layout = ffi.new("VkDescriptorSetLayout*")
        check("vkCreateDescriptorSetLayout",
              lib.vkCreateDescriptorSetLayout(self._device, set_info, ffi.NULL, set_layout))
        ranges = ffi.new("VkPushConstantRange*", {"stageFlags": lib.VK_SHADER_STAGE_COMPUTE_BIT, "size": push_bytes})
        info = ffi.new("VkPipelineLayoutCreateInfo*", {
            "sType": lib.VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO, "setLayoutCount": 1,
            "pSetLayouts": set_layout, "pushConstantRangeCount": int(push_bytes > 0), "pPushConstantRanges": ranges,
        })
        layout = ffi.new("VkPipelineLayout*")
        code = lib.vkCreatePipelineLayout(self._device, info, ffi.NULL, layout)
        if code != 0:
            lib.vkDestroyDescriptorSetLayout(self._device, set_layout[0], ffi.NULL)
        check("vkCreatePipelineLayout", code)
        return set_layout[0], layout[0]

    def _shader_module(self, spirv: bytes) -> Any:
        words = ffi.new("uint32_t[]", len(spirv) // 4)
        ffi.memmove(words, spirv, len(spirv))
        info = ffi.new("VkShaderModuleCreateInfo*", {
            "sType": lib.VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO, "codeSize": len(spirv), "pCode": words,
        })
        module = ffi.new("VkShaderModule*")
        check("vkCreateShaderModule", lib.vkCreateShaderModule(self._device, info, ffi.NULL, module))
        return module[0]

    def _pipeline(self, module: Any, layout: Any) -> Any:
        info = ffi.new("VkComputePipelineCreateInfo*", {
            "sType": lib.VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO, "layout": layout,
            "stage": {"sType": lib.VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                      "stage": lib.VK_SHADER_STAGE_COMPUTE_BIT, "module": module, "pName": self._entry_name},
        })
        pipeline = ffi.new("VkPipeline*")
        check("vkCreateComputePipelines",
              lib.vkCreateComputePipelines(self._device, self._cache[0], 1, info, ffi.NULL, pipeline))
        return pipeline[0]

    def cache_data(self) -> bytes:
        """Return the driver's data for a later ``cache_data`` argument."""
        size = ffi.new("size_t*")
        check("vkGetPipelineCacheData", lib.vkGetPipelineCacheData(self._device, self._cache[0], size, ffi.NULL))
        data = ffi.new("char[]", max(size[0], 1))
        check("vkGetPipelineCacheData", lib.vkGetPipelineCacheData(self._device, self._cache[0], size, data))
        return bytes(ffi.buffer(data, size[0]))

    def destroy(self) -> None:
        """Destroy layouts and cache. All pipelines are gone already."""
        for set_layout, layout in self._layouts.values():
            lib.vkDestroyPipelineLayout(self._device, layout, ffi.NULL)
            lib.vkDestroyDescriptorSetLayout(self._device, set_layout, ffi.NULL)
        self._layouts.clear()
        lib.vkDestroyPipelineCache(self._device, self._cache[0], ffi.NULL)
