"""KernelCache over files that are damaged, hostile, newer, foreign, locked or not writable: right, and one warning."""

from __future__ import annotations

import json
import os
import signal
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import xxhash

from nnk import config, kvrecord
from nnk.cache import container, files
from nnk.cache.container import Snapshot
from nnk.cache.lock import locked
from nnk.cache.store import KernelCache
from nnk.errors import CacheError, CacheLockTimeout, CacheWarning
from tests import ROOT
from tests.commands import python
from tests.kernels import fill, key, make_newer, spirv, stored


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "kernels.nnk"


def damage(path: Path, number: int) -> bytes:
    """Flip a bit in the middle of a kernel; return the new content."""
    data = bytearray(path.read_bytes())
    data[data.index(spirv(number)) + 40] ^= 16
    path.write_bytes(data)
    return bytes(data)


@pytest.fixture
def one_warning() -> Iterator[list[warnings.WarningMessage]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield caught
    assert [item.category for item in caught] == [CacheWarning]


def test_damage_costs_one_kernel_and_one_warning(path: Path, one_warning: list[warnings.WarningMessage]) -> None:
    fill(path, 1, 2, 3)
    bad = damage(path, 2)
    with KernelCache(path) as cache:
        assert [cache.get(key(n)) for n in (1, 2, 3, 2)] == [spirv(1), None, spirv(3), None]
        cache.put(key(2), spirv(2))
        assert cache.get(key(2)) == spirv(2)
    with KernelCache(path) as cache:
        assert [cache.get(key(n)) for n in (1, 2, 3)] == [spirv(1), spirv(2), spirv(3)]
    assert [kept.read_bytes() for kept in files.evidence_of(path)] == [bad]


def test_damage_and_rejections_are_counted_until_they_are_healed(path: Path) -> None:
    fill(path, 1, 2, 3)
    damage(path, 2)
    cache = KernelCache(path)
    with pytest.warns(CacheWarning):
        assert cache.get(key(2)) is None
    assert (cache.stats().damaged, cache.stats().healed) == (1, 0)
    with cache.deferred():
        cache.discard(key(1))
        assert (cache.stats().damaged, cache.stats().healed) == (2, 0)
        cache.put(key(1), spirv(1), compiler="glslang 12")
    assert (cache.stats().damaged, cache.stats().healed) == (2, 2)
    cache.close()
    history = dict(zip(container.HISTORY, Snapshot.open(path).history, strict=True))
    assert (history["damaged"], history["healed"], history["compiles"], history["puts"]) == (2, 2, 1, 4)


def test_damage_is_repaired_without_a_put(path: Path, one_warning: list[warnings.WarningMessage]) -> None:
    path.write_bytes(bytes(4096))
    with KernelCache(path) as cache:
        assert cache.get(key(1)) is None
        assert cache.stats().damaged == 1
    assert Snapshot.open(path).state == "good"


def test_an_empty_file_is_an_empty_cache(path: Path) -> None:
    path.write_bytes(b"")
    with KernelCache(path) as cache:
        assert cache.get(key(1)) is None
        cache.put(key(1), spirv(1))
    assert stored(path) == [key(1)]


def test_unchecked_kernels_are_misses(path: Path) -> None:
    path.write_bytes((ROOT / "tests/golden/kvrecord/sample.nnk").read_bytes())
    with KernelCache(path) as cache:
        assert cache.get("v3.366917b6a3da7f00#x") is None
        stats = cache.stats()
        assert (stats.unchecked, stats.damaged, stats.entries) == (1, 0, 0)


def test_a_newer_file_is_left_alone(path: Path, one_warning: list[warnings.WarningMessage]) -> None:
    fill(path, 1)
    data = make_newer(path)
    cache = KernelCache(path)
    assert cache.get(key(1)) is None
    cache.put(key(2), spirv(2))
    assert cache.get(key(2)) == spirv(2)
    with pytest.raises(CacheError, match="newer nnk"):
        cache.flush()
    cache.close()
    assert path.read_bytes() == data


def test_an_unwritable_folder(tmp_path: Path, one_warning: list[warnings.WarningMessage]) -> None:
    (tmp_path / "file").write_bytes(b"")
    cache = KernelCache(tmp_path / "file" / "kernels.nnk")
    for number in range(3):
        assert cache.get(key(number)) is None
        cache.put(key(number), spirv(number))
        assert cache.get(key(number)) == spirv(number)
    with pytest.raises(CacheError, match="set NN_KERNEL_CACHE_DIR"):
        cache.flush()
    cache.close()


def test_a_lock_that_never_comes(path: Path, one_warning: list[warnings.WarningMessage]) -> None:
    with config.override(lock_timeout_s=0.05), locked(path, 1.0):
        cache = KernelCache(path)
        start = time.monotonic()
        for number in range(20):
            cache.put(key(number), spirv(number))
        assert time.monotonic() - start < 2.0
        assert cache.get(key(7)) == spirv(7)
        with pytest.raises(CacheLockTimeout) as caught:
            cache.flush()
        assert caught.value.seconds == 0.05  # type: ignore[attr-defined]
    cache.close()
    assert len(stored(path)) == 20


_DRIVER = """
import os, signal, sys
import nnk
engine = nnk.engine("vulkan")
x = nnk.array([1.0, 2.0], engine=engine) + 1.0
if sys.argv[1] == "die":
    engine.device.build_kernel = lambda module, meta: os.kill(os.getpid(), signal.SIGKILL)
print(x.tolist(), len(engine.kernels.compiled))
"""


def test_a_kernel_that_kills_the_process_is_compiled_by_the_next(cache_dir: Path) -> None:
    """Once, not at every start; the kernels that it did not work on stay hits."""
    assert python(_DRIVER, "fill").stdout.startswith("[2.0, 3.0] ")
    died = python(_DRIVER, "die")
    assert (died.returncode, died.stdout) == (-signal.SIGKILL, "")
    after = python(_DRIVER, "live")
    assert after.stdout == "[2.0, 3.0] 1\n"
    assert after.stderr.count("CacheWarning") == 1
    assert "a process ended while the driver worked on kernel v" in after.stderr
    last = python(_DRIVER, "live")
    assert (last.stdout, last.stderr) == ("[2.0, 3.0] 0\n", "")


def test_a_foreign_file_is_not_used(path: Path, one_warning: list[warnings.WarningMessage]) -> None:
    fill(path, 1)
    path.chmod(0o666)
    with KernelCache(path) as cache:
        assert cache.get(key(1)) is None
        cache.put(key(2), spirv(2))
        assert cache.get(key(2)) == spirv(2)
    path.chmod(0o600)
    assert stored(path) == [key(1)]


def test_an_open_folder_is_not_used(tmp_path: Path, one_warning: list[warnings.WarningMessage]) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    with KernelCache(folder / "kernels.nnk") as cache:
        assert cache.get(key(1)) is None
        cache.put(key(1), spirv(1))
    assert list(folder.iterdir()) == []


def test_planted_links(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    for name in ("kernels.nnk", "kernels.nnk.lock"):
        folder = tmp_path / name.replace(".", "_")
        folder.mkdir()
        victim.write_bytes(b"keep")
        (folder / name).symlink_to(victim)
        cache = KernelCache(folder / "kernels.nnk")
        with pytest.warns(CacheWarning):
            cache.put(key(1), spirv(1))
        assert cache.get(key(1)) == spirv(1)
        cache.close()
        assert victim.read_bytes() == b"keep"
        assert [path.name for path in folder.iterdir() if not path.name.endswith(".lock")] in ([], ["kernels.nnk"])


def test_a_file_cut_while_it_is_open(path: Path, one_warning: list[warnings.WarningMessage]) -> None:
    fill(path, 1, 2)
    with KernelCache(path) as cache:
        assert cache.get(key(1)) == spirv(1)
        os.truncate(path, path.stat().st_size - 10)
        assert cache.get(key(2)) is None
        assert cache.get(key(1)) == spirv(1)


HOSTILE: dict[str, dict[str, str]] = json.loads((ROOT / "tests/golden/kvrecord/hostile_nnk.json").read_text())
KERNELS = ("v3.0000000000000001", "v3.0000000000000002")
#: A kernel without a check is a miss without a word, whatever its value; `tools.verify` tells about strange keys.
QUIET = {"00_good", "01_zero_bytes", "15_empty_key", "16_key_prefix_only", "25_kernel_empty", "27_kernel_bad_magic",
         "29_kernel_wrong_type", "30_gen_missing"}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_file(path: Path, name: str) -> None:
    """Nothing is returned from it, at most one warning is given, and it is repaired or, if newer, left alone."""
    data = bytes.fromhex(HOSTILE[name]["hex"])
    path.write_bytes(data)
    path.chmod(0o600)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with KernelCache(path) as cache:
            assert [cache.get(kernel) for kernel in KERNELS] == [None, None]
            cache.put(key(1), spirv(1))
            assert cache.get(key(1)) == spirv(1)
    assert len(caught) == (name not in QUIET), [str(item.message) for item in caught]
    if HOSTILE[name]["must"].startswith("newer"):
        assert path.read_bytes() == data
        return
    assert stored(path) == [key(1)]
    assert [kept.read_bytes() for kept in files.evidence_of(path)] == ([data] if name not in QUIET else [])


@pytest.mark.parametrize(("name", "kept"), [("00_good", [0, 1]), ("25_kernel_empty", [1]), ("27_kernel_bad_magic", [1]),
                                            ("30_gen_missing", [0]), ("29_kernel_wrong_type", [])])
def test_hostile_file_with_checks(path: Path, name: str, kept: list[int]) -> None:
    """The same files as nnk writes them: with a right check for every kernel, good or not."""
    record = kvrecord.loads(bytes.fromhex(HOSTILE[name]["hex"]))
    for kernel in KERNELS:
        value = record.get(f"kernel.{kernel}")
        record[f"check.{kernel}"] = xxhash.xxh3_64_intdigest(value if isinstance(value, bytes) else b"")
    path.write_bytes(kvrecord.dumps(record))
    path.chmod(0o600)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CacheWarning)
        with KernelCache(path) as cache:
            assert [n for n, kernel in enumerate(KERNELS) if cache.get(kernel) is not None] == kept


def test_a_file_cut_by_one_byte_keeps_the_first_kernel(path: Path, one_warning: list[warnings.WarningMessage]) -> None:
    fill(path, 1, 2)
    path.write_bytes(path.read_bytes()[:-1])
    with KernelCache(path) as cache:
        assert [cache.get(key(n)) for n in (1, 2)] == [spirv(1), None]
