"""nnk_math.h on devices of tier T2 and T3, simulated in C: subnormals flushed, other rounding modes.

The header is compiled in the form that devices run (NNK_INTSCALE). A mode is set around the loops, as a device has it.
"""

import ctypes
import re
import subprocess

import numpy as np
import pytest

from nnk.numerics import FUNCTIONS
from nnk.ops import OPS
from tests.property.test_cpu_math import (
    BINARY,
    BITS_BINARY,
    BITS_UNARY,
    HEADER,
    UNARY,
    assert_same,
    c_source,
    pairs,
)
from tests.strategies import SPECIAL_BITS

#: Mode -> bits that x86 sets in MXCSR and arm64 in FPCR: flushed results and operands, rounding of an inexact result.
MODES = {"plain": (0, 0), "flush": (0x8040, 1 << 24), "down": (0x2000, 2 << 22), "up": (0x4000, 1 << 22),
         "to zero": (0x6000, 3 << 22)}

_RUN = """
typedef void (*nnk_test)(const uint32_t *, const uint32_t *, uint32_t *, long);
void run(nnk_test test, unsigned long x86, unsigned long arm64, const uint32_t *a, const uint32_t *b, uint32_t *o,
         long n) {
#if defined(__x86_64__)
  unsigned int old = __builtin_ia32_stmxcsr();
  (void)arm64;
  __builtin_ia32_ldmxcsr(old | (unsigned int)x86);
  test(a, b, o, n);
  __builtin_ia32_ldmxcsr(old);
#elif defined(__aarch64__)
  unsigned long old;
  (void)x86;
  __asm__ volatile("mrs %0, fpcr" : "=r"(old));
  __asm__ volatile("msr fpcr, %0" :: "r"(old | arm64));
  test(a, b, o, n);
  __asm__ volatile("msr fpcr, %0" :: "r"(old));
#else
#error "no way to flush subnormals is known for this machine"
#endif
}
void t_add(const uint32_t *a, const uint32_t *b, uint32_t *o, long n)
{ for (long i = 0; i < n; i++) o[i] = F2U(U2F(a[i]) + U2F(b[i])); }
void t_mul(const uint32_t *a, const uint32_t *b, uint32_t *o, long n)
{ for (long i = 0; i < n; i++) o[i] = F2U(U2F(a[i]) * U2F(b[i])); }
"""


def build(folder):
    """Return call(name, mode, a, b) over uint32 arrays; ``add`` and ``mul`` are the native operations."""
    source, library = folder / "tiers.c", folder / "tiers.so"
    source.write_text(c_source() + _RUN, encoding="utf-8")
    # -frounding-math keeps the compiler from folding and moving what depends on a mode.
    subprocess.run(["gcc", "-O1", "-Wall", "-Werror", "-Wno-unused-function", "-ffp-contract=off", "-frounding-math",
                    "-shared", "-fPIC", f"-I{HEADER.parent}", "-DNNK_INTSCALE", str(source), "-o", str(library),
                    "-lm"], check=True, timeout=120)
    loaded = ctypes.CDLL(str(library))

    def call(name, mode, a, b):
        a, b = (np.ascontiguousarray(x, np.uint32) for x in (a, b))
        out = np.empty_like(a)
        loaded.run(getattr(loaded, f"t_{name}"), *(ctypes.c_ulong(bits) for bits in MODES[mode]),
                   *(ctypes.c_void_p(x.ctypes.data) for x in (a, b, out)), ctypes.c_long(a.size))
        return out

    return call


@pytest.fixture(scope="module")
def functions(tmp_path_factory):
    return build(tmp_path_factory.mktemp("tiers"))


def around_underflow(rng, count=60_000):
    """Pairs of which a good part has operands, products or sums that are subnormal."""
    special = np.array(SPECIAL_BITS, np.uint32)
    grid = [axis.reshape(-1) for axis in np.meshgrid(special, special)]
    exponents = rng.choice([0, 0, 1, 1, 2, 3, 20, 24, 28, 40, 52, 62, 63, 64, 65, 76, 126, 127, 128], (2, count))
    near = (exponents.astype(np.uint32) << 23) | rng.integers(0, 1 << 23, (2, count), dtype=np.uint32) \
        | (rng.integers(0, 2, (2, count), dtype=np.uint32) << 31)
    a, b = pairs(rng)
    return np.concatenate([grid[0], near[0], a[:20_000]]), np.concatenate([grid[1], near[1], b[:20_000]])


#: Half precision is not tested: a half has subnormals of its own, and its conversions are integers alone.
HALVES = {"f16_to_f32", "f32_to_f16", "bf16_to_f32", "f32_to_bf16"}
TESTED = (*UNARY, *BINARY, *BITS_UNARY, *BITS_BINARY)


@pytest.mark.parametrize("name", TESTED)
def test_functions_do_not_depend_on_flushing(name, functions, rng):
    a, b = around_underflow(rng)
    assert_same(functions(name, "flush", a, b), functions(name, "plain", a, b))


@pytest.mark.parametrize(("native", "names"), [("add", ("g_add", "soft_add")), ("mul", ("g_mul", "soft_mul"))])
def test_native_operations_do(native, names, functions, rng, quiet_numpy):
    """The test above has teeth: on the same pairs, native operations lose bits that guarded ones keep."""
    a, b = around_underflow(rng)
    x, y = a.view(np.float32), b.view(np.float32)
    exact = x + y if native == "add" else x * y
    assert_same(functions(native, "plain", a, b), exact)
    assert np.count_nonzero(functions(native, "flush", a, b) != functions(native, "plain", a, b)) > a.size // 20
    for name in names:
        assert_same(functions(name, "flush", a, b), exact)


@pytest.mark.parametrize("mode", ["down", "up", "to zero"])
def test_integer_operations_do_not_depend_on_rounding(mode, functions, rng, quiet_numpy):
    a, b = pairs(rng)
    x, y = a.view(np.float32), b.view(np.float32)
    for name, exact in (("soft_add", x + y), ("soft_mul", x * y)):
        assert_same(functions(name, mode, a, b), exact)
        assert np.count_nonzero(functions(name.removeprefix("soft_"), mode, a, b)
                                != functions(name.removeprefix("soft_"), "plain", a, b)) > a.size // 20


def test_functions_of_all_ops_are_tested():
    # Casts and the ops of integers have no float arithmetic; no more have the last three, which select and mask bits.
    of_integers = {op.name for op in OPS if op.kind in ("integer", "cast")}
    used = {name for op, text in FUNCTIONS.items() if op not in of_integers for name in re.findall(r"nn_(\w+)\(", text)}
    assert used - {"flag", "neg", "abs"} - HALVES <= set(TESTED)
