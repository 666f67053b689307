"""Entries of damaged files: what is proven is kept, and never under another key."""

from __future__ import annotations

import struct

from nnk import kvrecord
from nnk.cache import salvage
from nnk.cache.container import layout
from nnk.cache.entry import Entry, check_of, item_of
from tests.kernels import key, spirv


def file_of(count: int) -> bytes:
    items = [item_of(key(n), Entry(spirv(n), bytes([n + 1]) * 16, b"", 20_000)) for n in range(count)]
    return b"".join(layout(items, generator_version="1", compiler="glslang 12"))


def kernels(data: bytes) -> dict[str, bytes]:
    return {name.decode(): data[at:at + length] for (prefix, name), (at, length) in salvage.provable(data).items()
            if prefix == b"kernel."}


def test_everything_of_a_good_file() -> None:
    assert kernels(file_of(3)) == {key(n): spirv(n) for n in range(3)}


def test_shifted_blocks_do_not_reach_a_neighbour() -> None:
    """Cut any number of bytes out of the blocks: addresses may then lead to the entry beside, and its check fits."""
    data = file_of(4)
    right = {key(n): spirv(n) for n in range(4)}
    first = struct.unpack_from("<Q", data, 34 + 4 + 18 + 1)[0]
    for at in range(first, len(data), 8):
        for size in (16, 40, 56, 88, 104, 144, 176):
            assert kernels(data[:at] + data[at + size:]).items() <= right.items()


def test_foreign_kernels_count_where_they_say_they_stand() -> None:
    """Other writers know no seal."""
    record: dict[str, object] = {"nnk_format_version": 1, "generator_version": "1"}
    for n in range(3):
        record[f"check.{key(n)}"] = check_of(spirv(n))
        record[f"kernel.{key(n)}"] = spirv(n)
    data = kvrecord.dumps(record)
    assert kernels(data[:-1]) == {key(n): spirv(n) for n in range(2)}
    head = data.index(f"kernel.{key(1)}".encode()) + 7 + 19 + 1
    moved = bytearray(data)
    moved[head] ^= 8
    assert sorted(kernels(bytes(moved))) == [key(0), key(2)]


def test_kernels_without_a_check_are_listed() -> None:
    data = kvrecord.dumps({f"kernel.{key(1)}": spirv(1), f"kernel.{key(2)}": b"no SPIR-V", f"check.{key(3)}": 5})
    assert kernels(data) == {key(1): spirv(1)}


def test_crafted_heads_cost_bounded_work() -> None:
    """Thousands of heads that all claim one large value are not hashed one by one."""
    check_at, kernel_at = struct.pack("<Q", 399_984), struct.pack("<Q", 400_000)
    head = b"".join(b"check.%s\0%s kernel.%s\1%s" % (name, check_at, name, kernel_at)
                    for name in (key(n).encode() for n in range(4000)))
    data = head.ljust(399_984, b" ") + struct.pack("<QQQ", 8, 0, 4_000_000) + spirv(1, words=1_000_000)
    assert salvage.provable(data) == {}


def test_short_data() -> None:
    for data in (b"", b"kernel.v1.00\1", b"kernel.v1.00\1" + b"\xff" * 8, b"\xff" * 7):
        assert salvage.provable(data) == {}
