"""Random calls of nnk.attention against an oracle that knows no fold."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nnk
from tests.fold_strategies import laid_out, random_attention, stored_otherwise
from tests.half_storage import BFLOAT16_SLOT, FLOAT16_SLOT, narrow
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


def as_floats(value):
    """What an operand is before the oracle takes it: float32, bools as they are."""
    is_array = isinstance(value, np.ndarray) and value.dtype != bool
    return value.astype(np.float32) if is_array else value


@given(seed=st.integers(0, 2**64 - 1))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture],
          max_examples=max(20, settings.default.max_examples // 2))
def test_operands_are_read_where_they_lie(cpu, seed):
    """Halves, masks of integers and bools, any strides: the bits of packing and casting first, in one kernel."""
    rand = random.Random(seed)
    arrays, options = random_attention(rand)
    if rand.randrange(3):
        stored_otherwise(rand, arrays, options)

    def tensor(array):
        return laid_out(rand, cpu, array) if array.ndim > 1 else cpu.array(array)

    tensors = {name: tensor(value) if isinstance(value, np.ndarray) else value for name, value in options.items()}
    result = nnk.attention(*map(tensor, arrays), **tensors)
    store = rand.choice((None, "float16", "bfloat16"))
    wanted = attention(*map(as_floats, arrays), **{name: as_floats(value) for name, value in options.items()})
    bits = bits_of(wanted)
    if store is not None:
        result = result.astype(store)
        bits = narrow(bits.view(np.float32), FLOAT16_SLOT if store == "float16" else BFLOAT16_SLOT)
    assert len(cpu.schedule([result])[0].steps) == 1
    found = result.numpy()
    assert found.dtype == (store or np.float32)
    assert np.array_equal(found.view(bits.dtype), bits)
