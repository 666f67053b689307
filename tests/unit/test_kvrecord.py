"""The public face of KVRecord: Record behaves like a dict; loads and dumps say what is wrong."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from nnk import kvrecord
from nnk.errors import FormatVersionError, RecordError, RecordTruncatedError
from nnk.kvrecord import Record
from tests import ROOT

GOLDEN = ROOT / "tests" / "golden" / "kvrecord"
EXAMPLE = {"n": 7, "s": b"hi", "r": {"a": [1, 258]}}


def test_worked_examples() -> None:
    v2 = (GOLDEN / "example_v2.bin").read_bytes()
    v1 = (GOLDEN / "example_v1.bin").read_bytes()
    assert kvrecord.dumps(EXAMPLE) == v2
    assert kvrecord.dumps(EXAMPLE, version=1) == v1
    assert kvrecord.loads(v2) == EXAMPLE
    assert kvrecord.loads(v1) == {"n": 7, "s": b"hi"}


def test_base_and_offset() -> None:
    data = kvrecord.dumps(EXAMPLE, base=8)
    assert kvrecord.loads(data, base=8) == EXAMPLE
    assert kvrecord.loads(b"NNDS\1\0\0\0" + data, offset=8) == EXAMPLE
    with pytest.raises(RecordError, match="contiguous"):
        kvrecord.loads(b"NNDS\1\0\0\0" + kvrecord.dumps(EXAMPLE), offset=8)


def test_trailing_bytes() -> None:
    data = kvrecord.dumps(EXAMPLE) + b"arena"
    with pytest.raises(RecordError, match="5 more bytes"):
        kvrecord.loads(data)
    assert kvrecord.loads(data, trailing=True) == EXAMPLE


def test_unknown_type_is_skipped() -> None:
    data = bytearray(kvrecord.dumps(EXAMPLE))
    data[0x35] = 9
    assert list(kvrecord.loads(data)) == ["n", "r"]
    old = bytearray(kvrecord.dumps({"n": 7, "s": b"hi"}, version=1))
    old[0x1b] = 3
    assert list(kvrecord.loads(old)) == ["n"]


def test_empty_records() -> None:
    assert kvrecord.loads(b"\0\0\0\0") == {}
    assert kvrecord.loads(kvrecord.dumps({})) == {}
    assert kvrecord.dumps({}, version=1) == b"\0\0\0\0"


def test_record_is_an_ordered_mapping() -> None:
    record = Record(b=1, a="text")
    record["list"] = [1, 2]
    record["sub"] = {"x": 0}
    assert list(record) == ["b", "a", "list", "sub"]
    assert record["a"] == b"text"
    assert record["list"] == (1, 2)
    assert isinstance(record["sub"], Record)
    del record["b"]
    assert "b" not in record
    assert record.get("b") is None
    assert len(record) == 3
    assert repr(Record(n=1, s=b"x")) == "Record({'n': 1, 's': b'x'})"
    assert "(1000 bytes)" in repr(Record(blob=bytes(1000)))
    assert "(100 integers)" in repr(Record(ids=range(100)))


def test_record_equality() -> None:
    assert Record(a=1, b=2) == Record(b=2, a=1)
    assert Record(a=[1]) == {"a": (1,)}
    assert Record(a=1) != {"a": "x"}
    assert Record(a=1) != {"a": 1.5}
    assert Record(a=1) != 5
    assert Record(a=1).copy() == Record(a=1)
    with pytest.raises(TypeError):
        hash(Record())


def test_copies_are_independent() -> None:
    record = Record(a=1, r={"b": 2})
    for other in (record.copy(), copy.copy(record), copy.deepcopy(record), pickle.loads(pickle.dumps(record))):
        assert other == record
        other["a"] = 5
        assert record["a"] == 1
    copy.deepcopy(record)["r"]["b"] = 7
    assert record["r"] == {"b": 2}


def test_integers_of_other_libraries() -> None:
    record = Record(n=np.uint64(2**64 - 1), a=np.arange(3))
    assert record == {"n": 2**64 - 1, "a": (0, 1, 2)}
    assert kvrecord.loads(kvrecord.dumps(record)) == record


@pytest.mark.parametrize("value", [-1, 2**64, [2**64]])
def test_integer_range(value: Any) -> None:
    with pytest.raises(RecordError, match="field `n`"):
        Record(n=value)


@pytest.mark.parametrize("value", [1.5, None, True, [1.5], [True], object()])
def test_value_types(value: Any) -> None:
    with pytest.raises(TypeError):
        Record(n=value)


def test_keys() -> None:
    with pytest.raises(RecordError, match="reserves"):
        Record(kvrec_version=2)
    with pytest.raises(TypeError, match="key of a record"):
        Record({b"n": 1})  # type: ignore[dict-item]
    raw = kvrecord.loads(kvrecord.dumps({"\udcff": 1}))
    assert list(raw) == ["\udcff"]
    assert b"\xff" in kvrecord.dumps(raw)
    assert kvrecord.loads(kvrecord.dumps({"": 1})) == {"": 1}


def test_nesting_limit() -> None:
    record: dict[str, Any] = {}
    for _ in range(32):
        record = {"r": record}
    assert kvrecord.loads(kvrecord.dumps(record)) == record
    with pytest.raises(RecordError, match="32 deep"):
        kvrecord.dumps({"r": record})
    loop = Record()
    loop["self"] = loop
    with pytest.raises(RecordError, match="32 deep"):
        kvrecord.dumps(loop)
    for _ in range(5000):
        record = {"r": record}
    with pytest.raises(RecordError, match="32 deep"):
        kvrecord.dumps(record)


def test_arguments() -> None:
    for call in (lambda: kvrecord.dumps({}, version=3), lambda: kvrecord.dumps({}, base=-1),
                 lambda: kvrecord.dumps({}, base=8, version=1), lambda: kvrecord.loads(b"", base=-1),
                 lambda: kvrecord.loads(b"", offset=2**64)):
        with pytest.raises(RecordError):
            call()
    with pytest.raises(TypeError):
        kvrecord.loads("text")  # type: ignore[arg-type]
    with pytest.raises(RecordTruncatedError):
        kvrecord.loads(b"")
    with pytest.raises(FormatVersionError) as caught:
        kvrecord.loads(kvrecord.dumps({})[:26] + b"\3" + bytes(7))
    assert (caught.value.found, caught.value.supported) == (3, 2)  # type: ignore[attr-defined]
