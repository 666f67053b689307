"""The functions of the numerics contract over NumPy float32 arrays.

Section 3 of the contract is spelled out with one rounding an operation (every NumPy operation is one), fast enough for
millions of values. Division and square root are NumPy's, which are correctly rounded; :mod:`tests.oracle.arith`
checks that.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.oracle.arith import INF, NAN, ONE, SIGN

Floats = npt.NDArray[np.float32]
Words = npt.NDArray[np.uint32]


def quiet(function: Callable[..., Any]) -> Callable[..., Any]:
    """Overflow, underflow and invalid operations are results here, not warnings."""
    @functools.wraps(function)
    def wrapped(*arguments: Any, **keywords: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(*arguments, **keywords)
    return wrapped


def bits_of(x: Floats) -> Words:
    return np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)


def floats_of(u: Any) -> Floats:
    return np.ascontiguousarray(u, dtype=np.uint32).view(np.float32)


def canonical(x: Floats) -> Floats:
    u = bits_of(x)
    return floats_of(np.where(u & 0x7FFFFFFF > INF, np.uint32(NAN), u))


def _f(text: str | float) -> np.float32:
    value = float.fromhex(text) if isinstance(text, str) else text
    constant = np.float32(value)
    assert float(constant) == value, text
    return constant


def _horner(z: Floats, *coefficients: str | float) -> Floats:
    p = np.full_like(z, _f(coefficients[0]))
    for coefficient in coefficients[1:]:
        p = p * z + _f(coefficient)
    return p


def _power_of_two(k: npt.NDArray[Any]) -> Floats:
    return np.ldexp(np.float32(1), k).astype(np.float32)


def _scale(f: Floats, k: npt.NDArray[Any]) -> Floats:
    """f * 2**k with one rounding: exact in float64, then rounded once."""
    return np.ldexp(f.astype(np.float64), k).astype(np.float32)


def _magnitude(x: Floats, limit: float) -> Floats:
    """min(|x|, limit); limit for NaN."""
    u = bits_of(x) & 0x7FFFFFFF
    return floats_of(np.minimum(u, bits_of(np.array([limit]))[0]))


def nan_in(x: Floats) -> npt.NDArray[np.bool_]:
    return bits_of(x) & 0x7FFFFFFF > INF


def _negative(x: Floats) -> npt.NDArray[np.bool_]:
    return bits_of(x) >= SIGN


def _finish(x: Floats, y: Floats) -> Floats:
    return np.where(nan_in(x), floats_of([NAN])[0], y)


def with_sign_of(x: Floats, y: Floats) -> Floats:
    return floats_of(bits_of(y) | (bits_of(x) & SIGN))


def _top(x: Floats) -> Floats:
    """The upper 12 significant bits of x: products of two such parts are exact."""
    return floats_of(bits_of(x) & 0xFFFFF000)


def _top8(x: Floats) -> Floats:
    return floats_of(bits_of(x) & 0xFFFF0000)


_MAGIC = _f(12582912.0)
_LN2_HIGH, _LN2_LOW = _f("0x1.62e4p-1"), _f("0x1.7f7d1cp-20")
_ONE, _HALF, _TWO = _f(1.0), _f(0.5), _f(2.0)


Parts = tuple[Floats, Floats, npt.NDArray[np.int32]]


def _expe(xh: Floats, xl: Floats) -> Parts:
    """exp(xh + xl) = (f + l) * 2**k."""
    t = xh * _f("0x1.715476p+0") + _MAGIC
    k_float = t - _MAGIC
    k = bits_of(t).view(np.int32) - np.int32(0x4B400000)
    rh = xh - k_float * _LN2_HIGH
    rl = xl - k_float * _LN2_LOW
    r = rh + rl
    e = (rh - r) + rl
    p = _horner(r, "0x1.9df7f2p-13", "0x1.6d4cdap-10", "0x1.11131p-7", "0x1.5554e8p-5", "0x1.555554p-3", 0.5)
    p = (r * r) * p
    s = _ONE + r
    d = (_ONE - s) + r
    v = d + (p + e)
    f = s + v
    return f, (s - f) + v, k


def _expc(xh: Floats, xl: Floats) -> tuple[Floats, npt.NDArray[np.int32]]:
    f, _, k = _expe(xh, xl)
    return f, k


def _reciprocal(t: Floats) -> Floats:
    r = (t * t) * (t * _f("-0x1.c65266p-3") + _f("0x1.54bdd4p+0")) + (t * _f("-0x1.783c4cp+1") + _f("0x1.6a09bep+1"))
    return r + r * (_ONE - t * r)


def _quotient(n: Floats, nl: Floats, d: Floats, dh: Floats, dl: Floats) -> tuple[Floats, Floats]:
    """(n + nl) / (dh + dl) in two floats; d is dh + dl, rounded."""
    r = _reciprocal(d)
    h = _top(n * r)
    return h, (((n - h * dh) - h * dl) + nl) * r


@quiet
def exp(x: Floats) -> Floats:
    clean = np.where(nan_in(x), np.float32(0), x)
    clamped = np.clip(clean, np.float32(-104), np.float32(89))
    f, k = _expc(clamped, np.zeros_like(clamped))
    return _finish(x, _scale(f, k))


def _logc(x: Floats) -> tuple[Floats, Floats]:
    """log(x) = hi + lo for positive finite x (3.5)."""
    u = bits_of(x)
    subnormal = u < 0x00800000
    k0 = np.where(subnormal, -149, 0)
    ix = np.where(subnormal, bits_of(u.astype(np.float32)), u).astype(np.uint32) - np.uint32(0x3F3504F3)
    k = (ix.view(np.int32) >> 23) + k0
    m = floats_of((ix & 0x7FFFFF) + np.uint32(0x3F3504F3))
    f = m - _ONE
    fh = _top(f)
    fl = f - fh
    hh = (_HALF * fh) * fh
    hl = (_HALF * fl) * (f + fh)
    s = f - hh
    d = (f - s) - hh
    p = _horner(f, "0x1.1479aep-4", "-0x1.de0d46p-4", "0x1.e6c36ep-4", "-0x1.fc2788p-4", "0x1.233b62p-3",
                "-0x1.555c48p-3", "0x1.99a478p-3", "-0x1.000006p-2", "0x1.555548p-2")
    lo = ((f * f) * f) * p + (d - hl)
    k_float = k.astype(np.float32)
    a = k_float * _LN2_HIGH
    t = a + s
    er = np.where(k == 0, np.float32(0), (a - t) + s)
    return t, er + (lo + k_float * _LN2_LOW)


def _positive_finite(x: Floats) -> Floats:
    """|x|, and 1 for infinities, NaN and zero."""
    u = bits_of(x) & 0x7FFFFFFF
    return floats_of(np.where((u >= INF) | (u == 0), np.uint32(ONE), u))


@quiet
def log(x: Floats) -> Floats:
    u = bits_of(x)
    high, low = _logc(_positive_finite(x))
    y = bits_of(high + low)
    y = np.where(u == INF, np.uint32(INF), y)
    y = np.where((u > SIGN) | nan_in(x), np.uint32(NAN), y)
    return floats_of(np.where(u & 0x7FFFFFFF == 0, np.uint32(0xFF800000), y))


@quiet
def rsqrt_array(x: Floats) -> Floats:
    return canonical((1.0 / np.sqrt(x.astype(np.float64))).astype(np.float32))


@quiet
def tanh(x: Floats) -> Floats:
    a = _magnitude(x, 10.0)
    z = a * a
    p = _horner(z, "-0x1.750ce2p-8", "0x1.51f8cep-6", "-0x1.b835a4p-5", "0x1.1106f6p-3", "-0x1.555532p-2")
    small = a + (a * z) * p
    f, k = _expc(a + a, np.zeros_like(a))
    large = _ONE - _TWO / (f * _power_of_two(k) + _ONE)
    y = np.where(a < _f(0.625), small, large)
    y = np.where(a < _f("0x1p-12"), a, y)
    return _finish(x, with_sign_of(x, y))


def _logistic(x: Floats, parts: Parts) -> tuple[Floats, Floats]:
    """1 / (1 + e) for x >= 0 and (f + l) / (1 + e) for x < 0, with e = (f + l) * 2**k, in two floats."""
    f, low, k = parts
    w = _power_of_two(np.maximum(k, -60))
    e = f * w
    d = _ONE + e
    dh = _top(d)
    dl = ((_ONE - dh) + e) + low * w
    return _quotient(np.where(_negative(x), f, _ONE), np.where(_negative(x), low, np.float32(0)), d, dh, dl)


def _scale_negative(x: Floats, y: Floats, k: npt.NDArray[Any]) -> Floats:
    return _scale(y, np.where(_negative(x), k, 0))


@quiet
def sigmoid(x: Floats) -> Floats:
    a = _magnitude(x, 104.0)
    parts = _expe(-a, np.zeros_like(a))
    h, q = _logistic(x, parts)
    return _finish(x, _scale_negative(x, h + q, parts[2]))


def _ends(x: Floats, y: Floats, tiny: str, large: float) -> Floats:
    """y; x / 2 where |x| < tiny, x where x >= large."""
    y = np.where(_magnitude(x, 1.0) < _f(tiny), x * _HALF, y)
    return _finish(x, np.where(x >= _f(large), x, y))


@quiet
def silu(x: Floats) -> Floats:
    a = _magnitude(x, 110.0)
    parts = _expe(-a, np.zeros_like(a))
    h, q = _logistic(x, parts)
    b = np.where(_negative(x), -a, x)
    return _ends(x, _scale_negative(x, b * h + b * q, parts[2]), "0x1p-25", 32.0)


@quiet
def erf(x: Floats) -> Floats:
    a = _magnitude(x, 4.0)
    z = a * a
    p = _horner(z, "0x1.4f3dfep-14", "-0x1.a6023p-11", "0x1.5449a2p-8", "-0x1.b80116p-6", "0x1.ce2d64p-4",
                "-0x1.81274p-2", "0x1.06eba8p-3")
    tiny = a < _f("0x1p-63")
    lifted = np.where(tiny, a * _f("0x1p64"), a)
    small = _scale(lifted + lifted * p, np.where(tiny, -64, 0))
    q = _horner(a, "0x1.5d57e8p-16", "-0x1.c449fep-12", "0x1.105eccp-8", "-0x1.9ae9fep-6", "0x1.bb44d6p-4",
                "0x1.444d26p-1", "0x1.212626p+0", "-0x1.62d8aep-13")
    f, k = _expc(-q, np.zeros_like(a))
    large = np.where(a >= _f(3.921875), _ONE, _ONE - f * _power_of_two(k))
    return _finish(x, with_sign_of(x, np.where(a < _f("0x1.d8p-1"), small, large)))


@quiet
def gelu(x: Floats) -> Floats:
    a = _magnitude(x, 14.5)
    s = a + _f(2.5)
    lost = a - (s - _f(2.5))
    rr = _ONE / s
    rh, sh = _top8(rr), _top(s)
    rl = ((_ONE - rh * sh) - rh * (s - sh)) * rr
    w, wl = _ONE - _f(5.0) * rh, _f(5.0) * rl
    v = w - wl
    vl = (w - v) - wl
    p = _horner(v, "-0x1.666b2p-13", "-0x1.54748ep-12", "0x1.705d8cp-11", "0x1.4d0618p-9", "-0x1.a6007cp-10",
                "-0x1.0c95fep-6", "0x1.2eb37ap-7", "0x1.0e4fb4p-3", "-0x1.bc19cap-2")
    first = _f("0x1.69cee6p-1")
    z = p * v
    ph = z + first
    pl = ((first - ph) + z) + (p * vl - (ph * rr) * (lost + lost))
    ah = _top(a)
    al = a - ah
    f, low, k = _expe(-((_HALF * ah) * ah), -((_HALF * al) * (a + ah)))
    fh, p1 = _top8(f), _top8(ph)
    fl, p2 = (f - fh) + low, (ph - p1) + pl
    g = fh * rh
    tail = g * p1
    rest = g * p2 + (fh * rl + fl * rr) * ph
    negative = _scale(-(a * tail + a * rest), k)
    positive = x - x * ((tail + rest) * _power_of_two(np.maximum(k, -60)))
    y = _ends(x, np.where(_negative(x), negative, positive), "0x1p-26", 8.0)
    beyond = bits_of(x) > bits_of(np.array([-14.5]))[0]
    return _finish(x, np.where(beyond, np.float32(-0.0), y))


@quiet
def gelu_tanh(x: Floats) -> Floats:
    a = _magnitude(x, 11.0)
    ah = _top8(a)
    al = a - ah
    t, tl = ah * ah, al * (a + ah)
    m, ml = t * _f("0x1.24p-4"), tl * _f("0x1.2444f2p-4") + t * _f("0x1.13ca94p-14")
    c1 = _f("0x1.988454p+0")
    g = c1 + m
    b = g - c1
    gl = ((c1 - (g - b)) + (m - b)) + (ml + _f("-0x1.857936p-25"))
    g1 = _top8(g)
    g2 = (g - g1) + gl
    h, hl = ah * g1, al * g1 + a * g2
    wh = h + hl
    parts = _expe(-wh, -((h - wh) + hl))
    q, ql = _logistic(x, parts)
    c = np.where(_negative(x), -a, x)
    return _ends(x, _scale_negative(x, c * q + c * ql, parts[2]), "0x1p-26", 8.0)


_TWO_OVER_PI = np.array([0, 0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041, 0xFE5163AB,
                         0xDEBBC561, 0xB7246E3A, 0x424DD2E0, 0], dtype=np.uint64)
_HALF_PI_WORD = np.uint64(0xC90FDAA2)


def _bit_length(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Number of bits of positive integers below 2**53."""
    return np.frexp(values.astype(np.float64))[1].astype(np.int64)


def _reduce_angle(u: Words) -> tuple[Floats, Floats, npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """|x| = q * pi/2 + (-1)**sign * (rh + rl), for finite |x| > pi/4 given by its bits (3.7)."""
    m = (u & 0x7FFFFF | 0x800000).astype(np.uint64)
    p = (u >> 23).astype(np.int64) - 120
    word, shift = p >> 5, (p & 31).astype(np.uint64)
    low32 = np.uint64(0xFFFFFFFF)
    window = []
    for i in range(3):
        pair = _TWO_OVER_PI[word + i] << np.uint64(32) | _TWO_OVER_PI[word + i + 1]
        window.append(pair << shift >> np.uint64(32) & low32)
    # The top 64 of the 96 bits of m * window; 2**64 are four quadrants.
    product = (m * window[0] << np.uint64(32)) + m * window[1] + (m * window[2] >> np.uint64(32))
    quadrant = ((product >> np.uint64(32)) + np.uint64(0x20000000) & low32) >> np.uint64(30)
    rest = product - (quadrant << np.uint64(62))
    sign = rest >> np.uint64(63) != 0
    rest = np.where(sign, ~rest + np.uint64(1), rest)
    high = rest >> np.uint64(32)
    z = np.where(high == 0, 32, 0)
    low = np.where(high == 0, np.uint64(0), rest & low32)
    high = np.where(high == 0, rest & low32, high)
    n = 32 - _bit_length(high)
    high = (high << np.uint64(32) | low) << n.astype(np.uint64) >> np.uint64(32) & low32
    scaled = high * _HALF_PI_WORD
    small = scaled >> np.uint64(63) == 0
    n = np.where(small, n + 1, n)
    top = np.where(small, scaled >> np.uint64(31), scaled >> np.uint64(32)) & low32
    unit = _power_of_two(2 - n - z)
    rh = floats_of((top >> np.uint64(8)).astype(np.uint32) - np.uint32(0x800000) + np.uint32(ONE)) * unit
    rl = ((top & np.uint64(255)).astype(np.float32) * _f("0x1p-31")) * unit
    return rh, rl, quadrant.astype(np.int64), sign


def _sin_cos(x: Floats, phase: int) -> Floats:
    u = bits_of(x) & 0x7FFFFFFF
    big = (u > 0x3F490FDA) & (u < INF)
    rh, rl, q, sign = _reduce_angle(np.where(big, u, np.uint32(0x40000000)))
    rh = np.where(big, rh, floats_of(u))
    rl = np.where(big, rl, np.float32(0))
    q = np.where(big, q, 0) + phase
    sign &= big
    z2 = rh * rh
    s = _horner(z2, "0x1.7c3226p-19", "-0x1.a0595ep-13", "0x1.111174p-7", "-0x1.555556p-3")
    sine = rh + ((rh * z2) * s + (rl - rl * (_HALF * z2)))
    sine = np.where(rh < _f("0x1p-63"), rh, sine)
    c = _horner(z2, "-0x1.36147cp-22", "0x1.a071b6p-16", "-0x1.6c175ep-10", "0x1.555556p-5")
    hz = _HALF * z2
    w = _ONE - hz
    cosine = w + (((_ONE - w) - hz) + ((z2 * z2) * c - rh * rl))
    y = np.where(q & 1 == 1, bits_of(cosine), bits_of(sine) ^ np.where(sign, np.uint32(SIGN), np.uint32(0)))
    y ^= np.where(q & 2 == 2, np.uint32(SIGN), np.uint32(0))
    if phase == 0:
        y ^= bits_of(x) & SIGN
    return floats_of(np.where(u >= INF, np.uint32(NAN), y))


@quiet
def sin(x: Floats) -> Floats:
    return _sin_cos(x, 0)


@quiet
def cos(x: Floats) -> Floats:
    return _sin_cos(x, 1)


@quiet
def exp2(x: Floats) -> Floats:
    clamped = np.clip(np.where(nan_in(x), _ONE, x), np.float32(-151), np.float32(129))
    t = clamped + _MAGIC
    r = clamped - (t - _MAGIC)
    p = _horner(r, "0x1.4176c2p-13", "0x1.5f0964p-10", "0x1.3b2dd6p-7", "0x1.c6af7ap-5", "0x1.ebfbdcp-3",
                "0x1.62e43p-1")
    return _finish(x, _scale(_ONE + r * p, bits_of(t).view(np.int32) - np.int32(0x4B400000)))


@quiet
def expm1(x: Floats) -> Floats:
    clamped = np.clip(np.where(nan_in(x), _ONE, x), np.float32(-18), np.float32(89))
    t = clamped * _f("0x1.715476p+0") + _MAGIC
    k_float = t - _MAGIC
    k = bits_of(t).view(np.int32) - np.int32(0x4B400000)
    rh = clamped - k_float * _LN2_HIGH
    rl = k_float * _LN2_LOW
    r = rh - rl
    e = (rh - r) - rl
    p = _horner(r, "0x1.9df7f2p-13", "0x1.6d4cdap-10", "0x1.11131p-7", "0x1.5554e8p-5", "0x1.555554p-3", 0.5)
    p = (r * r) * p
    w = _power_of_two(-np.minimum(k, 100))
    a = _ONE - w
    lost = np.where(k < 0, _ONE - (a + w), (_ONE - a) - w)
    s = a + r
    y = _scale(s + (((a - s) + r) + (p + (e + lost))), k)
    return _finish(x, np.where(_magnitude(x, 1.0) < _f("0x1p-25"), x, y))


def _log_ends(x: Floats, y: Floats) -> Floats:
    """The logarithm y of x, and what it is at zero, infinity, NaN and below zero."""
    u = bits_of(x)
    y = np.where(u == INF, np.float32(np.inf), y)
    y = np.where((u > SIGN) | nan_in(x), floats_of([NAN])[0], y)
    return np.where(u & 0x7FFFFFFF == 0, np.float32(-np.inf), y)


def _octave_of(x: Floats) -> tuple[Floats, npt.NDArray[np.int32]]:
    """m and k with x = m * 2**k, m near 1 as in 3.5, for positive normal x."""
    ix = bits_of(x) - np.uint32(0x3F3504F3)
    return floats_of((ix & 0x7FFFFF) + np.uint32(0x3F3504F3)), ix.view(np.int32) >> 23


@quiet
def log2(x: Floats) -> Floats:
    clean = _positive_finite(x)
    tiny = clean < _f("0x1p-126")
    m, k = _octave_of(np.where(tiny, bits_of(clean).astype(np.float32), clean))
    k_float = (k + np.where(tiny, -149, 0)).astype(np.float32)
    high, low = _logc(m)
    h = high + low
    low = (high - h) + low
    a = _top(h)
    b = h - a
    p = a * _f("0x1.714p+0")
    q = a * _f("0x1.47652cp-12") + (b + low) * _f("0x1.715476p+0")
    s = k_float + p
    return _log_ends(x, s + (((k_float - s) + p) + q))


@quiet
def log1p(x: Floats) -> Floats:
    s = _ONE + x
    b = s - _ONE
    c = (_ONE - (s - b)) + (x - b)
    clean = np.where((s > 0) & (s < np.inf), s, _ONE)
    high, low = _logc(clean)
    m, k = _octave_of(clean)
    f = m - _ONE
    q = (c * _power_of_two(-np.minimum(k, 100))) * (_ONE + f * (_f("-0x1.0e1c7cp+0") + f * _f("0x1.e1ba4p-1")))
    y = _log_ends(s, high + (low + q))
    return np.where(_magnitude(x, 1.0) < _f("0x1p-24"), x, y)


#: m below, c, and the logarithm of c in two floats.
_LOG_TABLE = (("0x1.9fe5cap-1", "0x1.84p-1", "-0x1.1bf8p-2", "-0x1.9635a6p-18"),
              ("0x1.ddb22ep-1", "0x1.bep-1", "-0x1.1aap-3", "-0x1.5bf12p-18"),
              ("0x1.12617cp+0", "0x1p+0", "0x0p+0", "0x0p+0"),
              ("0x1.3b295ep+0", "0x1.26p+0", "0x1.1b7p-3", "0x1.56a97cp-18"),
              ("0x1p+1", "0x1.52p+0", "0x1.1c88p-2", "0x1.8c169ap-18"))


def _logh(x: Floats) -> tuple[Floats, Floats]:
    """log(x) = hi + lo within 2**-33 for positive finite x."""
    tiny = bits_of(x) < 0x00800000
    m, k = _octave_of(np.where(tiny, bits_of(x).astype(np.float32), x))
    k_float = (k + np.where(tiny, -149, 0)).astype(np.float32)
    below, *columns = (np.array([_f(text) for text in column]) for column in zip(*_LOG_TABLE, strict=True))
    c, ch, cl = (column[np.searchsorted(below, m, side="right")] for column in columns)
    n, d = m - c, m + c
    dh = _top(d)
    dl = (d - dh) + (m - (d - c))
    near = _f("0x1.6ap-1")
    r = _reciprocal(d * near) * near
    q = n * r
    qh = _top(q)
    ql = q - qh
    e = ((((n - qh * dh) - qh * dl) - ql * dh) - ql * dl) * r
    w = q + e
    z = w * w
    a = k_float * _LN2_HIGH + ch
    t = a + (q + q)
    low = (w * z) * (z * _f("0x1.9a132cp-2") + _f("0x1.55555p-1")) + ((e + e) + (cl + k_float * _LN2_LOW))
    return t, ((a - t) + (q + q)) + low


@quiet
def pow(x: Floats, y: Floats) -> Floats:
    h, low = _logh(_positive_finite(x))
    lh = h + low
    ll = (h - lh) + low
    yc = with_sign_of(y, _magnitude(y, 2.0**95))
    a1, b1 = _top(lh), _top(yc)
    a2, b2 = lh - a1, yc - b1
    ph = lh * yc
    pl = ((a1 * b1 - ph) + a1 * b2 + a2 * b1) + a2 * b2
    pl = pl + ll * yc
    clamped = np.clip(ph, np.float32(-110), np.float32(130))
    f, k = _expc(clamped, np.where(clamped == ph, pl, np.float32(0)))
    out = _scale(f, k)
    # The cases of C, from the last row of the contract's table to its first.
    size, wide = np.abs(x), np.where(np.isfinite(y), y, np.float32(0)).astype(np.float64)
    whole = wide == np.floor(wide)
    out = np.where((x < 0) & np.isfinite(y) & ~whole, np.float32(np.nan), out)
    grows, inf, zero = y > 0, np.float32(np.inf), np.float32(0)
    out = np.where(np.isinf(x), np.where(grows, inf, zero), out)
    out = np.where(x == 0, np.where(grows, zero, inf), out)
    out = np.where(_negative(x) & np.isfinite(y) & (np.fmod(wide, 2.0) != 0) & whole, -out, out)
    out = np.where(np.isinf(y), np.where((size > 1) == grows, inf, zero), out)
    out = np.where(np.isinf(y) & (size == 1), _ONE, out)
    out = np.where(nan_in(x) | nan_in(y), np.float32(np.nan), out)
    return np.where((y == 0) | (x == 1), _ONE, out)


def _binade_of(u: Words) -> tuple[Floats, npt.NDArray[np.int64]]:
    """f in [1, 2) and e with the magnitude u = f * 2**e; e is large and negative for zero."""
    f, e = np.frexp(floats_of(u).astype(np.float64))
    return np.where(u == 0, _ONE, (2 * f).astype(np.float32)), np.where(u == 0, -1000, e.astype(np.int64) - 1)


@quiet
def atan2(y: Floats, x: Floats) -> Floats:
    ax, ay = bits_of(x) & 0x7FFFFFFF, bits_of(y) & 0x7FFFFFFF
    swap, left = ay > ax, _negative(x)
    hi, lo = np.maximum(ax, ay), np.minimum(ax, ay)
    lo = np.where((hi == INF) & (lo != INF), np.uint32(0), lo)
    huge = np.uint32(ONE)
    b, eb = _binade_of(np.where((hi == INF) | (hi == 0), huge, hi))
    a, ea = _binade_of(np.where(lo == INF, huge, lo))
    e = np.where(lo == 0, -60, ea - eb)
    big = (e == 0) | ((e == -1) & (a > b))
    part = np.where(e == -1, a * _HALF, a)
    n, d = np.where(big, part - b, a), np.where(big, part + b, b)
    df = np.where(big, (b - d) + part, np.float32(0))
    e = np.where(big, 0, e)
    g = np.where(d >= _TWO, _HALF, _ONE)
    r = _reciprocal(d * g) * g
    h, d1 = _top(n * r), _top(d)
    low = ((n - h * d1) - h * ((d - d1) + df)) * r
    w = _power_of_two(np.maximum(e, -60))
    q = h + low
    t = q * w
    z = t * t
    p = _horner(z, "-0x1.22aa04p-5", "0x1.1c7dep-4", "-0x1.71ae4ep-4", "0x1.c741d8p-4", "-0x1.2497acp-3",
                "0x1.9999eap-3", "-0x1.555556p-2")
    low = low + q * (z * p)
    j = np.where(swap, 2 - big, big.astype(np.int64))
    j = np.where(left, 4 - j, j).astype(np.float32)
    sign = np.where(swap != left, -_ONE, _ONE)
    kh, s1 = j * _f("0x1.921fbp-1"), sign * (h * w)
    s = kh + s1
    far = s + (((kh - s) + s1) + (j * _f("0x1.5110b4p-23") + sign * (low * w)))
    out = np.where(j == 0, _scale(h + low, np.maximum(e, -200)), far)
    out = np.where(lo == 0, j * _f("0x1.921fb6p-1"), out)
    return np.where(nan_in(x) | nan_in(y), np.float32(np.nan), with_sign_of(y, out))


@quiet
def remainder(a: Floats, b: Floats) -> Floats:
    r = np.fmod(a, b)
    y = np.where(_negative(r) != _negative(b), r + b, r)
    return np.where(r == 0, with_sign_of(b, np.zeros_like(b)), y)
