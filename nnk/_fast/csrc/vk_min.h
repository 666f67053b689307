/* The part of the Vulkan ABI that command recording needs: a few structs, enums and function types, and the calls that
 * fill a struct first.
 *
 * Names and layouts follow the Vulkan specification. Handles are integers: dispatchable ones are pointers, the others
 * have 64 bits. Function addresses come from vkGetDeviceProcAddr at run time, so nothing here is linked. */
#pragma once

#include <stdint.h>
#include <string.h>

#if UINTPTR_MAX != UINT64_MAX
#error "nnk records Vulkan commands on 64-bit platforms only"
#endif

typedef void *NnkDispatchable; /* VkDevice, VkQueue, VkCommandBuffer */
typedef uint64_t NnkHandle;    /* VkBuffer, VkPipeline, VkSemaphore, ... */

enum {
    NNK_VK_SUCCESS = 0,
    NNK_VK_TIMEOUT = 2,
    NNK_STRUCTURE_SUBMIT_INFO = 4,
    NNK_STRUCTURE_DESCRIPTOR_SET_ALLOCATE_INFO = 34,
    NNK_STRUCTURE_WRITE_DESCRIPTOR_SET = 35,
    NNK_STRUCTURE_COMMAND_BUFFER_BEGIN_INFO = 42,
    NNK_STRUCTURE_MEMORY_BARRIER = 46,
    NNK_STRUCTURE_TIMELINE_SEMAPHORE_SUBMIT_INFO = 1000207003,
    NNK_STRUCTURE_SEMAPHORE_WAIT_INFO = 1000207004,
    NNK_DESCRIPTOR_STORAGE_BUFFER = 7,
    NNK_BIND_POINT_COMPUTE = 1,
    NNK_ONE_TIME_SUBMIT = 0x1,
    NNK_SIMULTANEOUS_USE = 0x4,
    NNK_STAGE_COMPUTE = 0x20, /* of shaders */
    NNK_PIPELINE_STAGE_COMPUTE = 0x800,
    NNK_PIPELINE_STAGE_TRANSFER = 0x1000,
    NNK_PIPELINE_STAGE_HOST = 0x4000,
    NNK_ACCESS_SHADER_READ = 0x20,
    NNK_ACCESS_SHADER_WRITE = 0x40,
    NNK_ACCESS_TRANSFER_READ = 0x800,
    NNK_ACCESS_TRANSFER_WRITE = 0x1000,
    NNK_ACCESS_HOST_READ = 0x2000
};

typedef struct {
    int32_t sType;
    const void *pNext;
    uint32_t flags;
    const void *pInheritanceInfo;
} NnkCommandBufferBeginInfo;

typedef struct {
    int32_t sType;
    const void *pNext;
    uint32_t waitSemaphoreCount;
    const NnkHandle *pWaitSemaphores;
    const uint32_t *pWaitDstStageMask;
    uint32_t commandBufferCount;
    const NnkDispatchable *pCommandBuffers;
    uint32_t signalSemaphoreCount;
    const NnkHandle *pSignalSemaphores;
} NnkSubmitInfo;

typedef struct {
    int32_t sType;
    const void *pNext;
    uint32_t waitSemaphoreValueCount;
    const uint64_t *pWaitSemaphoreValues;
    uint32_t signalSemaphoreValueCount;
    const uint64_t *pSignalSemaphoreValues;
} NnkTimelineSubmitInfo;

typedef struct {
    int32_t sType;
    const void *pNext;
    uint32_t flags;
    uint32_t semaphoreCount;
    const NnkHandle *pSemaphores;
    const uint64_t *pValues;
} NnkSemaphoreWaitInfo;

typedef struct {
    int32_t sType;
    const void *pNext;
    uint32_t srcAccessMask;
    uint32_t dstAccessMask;
} NnkMemoryBarrier;

typedef struct {
    NnkHandle buffer;
    uint64_t offset;
    uint64_t range;
} NnkDescriptorBufferInfo;

typedef struct {
    int32_t sType;
    const void *pNext;
    NnkHandle dstSet;
    uint32_t dstBinding;
    uint32_t dstArrayElement;
    uint32_t descriptorCount;
    int32_t descriptorType;
    const void *pImageInfo;
    const NnkDescriptorBufferInfo *pBufferInfo;
    const NnkHandle *pTexelBufferView;
} NnkWriteDescriptorSet;

typedef struct {
    int32_t sType;
    const void *pNext;
    NnkHandle descriptorPool;
    uint32_t descriptorSetCount;
    const NnkHandle *pSetLayouts;
} NnkDescriptorSetAllocateInfo;

typedef struct {
    uint64_t srcOffset;
    uint64_t dstOffset;
    uint64_t size;
} NnkBufferCopy;

typedef int32_t (*NnkBeginCommandBuffer)(NnkDispatchable, const NnkCommandBufferBeginInfo *);
typedef int32_t (*NnkEndCommandBuffer)(NnkDispatchable);
typedef int32_t (*NnkQueueSubmit)(NnkDispatchable, uint32_t, const NnkSubmitInfo *, NnkHandle);
typedef int32_t (*NnkWaitSemaphores)(NnkDispatchable, const NnkSemaphoreWaitInfo *, uint64_t);
typedef int32_t (*NnkGetSemaphoreCounterValue)(NnkDispatchable, NnkHandle, uint64_t *);
typedef int32_t (*NnkAllocateDescriptorSets)(NnkDispatchable, const NnkDescriptorSetAllocateInfo *, NnkHandle *);
typedef int32_t (*NnkResetDescriptorPool)(NnkDispatchable, NnkHandle, uint32_t);
typedef void (*NnkUpdateDescriptorSets)(NnkDispatchable, uint32_t, const NnkWriteDescriptorSet *, uint32_t,
                                        const void *);
typedef void (*NnkDestroyPipeline)(NnkDispatchable, NnkHandle, const void *);
typedef void (*NnkCmdBindPipeline)(NnkDispatchable, int32_t, NnkHandle);
typedef void (*NnkCmdBindDescriptorSets)(NnkDispatchable, int32_t, NnkHandle, uint32_t, uint32_t, const NnkHandle *,
                                         uint32_t, const uint32_t *);
typedef void (*NnkCmdPushDescriptorSet)(NnkDispatchable, int32_t, NnkHandle, uint32_t, uint32_t,
                                        const NnkWriteDescriptorSet *);
typedef void (*NnkCmdPushConstants)(NnkDispatchable, NnkHandle, uint32_t, uint32_t, uint32_t, const void *);
typedef void (*NnkCmdPipelineBarrier)(NnkDispatchable, uint32_t, uint32_t, uint32_t, uint32_t,
                                      const NnkMemoryBarrier *, uint32_t, const void *, uint32_t, const void *);
typedef void (*NnkCmdDispatch)(NnkDispatchable, uint32_t, uint32_t, uint32_t);
typedef void (*NnkCmdCopyBuffer)(NnkDispatchable, NnkHandle, NnkHandle, uint32_t, const NnkBufferCopy *);

/* The functions of one device, in the order of dispatch.FUNCTION_NAMES. */
typedef struct {
    NnkBeginCommandBuffer begin;
    NnkEndCommandBuffer end;
    NnkQueueSubmit submit;
    NnkWaitSemaphores wait;
    NnkGetSemaphoreCounterValue counter;
    NnkAllocateDescriptorSets allocate_sets;
    NnkResetDescriptorPool reset_pool;
    NnkUpdateDescriptorSets update_sets;
    NnkDestroyPipeline destroy_pipeline;
    NnkCmdBindPipeline bind_pipeline;
    NnkCmdBindDescriptorSets bind_sets;
    NnkCmdPushConstants push_constants;
    NnkCmdPipelineBarrier barrier;
    NnkCmdDispatch dispatch;
    NnkCmdCopyBuffer copy;
    NnkCmdPushDescriptorSet push_descriptors;
} NnkFunctions;

/* Make descriptor writes of single storage buffers to bindings 0, 1, ... of one set. */
static inline void nnk_init_writes(NnkWriteDescriptorSet *writes, const NnkDescriptorBufferInfo *infos, uint32_t count)
{
    memset(writes, 0, count * sizeof *writes);
    for (uint32_t i = 0; i < count; i++) {
        writes[i].sType = NNK_STRUCTURE_WRITE_DESCRIPTOR_SET;
        writes[i].dstBinding = i;
        writes[i].descriptorCount = 1;
        writes[i].descriptorType = NNK_DESCRIPTOR_STORAGE_BUFFER;
        writes[i].pBufferInfo = &infos[i];
    }
}

static inline int32_t nnk_begin(const NnkFunctions *vk, NnkDispatchable commands)
{
    NnkCommandBufferBeginInfo info = {NNK_STRUCTURE_COMMAND_BUFFER_BEGIN_INFO, NULL, NNK_ONE_TIME_SUBMIT, NULL};
    return vk->begin(commands, &info);
}

static inline void nnk_barrier(const NnkFunctions *vk, NnkDispatchable commands, uint32_t from, uint32_t from_access,
                               uint32_t to, uint32_t to_access)
{
    NnkMemoryBarrier barrier = {NNK_STRUCTURE_MEMORY_BARRIER, NULL, from_access, to_access};
    vk->barrier(commands, from, to, 0, 1, &barrier, 0, NULL, 0, NULL);
}

/* End a command buffer and submit it; the timeline semaphore gets `value` when the device is done with it. */
static inline int32_t nnk_submit(const NnkFunctions *vk, NnkDispatchable queue, NnkDispatchable commands,
                                 NnkHandle semaphore, uint64_t value)
{
    NnkTimelineSubmitInfo timeline = {NNK_STRUCTURE_TIMELINE_SEMAPHORE_SUBMIT_INFO, NULL, 0, NULL, 1, &value};
    NnkSubmitInfo info = {NNK_STRUCTURE_SUBMIT_INFO, &timeline, 0, NULL, NULL, 1, &commands, 1, &semaphore};
    int32_t code = vk->end(commands);
    return code == NNK_VK_SUCCESS ? vk->submit(queue, 1, &info, 0) : code;
}

static inline int32_t nnk_wait(const NnkFunctions *vk, NnkDispatchable device, NnkHandle semaphore, uint64_t value,
                               uint64_t timeout_ns)
{
    NnkSemaphoreWaitInfo info = {NNK_STRUCTURE_SEMAPHORE_WAIT_INFO, NULL, 0, 1, &semaphore, &value};
    return vk->wait(device, &info, timeout_ns);
}

static inline int32_t nnk_allocate_set(const NnkFunctions *vk, NnkDispatchable device, NnkHandle pool, NnkHandle layout,
                                       NnkHandle *set)
{
    NnkDescriptorSetAllocateInfo info = {NNK_STRUCTURE_DESCRIPTOR_SET_ALLOCATE_INFO, NULL, pool, 1, &layout};
    return vk->allocate_sets(device, &info, set);
}
