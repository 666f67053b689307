"""Random calls of nnk.attention against an oracle that knows no fold."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nnk
from tests.fold_strategies import random_attention
from tests.oracle.attention import attention
from tests.oracle.tensors import bits_of

pytestmark = pytest.mark.usefixtures("quiet_numpy")


@given(seed=st.integers(0, 2**64 - 1))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture],
          max_examples=max(20, settings.default.max_examples // 2))
def test_random_calls_give_the_bits_of_the_oracle(cpu, seed):
    arrays, options = random_attention(random.Random(seed))
    found = nnk.attention(*map(cpu.array, arrays), **options).numpy()
    assert np.array_equal(found.view(np.uint32), bits_of(attention(*arrays, **options)))
