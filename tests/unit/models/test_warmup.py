"""model_warmup: the report, one write, and hits in the next process."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnk
from nnk.cache.store import KernelCache
from nnk.engines.cpu import CpuEngine
from nnk.engines.gpu import GpuEngine
from nnk.engines.select import vulkan_devices
from nnk.errors import CacheWarning, ExprError
from nnk.generator.version import GENERATOR_VERSION
from nnk.models.warmup import WarmupReport, model_warmup
from tests.commands import python

SAMPLE = np.ones((4, 8), np.float32)


@pytest.fixture
def fresh(cache_dir: Path) -> Iterator[Any]:
    """A Vulkan engine of its own on an empty cache; its start-up kernel is written already."""
    engine = GpuEngine(vulkan_devices()[0], KernelCache(generator_version=GENERATOR_VERSION))
    engine.cache.flush()
    yield engine
    engine.close()


def three_kernels(x: Any) -> list[Any]:
    return [nnk.softmax(x * 2), {"sum": (nnk.tanh(x) + x,)}, x @ x.T]


def test_report(fresh: Any) -> None:
    before = fresh.cache.stats().flushes
    report = model_warmup(three_kernels, fresh.array(SAMPLE))
    assert isinstance(report, WarmupReport)
    assert report.compiled == 3
    assert report.hits == 0
    assert len(set(report.keys)) == 3
    for key in report.keys:
        assert re.match(rf"v{GENERATOR_VERSION}\.[0-9a-f]{{16}}", key)
        assert key in fresh.cache
    assert report.device == fresh.device_name
    assert 0 < report.seconds < 60
    assert fresh.cache.stats().flushes == before + 1
    assert fresh.cache.stats().pending == 0


def test_second_warmup_compiles_nothing(fresh: Any) -> None:
    model_warmup(three_kernels, fresh.array(SAMPLE))
    before = fresh.cache.stats().flushes
    report = model_warmup(three_kernels, fresh.array(SAMPLE))
    assert (report.compiled, report.hits, report.keys) == (0, 0, ())
    assert fresh.cache.stats().flushes == before


def test_next_engine_finds_all(fresh: Any) -> None:
    first = model_warmup(three_kernels, fresh.array(SAMPLE))
    again = GpuEngine(vulkan_devices()[0], KernelCache(generator_version=GENERATOR_VERSION))
    report = model_warmup(three_kernels, again.array(SAMPLE))
    assert (report.compiled, report.hits) == (0, first.compiled)
    assert again.kernels.compiled == []
    again.close()


IN_A_PROCESS = """
import json, sys
import numpy as np, nnk
engine = nnk.engine("vulkan")
report = nnk.model_warmup(lambda x: nnk.gelu(x @ x) + 1, engine.array(np.ones((4, 4), np.float32)))
print(json.dumps({"compiled": report.compiled, "hits": report.hits, "flushes": engine.cache.stats().flushes,
                  "all": len(engine.kernels.compiled)}))
"""


def test_second_process_compiles_nothing() -> None:
    first, second = (json.loads(python(IN_A_PROCESS).stdout) for _ in range(2))
    assert (first["compiled"], first["hits"]) == (1, 0)
    assert second == {"compiled": 0, "hits": 1, "flushes": 0, "all": 0}


class Model:
    """A model that names its engine."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine

    def __call__(self, values: list[float]) -> Any:
        return self.engine.array(values) * 3


def test_engine_of_the_model(fresh: Any) -> None:
    assert model_warmup(Model(fresh), [1.0, 2.0]).device == fresh.device_name
    assert len(fresh.kernels.compiled) == 1


def test_engine_of_the_sample(fresh: Any) -> None:
    report = model_warmup(lambda batch: batch["x"][0] + 7, {"x": [fresh.array([1.0])]})
    assert (report.compiled, report.device) == (1, fresh.device_name)


def test_default_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNK_DEVICE", "cpu")
    nnk.config.reset()
    seen = []
    report = model_warmup(lambda text: seen.append(text), "a text")
    assert seen == ["a text"]
    assert (report.compiled, report.hits, report.keys, report.device) == (0, 0, (), "CPU")


class Car:
    """A model of another library, which uses the name for something else."""

    engine = "diesel"

    def __call__(self, x: Any) -> Any:
        return x + 1


def test_engine_attribute_of_another_kind(cpu: Any) -> None:
    assert model_warmup(Car(), cpu.array([1.0])).device == "CPU"


def test_results_that_need_no_kernel(cpu: Any) -> None:
    from nnk.expr.node import constant
    report = model_warmup(lambda x: (x, constant(1.0), None, "text", 3), cpu.array([1.0]))
    assert report.compiled == 0


def test_result_of_another_engine(fresh: Any, cpu: Any) -> None:
    with pytest.raises(ExprError, match=f"Expected a tensor of engine {fresh.name}, got one of cpu"):
        model_warmup(lambda x: cpu.array([1.0]) + 1, fresh.array([1.0]))


def test_results_are_computed(cpu: Any) -> None:
    results = []
    model_warmup(lambda x: results.append(x + 1) or results[0], cpu.array([1.0]))
    assert results[0].is_evaluated


def test_error_of_the_model_comes_through(fresh: Any) -> None:
    def broken(x: Any) -> Any:
        (x + 41).eval()
        raise ZeroDivisionError("model")
    with pytest.raises(ZeroDivisionError):
        model_warmup(broken, fresh.array(SAMPLE))
    assert fresh.cache.stats().pending == 0     # what was compiled before is written all the same


def test_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    cache = KernelCache(tmp_path / "file" / "kernels.nnk", generator_version=GENERATOR_VERSION)

    def warm_up() -> WarmupReport:
        engine = GpuEngine(vulkan_devices()[0], cache)
        report = model_warmup(three_kernels, engine.array(SAMPLE))
        engine.close()
        return report

    with pytest.warns(CacheWarning) as caught:
        assert warm_up().compiled == 3
    assert len(caught) == 1


def test_cpu_engine_has_no_kernels_to_compile() -> None:
    engine = CpuEngine()
    report = model_warmup(three_kernels, engine.array(SAMPLE))
    assert (report.compiled, report.hits) == (0, 0)
