# cython: language_level=3
"""Spans of device memory, buffers in them, and the free spans that wait for the next buffer.

A span remembers its last use, for whoever gets the memory next: see :mod:`nnk._fast.dispatch` for epochs and serials.
Buffers are freed by the garbage collector at any point of any thread, so that freeing takes no lock: it is an append
under the GIL.
"""

cimport cython
from libc.stdint cimport uint64_t, uintptr_t
from libc.string cimport memcpy

from nnk.errors import DeviceError


cdef enum:
    _MAX_CAPACITY_STEP = 4194304

cdef uint64_t _ANY_SERIAL = <uint64_t>-1


@cython.final
@cython.no_gc
@cython.auto_pickle(False)
cdef class Span:
    """A range of a device memory block, with the stamps of its last use.

    ``address`` is where the range is mapped, 0 where the host cannot see it. ``block`` is a number for the owner.
    ``serial`` is the submission of the last use, ``write_serial`` that of the last write.
    """

    def __cinit__(self, uint64_t handle, uint64_t offset, uint64_t capacity, uint64_t address, uint64_t block,
                  uint64_t serial=0, uint64_t epoch=0):
        self.handle = handle
        self.offset = offset
        self.capacity = capacity
        self.address = address
        self.block = block
        self.serial = serial
        self.write_serial = serial
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

    def close(self):
        """Drop all free spans, and from now on those that are given back: their memory is about to go."""
        self.closed = True
        self.drain()

    cdef int give(self, Span span) except -1:
        if self.closed:
            return 0
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

    def __cinit__(self, SpanCache cache not None, Span span not None, uint64_t nbytes):
        if nbytes > span.capacity:
            raise DeviceError(f"Expected a span of at least {nbytes} bytes, got {span.capacity}")
        self._span = span
        self._cache = cache
        self.nbytes = nbytes
        cache.live_count += 1
        cache.live_bytes += span.capacity

    def window(self, uint64_t offset, uint64_t nbytes):
        """Return a part of this buffer as a buffer, which keeps this one alive and is used as part of it."""
        cdef Buffer part
        if self._span is None:
            raise DeviceError("Expected a live buffer, got one that was released")
        if offset > self.nbytes or nbytes > self.nbytes - offset:
            raise DeviceError(f"Expected a window within {self.nbytes} bytes, got {nbytes} bytes at offset {offset}")
        part = Buffer.__new__(Buffer, self._cache, self._span, nbytes)
        self._cache.live_count -= 1
        self._cache.live_bytes -= self._span.capacity
        part.offset = self.offset + offset
        part._owner = self
        return part

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
            if self._owner is not None:
                self._owner = None
                return 0
            self._cache.live_count -= 1
            self._cache.live_bytes -= span.capacity
            self._cache.give(span)
        return 0

    def __dealloc__(self):
        if self._span is not None:
            self._give_back()

    def __repr__(self):
        return f"<Buffer of {self.nbytes} bytes{', released' if self._span is None else ''}>"
