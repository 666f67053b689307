"""One save: merge with the file as it is, keep what was used last, repair, and never half."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from nnk.cache import files
from nnk.cache import save as saving
from nnk.cache.container import Snapshot
from nnk.cache.entry import Entry, item_of
from nnk.cache.lock import locked
from nnk.cache.save import Change, collision_key, save
from nnk.errors import CacheError, CacheLockTimeout
from tests.kernels import key, make_newer, spirv


def put(path: Path, *numbers: int, **more: object) -> saving.Outcome:
    change = Change(put={key(n): Entry(spirv(n), day=100) for n in numbers}, today=100, **more)  # type: ignore[arg-type]
    return save(path, change, timeout_s=60.0)


def content(path: Path) -> dict[str, Entry | None]:
    snapshot = Snapshot.open(path)
    try:
        return {name: snapshot.read(name) for name in snapshot.keys()}  # noqa: SIM118
    finally:
        snapshot.close()


def test_saves_merge(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "k.nnk"
    put(path, 1, compiler="one")
    outcome = put(path, 2)
    assert sorted(content(path)) == [key(1), key(2)]
    assert outcome.size_bytes == path.stat().st_size
    snapshot = Snapshot.open(path)
    assert (snapshot.compiler, snapshot.generator_version) == ("one", "1")
    assert sorted(os.listdir(path.parent)) == ["k.nnk", "k.nnk.lock"]


def test_generator_version_is_that_of_the_writer(tmp_path: Path) -> None:
    path = tmp_path / "k.nnk"
    for version, given, expected in ((7, "", "7"), (3, "", "3"), (3, "9", "9")):
        save(path, Change(put={key(1, version=version): Entry(spirv(1))}, generator_version=given), timeout_s=1.0)
        assert Snapshot.open(path).generator_version == expected
    assert sorted(content(path)) == [key(1, version=3), key(1, version=7)]


def test_nothing_to_do_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "k.nnk"
    put(path, 1)
    before = path.stat().st_ino, path.stat().st_mtime_ns
    assert save(path, Change(drop={key(5)}, touch={key(1), key(6)}, today=100), timeout_s=1.0) == saving.Outcome()
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == before


def test_drop_and_touch(tmp_path: Path) -> None:
    path = tmp_path / "k.nnk"
    put(path, 1, 2)
    assert save(path, Change(drop={key(1)}, touch={key(2)}, today=105), timeout_s=1.0).size_bytes
    assert content(path) == {key(2): Entry(spirv(2), day=105)}


def test_a_day_in_the_future_is_no_protection(tmp_path: Path) -> None:
    path = tmp_path / "k.nnk"
    save(path, Change(put={key(1): Entry(spirv(1), day=10**6)}, today=100), timeout_s=1.0)
    put(path, 2)
    assert content(path)[key(1)] == Entry(spirv(1), day=100)


def test_colliding_identities_both_stay(tmp_path: Path) -> None:
    path = tmp_path / "k.nnk"
    a, b = Entry(spirv(1), b"a" * 16), Entry(spirv(2), b"b" * 16)
    save(path, Change(put={key(1, suffix="#x"): a}), timeout_s=1.0)
    save(path, Change(put={key(1, suffix="#x"): b}), timeout_s=1.0)
    moved = collision_key(key(1, suffix="#x"), b"b" * 16)
    assert moved == "v1.0000000000000001@" + "62" * 16 + "#x"
    assert content(path) == {key(1, suffix="#x"): a, moved: b}
    save(path, Change(put={key(1, suffix="#x"): Entry(spirv(3), b"a" * 16)}), timeout_s=1.0)
    assert content(path)[key(1, suffix="#x")] == Entry(spirv(3), b"a" * 16)


def test_the_cap_keeps_what_was_used_last(tmp_path: Path) -> None:
    path = tmp_path / "k.nnk"
    cost = item_of(key(1), Entry(spirv(1))).cost_bytes
    room = 3 * cost + 300
    for number, day in ((1, 50), (2, 90), (3, 70)):
        save(path, Change(put={key(number): Entry(spirv(number), day=day)}, today=100, max_bytes=room), timeout_s=1.0)
    outcome = put(path, 4, max_bytes=room)
    assert outcome.evicted == 1
    assert sorted(content(path)) == [key(2), key(3), key(4)]
    assert path.stat().st_size <= room
    save(path, Change(put={key(5): Entry(spirv(5), day=100)}, today=100, max_bytes=room,
                      touch={key(3)}, recency={key(3): 7, key(5): 6, key(4): 5}), timeout_s=1.0)
    assert sorted(content(path)) == [key(3), key(4), key(5)]


def test_a_kernel_larger_than_the_cap(tmp_path: Path) -> None:
    path = tmp_path / "k.nnk"
    put(path, 1)
    outcome = save(path, Change(put={key(2): Entry(spirv(2, words=1000), day=100)}, today=100, max_bytes=1000),
                   timeout_s=1.0)
    assert outcome.evicted == 1
    assert list(content(path)) == [key(1)]


def test_damage_is_set_aside_and_repaired(tmp_path: Path) -> None:
    path = tmp_path / "k.nnk"
    put(path, 1, 2, 3)
    data = bytearray(path.read_bytes())
    at = data.index(spirv(2))
    data[at + 30] ^= 1
    path.write_bytes(data)
    outcome = put(path, 4)
    assert len(outcome.damage) == 1
    assert sorted(content(path)) == [key(1), key(3), key(4)]
    (kept,) = files.evidence_of(path)
    assert kept.read_bytes() == data
    assert put(path, 5).damage == ()
    assert len(files.evidence_of(path)) == 1


def test_damage_alone_is_a_reason_to_write(tmp_path: Path) -> None:
    path = tmp_path / "k.nnk"
    path.write_bytes(bytes(4096))
    assert save(path, Change(), timeout_s=1.0).damage
    assert Snapshot.open(path).state == "good"


def test_a_newer_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "k.nnk"
    put(path, 1)
    data = make_newer(path)
    with pytest.raises(CacheError, match="newer nnk"):
        put(path, 2)
    assert path.read_bytes() == data


def test_errors_of_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "k.nnk"
    put(path, 1)
    before = path.read_bytes()
    with locked(path, 1.0), pytest.raises(CacheLockTimeout):
        save(path, Change(put={key(2): Entry(spirv(2))}), timeout_s=0.05)

    def fail(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", fail)
    with pytest.raises(CacheError, match="No space left on device; set NN_KERNEL_CACHE_DIR") as caught:
        put(path, 2)
    assert isinstance(caught.value.__cause__, OSError)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["k.nnk", "k.nnk.lock"]
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(CacheError, match="cannot be written"):
        put(tmp_path / "file" / "k.nnk", 1)


def test_threads_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "k.nnk"
    threads = [threading.Thread(target=put, args=(path, n)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(content(path)) == 16
