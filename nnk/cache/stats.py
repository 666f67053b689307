"""What a cache object counts."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["COUNTED", "TOLD", "CacheStats"]


@dataclass(frozen=True, slots=True)
class CacheStats:
    """What a cache object did since it was made, and what its file holds.

    ``hits``, ``misses`` and ``puts`` count calls, ``compiles`` puts that name a compiler. ``entries`` counts kernels
    that `get` could return without the extra files; ``pending`` those of them that are not in the file yet. ``bytes``
    is the size of the file. ``damaged`` counts entries and tables that failed a check, and kernels that a driver
    rejected or died of; ``healed`` those that a save has removed from the file. ``unchecked`` counts look-ups of
    kernels without a check (or, where a secret is set, without the right signature), ``evicted`` kernels that left for
    lack of room. ``flushes`` counts writes of the file, ``written_bytes`` their bytes.
    """

    hits: int = 0
    misses: int = 0
    puts: int = 0
    compiles: int = 0
    entries: int = 0
    pending: int = 0
    bytes: int = 0
    damaged: int = 0
    healed: int = 0
    unchecked: int = 0
    evicted: int = 0
    flushes: int = 0
    written_bytes: int = 0


#: What a cache object counts itself; the other fields describe its file.
COUNTED = ("hits", "misses", "puts", "compiles", "damaged", "healed", "unchecked", "evicted", "flushes",
           "written_bytes")

#: What it adds to the history in the file when it saves. The save adds what it does itself.
TOLD = ("hits", "misses", "puts", "compiles", "damaged")
