"""KernelCache: what get returns, when it writes, and what it says when it cannot."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nnk import config
from nnk.cache import files, store
from nnk.cache.container import Snapshot
from nnk.cache.store import KernelCache
from nnk.cache.tools import list_kernels
from nnk.errors import CacheError, ConfigError, RecordError
from tests.kernels import fill, key, spirv, stored


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "kernels.nnk"


def version_of(path: Path) -> tuple[int, int, int]:
    """Return what changes when a file is written, and not when it is read."""
    info = path.stat()
    return info.st_ino, info.st_mtime_ns, info.st_size


# ---- get and put ----------------------------------------------------------------------------------------------------

def test_put_get_and_counts(path: Path) -> None:
    with KernelCache(path) as cache:
        assert cache.get(key(1)) is None
        cache.put(key(1), spirv(1), compiler="glslang 12")
        assert cache.get(key(1)) == spirv(1)
        stats = cache.stats()
        assert (stats.hits, stats.misses, stats.puts, stats.entries, stats.flushes) == (1, 1, 1, 1, 1)
        assert stats.compiles == 1
        cache.put(key(1), spirv(1))
        assert (cache.stats().puts, cache.stats().compiles) == (2, 1)
        assert stats.bytes == stats.written_bytes == path.stat().st_size
    assert stored(path) == [key(1)]
    assert Snapshot.open(path).compiler == "glslang 12"


def test_in_looks_without_counting(path: Path) -> None:
    fill(path, 1)
    with KernelCache(path) as cache:
        assert key(1) in cache
        assert key(2) not in cache
        assert 5 not in cache
        assert (cache.stats().hits, cache.stats().misses) == (0, 0)


def test_nothing_is_touched_before_the_first_use(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path / "a" / "kernels.nnk")
    assert cache.get(key(1)) is None
    cache.flush()
    cache.close()
    assert list(tmp_path.iterdir()) == []


def test_default_path(cache_dir: Path) -> None:
    with KernelCache() as cache:
        assert cache.path == cache_dir / "kernels.nnk"
        assert repr(cache) == f"KernelCache('{cache.path}')"


def test_arguments(path: Path) -> None:
    with KernelCache(path) as cache:
        for call in (lambda: cache.get("x"), lambda: cache.put("x", spirv(1)), lambda: cache.discard("x"),
                     lambda: cache.put(key(1), spirv(1), identity=b"short")):
            with pytest.raises(CacheError):
                call()
        with pytest.raises(RecordError):
            cache.put(key(1), b"not SPIR-V")
    assert not path.exists()


def test_generator_version(path: Path) -> None:
    with KernelCache(path, generator_version=12) as cache:
        cache.put(key(1), spirv(1))
    assert Snapshot.open(path).generator_version == "12"


def test_two_generator_versions_live_side_by_side(path: Path) -> None:
    compiled = 0
    for turn in range(10):
        version = 1 + turn % 2
        with KernelCache(path, generator_version=version) as cache:
            if cache.get(key(1, version=version)) is None:
                compiled += 1
                cache.put(key(1, version=version), spirv(version))
            assert cache.get(key(1, version=version)) == spirv(version)
    assert compiled == 2


def test_another_process_is_seen_at_the_next_miss(path: Path) -> None:
    with KernelCache(path) as first, KernelCache(path) as second:
        assert second.get(key(1)) is None
        first.put(key(1), spirv(1))
        assert second.get(key(1)) == spirv(1)
        second.put(key(2), spirv(2))
        first.put(key(3), spirv(3))
        first.flush()
        assert second.get(key(3)) == spirv(3)
    assert stored(path) == [key(1), key(2), key(3)]


def test_closed_cache_only_remembers(path: Path) -> None:
    cache = KernelCache(path)
    cache.put(key(1), spirv(1))
    cache.close()
    cache.close()
    assert cache.get(key(1)) is None
    assert cache.stats().entries == 0
    cache.put(key(2), spirv(2))
    assert cache.get(key(2)) == spirv(2)
    assert stored(path) == [key(1), key(2)]


def test_identity_is_compared(path: Path) -> None:
    a, b = b"a" * 16, b"b" * 16
    with KernelCache(path) as cache:
        cache.put(key(1), spirv(1), identity=a)
        assert cache.get(key(1), identity=a) == spirv(1)
        assert cache.get(key(1), identity=b) is None
        cache.put(key(1), spirv(2), identity=b)
        cache.flush()
        assert cache.get(key(1), identity=b) == spirv(2)
        assert cache.get(key(1), identity=a) == spirv(1)
    with KernelCache(path) as cache:
        assert cache.get(key(1), identity=b) == spirv(2)
        assert cache.get(key(1), identity=a) == spirv(1)
        assert cache.get(key(1)) == spirv(1)


def test_parts_are_kept_for_explanations(path: Path) -> None:
    with KernelCache(path) as cache:
        cache.put(key(1), spirv(1), parts=b"p" * 60)
        with pytest.raises(CacheError, match="parts of at most 512 bytes"):
            cache.put(key(1), spirv(1), parts=b"p" * 513)
    with KernelCache(path) as cache:
        cache.put(key(2), spirv(2))
    assert [(info.key, info.parts) for info in list_kernels(path)] == [(key(1), "70" * 60), (key(2), "")]


def test_an_entry_without_identity_is_no_hit_for_a_caller_with_one(path: Path) -> None:
    """Another writer made it, or an older one: nothing says that it is this kernel. The put takes its place."""
    a = b"a" * 16
    fill(path, 1)
    with KernelCache(path) as cache:
        assert cache.get(key(1)) == spirv(1)
        assert cache.get(key(1), identity=a) is None
        assert not cache.has(key(1), identity=a)
        cache.put(key(1), spirv(2), identity=a)
        assert cache.get(key(1), identity=a) == spirv(2)
    assert stored(path) == [key(1)]
    with KernelCache(path) as cache:
        assert cache.get(key(1), identity=a) == cache.get(key(1)) == spirv(2)
        cache.put(key(2), spirv(3))
        cache.put(key(2), spirv(4), identity=a)
        assert cache.get(key(2), identity=a) == spirv(4)
    assert stored(path) == [key(1), key(2)]


def test_a_discarded_collision_leaves_the_other_kernel(path: Path) -> None:
    a, b = b"a" * 16, b"b" * 16
    with KernelCache(path) as cache, cache.deferred():
        cache.put(key(1), spirv(1), identity=a)
        cache.put(key(1), spirv(2), identity=b)
    with KernelCache(path) as cache:
        cache.discard(key(1), identity=b)
        assert cache.get(key(1), identity=b) is None
        assert cache.get(key(1), identity=a) == spirv(1)
    assert stored(path) == [key(1)]


def test_collisions_in_an_extra_file(tmp_path: Path, path: Path) -> None:
    base, identities = tmp_path / "base.nnk", [bytes([n]) * 16 for n in (1, 2, 3)]
    with KernelCache(base) as cache, cache.deferred():
        for n, identity in enumerate(identities):
            cache.put(key(1), spirv(n), identity=identity)
    with config.override(cache_extra=str(base)), KernelCache(path) as cache:
        assert [cache.get(key(1), identity=identity) for identity in identities] == [spirv(n) for n in range(3)]


def test_collision_between_processes(path: Path) -> None:
    with KernelCache(path) as first, KernelCache(path) as second, first.deferred(), second.deferred():
        first.put(key(1), spirv(1), identity=b"a" * 16)
        second.put(key(1), spirv(2), identity=b"b" * 16)
    with KernelCache(path) as cache:
        assert cache.get(key(1), identity=b"a" * 16) == spirv(1)
        assert cache.get(key(1), identity=b"b" * 16) == spirv(2)


def test_discard(path: Path) -> None:
    fill(path, 1, 2)
    with KernelCache(path) as cache:
        assert cache.get(key(1)) == spirv(1)
        cache.discard(key(1))
        assert cache.get(key(1)) is None
    assert stored(path) == [key(2)]
    with KernelCache(path) as cache, cache.deferred():
        cache.discard(key(2))
        cache.put(key(2), spirv(3))
        assert cache.get(key(2)) == spirv(3)
    with KernelCache(path) as cache:
        assert cache.get(key(2)) == spirv(3)


# ---- when it writes -------------------------------------------------------------------------------------------------

def test_deferred_writes_once(path: Path) -> None:
    with KernelCache(path) as cache:
        with cache.deferred(), cache.deferred():
            for number in range(100):
                cache.put(key(number), spirv(number))
            assert not path.exists()
            assert cache.stats().pending == 100
        assert cache.stats().flushes == 1
        assert len(stored(path)) == 100


def test_deferred_writes_after_an_error_too(path: Path) -> None:
    def fail(cache: KernelCache) -> None:
        with cache.deferred():
            cache.put(key(1), spirv(1))
            raise RuntimeError

    with KernelCache(path) as cache, pytest.raises(RuntimeError):
        fail(cache)
    assert stored(path) == [key(1)]


def test_a_burst_is_written_by_the_timer(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "FIRST_PAUSE_S", 0.05)
    cache = KernelCache(path)
    for number in range(50):
        cache.put(key(number), spirv(number))
    assert cache.stats().flushes <= 2
    deadline = time.monotonic() + 10
    while cache.stats().pending and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(stored(path)) == 50
    assert cache.stats().flushes <= 3
    cache.close()


class FakeClock:
    """Time and timers of the store as numbers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.timers: list[tuple[float, Callable[[], None]]] = []
        clock = self

        class Timer:
            daemon = False

            def __init__(self, wait_s: float, call: Callable[[], None]) -> None:
                self.due, self.call = clock.now + wait_s, call

            def start(self) -> None:
                clock.timers.append((self.due, self.call))

            def cancel(self) -> None:
                clock.timers.clear()

        monkeypatch.setattr(store.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(store.threading, "Timer", Timer)
        monkeypatch.setattr(files.os, "fsync", lambda fd: None)

    def pass_s(self, seconds: float) -> None:
        self.now += seconds
        for due, call in list(self.timers):
            if due <= self.now:
                self.timers.clear()
                call()


def test_two_thousand_slow_misses_write_little(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One miss in 0.6 s: the pause between writes grows."""
    clock = FakeClock(monkeypatch)
    cache = KernelCache(path)
    for number in range(2000):
        cache.put(key(number), spirv(number, words=500))
        clock.pass_s(0.6)
    cache.close()
    assert len(stored(path)) == 2000
    assert cache.stats().written_bytes <= 20 * path.stat().st_size


def test_many_lone_misses_have_a_budget(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One miss in ten seconds is written at once, until that has cost enough."""
    clock = FakeClock(monkeypatch)
    cache = KernelCache(path)
    for number in range(300):
        cache.put(key(number), spirv(number, words=500))
        if number < 10:
            assert len(stored(path)) == number + 1
        clock.pass_s(10.0)
    assert 20 < cache.stats().flushes < 120
    cache.close()
    assert len(stored(path)) == 300


def test_use_is_recorded_once_a_day(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "today", lambda: 100)
    fill(path, 1, 2)
    before = version_of(path)
    with KernelCache(path) as cache:
        assert cache.get(key(1)) == spirv(1)
    assert version_of(path) == before
    monkeypatch.setattr(store, "today", lambda: 101)
    for flushes in (1, 0):
        with KernelCache(path) as cache:
            assert cache.get(key(1)) == spirv(1)
        assert cache.stats().flushes == flushes
    snapshot = Snapshot.open(path)
    assert [snapshot.day(key(n)) for n in (1, 2)] == [101, 100]


def test_the_cap_keeps_hot_kernels(path: Path) -> None:
    with config.override(cache_max_mb=1), KernelCache(path) as cache:
        for number in range(10):
            cache.put(key(number), spirv(number, words=5000))
        for start in range(10, 130, 30):
            with cache.deferred():
                for number in range(start, start + 30):
                    cache.put(key(number), spirv(number, words=5000))
                    for hot in range(10):
                        assert cache.get(key(hot)) is not None
            assert path.stat().st_size <= 10**6
        assert cache.stats().evicted >= 80
    names = stored(path)
    assert {key(hot) for hot in range(10)} <= set(names)


# ---- read-only, extra, signed ---------------------------------------------------------------------------------------

def test_readonly(path: Path) -> None:
    fill(path, 1)
    before = sorted(os.listdir(path.parent)), version_of(path)
    with KernelCache(path, readonly=True) as cache:
        assert cache.get(key(1)) == spirv(1)
        cache.put(key(2), spirv(2))
        assert cache.get(key(2)) == spirv(2)
        cache.flush()
    assert (sorted(os.listdir(path.parent)), version_of(path)) == before
    with config.override(cache_readonly=True), KernelCache(path) as cache:
        assert cache.readonly


def test_extra_files_are_read_only(tmp_path: Path, path: Path) -> None:
    base = tmp_path / "base.nnk"
    fill(base, 1, 2)
    fill(path, 2, 3)
    before = base.read_bytes()
    extra = os.pathsep.join([str(tmp_path / "absent.nnk"), str(base)])
    with config.override(cache_extra=extra), KernelCache(path) as cache:
        assert [cache.get(key(n)) for n in (1, 2, 3, 4)] == [spirv(1), spirv(2), spirv(3), None]
        cache.put(key(4), spirv(4))
    assert base.read_bytes() == before
    assert stored(path) == [key(2), key(3), key(4)]


def test_only_signed_kernels_count(path: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"s" * 32)
    secret.chmod(0o600)
    fill(path, 1)
    with config.override(cache_key_file=str(secret)):
        with KernelCache(path) as cache:
            assert cache.get(key(1)) is None
            cache.put(key(2), spirv(2))
        with KernelCache(path) as cache:
            assert cache.get(key(2)) == spirv(2)
    assert stored(path) == [key(1), key(2)]
    secret.write_bytes(b"t" * 32)
    with config.override(cache_key_file=str(secret)), KernelCache(path) as cache:
        assert cache.get(key(2)) is None
    with config.override(cache_key_file=str(tmp_path / "absent")), pytest.raises(ConfigError):
        KernelCache(path)


# ---- threads and fork -----------------------------------------------------------------------------------------------

def test_threads(path: Path) -> None:
    cache = KernelCache(path)
    errors: list[BaseException] = []

    def work(offset: int) -> None:
        try:
            for number in range(40):
                name = (number + offset) % 40
                if cache.get(key(name)) is None:
                    cache.put(key(name), spirv(name))
                assert cache.get(key(name)) == spirv(name)
        except BaseException as exc:
            errors.append(exc)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cache.close()
    assert errors == []
    assert len(stored(path)) == 40


def test_fork_after_use(path: Path) -> None:
    cache = KernelCache(path)
    with cache.deferred():
        cache.put(key(1), spirv(1))
        child = os.fork()
        if child == 0:
            status = 1
            try:
                ok = cache.get(key(1)) == spirv(1)
                cache.put(key(2), spirv(2))
                cache.close()
                status = 0 if ok else 2
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert stored(path) == [key(2)]
        assert cache.get(key(2)) == spirv(2)
    cache.close()
    assert stored(path) == [key(1), key(2)]


def test_saves_within_one_tick_of_the_clock_are_all_seen(tmp_path: Path) -> None:
    path = tmp_path / "kernels.nnk"
    with KernelCache(path) as reader:
        for number in range(20):
            with KernelCache(path) as writer:
                writer.put(key(number), spirv(number))
            os.utime(path, ns=(0, 0))
            assert reader.get(key(number)) == spirv(number)
