# cython: language_level=3
"""Cut a SPIR-V module into instructions and check its structure: what a cached kernel pays for at every start.

:mod:`nnk.spirv` owns the numbers of the specification and the errors. A problem is returned as (text, word).
"""

from libc.stdint cimport uint32_t

cdef enum:
    _HEADER_WORDS = 5
    _OP_FUNCTION = 54
    _OP_FUNCTION_END = 56
    _OP_EXT_INST = 12


def cut(const uint32_t[::1] words not None):
    """Return (opcodes, first words, where the last instruction ends); an instruction without a length ends the cut."""
    cdef Py_ssize_t at = _HEADER_WORDS
    cdef Py_ssize_t end = words.shape[0]
    cdef list ops = []
    cdef list starts = []
    while at < end and words[at] >= 0x10000:
        ops.append(words[at] & 0xFFFF)
        starts.append(at)
        at += words[at] >> 16
    return ops, starts, at


def find_problem(const uint32_t[::1] words not None, const unsigned char[::1] sections not None,
                 const unsigned char[::1] results not None, bytearray defined not None):
    """Return what is wrong with a module that :func:`cut` has cut to its end, or None.

    Parameters
    ----------
    words : array of uint32
        The module.
    sections : bytes
        For an opcode 1 more than its section before the functions, 0 for one that may not stand there, 255 for one that
        may stand anywhere in the module.
    results : bytes
        For an opcode the number of its operand that is a result id, 0 for none. Before operand 2 stands its type.
    defined : bytearray
        Zeros, as many as the id bound.
    """
    cdef Py_ssize_t at = _HEADER_WORDS
    cdef Py_ssize_t end = words.shape[0]
    cdef Py_ssize_t known = min(sections.shape[0], results.shape[0])
    cdef uint32_t bound = <uint32_t>len(defined)
    cdef unsigned char[::1] ids = defined
    cdef uint32_t head, op, place, kind, result
    cdef uint32_t section = 0
    cdef bint in_functions = False
    cdef bint is_open = False
    while at < end:
        head = words[at]
        op = head & 0xFFFF
        if op == _OP_FUNCTION:
            if is_open:
                return "a function begins inside of another", at
            in_functions = is_open = True
        elif op == _OP_FUNCTION_END:
            if not is_open:
                return "a function ends that has not begun", at
            is_open = False
        elif not is_open:
            place = sections[op] if op < known else 0
            if place == 255:
                pass
            elif in_functions:
                return f"instruction {op} stands between functions", at
            elif place == 0:
                if op != _OP_EXT_INST:
                    return f"instruction {op} stands outside of a function", at
            elif place < section:
                return f"instruction {op} comes after those of a later section", at
            else:
                section = place
        place = results[op] if op < known else 0
        if place:
            if head >> 16 <= place:
                return f"instruction {op} is too short for a result", at
            result = words[at + place]
            if place == 2:
                kind = words[at + 1]
                if kind >= bound or not ids[kind]:
                    return f"the type %{kind} is not defined", at
            if not 0 < result < bound:
                return f"the id %{result} is not within the bound {bound}", at
            if ids[result]:
                return f"the id %{result} is defined twice", at
            ids[result] = 1
        at += head >> 16
    if is_open or not in_functions:
        return "expected whole functions", end
    return None
