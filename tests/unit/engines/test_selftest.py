"""The self-test of a device: which code it runs, what it decides, and what it remembers."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from nnk import config
from nnk.cache.selftests import load_self_test
from nnk.engines import selftest
from nnk.engines.cpu import CpuEngine
from nnk.engines.selftest import run_self_test
from nnk.engines.tiers import PROBES, right_bits
from nnk.errors import CacheError, DeviceError
from nnk.numerics import VARIANTS
from tests.fakevulkan import info_of

T1, T1_PRIME = ({"rounding_rte", "signed_zero_inf_nan_preserve", *more} for more in (("denorm_preserve",), ()))
UNDERFLOW = [number for number, probe in enumerate(PROBES) if probe.is_underflow]
OTHER = [number for number, probe in enumerate(PROBES) if not probe.is_underflow]


class Device(CpuEngine):
    """The CPU engine, with results of a faulty device: variant -> numbers of the probes that go wrong."""

    def __init__(self, folder, controls=T1_PRIME, faults=None):
        super().__init__(threads=1)
        self.info = dataclasses.replace(info_of(0, "X", "discrete", controls), driver_name="driver")
        self.cache = SimpleNamespace(path=folder / "kernels.nnk")
        self.faults = faults or {}
        self.probed = []

    def download(self, storage, out):
        self.probed.append(self.scheduler.variant)
        bits = np.array(right_bits(), np.uint32)
        bits[self.faults.get(self.scheduler.variant, [])] ^= 1
        out.view(np.uint32)[:] = bits


@pytest.fixture
def device(tmp_path):
    return lambda *arguments, **keywords: Device(tmp_path, *arguments, **keywords)


@pytest.mark.parametrize(("controls", "faults", "tier", "probed"), [
    (T1, {}, "T1", [""]), (T1_PRIME, {}, "T1'", [""]), (set(), {}, "T3", ["", "t3"]),
    (T1, {"": UNDERFLOW}, "T2", ["", "t2"]), (T1_PRIME, {"": UNDERFLOW[:1]}, "T2", ["", "t2"]),
    (T1, {"": OTHER}, "T3", ["", "t3"]), ({"rounding_rte"}, {"": UNDERFLOW}, "T3", ["", "t3"]),
    (T1, {"": UNDERFLOW, "t2": UNDERFLOW[:1]}, "T3", ["", "t2", "t3"])])
def test_fastest_right_tier(controls, faults, tier, probed, device):
    engine = device(controls, faults)
    found = run_self_test(engine)
    assert (found.tier, found.decided, engine.scheduler.variant) == (tier, tier, VARIANTS[tier])
    assert engine.probed == probed
    assert set(found.results) == set(probed)


@pytest.mark.parametrize(("wanted", "tier", "probed"), [
    ("auto", "T1'", [""]), ("T1", "T1'", [""]), ("T2", "T2", ["", "t2"]), ("T3", "T3", ["", "t3"])])
def test_a_slower_tier_is_taken_when_asked_for(wanted, tier, probed, device):
    engine = device()
    with config.override(tier=wanted):
        found = run_self_test(engine)
    assert (found.tier, found.decided, engine.scheduler.variant) == (tier, "T1'", VARIANTS[tier])
    assert engine.probed == probed


@pytest.mark.parametrize(("wanted", "faults", "needed"), [
    ("T1", {"": UNDERFLOW}, "T2"), ("T1", {"": OTHER}, "T3"), ("T2", {"": OTHER}, "T3")])
def test_a_faster_tier_is_refused(wanted, faults, needed, device):
    engine = device(T1_PRIME, faults)
    text = rf"Expected tier {wanted} on X because NNK_TIER is {wanted}, got a device that needs {needed}: .*fails " \
           rf".*{PROBES[faults[''][0]].name}.*; use NNK_TIER=auto"
    with config.override(tier=wanted), pytest.raises(DeviceError, match=text):
        run_self_test(engine)


def test_a_device_that_promises_nothing_is_not_forced(device):
    with config.override(tier="T1"), pytest.raises(DeviceError, match=r"needs T3.* promise T3, .* fails no probe"):
        run_self_test(device(set()))


@pytest.mark.parametrize("wanted", ["auto", "T2", "T3"])
def test_a_device_that_no_tier_saves_is_refused(wanted, device):
    faults = dict.fromkeys(("", "t2", "t3"), OTHER[:2])
    text = rf"Expected exact float32 arithmetic on X \(driver\) in tier T3, found: {PROBES[0].name}, {PROBES[1].name};"
    with config.override(tier=wanted), pytest.raises(DeviceError, match=text + " use the CPU engine"):
        run_self_test(device(T1, faults))


# ---- memory

def test_the_second_start_runs_nothing(device):
    first, second = device(), device()
    run_self_test(first)
    found = run_self_test(second)
    assert (first.probed, second.probed) == ([""], [])
    assert (found.tier, found.remembered) == ("T1'", {""})


def test_a_remembered_fault_is_a_fault(device):
    run_self_test(device(T1, {"": UNDERFLOW}))
    again = device(T1)
    assert run_self_test(again).tier == "T2"
    assert again.probed == []


def test_a_refusal_is_remembered(device):
    faults = dict.fromkeys(("", "t3"), OTHER[:1])
    for probed in (["", "t3"], []):
        engine = device(T1, faults)
        with pytest.raises(DeviceError, match="use the CPU engine"):
            run_self_test(engine)
        assert engine.probed == probed


def test_properties_are_never_remembered(device):
    run_self_test(device(T1))
    later = device(set())
    assert run_self_test(later).tier == "T3"
    assert later.probed == ["t3"]


@pytest.mark.parametrize("change", [{"driver_version": "2"}, {"driver_name": "other"}, {"uuid": "f" * 32},
                                    {"pipeline_cache_uuid": "1" * 32}])
def test_another_driver_or_device_is_tested_anew(change, device):
    run_self_test(device())
    other = device()
    other.info = dataclasses.replace(other.info, **change)
    run_self_test(other)
    assert other.probed == [""]


@pytest.mark.parametrize("name", ["GENERATOR_VERSION", "CONTRACT_VERSION", "PROBES"])
def test_another_suite_is_run_anew(name, device, monkeypatch):
    run_self_test(device())
    value = getattr(selftest, name)
    monkeypatch.setattr(selftest, name, value[:-1] if name == "PROBES" else value + 1)
    later = device()
    run_self_test(later)
    assert later.probed == [""]


def test_a_damaged_file_is_no_file(device, tmp_path):
    run_self_test(device())
    (path,) = tmp_path.glob("selftest-*")
    path.write_bytes(path.read_bytes()[:-1])
    later = device()
    assert run_self_test(later).tier == "T1'"
    assert later.probed == [""]
    assert run_self_test(device()).remembered == {""}


def test_a_folder_that_cannot_be_written_is_no_error(device, monkeypatch, caplog):
    def fail(*_):
        raise CacheError("disk full")
    monkeypatch.setattr(selftest, "save_self_test", fail)
    with caplog.at_level("INFO", "nnk.engines"):
        assert run_self_test(device()).tier == "T1'"
    assert "the self-test is not kept: disk full" in caplog.text


def test_evidence(device):
    engine = device(T1, {"": UNDERFLOW[:1]})
    facts = run_self_test(engine).as_dict()
    assert facts == {
        "tier": "T2", "decided_tier": "T2", "promised_tier": "T1", "self_tests": {
            "native": {"probes": len(PROBES), "wrong": [PROBES[UNDERFLOW[0]].name], "remembered": False},
            "t2": {"probes": len(PROBES), "wrong": [], "remembered": False}}, "refused_kernels": 0}


def test_refused_kernels_are_remembered_beside_the_results(device):
    """By later processes, with what others found meanwhile, and for this driver alone."""
    first, second = device(), device()
    for engine in (first, second):
        engine.self_test = run_self_test(engine)
    selftest.remember_refusal(first, b"a" * 16)
    selftest.remember_refusal(second, b"b" * 16)
    third = device()
    found = run_self_test(third)
    assert (found.refused, found.as_dict()["refused_kernels"]) == ({b"a" * 16, b"b" * 16}, 2)
    assert (found.results, third.probed) == (first.self_test.results, [])
    other = device()
    other.info = dataclasses.replace(other.info, driver_version="2")
    assert run_self_test(other).refused == set()


def test_the_opened_device_has_passed(vulkan):
    found = vulkan.self_test
    assert vulkan.tier == found.tier in ("T1", "T1'")
    path = selftest.self_test_path(vulkan.cache.path, bytes.fromhex(vulkan.info.uuid),
                                   f"{vulkan.info.driver_name} {vulkan.info.driver_version} "
                                   f"{vulkan.info.pipeline_cache_uuid}")
    kept = load_self_test(path, bytes.fromhex(vulkan.info.uuid), f"{vulkan.info.driver_name} "
                          f"{vulkan.info.driver_version} {vulkan.info.pipeline_cache_uuid}", selftest._suite_of())
    assert kept in ({}, found.results)
    assert run_self_test(vulkan).tier == found.tier
