/* The part of the Vulkan ABI that command recording needs: a few structs, enums and function types.
 *
 * Names and layouts follow the Vulkan specification. Handles are integers: dispatchable ones are pointers, the others
 * have 64 bits. Function addresses come from vkGetDeviceProcAddr at run time, so nothing here is linked. */
#pragma once

#include <stdint.h>

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
