#!/usr/bin/env python3
"""Kill and fail a save of the kernel cache at every system call, and cut its file at every byte.

``python scripts/cache_crash.py [--errors N]`` prints counts; the first finding ends it with a traceback. Long form of
tests/process/test_cache_crash.py; about five minutes.
"""

from __future__ import annotations

import argparse
import errno
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.process import crashes

ERRORS = (errno.ENOSPC, errno.EIO, errno.EACCES, errno.ESTALE, errno.EBUSY, errno.EROFS, errno.EDQUOT, errno.ENOSYS,
          errno.ENOLCK, errno.EINTR, errno.EMFILE, errno.EPERM)


def main() -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--errors", type=int, default=len(ERRORS), help="error codes to try at each call")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tool = crashes.build(Path(folder))
        path = Path(folder, "cache", "kernels.nnk")
        calls = crashes.calls_of_a_save(tool, path)
        for call in range(1, len(calls) + 1):
            crashes.killed(tool, path, call)
        print(f"killed before each of {len(calls)} system calls: the file was old or new, and healed", flush=True)
        able = [call for call, number in enumerate(calls, 1) if number not in crashes.NEVER_FAIL]
        for error in ERRORS[:options.errors]:
            for call in able:
                crashes.failed(tool, path, call, calls[call - 1], error)
            print(f"{errno.errorcode[error]} at each of {len(able)} system calls: results right, nothing left behind",
                  flush=True)
        data = crashes.prepare(path)
        for size in range(len(data) + 1):
            crashes.truncated(path, data, size)
        print(f"cut at each of {len(data) + 1} sizes: every whole kernel was kept", flush=True)


if __name__ == "__main__":
    main()
