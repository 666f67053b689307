"""One kernel of a cache file: keys, values, checks and seals."""

from __future__ import annotations

from typing import Any

import pytest

from nnk.cache import entry
from nnk.errors import CacheError, RecordError
from tests.kernels import key, spirv


def test_about_binds_key_identity_and_value() -> None:
    name = key(1).encode()
    raw = entry.about_of(name, 5, b"i" * 16, 20_000)
    assert len(raw) == entry.ABOUT_BYTES
    assert entry.read_about(raw, name, 5) == (b"i" * 16, 20_000)
    assert entry.read_about(entry.about_of(name, 5, b"", 1), name, 5) == (b"", 1)
    for other in ((raw, key(2).encode(), 5), (raw, name, 6), (raw[:16] + b"j" * 16, name, 5)):
        with pytest.raises(RecordError, match="seal"):
            entry.read_about(*other)


def test_a_collision_key_is_a_key_and_leads_back() -> None:
    for name in (key(1), key(1, suffix="#x")):
        other = entry.collision_key(name, b"i" * 16)
        entry.check_key(other)
        assert other != name
        assert other.endswith(name[len(key(1)):])
        assert entry.base_key(other, b"i" * 16) == name
        assert entry.base_key(other, b"j" * 16) == other
        assert entry.base_key(name, b"") == name


def test_today_counts_days(monkeypatch: pytest.MonkeyPatch) -> None:
    for seconds, day in ((0.0, 0), (86399.9, 0), (86400.0, 1), (1_700_000_000.0, 19675)):
        monkeypatch.setattr(entry.time, "time", lambda seconds=seconds: seconds)
        assert entry.today() == day


def test_item_of() -> None:
    item = entry.item_of(key(1), entry.Entry(spirv(1), b"i" * 16, b"m" * 32, 7))
    assert (item.key, item.length, item.identity, item.mac, item.day) == (key(1), 80, b"i" * 16, b"m" * 32, 7)
    assert item.check == entry.check_of(spirv(1))
    assert item.read() == spirv(1)
    assert item.parts == b""
    explained = entry.item_of(key(1), entry.Entry(spirv(1), parts=b"p" * 60))
    assert explained.parts == b"p" * 60
    assert explained.cost_bytes == entry.item_of(key(1), entry.Entry(spirv(1))).cost_bytes + 21 + 6 + len(key(1)) + 60


@pytest.mark.parametrize("bad", ["", "v1", "v1.", "kernel.v1.0", "v1.UPPER", "v.0", "v1.0#", "v1.0\n", "v1.a b", 5])
def test_bad_keys(bad: Any) -> None:
    with pytest.raises(CacheError, match="kernel key"):
        entry.check_key(bad)


@pytest.mark.parametrize("good", ["v1.0123456789abcdef", "v12.0123456789abcdef#x", "v1.factor.my_op@2#a", "v0.a-b.c_d"])
def test_good_keys(good: str) -> None:
    entry.check_key(good)


@pytest.mark.parametrize(("bad", "message"), [
    (b"", "0 bytes"), (spirv(1)[:-1], "79 bytes"), (spirv(1)[:16], "16 bytes"), (b"\0" * 20, "0x00000000")])
def test_bad_spirv(bad: bytes, message: str) -> None:
    with pytest.raises(RecordError, match=message):
        entry.check_spirv(bad)
