# cython: language_level=3
"""ExprSpec <-> bytes, and the 64-bit structure key.

Specs are the tuples of :mod:`nnk.expr.spec`; this module reads them by position and never imports that module.
``decode`` returns plain nested tuples of the same shape. Errors of ``decode`` carry the offset of the first byte of
the field that is wrong or cannot be read in full.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.number cimport PyNumber_Index
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from nnk._fast.common cimport nnk_load_u32, nnk_store_u32

from nnk import ops as _ops
from nnk.errors import ExprError, SpecDecodeError

VERSION = 10

cdef enum:
    _VERSION = 10
    _INSTR_BYTES = 8
    _VIEW_BYTES = 10
    _MATMUL_BYTES = 12
    _VECACC_BYTES = 5

cdef bytes _MAGIC = b"NNEXP"

cdef uint32_t MAX_REGS = _ops.LIMITS["regs"]
cdef uint32_t MAX_INSTRS = _ops.LIMITS["instrs"]
cdef uint32_t MAX_INPUTS = _ops.LIMITS["inputs"]
cdef uint32_t MAX_CONSTS = _ops.LIMITS["consts"]
cdef uint32_t MAX_RPARAMS = _ops.LIMITS["rparams"]
cdef uint32_t MAX_FOLD_BODY = _ops.LIMITS["fold_body"]
cdef uint32_t MAX_FOLD_FINALIZE = _ops.LIMITS["fold_finalize"]
cdef uint32_t MAX_FOLD_STATES = _ops.LIMITS["fold_states"]
cdef uint32_t MAX_VEC_STATE = _ops.LIMITS["vec_state_len"]
cdef uint32_t MAX_EXTRAS = _ops.LIMITS["extras"]

# Tables by code, filled once from the op table: is the number known, how many operands does the op use, is the view's
# param part of the key.
cdef uint8_t[256] _known_op
cdef uint8_t[256] _arity
cdef uint8_t[256] _known_view
cdef uint8_t[256] _keyed_view
cdef uint8_t _operand_count = len(_ops.OPERANDS)

cdef int _fill_tables() except -1:
    cdef int code
    for code in range(256):
        _known_op[code] = code in _ops.OP_BY_CODE
        _arity[code] = _ops.OP_BY_CODE[code].arity if code in _ops.OP_BY_CODE else 3
        _known_view[code] = code in _ops.VIEW_BY_CODE
        _keyed_view[code] = code in _ops.VIEW_BY_CODE and _ops.VIEW_BY_CODE[code].keyed
    return 0

_fill_tables()


cdef tuple _tuple(object part):
    """Return ``part`` typed as a tuple; unlike a typed assignment this accepts named tuples."""
    if not isinstance(part, tuple):
        raise ExprError(f"Expected a tuple as part of an ExprSpec, got {type(part).__name__}", op="encode")
    return <tuple>part


cdef tuple _fields(object part, Py_ssize_t count):
    """Return ``part`` as a tuple of exactly ``count`` fields: items are read by position, unchecked."""
    cdef tuple fields = _tuple(part)
    if len(fields) != count:
        raise ExprError(f"Expected {count} fields in a part of an ExprSpec, got {len(fields)}", op="encode")
    return fields


# ---------------------------------------------------------------------------------------------- writing

cdef struct Writer:
    uint8_t* at
    uint8_t* end


cdef long long _number(object value, long long limit, str what) except -1:
    """Return an integer (numpy's too) from 0 to ``limit``; a float is no integer, even a whole one."""
    cdef long long number = -1
    try:
        number = PyNumber_Index(value)
    except (TypeError, OverflowError):
        pass
    if not 0 <= number <= limit:
        raise ExprError(f"Expected an integer from 0 to {limit} for {what} of an ExprSpec, got {value!r}", op="encode")
    return number


cdef int _put_u8(Writer* w, object value, str what) except -1:
    w.at[0] = <uint8_t>_number(value, 255, what)
    w.at += 1
    return 0


cdef int _put_u32(Writer* w, object value, str what) except -1:
    cdef uint32_t word = <uint32_t>_number(value, 0xFFFFFFFF, what)
    nnk_store_u32(w.at, word)
    w.at += 4
    return 0


cdef int _put_instr(Writer* w, tuple instr) except -1:
    cdef int slot
    cdef tuple operand
    _put_u8(w, instr[0], "op")
    _put_u8(w, instr[1], "dst")
    for slot in range(2, 5):
        operand = _fields(instr[slot], 2)
        _put_u8(w, operand[0], "operand kind")
        _put_u8(w, operand[1], "operand idx")
    return 0


cdef int _put_instrs(Writer* w, tuple instrs) except -1:
    _put_u32(w, len(instrs), "instruction count")
    for instr in instrs:
        _put_instr(w, _fields(instr, 5))
    return 0


cdef int _put_words(Writer* w, tuple words, str what) except -1:
    _put_u32(w, len(words), what)
    for word in words:
        _put_u32(w, word, what)
    return 0


cdef int _put_matmul(Writer* w, object matmul) except -1:
    cdef tuple fields
    _put_u8(w, 0 if matmul is None else 1, "matmul presence")
    if matmul is None:
        return 0
    fields = _fields(matmul, 6)
    _put_u8(w, fields[0], "matmul a_input")
    _put_u8(w, fields[1], "matmul b_input")
    _put_u8(w, fields[2], "matmul trans_a")
    _put_u8(w, fields[3], "matmul trans_b")
    _put_u32(w, fields[4], "matmul k")
    _put_u32(w, fields[5], "matmul batch")
    return 0


cdef int _put_fold(Writer* w, object fold) except -1:
    cdef tuple fields, vecacc
    cdef int i
    _put_u8(w, 0 if fold is None else 1, "fold presence")
    if fold is None:
        return 0
    fields = _fields(fold, 9)
    _put_u8(w, fields[0], "fold num_state")
    _put_u32(w, fields[1], "fold k")
    _put_words(w, _tuple(fields[2]), "fold init")
    _put_instrs(w, _tuple(fields[3]))
    _put_instrs(w, _tuple(fields[4]))
    _put_u32(w, fields[5], "fold vec_state_len")
    _put_matmul(w, fields[6])
    _put_u8(w, 0 if fields[7] is None else 1, "vecacc presence")
    if fields[7] is not None:
        vecacc = _fields(fields[7], 5)
        for i in range(_VECACC_BYTES):
            _put_u8(w, vecacc[i], "vecacc")
    _put_u8(w, fields[8], "fold tri_skip")
    return 0


cdef Py_ssize_t _fold_size(object fold) except -1:
    cdef tuple fields
    if fold is None:
        return 1
    fields = _fields(fold, 9)
    return (1 + 1 + 4 + 4 + 4 * len(_tuple(fields[2])) + 4 + _INSTR_BYTES * len(_tuple(fields[3]))
            + 4 + _INSTR_BYTES * len(_tuple(fields[4]))
            + 4 + 1 + (0 if fields[6] is None else _MATMUL_BYTES) + 1
            + (0 if fields[7] is None else _VECACC_BYTES) + 1)


def encode(object spec not None):
    """Return the payload bytes of ``spec``; see docs/formats/exprspec.md for the layout.

    Raises
    ------
    ExprError
        If a value does not fit its field.
    """
    cdef tuple fields = _fields(spec, 8)
    cdef tuple instrs = _tuple(fields[1]), views = _tuple(fields[2]), consts = _tuple(fields[3])
    cdef tuple rparams = _tuple(fields[4]), extras = _tuple(fields[7]), view
    cdef Py_ssize_t size = (
        5 + 1 + 4 + 4 + 4 + _INSTR_BYTES * len(instrs) + 4 + _VIEW_BYTES * len(views) + 4 + 4 * len(consts)
        + 4 + 4 * len(rparams) + 1 + (0 if fields[5] is None else _MATMUL_BYTES) + _fold_size(fields[6])
        + 4 + len(extras))
    cdef bytes out = PyBytes_FromStringAndSize(NULL, size)
    cdef Writer w
    w.at = <uint8_t*>PyBytes_AS_STRING(out)
    w.end = w.at + size
    memcpy(w.at, PyBytes_AS_STRING(_MAGIC), 5)
    w.at += 5
    _put_u8(&w, _VERSION, "version")
    _put_u32(&w, 1, "count")
    _put_u32(&w, fields[0], "num_regs")
    _put_instrs(&w, instrs)
    _put_u32(&w, len(views), "view count")
    for part in views:
        view = _fields(part, 4)
        _put_u8(&w, view[0], "view kind")
        _put_u8(&w, view[1], "view negate")
        _put_u32(&w, view[2], "view param")
        _put_u32(&w, view[3], "view param2")
    _put_words(&w, consts, "constant")
    _put_words(&w, rparams, "run-time parameter")
    _put_matmul(&w, fields[5])
    _put_fold(&w, fields[6])
    _put_u32(&w, len(extras), "extras count")
    for extra in extras:
        _put_u8(&w, extra, "extra register")
    assert w.at == w.end
    return out


# ---------------------------------------------------------------------------------------------- reading

@cython.final
cdef class _Reader:
    """A cursor over borrowed bytes; every read is checked against what is left."""

    cdef const uint8_t* data
    cdef uint64_t size
    cdef uint64_t at

    cdef int need(self, uint64_t count, str field) except -1:
        if count > self.size - self.at:
            raise SpecDecodeError(
                f"Expected {count} bytes for {field} at byte {self.at} of an ExprSpec payload, "
                f"got {self.size - self.at}", offset=self.at, field=field)
        return 0

    cdef int refuse(self, uint64_t offset, str field, str expected, object found) except -1:
        raise SpecDecodeError(f"Expected {expected} for {field} at byte {offset} of an ExprSpec payload, "
                              f"got {found}", offset=offset, field=field)

    cdef int u8(self, str field) except -1:
        cdef int value
        self.need(1, field)
        value = self.data[self.at]
        self.at += 1
        return value

    cdef int flag(self, str field) except -1:
        cdef int value = self.u8(field)
        if value > 1:
            self.refuse(self.at - 1, field, "0 or 1", value)
        return value

    cdef long long u32(self, str field) except -1:
        self.need(4, field)
        self.at += 4
        return nnk_load_u32(self.data + self.at - 4)

    cdef long long count(self, uint32_t limit, str field) except -1:
        cdef long long value = self.u32(field)
        if value > limit:
            self.refuse(self.at - 4, field, f"at most {limit}", value)
        return value

    cdef tuple operand(self):
        cdef int kind = self.u8("operand kind")
        if kind >= _operand_count:
            self.refuse(self.at - 1, "operand kind", "a known operand kind", kind)
        return (kind, self.u8("operand idx"))

    cdef tuple instrs(self, uint32_t limit, str field):
        cdef long long n = self.count(limit, field)
        cdef long long _i
        cdef int op, dst
        cdef list out = []
        for _i in range(n):
            op = self.u8("op")
            if not _known_op[op]:
                self.refuse(self.at - 1, "op", "a known op", op)
            dst = self.u8("dst")
            out.append((op, dst, self.operand(), self.operand(), self.operand()))
        return tuple(out)

    cdef tuple words(self, uint32_t limit, str field):
        cdef long long n = self.count(limit, field)
        cdef long long _i
        cdef list out = []
        for _i in range(n):
            out.append(self.u32(field))
        return tuple(out)

    cdef tuple views(self):
        cdef long long n = self.count(MAX_INPUTS, "view count")
        cdef long long _i
        cdef int kind
        cdef list out = []
        for _i in range(n):
            kind = self.u8("view kind")
            if not _known_view[kind]:
                self.refuse(self.at - 1, "view kind", "a known view kind", kind)
            out.append((kind, self.flag("view negate"), self.u32("view param"), self.u32("view param2")))
        return tuple(out)

    cdef object matmul(self):
        if not self.flag("matmul presence"):
            return None
        return (self.u8("matmul a_input"), self.u8("matmul b_input"), self.flag("matmul trans_a"),
                self.flag("matmul trans_b"), self.u32("matmul k"), self.u32("matmul batch"))

    cdef object vecacc(self):
        if not self.flag("vecacc presence"):
            return None
        return (self.u8("vec_state"), self.u8("weight_reg"), self.u8("b_input"), self.u8("scale_reg"),
                self.flag("has_scale"))

    cdef object fold(self):
        cdef uint32_t num_state
        if not self.flag("fold presence"):
            return None
        num_state = self.u8("fold num_state")
        if num_state > MAX_FOLD_STATES:
            self.refuse(self.at - 1, "fold num_state", f"at most {MAX_FOLD_STATES}", num_state)
        return (num_state, self.u32("fold k"), self.words(MAX_FOLD_STATES, "fold inits"),
                self.instrs(MAX_FOLD_BODY, "fold body"), self.instrs(MAX_FOLD_FINALIZE, "fold finalize"),
                self.count(MAX_VEC_STATE, "fold vec_state_len"), self.matmul(), self.vecacc(),
                self.flag("fold tri_skip"))

    cdef tuple extras(self):
        cdef long long n = self.count(MAX_EXTRAS, "extras count")
        cdef long long _i
        cdef list out = []
        for _i in range(n):
            out.append(self.u8("extra register"))
        return tuple(out)

    cdef int magic(self) except -1:
        cdef int i
        cdef const uint8_t* expected = <const uint8_t*>PyBytes_AS_STRING(_MAGIC)
        self.need(5, "magic")
        for i in range(5):
            if self.data[i] != expected[i]:
                self.refuse(0, "magic", "NNEXP", repr(self.data[:5]))
        self.at = 5
        return 0

    cdef tuple spec(self):
        cdef long long value
        cdef tuple out
        self.magic()
        value = self.u8("version")
        if value != _VERSION:
            self.refuse(self.at - 1, "version", str(_VERSION), value)
        value = self.u32("count")
        if value != 1:
            self.refuse(self.at - 4, "count", "1", value)
        # A tuple display evaluates left to right, which is the order of the fields.
        out = (self.count(MAX_REGS, "num_regs"), self.instrs(MAX_INSTRS, "instruction count"), self.views(),
               self.words(MAX_CONSTS, "constants"), self.words(MAX_RPARAMS, "run-time parameters"), self.matmul(),
               self.fold(), self.extras())
        if self.at != self.size:
            self.refuse(self.at, "end", "no more bytes", f"{self.size - self.at} more")
        return out


def decode(const uint8_t[::1] data not None):
    """Return the spec in ``data`` as nested tuples, bit exact.

    Raises
    ------
    SpecDecodeError
        If the bytes are not exactly one ExprSpec payload of version 10.
    """
    cdef _Reader reader = _Reader()
    reader.data = &data[0] if data.shape[0] else NULL
    reader.size = <uint64_t>data.shape[0]
    reader.at = 0
    return reader.spec()


# ---------------------------------------------------------------------------------------------- key

cdef struct Hash:
    uint64_t value


cdef inline void _feed_u8(Hash* h, uint8_t byte) noexcept nogil:
    h.value = (h.value ^ byte) * <uint64_t>0x100000001B3


cdef inline void _feed_u32(Hash* h, uint32_t word) noexcept nogil:
    _feed_u8(h, word & 0xFF)
    _feed_u8(h, (word >> 8) & 0xFF)
    _feed_u8(h, (word >> 16) & 0xFF)
    _feed_u8(h, word >> 24)


cdef int _feed_byte(Hash* h, object value) except -1:
    _feed_u8(h, <uint8_t>_number(value, 255, "a byte"))
    return 0


cdef int _feed_word(Hash* h, object value) except -1:
    _feed_u32(h, <uint32_t>_number(value, 0xFFFFFFFF, "a word"))
    return 0


cdef int _feed_instrs(Hash* h, tuple instrs) except -1:
    cdef tuple instr, operand
    cdef int slot
    cdef uint8_t op
    _feed_u32(h, len(instrs))
    for part in instrs:
        instr = _fields(part, 5)
        op = <uint8_t>_number(instr[0], 255, "op")
        _feed_u8(h, op)
        _feed_byte(h, instr[1])
        for slot in range(3):
            # Unused operands are hashed as (0, 0), whatever they hold.
            operand = _fields(instr[2 + slot], 2) if slot < _arity[op] else (0, 0)
            _feed_byte(h, operand[0])
            _feed_byte(h, operand[1])
    return 0


cdef int _feed_views(Hash* h, tuple views) except -1:
    cdef tuple view
    cdef uint8_t kind
    _feed_u32(h, len(views))
    for part in views:
        view = _fields(part, 4)
        kind = <uint8_t>_number(view[0], 255, "view kind")
        _feed_u8(h, kind)
        _feed_byte(h, view[1])
        if _keyed_view[kind]:
            _feed_word(h, view[2])
            _feed_word(h, view[3])
    return 0


cdef int _feed_fold(Hash* h, tuple fold) except -1:
    cdef tuple part
    cdef int i
    _feed_byte(h, fold[0])
    _feed_u32(h, len(_tuple(fold[2])))
    for word in _tuple(fold[2]):
        _feed_word(h, word)
    _feed_instrs(h, _tuple(fold[3]))
    _feed_instrs(h, _tuple(fold[4]))
    if fold[6] is not None:
        part = _fields(fold[6], 6)
        for i in range(4):
            _feed_byte(h, part[i])
    if fold[7] is not None:
        part = _fields(fold[7], 5)
        for i in range(_VECACC_BYTES):
            _feed_byte(h, part[i])
    _feed_byte(h, fold[8])
    return 0


def spec_key(object spec not None):
    """Return the 64-bit structure key (FNV-1a) of a canonical ``spec``: run-time values and shapes left out."""
    cdef Hash h
    cdef tuple fields = _fields(spec, 8), matmul
    h.value = <uint64_t>0xCBF29CE484222325
    _feed_word(&h, fields[0])
    _feed_instrs(&h, _tuple(fields[1]))
    _feed_views(&h, _tuple(fields[2]))
    _feed_u32(&h, len(_tuple(fields[3])))
    _feed_u32(&h, len(_tuple(fields[4])))
    if fields[5] is not None:
        matmul = _fields(fields[5], 6)
        _feed_byte(&h, matmul[0])
        _feed_byte(&h, matmul[1])
    if fields[6] is not None:
        _feed_fold(&h, _fields(fields[6], 9))
    if _tuple(fields[7]):
        _feed_u32(&h, len(fields[7]))
        for extra in fields[7]:
            _feed_byte(&h, extra)
    return h.value
