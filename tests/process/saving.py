"""A process that saves two kernels between two marks: ``python -m tests.process.saving FILE``.

tests/native/syscalls.c watches it. Prints one JSON line: the values that it can still get, its warnings, and how many
descriptors it gained.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import warnings

import portalocker  # noqa: F401  loaded before the first mark: only the save itself is counted

from nnk.cache.store import KernelCache
from tests.kernels import key, spirv

BEGIN_MARK, END_MARK = 424242, 424243
NEW = (1, 2)


def mark(number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.getpgid(number)


def main() -> None:
    cache = KernelCache(sys.argv[1])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with cache.deferred():
            for number in NEW:
                cache.put(key(number), spirv(number))
            before = len(os.listdir("/proc/self/fd"))
            mark(BEGIN_MARK)
        mark(END_MARK)
        after = len(os.listdir("/proc/self/fd"))
        got = [cache.get(key(number)) == spirv(number) for number in NEW]
    print(json.dumps({"got": got, "warnings": [str(item.message) for item in caught], "descriptors": after - before}))
    sys.stdout.flush()
    os._exit(0)     # no second try at exit: what the one save did is looked at


if __name__ == "__main__":
    main()
