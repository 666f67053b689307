"""The Vulkan engine: cache hits and misses, what a kernel key covers, and clear refusals."""

import dataclasses
import logging
import struct

import numpy as np
import pytest

import nnk
from nnk import config
from nnk.cache.store import KernelCache
from nnk.engines.gpu import GpuEngine
from nnk.engines.parity import special_values
from nnk.errors import CacheError, DeviceError, LimitError, OutOfDeviceMemoryError, VulkanError
from nnk.generator.compile import compile_kernel
from nnk.generator.version import GENERATOR_VERSION

pytestmark = pytest.mark.usefixtures("quiet_numpy")


@pytest.fixture
def open_engine(vulkan, tmp_path):
    """Return a function that opens an engine over a cache file of this test; all are closed at the end."""
    engines = []

    def make(name="kernels.nnk"):
        engines.append(GpuEngine(vulkan.info, KernelCache(tmp_path / name, generator_version=GENERATOR_VERSION)))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


def work(engine):
    x = engine.array(special_values((7, 12), 1))
    return nnk.digest(nnk.softmax(nnk.gelu(x @ x.T)))


def test_first_engine_compiles_and_the_second_hits(open_engine):
    first = open_engine()
    want = work(first)
    first.cache.flush()
    second = open_engine()
    assert work(second) == want
    assert len(first.kernels.compiled) == 2
    assert (first.kernels.hits, second.kernels.compiled) == ([], [])
    assert second.kernels.hits == first.kernels.compiled


def test_each_kernel_is_looked_up_once(open_engine):
    engine = open_engine()
    for scale in (2.0, 3.0, 4.0):
        (engine.array([scale]) * scale + 1.0).eval()
    assert len(engine.kernels.compiled) == 1
    assert len(engine._plans) == 2


def test_entry_with_another_interface_is_compiled_again(open_engine, caplog):
    """SPIR-V of another kernel under the right key and identity must not be run."""
    engine = open_engine()
    x = engine.array(np.arange(6, dtype=np.float32))
    wanted = engine.schedule([x * x[::-1] + 1.0])[0].steps[0]
    other = engine.schedule([nnk.erf(x)])[0].steps[0]
    engine.cache.put(wanted.key, engine.compile(other), identity=wanted.identity)
    with caplog.at_level(logging.WARNING, "nnk.engines"):
        got = (x * x[::-1] + 1.0).numpy()
    assert np.array_equal(got, x.numpy() * x.numpy()[::-1] + 1)
    assert wanted.key in engine.kernels.compiled
    assert "is not usable and is compiled again" in caplog.text


def seen_by_the_driver(engine, monkeypatch):
    """Return the list of modules that the engine builds from now on."""
    modules, build = [], engine.device.build_kernel

    def watched(module, meta):
        modules.append(module)
        return build(module, meta)

    monkeypatch.setattr(engine.device, "build_kernel", watched)
    return modules


def without_the_end(module):
    return module[:-4]


def without_a_memory_model(module):
    at = module.index(struct.pack("<3I", 3 << 16 | 14, 0, 1))
    return module[:at] + module[at + 12:]


def with_group_votes(module):
    return module[:20] + struct.pack("<2I", 2 << 16 | 17, 62) + module[20:]


@pytest.mark.parametrize("change", [without_the_end, without_a_memory_model, with_group_votes])
def test_module_that_is_wrong_never_reaches_the_driver(open_engine, monkeypatch, change):
    """Under the right key and identity, with a right check: the cache cannot know, the look at the module can."""
    engine = open_engine()
    monkeypatch.setattr(engine, "info", dataclasses.replace(engine.info, subgroup_operations=0))
    x = engine.array([1.0, 2.0])
    step = engine.schedule([x + 1.0])[0].steps[0]
    bad = change(engine.compile(step))
    engine.cache.put(step.key, bad, identity=step.identity)
    engine.cache.flush()
    built = seen_by_the_driver(engine, monkeypatch)
    assert (x + 1.0).tolist() == [2.0, 3.0]
    assert len(built) == 1
    assert bad not in built
    assert engine.kernels.compiled[-1] == step.key
    assert engine.cache.stats().damaged == 1
    engine.cache.flush()
    assert engine.cache.stats().healed == 1
    assert open_engine().cache.get(step.key, identity=step.identity) == built[0]


def test_entry_without_an_identity_is_a_miss(open_engine):
    """Nothing says that it is this kernel."""
    engine = open_engine()
    x = engine.array([1.0, 2.0])
    step = engine.schedule([x + 1.0])[0].steps[0]
    engine.cache.put(step.key, compile_kernel(engine.schedule([x - 1.0])[0].steps[0].spec, "other"))
    assert (x + 1.0).tolist() == [2.0, 3.0]
    assert step.key in engine.kernels.compiled


def test_entry_with_another_identity_is_a_miss(open_engine):
    engine = open_engine()
    x = engine.array([1.0, 2.0])
    step = engine.schedule([x + 1.0])[0].steps[0]
    engine.cache.put(step.key, engine.compile(engine.schedule([x - 1.0])[0].steps[0]), identity=bytes(16))
    assert (x + 1.0).tolist() == [2.0, 3.0]
    assert step.key in engine.kernels.compiled


def filled(open_engine):
    """Return an engine over a warm cache, a tensor to compute, and the key of its one kernel."""
    first = open_engine()
    (first.array([1.0, 2.0]) + 1.0).eval()
    first.close()
    engine = open_engine()
    tensor = engine.array([1.0, 2.0]) + 1.0
    return engine, tensor, engine.schedule([tensor])[0].steps[0]


NO = VulkanError("no", call="vkCreateComputePipelines", result="VK_ERROR_UNKNOWN (-13)")
FULL = OutOfDeviceMemoryError("full", call="vkCreateComputePipelines", result="VK_ERROR_OUT_OF_DEVICE_MEMORY (-2)")


def refusing(engine, monkeypatch, refusals, error):
    """Let the driver refuse a number of modules; return the list of all that it gets."""
    modules, build = [], engine.device.build_kernel

    def refuse(module, meta):
        modules.append(module)
        if len(modules) <= refusals:
            raise error
        return build(module, meta)

    monkeypatch.setattr(engine.device, "build_kernel", refuse)
    return modules


def test_entry_that_the_driver_rejects_is_compiled_once_again(open_engine, monkeypatch, caplog):
    engine, tensor, step = filled(open_engine)
    modules = refusing(engine, monkeypatch, 1, NO)
    with caplog.at_level(logging.WARNING, "nnk.engines"):
        assert tensor.tolist() == [2.0, 3.0]
    assert len(modules) == 2
    assert "is rejected and compiled again" in caplog.text
    assert engine.kernels.compiled == [step.key]
    engine.cache.flush()
    assert (engine.cache.stats().damaged, engine.cache.stats().healed) == (1, 1)


def test_driver_that_rejects_every_module_is_an_error(open_engine, monkeypatch):
    """The cached one, the new one, and that of tier T2."""
    engine, tensor, _ = filled(open_engine)
    modules = refusing(engine, monkeypatch, 9, NO)
    with pytest.raises(VulkanError):
        tensor.eval()
    assert len(modules) == len(set(modules)) + 1 == 3
    assert engine.self_test.refused == set()


def test_kernel_that_the_driver_refuses_runs_with_the_code_of_t2(open_engine, monkeypatch, caplog):
    """With the same bits, a warning that names it, and without another try by the next process."""
    def compute(engine):
        return nnk.digest(engine.array(special_values((3, 40), 1)) * 3.0 - 1.0)

    want = compute(open_engine("other.nnk"))
    first = open_engine()
    modules = refusing(first, monkeypatch, 1, NO)
    with caplog.at_level(logging.WARNING, "nnk.engines"):
        assert compute(first) == want
        key, slower = first.kernels.compiled
        assert compute(first) == want
    assert (len(modules), slower) == (2, key + "#t2")
    assert [record.getMessage() for record in caplog.records] == [
        f"kernel {key} is refused by the driver and runs with the code of tier T2: {NO}"]
    first.close()
    caplog.clear()
    second = open_engine()
    built = seen_by_the_driver(second, monkeypatch)
    with config.override(expect_hit=True):
        assert compute(second) == want
    assert (built, second.kernels.compiled, second.kernels.hits) == (modules[1:], [], [slower])
    assert second.self_test.as_dict()["refused_kernels"] == 1
    assert caplog.text == ""


@pytest.mark.parametrize(("tier", "numerics"), [("T2", "exact"), ("T3", "exact"), ("auto", "fast")])
def test_other_code_than_that_of_t1_is_not_replaced(tier, numerics, open_engine, monkeypatch):
    with config.override(tier=tier, numerics=numerics):
        engine = open_engine()
    modules = refusing(engine, monkeypatch, 9, NO)
    with pytest.raises(VulkanError):
        (engine.array([1.0, 2.0]) * 3.0).eval()
    assert len(modules) == 1


def test_device_without_memory_has_refused_nothing(open_engine, monkeypatch):
    engine = open_engine()
    modules = refusing(engine, monkeypatch, 1, FULL)
    with pytest.raises(OutOfDeviceMemoryError):
        (engine.array([1.0, 2.0]) * 3.0).eval()
    assert (len(modules), engine.self_test.refused) == (1, set())


def test_device_without_memory_says_nothing_about_the_entry(open_engine, monkeypatch):
    engine, tensor, step = filled(open_engine)
    modules = refusing(engine, monkeypatch, 1, FULL)
    with pytest.raises(OutOfDeviceMemoryError):
        tensor.eval()
    assert len(modules) == 1
    assert engine.cache.has(step.key, identity=step.identity)
    assert tensor.tolist() == [2.0, 3.0]
    assert engine.kernels.compiled == []


def test_expected_hit(open_engine):
    engine = open_engine()
    x = engine.array([1.0])
    text = "because NNK_EXPECT_HIT is set, got a miss; warm the cache up first"
    with config.override(expect_hit=True), pytest.raises(CacheError, match=text):
        (x * 7.0 / 3.0).numpy()
    assert (x * 7.0 / 3.0).item() == np.float32(7) / np.float32(3)


def test_warm_cache_is_enough_for_a_process_that_expects_hits(open_engine):
    """The engine's own self-test included."""
    filled(open_engine)
    with config.override(expect_hit=True):
        engine = open_engine()
        assert (engine.array([1.0, 2.0]) + 1.0).tolist() == [2.0, 3.0]
    assert engine.kernels.compiled == []


def test_read_only_engine_writes_nothing(open_engine, tmp_path, monkeypatch):
    """No kernel, no mark, no pipelines, although it needs a new kernel."""
    filled(open_engine)[0].close()

    def state():
        return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in tmp_path.iterdir()}

    before = state()
    with config.override(cache_readonly=True):
        engine = open_engine()
        assert ((engine.array([1.0, 2.0]) + 1.0) * 5.0 - 2.0).tolist() == [8.0, 13.0]
        assert len(engine.kernels.compiled) == 1
        blob = engine.device.pipeline_cache_data() + b"more"
        monkeypatch.setattr(engine.device, "pipeline_cache_data", lambda: blob)
        engine.close()
    assert state() == before


def test_explained_miss(vulkan, tmp_path, caplog):
    with config.override(explain=True):
        engine = GpuEngine(vulkan.info, KernelCache(tmp_path / "k.nnk", generator_version=GENERATOR_VERSION))
    try:
        with caplog.at_level(logging.INFO, "nnk.engines"):
            (engine.array([1.0]) + 1.0).eval()
        assert "miss of plan v" in caplog.text
        for part in ("generator_version", "instrs", "views", "const_count"):
            assert part in caplog.text
    finally:
        engine.close()


def test_closed_engine_refuses(open_engine):
    engine = open_engine()
    x = engine.array([1.0])
    engine.close()
    for call in (lambda: engine.array([1.0]), x.numpy, (x + 1.0).numpy):
        with pytest.raises(DeviceError, match="closed"):
            call()
    engine.close()


def test_refused_kernel_names_the_limit_and_the_remedy(vulkan, monkeypatch):
    monkeypatch.setattr(vulkan, "_loop_limit", 10)
    x = vulkan.array(np.ones((3, 5000), np.float32))
    with pytest.raises(LimitError, match=r"at most 10 loop iterations .* got 3 x 5000 .*Use the CPU engine") as caught:
        x.sum(-1).numpy()
    assert (caught.value.limit, caught.value.maximum) == ("loop iterations", 10)
    monkeypatch.setattr(vulkan, "_loop_limit", 0)
    assert x.sum(-1).tolist() == [5000.0] * 3


def test_group_count_is_capped_and_changes_no_bit(vulkan, cpu, monkeypatch):
    """Kernels stride over their work by the number of groups that they get."""
    builds = [lambda e: e.array(special_values((70, 130), 1)) * 2.0 + 1.0,
              lambda e: e.array(special_values((70, 130), 1)).T * 2.0,
              lambda e: nnk.softmax(e.array(special_values((70, 130), 1))),
              lambda e: e.array(special_values((200, 30), 1)) @ e.array(special_values((30, 130), 2))]
    for build in builds:
        want = nnk.digest(build(cpu))
        for groups in (1, 2, 3):
            real = vulkan.device.dispatch
            calls = []

            def dispatch(plan, inputs, outputs, words, count, real=real, groups=groups, calls=calls):
                calls.append(count)
                real(plan, inputs, outputs, words, min(count, groups))

            monkeypatch.setattr(vulkan.device, "dispatch", dispatch)
            assert nnk.digest(build(vulkan)) == want
            monkeypatch.undo()
            assert max(calls) > 1


def test_results_are_read_while_more_work_is_queued(vulkan):
    x = vulkan.array(np.ones(1000, np.float32))
    kept = []
    for n in range(200):
        x = (x + 1.0).eval()
        if n % 50 == 0:
            kept.append((n, x))
    assert [value.numpy()[0] for _, value in kept] == [n + 2.0 for n, _ in kept]
    vulkan.synchronize()
    assert x.numpy()[-1] == 201.0


def test_empty_buffers(vulkan):
    empty = vulkan.array(np.zeros((0, 3), np.float32))
    assert empty.numpy().shape == (0, 3)
    assert (empty + 1.0).numpy().shape == (0, 3)
    assert empty.sum(0).tolist() == [0.0] * 3
