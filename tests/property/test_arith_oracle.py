"""The arithmetic oracle against itself: exact integers, array formulas, naive loops, and float64 references."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnk import ops
from tests import strategies
from tests.oracle import arith, arrays

bits = strategies.float_bits()
EXACT_OPS = [op for op in ops.OPS if op.code in arith.EXACT]


def as_float(u):
    return struct.unpack("<f", struct.pack("<I", u))[0]


def array_of(values):
    return arrays.floats_of(np.array(values, np.uint32))


@pytest.mark.parametrize("op", EXACT_OPS, ids=lambda op: op.name)
@given(data=st.data())
def test_arrays_agree_with_exact_scalars(op, data):
    rows = data.draw(st.lists(st.tuples(*[bits] * op.arity), min_size=1, max_size=8))
    expected = [arith.canonical_bits(arith.EXACT[op.code](*row)) for row in rows]
    found = arrays.ARRAY_OPS[op.code](*(array_of(column) for column in zip(*rows, strict=True)))
    assert arrays.bits_of(arrays.canonical(found)).tolist() == expected


@given(bits, bits)
def test_exact_sum_and_product_are_the_nearest_floats(a, b):
    if arith.is_nan(a) or arith.is_nan(b) or arith.is_inf(a) or arith.is_inf(b):
        return
    # The product of two float32 is exact in float64, and so is a sum where neither is much larger.
    with np.errstate(over="ignore"):
        assert np.float32(as_float(a) * as_float(b)).view(np.uint32) == arith.mul(a, b)
    if abs((a >> 23 & 255) - (b >> 23 & 255)) < 28:
        with np.errstate(over="ignore"):
            assert np.float32(as_float(a) + as_float(b)).view(np.uint32) == arith.add(a, b)


@given(bits)
def test_sqrt_is_the_nearest_float(a):
    root = arith.sqrt(a)
    if 0 < a < arith.INF:
        value = arith.value_of(a)
        below = (arith.value_of(root) + arith.value_of(root - 1)) / 2
        above = (arith.value_of(root) + arith.value_of(root + 1)) / 2
        assert below * below <= value <= above * above


@given(bits)
def test_rsqrt_is_the_nearest_float(a):
    root = arith.rsqrt(a)
    if 0 < a < arith.INF:
        value = arith.value_of(a)
        below = (arith.value_of(root) + arith.value_of(root - 1)) / 2
        above = (arith.value_of(root) + arith.value_of(root + 1)) / 2
        assert below * below * value <= 1 <= above * above * value


@pytest.mark.parametrize(("name", "operands", "result"), [
    ("add", (0x80000000, 0x00000000), 0x00000000), ("add", (0x80000000, 0x80000000), 0x80000000),
    ("add", (0x3F800000, 0xBF800000), 0x00000000), ("add", (0x7F800000, 0xFF800000), 0x7FC00000),
    ("add", (0x7F7FFFFF, 0x73000000), 0x7F800000), ("add", (0x7F7FFFFF, 0x72FFFFFF), 0x7F7FFFFF),
    ("add", (0x00000001, 0x00000001), 0x00000002), ("mul", (0x00FFFFFF, 0x3F000000), 0x00800000),
    ("mul", (0x00000001, 0x3F000000), 0x00000000), ("mul", (0x00000003, 0x3F000000), 0x00000002),
    ("mul", (0x00000000, 0x7F800000), 0x7FC00000), ("mul", (0x80000001, 0x00000001), 0x80000000),
    ("div", (0x3F800000, 0x40400000), 0x3EAAAAAB), ("div", (0x3F800000, 0x80000000), 0xFF800000),
    ("div", (0x00000000, 0x00000000), 0x7FC00000), ("div", (0xBF800000, 0x7F800000), 0x80000000),
    ("sqrt", (0x80000000,), 0x80000000), ("sqrt", (0xBF800000,), 0x7FC00000), ("sqrt", (0x40000000,), 0x3FB504F3),
    ("rsqrt", (0x80000000,), 0xFF800000), ("rsqrt", (0x7F800000,), 0x00000000),
    ("rsqrt", (0x40800000,), 0x3F000000), ("max", (0x80000000, 0x00000000), 0x00000000),
    ("min", (0x00000000, 0x80000000), 0x80000000), ("max", (0xFF800001, 0x3F800000), 0x7FC00000),
    ("eq", (0x80000000, 0x00000000), 0x3F800000), ("ne", (0x7FC00000, 0x7FC00000), 0x3F800000),
    ("floor", (0x80000001,), 0xBF800000), ("ceil", (0xBF000000,), 0x80000000), ("trunc", (0x3F7FFFFF,), 0x00000000),
    ("rint", (0x3F000000,), 0x00000000), ("rint", (0xBFC00000,), 0xC0000000), ("rint", (0x40200000,), 0x40000000),
    ("rint", (0x4B000001,), 0x4B000001), ("sign", (0x80000000,), 0x00000000), ("sign", (0x80000001,), 0xBF800000),
    ("isnan", (0xFFFFFFFF,), 0x3F800000), ("isinf", (0xFF800000,), 0x3F800000), ("isfinite", (0x7F7FFFFF,), 0x3F800000),
    ("le", (0x7FC00000, 0x7FC00000), 0x00000000), ("select", (0x7FC00000, 1, 2), 1),
    ("select", (0x80000000, 1, 2), 2)])
def test_known_results(name, operands, result):
    code = ops.OP_BY_NAME[name].code
    assert arith.EXACT[code](*operands) == result
    found = arrays.ARRAY_OPS[code](*(array_of([operand]) for operand in operands))
    assert arrays.bits_of(arrays.canonical(found)).tolist() == [result]


# --------------------------------------------------------------------------------------------------- half precision

def test_float16_agrees_with_numpy():
    halves = np.arange(0, 65536, 11, dtype=np.uint16)
    expected = arrays.canonical(halves.view(np.float16).astype(np.float32))
    assert [arith.float16_to_float32(int(h)) for h in halves] == arrays.bits_of(expected).tolist()


@given(st.lists(bits | st.integers(0x33000000, 0x47900000), min_size=1, max_size=20))
def test_rounding_to_float16_agrees_with_numpy(values):
    with np.errstate(over="ignore", under="ignore"):
        halves = array_of(values).astype(np.float16).view(np.uint16)
    expected = [0x7E00 if arith.is_nan(u) else int(h) for u, h in zip(values, halves, strict=True)]
    assert [arith.float32_to_float16(u) for u in values] == expected


@given(bits)
def test_bfloat16_is_the_nearest_upper_half(u):
    h = arith.float32_to_bfloat16(u)
    if arith.is_nan(u):
        assert h == 0x7FC0
        return
    # On the integers that bit patterns are, a half unit of bfloat16 is 0x8000.
    assert abs((h << 16) - u) <= 0x8000
    assert abs((h << 16) - u) < 0x8000 or h % 2 == 0
    assert arith.bfloat16_to_float32(h) == h << 16


# -------------------------------------------------------------------------------------------- reductions and matmul

def naive_row_sum(values, add, identity):
    """R7 read aloud, one addition at a time."""
    chunks = [values[start:start + 16384] for start in range(0, len(values), 16384)]
    totals = []
    for chunk in chunks:
        lanes = [identity] * 256
        for i, value in enumerate(chunk):
            lanes[i % 256] = add(lanes[i % 256], value)
        for s in (128, 64, 32, 16, 8, 4, 2, 1):
            for j in range(s):
                lanes[j] = add(lanes[j], lanes[j + s])
        totals.append(lanes[0])
    return totals[0] if len(totals) == 1 else naive_row_sum(totals, add, identity)


@given(st.lists(bits, min_size=1, max_size=40) | st.lists(bits, min_size=1, max_size=5).map(lambda few: few * 103))
def test_row_sum_has_the_order_of_the_contract(values):
    found = arrays.bits_of(arrays.canonical(arrays.row_sum(array_of(values)[None, :])))
    assert found.tolist() == [arith.canonical_bits(naive_row_sum(values, arith.add, 0x80000000))]


@pytest.mark.parametrize("n", [255, 256, 257, 512, 16383, 16384, 16385, 33000])
def test_row_sum_of_long_rows(n, rng):
    values = (rng.standard_normal(n) * 10.0 ** rng.uniform(-5, 5, n)).astype(np.float32)
    expected = naive_row_sum(list(values), np.add, np.float32(-0.0))
    assert arrays.bits_of(arrays.row_sum(values[None, :]))[0] == expected.view(np.uint32)


def test_sums_of_nothing_and_of_negative_zero():
    assert arrays.bits_of(arrays.row_sum(np.zeros((2, 0), np.float32))).tolist() == [0, 0]
    assert arrays.bits_of(arrays.row_sum(np.full((1, 3), -0.0, np.float32))).tolist() == [0x80000000]


@given(st.lists(bits, max_size=40))
def test_row_max_is_the_maximum_of_all(values):
    expected = 0xFF800000
    for value in values:
        expected = arith.maximum(expected, value)
    assert arrays.bits_of(arrays.row_max(array_of(values)[None, :])).tolist() == [expected]


@given(st.integers(1, 3), st.integers(0, 9), st.integers(1, 3), st.data())
def test_matmul_adds_in_ascending_order(m, k, n, data):
    a = [[data.draw(bits) for _ in range(k)] for _ in range(m)]
    b = [[data.draw(bits) for _ in range(n)] for _ in range(k)]
    found = arrays.matmul(array_of(np.array(a, np.uint32).reshape(m, k)),
                          array_of(np.array(b, np.uint32).reshape(k, n)))
    for i in range(m):
        for j in range(n):
            total = 0x80000000 if k else 0
            for t in range(k):
                total = arith.add(total, arith.mul(a[i][t], b[t][j]))
            assert arith.canonical_bits(int(arrays.bits_of(found)[i, j])) == arith.canonical_bits(total)


# -------------------------------------------------------------------------------- functions against float64 results

def _ulps(found, exact):
    """Distance in units of the last place of the exact result (2**-149 for subnormals)."""
    _fraction, exponent = np.frexp(exact)
    return np.abs(found.astype(np.float64) - exact) / np.ldexp(1.0, np.maximum(exponent - 24, -149))


def _phi(x):
    return np.array([0.5 * math.erfc(-value / math.sqrt(2.0)) for value in x])


FUNCTIONS = {
    "exp": (lambda x: np.exp(x), -100.0, 88.0, 0.8),
    "log": (lambda x: np.log(x), 1e-30, 1e30, 0.7),
    "tanh": (lambda x: np.tanh(x), -12.0, 12.0, 1.4),
    "sigmoid": (lambda x: 1.0 / (1.0 + np.exp(-x)), -90.0, 90.0, 0.8),
    "silu": (lambda x: x / (1.0 + np.exp(-x)), -80.0, 80.0, 1.2),
    "erf": (lambda x: np.array([math.erf(value) for value in x]), -5.0, 5.0, 1.4),
    "gelu": (lambda x: x * _phi(x), -12.0, 12.0, 2.4),
    "exp2": (lambda x: np.exp2(x), -140.0, 127.0, 1.1),
    "expm1": (lambda x: np.expm1(x), -18.0, 88.0, 1.0),
    "log2": (lambda x: np.log2(x), 1e-40, 1e38, 0.7),
    "log1p": (lambda x: np.log1p(x), 1e-30, 1e30, 0.7),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_is_as_accurate_as_the_contract_says(name, rng):
    reference, low, high, limit = FUNCTIONS[name]
    x = (np.exp(rng.uniform(math.log(low), math.log(high), 20000)) if low > 0 else
         np.concatenate([rng.uniform(low, high, 15000), rng.standard_normal(5000)])).astype(np.float32)
    found = arrays.ARRAY_OPS[ops.OP_BY_NAME[name].code](x)
    assert _ulps(found, reference(x.astype(np.float64))).max() < limit


def test_gelu_tanh_is_accurate_in_its_tail_too(rng):
    x = np.concatenate([rng.uniform(-9.2, 12.0, 20000), rng.standard_normal(5000)]).astype(np.float32)
    wide = x.astype(np.float64)
    exact = wide / (1.0 + np.exp(-2.0 * math.sqrt(2.0 / math.pi) * (wide + 0.044715 * wide**3)))
    assert _ulps(arrays.gelu_tanh(x), exact).max() < 4.0


@pytest.mark.parametrize(("function", "reference"), [(arrays.sin, math.sin), (arrays.cos, math.cos)],
                         ids=["sin", "cos"])
def test_sine_and_cosine_over_the_whole_range(function, reference, rng):
    x = np.concatenate([rng.uniform(-7.0, 7.0, 5000), 10.0 ** rng.uniform(-10, 38, 5000)]).astype(np.float32)
    exact = np.array([reference(value) for value in x.astype(np.float64)])
    assert _ulps(function(x), exact).max() < 0.85


def test_pow_against_float64(rng):
    x = rng.uniform(0.1, 10.0, 5000).astype(np.float32)
    y = rng.uniform(-8.0, 8.0, 5000).astype(np.float32)
    assert _ulps(arrays.pow(x, y), x.astype(np.float64) ** y.astype(np.float64)).max() < 0.8


@pytest.mark.parametrize(("function", "x", "y"), [
    (arrays.exp, [-math.inf, math.inf, 0.0, -0.0, 89.0, -104.0], [0.0, math.inf, 1.0, 1.0, math.inf, 0.0]),
    (arrays.log, [0.0, -0.0, math.inf, 1.0], [-math.inf, -math.inf, math.inf, 0.0]),
    (arrays.tanh, [math.inf, -math.inf, -0.0], [1.0, -1.0, -0.0]),
    (arrays.sigmoid, [math.inf, -math.inf, 0.0], [1.0, 0.0, 0.5]),
    (arrays.silu, [math.inf, -math.inf, -0.0], [math.inf, -0.0, -0.0]),
    (arrays.erf, [math.inf, -math.inf, -0.0], [1.0, -1.0, -0.0]),
    (arrays.gelu, [math.inf, -math.inf, -0.0], [math.inf, -0.0, -0.0]),
    (arrays.gelu_tanh, [math.inf, -math.inf, -0.0], [math.inf, -0.0, -0.0]),
    (arrays.sin, [-0.0, 0.0], [-0.0, 0.0]),
    (arrays.cos, [-0.0, 0.0], [1.0, 1.0]),
    (arrays.exp2, [-math.inf, math.inf, -0.0, -149.0, -151.0, 128.0], [0.0, math.inf, 1.0, 2.0**-149, 0.0, math.inf]),
    (arrays.expm1, [-math.inf, math.inf, 0.0, -0.0, -18.0, 1e-45], [-1.0, math.inf, 0.0, -0.0, -1.0, 1e-45]),
    (arrays.log2, [0.0, -0.0, math.inf, 1.0, 2.0**-149], [-math.inf, -math.inf, math.inf, 0.0, -149.0]),
    (arrays.log1p, [-1.0, math.inf, 0.0, -0.0, -1e-45], [-math.inf, math.inf, 0.0, -0.0, -1e-45])])
def test_special_values(function, x, y):
    found = function(np.array(x, np.float32))
    assert arrays.bits_of(found).tolist() == arrays.bits_of(np.array(y, np.float32)).tolist()


@pytest.mark.parametrize("op", [op for op in ops.OPS if op.arity == 1 and op.kind == "unary"
                                and op.name not in ("isnan", "isinf", "isfinite")], ids=lambda op: op.name)
def test_functions_of_nan_are_nan(op):
    x = array_of([0x7F800001, 0x7FC00000, 0xFFFFFFFF, 0xFFC00000])
    assert arrays.bits_of(arrays.canonical(arrays.ARRAY_OPS[op.code](x))).tolist() == [arith.NAN] * 4


def test_powers_of_two_are_exact():
    k = np.arange(-149, 128)
    powers = np.ldexp(1.0, k).astype(np.float32)
    assert np.array_equal(arrays.exp2(k.astype(np.float32)), powers)
    assert np.array_equal(arrays.log2(powers), k.astype(np.float32))


def test_pow_over_the_whole_range(rng):
    x = np.exp(rng.uniform(-87.0, 87.0, 20000)).astype(np.float32)
    x[::2] = 1.0 + rng.standard_normal(10000) * 10.0 ** rng.uniform(-6.0, -1.0, 10000)
    x[x == 1.0] = 1.5
    y = (rng.uniform(-103.0, 88.0, x.size) / np.log(x.astype(np.float64))).astype(np.float32)
    assert _ulps(arrays.pow(x, y), x.astype(np.float64) ** y.astype(np.float64)).max() < 0.8


def test_powers_that_are_floats_are_exact():
    base, exponent = np.meshgrid(np.arange(-40, 41), np.arange(0, 25))
    exact = base.astype(object) ** exponent
    fits = np.abs(exact) < 2**24
    found = arrays.pow(base[fits].astype(np.float32), exponent[fits].astype(np.float32))
    assert found.tolist() == exact[fits].tolist()


def test_atan2_against_float64(rng):
    y, x = (rng.standard_normal(20000) * 10.0 ** rng.uniform(-3.0, 3.0, 20000) for _ in range(2))
    y, x = y.astype(np.float32), x.astype(np.float32)
    assert _ulps(arrays.atan2(y, x), np.arctan2(y.astype(np.float64), x.astype(np.float64))).max() < 0.8


def test_pow_conventions():
    cases = [(0.0, 2.0, 0.0), (0.0, -2.0, math.inf), (math.inf, 2.0, math.inf), (math.inf, -1.0, 0.0),
             (2.0, math.inf, math.inf), (0.5, math.inf, 0.0), (1.0, math.nan, 1.0), (math.nan, 0.0, 1.0),
             (-2.0, 3.0, -8.0), (-2.0, 2.0, 4.0), (-math.inf, -3.0, -0.0), (-math.inf, 0.5, math.inf),
             (-0.0, -3.0, -math.inf), (-0.0, 0.5, 0.0), (-1.0, -math.inf, 1.0), (-1.0, 2.0**24 + 2, 1.0)]
    x, y, expected = (np.array(column, np.float32) for column in zip(*cases, strict=True))
    assert arrays.bits_of(arrays.pow(x, y)).tolist() == arrays.bits_of(expected).tolist()
    assert np.isnan(arrays.pow(np.array([-2.0, -1e-40], np.float32), np.array([2.5, 0.5], np.float32))).all()
