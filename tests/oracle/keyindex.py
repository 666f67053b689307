"""The key index as a dict: key without its prefix -> (position of the value, its length)."""

from __future__ import annotations

import struct


def index(data: bytes, prefix: bytes, kind: int) -> dict[bytes, tuple[int, int]]:
    """Index the valid version 2 record at ``data[0]``; docs/formats/kvrecord-v2.md."""
    found = {}
    (count,) = struct.unpack_from("<I", data, 0)
    at = 34
    for _ in range(count - 1):
        (length,) = struct.unpack_from("<I", data, at)
        key = data[at + 4:at + 4 + length]
        field_kind, addr = struct.unpack_from("<BQ", data, at + 4 + length)
        at += 13 + length
        if field_kind == kind and key.startswith(prefix):
            found[key[len(prefix):]] = (addr + 8, struct.unpack_from("<Q", data, addr)[0])
    return found
