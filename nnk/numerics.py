"""The numerics contract as data: which exact function and which order every op has.

The texts of :data:`FUNCTIONS` are valid C and valid GLSL at once: they call the functions of ``include/nnk_math.h``,
the one source that the CPU engine compiles and the emitter pastes. The emitter formats them; setup.py writes them
into a C header for the CPU engine. docs/numerics.md is the normative text behind both.

This module imports nothing, so that setup.py can run it beside :mod:`nnk.ops`.
"""

from __future__ import annotations

__all__ = [
    "CONTRACT_VERSION",
    "FAST_FUNCTIONS",
    "FAST_VARIANT",
    "FOLD_BLOCK",
    "FOLD_MAX_IDENTITY_BITS",
    "FUNCTIONS",
    "MATMUL_PAD_A_BITS",
    "MATMUL_PAD_B_BITS",
    "MAX_IDENTITY_BITS",
    "NAN_BITS",
    "REDUCE_CHUNK",
    "REDUCE_LANES",
    "SUM_IDENTITY_BITS",
    "VARIANTS",
]

#: Raised with every change of a result bit. A change of it must come with a new ``GENERATOR_VERSION``.
CONTRACT_VERSION = 2

#: Device tier (R10) -> variant of a kernel's code, which is part of its key. ``""`` uses native float instructions;
#: ``t2`` replaces a program's own + - * by integers near the underflow range; ``t3`` all float arithmetic.
VARIANTS: dict[str, str] = {"T1": "", "T1'": "", "T2": "t2", "T3": "t3"}

#: Variant of a kernel's code outside of the contract: the driver's functions, contraction of + - *.
FAST_VARIANT = "fast"

#: The only NaN at an observable point (R4).
NAN_BITS = 0x7FC00000

#: Rule R7: a row is cut into chunks, a chunk is summed by lanes and a tree; chunk results form a new row.
REDUCE_CHUNK = 16384
REDUCE_LANES = 256

#: Sums start from -0.0, the true additive identity (R5); maxima from -inf.
SUM_IDENTITY_BITS = 0x80000000
MAX_IDENTITY_BITS = 0xFF800000

#: Rules F1 to F8: a fold walks along its axis in blocks; a maximum in it starts from the lowest finite float, so that a
#: state never becomes -inf - -inf.
FOLD_BLOCK = 128
FOLD_MAX_IDENTITY_BITS = 0xFF7FFFFF

#: Operands that pad the K axis of a matmul tile: their product is -0.0, which changes no sum (R5).
MATMUL_PAD_A_BITS = 0x80000000
MATMUL_PAD_B_BITS = 0x00000000

#: Op name -> expression over the float operands a, b, c. Negation, absolute value, maximum, minimum, comparisons and
#: select work on bit patterns (R2c, R3: NVIDIA flushes subnormals in float comparisons); + - * are single IEEE
#: operations (R1); the rest are functions of nnk_math.h. The operands of integer ops are float variables too: they
#: carry bits, which only integer operations touch.
FUNCTIONS: dict[str, str] = {
    "neg": "nn_neg({a})",
    "exp": "nn_exp({a})",
    "log": "nn_log({a})",
    "sqrt": "nn_sqrt({a})",
    "rsqrt": "nn_rsqrt({a})",
    "abs": "nn_abs({a})",
    "tanh": "nn_tanh({a})",
    "add": "({a})+({b})",
    "sub": "({a})-({b})",
    "mul": "({a})*({b})",
    "div": "nn_div({a},{b})",
    "max": "U2F(nn_max(F2U({a}),F2U({b})))",
    "min": "U2F(nn_min(F2U({a}),F2U({b})))",
    "lt": "U2F(nn_lt(F2U({a}),F2U({b})))",
    "le": "U2F(nn_le(F2U({a}),F2U({b})))",
    "gt": "U2F(nn_lt(F2U({b}),F2U({a})))",
    "ge": "U2F(nn_le(F2U({b}),F2U({a})))",
    "eq": "U2F(nn_eq(F2U({a}),F2U({b})))",
    "ne": "U2F(nn_eq(F2U({a}),F2U({b}))^0x3f800000u)",
    "select": "U2F(SEL((F2U({a})&0x7fffffffu)!=0u,F2U({b}),F2U({c})))",
    "erf": "nn_erf({a})",
    "sigmoid": "nn_sigmoid({a})",
    "silu": "nn_silu({a})",
    "gelu": "nn_gelu({a})",
    "gelu_tanh": "nn_gelu_tanh({a})",
    "copy": "({a})",
    "sin": "nn_sin({a})",
    "cos": "nn_cos({a})",
    "floor": "U2F(nn_floor(F2U({a})))",
    "ceil": "U2F(nn_ceil(F2U({a})))",
    "trunc": "U2F(nn_trunc(F2U({a})))",
    "rint": "U2F(nn_rint(F2U({a})))",
    "sign": "U2F(nn_sign(F2U({a})))",
    "isnan": "U2F(nn_flag((F2U({a})&0x7fffffffu)>0x7f800000u))",
    "isinf": "U2F(nn_flag((F2U({a})&0x7fffffffu)==0x7f800000u))",
    "isfinite": "U2F(nn_flag((F2U({a})&0x7fffffffu)<0x7f800000u))",
    "exp2": "nn_exp2({a})",
    "log2": "nn_log2({a})",
    "log1p": "nn_log1p({a})",
    "expm1": "nn_expm1({a})",
    "pow": "nn_pow({a},{b})",
    "atan2": "nn_atan2({a},{b})",
    "fmod": "U2F(nn_fmod(F2U({a}),F2U({b})))",
    "remainder": "U2F(nn_remainder(F2U({a}),F2U({b})))",
    "round_f16": "U2F(nn_f16_to_f32(nn_f32_to_f16(F2U({a}))))",
    "round_bf16": "U2F(nn_bf16_to_f32(nn_f32_to_bf16(F2U({a}))))",
    "i2f": "U2F(nn_i2f(F2U({a})))",
    "f2i": "U2F(nn_f2i(F2U({a})))",
    "f2u8": "U2F(nn_f2u8(F2U({a})))",
    "b2i": "U2F(F2U({a})>>29)",
    "wrap_u8": "U2F(F2U({a})&255u)",
    "iadd": "U2F(F2U({a})+F2U({b}))",
    "isub": "U2F(F2U({a})-F2U({b}))",
    "imul": "U2F(F2U({a})*F2U({b}))",
    "ineg": "U2F(0u-F2U({a}))",
    "iabs": "U2F(SEL(INT(F2U({a}))<0,0u-F2U({a}),F2U({a})))",
    "imin": "U2F(SEL(INT(F2U({a}))<INT(F2U({b})),F2U({a}),F2U({b})))",
    "imax": "U2F(SEL(INT(F2U({a}))<INT(F2U({b})),F2U({b}),F2U({a})))",
    "ilt": "U2F(nn_ilt(INT(F2U({a})),INT(F2U({b}))))",
    "ile": "U2F(nn_ile(INT(F2U({a})),INT(F2U({b}))))",
    "ieq": "U2F(nn_flag(F2U({a})==F2U({b})))",
    "ine": "U2F(nn_flag(F2U({a})!=F2U({b})))",
    "iand": "U2F(F2U({a})&F2U({b}))",
    "ior": "U2F(F2U({a})|F2U({b}))",
    "ixor": "U2F(F2U({a})^F2U({b}))",
    "inot": "U2F(~F2U({a}))",
    "ishl": "U2F(nn_shl(F2U({a}),F2U({b})))",
    "ishr": "U2F(nn_shr(F2U({a}),F2U({b})))",
    "idiv": "U2F(nn_idiv(F2U({a}),F2U({b})))",
    "imod": "U2F(nn_imod(F2U({a}),F2U({b})))",
    "ipow": "U2F(nn_ipow(F2U({a}),F2U({b})))",
}

#: What takes the place of :data:`FUNCTIONS` in the variant ``fast``: GLSL's own functions where it has them. The exact
#: functions stay where it has none, or one that is of no use near zero or for a negative base.
FAST_FUNCTIONS: dict[str, str] = {
    "exp": "exp({a})",
    "log": "log({a})",
    "sqrt": "sqrt({a})",
    "rsqrt": "inversesqrt({a})",
    # Some drivers divide infinity by infinity for large operands.
    "tanh": "tanh(clamp({a},-10.0,10.0))",
    "div": "({a})/({b})",
    "sigmoid": "1.0/(1.0+exp(-({a})))",
    "silu": "({a})/(1.0+exp(-({a})))",
    "gelu_tanh": "({a})/(1.0+exp(-1.5957691*(({a})+0.044715*({a})*({a})*({a}))))",
    "sin": "sin({a})",
    "cos": "cos({a})",
    "exp2": "exp2({a})",
    "log2": "log2({a})",
}
