# cython: language_level=3
cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t

from nnk._fast.kvrecord cimport Field, RecordTable


@cython.final
@cython.auto_pickle(False)
cdef class KeyIndex:
    cdef RecordTable table
    cdef uint32_t *slots        # field number + 1, 0 where empty
    cdef uint64_t mask
    cdef uint64_t count
    cdef bytes prefix
    cdef uint64_t prefix_len
    cdef readonly uint64_t first_at
    cdef bint belongs(self, Field *field, int kind) noexcept
    cdef int64_t look_up(self, const unsigned char *key, uint64_t length) noexcept
