"""The container: hostile files get the outcome they name; every flipped bit costs at most its own entry."""

from __future__ import annotations

import dataclasses
import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest

from nnk import kvrecord
from nnk.cache import container
from nnk.cache.container import Snapshot
from nnk.cache.entry import Entry, item_of
from nnk.errors import CacheError, FormatError, RecordError
from tests import ROOT
from tests.kernels import key, spirv

GOLDEN = ROOT / "tests" / "golden" / "kvrecord"
HOSTILE: dict[str, dict[str, str]] = json.loads((GOLDEN / "hostile_nnk.json").read_text())
KERNEL_1, KERNEL_2 = "v3.0000000000000001", "v3.0000000000000002"

#: name -> (state, kernels that are left, strange keys). Keys that no check proves are listed but never returned.
OUTCOME: dict[str, tuple[str, list[str], list[str]]] = {
    "00_good": ("good", [KERNEL_1, KERNEL_2], []),
    "01_zero_bytes": ("empty", [], []),
    "02_four_zeros": ("damaged", [], []),
    "03_all_zero_4k": ("damaged", [], []),
    "04_count_max": ("damaged", [], []),
    "05_count_plus1": ("damaged", [KERNEL_1], []),
    "07_keylen_max": ("damaged", [], []),
    "08_addr_max": ("damaged", [], []),
    "09_addr_in_table": ("damaged", [], []),
    "11_vlen_max": ("damaged", [], []),
    "12_vlen_wrap_known": ("damaged", [], []),
    "15_empty_key": ("good", [], [""]),
    "16_key_prefix_only": ("good", [], ["kernel."]),
    "18_trailing": ("damaged", [KERNEL_1], []),
    "19_v1_layout": ("damaged", [], []),
    "20_sentinel_bitflip": ("damaged", [KERNEL_1, KERNEL_2], []),
    "21_version3": ("newer", [], []),
    "24_uint_len7": ("damaged", [], []),
    "25_kernel_empty": ("good", [KERNEL_2], []),
    "27_kernel_bad_magic": ("good", [KERNEL_2], []),
    "29_kernel_wrong_type": ("good", [], ["kernel." + KERNEL_1]),
    "30_gen_missing": ("good", [KERNEL_1], []),
    "32_moved_base8": ("damaged", [], []),
    "36_value_past_eof": ("damaged", [KERNEL_1], []),
}


def opened(folder: Path, data: bytes) -> Snapshot:
    path = folder / "k.nnk"
    path.write_bytes(data)
    return Snapshot.open(path)


def whole(snapshot: Snapshot) -> list[str]:
    """Return the keys whose value can be read as SPIR-V, checked or not."""
    found = []
    for name in snapshot.keys():  # noqa: SIM118
        try:
            snapshot.raw(name)
        except RecordError:
            continue
        found.append(name)
    return sorted(found)


def test_every_hostile_file_is_listed() -> None:
    assert set(OUTCOME) == set(HOSTILE)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_file(name: str, tmp_path: Path) -> None:
    snapshot = opened(tmp_path, bytes.fromhex(HOSTILE[name]["hex"]))
    state, kernels, strange = OUTCOME[name]
    assert (snapshot.state, whole(snapshot), snapshot.strange_keys()) == (state, kernels, strange)
    assert bool(snapshot.problems) == (state in ("damaged", "newer") or name == "30_gen_missing")
    # None of these files carries checks: nothing is ever returned from them.
    assert [snapshot.read(key) for key in whole(snapshot)] == [None] * len(kernels)
    snapshot.close()


#: Files whose record as a whole is valid KVRecord; the reader of records refuses every other.
VALID_RECORDS = {"00_good", "02_four_zeros", "15_empty_key", "16_key_prefix_only", "19_v1_layout", "25_kernel_empty",
                 "27_kernel_bad_magic", "29_kernel_wrong_type", "30_gen_missing"}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_file_as_a_record(name: str) -> None:
    data = bytes.fromhex(HOSTILE[name]["hex"])
    if name in VALID_RECORDS:
        kvrecord.loads(data)
        return
    with pytest.raises(FormatError):
        kvrecord.loads(data)


def test_sample_of_the_format_page(tmp_path: Path) -> None:
    snapshot = opened(tmp_path, (GOLDEN / "sample.nnk").read_bytes())
    assert snapshot.state == "good"
    assert snapshot.keys() == ["v3.366917b6a3da7f00#x"]
    assert snapshot.generator_version == "3"


def file_of(entries: dict[str, Entry], **more: Any) -> bytes:
    items = [item_of(name, entry) for name, entry in entries.items()]
    return b"".join(container.layout(items, generator_version="1", compiler="glslang 12", **more))


def entries(count: int, words: int = 20) -> dict[str, Entry]:
    return {key(n): Entry(spirv(n, words=words), bytes([n + 1]) * 16, b"", 20_000 + n) for n in range(count)}


def test_layout_reads_back(tmp_path: Path) -> None:
    wanted = entries(5)
    wanted[key(9)] = Entry(spirv(9), b"", b"m" * 32, 7, b"parts" * 12)
    data = file_of(wanted, history=range(8))
    assert len(data) == container.head_bytes("1", "glslang 12") + sum(
        item_of(name, entry).cost_bytes for name, entry in wanted.items())
    snapshot = opened(tmp_path, data)
    assert (snapshot.state, snapshot.generator_version, snapshot.compiler) == ("good", "1", "glslang 12")
    assert snapshot.history == tuple(range(8))
    assert [snapshot.identity(name) for name in sorted(wanted)] == [wanted[name].identity for name in sorted(wanted)]
    assert {name: snapshot.read(name) for name in snapshot.keys()} == wanted  # noqa: SIM118
    assert snapshot.keys() == sorted(wanted)
    record = kvrecord.loads(data)
    assert record["nnk_format_version"] == container.FORMAT_VERSION
    assert record[f"kernel.{key(3)}"] == spirv(3)
    assert opened(tmp_path, file_of(wanted)).history == (0,) * 8


@pytest.mark.parametrize(("stored", "read"), [
    ([1, 2, 3, 4, 5, 6], (1, 2, 3, 4, 5, 6, 0, 0)), ([], (0,) * 8), (range(12), tuple(range(8)))])
def test_a_history_of_another_version(stored: list[int], read: tuple[int, ...], tmp_path: Path) -> None:
    record = kvrecord.loads(file_of(entries(1), history=range(8)))
    record["history"] = list(stored)
    assert opened(tmp_path, kvrecord.dumps(record)).history == read


def test_the_bytes_depend_on_the_entries_alone() -> None:
    wanted = entries(4)
    assert file_of(wanted) == file_of(dict(reversed(wanted.items())))


def test_opening_reads_the_table_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = file_of(entries(50, words=5000))
    read = 0
    pread = os.pread

    def counted(fd: int, length: int, offset: int) -> bytes:
        nonlocal read
        chunk = pread(fd, length, offset)
        read += len(chunk)
        return chunk

    monkeypatch.setattr(os, "pread", counted)
    snapshot = opened(tmp_path, data)
    assert snapshot.state == "good"
    assert read < 70_000 < len(data)


def test_a_large_table_is_read_in_two_steps(tmp_path: Path) -> None:
    wanted = entries(255, words=5)
    wanted.update({f"v1.factor.{n:0180}": Entry(spirv(n)) for n in range(400)})
    snapshot = opened(tmp_path, file_of(wanted))
    assert snapshot.state == "good"
    assert len(snapshot) == 655
    assert snapshot.read(key(17)) == wanted[key(17)]


def outcomes(folder: Path, data: bytes) -> dict[str, Any]:
    """Return what a reader gets from ``data``, as the store reads it: a second look after damage."""
    snapshot = opened(folder, data)
    got: dict[str, Any] = {}
    for _ in range(2):
        got.clear()
        problem = ""
        for name in snapshot.keys():  # noqa: SIM118
            try:
                got[name] = snapshot.read(name)
            except RecordError as exc:
                problem = str(exc)
        if not problem or snapshot.state != "good":
            break
        snapshot.use_salvage(problem)
    snapshot.close()
    return {name: entry.spirv for name, entry in got.items() if entry is not None}


def test_a_flipped_bit_in_every_byte(tmp_path: Path) -> None:
    """A bit costs the entry that it belongs to, and nothing wrong is read. scripts/cache_fuzz.py tries all bits."""
    wanted = {name: Entry(entry.spirv) for name, entry in entries(2, words=6).items()}
    data = file_of(wanted)
    good = {name: entry.spirv for name, entry in wanted.items()}
    lost_most = 0
    for at in range(len(data)):
        flipped = bytearray(data)
        flipped[at] ^= 1 << at % 8
        got = outcomes(tmp_path, flipped)
        assert got.items() <= good.items(), at
        assert Snapshot.open(tmp_path / "k.nnk").state != "newer"
        lost_most = max(lost_most, len(good) - len(got))
    assert lost_most == 1


@pytest.mark.parametrize("field", ["check", "about", "parts", "kernel"])
def test_a_wrong_address_or_length_costs_nothing(tmp_path: Path, field: str) -> None:
    """Head and block say the same thing twice: one of them may be wrong."""
    wanted = {name: dataclasses.replace(entry, parts=b"parts") for name, entry in entries(3).items()}
    data = file_of(wanted)
    good = {name: entry.spirv for name, entry in wanted.items()}
    head = data.index(f"{field}.{key(1)}".encode()) + len(f"{field}.{key(1)}") + 1
    block = struct.unpack_from("<Q", data, head)[0]
    for at in (head, head + 1, head + 7, block, block + 7):
        changed = bytearray(data)
        changed[at] ^= 8
        assert outcomes(tmp_path, changed) == good, at


def test_every_truncation(tmp_path: Path) -> None:
    wanted = entries(2, words=6)
    data = file_of(wanted)
    good = {name: entry.spirv for name, entry in wanted.items()}
    blocks_begin = struct.unpack_from("<Q", data, 34 + 4 + 18 + 1)[0]
    for size in range(1, len(data)):
        got = outcomes(tmp_path, data[:size])
        assert got.items() <= good.items()
        ends = [data.index(entry.spirv) + len(entry.spirv) for entry in wanted.values()]
        assert len(got) == sum(size >= end for end in ends), size
    assert blocks_begin < len(data)


def test_a_file_cut_while_it_is_open(tmp_path: Path) -> None:
    data = file_of(entries(3))
    snapshot = opened(tmp_path, data)
    os.truncate(tmp_path / "k.nnk", len(data) // 2)
    with pytest.raises(RecordError, match="shorter"):
        snapshot.read(key(2))


def test_item_is_checked_when_it_is_written(tmp_path: Path) -> None:
    data = file_of(entries(2))
    snapshot = opened(tmp_path, data)
    item = snapshot.item(key(1))
    assert item is not None
    assert item.read() == spirv(1)
    (tmp_path / "k.nnk").write_bytes(data[:-8] + bytes(8))
    with pytest.raises((CacheError, RecordError)):
        item.read()


def test_newer_container_format(tmp_path: Path) -> None:
    """A newer format changes `format_check`, or leaves it out; then its version is believed."""
    record = kvrecord.loads(file_of(entries(1)))
    record["nnk_format_version"] = 2
    del record["format_check"]
    without = kvrecord.dumps(record)
    record["format_check"] = 12345
    for data in (without, kvrecord.dumps(record)):
        for version in (2, 3):
            changed = bytearray(data)
            changed[VERSION_AT] = version
            snapshot = opened(tmp_path, changed)
            assert snapshot.state == "newer"
            assert snapshot.keys() == []
            snapshot.close()


#: The first byte of `kvrec_version`.
VERSION_AT = 0x1a


def versions_of(data: bytes) -> tuple[int, int, int]:
    """Return where the values of `kvrec_version`, `nnk_format_version` and `format_check` stand."""
    format_head, check_head = 34 + 4 + 18 + 1, data.index(b"format_check\0") + 13
    return VERSION_AT, *(struct.unpack_from("<Q", data, head)[0] + 8 for head in (format_head, check_head))


@pytest.mark.parametrize("bit", range(64))
def test_a_flipped_version_is_damage(tmp_path: Path, bit: int) -> None:
    """Were it a newer file, all its kernels would be out of use for good. The next version is no exception."""
    wanted = entries(2)
    data = file_of(wanted)
    for at in versions_of(data)[:2]:
        changed = bytearray(data)
        changed[at + bit // 8] ^= 1 << bit % 8
        snapshot = opened(tmp_path, changed)
        assert snapshot.state == "damaged"
        assert sorted(snapshot.keys()) == sorted(wanted)
        snapshot.close()


@pytest.mark.parametrize("version", [0, 1, 3, 4, 255])
def test_any_other_version_is_damage_beside_our_check(tmp_path: Path, version: int) -> None:
    wanted = entries(2)
    for at in versions_of(file_of(wanted))[:2]:
        changed = bytearray(file_of(wanted))
        if changed[at] == version:
            continue
        changed[at] = version
        snapshot = opened(tmp_path, changed)
        assert (snapshot.state, sorted(snapshot.keys())) == ("damaged", sorted(wanted))
        snapshot.close()


@pytest.mark.parametrize("bit", range(64))
def test_a_flipped_format_check_costs_nothing_and_is_told(tmp_path: Path, bit: int) -> None:
    wanted = entries(2)
    changed = bytearray(file_of(wanted))
    changed[versions_of(changed)[2] + bit // 8] ^= 1 << bit % 8
    assert outcomes(tmp_path, changed) == {name: entry.spirv for name, entry in wanted.items()}
    snapshot = opened(tmp_path, changed)
    assert (snapshot.state, snapshot.problems) == (
        "good", ["the field `format_check` does not agree with the versions"])


def test_absent_file(tmp_path: Path) -> None:
    snapshot = Snapshot.open(tmp_path / "absent.nnk")
    assert (snapshot.state, snapshot.keys(), snapshot.read(key(1))) == ("absent", [], None)


def test_huge_and_odd_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "MAX_TABLE_BYTES", 1000)
    assert opened(tmp_path, file_of(entries(50))).state == "damaged"
    monkeypatch.setattr(container, "MAX_SALVAGE_BYTES", 1000)
    assert opened(tmp_path, b"x" * 1001).keys() == []
