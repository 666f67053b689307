"""The array that tests of functions share, and its tensor on the CPU engine."""

import pytest

from nnk.engines.parity import special_values


@pytest.fixture
def a():
    return special_values((3, 4, 5), 11)


@pytest.fixture
def x(a, cpu):
    return cpu.array(a)
