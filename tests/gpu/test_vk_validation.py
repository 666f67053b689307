"""The device tests once more under the Khronos validation layer, with synchronisation validation."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from tests import ROOT

ENVIRONMENT = {
    "VK_INSTANCE_LAYERS": "VK_LAYER_KHRONOS_validation",
    "VK_LAYER_ENABLES": "VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT"
                        ":VALIDATION_CHECK_ENABLE_SYNCHRONIZATION_VALIDATION_QUEUE_SUBMIT",
}

FINDING = re.compile(r"\b(?:VUID|SYNC-HAZARD|UNASSIGNED)-[\w-]+")

#: A buffer that shares memory with another one and knows nothing of its use: a hazard that no barrier guards.
FORGED_HAZARD = """
import struct
from nnk._fast.spans import Buffer, Span
from nnk.vk import instance
from nnk.vk.device import Device
from tests.glsl import build
with Device(instance.select()) as device:
    kernel = device.build_kernel(*build("o0[i] = b0[i] * 2.0 + 1.0;"))
    a, b, c = (device.allocate(256) for _ in range(3))
    words = struct.pack("<I", 64)
    device.dispatch(kernel, [a], [b], words, 1)
    {between}
    span = b.span
    twin = Buffer(device._recorder.cache, Span(span.handle, span.offset, 256, span.address, span.block), 256)
    device.dispatch(kernel, [twin], [c], words, 1)
    device.wait()
"""


def findings(*arguments: str) -> tuple[int, set[str], str]:
    """Run Python under the layer; return its exit status, the names of what the layer found, and all output."""
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, timeout=300,
                          cwd=ROOT, env={**os.environ, **ENVIRONMENT})
    output = done.stdout + done.stderr
    return done.returncode, set(FINDING.findall(output)), output


def test_layer_is_there_and_sees_a_missing_barrier() -> None:
    for between in ("", "device.flush()"):
        status, names, output = findings("-c", FORGED_HAZARD.format(between=between))
        assert status == 0, output
        assert names == {"SYNC-HAZARD-READ-AFTER-WRITE"}, (
            f"the validation layer does not work (apt-get install vulkan-validationlayers): {output}")


def test_device_tests_are_clean() -> None:
    status, names, output = findings("-m", "pytest", "-s", "-q", "-p", "no:cacheprovider",
                                     "tests/gpu/test_vk_device.py", "tests/memory/test_vk_memory.py",
                                     "-k", "not devices_come_and_go and not steady")
    assert status == 0, output
    assert names == set(), output
