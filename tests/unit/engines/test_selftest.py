"""The self-test of a device: every probe finds the fault that it is named after."""

import dataclasses

import numpy as np
import pytest

from nnk.engines.cpu import CpuEngine
from nnk.engines.selftest import PROBES, check_device
from nnk.errors import DeviceError

X, Y, Z, KIND = (np.array([row[column] for row in PROBES], np.float32) for column in (2, 3, 4, 1))
TINY = np.finfo(np.float32).tiny


def flushed(values):
    """Return the values as a device that flushes subnormals sees them."""
    return np.where(np.abs(values) < TINY, np.copysign(np.float32(0), values), values).astype(np.float32)


def fused():
    return np.where(KIND == 1, X.astype(np.float64) * Y + Z, (X + Y) - X).astype(np.float32)


def reassociated():
    return np.where(KIND == 1, X * Y + Z, Y)


def flush_everything():
    return np.where(KIND == 1, flushed(flushed(flushed(X) * flushed(Y)) + Z),
                    flushed(flushed(flushed(X) + flushed(Y)) - flushed(X)))


def late_tininess():
    # The product of the last probe rounds up to the smallest normal number: it is tiny only before rounding.
    product = X * Y
    return np.where(KIND == 1, product + Z, (X + Y) - X) * np.where(product == TINY, np.float32(0), np.float32(1))


class Device(CpuEngine):
    """The CPU engine, which passes, or results of a faulty device instead."""

    def __init__(self, info, results=None):
        super().__init__()
        self.info = info
        self.results = results

    def download(self, storage, out):
        if self.results is None:
            super().download(storage, out)
        else:
            out[:] = self.results


@pytest.fixture
def info(vulkan):
    return vulkan.info


def test_exact_device_passes(info):
    check_device(Device(info))


@pytest.mark.parametrize(("results", "found"), [
    (fused, {"contraction to fma"}), (reassociated, {"reassociation"}),
    (flush_everything, {"subnormal product flushed", "subnormal factor flushed", "subnormal sum flushed"}),
    (late_tininess, {"tininess after rounding"})])
def test_faulty_device_is_named(results, found, info):
    with np.errstate(all="ignore"):
        device = Device(info, results())
    with pytest.raises(DeviceError, match=r"Expected exact float32 arithmetic on .*; use the CPU engine") as caught:
        check_device(device)
    named = set(str(caught.value).split("found: ")[1].split(";")[0].split(", "))
    assert named >= found


def test_every_probe_is_needed():
    """Each has a right result that differs from what its fault gives."""
    with np.errstate(all="ignore"):
        right = np.where(KIND == 1, X * Y + Z, (X + Y) - X).view(np.uint32)
        faults = [results().astype(np.float32).view(np.uint32) for results in
                  (fused, reassociated, flush_everything, late_tininess)]
    for number, row in enumerate(PROBES):
        assert any(fault[number] != right[number] for fault in faults), row[0]


def test_lowest_tier_is_refused(info):
    device = Device(info)
    device.info = dataclasses.replace(info, float_controls=frozenset())
    assert device.info.tier == "T3"
    with pytest.raises(DeviceError, match="rounds float32 to nearest even"):
        check_device(device)


def test_the_opened_device_has_passed(vulkan):
    check_device(vulkan)
