"""A save that is killed or failed at any system call, and a file that is cut at any byte (short form).

scripts/cache_crash.py is the long form.
"""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tests.process import crashes

ERRORS = (errno.ENOSPC, errno.EIO, errno.EACCES, errno.ESTALE, errno.EBUSY, errno.EROFS, errno.EDQUOT)


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return crashes.build(tmp_path_factory.mktemp("tool"))


def test_a_save_is_durable_in_the_right_order(tool: Path, tmp_path: Path) -> None:
    """Lock, write, sync the file, rename it, sync the folder, unlock: a power cut cannot be tried, its order can."""
    calls = crashes.calls_of_a_save(tool, tmp_path / "cache" / "kernels.nnk")
    write, fsync, rename, flock = 1, 74, 82, 73
    order = [call for call in calls if call in (write, fsync, rename, flock)]
    assert order == [flock, write, fsync, rename, fsync, flock]


def test_killed_before_every_third_call(tool: Path, tmp_path: Path) -> None:
    path = tmp_path / "cache" / "kernels.nnk"
    calls = crashes.calls_of_a_save(tool, path)
    assert len(calls) >= 25
    for call in range(1, len(calls) + 1, 3):
        crashes.killed(tool, path, call)


def test_every_fourth_call_fails(tool: Path, tmp_path: Path) -> None:
    path = tmp_path / "cache" / "kernels.nnk"
    calls = crashes.calls_of_a_save(tool, path)
    able = [call for call, number in enumerate(calls, 1) if number not in crashes.NEVER_FAIL]
    for turn, call in enumerate(able[::4]):
        crashes.failed(tool, path, call, calls[call - 1], ERRORS[turn % len(ERRORS)])


def test_cut_at_many_bytes(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "kernels.nnk"
    data = crashes.prepare(path)
    for size in range(0, len(data) + 1, 29):
        crashes.truncated(path, data, size)
