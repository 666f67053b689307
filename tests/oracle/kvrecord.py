"""KVRecord, written from docs/formats/kvrecord-v2.md alone: slow, obvious, struct and dict.

A record is a list of (key bytes, value); a value is an int, bytes, a tuple of int, or a nested list.
"""

from __future__ import annotations

import struct
from typing import Any

from nnk.errors import FormatVersionError, RecordError, RecordTruncatedError

SENTINEL = b"kvrec_version"


def _need(data: bytes, at: int, count: int, limit: int, offset: int | None = None) -> bytes:
    if count > limit - at:
        raise RecordTruncatedError("truncated", offset=at if offset is None else offset)
    return data[at:at + count]


def _u32(data: bytes, at: int, limit: int) -> int:
    return struct.unpack("<I", _need(data, at, 4, limit))[0]


def _u64(data: bytes, at: int, limit: int) -> int:
    return struct.unpack("<Q", _need(data, at, 8, limit))[0]


def _key(data: bytes, at: int, limit: int) -> tuple[bytes, int]:
    length = _u32(data, at, limit)
    return _need(data, at + 4, length, limit, offset=at), at + 4 + length


def _value(data: bytes, kind: int, at: int, length: int, base: int, depth: int) -> Any:
    if kind == 0:
        if length != 8:
            raise RecordError("integer", offset=at)
        return _u64(data, at, at + 8)
    if kind == 1:
        return data[at:at + length]
    if kind == 2:
        if length % 8:
            raise RecordError("array", offset=at)
        return tuple(_u64(data, at + 8 * i, at + length) for i in range(length // 8))
    if depth == 32:
        raise RecordError("nesting", offset=at)
    record, end = read(data, base, at, at + length, depth + 1)
    if end != at + length:
        raise RecordError("rest", offset=end)
    return record


def _check_new(key: bytes, seen: set[bytes], at: int) -> None:
    if key == SENTINEL or key in seen:
        raise RecordError("key", offset=at)
    seen.add(key)


def _read_v1(data: bytes, begin: int, limit: int, base: int) -> tuple[list[tuple[bytes, Any]], int]:
    at = begin + 4
    count = _u32(data, begin, limit)
    if count * 9 > limit - at:
        raise RecordTruncatedError("count", offset=begin)
    record = []
    seen: set[bytes] = set()
    for _ in range(count):
        head = at
        key, at = _key(data, at, limit)
        _need(data, at, 5, limit)
        kind, length = data[at], _u32(data, at + 1, limit)
        _need(data, at + 5, length, limit, offset=at + 1)
        _check_new(key, seen, head)
        if kind <= 2:
            record.append((key, _value(data, kind, at + 5, length, base, 0)))
        at += 5 + length
    return record, at


def read(data: bytes, base: int = 0, begin: int = 0, limit: int | None = None,
         depth: int = 0) -> tuple[list[tuple[bytes, Any]], int]:
    """Return the record at ``data[begin]`` and the position after it."""
    limit = len(data) if limit is None else limit
    if begin > limit:
        raise RecordTruncatedError("offset", offset=begin)
    count = _u32(data, begin, limit)
    if count == 0:
        if depth:
            raise RecordError("v1 inside", offset=begin)
        return [], begin + 4
    key, at = _key(data, begin + 4, limit)
    _need(data, at, 5, limit)
    if key != SENTINEL:
        if depth:
            raise RecordError("v1 inside", offset=begin)
        return _read_v1(data, begin, limit, base)
    if data[at] != 0 or _u32(data, at + 1, limit) != 8:
        raise RecordError("sentinel", offset=at)
    version = _u64(data, at + 5, limit)
    if version != 2:
        raise FormatVersionError("version", offset=at + 5, found=version, supported=2)
    at += 13
    if (count - 1) * 21 > limit - at:
        raise RecordTruncatedError("count", offset=begin)
    heads = []
    seen: set[bytes] = set()
    for _ in range(count - 1):
        head = at
        key, at = _key(data, at, limit)
        _need(data, at, 9, limit)
        _check_new(key, seen, head)
        heads.append((key, data[at], _u64(data, at + 1, limit), at + 1))
        at += 9
    record = []
    for key, kind, addr, addr_at in heads:
        if addr != base + at:
            raise RecordError("address", offset=addr_at)
        length = _u64(data, at, limit)
        _need(data, at + 8, length, limit, offset=at)
        if kind <= 3:
            record.append((key, _value(data, kind, at + 8, length, base, depth)))
        at += 8 + length
    return record, at


def write(record: list[tuple[bytes, Any]], base: int = 0) -> bytes:
    """Return the version 2 bytes of ``record``."""
    table_bytes = 34 + sum(13 + len(key) for key, _ in record)
    table = struct.pack("<II13sBIQ", len(record) + 1, 13, SENTINEL, 0, 8, 2)
    blocks = b""
    for key, value in record:
        addr = base + table_bytes + len(blocks)
        if isinstance(value, int):
            kind, body = 0, struct.pack("<Q", value)
        elif isinstance(value, bytes):
            kind, body = 1, value
        elif isinstance(value, tuple):
            kind, body = 2, struct.pack(f"<{len(value)}Q", *value)
        else:
            kind, body = 3, write(value, addr + 8)
        table += struct.pack("<I", len(key)) + key + struct.pack("<BQ", kind, addr)
        blocks += struct.pack("<Q", len(body)) + body
    return table + blocks


def write_v1(record: list[tuple[bytes, Any]]) -> bytes:
    """Return the version 1 bytes of ``record``, without its nested records."""
    kept = [(key, value) for key, value in record if not isinstance(value, list)]
    out = struct.pack("<I", len(kept))
    for key, value in kept:
        if isinstance(value, int):
            kind, body = 0, struct.pack("<Q", value)
        elif isinstance(value, bytes):
            kind, body = 1, value
        else:
            kind, body = 2, struct.pack(f"<{len(value)}Q", *value)
        out += struct.pack("<I", len(key)) + key + struct.pack("<BI", kind, len(body)) + body
    return out
