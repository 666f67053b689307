"""The key index: what it holds, what it leaves out."""

from __future__ import annotations

import pytest

from nnk._fast import kvrecord
from nnk._fast.keyindex import KeyIndex
from tests.oracle import keyindex as oracle

FIELDS = ((b"kernel.a", 1, b"AA"), (b"kernel.b", 0, 5), (b"other", 1, b"x"), (b"kernel.", 1, b""),
          (b"kernel.\xc3\xa9", 1, b"E"))


def test_agrees_with_the_oracle() -> None:
    data = kvrecord.encode(FIELDS)
    for prefix in (b"kernel.", b"", b"oth", b"none"):
        for kind in (0, 1, 2):
            expected = oracle.index(data, prefix, kind)
            index = KeyIndex(kvrecord.parse(data), prefix, kind)
            assert len(index) == len(expected)
            keys = index.keys()
            assert keys == list(expected)
            assert index.first_at == min((at for at, _ in expected.values()), default=0)
            assert {key: index.find(key.decode()) for key in keys} == expected


def test_absent_keys() -> None:
    index = KeyIndex(kvrecord.parse(kvrecord.encode(FIELDS)), b"kernel.", 1)
    assert "a" in index
    assert "b" not in index
    assert index.find("kernel.a") is None
    assert index.find("") is not None


def test_arguments_are_checked() -> None:
    table = kvrecord.parse(kvrecord.encode(FIELDS))
    with pytest.raises(TypeError):
        KeyIndex(None, b"", 1)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        KeyIndex(table, b"", 1).find(None)  # type: ignore[arg-type]
    with pytest.raises(UnicodeEncodeError):
        KeyIndex(table, b"", 1).find("\ud800")


def test_large_index() -> None:
    data = kvrecord.encode(tuple((b"k%d" % i, 1, b"v" * (i % 7)) for i in range(20_000)))
    index = KeyIndex(kvrecord.parse(data), b"k", 1)
    assert len(index) == 20_000
    for i in (0, 1, 19_999):
        found = index.find(str(i))
        assert found is not None
        assert data[found[0]:found[0] + found[1]] == b"v" * (i % 7)
