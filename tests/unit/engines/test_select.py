"""The choice of an engine."""

import subprocess
import sys
import textwrap
import warnings

import pytest

import nnk
from nnk import config
from nnk.engines import select
from nnk.engines.cpu import CpuEngine
from nnk.errors import ConfigError, DeviceError, NoDeviceError, PerformanceWarning


def run(code, **environment):
    """Run Python in a process of its own; return what it printed."""
    import os
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False,
                          env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def no_vulkan(monkeypatch):
    """Make this process find no Vulkan device, and forget what it was told."""
    def nothing(*_):
        raise NoDeviceError("No Vulkan device found", hints=["install a driver"])
    monkeypatch.setattr("nnk.vk.instance.select", nothing)
    monkeypatch.setattr("nnk.vk.instance.physical_devices", nothing)
    monkeypatch.setattr(select, "_told_about_cpu", False)


def test_names(vulkan, cpu):
    assert nnk.engine("cpu") is cpu
    assert nnk.engine("vulkan") is vulkan
    assert nnk.engine(vulkan.name) is vulkan
    assert nnk.engine(vulkan.device_name[:6].lower()) is vulkan
    assert nnk.engine(vulkan) is vulkan
    assert nnk.engine("auto") is nnk.engine() is nnk.engine(None) is vulkan


def test_own_engines_pass_through():
    engine = CpuEngine()
    assert nnk.engine(engine) is engine
    assert nnk.array([1.0], engine=engine).engine is engine


@pytest.mark.parametrize("name", ["no such device", "vulkan:99", "vulkan:x", ""])
def test_unknown_names(name, vulkan):
    with pytest.raises(NoDeviceError) as caught:
        nnk.engine(name)
    assert vulkan.device_name in str(caught.value) or caught.value.hints


@pytest.mark.parametrize("device", [3, 1.5, b"cpu", ["cpu"]])
def test_a_device_is_a_name(device):
    with pytest.raises(NoDeviceError, match="Expected an engine or the name of a device, got"):
        nnk.engine(device)


def test_setting_names_the_device(cpu):
    with config.override(device="cpu"):
        assert nnk.engine() is nnk.engine("auto") is cpu
    with config.override(device="no such device"), pytest.raises(NoDeviceError, match="no such device"):
        nnk.engine()


def test_automatic_choice_without_vulkan_says_so_once(no_vulkan, cpu):
    with pytest.warns(PerformanceWarning, match="nnk runs on the CPU engine: No Vulkan device found"):
        assert nnk.engine("auto") is cpu
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert nnk.engine("auto") is cpu


def test_automatic_choice_passes_over_a_device_that_fails(monkeypatch, cpu):
    opened = []

    def fails(name, numerics):
        opened.append(name)
        raise DeviceError("Expected exact float32 arithmetic on X, found: reassociation")
    monkeypatch.setattr(select, "_vulkan_engine", fails)
    monkeypatch.setattr(select, "_told_about_cpu", False)
    with pytest.warns(PerformanceWarning, match="found: reassociation"):
        assert nnk.engine("auto") is cpu
    assert nnk.engine("auto") is cpu
    assert opened == ["vulkan"]
    with pytest.raises(DeviceError, match="reassociation"):
        nnk.engine("vulkan")


def test_numerics_are_part_of_an_engine(vulkan, cpu):
    fast = nnk.engine("vulkan", numerics="fast")
    assert (vulkan.numerics, fast.numerics) == ("exact", "fast")
    assert fast is not vulkan
    assert nnk.engine(vulkan.name, numerics="fast") is fast
    assert nnk.engine("vulkan", numerics="exact") is nnk.engine("vulkan") is vulkan
    with config.override(numerics="fast"):
        assert nnk.engine("vulkan") is nnk.engine() is fast
        assert nnk.engine("vulkan", numerics="exact") is vulkan
        assert nnk.engine(vulkan) is vulkan
    assert nnk.engine(fast, numerics="fast") is fast
    with pytest.raises(DeviceError, match=r"Expected an engine of fast numerics, got <nnk engine .*which is exact"):
        nnk.engine(vulkan, numerics="fast")
    with pytest.raises(ConfigError, match="Expected numerics exact or fast for an engine, got 'quick'"):
        nnk.engine("vulkan", numerics="quick")


def test_the_cpu_engine_is_always_exact(cpu):
    assert nnk.engine("cpu", numerics="fast") is nnk.engine(cpu, numerics="fast") is cpu
    with config.override(numerics="fast"):
        assert nnk.engine("cpu") is cpu
    assert cpu.numerics == "exact"


def test_the_tier_is_part_of_an_engine(vulkan):
    with config.override(tier="T1"):
        again = nnk.engine("vulkan")
        assert (again is vulkan, again.tier) == (False, vulkan.tier)


def test_an_exact_engine_is_asked_for(vulkan, cpu):
    assert select.exact_engine("vulkan", "a test") is vulkan
    with config.override(numerics="fast"):
        assert select.exact_engine("cpu", "a test") is cpu
        with pytest.raises(ConfigError, match=r"Expected exact numerics for a test, got fast, .*unset NNK_NUMERICS"):
            select.exact_engine("vulkan", "a test")


def test_vulkan_without_a_device_is_an_error(no_vulkan):
    for call in (lambda: nnk.engine("vulkan"), nnk.devices):
        with pytest.raises(NoDeviceError) as caught:
            call()
        assert caught.value.hints == ["install a driver"]


def test_counts(cpu):
    assert select.counts_of(cpu) == {"compiled": 0, "hits": 0}


def test_forgotten_engines_are_closed_and_made_anew():
    lines = run("""
        import nnk
        from nnk.engines.select import forget_engines
        first = nnk.engine("cpu")
        forget_engines()
        print(nnk.engine("cpu") is first, nnk.array([2.0], engine="cpu").tolist())
        """)
    assert lines == ["False [2.0]"]


def test_one_engine_for_all_threads():
    lines = run("""
        import threading, nnk
        found, start = [], threading.Barrier(8)
        def ask():
            start.wait()
            found.append(nnk.engine("cpu"))
        threads = [threading.Thread(target=ask) for _ in range(8)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        print(len(found), len(set(map(id, found))))
        """)
    assert lines == ["8 1"]


def test_a_forked_child_runs_on_the_cpu(vulkan):
    """Drivers do not survive a fork; "auto" says so once and goes on without one."""
    lines = run("""
        import os, sys, warnings, nnk
        parent = nnk.engine("vulkan")
        print((nnk.array([1.0], engine=parent) + 1.0).tolist(), flush=True)
        child = os.fork()
        if child == 0:
            try:
                nnk.engine("vulkan")
            except nnk.errors.NoDeviceError as error:
                print(any("spawn" in hint for hint in error.hints))
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                own = nnk.engine("auto")
            print(own.name, (nnk.array([1.0], engine=own) + 2.0).tolist(), [w.category.__name__ for w in caught],
                  flush=True)
            os._exit(0)
        print(os.waitpid(child, 0)[1], (nnk.array([1.0], engine=parent) + 3.0).tolist())
        """)
    assert lines == ["[2.0]", "True", "cpu [3.0] ['PerformanceWarning']", "0 [4.0]"]
