# cython: language_level=3
"""From a key to the place of its value: a hash table over the fields of one record that share a prefix and a type.

Built once, O(n); a look-up is O(1) and makes no Python object but its result.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcmp

from nnk._fast.common cimport nnk_hash_bytes
from nnk._fast.kvrecord cimport Field, RecordTable

import os

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

cdef uint64_t HASH_SEED = int.from_bytes(os.urandom(8), "little")


cdef class KeyIndex:
    """Look up the fields of ``table`` whose key starts with ``prefix`` and whose type code is ``kind``.

    Keys are given and returned without the prefix. Fields of another type are not indexed. ``first_at`` is the lowest
    position of a value, 0 if there is none.
    """

    def __cinit__(self, RecordTable table not None, bytes prefix not None, int kind):
        cdef uint64_t number, slot
        cdef uint64_t size = 8
        cdef Field *field
        cdef const unsigned char *key
        self.table = table
        self.prefix_len = <uint64_t>len(prefix)
        self.prefix = prefix
        self.count = 0
        self.first_at = 0
        for number in range(table.count):
            self.count += self.belongs(&table.fields[number], kind)
        while size < 2 * self.count:
            size *= 2
        self.slots = <uint32_t *>PyMem_Calloc(<size_t>size, sizeof(uint32_t))
        if self.slots == NULL:
            raise MemoryError
        self.mask = size - 1
        for number in range(table.count):
            field = &table.fields[number]
            if not self.belongs(field, kind):
                continue
            if self.first_at == 0 or field.value_at < self.first_at:
                self.first_at = field.value_at
            key = &table.data[0] + field.key_at
            slot = nnk_hash_bytes(key + self.prefix_len, field.key_len - self.prefix_len, HASH_SEED) & self.mask
            while self.slots[slot]:
                slot = (slot + 1) & self.mask
            self.slots[slot] = <uint32_t>(number + 1)

    cdef bint belongs(self, Field *field, int kind) noexcept:
        cdef const unsigned char *start = <const unsigned char *>PyBytes_AS_STRING(self.prefix)
        return field.kind == kind and field.key_len >= self.prefix_len and (
            self.prefix_len == 0 or memcmp(&self.table.data[0] + field.key_at, start, self.prefix_len) == 0)

    def __dealloc__(self):
        PyMem_Free(self.slots)

    def __len__(self):
        return self.count

    cdef int64_t look_up(self, const unsigned char *key, uint64_t length) noexcept:
        """Return the number of the field in the table, or -1."""
        cdef uint64_t slot = nnk_hash_bytes(key, length, HASH_SEED) & self.mask
        cdef Field *field
        while self.slots[slot]:
            field = &self.table.fields[self.slots[slot] - 1]
            if field.key_len - self.prefix_len == length and \
                    memcmp(&self.table.data[0] + field.key_at + self.prefix_len, key, length) == 0:
                return <int64_t>self.slots[slot] - 1
            slot = (slot + 1) & self.mask
        return -1

    def find(self, str key not None):
        """Return (position of the first value byte, length in bytes) of ``key``, or None."""
        cdef Py_ssize_t size = 0
        cdef const char *text = PyUnicode_AsUTF8AndSize(key, &size)
        cdef int64_t number = self.look_up(<const unsigned char *>text, <uint64_t>size)
        if number < 0:
            return None
        return self.table.fields[number].value_at, self.table.fields[number].value_len

    def __contains__(self, str key not None):
        cdef Py_ssize_t size = 0
        cdef const char *text = PyUnicode_AsUTF8AndSize(key, &size)
        return self.look_up(<const unsigned char *>text, <uint64_t>size) >= 0

    def keys(self):
        """Return the keys as bytes, in file order; O(n)."""
        cdef uint64_t slot
        cdef list numbers = []
        cdef Field *field
        for slot in range(self.mask + 1):
            if self.slots[slot]:
                numbers.append(self.slots[slot] - 1)
        numbers.sort()
        out = []
        for number in numbers:
            field = &self.table.fields[<uint64_t>number]
            out.append(PyBytes_FromStringAndSize(
                <const char *>&self.table.data[0] + field.key_at + self.prefix_len,
                <Py_ssize_t>(field.key_len - self.prefix_len)))
        return out
