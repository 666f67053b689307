"""The device tests and kernels of the fuzz under the Khronos validation layer, with synchronisation validation."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests import ROOT, validation

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


def run(*arguments: str, environment: dict[str, str]) -> tuple[int, list[str], str]:
    """Run Python; return its exit status, the names of what the layer found, and all output."""
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, timeout=600,
                          cwd=ROOT, env={**os.environ, **environment})
    output = done.stdout + done.stderr
    return done.returncode, validation.findings(output), output


def test_layer_is_there_and_sees_a_missing_barrier() -> None:
    for between in ("", "device.flush()"):
        status, names, output = run("-c", FORGED_HAZARD.format(between=between), environment=validation.ENVIRONMENT)
        assert status == 0, output
        assert names == ["SYNC-HAZARD-READ-AFTER-WRITE"], (
            f"the validation layer does not work (apt-get install vulkan-validationlayers): {output}")


def test_a_message_ends_a_child(tmp_path: Path) -> None:
    status, names, output = run("-c", FORGED_HAZARD.format(between=""),
                                environment=validation.break_settings(tmp_path))
    assert status == -signal.SIGTRAP, output
    assert names == ["SYNC-HAZARD-READ-AFTER-WRITE"]


def pytest_under_validation(*arguments: str) -> tuple[int, str]:
    status, _names, output = run("-m", "pytest", "--validation", "-q", "-p", "no:cacheprovider", *arguments,
                                 environment={})
    return status, output


def test_a_message_fails_the_test_that_caused_it(tmp_path: Path) -> None:
    code = FORGED_HAZARD.format(between="")
    (tmp_path / "test_hazard.py").write_text(
        f"def test_hazard():\n    exec({code!r}, {{}})\n\n\ndef test_fine():\n    pass\n", encoding="utf-8")
    status, output = pytest_under_validation("-p", "tests.conftest", "--rootdir", str(tmp_path),
                                             str(tmp_path / "test_hazard.py"))
    assert status == 1, output
    assert "1 failed, 1 passed" in output
    assert "the validation layer reports SYNC-HAZARD-READ-AFTER-WRITE" in output, output


def test_device_tests_and_kernels_of_the_fuzz_are_clean() -> None:
    status, output = pytest_under_validation(
        "tests/gpu/test_vk_device.py", "tests/memory/test_vk_memory.py", "tests/gpu/test_parity_fuzz.py", "-k",
        "not devices_come_and_go and not steady and not script and not cover")
    assert status == 0, output
