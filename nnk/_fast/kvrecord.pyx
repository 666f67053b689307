# cython: language_level=3
"""KVRecord: a reader that copies no value, and a writer.

The format is docs/formats/kvrecord-v2.md. The input is untrusted: every length is compared with the bytes that are
left before it is used, and nothing is allocated for a count that the data cannot hold.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Malloc
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from nnk._fast.common cimport nnk_hash_bytes, nnk_load_u32, nnk_load_u64, nnk_store_u32, nnk_store_u64

import os

from nnk.errors import FormatVersionError, RecordError, RecordTruncatedError

cdef enum:
    KIND_UINT = 0
    KIND_STR = 1
    KIND_UINT_ARRAY = 2
    KIND_RECORD = 3
    VERSION = 2
    MAX_NESTING = 32
    SENTINEL_KEY_BYTES = 13
    SENTINEL_BYTES = 30         # key length, key, kind, value length, value
    MIN_V1_FIELD_BYTES = 9      # key length, kind, value length
    MIN_V2_HEAD_BYTES = 13      # key length, kind, addr
    MIN_V2_FIELD_BYTES = 21     # head and the block's length word
    MAX_MESSAGE_KEY = 80

cdef const unsigned char *SENTINEL = b"kvrec_version"
cdef uint64_t UINT64_MAX = 0xFFFFFFFFFFFFFFFFu
cdef uint64_t UINT32_MAX = 0xFFFFFFFFu
cdef uint64_t MAX_FIELDS = 0xFFFFFFFEu      # the sentinel counts too
cdef uint64_t HASH_SEED = int.from_bytes(os.urandom(8), "little")


# ---- messages ---------------------------------------------------------------------------------------------------
def field_name(bytes key not None):
    """Return ``key`` as text for a message."""
    text = key.decode("utf-8", "backslashreplace")
    return text if len(text) <= MAX_MESSAGE_KEY else text[:MAX_MESSAGE_KEY] + "..."


cdef object raise_truncated(str what, uint64_t offset, uint64_t need, uint64_t left, object key):
    where = f"byte {offset}" if key is None else f"byte {offset}, field `{field_name(key)}`"
    raise RecordTruncatedError(f"KVRecord, {where}: expected {what} of {need} bytes, got {left} bytes of data left",
                               offset=offset, field=None if key is None else field_name(key))


cdef object raise_damaged(str message, uint64_t offset, object key):
    where = f"byte {offset}" if key is None else f"byte {offset}, field `{field_name(key)}`"
    raise RecordError(f"KVRecord, {where}: {message}", offset=offset, field=None if key is None else field_name(key))


cdef inline bint is_sentinel(const unsigned char *key, uint64_t length) noexcept nogil:
    return length == SENTINEL_KEY_BYTES and memcmp(key, SENTINEL, SENTINEL_KEY_BYTES) == 0

# ---- reader -----------------------------------------------------------------------------------------------------
cdef class RecordTable:
    """The fields of one record, as positions in the data that holds it.

    Made by :func:`parse` and :func:`parse_head`; the data must not change while the table lives. ``version`` is 1 or
    2, ``begin`` and ``end`` are the positions of the record's first byte and of the byte after its last.
    """

    def __cinit__(self):
        self.fields = NULL
        self.slots = NULL
        self.count = 0
        self.mask = 0
        self.children = {}

    def __dealloc__(self):
        PyMem_Free(self.fields)
        PyMem_Free(self.slots)

    def __len__(self):
        return self.count

    cdef bytes key_bytes(self, uint64_t number):
        cdef Field *field = &self.fields[number]
        if field.key_len == 0:
            return b""
        return PyBytes_FromStringAndSize(<const char *>&self.data[field.key_at], field.key_len)

    cdef int allocate(self, uint64_t count) except -1:
        """Reserve the fields and a hash table that stays at most half full."""
        cdef uint64_t size = 8
        while size < 2 * count:
            size *= 2
        self.fields = <Field *>PyMem_Malloc(<size_t>((count + 1) * sizeof(Field)))
        self.slots = <uint32_t *>PyMem_Calloc(<size_t>size, sizeof(uint32_t))
        if self.fields == NULL or self.slots == NULL:
            raise MemoryError
        self.mask = size - 1
        return 0

    cdef int64_t look_up(self, const unsigned char *key, uint64_t length) noexcept:
        """Return the number of the field with this key, or -1."""
        cdef uint64_t slot = nnk_hash_bytes(key, length, HASH_SEED) & self.mask
        cdef Field *field
        while self.slots[slot]:
            field = &self.fields[self.slots[slot] - 1]
            if field.key_len == length and (length == 0 or memcmp(&self.data[field.key_at], key, length) == 0):
                return <int64_t>self.slots[slot] - 1
            slot = (slot + 1) & self.mask
        return -1

    cdef int append(self, uint64_t head_at, Field *field) except -1:
        """Add a field; its key must be new."""
        cdef const unsigned char *key = &self.data[0] + field.key_at
        cdef uint64_t slot
        if is_sentinel(key, field.key_len):
            raise_damaged("the key is reserved and stands only in front", head_at, b"kvrec_version")
        if self.look_up(key, field.key_len) >= 0:
            raise_damaged("the key stands twice in one record", head_at, PyBytes_FromStringAndSize(
                <const char *>key, field.key_len))
        self.fields[self.count] = field[0]
        self.count += 1
        slot = nnk_hash_bytes(key, field.key_len, HASH_SEED) & self.mask
        while self.slots[slot]:
            slot = (slot + 1) & self.mask
        self.slots[slot] = <uint32_t>self.count
        return 0

    cdef uint64_t read_key(self, uint64_t at, uint64_t limit, Field *field) except? 0xFFFFFFFFFFFFFFFFu:
        """Read a key at ``at`` and return the position after it."""
        cdef uint64_t length
        if limit - at < 4:
            raise_truncated("a key length", at, 4, limit - at, None)
        length = nnk_load_u32(&self.data[at])
        if length > limit - at - 4:
            raise_truncated("a key", at, length, limit - at - 4, None)
        field.key_at = at + 4
        field.key_len = <uint32_t>length
        return at + 4 + length

    cdef int read(self, uint64_t limit, int depth, bint head_only, uint64_t size) except -1:
        """Read the record at ``begin``. ``limit`` ends the readable bytes, ``size`` the file that holds them."""
        cdef uint64_t at = self.begin
        cdef uint64_t count, length
        cdef Field first
        if limit - at < 4:
            raise_truncated("a field count", at, 4, limit - at, None)
        count = nnk_load_u32(&self.data[at])
        if count == 0:
            if depth or head_only:
                raise_damaged("expected a version 2 record, got an empty version 1 record", at, None)
            self.allocate(0)
            self.version = 1
            self.end = at + 4
            return 0
        at = self.read_key(at + 4, limit, &first)
        if limit - at < 5:
            raise_truncated("a type and a length", at, 5, limit - at, None)
        if not is_sentinel(&self.data[0] + first.key_at, first.key_len):
            if depth or head_only:
                raise_damaged("expected a version 2 record, got a version 1 record", self.begin, None)
            return self.read_v1(count, limit)
        length = nnk_load_u32(&self.data[at + 1])
        if self.data[at] != KIND_UINT or length != 8:
            raise_damaged(f"expected type 0 and 8 bytes, got type {self.data[at]} and {length} bytes", at,
                          b"kvrec_version")
        at += 5
        if limit - at < 8:
            raise_truncated("the version", at, 8, limit - at, b"kvrec_version")
        if nnk_load_u64(&self.data[at]) != VERSION:
            found = nnk_load_u64(&self.data[at])
            raise FormatVersionError(f"KVRecord, byte {at}: expected version 2, got version {found}; "
                                     f"a newer nnk may read it", offset=at, field="kvrec_version", found=found,
                                     supported=VERSION)
        at += 8
        if count - 1 > (size - at) / MIN_V2_FIELD_BYTES:
            raise_truncated(f"{count - 1} fields", self.begin, (count - 1) * MIN_V2_FIELD_BYTES, size - at, None)
        self.version = 2
        self.allocate(count - 1)
        at = self.read_heads(at, count - 1, limit)
        if head_only:
            return self.derive_blocks(at, size)
        return self.read_blocks(at, limit, depth)

    cdef int read_v1(self, uint64_t count, uint64_t limit) except -1:
        cdef uint64_t at = self.begin + 4
        cdef uint64_t head_at, length
        cdef Field field
        if count > (limit - at) / MIN_V1_FIELD_BYTES:
            raise_truncated(f"{count} fields", self.begin, count * MIN_V1_FIELD_BYTES, limit - at, None)
        self.version = 1
        self.allocate(count)
        for _ in range(count):
            head_at = at
            at = self.read_key(at, limit, &field)
            if limit - at < 5:
                raise_truncated("a type and a length", at, 5, limit - at, None)
            field.kind = self.data[at]
            length = nnk_load_u32(&self.data[at + 1])
            field.addr_at = at + 1
            at += 5
            if length > limit - at:
                raise_truncated("a value", field.addr_at, length, limit - at, PyBytes_FromStringAndSize(
                    <const char *>&self.data[0] + field.key_at, field.key_len))
            field.value_at = at
            field.value_len = length
            self.append(head_at, &field)
            if field.kind <= KIND_UINT_ARRAY:
                self.check_value(self.count - 1, 0)
            at += length
        self.end = at
        return 0

    cdef uint64_t read_heads(self, uint64_t at, uint64_t count, uint64_t limit) except? 0xFFFFFFFFFFFFFFFFu:
        """Read the v2 heads from ``at`` and return the position after the table. ``value_at`` keeps each addr."""
        cdef uint64_t head_at
        cdef Field field
        for _ in range(count):
            head_at = at
            at = self.read_key(at, limit, &field)
            if limit - at < 9:
                raise_truncated("a type and an address", at, 9, limit - at, None)
            field.kind = self.data[at]
            field.addr_at = at + 1
            field.value_at = nnk_load_u64(&self.data[at + 1])
            field.value_len = 0
            self.append(head_at, &field)
            at += 9
        return at

    cdef int read_blocks(self, uint64_t at, uint64_t limit, int depth) except -1:
        """Walk the blocks from ``at``: each must follow the one before."""
        cdef uint64_t number, length
        cdef Field *field
        for number in range(self.count):
            field = &self.fields[number]
            if field.value_at != self.base + at:
                raise_damaged(f"expected address {self.base + at} (blocks are contiguous), got {field.value_at}",
                              field.addr_at, self.key_bytes(number))
            if limit - at < 8:
                raise_truncated("a value length", at, 8, limit - at, self.key_bytes(number))
            length = nnk_load_u64(&self.data[at])
            if length > limit - at - 8:
                raise_truncated("a value", at, length, limit - at - 8, self.key_bytes(number))
            field.value_at = at + 8
            field.value_len = length
            self.check_value(number, depth)
            at += 8 + length
        self.end = at
        return 0

    cdef int derive_blocks(self, uint64_t at, uint64_t size) except -1:
        """Take the lengths from the addresses alone: the record is the whole file of ``size`` bytes."""
        cdef uint64_t number, following
        cdef Field *field
        if self.count == 0:
            if at != size:
                raise_damaged(f"{size - at} bytes after the record", at, None)
        elif self.fields[0].value_at != at:
            raise_damaged(f"expected address {at} (blocks are contiguous), got {self.fields[0].value_at}",
                          self.fields[0].addr_at, self.key_bytes(0))
        for number in range(self.count):
            field = &self.fields[number]
            following = size if number + 1 == self.count else self.fields[number + 1].value_at
            # The addresses before this one are checked, so value_at is at most size - 8 here but for the last step.
            if field.value_at > size or size - field.value_at < 8 or following > size \
                    or following < field.value_at or following - field.value_at < 8:
                raise_damaged(f"expected an address from {field.value_at + 8} to {size}, got {following}",
                              field.addr_at, self.key_bytes(number))
            field.value_len = following - field.value_at - 8
            field.value_at += 8
            if field.kind == KIND_UINT and field.value_len != 8:
                raise_damaged(f"expected 8 bytes for an unsigned integer, got {field.value_len}", field.addr_at,
                              self.key_bytes(number))
        self.end = size
        return 0

    cdef int check_value(self, uint64_t number, int depth) except -1:
        """Check the length of a value by its type; read a nested record."""
        cdef Field *field = &self.fields[number]
        cdef RecordTable child
        if field.kind == KIND_UINT and field.value_len != 8:
            raise_damaged(f"expected 8 bytes for an unsigned integer, got {field.value_len}", field.value_at,
                          self.key_bytes(number))
        if field.kind == KIND_UINT_ARRAY and field.value_len % 8:
            raise_damaged(f"expected a multiple of 8 bytes for an integer array, got {field.value_len}",
                          field.value_at, self.key_bytes(number))
        if field.kind == KIND_RECORD:
            if depth == MAX_NESTING:
                raise_damaged(f"records nest deeper than {MAX_NESTING}", field.value_at, self.key_bytes(number))
            child = make_table(self.data, self.source, self.base, field.value_at)
            child.read(field.value_at + field.value_len, depth + 1, False, field.value_at + field.value_len)
            if child.end != field.value_at + field.value_len:
                raise_damaged(f"{field.value_at + field.value_len - child.end} bytes after the nested record",
                              child.end, self.key_bytes(number))
            self.children[number] = child
        return 0

    cdef Field *checked(self, uint64_t number) except NULL:
        if number >= self.count:
            raise IndexError(f"Expected a field number below {self.count}, got {number}")
        return &self.fields[number]

    def key(self, uint64_t number):
        """Return the key of field ``number``, as bytes."""
        self.checked(number)
        return self.key_bytes(number)

    def kind(self, uint64_t number):
        """Return the type code of field ``number``; codes that the format does not name are kept too."""
        return self.checked(number).kind

    def span(self, uint64_t number):
        """Return (position of the first value byte, length in bytes) of field ``number``."""
        cdef Field *field = self.checked(number)
        return field.value_at, field.value_len

    def child(self, uint64_t number):
        """Return the table of the nested record in field ``number``."""
        self.checked(number)
        return self.children[number]

    def find(self, bytes key not None):
        """Return the number of the field named ``key``, or -1; O(1)."""
        return self.look_up(<const unsigned char *>PyBytes_AS_STRING(key), <uint64_t>PyBytes_GET_SIZE(key))

    def raw(self, uint64_t number):
        """Return the value bytes of field ``number`` as a memoryview; nothing is copied."""
        cdef Field *field = self.checked(number)
        if field.value_len > <uint64_t>self.data.shape[0] or \
                field.value_at > <uint64_t>self.data.shape[0] - field.value_len:
            raise IndexError(f"The value of field {number} is outside of the bytes that were read")
        return self.source[field.value_at:field.value_at + field.value_len]

    def uint(self, uint64_t number):
        """Return the value of the unsigned integer in field ``number``."""
        cdef Field *field = self.checked(number)
        self.raw(number)
        if field.kind != KIND_UINT:
            raise IndexError(f"Field {number} is no unsigned integer")
        return nnk_load_u64(&self.data[field.value_at])

    def uints(self, uint64_t number):
        """Return the integer array in field ``number`` as a tuple; O(n)."""
        cdef Field *field = self.checked(number)
        cdef uint64_t index
        self.raw(number)
        if field.kind != KIND_UINT_ARRAY:
            raise IndexError(f"Field {number} is no integer array")
        return tuple([nnk_load_u64(&self.data[field.value_at + 8 * index]) for index in range(field.value_len / 8)])


cdef RecordTable make_table(const unsigned char[::1] data, object source, uint64_t base, uint64_t begin):
    cdef RecordTable table = RecordTable.__new__(RecordTable)
    table.data = data
    table.source = source
    table.base = base
    table.begin = begin
    return table


def parse(const unsigned char[::1] data not None, uint64_t base=0, uint64_t offset=0):
    """Parse the record at ``data[offset]``; O(n) in the number of fields.

    Parameters
    ----------
    data : bytes-like
        The bytes. ``data[0]`` is byte ``base`` of its file, since addresses in a record count from the file's start.
    base, offset : int
        Bytes.

    Raises
    ------
    RecordError, RecordTruncatedError, FormatVersionError
        If the bytes are no valid record; ``offset`` counts from ``data[0]``.
    """
    cdef uint64_t size = <uint64_t>data.shape[0]
    cdef RecordTable table
    if offset > size:
        raise_truncated("a field count", offset, 4, 0, None)
    if base > UINT64_MAX - size:
        raise_damaged(f"base {base} puts the end of the data above 2**64", 0, None)
    if size == offset:
        raise_truncated("a field count", offset, 4, 0, None)
    table = make_table(data, memoryview(data.base if data.base is not None else data), base, offset)
    table.read(size, 0, False, size)
    return table


def parse_head(const unsigned char[::1] head not None, uint64_t size):
    """Parse only the table of a file that is one version 2 record, from its first bytes.

    Lengths come from the addresses alone, so no block is touched: whoever reads a value compares the block's length
    word with :meth:`RecordTable.span`. Nested records are not opened.

    Parameters
    ----------
    head : bytes-like
        At least the whole table.
    size : int
        Size of the file in bytes.
    """
    cdef uint64_t limit = <uint64_t>head.shape[0]
    cdef RecordTable table
    if limit > size:
        raise_damaged(f"got {limit} bytes of a file of {size} bytes", 0, None)
    if limit == 0:
        raise_truncated("a field count", 0, 4, 0, None)
    table = make_table(head, memoryview(head.base if head.base is not None else head), 0, 0)
    table.read(limit, 0, True, size)
    return table


# ---- writer -----------------------------------------------------------------------------------------------------
#
# The writer takes tuples (key, type, value) and nothing else, so that no Python code runs between measuring and
# writing. Value: int, bytes, tuple of int, or a tuple of such tuples for a nested record.

cdef int check_field(tuple field, set seen) except -1:
    if len(field) != 3 or type(field[0]) is not bytes or type(field[1]) is not int:
        raise TypeError("Expected (bytes key, int type, value) for a field")
    if field[0] == b"kvrec_version":
        raise RecordError("KVRecord: the key `kvrec_version` is reserved", field="kvrec_version")
    if field[0] in seen:
        raise RecordError(f"KVRecord: the key `{field_name(field[0])}` is given twice", field=field_name(field[0]))
    if <uint64_t>PyBytes_GET_SIZE(field[0]) > UINT32_MAX:
        raise RecordError("KVRecord: a key is longer than 2**32 - 1 bytes", field=field_name(field[0]))
    seen.add(field[0])
    return 0


cdef uint64_t value_size(tuple field, int depth) except? 0xFFFFFFFFFFFFFFFFu:
    cdef object value = field[2]
    cdef int kind = field[1]
    if kind == KIND_UINT and type(value) is int:
        return 8
    if kind == KIND_STR and type(value) is bytes:
        return <uint64_t>PyBytes_GET_SIZE(value)
    if kind == KIND_UINT_ARRAY and type(value) is tuple:
        return 8 * <uint64_t>len(value)
    if kind == KIND_RECORD and type(value) is tuple:
        if depth == MAX_NESTING:
            raise RecordError(f"KVRecord: records nest deeper than {MAX_NESTING}", field=field_name(field[0]))
        return record_size(value, depth + 1)
    raise TypeError(f"Expected a value of type {kind} for field `{field_name(field[0])}`, "
                    f"got {type(value).__name__}")


cdef uint64_t record_size(tuple fields, int depth) except? 0xFFFFFFFFFFFFFFFFu:
    cdef uint64_t total = 4 + SENTINEL_BYTES
    cdef set seen = set()
    if <uint64_t>len(fields) > MAX_FIELDS:
        raise RecordError("KVRecord: more than 2**32 - 2 fields")
    for field in fields:
        check_field(field, seen)
        total += MIN_V2_FIELD_BYTES + <uint64_t>PyBytes_GET_SIZE(field[0]) + value_size(field, depth)
    return total


cdef uint64_t table_size(tuple fields) noexcept:
    cdef uint64_t total = 4 + SENTINEL_BYTES
    for field in fields:
        total += MIN_V2_HEAD_BYTES + <uint64_t>PyBytes_GET_SIZE((<tuple>field)[0])
    return total


cdef unsigned char *put_key(unsigned char *at, bytes key) noexcept:
    cdef uint64_t length = <uint64_t>PyBytes_GET_SIZE(key)
    nnk_store_u32(at, <uint32_t>length)
    memcpy(at + 4, PyBytes_AS_STRING(key), length)
    return at + 4 + length


cdef unsigned char *put_sentinel(unsigned char *at, uint64_t count) noexcept:
    nnk_store_u32(at, <uint32_t>count)
    at = put_key(at + 4, b"kvrec_version")
    at[0] = KIND_UINT
    nnk_store_u32(at + 1, 8)
    nnk_store_u64(at + 5, VERSION)
    return at + 13


cdef uint64_t checked_uint(object value, bytes key) except? 0xFFFFFFFFFFFFFFFFu:
    if type(value) is not int:
        raise TypeError(f"Expected int in field `{field_name(key)}`, got {type(value).__name__}")
    if value < 0 or value > UINT64_MAX:
        raise RecordError(f"KVRecord, field `{field_name(key)}`: expected 0 <= value < 2**64, got {value}",
                          field=field_name(key))
    return value


cdef unsigned char *put_value(unsigned char *at, tuple field, uint64_t position) except NULL:
    """Write the value bytes; ``position`` is their place in the file."""
    cdef object value = field[2]
    cdef int kind = field[1]
    if kind == KIND_UINT:
        nnk_store_u64(at, checked_uint(value, field[0]))
        return at + 8
    if kind == KIND_STR:
        memcpy(at, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))
        return at + PyBytes_GET_SIZE(value)
    if kind == KIND_UINT_ARRAY:
        for item in <tuple>value:
            nnk_store_u64(at, checked_uint(item, field[0]))
            at += 8
        return at
    return put_record(at, value, position)


cdef unsigned char *put_record(unsigned char *at, tuple fields, uint64_t base) except NULL:
    cdef unsigned char *head = put_sentinel(at, <uint64_t>len(fields) + 1)
    cdef unsigned char *begin = at
    cdef unsigned char *block = at + table_size(fields)
    cdef unsigned char *following
    for field in fields:
        head = put_key(head, field[0])
        head[0] = <unsigned char><int>field[1]
        nnk_store_u64(head + 1, base + <uint64_t>(block - begin))
        head += 9
        following = put_value(block + 8, field, base + <uint64_t>(block - begin) + 8)
        nnk_store_u64(block, <uint64_t>(following - block - 8))
        block = following
    return block


def encode(tuple fields not None, uint64_t base=0):
    """Return the version 2 record of ``fields``, written for byte ``base`` of a file.

    Parameters
    ----------
    fields : tuple of (bytes, int, value)
        Key, type code (0 int, 1 bytes, 2 tuple of int, 3 tuple of fields) and value, in order.
    base : int
        Bytes before the record in its file.

    Raises
    ------
    RecordError
        If a key is reserved or given twice, an integer is not in [0, 2**64), or records nest deeper than 32.
    """
    cdef uint64_t size = record_size(fields, 0)
    if size > UINT64_MAX - base or size > <uint64_t>0x7FFFFFFFFFFFFFFF:
        raise RecordError(f"KVRecord: base {base} puts the end of the record above 2**64")
    cdef bytes out = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>size)
    put_record(<unsigned char *>PyBytes_AS_STRING(out), fields, base)
    return out


def encode_v1(tuple fields not None):
    """Return the version 1 record of ``fields``; nested records are left out, as the format says."""
    cdef uint64_t size = 4
    cdef uint64_t length
    cdef set seen = set()
    cdef list kept = []
    for field in fields:
        check_field(field, seen)
        length = value_size(field, 0)
        if field[1] == KIND_RECORD:
            continue
        if length > UINT32_MAX:
            raise RecordError(f"KVRecord, field `{field_name(field[0])}`: version 1 holds at most 2**32 - 1 bytes, "
                              f"got {length}", field=field_name(field[0]))
        size += MIN_V1_FIELD_BYTES + <uint64_t>PyBytes_GET_SIZE(field[0]) + length
        kept.append(field)
    cdef bytes out = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>size)
    cdef unsigned char *at = <unsigned char *>PyBytes_AS_STRING(out)
    cdef unsigned char *following
    nnk_store_u32(at, <uint32_t>len(kept))
    at += 4
    for field in kept:
        at = put_key(at, field[0])
        at[0] = <unsigned char><int>field[1]
        following = put_value(at + 5, field, 0)
        nnk_store_u32(at + 1, <uint32_t>(following - at - 5))
        at = following
    return out


def encode_head(tuple entries not None):
    """Return the table of a version 2 record at base 0 whose blocks the caller writes itself.

    Parameters
    ----------
    entries : tuple of (bytes, int, int)
        Key, type code and value length in bytes, in the order of the blocks.
    """
    cdef set seen = set()
    for entry in entries:
        check_field(entry, seen)
    cdef uint64_t position = table_size(entries)
    cdef bytes out = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>position)
    cdef unsigned char *at = put_sentinel(<unsigned char *>PyBytes_AS_STRING(out), <uint64_t>len(entries) + 1)
    for entry in entries:
        at = put_key(at, entry[0])
        at[0] = <unsigned char><int>entry[1]
        nnk_store_u64(at + 1, position)
        at += 9
        position += 8 + checked_uint(entry[2], entry[0])
    return out
