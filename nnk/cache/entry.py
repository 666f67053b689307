"""One kernel of a cache file: its key, its value, and the fields that prove it.

``check.<K>`` proves the value. ``about.<K>`` says when the kernel was used last and what it is (its identity), and its
seal binds key, identity and check to each other: in a damaged file, a value could otherwise turn up under the key of
its neighbour.
"""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import xxhash

from nnk.errors import CacheError, RecordError

__all__ = ["Entry", "Item", "about_of", "base_key", "check_key", "check_of", "check_spirv", "collision_key", "item_of",
           "read_about", "today"]

SPIRV_MAGIC = struct.pack("<I", 0x07230203)
SPIRV_HEADER_BYTES = 20

#: The key of a kernel: generator version, structure key or own name, precision suffix.
KEY = re.compile(r"v[0-9]{1,9}\.[a-z0-9_.@-]{1,200}(?:#[a-z0-9]{1,16})?")

IDENTITY_BYTES = 16
MAC_BYTES = 32

#: More hashes of parts than any kernel has.
MAX_PARTS_BYTES = 512

#: seal u64, day u64, identity (zeros where there is none)
_ABOUT = struct.Struct("<8sQ16s")
ABOUT_BYTES = 32

SECONDS_PER_DAY = 86400

_NO_IDENTITY = bytes(IDENTITY_BYTES)


def today() -> int:
    """Return the day of use that is now: days since 1970 (UTC)."""
    return int(time.time() // SECONDS_PER_DAY)


@dataclass(frozen=True, slots=True)
class Entry:
    """One kernel. ``day`` counts days since 1970 (UTC) of the last use; the fields after ``spirv`` may be empty.

    ``parts`` are hashes of the parts of the key, for explanations alone: nothing proves them.
    """

    spirv: bytes
    identity: bytes = b""
    mac: bytes = b""
    day: int = 0
    parts: bytes = b""


@dataclass(frozen=True, slots=True)
class Item:
    """An entry of a file to be written; ``read`` returns its value, which has ``length`` bytes."""

    key: str
    length: int
    check: int
    identity: bytes
    mac: bytes
    day: int
    read: Callable[[], bytes] = field(compare=False)
    parts: bytes = b""

    @property
    def cost_bytes(self) -> int:
        """Bytes that the entry takes in the file."""
        fields = [("kernel.", self.length), ("check.", 8), ("about.", ABOUT_BYTES)]
        if self.mac:
            fields.append(("mac.", len(self.mac)))
        if self.parts:
            fields.append(("parts.", len(self.parts)))
        return sum(21 + len(prefix) + len(self.key) + length for prefix, length in fields)


def check_key(key: str) -> None:
    """Raise ``CacheError`` if ``key`` is no kernel key."""
    if not isinstance(key, str) or not KEY.fullmatch(key):
        raise CacheError(f"Expected a kernel key such as `v1.0123456789abcdef#x`, got {key!r:.80}")


def collision_key(key: str, identity: bytes) -> str:
    """Return the key of a kernel whose own key is taken by a kernel of another identity."""
    stem, mark, suffix = key.partition("#")
    return f"{stem}@{identity.hex()}{mark}{suffix}"


def base_key(key: str, identity: bytes) -> str:
    """Return the key that is asked for, of a kernel that may be stored under its collision key."""
    return key.replace(f"@{identity.hex()}", "") if identity else key


def check_spirv(spirv: bytes) -> None:
    """Raise ``RecordError`` if ``spirv`` cannot be a SPIR-V module: length, first word."""
    if len(spirv) < SPIRV_HEADER_BYTES or len(spirv) % 4:
        raise RecordError(f"Expected SPIR-V of 5 or more 32-bit words, got {len(spirv)} bytes")
    if spirv[:4] != SPIRV_MAGIC:
        raise RecordError(f"Expected SPIR-V that starts with 0x07230203, got 0x{spirv[3::-1].hex()}")


def check_of(spirv: bytes) -> int:
    """Return the content of a ``check.<K>`` field: xxh3-64 of the value."""
    return xxhash.xxh3_64_intdigest(spirv)


def _seal(key: bytes, check: int, identity: bytes) -> bytes:
    return xxhash.xxh3_64_digest(identity + check.to_bytes(8, "little") + key)[::-1]


def about_of(key: bytes, check: int, identity: bytes, day: int) -> bytes:
    """Return the content of an ``about.<K>`` field."""
    identity = identity or _NO_IDENTITY
    return _ABOUT.pack(_seal(key, check, identity), day, identity)


def read_about(raw: bytes, key: bytes, check: int) -> tuple[bytes, int]:
    """Return (identity, day) of an ``about.<K>`` field.

    Raises
    ------
    RecordError
        If its seal is not that of the key, the identity and the check.
    """
    seal, day, identity = _ABOUT.unpack(raw)
    if seal != _seal(key, check, identity):
        name = key.decode("ascii", "replace")
        raise RecordError(f"Kernel `{name}`: its seal is that of another key, identity or value", field=f"about.{name}")
    return (b"" if identity == _NO_IDENTITY else identity), day


def item_of(key: str, entry: Entry) -> Item:
    """Return the entry as an item to write."""
    return Item(key, len(entry.spirv), check_of(entry.spirv), entry.identity, entry.mac, entry.day,
                lambda: entry.spirv, entry.parts)
