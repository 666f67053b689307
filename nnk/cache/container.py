"""The `.nnk` container: one version 2 KVRecord that holds kernels, each with its check (docs/formats/nnk-container.md).

:class:`Snapshot` reads one state of the file: only the table when it is opened, a value when it is asked for, and no
value that its check does not prove. A file whose table is damaged is searched for entries that can still be proven.
:func:`layout` turns entries into the bytes of a new file.

Values are read with ``pread`` and not through a memory map: a file that somebody cuts while it is open gives a short
read here, and a SIGBUS there.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import xxhash

from nnk._fast.keyindex import KeyIndex
from nnk._fast.kvrecord import RecordTable, encode_head, parse_head
from nnk.cache.entry import (
    ABOUT_BYTES,
    KEY,
    MAC_BYTES,
    MAX_PARTS_BYTES,
    Entry,
    Item,
    about_of,
    check_of,
    check_spirv,
    read_about,
)
from nnk.cache.files import open_regular
from nnk.cache.salvage import provable
from nnk.errors import CacheError, FormatVersionError, RecordError

__all__ = ["FORMAT_VERSION", "HISTORY", "Snapshot", "head_bytes", "layout"]

#: Layout of the container. A reader leaves a file of a newer one alone.
FORMAT_VERSION = 1

#: The field `format_check` repeats both versions as a hash. A version is believed only as long as it agrees: a flipped
#: bit does not make a newer file. A newer format changes the field or leaves it out.
FORMAT_CHECK = xxhash.xxh3_64_digest(struct.pack(">QQ", 2, FORMAT_VERSION))[::-1]

#: A table that is larger is damage: it would be that of a million kernels.
MAX_TABLE_BYTES = 256 * 1024 * 1024

#: The small fields of all kernels are kept in memory up to this size: 100 000 kernels.
MAX_SMALL_BYTES = 8 * 1024 * 1024

#: A damaged file that is larger is not searched.
MAX_SALVAGE_BYTES = 512 * 1024 * 1024

#: What the numbers of the field `history` count, over all processes, each time one of them saves.
HISTORY = ("hits", "misses", "puts", "damaged", "evicted", "saves", "compiles", "healed")

_UINT, _STR, _UINT_ARRAY = 0, 1, 2
_SENTINEL_END = 34
_FIRST_READ = 64 * 1024


# ---- reading ----------------------------------------------------------------------------------------------------

def _pread(fd: int, length: int, offset: int) -> bytes:
    """Read exactly ``length`` bytes, or what there is."""
    chunk = os.pread(fd, length, offset)
    if len(chunk) == length or not chunk:
        return chunk
    parts = [chunk]
    have = len(chunk)
    while have < length and (chunk := os.pread(fd, length - have, offset + have)):
        parts.append(chunk)
        have += len(chunk)
    return b"".join(parts)


def _read_head(fd: int, size: int) -> bytes:
    """Return the table. Its end is the address of the first field, which stands at a known place."""
    head = _pread(fd, min(size, _FIRST_READ), 0)
    if len(head) < _SENTINEL_END + 4 or head[:4] == b"\1\0\0\0":
        return head
    at = _SENTINEL_END + 4 + struct.unpack_from("<I", head, _SENTINEL_END)[0] + 1
    if at + 8 > len(head):
        return head
    end = struct.unpack_from("<Q", head, at)[0]
    if not at + 8 <= end <= size:
        return head
    if end > MAX_TABLE_BYTES:
        raise RecordError(f"Expected a table of at most {MAX_TABLE_BYTES} bytes, got {end}", offset=at)
    return head[:end] if end <= len(head) else head + _pread(fd, end - len(head), len(head))


class Snapshot:
    """One state of a cache file, open for reading until :meth:`close`.

    ``state`` is ``"absent"``, ``"empty"`` (no bytes), ``"good"``, ``"damaged"`` (entries that can be proven are
    there) or ``"newer"`` (of a format version that this reader does not know; no entries). ``problems`` says in
    words what is wrong. ``signature`` changes when the file does. ``history`` counts what :data:`HISTORY` names.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state = "absent"
        self.problems: list[str] = []
        self.signature: tuple[int, int, int, int] | None = None
        self.size = 0
        self.generator_version = ""
        self.compiler = ""
        self.history = (0,) * len(HISTORY)
        self._fd = -1
        self._small = b""
        self._small_at = 0
        self._has_small = False
        self._table: RecordTable | None = None
        self._kernels: KeyIndex | None = None
        self._found: dict[tuple[bytes, bytes], tuple[int, int]] = {}

    @classmethod
    def open(cls, path: Path) -> Snapshot:
        """Open the cache file ``path``; a missing, damaged or newer file is a state, not an error.

        Raises
        ------
        OSError
            If the file exists but cannot be read.
        CacheError
            If it is no regular file, or another user could have written it.
        """
        self = cls(path)
        try:
            self._fd, info = open_regular(path)
        except FileNotFoundError:
            return self
        self.signature = info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns
        self.size = info.st_size
        try:
            self._read_table()
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        self.close()

    def _read_table(self) -> None:
        if self.size == 0:
            self.state = "empty"
            return
        try:
            table = parse_head(_read_head(self._fd, self.size), self.size)
            self._table = table
            self._check_end(table)
            self._check_format()
            self._kernels = KeyIndex(table, b"kernel.", _STR)
            self.state = "good"
        except FormatVersionError as exc:
            if self._is_flipped(exc.found, exc.supported):
                self._salvage(str(exc))
                return
            self.state = "newer"
            self._table = None
            self.problems.append(str(exc))
        except RecordError as exc:
            self._salvage(str(exc))

    def _is_flipped(self, found: int, supported: int) -> bool:
        """Say whether a version is damage: older than any, or another one while `format_check` still names ours."""
        if found < supported:
            return True
        head = _pread(self._fd, 4096, 0)    # the field stands near the start of the table
        at = head.find(b"format_check\0")
        if at < 0 or len(head) < at + 21:
            return False
        addr = struct.unpack_from("<Q", head, at + 13)[0]
        return addr <= self.size - 16 and _pread(self._fd, 8, addr + 8) == FORMAT_CHECK

    def _check_end(self, table: RecordTable) -> None:
        """Compare the last block's length with the end of the file: a cut or continued file shows here."""
        if len(table):
            offset, length = table.span(len(table) - 1)
            word = _pread(self._fd, 8, offset - 8)
            if word != struct.pack("<Q", length):
                raise RecordError(f"KVRecord, byte {offset - 8}: expected a last value of {length} bytes, which ends "
                                  f"the file, got {int.from_bytes(word, 'little')}", offset=offset - 8)

    def _check_format(self) -> None:
        version = self._uint(b"nnk_format_version")
        if version is None:
            raise RecordError("Expected the field `nnk_format_version`, got none", field="nnk_format_version")
        if version != FORMAT_VERSION:
            raise FormatVersionError(f"Expected nnk_format_version {FORMAT_VERSION}, got {version}",
                                     field="nnk_format_version", found=version, supported=FORMAT_VERSION)
        if self._uint(b"format_check") not in (None, int.from_bytes(FORMAT_CHECK, "little")):
            self.problems.append("the field `format_check` does not agree with the versions")
        for name in ("generator_version", "compiler"):
            place = self._place(name.encode(), b"", _STR)
            if place is None:
                if name == "generator_version":
                    self.problems.append("the field `generator_version` is missing")
            elif place[1] <= 4096:
                setattr(self, name, self._value(place).decode("utf-8", "backslashreplace"))

        place = self._place(b"history", b"", _UINT_ARRAY)
        if place is not None and place[1] <= 4096:
            # Another version of nnk may count less, or more at the end.
            numbers = [number for number, in struct.iter_unpack("<Q", self._value(place))]
            self.history = tuple((numbers + [0] * len(HISTORY))[:len(HISTORY)])

    def _place(self, prefix: bytes, key: bytes, kind: int) -> tuple[int, int] | None:
        """Return (position, length) of a value."""
        if self._table is None:
            return self._found.get((prefix, key))
        number = self._table.find(prefix + key)
        if number < 0 or self._table.kind(number) != kind:
            return None
        return self._table.span(number)

    def _value(self, place: tuple[int, int]) -> bytes:
        """Read a value whose block says the same length as the table."""
        offset, length = place
        at = offset - 8 - self._small_at
        if 0 <= at <= len(self._small) - 8 - length:
            block = self._small[at:at + 8 + length]
        else:
            block = _pread(self._fd, 8 + length, offset - 8)
        if len(block) != 8 + length:
            raise RecordError(f"KVRecord, byte {offset}: expected {length} bytes, the file is shorter", offset=offset)
        if self._table is not None and struct.unpack_from("<Q", block)[0] != length:
            raise RecordError(f"KVRecord, byte {offset - 8}: expected the length {length}, got "
                              f"{struct.unpack_from('<Q', block)[0]}", offset=offset - 8)
        return block[8:]

    def _read_small(self) -> None:
        """Read the small fields of all kernels in one go: nnk writes them between the table and the first kernel."""
        if self._table is None or self._kernels is None or self._has_small:
            return
        self._has_small = True
        begin = self._table.span(0)[0] - 8
        size = self._kernels.first_at - 8 - begin
        if 0 < size <= MAX_SMALL_BYTES:
            self._small = _pread(self._fd, size, begin)
            self._small_at = begin

    def _uint(self, prefix: bytes, key: bytes = b"") -> int | None:
        place = self._place(prefix, key, _UINT)
        if place is None or place[1] != 8:
            return None
        return int.from_bytes(self._value(place), "little")

    def _short(self, prefix: bytes, key: bytes, length: int) -> bytes:
        place = self._place(prefix, key, _STR)
        if place is None or place[1] != length:
            return b""
        return self._value(place)

    def __len__(self) -> int:
        return len(self.keys())

    def __contains__(self, key: str) -> bool:
        return self._place(b"kernel.", key.encode(), _STR) is not None

    def keys(self) -> list[str]:
        """Return the keys of all kernels, checked or not; a field that is no kernel key is skipped."""
        if self._kernels is None:
            return [key.decode() for prefix, key in self._found if prefix == b"kernel."]
        texts = (key.decode("ascii", "replace") for key in self._kernels.keys())  # noqa: SIM118
        return [key for key in texts if KEY.fullmatch(key)]

    def strange_keys(self) -> list[str]:
        """Return the fields in the kernels' namespace that are no kernels."""
        if self._table is None:
            return []
        strange = []
        for number in range(len(self._table)):
            raw = self._table.key(number)
            if raw == b"" or raw.startswith(b"kernel."):
                key = raw[7:].decode("ascii", "replace")
                if not raw or not KEY.fullmatch(key) or self._table.kind(number) != _STR:
                    strange.append(raw.decode("utf-8", "backslashreplace"))
        return strange

    def is_checked(self, key: str) -> bool:
        """Say whether the kernel has a check field."""
        return self._place(b"check.", key.encode(), _UINT) is not None

    def raw(self, key: str) -> bytes | None:
        """Return the kernel's value if it can be SPIR-V, checked or not: for listings, never for a driver."""
        place = self._place(b"kernel.", key.encode(), _STR)
        if place is None:
            return None
        spirv = self._value(place)
        check_spirv(spirv)
        return spirv

    def read(self, key: str) -> Entry | None:
        """Return the kernel ``key``, or None if it is not there or has no check.

        Raises
        ------
        RecordError
            If the entry is damaged.
        """
        name = key.encode()
        self._read_small()
        check = self._uint(b"check.", name)
        if check is None:
            return None
        spirv = self.raw(key)
        if spirv is None:
            return None
        if check_of(spirv) != check:
            raise RecordError(f"Kernel `{key}`: expected content with the check {check:016x}, got "
                              f"{check_of(spirv):016x}", field=f"kernel.{key}")
        about = self._short(b"about.", name, ABOUT_BYTES)
        identity, day = read_about(about, name, check) if about else (b"", 0)
        return Entry(spirv, identity, self._short(b"mac.", name, MAC_BYTES), day, self._parts(name))

    def _parts(self, name: bytes) -> bytes:
        place = self._place(b"parts.", name, _STR)
        return b"" if place is None or place[1] > MAX_PARTS_BYTES else self._value(place)

    def day(self, key: str) -> int:
        """Return the day of the kernel's last use, 0 if it is unknown."""
        about = self._short(b"about.", key.encode(), ABOUT_BYTES)
        return int.from_bytes(about[8:16], "little")

    def identity(self, key: str) -> bytes:
        """Return the kernel's identity as the file says it, unproven; empty if there is none."""
        about = self._short(b"about.", key.encode(), ABOUT_BYTES)
        return about[16:].strip(b"\0") and about[16:]

    def item(self, key: str) -> Item | None:
        """Return the kernel as an item to write, read and checked once now and once more when it is written."""
        entry = self.read(key)
        if entry is None:
            return None
        length, check = len(entry.spirv), check_of(entry.spirv)

        def again() -> bytes:
            spirv = self.raw(key)
            if spirv is None or check_of(spirv) != check:
                raise CacheError(f"The cache file changed while kernel `{key}` was copied", path=self.path)
            return spirv

        return Item(key, length, check, entry.identity, entry.mac, entry.day, again, entry.parts)

    # ---- salvage ------------------------------------------------------------------------------------------------

    def _salvage(self, problem: str) -> None:
        """Find the entries that can be proven, whatever else is damaged."""
        self.state = "damaged"
        self.problems.append(problem)
        self._table = None
        self._kernels = None
        self._small = b""
        if self.size > MAX_SALVAGE_BYTES:
            return
        self._found = provable(_pread(self._fd, self.size, 0))

    def use_salvage(self, problem: str) -> None:
        """Search the file although its table could be read: after an entry that the table leads to was wrong."""
        if self.state == "good":
            self._salvage(problem)


# ---- writing ----------------------------------------------------------------------------------------------------

def head_bytes(generator_version: str, compiler: str) -> int:
    """Return the size of a file without kernels, its history included."""
    fields = (("nnk_format_version", 8), ("format_check", 8), ("generator_version", len(generator_version.encode())),
              ("compiler", len(compiler.encode())), ("history", 8 * len(HISTORY)))
    return 34 + sum(21 + len(name) + size for name, size in fields)


def layout(items: Iterable[Item], *, generator_version: str, compiler: str,
           history: Sequence[int] = ()) -> Iterator[bytes]:
    """Yield the bytes of a cache file with these entries, in order of their keys.

    The small fields come before the kernels: what a cut file loses first is one kernel, not the checks of many.
    """
    ordered = sorted(items, key=lambda item: item.key)
    small: list[tuple[bytes, int, bytes]] = [
        (b"nnk_format_version", _UINT, struct.pack("<Q", FORMAT_VERSION)),
        (b"format_check", _UINT, FORMAT_CHECK),
        (b"generator_version", _STR, generator_version.encode()),
        (b"compiler", _STR, compiler.encode())]
    if history:
        small.append((b"history", _UINT_ARRAY, struct.pack(f"<{len(HISTORY)}Q", *(n % 2**64 for n in history))))
    for item in ordered:
        key = item.key.encode()
        small.append((b"check." + key, _UINT, struct.pack("<Q", item.check)))
        small.append((b"about." + key, _STR, about_of(key, item.check, item.identity, item.day)))
        if item.mac:
            small.append((b"mac." + key, _STR, item.mac))
        if item.parts:
            small.append((b"parts." + key, _STR, item.parts))
    heads = [(key, kind, len(value)) for key, kind, value in small]
    heads += [(b"kernel." + item.key.encode(), _STR, item.length) for item in ordered]
    yield encode_head(tuple(heads))
    yield b"".join([struct.pack("<Q", len(value)) + value for _, _, value in small])
    for item in ordered:
        yield struct.pack("<Q", item.length)
        yield item.read()
