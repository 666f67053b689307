"""Float arithmetic as function calls: kernels for devices of tiers T2 and T3 (docs/numerics.md R10).

The text of such a kernel is the text of tier T1 plus a few functions, one for each float instruction, that work on
bits. After compilation :func:`replace_arithmetic` turns float instructions into calls of them, a vector component by
component. The rewriting knows no op, no skeleton and no function by name, so it forgets none; :func:`check_replaced`
then proves it on the words of the module.

Tier T3 replaces everywhere. Tier T2 leaves the functions of ``nnk_math.h`` as they are: their results do not depend
on whether subnormals are flushed.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

from nnk._fast import spirvcut
from nnk.errors import CompileError

__all__ = ["KEEP_CALL", "SOFT_VARIANTS", "check_replaced", "replace_arithmetic", "soft_functions"]

#: Variants of :data:`nnk.numerics.VARIANTS` that this module makes.
SOFT_VARIANTS = ("t2", "t3")

#: First statement of ``main``: it keeps the compiler from dropping functions that nothing calls yet. The call goes
#: when the calls come.
KEEP_CALL = "soft_keep();"

#: ``const`` parameters are passed as values, so that a call takes the place of an instruction one for one. Drivers put
#: the callee in place of each call: a vec4 goes through a loop that they cannot write out, so that a kernel has the
#: long functions once, not four times. The loop's end is unknown to them, as every launch has one workgroup along y.
_FUNCTIONS = """\
float soft_add(const float a,const float b){{return U2F({add}(F2U(a),F2U(b)));}}
float soft_sub(const float a,const float b){{return U2F({add}(F2U(a),F2U(b)^0x80000000u));}}
float soft_mul(const float a,const float b){{return U2F({mul}(F2U(a),F2U(b)));}}
{vectors}float soft_neg(const float a){{return U2F(F2U(a)^0x80000000u);}}
bool soft_lt(const float a,const float b){{return nn_lt(F2U(a),F2U(b))!=0u;}}
bool soft_le(const float a,const float b){{return nn_le(F2U(a),F2U(b))!=0u;}}
bool soft_eq(const float a,const float b){{return nn_eq(F2U(a),F2U(b))!=0u;}}
bool soft_ne(const float a,const float b){{return nn_eq(F2U(a),F2U(b))==0u;}}
float soft_from_int(const int i){{return U2F(nn_from_int(UINT(i)));}}
float soft_from_uint(const uint u){{return U2F(nn_from_uint(u));}}
void soft_keep(){{
  float z=U2F(0u);
  vec4 v=vec4(z);
  soft_add(z,z); soft_sub(z,z); soft_mul(z,z); soft_neg(z); soft_add4(v,v); soft_sub4(v,v); soft_mul4(v,v);
  soft_lt(z,z); soft_le(z,z); soft_eq(z,z); soft_ne(z,z);
  soft_from_int(0); soft_from_uint(0u);
}}
"""


_VECTOR_FUNCTION = """\
vec4 {name}4(const vec4 a,const vec4 b){{
  vec4 r=a;
  for(uint x=0u;x<4u+gl_WorkGroupID.y;x++) r[x]={name}(a[x],b[x]);
  return r;
}}
"""


def soft_functions(variant: str) -> str:
    """Return the functions that take the place of float instructions in a kernel of ``variant`` (``t2`` or ``t3``)."""
    kind = {"t2": "g", "t3": "soft"}[variant]
    vectors = "".join(_VECTOR_FUNCTION.format(name=name) for name in _VECTOR_CALLS)
    return _FUNCTIONS.format(add=f"nn_{kind}_add", mul=f"nn_{kind}_mul", vectors=vectors)


_OP_NAME, _OP_EXT_INST_IMPORT, _OP_EXT_INST, _OP_TYPE_FLOAT, _OP_TYPE_VECTOR = 5, 11, 12, 22, 23
_OP_FUNCTION, _OP_FUNCTION_END, _OP_FUNCTION_CALL = 54, 56, 57
_OP_COMPOSITE_CONSTRUCT, _OP_COMPOSITE_EXTRACT = 80, 81
_OP_VECTOR_TIMES_SCALAR = 142
_STD450_FMA = 50
_COMPARISONS = range(180, 192)
_BOUND_WORD, _HEADER_WORDS = 3, 5

#: Instruction -> (function, whether its operands change places).
_CALLS: dict[int, tuple[str, bool]] = {
    127: ("soft_neg", False), 129: ("soft_add", False), 131: ("soft_sub", False), 133: ("soft_mul", False),
    _OP_VECTOR_TIMES_SCALAR: ("soft_mul", False),
    180: ("soft_eq", False), 182: ("soft_ne", False), 183: ("soft_ne", False), 184: ("soft_lt", False),
    186: ("soft_lt", True), 188: ("soft_le", False), 190: ("soft_le", True),
    111: ("soft_from_int", False), 112: ("soft_from_uint", False),
}

#: Functions that have a form for four components.
_VECTOR_CALLS = ("soft_add", "soft_sub", "soft_mul")

#: Instructions whose result depends on how a device rounds, flushes or treats zeros, infinities and NaNs: arithmetic
#: (127 to 148 but the integer ones), comparisons (180 to 191), conversions from integers and between widths.
#: FDiv (136) is not among them: its quotient is a seed that integers correct (R3).
_DEPENDENT = frozenset({111, 112, 115, 127, 129, 131, 133, 140, 141, *range(142, 149), *_COMPARISONS})

#: The instructions that each pass over a module looks at.
_DECLARING = frozenset({_OP_NAME, _OP_EXT_INST_IMPORT, _OP_TYPE_FLOAT, _OP_TYPE_VECTOR})
_REWRITTEN = frozenset({_OP_FUNCTION, _OP_FUNCTION_CALL, _OP_EXT_INST, *_CALLS})
_CHECKED = _DECLARING | _DEPENDENT | {_OP_FUNCTION, _OP_EXT_INST}

#: What tier T2 leaves native: with rounding to nearest even, an integer becomes the right float, never a subnormal.
_CONVERSIONS = frozenset({111, 112})


def _words_of(spirv: bytes) -> array[int]:
    words = array("I", spirv)
    if sys.byteorder == "big":
        words.byteswap()
    return words


def _instructions(words: array[int], wanted: frozenset[int]) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """Yield (first word, opcode, operands) of each instruction whose opcode is in ``wanted``."""
    opcodes, starts, end = spirvcut.cut(words)
    if end != len(words):
        raise CompileError(f"SPIR-V at byte {4 * end}: an instruction has no length")
    for op, start in zip(opcodes, starts, strict=True):
        if op in wanted:
            yield start, op, tuple(words[start + 1:start + (words[start] >> 16)])


def _text(words: tuple[int, ...]) -> str:
    return struct.pack(f"<{len(words)}I", *words).split(b"\0", 1)[0].decode()


@dataclass
class _Declarations:
    """What stands before the functions of a module: function names, float vectors, the GLSL.std.450 sets."""

    names: dict[int, str] = field(default_factory=dict)
    float_types: set[int] = field(default_factory=set)
    #: Vector type -> (type of a component, number of components).
    vectors: dict[int, tuple[int, int]] = field(default_factory=dict)
    std450: set[int] = field(default_factory=set)

    def read(self, op: int, operands: tuple[int, ...]) -> None:
        """Take note of one instruction."""
        if op == _OP_NAME:
            # The compiler names functions with their parameter types: soft_add(f1;f1;
            self.names[operands[0]] = _text(operands[1:]).split("(", 1)[0]
        elif op == _OP_TYPE_FLOAT and operands[1] == 32:
            self.float_types.add(operands[0])
        elif op == _OP_TYPE_VECTOR:
            self.vectors[operands[0]] = (operands[1], operands[2])
        elif op == _OP_EXT_INST_IMPORT and _text(operands[1:]) == "GLSL.std.450":
            self.std450.add(operands[0])


def _is_replaced(op: int, operands: tuple[int, ...], declarations: _Declarations, everywhere: bool) -> bool:
    if op == _OP_EXT_INST:
        return operands[2] in declarations.std450 and operands[3] == _STD450_FMA
    return op in _CALLS and (everywhere or op not in _CONVERSIONS)


class _Rewriter:
    """Rewrites the instructions of one module."""

    def __init__(self, spirv: bytes) -> None:
        self.bound: int = struct.unpack_from("<I", spirv, 4 * _BOUND_WORD)[0]
        self.declarations = _Declarations()
        self.functions: dict[str, int] = {}
        self.words = array("I")

    def new_id(self) -> int:
        self.bound += 1
        return self.bound - 1

    def emit(self, op: int, *operands: int) -> None:
        self.words.extend(((len(operands) + 1) << 16 | op, *operands))

    def is_vec4(self, kind: int) -> bool:
        component, count = self.declarations.vectors.get(kind, (0, 0))
        return component in self.declarations.float_types and count == 4

    def call(self, name: str, kind: int, result: int, arguments: list[int]) -> None:
        if name not in self.functions:
            raise CompileError(f"Expected the function {name} in the kernel, got a module without it")
        self.emit(_OP_FUNCTION_CALL, kind, result, self.functions[name], *arguments)

    def by_component(self, kind: int, result: int, vectors: list[bool], operands: tuple[int, ...],
                     call: Callable[[int, int, list[int]], None]) -> None:
        """Run ``call(type, result, arguments)`` for each component; ``vectors`` says which operands have components."""
        if kind not in self.declarations.vectors:
            call(kind, result, list(operands))
            return
        component, count = self.declarations.vectors[kind]
        if component not in self.declarations.float_types:
            raise CompileError(f"Expected float vectors, got a result %{result} of another type")
        parts = []
        for index in range(count):
            arguments = []
            for operand, is_vector in zip(operands, vectors, strict=True):
                arguments.append(operand)
                if is_vector:
                    arguments[-1] = self.new_id()
                    self.emit(_OP_COMPOSITE_EXTRACT, component, arguments[-1], operand, index)
            parts.append(self.new_id())
            call(component, parts[-1], arguments)
        self.emit(_OP_COMPOSITE_CONSTRUCT, kind, result, *parts)

    def replace(self, op: int, operands: tuple[int, ...]) -> None:
        """Write the calls for one instruction."""
        kind, result = operands[:2]
        if op == _OP_EXT_INST:
            # Only where the product is exact (R9): two roundings then give what one gives.
            if self.is_vec4(kind):
                self.multiply_add(kind, result, list(operands[4:]), "4")
            else:
                self.by_component(kind, result, [True] * 3, operands[4:], self.multiply_add)
            return
        name, is_swapped = _CALLS[op]
        is_vector = kind in self.declarations.vectors
        is_known = kind in self.declarations.float_types or (is_vector and op not in _CONVERSIONS) or op in _COMPARISONS
        if not is_known:
            raise CompileError(f"Expected 32-bit float arithmetic, got instruction {op} of another type")
        arguments = operands[:1:-1] if is_swapped else operands[2:]
        if name in _VECTOR_CALLS and self.is_vec4(kind):
            if op == _OP_VECTOR_TIMES_SCALAR:
                arguments = (operands[2], self.new_id())
                self.emit(_OP_COMPOSITE_CONSTRUCT, kind, arguments[1], *[operands[3]] * 4)
            self.call(f"{name}4", kind, result, list(arguments))
            return
        vectors = [True, False] if op == _OP_VECTOR_TIMES_SCALAR else [True] * len(arguments)
        self.by_component(kind, result, vectors, arguments,
                          lambda part, target, values: self.call(name, part, target, values))

    def multiply_add(self, kind: int, result: int, arguments: list[int], suffix: str = "") -> None:
        product = self.new_id()
        self.call(f"soft_mul{suffix}", kind, product, arguments[:2])
        self.call(f"soft_add{suffix}", kind, result, [product, arguments[2]])


def replace_arithmetic(spirv: bytes, variant: str, library: Collection[str]) -> bytes:
    """Return a module without float arithmetic of its own: calls of :func:`soft_functions` take its place.

    Parameters
    ----------
    spirv : bytes
        A module that the GLSL compiler made from a text with ``soft_functions(variant)``.
    variant : str
        ``t2``: functions named in ``library`` stay as they are; ``t3``: none does.
    library : collection of str
        Names of the functions of ``nnk_math.h``.

    Raises
    ------
    CompileError
        If the module lacks a function, or has arithmetic on vectors of another type.
    """
    everywhere = variant == "t3"
    rewriter = _Rewriter(spirv)
    declarations, functions = rewriter.declarations, rewriter.functions
    words = _words_of(spirv)
    for _, op, operands in _instructions(words, _DECLARING | {_OP_FUNCTION}):
        declarations.read(op, operands)
        if op == _OP_FUNCTION:
            functions[declarations.names.get(operands[1], "")] = operands[1]
    keep = functions.get("soft_keep")
    is_own = True
    # What stays is copied in long runs.
    copied = _HEADER_WORDS
    for start, op, operands in _instructions(words, _REWRITTEN):
        if op == _OP_FUNCTION:
            is_own = everywhere or declarations.names.get(operands[1], "") not in library
        is_replaced = is_own and _is_replaced(op, operands, declarations, everywhere)
        if is_replaced or (op == _OP_FUNCTION_CALL and operands[2] == keep):
            rewriter.words.extend(words[copied:start])
            copied = start + (words[start] >> 16)
        if is_replaced:
            rewriter.replace(op, operands)
    rewriter.words.extend(words[copied:])
    header = words[:_HEADER_WORDS]
    header[_BOUND_WORD] = rewriter.bound
    return struct.pack(f"<{_HEADER_WORDS + len(rewriter.words)}I", *header, *rewriter.words)


def check_replaced(spirv: bytes, variant: str, library: Collection[str]) -> None:
    """Check that no float instruction is left whose result depends on the device's modes; seeds of R3 are allowed.

    Parameters as those of :func:`replace_arithmetic`.

    Raises
    ------
    CompileError
        With the first instruction that is left and the function that it is in.
    """
    allowed = frozenset() if variant == "t3" else _CONVERSIONS
    declarations = _Declarations()
    function = ""
    for _, op, operands in _instructions(_words_of(spirv), _CHECKED):
        declarations.read(op, operands)
        if op == _OP_FUNCTION:
            function = declarations.names.get(operands[1], "")
        is_fma = op == _OP_EXT_INST and operands[2] in declarations.std450 and operands[3] == _STD450_FMA
        if (is_fma or op in _DEPENDENT - allowed) and (variant == "t3" or function not in library):
            raise CompileError(f"Expected a kernel of tier {variant.upper()} without native float arithmetic, got "
                               f"instruction {op} in {function}")
