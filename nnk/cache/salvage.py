"""What can still be proven in a damaged cache file.

Heads are found by their keys, wherever they stand. A value is looked for where its own head says and where the head
before it says that it begins; it ends where its block says and where the next head says. It counts if its check
matches and its seal binds both to the key.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence

from nnk.cache.entry import ABOUT_BYTES, KEY, MAC_BYTES, SPIRV_HEADER_BYTES, SPIRV_MAGIC, check_of, read_about
from nnk.errors import RecordError

__all__ = ["provable"]

#: Places that are tried for one field.
MAX_SPANS = 8

_PER_KERNEL = re.compile(rb"(kernel|check|about|mac|parts)\.(" + KEY.pattern.encode() + rb")([\x00\x01])")

#: (prefix, key) -> (position of the value, length)
Places = dict[tuple[bytes, bytes], tuple[int, int]]
Candidates = dict[tuple[bytes, bytes], list[tuple[int, int]]]


def _heads_of(data: bytes) -> list[tuple[bytes, bytes, int]]:
    """Return (prefix, key, address) of everything that looks like a head, in order."""
    return [(match[1] + b".", match[2], struct.unpack_from("<Q", data, match.end())[0])
            for match in _PER_KERNEL.finditer(data) if len(data) - match.end() >= 8]


def _candidates_of(data: bytes) -> Candidates:
    """Return the spans where each field may be; the one that its own head and block name comes first."""
    heads = _heads_of(data)
    places: Candidates = {}
    for number, (prefix, key, addr) in enumerate(heads):
        starts = [addr]
        if number:
            before = heads[number - 1][2]
            if before <= len(data) - 8:
                starts.append(before + 8 + struct.unpack_from("<Q", data, before)[0])
        following = heads[number + 1][2] if number + 1 < len(heads) else len(data)
        spans = places.setdefault((prefix, key), [])
        for start in starts:
            if not 0 <= start <= len(data) - 8:
                continue
            for end in (start + 8 + struct.unpack_from("<Q", data, start)[0], following):
                span = start + 8, end - start - 8
                if start + 8 <= end <= len(data) and len(spans) < MAX_SPANS and span not in spans:
                    spans.append(span)
    return places


def provable(data: bytes) -> Places:
    """Return the fields of every kernel in ``data`` that its check and seal prove, and of kernels without a check.

    A kernel that another writer made, without a seal, counts only where its own head and block say it stands. The
    work is O(n) in the size of the data, whatever the heads say.
    """
    places = _candidates_of(data)
    found: Places = {}
    budget = 4 * len(data)
    for (prefix, key), spans in places.items():
        if prefix == b"kernel.":
            # Honest entries do not overlap. Crafted ones could make every head claim the whole file.
            budget -= sum(length for _, length in spans)
            if budget < 0:
                break
            found.update(_prove(data, key, spans, places))
    return found


def _own_span(data: bytes, spans: Sequence[tuple[int, int]]) -> Sequence[tuple[int, int]]:
    """Return the span that head and block agree on, if there is one."""
    return [span for span in spans[:1] if struct.unpack_from("<Q", data, span[0] - 8)[0] == span[1]]


def _prove(data: bytes, key: bytes, spans: Sequence[tuple[int, int]], places: Candidates) -> Places:
    checks = {data[at:at + 8]: (at, 8) for at, length in places.get((b"check.", key), ()) if length == 8}
    abouts = [(at, length) for at, length in places.get((b"about.", key), ()) if length == ABOUT_BYTES]
    if not abouts:
        own = _own_span(data, places.get((b"check.", key), ()))
        checks = {data[at:at + 8]: (at, 8) for at, length in own if length == 8}
        spans = _own_span(data, spans)
    for at, length in spans:
        if length < SPIRV_HEADER_BYTES or length % 4 or data[at:at + 4] != SPIRV_MAGIC:
            continue
        if not checks and (b"check.", key) not in places:
            return {(b"kernel.", key): (at, length)}
        check = check_of(data[at:at + length])
        raw = check.to_bytes(8, "little")
        if raw not in checks:
            continue
        fields = {(b"kernel.", key): (at, length), (b"check.", key): checks[raw]}
        fields.update(((b"parts.", key), span) for span in _own_span(data, places.get((b"parts.", key), ())))
        fields.update(((b"mac.", key), span) for span in places.get((b"mac.", key), ()) if span[1] == MAC_BYTES)
        if not abouts:
            return fields
        for about in abouts:
            try:
                read_about(data[about[0]:about[0] + ABOUT_BYTES], key, check)
            except RecordError:
                continue
            return {**fields, (b"about.", key): about}
    return {}
