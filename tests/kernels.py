"""Stand-ins for SPIR-V modules: the right first word and length, and content that depends on a number."""

from __future__ import annotations

import random
import struct
from pathlib import Path

from nnk.cache.container import FORMAT_CHECK, Snapshot
from nnk.cache.store import KernelCache


def key(number: int, *, version: int = 1, suffix: str = "") -> str:
    """Return a kernel key."""
    return f"v{version}.{number:016x}{suffix}"


def spirv(number: int, *, words: int = 20) -> bytes:
    """Return ``words`` words that start like SPIR-V."""
    rest = random.Random(number).randbytes(4 * (words - 5))
    return struct.pack("<5I", 0x07230203, 0x00010500, number & 0xFFFFFFFF, 1, 0) + rest


def make_newer(path: Path) -> bytes:
    """Turn a cache file into one of the next version of KVRecord; return its content."""
    data = bytearray(path.read_bytes())
    data[0x1a] = 3
    data[data.index(FORMAT_CHECK)] ^= 1
    path.write_bytes(data)
    return bytes(data)


def stored(path: Path) -> list[str]:
    """Return the keys of the kernels of a file that can be read."""
    snapshot = Snapshot.open(path)
    try:
        return sorted(name for name in snapshot.keys() if snapshot.read(name) is not None)  # noqa: SIM118
    finally:
        snapshot.close()


def fill(path: Path, *numbers: int) -> None:
    """Add kernels to a file, in one save."""
    with KernelCache(path) as cache, cache.deferred():
        for number in numbers:
            cache.put(key(number), spirv(number))
