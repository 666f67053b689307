"""What every test gets: its own cache directory, clean settings, fixed seeds; and the engine fixtures.

``--validation`` runs Vulkan under the Khronos validation layer with synchronisation validation: any message fails the
test that caused it (:mod:`tests.validation`).
"""

from __future__ import annotations

import os
import random
import zlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest

from nnk import config
from nnk.errors import NoDeviceError
from tests import validation

hypothesis.settings.register_profile("dev", max_examples=50, deadline=None)
hypothesis.settings.register_profile("ci", max_examples=100, deadline=None, derandomize=True, print_blob=True,
                                     database=None)
hypothesis.settings.register_profile("deep", max_examples=5000, deadline=None, print_blob=True)
hypothesis.settings.load_profile(os.environ.get("NNK_TEST_PROFILE", "dev"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of this suite."""
    parser.addoption("--validation", action="store_true",
                     help="run Vulkan under the Khronos validation layer; any message fails a test")


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers; turn validation on before anything uses Vulkan."""
    config.addinivalue_line("markers", "gpu: needs a Vulkan device; set on everything in tests/gpu")
    if config.getoption("--validation"):
        validation.start()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a test whose output has a message of the validation layer."""
    if item.config.getoption("--validation"):
        validation.flush()
    report = yield
    if item.config.getoption("--validation"):
        found = validation.findings(report.capstdout + report.capstderr)
        if found and report.passed:
            report.outcome = "failed"
            report.longrepr = f"the validation layer reports {', '.join(found)}"
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need a device."""
    for item in items:
        if Path(__file__).parent / "gpu" in item.path.parents:
            item.add_marker(pytest.mark.gpu)


@pytest.fixture(autouse=True)
def cache_dir(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give the test default settings and a kernel cache directory of its own; return the directory."""
    for setting in config.SETTINGS.values():
        monkeypatch.delenv(setting.env, raising=False)
    path = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("NN_KERNEL_CACHE_DIR", str(path))
    if "NNK_TEST_TIER" in os.environ:
        monkeypatch.setenv("NNK_TIER", os.environ["NNK_TEST_TIER"])
    config.reset()
    yield path
    config.reset()


@pytest.fixture(autouse=True)
def _fixed_seeds(request: pytest.FixtureRequest) -> None:
    seed = zlib.crc32(request.node.nodeid.encode())
    random.seed(seed)
    np.random.seed(seed)


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """Return a generator whose seed depends on the test's name alone."""
    return np.random.default_rng(zlib.crc32(request.node.nodeid.encode()))


@pytest.fixture
def quiet_numpy() -> Iterator[None]:
    """Let NumPy make NaNs and infinities without a warning (warnings are errors here)."""
    with np.errstate(all="ignore"):
        yield


@pytest.fixture
def cpu() -> Any:
    """Return the CPU engine."""
    import nnk
    return nnk.engine("cpu")


@pytest.fixture
def vulkan() -> Any:
    """Return a Vulkan engine. Without a device the test is skipped, or fails if NNK_TEST_REQUIRE_GPU is 1."""
    import nnk
    try:
        return nnk.engine("vulkan")
    except NoDeviceError as error:
        if os.environ.get("NNK_TEST_REQUIRE_GPU") == "1":
            raise
        return pytest.skip(str(error))
