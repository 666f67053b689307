# cython: language_level=3
"""Spans and buffers, for the recorder."""

from libc.stdint cimport uint64_t


cdef class Span:
    cdef readonly uint64_t handle
    cdef readonly uint64_t offset
    cdef readonly uint64_t capacity
    cdef readonly uint64_t address
    cdef readonly uint64_t block
    cdef readonly uint64_t serial
    cdef readonly uint64_t write_serial
    # Epochs of the last read and of the last write by the device.
    cdef uint64_t read_epoch
    cdef uint64_t write_epoch

    cdef int _check(self, uint64_t offset, uint64_t size) except -1


cdef class SpanCache:
    cdef dict free
    cdef uint64_t alignment
    cdef bint closed
    cdef readonly uint64_t free_bytes
    cdef readonly uint64_t live_count
    cdef readonly uint64_t live_bytes

    cdef uint64_t _capacity(self, uint64_t nbytes) noexcept nogil
    cdef int give(self, Span span) except -1


cdef class Buffer:
    # None once the buffer is released.
    cdef Span _span
    cdef SpanCache _cache
    cdef readonly uint64_t nbytes
    # First byte within the span, and the buffer that owns the span: of a window.
    cdef readonly uint64_t offset
    cdef Buffer _owner

    cdef int _give_back(self) except -1
