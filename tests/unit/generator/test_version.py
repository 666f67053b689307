"""The generator version is part of every key; tests/meta/test_generator_fingerprint.py ties it to the emitted code."""

import numpy as np

from nnk.engines.base import Engine
from nnk.generator.version import GENERATOR_VERSION


def test_version_is_a_positive_number():
    assert isinstance(GENERATOR_VERSION, int)
    assert GENERATOR_VERSION >= 1


def test_version_starts_every_key(cpu: Engine):
    (step,) = cpu.schedule([cpu.array(np.ones(3, np.float32)) + 1.0])[0].steps
    assert step.key.startswith(f"v{GENERATOR_VERSION}.")
