"""Work on whole cache files."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from nnk import config
from nnk.cache import files, tools
from nnk.cache.container import Snapshot
from nnk.cache.entry import Entry, today
from nnk.cache.pipelines import pipelines_path
from nnk.cache.save import Change, save
from nnk.cache.selftests import self_test_path
from nnk.cache.store import KernelCache
from nnk.errors import CacheError
from tests.kernels import key, make_newer, spirv

TODAY = today()


def make(path: Path, *numbers: int, day: int = TODAY, compiler: str = "glslang 12") -> Path:
    put = {key(n): Entry(spirv(n), bytes([n]) * 16, day=day) for n in numbers}
    save(path, Change(put=put, today=TODAY, compiler=compiler), timeout_s=1.0)
    return path


def damage(path: Path, number: int) -> None:
    data = bytearray(path.read_bytes())
    data[data.index(spirv(number)) + 30] ^= 1
    path.write_bytes(data)


def keys(path: Path) -> list[str]:
    return [info.key for info in tools.list_kernels(path)]


def test_list_and_verify_a_good_file(tmp_path: Path) -> None:
    path = make(tmp_path / "k.nnk", 1, 2)
    assert tools.list_kernels(path) == [
        tools.KernelInfo(key(n), "good", 80, TODAY, (bytes([n]) * 16).hex(), False) for n in (1, 2)]
    report = tools.verify(path)
    assert report.is_good
    assert (report.state, report.compiler, report.generator_version) == ("good", "glslang 12", "1")
    assert not tools.verify(path, repair=True).repaired


def test_verify_finds_and_repairs(tmp_path: Path) -> None:
    path = make(tmp_path / "k.nnk", 1, 2, 3)
    damage(path, 2)
    report = tools.verify(path)
    assert not report.is_good
    assert [info.state for info in report.kernels] == ["good", "damaged", "good"]
    assert key(2) in report.problems[0]
    assert tools.verify(path, repair=True).repaired
    assert tools.verify(path).is_good
    assert keys(path) == [key(1), key(3)]
    assert len(files.evidence_of(path)) == 1


def test_verify_a_broken_table(tmp_path: Path) -> None:
    path = make(tmp_path / "k.nnk", 1, 2)
    data = bytearray(path.read_bytes())
    data[5] ^= 1
    path.write_bytes(data)
    report = tools.verify(path)
    assert report.state == "damaged"
    assert [info.state for info in report.kernels] == ["good", "good"]


def test_unchecked_kernels_are_told(tmp_path: Path) -> None:
    from tests import ROOT
    report = tools.verify(ROOT / "tests/golden/kvrecord/sample.nnk")
    assert [(info.key, info.state) for info in report.kernels] == [("v3.366917b6a3da7f00#x", "unchecked")]
    assert report.is_good


def test_merge_is_commutative_associative_and_idempotent(tmp_path: Path) -> None:
    a = make(tmp_path / "a.nnk", 1, 2, compiler="one")
    b = make(tmp_path / "b.nnk", 2, 3, day=TODAY - 3, compiler="two")
    c = tmp_path / "c.nnk"
    save(c, Change(put={key(2): Entry(spirv(77), b"z" * 16, day=5), key(9, version=4): Entry(spirv(9))}, today=TODAY),
         timeout_s=1.0)
    out = tmp_path / "out.nnk"
    results = set()
    for order in itertools.permutations([a, b, c]):
        assert tools.merge(order, out) == 5
        results.add(out.read_bytes())
    for first, second, third in itertools.permutations([a, b, c]):
        tools.merge([first, second], out)
        tools.merge([out, third, out, third], out)
        results.add(out.read_bytes())
    assert len(results) == 1
    assert Snapshot.open(out).generator_version == "4"
    assert sorted((info.key.partition("@")[0], info.day) for info in tools.list_kernels(out)) == [
        (key(1), TODAY), (key(2), 5), (key(2), TODAY), (key(3), TODAY - 3), (key(9, version=4), 0)]


def test_colliding_kernels_all_stay_in_a_merge(tmp_path: Path) -> None:
    """Whatever the order and the grouping; every identity finds its kernel, and one without gives its place away."""
    a, b, c, d = (tmp_path / f"{name}.nnk" for name in "abcd")
    for number, path in enumerate((a, b, c), 1):
        save(path, Change(put={key(1): Entry(spirv(number), bytes([number]) * 16, day=number)}, today=TODAY),
             timeout_s=1.0)
    save(d, Change(put={key(1): Entry(spirv(9), day=9), key(2): Entry(spirv(8))}, today=TODAY), timeout_s=1.0)
    tools.import_(a, b)
    out, results = tmp_path / "out.nnk", set()
    for order in itertools.permutations([a, b, c, d]):
        assert tools.merge(order, out) == 4
        results.add(out.read_bytes())
        tools.merge(order[:2], out)
        tools.merge([order[2], out, out], out)
        tools.merge([out, order[3], order[0]], out)
        tools.merge([out], out)
        results.add(out.read_bytes())
    assert len(results) == 1
    with KernelCache(out) as cache:
        assert [cache.get(key(1), identity=bytes([n]) * 16) for n in (1, 2, 3)] == [spirv(1), spirv(2), spirv(3)]
        assert cache.get(key(2)) == spirv(8)


def test_import_of_a_colliding_kernel(tmp_path: Path) -> None:
    a, b = (tmp_path / f"{name}.nnk" for name in "ab")
    for number, path in enumerate((a, b), 1):
        save(path, Change(put={key(1): Entry(spirv(number), bytes([number]) * 16)}, today=TODAY), timeout_s=1.0)
    assert tools.import_(a, b) == 1
    assert tools.import_(a, b) == 0
    assert tools.import_(b, a) == 1
    assert tools.import_(b, a) == 0
    for path in (a, b):
        with KernelCache(path) as cache:
            assert [cache.get(key(1), identity=bytes([n]) * 16) for n in (1, 2)] == [spirv(1), spirv(2)]
    bare = tmp_path / "bare.nnk"
    save(bare, Change(put={key(1): Entry(spirv(9))}, today=TODAY), timeout_s=1.0)
    assert tools.import_(bare, a) == 0
    assert tools.import_(a, bare) == 2


def test_export_and_import(tmp_path: Path) -> None:
    path = make(tmp_path / "k.nnk", 1, 2, 3)
    out, other = tmp_path / "out.nnk", make(tmp_path / "other.nnk", 3, 4)
    assert tools.export(path, out, [key(1), key(3)]) == 2
    assert tools.import_(out, other) == 1
    assert keys(other) == [key(1), key(3), key(4)]
    assert tools.import_(out, other) == 0
    assert tools.import_(out, tmp_path / "new" / "k.nnk") == 2
    with KernelCache(tmp_path / "new" / "k.nnk") as cache:
        assert cache.get(key(1), identity=b"\1" * 16) == spirv(1)
    with pytest.raises(CacheError, match="Expected the kernel"):
        tools.export(path, out, [key(8)])
    with pytest.raises(CacheError, match="kernel key"):
        tools.export(path, out, ["nonsense"])


def test_damage_is_not_exported(tmp_path: Path) -> None:
    path = make(tmp_path / "k.nnk", 1, 2)
    damage(path, 1)
    assert tools.export(path, tmp_path / "out.nnk") == 1
    assert tools.import_(path, tmp_path / "other.nnk") == 1
    assert keys(tmp_path / "out.nnk") == keys(tmp_path / "other.nnk") == [key(2)]


def test_gc(tmp_path: Path) -> None:
    path = make(tmp_path / "k.nnk", 1, day=TODAY - 40)
    make(path, 2, day=TODAY - 5)
    make(path, 3)
    assert tools.gc(path) == 0
    assert tools.gc(path, older_than_days=30) == 1
    assert keys(path) == [key(2), key(3)]
    assert tools.gc(path, max_bytes=600) == 1
    assert keys(path) == [key(3)]
    with config.override(cache_max_mb=0):
        assert tools.gc(path) == 0


def test_clear(tmp_path: Path) -> None:
    path = make(tmp_path / "k.nnk", 1, 2)
    (tmp_path / "k.nnk.bad-20200101T000000Z").write_bytes(b"x")
    pipelines_path(path, bytes(16), "driver").write_bytes(b"x")
    self_test_path(path, bytes(16), "driver").write_bytes(b"x")
    assert tools.clear(path) == 2
    assert [file.name for file in tmp_path.iterdir()] == ["k.nnk.lock"]
    assert tools.clear(path) == 0


def test_summary_and_history(tmp_path: Path) -> None:
    path = make(tmp_path / "k.nnk", 1, day=TODAY - 4)
    assert tools.summary(path).history["saves"] == 1
    for _ in range(2):
        with KernelCache(path) as cache:
            for number in (1, 2, 3):
                if cache.get(key(number)) is None:
                    cache.put(key(number, version=number), spirv(number))
    found = tools.summary(path)
    assert (found.state, found.kernels, found.bytes) == ("good", 3, path.stat().st_size)
    assert found.ages == {0: 3}
    assert found.versions == {1: 1, 2: 1, 3: 1}
    assert (found.history["hits"], found.history["misses"], found.history["puts"]) == (2, 4, 4)
    assert (found.history["compiles"], found.history["healed"]) == (0, 0)
    damage(path, 1)
    assert tools.verify(path, repair=True).repaired
    found = tools.summary(path)
    assert (found.history["damaged"], found.history["healed"], found.kernels, len(found.set_aside)) == (1, 1, 2, 1)
    tools.gc(path, max_bytes=300)
    assert tools.summary(path).history["evicted"] == 2


def test_errors(tmp_path: Path) -> None:
    path = make(tmp_path / "k.nnk", 1)
    for call in (tools.list_kernels, tools.verify, tools.gc):
        with pytest.raises(CacheError, match="Expected a cache file"):
            call(tmp_path / "absent.nnk")
    with pytest.raises(CacheError, match="cannot be written"):
        tools.merge([path], tmp_path / "no" / "out.nnk")
    make_newer(path)
    with pytest.raises(CacheError, match="newer nnk"):
        tools.verify(path)
    (tmp_path / "link.nnk").symlink_to(path)
    with pytest.raises(CacheError, match="symbolic links"):
        tools.list_kernels(tmp_path / "link.nnk")
