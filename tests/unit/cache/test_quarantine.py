"""Kernels that ended a process."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from nnk import config
from nnk.cache import quarantine
from nnk.cache.store import KernelCache
from nnk.errors import CacheWarning
from tests.kernels import key, spirv


def marks(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if ".build-" in path.name]


def test_marks_of_a_living_process_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "k.nnk"
    mark = quarantine.Marks(path)
    mark.begin(key(1))
    mark.begin(key(2))
    assert quarantine.suspects_of(path) == []
    (name,) = marks(tmp_path)
    assert (tmp_path / name).read_bytes() == f"{key(1)}\n{key(2)}".encode()
    mark.end(key(1))
    mark.end(key(2))
    mark.end(key(3))
    assert (tmp_path / name).read_bytes().strip(b"\0") == b""
    mark.close()
    mark.close()
    assert marks(tmp_path) == []


def die_building(path: Path, *numbers: int) -> None:
    child = os.fork()
    if child == 0:
        cache = KernelCache(path)
        blocks = [cache.building(key(number)) for number in numbers]
        for block in blocks:
            block.__enter__()
        os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL


def test_what_a_dead_process_left(tmp_path: Path) -> None:
    path = tmp_path / "k.nnk"
    die_building(path, 1, 2)
    assert quarantine.suspects_of(path) == [key(1), key(2)]
    assert marks(tmp_path) == []
    assert quarantine.suspects_of(path) == []


def test_the_next_process_compiles_the_suspect_again(tmp_path: Path) -> None:
    path = tmp_path / "k.nnk"
    with KernelCache(path) as cache, cache.deferred():
        cache.put(key(1), spirv(1))
        cache.put(key(2), spirv(2))
    die_building(path, 1)
    cache = KernelCache(path)
    with pytest.warns(CacheWarning, match=f"worked on kernel {key(1)}"):
        assert cache.get(key(1)) is None
    assert cache.get(key(2)) == spirv(2)
    cache.put(key(1), spirv(1))
    cache.close()
    with KernelCache(path) as cache:
        assert cache.get(key(1)) == spirv(1)


def test_a_block_that_ends_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "k.nnk"
    with KernelCache(path) as cache:
        with cache.building(key(1)):
            assert len(marks(tmp_path)) == 1
        with pytest.raises(RuntimeError), cache.building(key(1)):
            raise RuntimeError
    assert marks(tmp_path) == []


def test_readonly_and_unwritable_write_no_marks(tmp_path: Path) -> None:
    with KernelCache(tmp_path / "k.nnk", readonly=True) as cache, cache.building(key(1)):
        assert marks(tmp_path) == []
    (tmp_path / "file").write_bytes(b"")
    mark = quarantine.Marks(tmp_path / "file" / "k.nnk")
    mark.begin(key(1))
    mark.end(key(1))
    mark.close()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_suspect_of_a_read_only_file_is_not_tried_again(tmp_path: Path) -> None:
    """Not even after a save, and although the user's own file and folder do not exist yet."""
    base, path = tmp_path / "base.nnk", tmp_path / "new" / "k.nnk"
    with KernelCache(base) as cache:
        cache.put(key(1), spirv(1))
    with config.override(cache_extra=str(base)):
        die_building(path, 1)
        cache = KernelCache(path)
        with pytest.warns(CacheWarning, match=f"worked on kernel {key(1)}"):
            assert cache.get(key(1)) is None
        cache.put(key(2), spirv(2))
        cache.flush()
        assert cache.get(key(1)) is None
        cache.put(key(1), spirv(3))
        cache.close()
        with KernelCache(path) as cache:
            assert cache.get(key(1)) == spirv(3)
    with KernelCache(base) as cache:
        assert cache.get(key(1)) == spirv(1)


def test_the_suspect_is_the_kernel_of_the_identity(tmp_path: Path) -> None:
    """Two kernels live under one key; the one that ended a process goes, the other stays."""
    path, a, b = tmp_path / "k.nnk", b"a" * 16, b"b" * 16
    with KernelCache(path) as cache, cache.deferred():
        cache.put(key(1), spirv(1), identity=a)
        cache.put(key(1), spirv(2), identity=b)
    child = os.fork()
    if child == 0:
        block = KernelCache(path).building(key(1), identity=b)
        block.__enter__()
        os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    cache = KernelCache(path)
    with pytest.warns(CacheWarning):
        assert cache.get(key(1), identity=b) is None
    assert cache.get(key(1), identity=a) == spirv(1)
    cache.close()


def test_nonsense_in_a_mark(tmp_path: Path) -> None:
    (tmp_path / ".k.nnk.build-1-aa").write_bytes(b"\xff\xfe not a key\nv1.ok")
    assert quarantine.suspects_of(tmp_path / "k.nnk") == ["v1.ok"]
    assert marks(tmp_path) == []


def test_a_forked_child_has_its_own_marks(tmp_path: Path) -> None:
    path = tmp_path / "k.nnk"
    mark = quarantine.Marks(path)
    mark.begin(key(1))
    child = os.fork()
    if child == 0:
        mark.begin(key(2))
        mark.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    (name,) = marks(tmp_path)
    assert (tmp_path / name).read_bytes() == key(1).encode()
    mark.close()
