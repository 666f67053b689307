"""What is checked before a pipeline is built. Building is tested in tests/gpu/test_vk_device.py."""

from __future__ import annotations

import dataclasses

import pytest

from nnk._fast import dispatch
from nnk.errors import LimitError
from nnk.vk.pipeline import PipelineBuilder
from tests.fakevulkan import info_of
from tests.glsl import meta_of

LIMITS: dict[str, int | tuple[int, ...]] = {
    "maxPerStageDescriptorStorageBuffers": 8, "maxDescriptorSetStorageBuffers": 8, "maxPerStageResources": 8,
    "maxComputeWorkGroupInvocations": 256, "maxPushConstantsSize": 128, "maxPushDescriptors": 4}


def builder_of(push_descriptors: bool = True, **limits: int) -> PipelineBuilder:
    """Return a builder that has no device."""
    builder = object.__new__(PipelineBuilder)
    builder._info = dataclasses.replace(info_of(0, "Small GPU", "integrated"), limits={**LIMITS, **limits})
    builder._push_descriptors = push_descriptors
    return builder


def test_a_kernel_within_all_limits_passes() -> None:
    builder_of()._check_limits(meta_of(7, 1, 32))
    builder_of()._check_limits(meta_of(6, 1, 300))


@pytest.mark.parametrize(("limits", "meta", "text"), [
    ({}, meta_of(8, 1, 1), "at most 8 storage buffers on Small GPU, got 9"),
    ({}, meta_of(7, 1, 300), "at most 8 storage buffers on Small GPU, got 9"),
    ({"maxPerStageResources": 2}, meta_of(2, 1, 1), "at most 2 storage buffers"),
    ({"maxComputeWorkGroupInvocations": 128}, meta_of(1, 1, 1), "at most 128 invocations in a workgroup"),
    ({"maxPushConstantsSize": 64}, meta_of(1, 1, 17), "at most 64 push constant bytes on Small GPU, got 68"),
    ({"maxPerStageDescriptorStorageBuffers": 10**6, "maxDescriptorSetStorageBuffers": 10**6,
      "maxPerStageResources": 10**6}, meta_of(dispatch.MAX_BINDINGS, 1, 1), f"at most {dispatch.MAX_BINDINGS}"),
])
def test_limits_name_what_and_how_much(limits: dict[str, int], meta: object, text: str) -> None:
    with pytest.raises(LimitError, match=text) as caught:
        builder_of(**limits)._check_limits(meta)  # type: ignore[arg-type]
    assert caught.value.requested > caught.value.maximum  # type: ignore[attr-defined]


def test_push_descriptors_up_to_the_device_limit() -> None:
    assert builder_of().uses_push_descriptors(4)
    assert not builder_of().uses_push_descriptors(5)
    assert not builder_of(False).uses_push_descriptors(1)
