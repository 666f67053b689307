"""The compiled KVRecord reader and writer: positions, limits and every error."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from nnk._fast import kvrecord
from nnk.errors import FormatVersionError, RecordError, RecordTruncatedError
from tests import ROOT
from tests.oracle import kvrecord as oracle

GOLDEN = ROOT / "tests" / "golden" / "kvrecord"
EXAMPLE = (b"n", 0, 7), (b"s", 1, b"hi"), (b"r", 3, ((b"a", 2, (1, 258)),))


def test_worked_examples_byte_for_byte() -> None:
    assert kvrecord.encode(EXAMPLE) == (GOLDEN / "example_v2.bin").read_bytes()
    assert kvrecord.encode_v1(EXAMPLE) == (GOLDEN / "example_v1.bin").read_bytes()


def test_table_positions() -> None:
    data = (GOLDEN / "example_v2.bin").read_bytes()
    table = kvrecord.parse(data)
    assert (table.version, table.begin, table.end, len(table)) == (2, 0, 182, 3)
    assert [table.key(i) for i in range(3)] == [b"n", b"s", b"r"]
    assert [table.kind(i) for i in range(3)] == [0, 1, 3]
    assert [table.span(i) for i in range(3)] == [(0x54, 8), (0x64, 2), (0x6e, 72)]
    assert table.uint(0) == 7
    assert table.find(b"s") == 1
    assert table.find(b"absent") == -1
    child = table.child(2)
    assert child.uints(0) == (1, 258)
    assert (child.begin, child.end) == (0x6e, 182)


def test_values_are_views_of_the_data() -> None:
    data = bytearray(kvrecord.encode(((b"s", 1, b"hi"),)))
    table = kvrecord.parse(data)
    at, _ = table.span(0)
    data[at] = ord("H")
    assert bytes(table.raw(0)) == b"Hi"
    assert table.raw(0).obj is data


def test_accepts_any_byte_buffer() -> None:
    data = kvrecord.encode(EXAMPLE)
    for buffer in (data, bytearray(data), memoryview(data), memoryview(b"xx" + data)[2:]):
        assert bytes(kvrecord.parse(buffer).raw(1)) == b"hi"


def test_field_access_is_checked() -> None:
    table = kvrecord.parse(kvrecord.encode(EXAMPLE))
    for call in (table.key, table.kind, table.span, table.raw, table.uint, table.uints, table.child):
        with pytest.raises(IndexError):
            call(3)
    with pytest.raises(IndexError):
        table.uint(1)
    with pytest.raises(IndexError):
        table.uints(0)


def nested(levels: int) -> tuple[tuple[bytes, int, object], ...]:
    record: tuple[tuple[bytes, int, object], ...] = ()
    for _ in range(levels):
        record = ((b"r", 3, record),)
    return record


def test_nesting_limit_of_reader_and_writer() -> None:
    assert kvrecord.parse(kvrecord.encode(nested(32))).end
    with pytest.raises(RecordError, match="deeper than 32"):
        kvrecord.encode(nested(33))
    record: list[tuple[bytes, object]] = []
    for _ in range(33):
        record = [(b"r", record)]
    with pytest.raises(RecordError, match="deeper than 32"):
        kvrecord.parse(oracle.write(record))


def patched(at: int, raw: bytes) -> bytes:
    data = bytearray((GOLDEN / "example_v2.bin").read_bytes())
    data[at:at + len(raw)] = raw
    return bytes(data)


U64_MAX = b"\xff" * 8

DAMAGE: list[tuple[str, Callable[[], bytes], type[Exception], int]] = [
    ("empty", lambda: b"", RecordTruncatedError, 0),
    ("short count", lambda: b"\1\0\0", RecordTruncatedError, 0),
    ("count beyond the data", lambda: patched(0, b"\xff" * 4), RecordTruncatedError, 0),
    ("key length beyond the data", lambda: patched(0x22, b"\xff" * 4), RecordTruncatedError, 0x22),
    ("sentinel type", lambda: patched(0x15, b"\1"), RecordError, 0x15),
    ("sentinel length", lambda: patched(0x16, b"\7"), RecordError, 0x15),
    ("version 3", lambda: patched(0x1a, b"\3"), FormatVersionError, 0x1a),
    ("address", lambda: patched(0x28, b"\x4d"), RecordError, 0x28),
    ("address max", lambda: patched(0x28, U64_MAX), RecordError, 0x28),
    ("value length max", lambda: patched(0x4c, U64_MAX), RecordTruncatedError, 0x4c),
    ("value length wraps", lambda: patched(0x4c, struct.pack("<Q", 2**64 - 8)), RecordTruncatedError, 0x4c),
    ("wrapping length of an unknown type", lambda: patched(0x27, b"\x09")[:0x4c] + U64_MAX + b"\0" * 98,
     RecordTruncatedError, 0x4c),
    ("integer of 9 bytes", lambda: patched(0x4c, b"\x09"), RecordError, 0x54),
    ("array of 2 bytes", lambda: patched(0x35, b"\2"), RecordError, 0x64),
    ("duplicate key", lambda: patched(0x34, b"n"), RecordError, 0x30),
    ("nested v1", lambda: patched(0x6e, b"\0\0\0\0"), RecordError, 0x6e),
    ("nested rest", lambda: patched(0x6e, b"\1\0\0\0"), RecordError, 0x90),
]


@pytest.mark.parametrize(("make", "error", "offset"), [row[1:] for row in DAMAGE], ids=[row[0] for row in DAMAGE])
def test_damage_names_its_place(make: Callable[[], bytes], error: type[Exception], offset: int) -> None:
    with pytest.raises(error) as caught:
        kvrecord.parse(make())
    assert type(caught.value) is error
    assert caught.value.offset == offset  # type: ignore[attr-defined]


def test_second_sentinel_is_an_error() -> None:
    data = oracle.write([(b"kvrec_version", 2)])
    with pytest.raises(RecordError, match="reserved"):
        kvrecord.parse(data)


def test_unknown_type_is_kept_in_place() -> None:
    table = kvrecord.parse(patched(0x35, b"\x09"))
    assert [table.kind(i) for i in range(3)] == [0, 9, 3]


def test_base_near_two_to_the_64() -> None:
    data = kvrecord.encode(EXAMPLE)
    with pytest.raises(RecordError, match="base"):
        kvrecord.parse(data, 2**64 - 1)
    with pytest.raises(RecordTruncatedError):
        kvrecord.parse(data, 0, 2**64 - 1)


def test_writer_refuses() -> None:
    for fields, message in (
        (((b"kvrec_version", 0, 2),), "reserved"),
        (((b"a", 0, 1), (b"a", 0, 1)), "twice"),
        (((b"a", 0, -1),), "2\\*\\*64"),
        (((b"a", 2, (2**64,)),), "2\\*\\*64"),
    ):
        with pytest.raises(RecordError, match=message):
            kvrecord.encode(fields)
    for bad in (((b"a", 0, b"x"),), ((b"a", 2, [1]),), (("a", 0, 1),), ((b"a", 7, 1),), ((b"a", 2, (1.5,)),)):
        with pytest.raises(TypeError):
            kvrecord.encode(bad)  # type: ignore[arg-type]


def test_head_alone() -> None:
    fields = (b"n", 0, 7), (b"s", 1, b"hi"), (b"a", 2, (1, 2))
    data = kvrecord.encode(fields)
    head = kvrecord.encode_head(((b"n", 0, 8), (b"s", 1, 2), (b"a", 2, 16)))
    assert data.startswith(head)
    table, whole = kvrecord.parse_head(head, len(data)), kvrecord.parse(data)
    assert [table.span(i) for i in range(3)] == [whole.span(i) for i in range(3)]
    with pytest.raises(IndexError):
        table.raw(1)


@pytest.mark.parametrize(("at", "raw"), [(0x28, b"\x4d"), (0x28, U64_MAX), (0x28, b"\0" * 8)])
def test_head_alone_refuses_addresses(at: int, raw: bytes) -> None:
    fields = (b"n", 0, 7), (b"s", 1, b"hi")
    data = bytearray(kvrecord.encode(fields))
    for place in (at, at + 14):
        bad = data.copy()
        bad[place:place + len(raw)] = raw
        with pytest.raises(RecordError):
            kvrecord.parse_head(bad, len(bad))


def test_head_alone_refuses_bytes_behind_an_empty_record() -> None:
    data = kvrecord.encode(())
    assert len(kvrecord.parse_head(data, len(data))) == 0
    with pytest.raises(RecordError):
        kvrecord.parse_head(data, len(data) + 1)


def test_many_fields_are_linear() -> None:
    fields = tuple((b"key%d" % i, 0, i) for i in range(100_000))
    table = kvrecord.parse(kvrecord.encode(fields))
    assert table.find(b"key99999") == 99_999
    assert table.uint(4711) == 4711
