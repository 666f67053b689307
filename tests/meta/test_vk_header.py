"""csrc/vk_min.h against the constants and structs of the vulkan package."""

from __future__ import annotations

import re

import cffi
import pytest

from nnk._fast import dispatch
from nnk.vk.loader import ffi, lib
from tests import ROOT

HEADER = (ROOT / "nnk/_fast/csrc/vk_min.h").read_text(encoding="utf-8")

NAMES = {
    "NNK_VK_SUCCESS": "VK_SUCCESS", "NNK_VK_TIMEOUT": "VK_TIMEOUT",
    "NNK_DESCRIPTOR_STORAGE_BUFFER": "VK_DESCRIPTOR_TYPE_STORAGE_BUFFER",
    "NNK_BIND_POINT_COMPUTE": "VK_PIPELINE_BIND_POINT_COMPUTE",
    "NNK_ONE_TIME_SUBMIT": "VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT",
    "NNK_SIMULTANEOUS_USE": "VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT",
    "NNK_STAGE_COMPUTE": "VK_SHADER_STAGE_COMPUTE_BIT",
    "NNK_PIPELINE_STAGE_COMPUTE": "VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT",
    "NNK_PIPELINE_STAGE_TRANSFER": "VK_PIPELINE_STAGE_TRANSFER_BIT",
    "NNK_PIPELINE_STAGE_HOST": "VK_PIPELINE_STAGE_HOST_BIT",
}
CONSTANTS = re.findall(r"^\s+(NNK_\w+) = (\w+)", HEADER, re.MULTILINE)
STRUCTS = re.findall(r"typedef struct \{([^}]*)\} Nnk(\w+);", HEADER)
VULKAN_STRUCTS = {"TimelineSubmitInfo": "VkTimelineSemaphoreSubmitInfo"}


def vulkan_name(name: str) -> str:
    if name in NAMES:
        return NAMES[name]
    if name.startswith("NNK_STRUCTURE_"):
        return name.replace("NNK_STRUCTURE_", "VK_STRUCTURE_TYPE_")
    return name.replace("NNK_ACCESS_", "VK_ACCESS_") + "_BIT"


@pytest.mark.parametrize(("name", "value"), CONSTANTS)
def test_constants_are_those_of_vulkan(name: str, value: str) -> None:
    assert int(value, 0) == getattr(lib, vulkan_name(name))


@pytest.mark.parametrize(("body", "name"), STRUCTS, ids=[name for _, name in STRUCTS])
def test_structs_have_vulkan_layout(body: str, name: str) -> None:
    if name == "Functions":
        return
    fields = [re.split(r"[\s*]+", line.strip())[-1] for line in body.split(";") if line.strip()]
    kind = ffi.typeof(VULKAN_STRUCTS.get(name, f"Vk{name}"))
    assert fields == [field for field, _ in kind.fields]
    ours = cffi.FFI()
    ours.cdef("typedef void *NnkDispatchable; typedef uint64_t NnkHandle;"
              f"typedef struct NnkDescriptorBufferInfo NnkDescriptorBufferInfo; typedef struct {{{body}}} Mine;")
    mine = ours.typeof("Mine")
    assert ours.sizeof("Mine") == ffi.sizeof(kind)
    assert [info.offset for _, info in mine.fields] == [info.offset for _, info in kind.fields]


def test_every_function_of_the_header_is_asked_for() -> None:
    assert len(CONSTANTS) >= 20
    assert len(STRUCTS) >= 10
    functions = next(body for body, name in STRUCTS if name == "Functions")
    members = re.findall(r"^    Nnk(\w+) \w+;", functions, re.MULTILINE)
    asked = [name.removeprefix("vk").removesuffix("KHR") for name in dispatch.FUNCTION_NAMES]
    assert members == asked
