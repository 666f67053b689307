# cython: language_level=3
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t


cdef struct Field:
    uint64_t key_at         # index of the first key byte in the data
    uint64_t value_at       # index of the first value byte
    uint64_t value_len
    uint64_t addr_at        # index of the addr word (v2) or of the value_len word (v1): for messages
    uint32_t key_len
    uint8_t kind


@cython.final
@cython.auto_pickle(False)
cdef class RecordTable:
    cdef const unsigned char[::1] data
    cdef object source
    cdef Field *fields
    cdef uint32_t *slots    # hash table: field number + 1, 0 where empty
    cdef uint64_t mask
    cdef uint64_t count
    cdef uint64_t base
    cdef dict children
    cdef readonly uint64_t begin
    cdef readonly uint64_t end
    cdef readonly int version
    cdef bytes key_bytes(self, uint64_t number)
    cdef int allocate(self, uint64_t count) except -1
    cdef int64_t look_up(self, const unsigned char *key, uint64_t length) noexcept
    cdef int append(self, uint64_t head_at, Field *field) except -1
    cdef uint64_t read_key(self, uint64_t at, uint64_t limit, Field *field) except? 0xFFFFFFFFFFFFFFFFu
    cdef int read(self, uint64_t limit, int depth, bint head_only, uint64_t size) except -1
    cdef int read_v1(self, uint64_t count, uint64_t limit) except -1
    cdef uint64_t read_heads(self, uint64_t at, uint64_t count, uint64_t limit) except? 0xFFFFFFFFFFFFFFFFu
    cdef int read_blocks(self, uint64_t at, uint64_t limit, int depth) except -1
    cdef int derive_blocks(self, uint64_t at, uint64_t size) except -1
    cdef int check_value(self, uint64_t number, int depth) except -1
    cdef Field *checked(self, uint64_t number) except NULL
