"""include/nnk_math.h, compiled as C: every function against NumPy's IEEE arithmetic or the oracle, bit for bit.

The header has two forms in C: the one of the CPU engine, and the one that devices run (NNK_INTSCALE: integer scaling,
division and roots by integer correction). Both must give the same bits; so must the second one in a processor that
flushes subnormal numbers, and with other seeds for division and roots.
"""

import ctypes
import re
import subprocess

import numpy as np
import pytest

from nnk import ops
from tests import ROOT
from tests.oracle import arith, arrays
from tests.strategies import EDGE_BITS, SPECIAL_BITS

HEADER = ROOT / "nnk/include/nnk_math.h"
UNARY = ("exp", "log", "tanh", "sigmoid", "silu", "erf", "gelu", "gelu_tanh", "sin", "cos", "exp2",
         "expm1", "log2", "log1p", "sqrt", "rsqrt")
BINARY = ("div", "pow", "atan2")
BITS_UNARY = ("canon", "f32_to_f16", "f16_to_f32", "f32_to_bf16", "bf16_to_f32", "soft_sqrt", "soft_rsqrt",
              "floor", "ceil", "trunc", "rint", "sign")
BITS_BINARY = ("max", "min", "soft_add", "soft_mul", "soft_div", "g_add", "g_mul", "lt", "le", "eq", "fmod",
               "remainder")
FORMS = {"cpu": [], "device": ["-DNNK_INTSCALE"], "flushing device": ["-DNNK_INTSCALE", "-DFLUSH"],
         "low seeds": ["-DNNK_INTSCALE", "-DMOVED=-3"], "high seeds": ["-DNNK_INTSCALE", "-DMOVED=2"]}
PRELUDE = """
#include <stdint.h>
#include <string.h>
#ifdef MOVED
static inline float moved(float x) { uint32_t u; memcpy(&u, &x, 4); u += MOVED; memcpy(&x, &u, 4); return x; }
#define DIVSEED(a, b) moved((a) / (b))
#define RSQSEED(a) moved(1.0f / __builtin_sqrtf(a))
#endif
#define NNK_C
#include "nnk_math.h"
#define U const uint32_t *
#if defined(FLUSH) && defined(__SSE__)
/* Flush-to-zero and denormals-are-zero, as some devices do. */
#define CALL(loop) unsigned before = __builtin_ia32_stmxcsr(); __builtin_ia32_ldmxcsr(before | 0x8040); \\
    loop __builtin_ia32_ldmxcsr(before);
#else
#define CALL(loop) loop
#endif
"""


def c_source():
    lines = [PRELUDE]
    for names, call in ((UNARY, "F2U(nn_{0}(U2F(a[i])))"), (BINARY, "F2U(nn_{0}(U2F(a[i]), U2F(b[i])))"),
                        (BITS_UNARY, "nn_{0}(a[i])"), (BITS_BINARY, "nn_{0}(a[i], b[i])")):
        lines += [f"void t_{name}(U a, U b, uint32_t *o, long n) "
                  f"{{ (void)b; CALL(for (long i = 0; i < n; i++) o[i] = {call.format(name)};) }}" for name in names]
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module", params=FORMS)
def functions(request, tmp_path_factory):
    """Return name -> function over uint32 arrays."""
    folder = tmp_path_factory.mktemp("math")
    source, library = folder / "math.c", folder / "math.so"
    source.write_text(c_source(), encoding="utf-8")
    subprocess.run(["gcc", "-O1", "-Wall", "-Werror", "-Wno-unused-function", "-ffp-contract=off", "-shared", "-fPIC",
                    f"-I{HEADER.parent}", *FORMS[request.param], str(source), "-o", str(library), "-lm"], check=True,
                   timeout=120)
    loaded = ctypes.CDLL(str(library))

    def call(name, a, b=None):
        a = np.ascontiguousarray(a, np.uint32)
        b = a if b is None else np.ascontiguousarray(b, np.uint32)
        out = np.empty_like(a)
        getattr(loaded, f"t_{name}")(*(ctypes.c_void_p(x.ctypes.data) for x in (a, b, out)), ctypes.c_long(a.size))
        return out

    return call


def sample(rng, count=40_000):
    """Bits: special values and their neighbours, branch borders, ordinary numbers, any numbers."""
    special = np.array(SPECIAL_BITS + EDGE_BITS, np.uint32)
    near = (special[:, None].astype(np.int64) + np.arange(-4, 5)).reshape(-1) % 2**32
    ordinary = (rng.standard_normal(count) * rng.choice([0.01, 1, 20], count)).astype(np.float32).view(np.uint32)
    return np.concatenate([near.astype(np.uint32), ordinary, rng.integers(0, 2**32, count, dtype=np.uint32)])


def pairs(rng):
    special = np.array(SPECIAL_BITS, np.uint32)
    a, b = (grid.reshape(-1) for grid in np.meshgrid(special, special))
    x, y = sample(rng), rng.permutation(sample(rng))
    close = rng.permutation(x) ^ rng.integers(0, 4, x.size, dtype=np.uint32)
    return np.concatenate([a, x, x]), np.concatenate([b, y, close])


def assert_same(got, expected):
    got, expected = (np.ascontiguousarray(x).view(np.uint32) for x in (got, expected))
    nan = (got & 0x7FFFFFFF > 0x7F800000) & (expected & 0x7FFFFFFF > 0x7F800000)
    differ = np.flatnonzero((got != expected) & ~nan)
    assert differ.size == 0, (differ.size, hex(got[differ[0]]), hex(expected[differ[0]]))


@pytest.mark.parametrize("name", ["exp", "log", "tanh", "sigmoid", "silu", "erf", "gelu", "gelu_tanh", "sin", "cos",
                                  "exp2", "expm1", "log2", "log1p"])
def test_functions(name, functions, rng, quiet_numpy):
    u = sample(rng)
    assert_same(functions(name, u), getattr(arrays, name)(u.view(np.float32)))


@pytest.mark.parametrize("name", ["pow", "atan2", "fmod", "remainder"])
def test_functions_of_two_operands(name, functions, rng, quiet_numpy):
    a, b = pairs(rng)
    oracle = arrays.ARRAY_OPS[ops.OP_BY_NAME[name].code]
    assert_same(functions(name, a, b), oracle(a.view(np.float32), b.view(np.float32)))
    # Powers whose result is in range, and exponents that are whole or half.
    base = np.exp(rng.standard_normal(40_000) * 3).astype(np.float32)
    for exponent in (rng.uniform(-105, 90, base.size) / np.log(base), rng.integers(-99, 99, base.size) / 2):
        u, v = (base * rng.choice([-1, 1], base.size)).astype(np.float32), exponent.astype(np.float32)
        assert_same(functions(name, u.view(np.uint32), v.view(np.uint32)), oracle(u, v))


def test_roots(functions, rng, quiet_numpy):
    u = sample(rng)
    x = u.view(np.float32)
    exact = (1.0 / np.sqrt(x.astype(np.float64))).astype(np.float32)
    for name in ("sqrt", "soft_sqrt"):
        assert_same(functions(name, u), np.sqrt(x))
    for name in ("rsqrt", "soft_rsqrt"):
        assert_same(functions(name, u), exact)


def test_arithmetic(functions, rng, quiet_numpy):
    a, b = pairs(rng)
    x, y = a.view(np.float32), b.view(np.float32)
    for names, exact in ((("soft_add", "g_add"), x + y), (("soft_mul", "g_mul"), x * y), (("div", "soft_div"), x / y)):
        for name in names:
            assert_same(functions(name, a, b), exact)


def test_maximum_and_minimum(functions, rng):
    a, b = pairs(rng)
    assert_same(functions("max", a, b), arrays.maximum_array(a.view(np.float32), b.view(np.float32)))
    assert_same(functions("min", a, b), arrays.minimum_array(a.view(np.float32), b.view(np.float32)))
    assert functions("max", [0x80000000], [0])[0] == 0
    assert functions("min", [0], [0x80000000])[0] == 0x80000000


def test_comparisons(functions, rng, quiet_numpy):
    a, b = pairs(rng)
    x, y = a.view(np.float32), b.view(np.float32)
    for name, exact in (("lt", x < y), ("le", x <= y), ("eq", x == y)):
        assert np.array_equal(functions(name, a, b), np.where(exact, 0x3F800000, 0))


def test_integers_and_signs(functions, rng, quiet_numpy):
    halves = np.arange(-20, 21, dtype=np.float32) / np.float32(2)
    near_the_last_fraction = np.float32(2) ** np.arange(20, 26, dtype=np.float32)[:, None] + halves
    u = np.concatenate([sample(rng), halves.view(np.uint32), near_the_last_fraction.reshape(-1).view(np.uint32)])
    x = u.view(np.float32)
    for name, exact in (("floor", np.floor), ("ceil", np.ceil), ("trunc", np.trunc), ("rint", np.rint),
                        ("sign", np.sign)):
        assert_same(functions(name, u), exact(x))


def test_canonical_nan(functions, rng):
    u = sample(rng)
    expected = np.where(u & 0x7FFFFFFF > 0x7F800000, np.uint32(arith.NAN), u)
    assert np.array_equal(functions("canon", u), expected)


def test_half_precision(functions, rng, quiet_numpy):
    halves = np.arange(65536, dtype=np.uint32)
    assert_same(functions("f16_to_f32", halves), halves.astype(np.uint16).view(np.float16).astype(np.float32))
    u = np.concatenate([sample(rng), functions("f16_to_f32", halves[:0x7C00]) + np.uint32(0x1000)])
    exact = u.view(np.float32).astype(np.float16)
    expected = np.where(np.isnan(exact), 0x7E00, exact.view(np.uint16))
    assert np.array_equal(functions("f32_to_f16", u), expected)


def test_bfloat16(functions, rng):
    halves = np.arange(65536, dtype=np.uint32)
    assert_same(functions("bf16_to_f32", halves), (halves << 16).view(np.float32))
    u = sample(rng)
    rounded = (u.astype(np.uint64) + 0x7FFF + (u >> 16 & 1)) >> 16
    expected = np.where(u & 0x7FFFFFFF > 0x7F800000, 0x7FC0, rounded)
    assert np.array_equal(functions("f32_to_bf16", u), expected)


def test_header_keeps_one_function_a_definition():
    """The emitter pastes definitions out of the text: each starts a line, and braces close with it."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in HEADER.parent.glob("nnk_math*.h"))
    names = re.findall(r"^FN \w+ (nn_\w+)\(", text, re.MULTILINE)
    used = UNARY + BINARY + BITS_UNARY + BITS_BINARY
    assert {f"nn_{name}" for name in used} <= set(names)
    assert not re.search(r"^\s+FN ", text, re.MULTILINE)
    assert not re.search(r"^FN .*\bFN\b", text, re.MULTILINE)
