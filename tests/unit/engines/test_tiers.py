"""Numerics tiers: the decision table, and that each probe finds the fault that it is named after."""

import numpy as np
import pytest

from nnk.engines.cpu import CpuEngine
from nnk.engines.tiers import PROBES, TIERS, decide, operands, probe_tensor, right_bits, wrong_probes
from nnk.numerics import VARIANTS
from tests.oracle import arith

pytestmark = pytest.mark.usefixtures("quiet_numpy")

BY_NAME = {probe.name: probe for probe in PROBES}
FLUSH = tuple(probe for probe in PROBES if probe.is_underflow)


@pytest.mark.parametrize(("promised", "wrong", "tier"), [
    ("T1", (), "T1"), ("T1'", (), "T1'"), ("T3", (), "T3"),
    ("T1", FLUSH[:1], "T2"), ("T1'", FLUSH, "T2"), ("T3", FLUSH, "T3"),
    ("T1", (BY_NAME["reassociation"],), "T3"), ("T1'", (BY_NAME["contraction to fma"],), "T3"),
    ("T1", (BY_NAME["sum rounded toward zero"],), "T3"), ("T1'", (BY_NAME["sign of a zero sum"],), "T3"),
    ("T1'", (BY_NAME["quotient"], *FLUSH), "T3"), ("T1", PROBES, "T3")])
def test_decision(promised, wrong, tier):
    assert decide(promised, wrong) == tier


def test_every_tier_has_a_variant():
    assert set(VARIANTS) == {*TIERS, "T1'"}
    assert [VARIANTS[tier] for tier in TIERS] == ["", "t2", "t3"]


def test_right_results_are_those_of_the_oracle():
    exact = {"fma": lambda x, y, z: arith.add(arith.mul(x, y), z),
             "twosum": lambda x, y, z: arith.sub(arith.add(x, y), x),
             "div": lambda x, y, z: arith.div(x, y), "sqrt": lambda x, y, z: arith.sqrt(x),
             "rsqrt": lambda x, y, z: arith.rsqrt(x)}
    for probe, bits in zip(PROBES, right_bits(), strict=True):
        x, y, z = (int(np.float32(value).view(np.uint32)) for value in (probe.x, probe.y, probe.z))
        assert arith.canonical_bits(exact[probe.kind](x, y, z)) == bits, probe.name


def test_the_cpu_engine_gives_the_right_results():
    engine = CpuEngine(threads=1)
    found = probe_tensor(*(engine.array(values) for values in operands())).numpy()
    assert wrong_probes(found.tobytes()) == ()


def test_bits_of_another_length_are_all_wrong():
    good = np.array(right_bits(), np.uint32).tobytes()
    assert wrong_probes(good) == ()
    for bits in (b"", good[:-1], good[:-4], good + bytes(4)):
        assert wrong_probes(bits) == PROBES


# ---- faulty devices, simulated

X, Y, Z, KIND = operands()
TINY = np.finfo(np.float32).tiny


def flushed(values):
    return np.where(np.abs(values) < TINY, np.copysign(np.float32(0), values), values).astype(np.float32)


def evaluated(add, mul, div=np.divide):
    results = [add(mul(X, Y), Z), add(add(X, Y), -X), div(X, Y), np.sqrt(X),
               (1.0 / np.sqrt(X.astype(np.float64))).astype(np.float32)]
    chosen = np.choose(KIND.astype(int), results).astype(np.float32)
    # Kernels store one NaN.
    return np.where(np.isnan(chosen), np.uint32(arith.NAN), chosen.view(np.uint32)).view(np.float32)


def toward(direction):
    """Return float32 add and mul with another rounding; the exact result comes from float64."""
    def rounded(exact):
        near = exact.astype(np.float32)
        off = near.astype(np.float64) > exact if direction < 0 else near.astype(np.float64) < exact
        if direction == 0:
            off = np.abs(near.astype(np.float64)) > np.abs(exact)
        return np.where(off & np.isfinite(near), np.nextafter(near, np.float32(0 if direction == 0
                                                                               else direction * np.inf)), near)

    def add(a, b):
        return rounded(a.astype(np.float64) + b.astype(np.float64)).astype(np.float32)

    def mul(a, b):
        return rounded(a.astype(np.float64) * b.astype(np.float64)).astype(np.float32)
    return add, mul


def fused():
    exact = X.astype(np.float64) * Y + Z
    return np.where(KIND == 0, exact.astype(np.float32), evaluated(np.add, np.multiply))


def reassociated():
    return np.where(KIND == 1, Y, evaluated(np.add, np.multiply))


def flush_results():
    return evaluated(lambda a, b: flushed(a + b), lambda a, b: flushed(a * b))


def flush_operands():
    return evaluated(lambda a, b: flushed(a) + flushed(b), lambda a, b: flushed(a) * flushed(b))


def late_tininess():
    # A product that rounds up to the smallest normal number is tiny only before rounding.
    return evaluated(np.add, lambda a, b: np.where(np.abs(a * b) == TINY, np.float32(0) * a, a * b))


def plus_zero():
    # x + 0 -> x and 0 - x -> -x, as compilers do that ignore the sign of zero.
    return evaluated(lambda a, b: np.where(a + b == 0, np.float32(0), a + b), np.multiply)


def minus_zero():
    return evaluated(lambda a, b: np.where(a + b == 0, np.float32(-0.0), a + b), np.multiply)


def saturated():
    largest = np.finfo(np.float32).max
    return evaluated(lambda a, b: np.clip(a + b, -largest, largest), lambda a, b: np.clip(a * b, -largest, largest))


def no_nan():
    # Products and sums with infinities that make an infinity of every NaN.
    def clean(value):
        return np.where(np.isnan(value), np.float32(np.inf), value).astype(np.float32)
    return evaluated(lambda a, b: clean(a + b), lambda a, b: clean(a * b))


def poor_quotients():
    return evaluated(np.add, np.multiply, lambda a, b: (a * (np.float32(1) / b)).astype(np.float32))


FAULTS = {
    "fused": (fused, {"contraction to fma"}),
    "reassociated": (reassociated, {"reassociation"}),
    "toward zero": (lambda: evaluated(*toward(0)), {"sum rounded toward zero", "negative sum rounded toward zero",
                                                    "negative product rounded toward zero"}),
    "up": (lambda: evaluated(*toward(1)), {"sum of a tie rounded up", "negative sum rounded toward zero"}),
    "down": (lambda: evaluated(*toward(-1)), {"sum rounded toward zero", "product of a tie rounded down"}),
    "results flushed": (flush_results, {"subnormal product flushed", "subnormal sum flushed",
                                        "subnormal difference flushed", "subnormal product rounded"}),
    "operands flushed": (flush_operands, {"subnormal factor flushed", "subnormal sum flushed"}),
    "late tininess": (late_tininess, {"tininess after rounding"}),
    "no sign of zero": (plus_zero, {"sign of a zero sum"}),
    "negative zeros": (minus_zero, {"sign of a zero difference"}),
    "saturated": (saturated, {"overflow of a product", "overflow of a sum"}),
    "no NaN": (no_nan, {"infinity times zero", "infinity minus infinity"}),
    "poor quotients": (poor_quotients, {"quotient near one"}),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_found(name):
    make, expected = FAULTS[name]
    wrong = wrong_probes(make().tobytes())
    assert {probe.name for probe in wrong} >= expected
    assert decide("T1", wrong) == ("T2" if "flushed" in name or "tininess" in name else "T3")


def test_simulation_without_a_fault_is_right():
    assert wrong_probes(evaluated(np.add, np.multiply).tobytes()) == ()


def test_every_probe_is_failed_by_a_fault():
    failed = {probe.name for make, _ in FAULTS.values() for probe in wrong_probes(make().tobytes())}
    # Roots are right wherever the seeds of division are: they share the way of correction.
    assert failed >= {probe.name for probe in PROBES if probe.kind in ("fma", "twosum")}
