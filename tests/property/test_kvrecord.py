"""KVRecord over random records and random bytes: round trips, and agreement with the oracle, errors included."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from nnk import kvrecord
from nnk._fast import kvrecord as fast
from nnk.errors import FormatError
from tests.oracle import kvrecord as oracle

uints = st.integers(0, 2**64 - 1)
keys = st.binary(max_size=12).filter(lambda key: key != b"kvrec_version")
leaves = uints | st.binary(max_size=40) | st.lists(uints, max_size=5).map(tuple)
records = st.recursive(st.dictionaries(keys, leaves, max_size=4),
                       lambda inner: st.dictionaries(keys, leaves | inner, max_size=4), max_leaves=12)
bases = st.sampled_from([0, 8, 2**32, 2**63 - 2**20]) | st.integers(0, 2**62)


def text(key: bytes) -> str:
    return key.decode("utf-8", "surrogateescape")


def public(record: dict[bytes, Any]) -> dict[str, Any]:
    return {text(key): public(value) if isinstance(value, dict) else value for key, value in record.items()}


def listed(record: Any) -> Any:
    return [(key, listed(value) if isinstance(value, dict) else value) for key, value in record.items()]


def from_public(record: kvrecord.Record) -> Any:
    out = []
    for key, value in record.items():
        out.append((key.encode("utf-8", "surrogateescape"),
                    from_public(value) if isinstance(value, kvrecord.Record) else value))
    return out


@given(records, bases)
def test_round_trip(record: dict[bytes, Any], base: int) -> None:
    data = kvrecord.dumps(public(record), base=base)
    again = kvrecord.loads(data, base=base)
    assert again == public(record)
    assert list(again) == list(public(record))
    assert kvrecord.dumps(again, base=base) == data


@given(records, bases)
def test_writers_agree(record: dict[bytes, Any], base: int) -> None:
    assert kvrecord.dumps(public(record), base=base) == oracle.write(listed(record), base)
    assert kvrecord.dumps(public(record), version=1) == oracle.write_v1(listed(record))


@given(records, st.binary(max_size=20), st.booleans())
def test_offset_in_a_file(record: dict[bytes, Any], label: bytes, trailing: bool) -> None:
    data = label + kvrecord.dumps(public(record), base=len(label)) + (b"rest" if trailing else b"")
    assert kvrecord.loads(data, offset=len(label), trailing=trailing) == public(record)


def outcome(data: bytes, base: int = 0, offset: int = 0) -> Any:
    try:
        record = kvrecord.loads(data, base=base, offset=offset, trailing=True)
        return from_public(record), fast.parse(data, base, offset).end
    except FormatError as error:
        return type(error).__name__, error.offset  # type: ignore[attr-defined]


def expected(data: bytes, base: int = 0, offset: int = 0) -> Any:
    try:
        return oracle.read(data, base, offset)
    except FormatError as error:
        return type(error).__name__, error.offset  # type: ignore[attr-defined]


@given(st.binary(max_size=200), st.integers(0, 4))
def test_any_bytes_parse_or_raise(data: bytes, offset: int) -> None:
    assert outcome(data, 0, offset) == expected(data, 0, offset)


values = st.sampled_from([0, 1, 2, 3, 4, 8, 0x7f, 0xff]) | st.integers(0, 255)
edits = st.lists(st.tuples(st.integers(0, 2**16), values), min_size=1, max_size=4)


@given(records, edits, st.integers(0, 40), st.booleans())
def test_damaged_records_agree(record: dict[bytes, Any], changes: list[tuple[int, int]], cut: int, old: bool) -> None:
    data = bytearray(oracle.write_v1(listed(record)) if old else oracle.write(listed(record)))
    for at, value in changes:
        data[at % len(data)] = value
    raw = bytes(data[:max(1, len(data) - cut)]) if cut < 20 else bytes(data)
    assert outcome(raw) == expected(raw)


@given(records.filter(lambda record: all(not isinstance(v, dict) for v in record.values())))
def test_head_agrees_with_the_whole(record: dict[bytes, Any]) -> None:
    data = oracle.write(listed(record))
    whole = fast.parse(data)
    head_bytes = len(data) if len(whole) == 0 else whole.span(0)[0] - 8
    head = fast.parse_head(data[:head_bytes], len(data))
    assert [head.span(i) for i in range(len(head))] == [whole.span(i) for i in range(len(whole))]
