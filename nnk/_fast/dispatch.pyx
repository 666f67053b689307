# cython: language_level=3
"""Command recording and submission: what runs for every kernel call.

``nnk.vk`` makes every Vulkan object and hands over integers: handles, and the addresses of the device's functions. This
module calls those addresses directly. Recording takes well under a microsecond and cannot block, so it keeps the GIL;
submitting and waiting release it. One lock per :class:`Recorder` orders threads.

Hazards are tracked by *epoch*. Every pipeline barrier begins a new epoch, and every span of memory remembers the epoch
of its last read and of its last write. A command needs a barrier exactly when it touches a span in a conflicting way
and the stamp of the span is the current epoch. Submissions are numbered by *serial*, the value that a timeline
semaphore reaches when the device is done with them.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals
from cpython.pythread cimport (NOWAIT_LOCK, WAIT_LOCK, PyThread_acquire_lock, PyThread_allocate_lock,
                               PyThread_free_lock, PyThread_release_lock, PyThread_type_lock)
from cpython.ref cimport Py_XDECREF, Py_XINCREF, PyObject
from cpython.sequence cimport PySequence_Fast, PySequence_Fast_GET_ITEM, PySequence_Fast_GET_SIZE
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memcpy, memset

from nnk.errors import DeviceError


cdef extern from "vk_min.h" nogil:
    ctypedef void* NnkDispatchable
    ctypedef uint64_t NnkHandle
    enum:
        NNK_VK_SUCCESS
        NNK_VK_TIMEOUT
        NNK_STRUCTURE_SUBMIT_INFO
        NNK_STRUCTURE_DESCRIPTOR_SET_ALLOCATE_INFO
        NNK_STRUCTURE_WRITE_DESCRIPTOR_SET
        NNK_STRUCTURE_COMMAND_BUFFER_BEGIN_INFO
        NNK_STRUCTURE_MEMORY_BARRIER
        NNK_STRUCTURE_TIMELINE_SEMAPHORE_SUBMIT_INFO
        NNK_STRUCTURE_SEMAPHORE_WAIT_INFO
        NNK_DESCRIPTOR_STORAGE_BUFFER
        NNK_BIND_POINT_COMPUTE
        NNK_ONE_TIME_SUBMIT
        NNK_STAGE_COMPUTE
        NNK_PIPELINE_STAGE_COMPUTE
        NNK_PIPELINE_STAGE_TRANSFER
        NNK_PIPELINE_STAGE_HOST
        NNK_ACCESS_SHADER_READ
        NNK_ACCESS_SHADER_WRITE
        NNK_ACCESS_TRANSFER_READ
        NNK_ACCESS_TRANSFER_WRITE
        NNK_ACCESS_HOST_READ
    ctypedef struct NnkCommandBufferBeginInfo:
        int32_t sType
        uint32_t flags
    ctypedef struct NnkSubmitInfo:
        int32_t sType
        const void* pNext
        uint32_t commandBufferCount
        const NnkDispatchable* pCommandBuffers
        uint32_t signalSemaphoreCount
        const NnkHandle* pSignalSemaphores
    ctypedef struct NnkTimelineSubmitInfo:
        int32_t sType
        uint32_t signalSemaphoreValueCount
        const uint64_t* pSignalSemaphoreValues
    ctypedef struct NnkSemaphoreWaitInfo:
        int32_t sType
        uint32_t semaphoreCount
        const NnkHandle* pSemaphores
        const uint64_t* pValues
    ctypedef struct NnkMemoryBarrier:
        int32_t sType
        uint32_t srcAccessMask
        uint32_t dstAccessMask
    ctypedef struct NnkDescriptorBufferInfo:
        NnkHandle buffer
        uint64_t offset
        uint64_t range
    ctypedef struct NnkWriteDescriptorSet:
        int32_t sType
        NnkHandle dstSet
        uint32_t dstBinding
        uint32_t descriptorCount
        int32_t descriptorType
        const NnkDescriptorBufferInfo* pBufferInfo
    ctypedef struct NnkDescriptorSetAllocateInfo:
        int32_t sType
        NnkHandle descriptorPool
        uint32_t descriptorSetCount
        const NnkHandle* pSetLayouts
    ctypedef struct NnkBufferCopy:
        uint64_t srcOffset
        uint64_t dstOffset
        uint64_t size
    ctypedef int32_t (*NnkBeginCommandBuffer)(NnkDispatchable, const NnkCommandBufferBeginInfo*) noexcept nogil
    ctypedef int32_t (*NnkEndCommandBuffer)(NnkDispatchable) noexcept nogil
    ctypedef int32_t (*NnkQueueSubmit)(NnkDispatchable, uint32_t, const NnkSubmitInfo*, NnkHandle) noexcept nogil
    ctypedef int32_t (*NnkWaitSemaphores)(NnkDispatchable, const NnkSemaphoreWaitInfo*, uint64_t) noexcept nogil
    ctypedef int32_t (*NnkGetSemaphoreCounterValue)(NnkDispatchable, NnkHandle, uint64_t*) noexcept nogil
    ctypedef int32_t (*NnkAllocateDescriptorSets)(NnkDispatchable, const NnkDescriptorSetAllocateInfo*,
                                                  NnkHandle*) noexcept nogil
    ctypedef int32_t (*NnkResetDescriptorPool)(NnkDispatchable, NnkHandle, uint32_t) noexcept nogil
    ctypedef void (*NnkUpdateDescriptorSets)(NnkDispatchable, uint32_t, const NnkWriteDescriptorSet*, uint32_t,
                                             const void*) noexcept nogil
    ctypedef void (*NnkDestroyPipeline)(NnkDispatchable, NnkHandle, const void*) noexcept nogil
    ctypedef void (*NnkCmdBindPipeline)(NnkDispatchable, int32_t, NnkHandle) noexcept nogil
    ctypedef void (*NnkCmdBindDescriptorSets)(NnkDispatchable, int32_t, NnkHandle, uint32_t, uint32_t,
                                              const NnkHandle*, uint32_t, const uint32_t*) noexcept nogil
    ctypedef void (*NnkCmdPushDescriptorSet)(NnkDispatchable, int32_t, NnkHandle, uint32_t, uint32_t,
                                             const NnkWriteDescriptorSet*) noexcept nogil
    ctypedef void (*NnkCmdPushConstants)(NnkDispatchable, NnkHandle, uint32_t, uint32_t, uint32_t,
                                         const void*) noexcept nogil
    ctypedef void (*NnkCmdPipelineBarrier)(NnkDispatchable, uint32_t, uint32_t, uint32_t, uint32_t,
                                           const NnkMemoryBarrier*, uint32_t, const void*, uint32_t,
                                           const void*) noexcept nogil
    ctypedef void (*NnkCmdDispatch)(NnkDispatchable, uint32_t, uint32_t, uint32_t) noexcept nogil
    ctypedef void (*NnkCmdCopyBuffer)(NnkDispatchable, NnkHandle, NnkHandle, uint32_t,
                                      const NnkBufferCopy*) noexcept nogil


cdef enum:
    _MAX_BINDINGS = 40       # 16 inputs, 17 outputs and the parameters have room
    _SLOTS = 8               # command buffers in flight
    _MAX_COMMANDS = 64       # dispatches and copies in a command buffer; then it is submitted
    _EARLY_COMMANDS = 8      # the same, while the device has nothing else to do
    _BIND_STEP = 16          # bound ranges are whole vec4s
    _WAIT_SLICE_NS = 100000000
    _MAX_CAPACITY_STEP = 4194304

cdef uint64_t _ANY_SERIAL = <uint64_t>-1

MAX_BINDINGS = _MAX_BINDINGS
SLOTS = _SLOTS
MAX_COMMANDS = _MAX_COMMANDS

#: Device functions that a Recorder calls, in the order of its ``functions`` argument.
FUNCTION_NAMES = (
    "vkBeginCommandBuffer", "vkEndCommandBuffer", "vkQueueSubmit", "vkWaitSemaphores", "vkGetSemaphoreCounterValue",
    "vkAllocateDescriptorSets", "vkResetDescriptorPool", "vkUpdateDescriptorSets", "vkDestroyPipeline",
    "vkCmdBindPipeline", "vkCmdBindDescriptorSets", "vkCmdPushConstants", "vkCmdPipelineBarrier", "vkCmdDispatch",
    "vkCmdCopyBuffer", "vkCmdPushDescriptorSetKHR",
)


#: The only function that a device may lack.
OPTIONAL = "vkCmdPushDescriptorSetKHR"


@cython.final
@cython.no_gc
@cython.auto_pickle(False)
cdef class Span:
    """A range of a device memory block, with the stamps of its last use.

    ``address`` is where the range is mapped, 0 where the host cannot see it. ``block`` is a number for the owner.
    """

    cdef readonly uint64_t handle
    cdef readonly uint64_t offset
    cdef readonly uint64_t capacity
    cdef readonly uint64_t address
    cdef readonly uint64_t block
    cdef readonly uint64_t serial
    cdef uint64_t read_epoch
    cdef uint64_t write_epoch

    def __cinit__(self, uint64_t handle, uint64_t offset, uint64_t capacity, uint64_t address, uint64_t block,
                  uint64_t serial=0, uint64_t epoch=0):
        self.handle = handle
        self.offset = offset
        self.capacity = capacity
        self.address = address
        self.block = block
        self.serial = serial
        self.read_epoch = epoch
        self.write_epoch = epoch

    @property
    def epoch(self):
        """Epoch of the last use."""
        return max(self.read_epoch, self.write_epoch)

    def write(self, uint64_t offset, const unsigned char[::1] data not None):
        """Copy host bytes into the mapped range. The caller has made sure that the device does not use it."""
        cdef uint64_t size = <uint64_t>data.shape[0]
        self._check(offset, size)
        if size:
            with nogil:
                memcpy(<void*><uintptr_t>(self.address + offset), &data[0], size)

    def read(self, uint64_t offset, unsigned char[::1] target not None):
        """Copy bytes of the mapped range to the host. The caller has waited for the device."""
        cdef uint64_t size = <uint64_t>target.shape[0]
        self._check(offset, size)
        if size:
            with nogil:
                memcpy(&target[0], <void*><uintptr_t>(self.address + offset), size)

    cdef int _check(self, uint64_t offset, uint64_t size) except -1:
        if self.address == 0:
            raise DeviceError("Expected memory that is mapped to the host, got memory of the device alone")
        if offset > self.capacity or size > self.capacity - offset:
            raise DeviceError(f"Expected at most {self.capacity} bytes, got {size} bytes at offset {offset}")
        return 0


@cython.final
@cython.no_gc
@cython.auto_pickle(False)
cdef class SpanCache:
    """Free spans by capacity, kept for the next buffer of the same size.

    A span may be taken again while the device still uses it: its stamps order the new use after the old one.
    ``alignment`` is the smallest capacity, a power of two.
    """

    cdef dict free
    cdef uint64_t alignment
    cdef readonly uint64_t free_bytes
    cdef readonly uint64_t live_count
    cdef readonly uint64_t live_bytes

    def __cinit__(self, uint64_t alignment):
        self.free = {}
        self.alignment = alignment

    cdef uint64_t _capacity(self, uint64_t nbytes) noexcept nogil:
        """Round up to an eighth of the next lower power of two, so that few sizes serve many buffers."""
        cdef uint64_t step = self.alignment
        while step < _MAX_CAPACITY_STEP and step << 4 <= nbytes:
            step <<= 1
        return (nbytes + step - 1) // step * step if nbytes else step

    def capacity_of(self, uint64_t nbytes):
        """Return the capacity of the span of a buffer of ``nbytes`` bytes."""
        return self._capacity(nbytes)

    def reuse(self, uint64_t nbytes, uint64_t completed=0xFFFFFFFFFFFFFFFF):
        """Return a buffer in a free span that the device has completed using, or None.

        With the default ``completed`` any free span will do, the one freed last first.
        """
        cdef list spans = <list>self.free.get(self._capacity(nbytes))
        cdef Span span
        if not spans:
            return None
        if completed == _ANY_SERIAL:
            span = <Span>spans.pop()
        elif (<Span>spans[0]).serial <= completed:
            # The one that was freed first is the most likely to be unused.
            span = <Span>spans.pop(0)
        else:
            return None
        self.free_bytes -= span.capacity
        return Buffer(self, span, nbytes)

    def drain(self):
        """Return all free spans and forget them."""
        spans = [span for spans in self.free.values() for span in spans]
        self.free = {}
        self.free_bytes = 0
        return spans

    cdef int give(self, Span span) except -1:
        spans = self.free.get(span.capacity)
        if spans is None:
            spans = self.free[span.capacity] = []
        (<list>spans).append(span)
        self.free_bytes += span.capacity
        return 0


@cython.final
@cython.no_gc
@cython.auto_pickle(False)
cdef class Buffer:
    """A piece of device memory of ``nbytes`` bytes. Its memory is free for others once the object is gone."""

    cdef Span _span
    cdef SpanCache _cache
    cdef readonly uint64_t nbytes

    def __cinit__(self, SpanCache cache not None, Span span not None, uint64_t nbytes):
        if nbytes > span.capacity:
            raise DeviceError(f"Expected a span of at least {nbytes} bytes, got {span.capacity}")
        self._span = span
        self._cache = cache
        self.nbytes = nbytes
        cache.live_count += 1
        cache.live_bytes += span.capacity

    @property
    def span(self):
        """The memory of the buffer; an error once it is released."""
        if self._span is None:
            raise DeviceError("Expected a live buffer, got one that was released")
        return self._span

    @property
    def released(self):
        """Whether :meth:`release` was called."""
        return self._span is None

    def release(self):
        """Give the memory back now. The device may still use it: later users are ordered after it."""
        self._give_back()

    cdef int _give_back(self) except -1:
        cdef Span span = self._span
        if span is not None:
            self._span = None
            self._cache.live_count -= 1
            self._cache.live_bytes -= span.capacity
            self._cache.give(span)
        return 0

    def __dealloc__(self):
        if self._span is not None:
            self._give_back()

    def __repr__(self):
        return f"<Buffer of {self.nbytes} bytes{', released' if self._span is None else ''}>"


@cython.final
@cython.no_gc
@cython.auto_pickle(False)
cdef class Kernel:
    """A compute pipeline and what recording needs to know about it."""

    cdef Recorder _recorder
    cdef uint64_t _pipeline
    cdef uint64_t _layout
    cdef uint64_t _set_layout
    cdef uint64_t _serial
    cdef bint _push_descriptors
    cdef readonly uint32_t n_inputs
    cdef readonly uint32_t n_outputs
    cdef readonly bint params_in_buffer
    cdef readonly uint32_t param_bytes

    def __cinit__(self, Recorder recorder not None, uint64_t pipeline, uint64_t layout, uint64_t set_layout,
                  uint32_t n_inputs, uint32_t n_outputs, uint32_t param_bytes, bint params_in_buffer,
                  bint push_descriptors):
        if <uint64_t>n_inputs + n_outputs + params_in_buffer > _MAX_BINDINGS:
            raise DeviceError(f"Expected at most {MAX_BINDINGS} bindings in a kernel, got "
                              f"{n_inputs + n_outputs + params_in_buffer}")
        self._recorder = recorder
        self._pipeline = pipeline
        self._layout = layout
        self._set_layout = set_layout
        self.n_inputs = n_inputs
        self.n_outputs = n_outputs
        self.param_bytes = param_bytes
        self.params_in_buffer = params_in_buffer
        self._push_descriptors = push_descriptors
        recorder._pipelines.add(pipeline)

    @property
    def pipeline(self):
        """The VkPipeline handle."""
        return self._pipeline

    def __dealloc__(self):
        if self._recorder is not None:
            self._recorder._retired.append((self._pipeline, self._serial))

    def __repr__(self):
        return f"<Kernel of {self.n_inputs} inputs, {self.n_outputs} outputs, {self.param_bytes} parameter bytes>"


cdef struct _Functions:
    NnkBeginCommandBuffer begin
    NnkEndCommandBuffer end
    NnkQueueSubmit submit
    NnkWaitSemaphores wait
    NnkGetSemaphoreCounterValue counter
    NnkAllocateDescriptorSets allocate_sets
    NnkResetDescriptorPool reset_pool
    NnkUpdateDescriptorSets update_sets
    NnkDestroyPipeline destroy_pipeline
    NnkCmdBindPipeline bind_pipeline
    NnkCmdBindDescriptorSets bind_sets
    NnkCmdPushConstants push_constants
    NnkCmdPipelineBarrier barrier
    NnkCmdDispatch dispatch
    NnkCmdCopyBuffer copy
    NnkCmdPushDescriptorSet push_descriptors


@cython.final
@cython.auto_pickle(False)
cdef class Recorder:
    """Records dispatches and copies of one device and submits them to its queue.

    Parameters
    ----------
    device, queue : int
        Handles.
    functions : sequence of int
        Addresses of :data:`FUNCTION_NAMES`; that of :data:`OPTIONAL` may be 0.
    command_buffers : sequence of int
        :data:`SLOTS` command buffers that may be reset one by one.
    semaphore : int
        A timeline semaphore at 0.
    max_groups : int
        Largest number of workgroups of a dispatch.
    alignment : int
        Alignment of a span in bytes, a power of two.
    host_reads : bool
        Whether the host reads results from mapped memory without a copy.
    raise_result : callable
        ``raise_result(call, code)`` raises the error of a VkResult.
    """

    cdef _Functions _vk
    cdef NnkDispatchable _device
    cdef NnkDispatchable _queue
    cdef NnkDispatchable[_SLOTS] _commands
    cdef NnkHandle[_SLOTS] _pools
    cdef NnkHandle _semaphore
    cdef PyThread_type_lock _lock
    cdef NnkWriteDescriptorSet[_MAX_BINDINGS] _writes
    cdef object _raise_result
    cdef readonly SpanCache cache
    cdef set _pipelines
    cdef list _retired
    cdef Span _arena
    cdef uint64_t _arena_slot_bytes
    cdef uint64_t _arena_used
    cdef uint64_t _arena_step
    cdef uint64_t _bound
    cdef uint32_t _max_groups
    cdef uint32_t _pending
    cdef bint _recording
    cdef bint _host_reads
    cdef bint _copied_to_host
    cdef bint _transfer_open
    cdef bint _has_pools
    cdef str _unusable
    cdef uint64_t _epoch
    cdef uint64_t _serial
    cdef uint64_t _completed
    cdef readonly uint64_t dispatch_count
    cdef readonly uint64_t barrier_count
    cdef readonly uint64_t submit_count

    def __cinit__(self, uintptr_t device, uintptr_t queue, functions, command_buffers, uint64_t semaphore,
                  uint32_t max_groups, uint64_t alignment, bint host_reads, raise_result):
        cdef uintptr_t[16] addresses
        cdef int index
        if len(functions) != len(FUNCTION_NAMES) or len(command_buffers) != _SLOTS:
            raise DeviceError(f"Expected {len(FUNCTION_NAMES)} functions and {SLOTS} command buffers, got "
                              f"{len(functions)} and {len(command_buffers)}")
        for index, address in enumerate(functions):
            addresses[index] = address
        missing = [name for name, address in zip(FUNCTION_NAMES, functions) if not address and name != OPTIONAL]
        if missing:
            raise DeviceError(f"The Vulkan driver has no function {', '.join(missing)}")
        memcpy(&self._vk, addresses, sizeof(_Functions))
        for index, handle in enumerate(command_buffers):
            self._commands[index] = <NnkDispatchable><uintptr_t>handle
        memset(self._pools, 0, sizeof(self._pools))
        memset(self._writes, 0, sizeof(self._writes))
        for index in range(_MAX_BINDINGS):
            self._writes[index].sType = NNK_STRUCTURE_WRITE_DESCRIPTOR_SET
            self._writes[index].dstBinding = index
            self._writes[index].descriptorCount = 1
            self._writes[index].descriptorType = NNK_DESCRIPTOR_STORAGE_BUFFER
        self._lock = PyThread_allocate_lock()
        if self._lock == NULL:
            raise MemoryError
        self._device = <NnkDispatchable>device
        self._queue = <NnkDispatchable>queue
        self._semaphore = semaphore
        self._max_groups = max_groups
        self._host_reads = host_reads
        self._raise_result = raise_result
        self.cache = SpanCache(alignment)
        self._pipelines = set()
        self._retired = []
        self._epoch = 1
        self._serial = 1

    def __dealloc__(self):
        if self._lock != NULL:
            PyThread_free_lock(self._lock)

    # ---- state ---------------------------------------------------------------------------------------------------

    @property
    def epoch(self):
        """Number of the current epoch."""
        return self._epoch

    @property
    def serial(self):
        """Serial of the submission that is being recorded."""
        return self._serial

    @property
    def completed(self):
        """Serial up to which all submissions are known to be complete."""
        return self._completed

    @property
    def pipeline_count(self):
        """Number of pipelines that are not destroyed yet."""
        return len(self._pipelines)

    def disable(self, str reason not None):
        """Make every later call raise a DeviceError with ``reason``."""
        self._unusable = reason

    def set_descriptor_pools(self, pools):
        """Give every slot a descriptor pool of at least MAX_COMMANDS sets of MAX_BINDINGS storage buffers."""
        cdef int index
        for index in range(_SLOTS):
            self._pools[index] = pools[index]
        self._has_pools = True

    def set_params_arena(self, Span arena not None, uint64_t slot_bytes, uint64_t step):
        """Give mapped memory for the words of kernels whose parameters do not fit push constants.

        Every slot takes ``slot_bytes`` of it; ``step`` is the alignment of a storage buffer.
        """
        if arena.address == 0 or arena.capacity < slot_bytes * _SLOTS or step == 0:
            raise DeviceError(f"Expected {slot_bytes * _SLOTS} mapped bytes for parameters, got {arena.capacity}")
        self._arena_slot_bytes = slot_bytes
        self._arena_step = step
        self._arena_used = slot_bytes    # the slot that is being recorded has no share of the new arena
        self._arena = arena

    # ---- lock ----------------------------------------------------------------------------------------------------

    cdef int _acquire(self) except -1:
        if not PyThread_acquire_lock(self._lock, NOWAIT_LOCK):
            with nogil:
                PyThread_acquire_lock(self._lock, WAIT_LOCK)
        if self._unusable is not None:
            PyThread_release_lock(self._lock)
            raise DeviceError(self._unusable)
        return 0

    cdef int _failed(self, str call, int32_t code) except -1:
        """Raise the error of a failed call. A lost submission would be waited for without end: stop using the device."""
        self._recording = False
        self._unusable = f"The Vulkan device is unusable after {call} failed with VkResult {code}; make a new engine"
        self._raise_result(call, code)
        raise DeviceError(self._unusable)

    # ---- recording -----------------------------------------------------------------------------------------------

    def dispatch(self, Kernel kernel not None, inputs, outputs, bytes words not None, groups):
        """Record one kernel launch.

        Parameters
        ----------
        kernel : Kernel
            A kernel of this device.
        inputs, outputs : sequence of Buffer
            What the kernel binds, in order.
        words : bytes
            The parameter words.
        groups : int
            Number of workgroups; 0 records nothing, more than the device takes are cut to its maximum.

        Raises
        ------
        DeviceError
            If the number of buffers or words is not the kernel's, a buffer is released, or the device is closed.
        """
        cdef PyObject* spans[_MAX_BINDINGS]
        cdef uint32_t held = 0
        cdef NnkDescriptorBufferInfo[_MAX_BINDINGS] infos
        cdef uint32_t group_count = self._max_groups
        cdef object input_items = PySequence_Fast(inputs, "inputs must be a sequence of buffers")
        cdef object output_items = PySequence_Fast(outputs, "outputs must be a sequence of buffers")
        if kernel._recorder is not self:
            raise DeviceError("Expected a kernel of this device, got one of another device")
        if PySequence_Fast_GET_SIZE(input_items) != kernel.n_inputs:
            raise DeviceError(f"Expected {kernel.n_inputs} input buffers, got {len(input_items)}")
        if PySequence_Fast_GET_SIZE(output_items) != kernel.n_outputs:
            raise DeviceError(f"Expected {kernel.n_outputs} output buffers, got {len(output_items)}")
        if PyBytes_GET_SIZE(words) != <Py_ssize_t>kernel.param_bytes:
            raise DeviceError(f"Expected {kernel.param_bytes} bytes of parameter words, got {len(words)}")
        if groups < self._max_groups:
            group_count = groups
            if group_count == 0:
                return
        try:
            self._collect(input_items, kernel.n_inputs, spans, infos, &held)
            self._collect(output_items, kernel.n_outputs, spans, infos, &held)
            self._acquire()
            try:
                self._record(kernel, spans, infos, <const uint8_t*>PyBytes_AS_STRING(words), group_count)
            finally:
                PyThread_release_lock(self._lock)
        finally:
            while held:
                held -= 1
                Py_XDECREF(spans[held])

    cdef int _collect(self, object items, uint32_t count, PyObject** spans, NnkDescriptorBufferInfo* infos,
                      uint32_t* held) except -1:
        """Append spans and bound ranges of some buffers.

        The spans are held: another thread may release the buffers whenever this one waits.
        """
        cdef uint32_t index
        cdef NnkDescriptorBufferInfo* info
        cdef Span span
        cdef Buffer buffer
        for index in range(count):
            item = <object>PySequence_Fast_GET_ITEM(items, index)
            if not isinstance(item, Buffer):
                raise TypeError(f"Expected Buffer, got {type(item).__name__} at position {index}")
            buffer = <Buffer>item
            span = buffer._span
            if span is None:
                raise DeviceError(f"Expected a live buffer at position {index}, got one that was released")
            if buffer._cache is not self.cache:
                raise DeviceError(f"Expected buffers of this device, got one of another device at position {index}")
            info = &infos[held[0]]
            info.buffer = span.handle
            info.offset = span.offset
            info.range = (buffer.nbytes + _BIND_STEP - 1) & ~<uint64_t>(_BIND_STEP - 1)
            if info.range == 0:
                info.range = _BIND_STEP
            spans[held[0]] = <PyObject*>span
            Py_XINCREF(spans[held[0]])
            held[0] += 1
        return 0

    cdef int _record(self, Kernel kernel, PyObject** spans, NnkDescriptorBufferInfo* infos, const uint8_t* words,
                     uint32_t group_count) except -1:
        cdef uint32_t n_inputs = kernel.n_inputs
        cdef uint32_t count = n_inputs + kernel.n_outputs
        cdef uint32_t index
        cdef uint64_t epoch = self._epoch
        cdef bint hazard = self._transfer_open
        cdef Span span
        cdef NnkDispatchable commands
        for index in range(count):
            span = <Span>spans[index]
            if span.write_epoch == epoch or (index >= n_inputs and span.read_epoch == epoch):
                hazard = True
        if not self._recording:
            self._begin()
        if kernel.params_in_buffer:
            self._put_params(words, kernel.param_bytes, &infos[count])
        commands = self._commands[self._serial % _SLOTS]
        if hazard:
            self._barrier(commands, NNK_PIPELINE_STAGE_COMPUTE, NNK_ACCESS_SHADER_READ | NNK_ACCESS_SHADER_WRITE)
            self._transfer_open = False
        if self._bound != kernel._pipeline:
            self._vk.bind_pipeline(commands, NNK_BIND_POINT_COMPUTE, kernel._pipeline)
            self._bound = kernel._pipeline
        self._bind_buffers(commands, kernel, infos, count + kernel.params_in_buffer)
        if kernel.param_bytes and not kernel.params_in_buffer:
            self._vk.push_constants(commands, kernel._layout, NNK_STAGE_COMPUTE, 0, kernel.param_bytes, words)
        self._vk.dispatch(commands, group_count, 1, 1)
        epoch = self._epoch
        for index in range(count):
            span = <Span>spans[index]
            if index < n_inputs:
                span.read_epoch = epoch
            else:
                span.write_epoch = epoch
            span.serial = self._serial
        kernel._serial = self._serial
        self.dispatch_count += 1
        return self._count_command()

    cdef int _bind_buffers(self, NnkDispatchable commands, Kernel kernel, NnkDescriptorBufferInfo* infos,
                           uint32_t count) except -1:
        cdef NnkDescriptorSetAllocateInfo info
        cdef NnkHandle descriptor_set = 0
        cdef int32_t code
        cdef uint32_t index
        if count == 0:
            return 0
        for index in range(count):
            self._writes[index].pBufferInfo = &infos[index]
        if kernel._push_descriptors:
            self._vk.push_descriptors(commands, NNK_BIND_POINT_COMPUTE, kernel._layout, 0, count, self._writes)
            return 0
        memset(&info, 0, sizeof(info))
        info.sType = NNK_STRUCTURE_DESCRIPTOR_SET_ALLOCATE_INFO
        info.descriptorPool = self._pools[self._serial % _SLOTS]
        info.descriptorSetCount = 1
        info.pSetLayouts = &kernel._set_layout
        code = self._vk.allocate_sets(self._device, &info, &descriptor_set)
        if code != NNK_VK_SUCCESS:
            self._failed("vkAllocateDescriptorSets", code)
        for index in range(count):
            self._writes[index].dstSet = descriptor_set
        self._vk.update_sets(self._device, count, self._writes, 0, NULL)
        self._vk.bind_sets(commands, NNK_BIND_POINT_COMPUTE, kernel._layout, 0, 1, &descriptor_set, 0, NULL)
        return 0

    cdef int _put_params(self, const uint8_t* words, uint64_t size, NnkDescriptorBufferInfo* info) except -1:
        """Write parameter words into the slot's share of the arena and say where they are."""
        cdef uint64_t room = (size + self._arena_step - 1) // self._arena_step * self._arena_step
        cdef uint64_t at
        if self._arena is None or room > self._arena_slot_bytes:
            raise DeviceError(f"Expected room for {size} bytes of parameters, got {self._arena_slot_bytes}")
        if self._arena_used + room > self._arena_slot_bytes:
            self._submit()
            self._begin()
        at = (self._serial % _SLOTS) * self._arena_slot_bytes + self._arena_used
        memcpy(<void*><uintptr_t>(self._arena.address + at), words, size)
        self._arena_used += room
        info.buffer = self._arena.handle
        info.offset = self._arena.offset + at
        info.range = room
        return 0

    cdef void _barrier(self, NnkDispatchable commands, uint32_t stage, uint32_t access) noexcept nogil:
        """Order all earlier commands before later ones of ``stage``, and begin a new epoch."""
        cdef NnkMemoryBarrier barrier
        memset(&barrier, 0, sizeof(barrier))
        barrier.sType = NNK_STRUCTURE_MEMORY_BARRIER
        barrier.srcAccessMask = NNK_ACCESS_SHADER_WRITE
        barrier.dstAccessMask = access
        cdef uint32_t source = NNK_PIPELINE_STAGE_COMPUTE
        if not self._host_reads:
            # Memory that the host cannot see is filled and read by copies.
            source |= NNK_PIPELINE_STAGE_TRANSFER
            barrier.srcAccessMask |= NNK_ACCESS_TRANSFER_WRITE
        self._vk.barrier(commands, source, stage, 0, 1, &barrier, 0, NULL, 0, NULL)
        self._epoch += 1
        self.barrier_count += 1

    cdef int _count_command(self) except -1:
        """Submit when the command buffer is full, or when the device is idle and has enough to begin with."""
        self._pending += 1
        if self._pending >= _MAX_COMMANDS:
            return self._submit()
        if self._pending == _EARLY_COMMANDS:
            self._poll()
            if self._completed + 1 == self._serial:
                return self._submit()
        return 0

    def copy(self, Span source not None, uint64_t source_offset, Span target not None, uint64_t target_offset,
             uint64_t size, bint to_host):
        """Record a copy between two spans. ``to_host`` says that the host reads the target afterwards."""
        cdef NnkBufferCopy region
        cdef NnkDispatchable commands
        if source_offset > source.capacity or size > source.capacity - source_offset:
            raise DeviceError(f"Expected a copy within {source.capacity} bytes, got {size} at {source_offset}")
        if target_offset > target.capacity or size > target.capacity - target_offset:
            raise DeviceError(f"Expected a copy within {target.capacity} bytes, got {size} at {target_offset}")
        if size == 0:
            return
        region.srcOffset = source.offset + source_offset
        region.dstOffset = target.offset + target_offset
        region.size = size
        self._acquire()
        try:
            if not self._recording:
                self._begin()
            commands = self._commands[self._serial % _SLOTS]
            if (not self._transfer_open or source.write_epoch == self._epoch or target.write_epoch == self._epoch
                    or target.read_epoch == self._epoch):
                self._barrier(commands, NNK_PIPELINE_STAGE_TRANSFER,
                              NNK_ACCESS_TRANSFER_READ | NNK_ACCESS_TRANSFER_WRITE)
                self._transfer_open = True
            self._vk.copy(commands, source.handle, target.handle, 1, &region)
            source.read_epoch = target.write_epoch = self._epoch
            source.serial = target.serial = self._serial
            self._copied_to_host |= to_host
            self._count_command()
        finally:
            PyThread_release_lock(self._lock)

    # ---- submission ----------------------------------------------------------------------------------------------

    cdef int _begin(self) except -1:
        """Begin the command buffer of the current serial, once the device is done with its last use."""
        cdef NnkCommandBufferBeginInfo info
        cdef int slot = <int>(self._serial % _SLOTS)
        cdef int32_t code
        if self._serial > _SLOTS:
            self._wait_for(self._serial - _SLOTS)
        if self._has_pools:
            code = self._vk.reset_pool(self._device, self._pools[slot], 0)
            if code != NNK_VK_SUCCESS:
                self._failed("vkResetDescriptorPool", code)
        memset(&info, 0, sizeof(info))
        info.sType = NNK_STRUCTURE_COMMAND_BUFFER_BEGIN_INFO
        info.flags = NNK_ONE_TIME_SUBMIT
        code = self._vk.begin(self._commands[slot], &info)
        if code != NNK_VK_SUCCESS:
            self._failed("vkBeginCommandBuffer", code)
        self._recording = True
        self._bound = 0
        self._pending = 0
        self._arena_used = 0
        self._copied_to_host = False
        return 0

    cdef int _submit(self) except -1:
        """End the command buffer and give it to the queue. The GIL is released for the call into the driver."""
        cdef NnkSubmitInfo info
        cdef NnkTimelineSubmitInfo timeline
        cdef NnkMemoryBarrier barrier
        cdef uint64_t value = self._serial
        cdef NnkDispatchable commands = self._commands[self._serial % _SLOTS]
        cdef int32_t code
        if not self._recording:
            return 0
        memset(&barrier, 0, sizeof(barrier))
        memset(&info, 0, sizeof(info))
        memset(&timeline, 0, sizeof(timeline))
        timeline.sType = NNK_STRUCTURE_TIMELINE_SEMAPHORE_SUBMIT_INFO
        timeline.signalSemaphoreValueCount = 1
        timeline.pSignalSemaphoreValues = &value
        info.sType = NNK_STRUCTURE_SUBMIT_INFO
        info.pNext = &timeline
        info.commandBufferCount = 1
        info.pCommandBuffers = &commands
        info.signalSemaphoreCount = 1
        info.pSignalSemaphores = &self._semaphore
        with nogil:
            if self._host_reads or self._copied_to_host:
                barrier.sType = NNK_STRUCTURE_MEMORY_BARRIER
                barrier.srcAccessMask = NNK_ACCESS_SHADER_WRITE | NNK_ACCESS_TRANSFER_WRITE
                barrier.dstAccessMask = NNK_ACCESS_HOST_READ
                self._vk.barrier(commands, NNK_PIPELINE_STAGE_COMPUTE | NNK_PIPELINE_STAGE_TRANSFER,
                                 NNK_PIPELINE_STAGE_HOST, 0, 1, &barrier, 0, NULL, 0, NULL)
            code = self._vk.end(commands)
            if code == NNK_VK_SUCCESS:
                code = self._vk.submit(self._queue, 1, &info, 0)
        if code != NNK_VK_SUCCESS:
            self._failed("vkQueueSubmit", code)
        self._recording = False
        self._serial += 1
        self.submit_count += 1
        return 0

    cdef int _poll(self) except -1:
        """Ask how far the device is."""
        cdef uint64_t value = 0
        cdef int32_t code = self._vk.counter(self._device, self._semaphore, &value)
        if code != NNK_VK_SUCCESS:
            self._failed("vkGetSemaphoreCounterValue", code)
        if value > self._completed:
            self._completed = value
        return 0

    cdef int _wait_for(self, uint64_t serial) except -1:
        """Wait until a submitted serial is complete. Signals of the process are served meanwhile."""
        cdef NnkSemaphoreWaitInfo info
        cdef int32_t code = NNK_VK_TIMEOUT
        if serial <= self._completed:
            return 0
        memset(&info, 0, sizeof(info))
        info.sType = NNK_STRUCTURE_SEMAPHORE_WAIT_INFO
        info.semaphoreCount = 1
        info.pSemaphores = &self._semaphore
        info.pValues = &serial
        while code == NNK_VK_TIMEOUT:
            with nogil:
                code = self._vk.wait(self._device, &info, _WAIT_SLICE_NS)
            if code == NNK_VK_TIMEOUT:
                PyErr_CheckSignals()
        if code != NNK_VK_SUCCESS:
            self._failed("vkWaitSemaphores", code)
        if serial > self._completed:
            self._completed = serial
        return 0

    def flush(self):
        """Submit what is recorded; return the serial of the last submission."""
        self._acquire()
        try:
            self._submit()
            return self._serial - 1
        finally:
            PyThread_release_lock(self._lock)

    def poll(self):
        """Return the serial up to which all submissions are complete, without waiting."""
        self._acquire()
        try:
            self._poll()
        finally:
            PyThread_release_lock(self._lock)
        return self._completed

    def wait(self, uint64_t serial=0xFFFFFFFFFFFFFFFF):
        """Wait until the device has completed ``serial``, by default everything recorded so far."""
        self._acquire()
        try:
            if serial >= self._serial:
                self._submit()
                serial = self._serial - 1
        finally:
            PyThread_release_lock(self._lock)
        # The semaphore only grows, so that waiting needs no lock: other threads go on recording.
        self._wait_for(serial)
        if self._retired:
            self._destroy_retired()

    cdef int _destroy_retired(self) except -1:
        """Destroy the pipelines of dropped kernels that the device has completed."""
        retired, self._retired = self._retired, []
        for entry in retired:
            if entry[1] <= self._completed:
                self._pipelines.discard(entry[0])
                self._vk.destroy_pipeline(self._device, <NnkHandle>entry[0], NULL)
            else:
                self._retired.append(entry)
        return 0

    def close(self):
        """Wait for the device and destroy all pipelines; later calls raise."""
        self.wait()
        self._acquire()
        try:
            self.disable("Expected an open Vulkan device, got one that was closed")
            pipelines, self._pipelines = self._pipelines, set()
            for pipeline in pipelines:
                self._vk.destroy_pipeline(self._device, <NnkHandle>pipeline, NULL)
            self._retired.clear()
        finally:
            PyThread_release_lock(self._lock)
