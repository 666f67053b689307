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

from nnk._fast.spans cimport Buffer, Span, SpanCache
from nnk._fast.vk_min cimport (
    NNK_ACCESS_HOST_READ, NNK_ACCESS_SHADER_READ, NNK_ACCESS_SHADER_WRITE, NNK_ACCESS_TRANSFER_READ,
    NNK_ACCESS_TRANSFER_WRITE, NNK_BIND_POINT_COMPUTE, NNK_PIPELINE_STAGE_COMPUTE, NNK_PIPELINE_STAGE_HOST,
    NNK_PIPELINE_STAGE_TRANSFER, NNK_STAGE_COMPUTE, NNK_VK_SUCCESS, NNK_VK_TIMEOUT, NnkBufferCopy,
    NnkDescriptorBufferInfo, NnkDispatchable, NnkFunctions, NnkHandle, NnkWriteDescriptorSet, nnk_allocate_set,
    nnk_barrier, nnk_begin, nnk_init_writes, nnk_submit, nnk_wait)

from nnk.errors import DeviceError


cdef enum:
    _MAX_BINDINGS = 40       # 16 inputs, 17 outputs and the parameters have room
    _SLOTS = 8               # command buffers in flight
    _MAX_COMMANDS = 64       # dispatches and copies in a command buffer; then it is submitted
    _EARLY_COMMANDS = 8      # the same, while the device has nothing else to do
    _BIND_STEP = 16          # bound ranges are whole vec4s
    _MAX_REGIONS = 64        # of one copy command
    _WAIT_SLICE_NS = 100000000

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


@cython.final
@cython.auto_pickle(False)
cdef class Recorder:
    """Records dispatches and copies of one device and submits them to its queue.

    Parameters
    ----------
    device, queue, semaphore : int
        Handles; the timeline semaphore is at 0.
    functions : sequence of int
        Addresses of :data:`FUNCTION_NAMES`; that of :data:`OPTIONAL` may be 0.
    command_buffers : sequence of int
        :data:`SLOTS` command buffers that may be reset one by one.
    max_groups, alignment : int
        Largest number of workgroups of a dispatch; alignment of a span in bytes, a power of two.
    host_reads : bool
        Whether the host reads results from mapped memory without a copy.
    raise_result : callable
        ``raise_result(call, code)`` raises the error of a VkResult.
    """

    cdef NnkFunctions _vk
    cdef NnkDispatchable _device, _queue
    cdef NnkDispatchable[_SLOTS] _commands
    cdef NnkHandle[_SLOTS] _pools
    cdef NnkHandle _semaphore
    cdef PyThread_type_lock _lock
    cdef NnkWriteDescriptorSet[_MAX_BINDINGS] _writes
    cdef NnkDescriptorBufferInfo[_MAX_BINDINGS] _infos
    cdef object _raise_result
    cdef readonly SpanCache cache
    cdef set _pipelines
    cdef list _retired
    cdef Span _arena
    cdef uint64_t _arena_slot_bytes, _arena_used, _arena_step
    cdef uint64_t _bound
    cdef uint32_t _max_groups
    cdef uint32_t _pending
    cdef bint _recording
    cdef bint _host_reads
    cdef bint _copied_to_host
    cdef bint _transfer_open
    cdef bint _has_pools
    cdef str _unusable
    cdef uint64_t _epoch, _serial, _completed
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
        memcpy(&self._vk, addresses, sizeof(NnkFunctions))
        for index, handle in enumerate(command_buffers):
            self._commands[index] = <NnkDispatchable><uintptr_t>handle
        memset(self._pools, 0, sizeof(self._pools))
        nnk_init_writes(self._writes, self._infos, _MAX_BINDINGS)
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
        self.cache.close()

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
        if arena.address == 0 or arena.capacity < slot_bytes * _SLOTS or step == 0 or slot_bytes % step:
            raise DeviceError(f"Expected {slot_bytes * _SLOTS} mapped bytes for parameters, got {arena.capacity}")
        self._arena_slot_bytes = slot_bytes
        self._arena_step = step
        self._arena_used = slot_bytes    # the slot that is being recorded has no share of the new arena
        self._arena = arena

    # ---- lock ----------------------------------------------------------------------------------------------------

    cdef int _acquire(self) except -1:
        # Asked before as well: in a forked child nobody will ever release a lock that another thread held.
        if self._unusable is not None:
            raise DeviceError(self._unusable)
        if not PyThread_acquire_lock(self._lock, NOWAIT_LOCK):
            with nogil:
                PyThread_acquire_lock(self._lock, WAIT_LOCK)
        if self._unusable is not None:
            PyThread_release_lock(self._lock)
            raise DeviceError(self._unusable)
        return 0

    cdef int _check(self, str call, int32_t code) except -1:
        """Raise the error of a failed call.

        A submission that was lost would be waited for without end, so that the device is not used any more.
        """
        if code == NNK_VK_SUCCESS:
            return 0
        self._recording = False
        self._unusable = f"The Vulkan device is unusable after {call} failed with VkResult {code}; make a new engine"
        self._raise_result(call, code)
        raise DeviceError(self._unusable)

    # ---- recording -----------------------------------------------------------------------------------------------

    def dispatch(self, Kernel kernel not None, inputs, outputs, bytes words not None,
                 uint64_t groups):
        """Record one kernel launch.

        Parameters
        ----------
        kernel : Kernel
            A kernel of this device.
        inputs, outputs, words : sequence of Buffer, sequence of Buffer, bytes
            What the kernel binds, in order, and its parameter words.
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
        if groups < group_count:
            group_count = <uint32_t>groups
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
            info.offset = span.offset + buffer.offset
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
                span.write_serial = self._serial
            span.serial = self._serial
        kernel._serial = self._serial
        self.dispatch_count += 1
        return self._count_command()

    cdef int _bind_buffers(self, NnkDispatchable commands, Kernel kernel, const NnkDescriptorBufferInfo* infos,
                           uint32_t count) except -1:
        cdef NnkHandle descriptor_set = 0
        cdef uint32_t index
        if count == 0:
            return 0
        memcpy(self._infos, infos, count * sizeof(NnkDescriptorBufferInfo))
        if kernel._push_descriptors:
            self._vk.push_descriptors(commands, NNK_BIND_POINT_COMPUTE, kernel._layout, 0, count, self._writes)
            return 0
        self._check("vkAllocateDescriptorSets",
                    nnk_allocate_set(&self._vk, self._device, self._pools[self._serial % _SLOTS], kernel._set_layout,
                                     &descriptor_set))
        for index in range(count):
            self._writes[index].dstSet = descriptor_set
        self._vk.update_sets(self._device, count, self._writes, 0, NULL)
        self._vk.bind_sets(commands, NNK_BIND_POINT_COMPUTE, kernel._layout, 0, 1, &descriptor_set, 0, NULL)
        return 0

    cdef int _put_params(self, const uint8_t* words, uint64_t size, NnkDescriptorBufferInfo* info) except -1:
        """Write parameter words into the slot's share of the arena and say where they are."""
        cdef uint64_t room
        cdef uint64_t at
        if size > self._arena_slot_bytes:
            raise DeviceError(f"Expected room for {size} bytes of parameters, got {self._arena_slot_bytes}")
        room = (size + self._arena_step - 1) // self._arena_step * self._arena_step
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
        cdef uint32_t stages = NNK_PIPELINE_STAGE_COMPUTE
        cdef uint32_t accesses = NNK_ACCESS_SHADER_WRITE
        if self._transfer_open or stage != NNK_PIPELINE_STAGE_COMPUTE:
            stages |= NNK_PIPELINE_STAGE_TRANSFER
            accesses |= NNK_ACCESS_TRANSFER_WRITE
        nnk_barrier(&self._vk, commands, stages, accesses, stage, access)
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
             uint64_t size, bint to_host, uint64_t rows=1, uint64_t source_step=0, uint64_t target_step=0):
        """Record a copy between two spans: ``rows`` times ``size`` bytes, one every so many bytes on either side.

        ``to_host`` says that the host reads the target afterwards.
        """
        cdef NnkBufferCopy[_MAX_REGIONS] regions
        cdef uint64_t row = 0
        cdef uint32_t count
        cdef NnkDispatchable commands
        for span, first, step in ((source, source_offset, source_step), (target, target_offset, target_step)):
            if rows and first + (rows - 1) * step + size > span.capacity:
                raise DeviceError(f"Expected a copy within {span.capacity} bytes, got {rows} times {size} at {first}")
        if size == 0 or rows == 0:
            return
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
            while row < rows:
                count = 0
                while count < _MAX_REGIONS and row < rows:
                    regions[count].srcOffset = source.offset + source_offset + row * source_step
                    regions[count].dstOffset = target.offset + target_offset + row * target_step
                    regions[count].size = size
                    count += 1
                    row += 1
                self._vk.copy(commands, source.handle, target.handle, count, regions)
            source.read_epoch = target.write_epoch = self._epoch
            source.serial = target.serial = target.write_serial = self._serial
            self._copied_to_host |= to_host
            self._count_command()
        finally:
            PyThread_release_lock(self._lock)

    # ---- submission ----------------------------------------------------------------------------------------------

    cdef int _begin(self) except -1:
        """Begin the command buffer of the current serial, once the device is done with its last use."""
        cdef int slot = <int>(self._serial % _SLOTS)
        if self._serial > _SLOTS:
            self._wait_for(self._serial - _SLOTS)
        if self._has_pools:
            self._check("vkResetDescriptorPool", self._vk.reset_pool(self._device, self._pools[slot], 0))
        self._check("vkBeginCommandBuffer", nnk_begin(&self._vk, self._commands[slot]))
        self._recording = True
        self._bound = 0
        self._pending = 0
        self._arena_used = 0
        self._copied_to_host = False
        return 0

    cdef int _submit(self) except -1:
        """End the command buffer and give it to the queue. The GIL is released for the calls into the driver."""
        cdef NnkDispatchable commands = self._commands[self._serial % _SLOTS]
        cdef int32_t code
        if not self._recording:
            return 0
        with nogil:
            if self._host_reads or self._copied_to_host:
                nnk_barrier(&self._vk, commands, NNK_PIPELINE_STAGE_COMPUTE | NNK_PIPELINE_STAGE_TRANSFER,
                            NNK_ACCESS_SHADER_WRITE | NNK_ACCESS_TRANSFER_WRITE, NNK_PIPELINE_STAGE_HOST,
                            NNK_ACCESS_HOST_READ)
            code = nnk_submit(&self._vk, self._queue, commands, self._semaphore, self._serial)
        self._check("vkQueueSubmit", code)
        self._recording = False
        self._serial += 1
        self.submit_count += 1
        return 0

    cdef int _poll(self) except -1:
        """Ask how far the device is."""
        cdef uint64_t value = 0
        self._check("vkGetSemaphoreCounterValue", self._vk.counter(self._device, self._semaphore, &value))
        if value > self._completed:
            self._completed = value
        return 0

    cdef int _wait_for(self, uint64_t serial) except -1:
        """Wait until a submitted serial is complete. Signals of the process are served meanwhile."""
        cdef int32_t code = NNK_VK_TIMEOUT
        if serial <= self._completed:
            return 0
        while code == NNK_VK_TIMEOUT:
            with nogil:
                code = nnk_wait(&self._vk, self._device, self._semaphore, serial, _WAIT_SLICE_NS)
            if code == NNK_VK_TIMEOUT:
                PyErr_CheckSignals()
        self._check("vkWaitSemaphores", code)
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
        try:
            if self._unusable is None:
                self.wait()
        finally:
            self.disable("Expected an open Vulkan device, got one that was closed")
            pipelines, self._pipelines = self._pipelines, set()
            self._retired.clear()
            for pipeline in pipelines:
                self._vk.destroy_pipeline(self._device, <NnkHandle>pipeline, NULL)
