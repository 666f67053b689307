"""SPIR-V words: read a module, make and check its float arithmetic exact, add execution modes, read its interface.

Every function takes and returns modules as little-endian bytes and raises :class:`~nnk.errors.FormatError`, and nothing
else, for bytes that are not a module. Numbers are those of the SPIR-V specification; rules R3, R10 and R11 are those of
docs/numerics.md.
"""

from __future__ import annotations

import functools
import struct
import sys
from array import array
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Protocol

from nnk._fast import spirvcut
from nnk.errors import CompileError, FormatError

__all__ = ["FLOAT_MODES", "GROUP_CAPABILITIES", "KERNEL_CAPABILITIES", "Binding", "Interface", "KernelShape",
           "add_execution_modes", "check_exact", "check_interface", "check_kernel", "check_structure",
           "decorate_no_contraction", "interface_of"]

MAGIC = 0x07230203
HEADER_WORDS = 5
MIN_VERSION, MAX_VERSION = 0x00010000, 0x00010600

#: The newest version that Vulkan 1.2 takes; kernels are compiled to it.
KERNEL_VERSION = 0x00010500

#: A kernel of nnk has some thousand words; limits keep damaged data from costing time or memory.
MAX_BYTES = 16 * 1024 * 1024
MAX_ID_BOUND = 0x3FFFFF

#: Mode name -> (capability, execution mode) for 32-bit floats (R10).
FLOAT_MODES: dict[str, tuple[int, int]] = {
    "denorm_preserve": (4464, 4459),
    "signed_zero_inf_nan_preserve": (4466, 4461),
    "rounding_rte": (4467, 4462),
}

#: Modes that would change results: flushed denormals, rounding toward zero, fast-math defaults.
_FORBIDDEN_MODES = frozenset({4460, 4463, 6028})

#: Capabilities for data movement between invocations, each with the bit of VkSubgroupFeatureFlags that a device needs:
#: GroupNonUniform, and its votes, ballots and shuffles.
GROUP_CAPABILITIES = {61: 1, 62: 2, 64: 8, 65: 16}

#: Capabilities that a kernel of the default numerics may declare: Shader and the above.
KERNEL_CAPABILITIES = frozenset({1, *GROUP_CAPABILITIES})

_OP_NAME, _OP_EXTENSION, _OP_EXT_INST_IMPORT, _OP_EXT_INST, _OP_MEMORY_MODEL = 5, 10, 11, 12, 14
_OP_ENTRY_POINT, _OP_EXECUTION_MODE, _OP_CAPABILITY, _OP_EXECUTION_MODE_ID = 15, 16, 17, 331
_OP_TYPE_INT, _OP_TYPE_FLOAT, _OP_TYPE_VECTOR, _OP_TYPE_MATRIX = 21, 22, 23, 24
_OP_TYPE_ARRAY, _OP_TYPE_RUNTIME_ARRAY, _OP_TYPE_STRUCT, _OP_TYPE_POINTER = 28, 29, 30, 32
_OP_CONSTANT, _OP_SPEC_CONSTANT_OP, _OP_FUNCTION, _OP_FUNCTION_END, _OP_VARIABLE = 43, 52, 54, 56, 59
_OP_DECORATE, _OP_MEMBER_DECORATE = 71, 72
_MODEL_GLCOMPUTE = 5
_MODE_LOCAL_SIZE, _MODE_LOCAL_SIZE_ID = 17, 38
_STORAGE_UNIFORM_CONSTANT, _STORAGE_UNIFORM, _STORAGE_PUSH_CONSTANT, _STORAGE_BUFFER = 0, 2, 9, 12
_DECORATION_RELAXED_PRECISION, _DECORATION_ARRAY_STRIDE, _DECORATION_NON_WRITABLE = 0, 6, 24
_DECORATION_BINDING, _DECORATION_DESCRIPTOR_SET, _DECORATION_OFFSET = 33, 34, 35
_DECORATION_FP_FAST_MATH, _DECORATION_NO_CONTRACTION = 40, 42

#: Ops that make a float by arithmetic. NoContraction goes on all of them; R3 allows the values of _EXACT_ARITHMETIC.
#: FNegate is the sign flip where no zero and no NaN can occur; the quotient of FDiv is a seed that integers correct.
_ARITHMETIC = {127: "FNegate", 129: "FAdd", 131: "FSub", 133: "FMul", 136: "FDiv", 140: "FRem", 141: "FMod",
               142: "VectorTimesScalar", 143: "MatrixTimesScalar", 144: "VectorTimesMatrix", 145: "MatrixTimesVector",
               146: "MatrixTimesMatrix", 147: "OuterProduct", 148: "Dot"}
_EXACT_ARITHMETIC = frozenset({127, 129, 131, 133, 136, 142})

#: Ops that only carry float values: undef, constants, calls, loads, composites, select, bitcast, phi, shuffles between
#: invocations; and ConvertSToF (111), which is exact up to 2**24 and correctly rounded beyond (R13).
_FLOAT_CARRIERS = frozenset({1, 12, 43, 44, 46, 48, 50, 51, 54, 55, 57, 61, 77, 78, 79, 80, 81, 82, 83, 111, 124, 169,
                             245, 337, 338, 345, 346, 347, 348, 400})

#: GLSL.std.450: the functions on integers, and InverseSqrt as the seed of sqrt and rsqrt (numerics 3.2, 3.3).
_STD450_ALLOWED = frozenset({5, 7, 32, 38, 39, 41, 42, 44, 45, 73, 74, 75})

#: The one instruction with a single rounding for two operations: R9 says where it is exact.
_STD450_FMA = 50

#: Names for messages, of the usual suspects.
_STD450_NAMES = {1: "Round", 2: "RoundEven", 3: "Trunc", 4: "FAbs", 6: "FSign", 8: "Floor", 9: "Ceil", 10: "Fract",
                 13: "Sin", 14: "Cos", 15: "Tan", 19: "Sinh", 20: "Cosh", 21: "Tanh", 26: "Pow", 27: "Exp", 28: "Log",
                 29: "Exp2", 30: "Log2", 31: "Sqrt", 35: "Modf", 37: "FMin", 40: "FMax", 43: "FClamp", 46: "FMix",
                 48: "Step", 49: "SmoothStep", _STD450_FMA: "Fma", 53: "Ldexp", 58: "PackHalf2x16",
                 62: "UnpackHalf2x16", 66: "Length", 67: "Distance", 69: "Normalize", 79: "NMin", 80: "NMax",
                 81: "NClamp"}

#: Ops without a float result that still make floats: cooperative matrices (KHR, NV) and their loads and stores.
_FORBIDDEN_OPS = frozenset({*range(4456, 4461), *range(5358, 5363)})

#: Module-level section of an op (SPIR-V 2.4), None for ops that may stand in several.
_SECTIONS: dict[int, int] = {
    _OP_CAPABILITY: 0, _OP_EXTENSION: 1, _OP_EXT_INST_IMPORT: 2, _OP_MEMORY_MODEL: 3, _OP_ENTRY_POINT: 4,
    _OP_EXECUTION_MODE: 5, _OP_EXECUTION_MODE_ID: 5,
    **dict.fromkeys((2, 3, 4, 5, 6, 7, 330), 6),
    **dict.fromkeys((71, 72, 73, 74, 75, 332, 5632, 5633), 7),
    **dict.fromkeys((1, *range(19, 40), *range(41, 47), *range(48, 53), 59, 322, 327), 8),
}
_SECTION_TYPES = 8

_HAS_TYPE_AND_RESULT = frozenset({1, 12, *range(41, 47), *range(48, 53), 54, 55, 57, 59, 60, 61, *range(65, 69), 70,
                                  *range(77, 85), *range(86, 99), *range(100, 125), *range(126, 153),
                                  *range(154, 192), *range(194, 206), *range(207, 216), 227, *range(229, 243), 245,
                                  *range(333, 367), 400})
_HAS_RESULT = frozenset({7, 11, *range(19, 39), 73, 248})

#: Debug lines may stand anywhere.
_ANYWHERE = {8: 255, 317: 255}

_SECTION_TABLE = bytes({**{op: n + 1 for op, n in _SECTIONS.items()}, **_ANYWHERE}.get(op, 0) for op in range(6144))
_RESULT_TABLE = bytes(2 if op in _HAS_TYPE_AND_RESULT else int(op in _HAS_RESULT) for op in range(6144))


@dataclass(frozen=True, slots=True)
class Binding:
    """One storage buffer of a kernel's interface."""

    set: int
    binding: int
    readonly: bool


@dataclass(frozen=True, slots=True)
class Interface:
    """What a kernel expects from the pipeline around it. ``push_bytes`` counts from offset 0.

    ``version`` is that of SPIR-V, as (major, minor).
    """

    entry_point: str
    local_size: tuple[int, int, int]
    bindings: tuple[Binding, ...]
    push_bytes: int
    capabilities: frozenset[int]
    extensions: frozenset[str] = frozenset()
    version: tuple[int, int] = (1, 0)


class KernelShape(Protocol):
    """The part of a ``KernelMeta`` that a module must agree with."""

    @property
    def n_inputs(self) -> int:
        """Number of input buffers, the first bindings."""

    @property
    def n_outputs(self) -> int:
        """Number of output buffers, which follow."""

    @property
    def param_words(self) -> int:
        """Number of parameter words."""

    @property
    def params_in_buffer(self) -> bool:
        """Whether the parameter words are in the last buffer instead of push constants."""

    @property
    def local_size(self) -> tuple[int, int, int]:
        """Workgroup size."""


def _bad(message: str, word: int, field: str = "SPIR-V") -> FormatError:
    return FormatError(f"SPIR-V at byte {4 * word}: {message}", offset=4 * word, field=field)


class _Module:
    """A module cut into instructions: parallel lists of opcodes and first words."""

    __slots__ = ("bound", "ops", "starts", "version", "words")

    def __init__(self, spirv: bytes) -> None:
        if len(spirv) % 4 or not 4 * HEADER_WORDS <= len(spirv) <= MAX_BYTES:
            raise _bad(f"expected whole words, {4 * HEADER_WORDS} to {MAX_BYTES} bytes, got {len(spirv)} bytes", 0)
        words = array("I", spirv)
        if sys.byteorder == "big":
            words.byteswap()
        if words[0] != MAGIC:
            raise _bad(f"expected the magic number {MAGIC:#010x}, got {words[0]:#010x}", 0, "magic")
        if not MIN_VERSION <= words[1] <= MAX_VERSION:
            raise _bad(f"expected version 1.0 to 1.6, got {words[1]:#010x}", 1, "version")
        if not 0 < words[3] <= MAX_ID_BOUND:
            raise _bad(f"expected an id bound of 1 to {MAX_ID_BOUND}, got {words[3]}", 3, "bound")
        if words[4]:
            raise _bad(f"expected the reserved word 0, got {words[4]}", 4, "schema")
        self.words, self.version, self.bound = words, words[1], words[3]
        self.ops, self.starts, at = spirvcut.cut(words)
        end = len(words)
        if at < end:
            raise _bad(f"instruction {words[at]} has no length", at)
        if at > end:
            raise _bad(f"the last instruction ends at byte {4 * at}, the module at {4 * end}", self.starts[-1])

    def operands(self, start: int, minimum: int) -> array[int]:
        """Return the words after the opcode of an instruction; there must be at least ``minimum``."""
        count = (self.words[start] >> 16) - 1
        if count < minimum:
            raise _bad(f"instruction {self.words[start] & 0xFFFF} has {count} operands, fewer than {minimum}", start)
        return self.words[start + 1:start + 1 + count]

    def result_id(self, start: int) -> int:
        """Return the result id of an instruction with a result type."""
        if self.words[start] < 0x30000:
            raise _bad(f"instruction {self.words[start] & 0xFFFF} is too short for a result", start)
        return self.words[start + 2]

    def first_of_types(self) -> int:
        """Return the word where types, constants and variables begin."""
        for op, start in zip(self.ops, self.starts, strict=True):
            if _SECTIONS.get(op, 0) == _SECTION_TYPES or op == _OP_FUNCTION:
                return start
        return len(self.words)

    def text(self, operands: array[int], start: int) -> str:
        """Decode the null-terminated string that begins ``operands``."""
        data = struct.pack(f"<{len(operands)}I", *operands)
        end = data.find(0)
        if end < 0:
            raise _bad("a string has no end", start)
        try:
            return data[:end].decode()
        except UnicodeDecodeError as exc:
            raise _bad("a string is not UTF-8", start) from exc


@functools.lru_cache(maxsize=2)
def _read(spirv: bytes) -> _Module:
    """Cut a module, or return the cut of a module just seen: a kernel from the cache passes several functions."""
    return _Module(spirv)


def _pack(instructions: Iterable[tuple[int, ...]]) -> bytes:
    words: list[int] = []
    for op, *operands in instructions:
        words += ((len(operands) + 1) << 16 | op, *operands)
    return struct.pack(f"<{len(words)}I", *words)


def decorate_no_contraction(spirv: bytes, functions: Collection[str] | None = None) -> bytes:
    """Return the module with NoContraction on every float arithmetic result (R11), or on those in ``functions`` alone.

    Raises
    ------
    FormatError
        If the bytes are not a module.
    """
    module = _read(spirv)
    done = _no_contraction_ids(module)
    missing: list[int] = []
    names, is_in = {}, True
    for op, start in zip(module.ops, module.starts, strict=True):
        if op == _OP_NAME:
            operands = module.operands(start, 2)
            names[operands[0]] = module.text(operands[1:], start).split("(", 1)[0]
        elif op == _OP_FUNCTION:
            is_in = functions is None or names.get(module.result_id(start)) in functions
        elif is_in and (op in _ARITHMETIC or (op == _OP_EXT_INST and module.operands(start, 4)[3] == _STD450_FMA)):
            missing += {module.result_id(start)} - done
    cut = 4 * module.first_of_types()
    added = _pack((_OP_DECORATE, target, _DECORATION_NO_CONTRACTION) for target in missing)
    return spirv[:cut] + added + spirv[cut:]


def _no_contraction_ids(module: _Module) -> set[int]:
    ids = set()
    for op, start in zip(module.ops, module.starts, strict=True):
        if op == _OP_DECORATE:
            operands = module.operands(start, 2)
            if operands[1] == _DECORATION_NO_CONTRACTION:
                ids.add(operands[0])
        elif op == _OP_FUNCTION:
            break
    return ids


def add_execution_modes(spirv: bytes, modes: Collection[str]) -> bytes:
    """Return the module with float execution modes for 32-bit floats on its entry points.

    ``modes`` are names of :data:`FLOAT_MODES`. Modes that the module has already are not added again.

    Raises
    ------
    FormatError
        If the bytes are not a module with an entry point.
    """
    if not modes:
        return spirv
    module = _read(spirv)
    capabilities: set[int] = set()
    have: set[tuple[int, int]] = set()
    entries: list[int] = []
    has_extension = False
    after_capabilities = after_extensions = HEADER_WORDS
    after_entries = 0
    for op, start in zip(module.ops, module.starts, strict=True):
        end = start + (module.words[start] >> 16)
        if op == _OP_CAPABILITY:
            capabilities.add(module.operands(start, 1)[0])
            after_capabilities = after_extensions = end
        elif op == _OP_EXTENSION:
            has_extension |= module.text(module.operands(start, 1), start) == "SPV_KHR_float_controls"
            after_extensions = end
        elif op == _OP_ENTRY_POINT:
            entries.append(module.operands(start, 3)[1])
            after_entries = end
        elif op == _OP_EXECUTION_MODE:
            operands = module.operands(start, 2)
            have.add((operands[0], operands[1]))
            after_entries = end
        elif op == _OP_FUNCTION:
            break
    if not entries or not after_capabilities <= after_extensions <= after_entries:
        raise _bad("expected capabilities, extensions and an entry point in this order", HEADER_WORDS)
    wanted = [FLOAT_MODES[name] for name in modes]
    name = b"SPV_KHR_float_controls\0\0"
    pieces = [
        spirv[:4 * after_capabilities],
        _pack((_OP_CAPABILITY, capability) for capability, _ in wanted if capability not in capabilities),
        spirv[4 * after_capabilities:4 * after_extensions],
        b"" if has_extension else _pack([(_OP_EXTENSION, *struct.unpack("<6I", name))]),
        spirv[4 * after_extensions:4 * after_entries],
        _pack((_OP_EXECUTION_MODE, entry, mode, 32) for entry in entries for _, mode in wanted
              if (entry, mode) not in have),
        spirv[4 * after_entries:],
    ]
    return b"".join(pieces)


def check_exact(spirv: bytes, *, may_fuse: bool = False) -> None:
    """Check that nothing in the module can make a float result inexact or dependent on the device (R3, R11).

    ``may_fuse`` allows Fma: the kernel uses it where products are exact (R9).

    Raises
    ------
    CompileError
        If a float arithmetic result lacks NoContraction, or an instruction is not one of those that R3 allows.
    FormatError
        If the bytes are not a module.
    """
    module = _read(spirv)
    exact = _no_contraction_ids(module)
    float_types: set[int] = set()
    std450: set[int] = set()
    for op, start in zip(module.ops, module.starts, strict=True):
        if op in _ARITHMETIC:
            result = module.result_id(start)
            if op not in _EXACT_ARITHMETIC:
                raise _not_exact(f"{_ARITHMETIC[op]} has no exact result", start)
            if result not in exact:
                raise _not_exact(f"the result %{result} of {_ARITHMETIC[op]} lacks NoContraction", start)
        elif op == _OP_EXT_INST:
            _check_ext_inst(module.operands(start, 4), std450, exact if may_fuse else None, start)
        elif op in _FORBIDDEN_OPS:
            raise _not_exact(f"instruction {op} works on cooperative matrices", start)
        elif op in _HAS_TYPE_AND_RESULT:
            module.result_id(start)
            if op not in _FLOAT_CARRIERS and module.words[start + 1] in float_types:
                raise _not_exact(f"instruction {op} makes a float and is none that the contract allows", start)
        elif op == _OP_TYPE_FLOAT:
            float_types.add(module.operands(start, 2)[0])
        elif op in (_OP_TYPE_VECTOR, _OP_TYPE_MATRIX):
            operands = module.operands(start, 3)
            if operands[1] in float_types:
                float_types.add(operands[0])
        elif op == _OP_EXT_INST_IMPORT:
            operands = module.operands(start, 2)
            if module.text(operands[1:], start) == "GLSL.std.450":
                std450.add(operands[0])
        elif op in (_OP_DECORATE, _OP_MEMBER_DECORATE, _OP_EXECUTION_MODE):
            _check_decoration(op, module.operands(start, 2), start)
        elif op > 400 and len(operands := module.operands(start, 0)) >= 2 and operands[0] in float_types:
            raise _not_exact(f"instruction {op} makes a float and is none that the contract allows", start)


def _not_exact(message: str, word: int) -> CompileError:
    return CompileError(f"The kernel breaks the numerics contract at SPIR-V byte {4 * word}: {message}")


def _check_ext_inst(operands: array[int], std450: set[int], fusable: set[int] | None, start: int) -> None:
    if operands[2] not in std450:
        raise _not_exact(f"extended instruction {operands[3]} is not of GLSL.std.450", start)
    number = operands[3]
    if number == _STD450_FMA and fusable is not None:
        if operands[1] not in fusable:
            raise _not_exact(f"the result %{operands[1]} of Fma lacks NoContraction", start)
    elif number not in _STD450_ALLOWED:
        raise _not_exact(f"{_STD450_NAMES.get(number, f'GLSL.std.450 {number}')} has no exact result", start)


def _check_decoration(op: int, operands: array[int], start: int) -> None:
    if op == _OP_EXECUTION_MODE:
        if operands[1] in _FORBIDDEN_MODES:
            raise _not_exact(f"execution mode {operands[1]} changes results", start)
        return
    kind = operands[2] if op == _OP_MEMBER_DECORATE and len(operands) > 2 else operands[1]
    if kind in (_DECORATION_RELAXED_PRECISION, _DECORATION_FP_FAST_MATH):
        raise _not_exact(f"decoration {kind} relaxes the arithmetic of %{operands[0]}", start)


def check_structure(spirv: bytes) -> None:
    """Check header, section order, and that ids are within the bound and defined once.

    This is what can be told without the grammar of every instruction: enough to keep damaged data from the driver in
    most cases, not a validator.

    Raises
    ------
    FormatError
        If something is out of place.
    """
    module = _read(spirv)
    problem = spirvcut.find_problem(module.words, _SECTION_TABLE, _RESULT_TABLE, bytearray(module.bound))
    if problem is not None:
        raise _bad(*problem)
    for op, name in ((_OP_MEMORY_MODEL, "memory model"), (_OP_ENTRY_POINT, "entry point")):
        if module.ops.count(op) != 1:
            raise _bad(f"expected one {name}, got {module.ops.count(op)}", HEADER_WORDS)


class _InterfaceReader:
    """Collects the declarations that stand before the first function."""

    def __init__(self, module: _Module) -> None:
        self.module = module
        self.capabilities: set[int] = set()
        self.extensions: set[str] = set()
        self.entry: tuple[int, str] | None = None
        self.local_size: tuple[int, int, int] | None = None
        self.types: dict[int, tuple[int, array[int]]] = {}
        self.constants: dict[int, int] = {}
        self.decorations: dict[tuple[int, int], int] = {}
        self.member_offsets: dict[int, dict[int, int]] = {}
        self.readonly_members: set[int] = set()
        self.variables: list[tuple[int, int, int, int]] = []
        size_ids: tuple[int, ...] | None = None
        for op, start in zip(module.ops, module.starts, strict=True):
            if op == _OP_FUNCTION:
                break
            if op == _OP_DECORATE:
                operands = module.operands(start, 2)
                self.decorations[operands[0], operands[1]] = operands[2] if len(operands) > 2 else 1
            elif op == _OP_MEMBER_DECORATE:
                self._member(module.operands(start, 3))
            elif 19 <= op <= 39:
                operands = module.operands(start, 1)
                self.types[operands[0]] = (op, operands)
            elif op == _OP_CONSTANT:
                operands = module.operands(start, 3)
                self.constants[operands[1]] = operands[2]
            elif op == _OP_VARIABLE:
                operands = module.operands(start, 3)
                self.variables.append((operands[0], operands[1], operands[2], start))
            elif op == _OP_CAPABILITY:
                self.capabilities.add(module.operands(start, 1)[0])
            elif op == _OP_EXTENSION:
                self.extensions.add(module.text(module.operands(start, 1), start))
            elif op == _OP_ENTRY_POINT:
                self._entry_point(module.operands(start, 3), start)
            elif op in (_OP_EXECUTION_MODE, _OP_EXECUTION_MODE_ID):
                operands = module.operands(start, 2)
                if operands[1] in (_MODE_LOCAL_SIZE, _MODE_LOCAL_SIZE_ID):
                    operands = module.operands(start, 5)
                    values = (operands[2], operands[3], operands[4])
                    if operands[1] == _MODE_LOCAL_SIZE:
                        self.local_size = values
                    else:
                        size_ids = values
        if size_ids is not None:
            x, y, z = (self.constants.get(value, 0) for value in size_ids)
            self.local_size = (x, y, z)

    def _entry_point(self, operands: array[int], start: int) -> None:
        if self.entry is not None:
            raise _bad("expected one entry point, got another", start)
        if operands[0] != _MODEL_GLCOMPUTE:
            raise _bad(f"expected a compute entry point, got execution model {operands[0]}", start)
        self.entry = operands[1], self.module.text(operands[2:], start)

    def _member(self, operands: array[int]) -> None:
        if operands[2] == _DECORATION_OFFSET and len(operands) > 3:
            self.member_offsets.setdefault(operands[0], {})[operands[1]] = operands[3]
        elif operands[2] == _DECORATION_NON_WRITABLE:
            self.readonly_members.add(operands[0])

    def size_of(self, type_id: int, start: int, depth: int = 0) -> int:
        """Return the size of a type in bytes."""
        op, operands = self.types.get(type_id, (0, array("I")))
        if depth < 8:
            if op in (_OP_TYPE_INT, _OP_TYPE_FLOAT) and len(operands) > 1:
                return operands[1] // 8
            if op == _OP_TYPE_VECTOR and len(operands) > 2:
                return self.size_of(operands[1], start, depth + 1) * operands[2]
            if op == _OP_TYPE_ARRAY and len(operands) > 2:
                return self.decorations.get((type_id, _DECORATION_ARRAY_STRIDE), 0) * self.constants.get(operands[2], 0)
            if op == _OP_TYPE_STRUCT:
                offsets = self.member_offsets.get(type_id, {})
                return max((offsets.get(index, 0) + self.size_of(member, start, depth + 1)
                            for index, member in enumerate(operands[1:])), default=0)
        raise _bad(f"the size of type %{type_id} is not known", start)

    def interface(self) -> Interface:
        """Return what was collected."""
        if self.entry is None or self.local_size is None:
            raise _bad("expected an entry point with a workgroup size", HEADER_WORDS)
        bindings: dict[tuple[int, int], bool] = {}
        push_bytes = 0
        for pointer, variable, storage, start in self.variables:
            if storage not in (_STORAGE_BUFFER, _STORAGE_PUSH_CONSTANT, _STORAGE_UNIFORM, _STORAGE_UNIFORM_CONSTANT):
                continue
            op, operands = self.types.get(pointer, (0, array("I")))
            if op != _OP_TYPE_POINTER or len(operands) < 3:
                raise _bad(f"the variable %{variable} has no pointer type", start)
            if storage == _STORAGE_PUSH_CONSTANT:
                push_bytes = max(push_bytes, self.size_of(operands[2], start))
                continue
            if storage != _STORAGE_BUFFER:
                raise _bad(f"expected storage buffers only, got storage class {storage} for %{variable}", start)
            if self.types.get(operands[2], (0,))[0] != _OP_TYPE_STRUCT:
                raise _bad(f"expected one storage buffer, got a variable %{variable} that is no struct", start)
            where = (self.decorations.get((variable, _DECORATION_DESCRIPTOR_SET), 0),
                     self.decorations.get((variable, _DECORATION_BINDING), 0))
            readonly = ((variable, _DECORATION_NON_WRITABLE) in self.decorations
                        or operands[2] in self.readonly_members)
            bindings[where] = bindings.get(where, True) and readonly
        return Interface(
            entry_point=self.entry[1],
            local_size=self.local_size,
            bindings=tuple(Binding(*where, readonly) for where, readonly in sorted(bindings.items())),
            push_bytes=push_bytes,
            capabilities=frozenset(self.capabilities),
            extensions=frozenset(self.extensions),
            version=(self.module.version >> 16, self.module.version >> 8 & 0xFF),
        )


def interface_of(spirv: bytes) -> Interface:
    """Return the interface of a compute module.

    Raises
    ------
    FormatError
        If the bytes are not a module with one compute entry point, or a binding is not a storage buffer.
    """
    return _InterfaceReader(_read(spirv)).interface()


def check_interface(spirv: bytes, meta: KernelShape, capabilities: Collection[int] = KERNEL_CAPABILITIES) -> None:
    """Check that a module fits the kernel that it is for, before a driver sees it.

    Parameters
    ----------
    spirv : bytes
        The module.
    meta : KernelMeta
        What the kernel needs.
    capabilities
        SPIR-V capabilities that the kernel may declare and the device has.

    Raises
    ------
    FormatError
        If number or kinds of bindings, parameters, workgroup size, entry point or capabilities differ, the module is
        newer than Vulkan 1.2 takes or needs an extension, or the bytes are not a module.
    """
    found = interface_of(spirv)
    newest = KERNEL_VERSION >> 16, KERNEL_VERSION >> 8 & 0xFF
    kinds = ["read"] * meta.n_inputs + ["write"] * meta.n_outputs + ["read"] * meta.params_in_buffer
    bindings = [(0, index, kind) for index, kind in enumerate(kinds)]
    rows = [
        ("entry point", "main", found.entry_point),
        ("workgroup size", meta.local_size, found.local_size),
        ("bindings", bindings, [(b.set, b.binding, "read" if b.readonly else "write") for b in found.bindings]),
        ("push constant bytes", 0 if meta.params_in_buffer else 4 * meta.param_words, found.push_bytes),
        ("capabilities", sorted(found.capabilities.intersection(capabilities)), sorted(found.capabilities)),
        ("extensions", [], sorted(found.extensions)),
        ("version", min(newest, found.version), found.version),
    ]
    for field, expected, got in rows:
        if expected != got:
            raise FormatError(f"The SPIR-V module does not fit its kernel: expected {field} {expected}, got {got}",
                              offset=0, field=field)


def check_kernel(spirv: bytes, meta: KernelShape, capabilities: Collection[int] = KERNEL_CAPABILITIES) -> None:
    """Check everything that can be told of a module before a driver sees it: structure, then interface.

    Raises
    ------
    FormatError
        As for :func:`check_structure` and :func:`check_interface`, whose parameters these are.
    """
    check_structure(spirv)
    check_interface(spirv, meta, capabilities)
