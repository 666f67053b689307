"""Files of the cache: replaced as a whole or not at all; foreign and open ones are refused."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from nnk.cache import files
from nnk.errors import CacheError


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_publish_replaces_the_file(tmp_path: Path) -> None:
    path = tmp_path / "k.nnk"
    path.write_bytes(b"old")
    assert files.publish(path, [b"new", memoryview(b" content"), bytes(3 << 20)]) == 11 + (3 << 20)
    assert path.read_bytes() == b"new content" + bytes(3 << 20)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert names(tmp_path) == ["k.nnk"]


def test_publish_ignores_the_umask(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        files.publish(tmp_path / "k.nnk", [b"x"])
        files.make_folder(tmp_path / "a" / "b")
        os.umask(0o777)
        files.publish(tmp_path / "l.nnk", [b"x"])
        files.make_folder(tmp_path / "c" / "d")
    finally:
        os.umask(old)
    for name, mode in (("k.nnk", 0o600), ("l.nnk", 0o600), ("a", 0o700), ("a/b", 0o700), ("c/d", 0o700)):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == mode, name


@pytest.mark.parametrize("call", ["write", "fsync", "replace", "fchmod"])
def test_a_failed_publish_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    path = tmp_path / "k.nnk"
    path.write_bytes(b"old")
    before = len(os.listdir("/proc/self/fd"))

    def fail(*args: object, **more: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match="No space left"):
        files.publish(path, [b"new"])
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["k.nnk"]
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_failing_source_leaves_nothing(tmp_path: Path) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"part"
        raise CacheError("changed")

    with pytest.raises(CacheError):
        files.publish(tmp_path / "k.nnk", chunks())
    assert names(tmp_path) == []


def test_a_folder_that_cannot_be_synced_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(folder: Path) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(files, "sync_folder", fail)
    assert files.publish(tmp_path / "k.nnk", [b"new"]) == 3
    assert (tmp_path / "k.nnk").read_bytes() == b"new"


def test_stale_temporaries_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "k.nnk"
    stale, fresh, other = (tmp_path / name for name in (".k.nnk.tmp-1-aa", ".k.nnk.tmp-2-bb", ".l.nnk.tmp-1-aa"))
    for file in (stale, fresh, other):
        file.write_bytes(b"x")
    for file in (stale, other):
        os.utime(file, (0, 0))
    assert files.remove_stale(path) == 1
    assert names(tmp_path) == [".k.nnk.tmp-2-bb", ".l.nnk.tmp-1-aa"]


def test_links_and_devices_are_refused(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"keep")
    link = tmp_path / "link"
    link.symlink_to(victim)
    with pytest.raises(OSError, match="symbolic links"):
        files.open_regular(link)
    with pytest.raises(OSError, match="symbolic links"):
        files.open_private(link)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CacheError, match="regular file"):
        files.open_regular(tmp_path / "pipe")
    with pytest.raises(CacheError, match="regular file"):
        files.open_regular(tmp_path)
    assert victim.read_bytes() == b"keep"


def status(mode: int, uid: int) -> os.stat_result:
    return os.stat_result((mode, 0, 0, 1, uid, 0, 0, 0, 0, 0))


def test_who_may_own_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    path = Path("/somewhere")
    for uid in (0, 1000):
        files.check_owner(status(stat.S_IFREG | 0o644, uid), path, what="the file")
    files.check_owner(status(stat.S_IFDIR | 0o1777, 0), path, what="the directory")
    with pytest.raises(CacheError, match="belong to user 1000"):
        files.check_owner(status(stat.S_IFREG | 0o600, 1001), path, what="the file")
    with pytest.raises(CacheError, match="writable by everybody"):
        files.check_owner(status(stat.S_IFREG | 0o606, 1000), path, what="the file")
    with pytest.raises(CacheError, match="writable by everybody"):
        files.check_owner(status(stat.S_IFDIR | 0o777, 1000), path, what="the directory")
    with pytest.raises(CacheError, match="writable by everybody"):
        files.check_owner(status(stat.S_IFREG | 0o1666, 1000), path, what="the file")


def test_files_of_devices_are_bounded_by_kind(tmp_path: Path) -> None:
    def path_of(kind: str, number: int) -> Path:
        name, suffix = kind.split(".")
        return tmp_path / f"{name}-{number:032x}-{number:016x}.{suffix}"

    for number in range(12):
        for kind in ("pipelines.nnp", "selftest.nns"):
            path_of(kind, number).write_bytes(b"x")
            os.utime(path_of(kind, number), (1000 + number, 1000 + number))
    others = [tmp_path / name for name in ("pipelines-1.nnp", "pipelines-of-somebody.nnp", "kernels.nnk")]
    for other in others:
        other.write_bytes(b"x")
    files.remove_spare(path_of("selftest.nns", 11))
    left = files.device_files(tmp_path / "kernels.nnk")
    assert [path for path in left if path.suffix == ".nns"] == [path_of("selftest.nns", n) for n in range(11, 3, -1)]
    assert sum(path.suffix == ".nnp" for path in left) == 12
    assert all(other.exists() and other not in left for other in others)


def test_evidence_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "k.nnk"
    for number in range(4):
        (tmp_path / f"k.nnk.bad-2000010{number}T000000Z").write_bytes(b"%d" % number)
    path.write_bytes(b"damaged")
    kept = files.set_aside(path)
    assert kept is not None
    assert kept.read_bytes() == b"damaged"
    assert files.evidence_of(path) == [tmp_path / "k.nnk.bad-20000103T000000Z", kept]
    assert files.set_aside(path) == kept
    assert path.read_bytes() == b"damaged"


def test_no_hard_links_means_no_evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **more: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", fail)
    (tmp_path / "k.nnk").write_bytes(b"damaged")
    assert files.set_aside(tmp_path / "k.nnk") is None
    assert names(tmp_path) == ["k.nnk"]
