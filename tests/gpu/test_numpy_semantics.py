"""A sample of the table of NumPy calls on a Vulkan device: the CPU engine's bits, and NumPy's by the rule of each."""

from __future__ import annotations

from typing import Any

import pytest

from tests.numpy_calls import check, table, tensors_of

#: Every so many calls. A prime, so that the sample walks through shapes and layouts.
STEP = 97

pytestmark = pytest.mark.usefixtures("quiet_numpy")


@pytest.mark.parametrize("part", range(4))
def test_sampled_calls(part: int, vulkan: Any, cpu: Any) -> None:
    calls = table()[part * STEP // 4::STEP]
    assert len(calls) > 100
    with vulkan.cache.deferred():
        for call in calls:
            want, got = (call.ours(*tensors_of(call, engine)).numpy() for engine in (cpu, vulkan))
            check(call, got)
            assert (got.shape, got.dtype, got.tobytes()) == (want.shape, want.dtype, want.tobytes()), call
