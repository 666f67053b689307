"""A process that puts kernels: ``python -m tests.process.writing FILE FIRST COUNT [START_FILE] [PAUSE_S]``.

Waits until START_FILE exists, puts COUNT kernels from number FIRST on, each saved by itself, and prints how many
warnings it saw.
"""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path

from nnk.cache.store import KernelCache
from tests.kernels import key, spirv


def main() -> None:
    path, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    print("ready", flush=True)
    if len(sys.argv) > 4:
        while not Path(sys.argv[4]).exists():
            time.sleep(0.001)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with KernelCache(path) as cache:
            for number in range(first, first + count):
                value = cache.get(key(number))
                assert value in (None, spirv(number))
                if value is None:
                    cache.put(key(number), spirv(number))
                    cache.flush()
                    print(number, flush=True)
    print("warnings", len(caught), *(str(item.message) for item in caught), flush=True)


if __name__ == "__main__":
    main()
