# cython: language_level=3
"""The declarations of csrc/vk_min.h that the recorder uses."""

from libc.stdint cimport int32_t, uint32_t, uint64_t


cdef extern from "vk_min.h" nogil:
    ctypedef void* NnkDispatchable
    ctypedef uint64_t NnkHandle
    enum:
        NNK_VK_SUCCESS
        NNK_VK_TIMEOUT
        NNK_BIND_POINT_COMPUTE
        NNK_STAGE_COMPUTE
        NNK_PIPELINE_STAGE_COMPUTE
        NNK_PIPELINE_STAGE_TRANSFER
        NNK_PIPELINE_STAGE_HOST
        NNK_ACCESS_SHADER_READ
        NNK_ACCESS_SHADER_WRITE
        NNK_ACCESS_TRANSFER_READ
        NNK_ACCESS_TRANSFER_WRITE
        NNK_ACCESS_HOST_READ
    ctypedef struct NnkDescriptorBufferInfo:
        NnkHandle buffer
        uint64_t offset
        uint64_t range
    ctypedef struct NnkWriteDescriptorSet:
        NnkHandle dstSet
    ctypedef struct NnkBufferCopy:
        uint64_t srcOffset
        uint64_t dstOffset
        uint64_t size
    ctypedef struct NnkFunctions:
        int32_t (*counter)(NnkDispatchable, NnkHandle, uint64_t*) noexcept nogil
        int32_t (*reset_pool)(NnkDispatchable, NnkHandle, uint32_t) noexcept nogil
        void (*update_sets)(NnkDispatchable, uint32_t, const NnkWriteDescriptorSet*, uint32_t,
                            const void*) noexcept nogil
        void (*destroy_pipeline)(NnkDispatchable, NnkHandle, const void*) noexcept nogil
        void (*bind_pipeline)(NnkDispatchable, int32_t, NnkHandle) noexcept nogil
        void (*bind_sets)(NnkDispatchable, int32_t, NnkHandle, uint32_t, uint32_t, const NnkHandle*, uint32_t,
                          const uint32_t*) noexcept nogil
        void (*push_constants)(NnkDispatchable, NnkHandle, uint32_t, uint32_t, uint32_t, const void*) noexcept nogil
        void (*dispatch)(NnkDispatchable, uint32_t, uint32_t, uint32_t) noexcept nogil
        void (*copy)(NnkDispatchable, NnkHandle, NnkHandle, uint32_t, const NnkBufferCopy*) noexcept nogil
        void (*push_descriptors)(NnkDispatchable, int32_t, NnkHandle, uint32_t, uint32_t,
                                 const NnkWriteDescriptorSet*) noexcept nogil

    void nnk_init_writes(NnkWriteDescriptorSet*, const NnkDescriptorBufferInfo*, uint32_t count) noexcept
    int32_t nnk_begin(const NnkFunctions*, NnkDispatchable commands) noexcept
    void nnk_barrier(const NnkFunctions*, NnkDispatchable commands, uint32_t stages, uint32_t accesses,
                     uint32_t to_stages, uint32_t to_accesses) noexcept
    int32_t nnk_submit(const NnkFunctions*, NnkDispatchable queue, NnkDispatchable commands, NnkHandle semaphore,
                       uint64_t value) noexcept
    int32_t nnk_wait(const NnkFunctions*, NnkDispatchable device, NnkHandle semaphore, uint64_t value,
                     uint64_t timeout_ns) noexcept
    int32_t nnk_allocate_set(const NnkFunctions*, NnkDispatchable device, NnkHandle pool, NnkHandle layout,
                             NnkHandle*) noexcept
