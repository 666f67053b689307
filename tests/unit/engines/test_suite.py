"""The fixed suite beyond expressions, and the anchors."""

import numpy as np
import pytest

from nnk import numerics
from nnk.engines.parity import SUITE, compare, digest
from nnk.engines.suite import CASES, anchors
from nnk.generator.version import GENERATOR_VERSION
from nnk.models.suite import MODELS


def test_anchors_cover_the_suite():
    found = anchors()
    assert list(found.digests) == [*SUITE, *CASES, *(f"model {name}" for name in MODELS)], (
        "run scripts/golden_anchors.py")
    assert all(len(value) == 16 and int(value, 16) >= 0 for value in found.digests.values())
    assert found.contract_version <= numerics.CONTRACT_VERSION
    assert found.generator_version <= GENERATOR_VERSION


@pytest.mark.parametrize("name", CASES)
def test_cases_have_their_anchors_on_every_engine(name, cpu, vulkan):
    results = [CASES[name](engine).numpy() for engine in (cpu, vulkan)]
    compare(*results)
    assert digest(results[0]) == anchors().digests[name]
    if "special" not in name and results[0].size > 1:
        assert np.isfinite(results[0]).any()
