"""KernelCache against a dict: any order of puts, look-ups, second processes, crashes and damage."""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from pathlib import Path

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from nnk.cache import files, tools
from nnk.cache.container import Snapshot
from nnk.cache.entry import collision_key
from nnk.cache.store import KernelCache
from nnk.errors import CacheWarning
from tests.kernels import key, spirv

numbers = st.integers(0, 7)
versions = st.integers(1, 2)
owners = st.integers(0, 1)
identities = st.sampled_from([b"a" * 16, b"b" * 16])

#: A kernel as its caller knows it: key and identity. Two with one key are a collision.
Kernel = tuple[str, bytes]


class ManualCache(KernelCache):
    """Writes at flush alone, so that the model knows what is in the file."""

    def _is_due(self) -> bool:
        return False


class CacheModel(RuleBasedStateMachine):
    """Two cache objects over one file, as two processes have them.

    ``safe`` holds the keys that are certain to be in the file, ``own`` what a process has put and not written, and
    ``possible`` all values that a key was ever given. A look-up may miss what is not certain; it never returns
    anything else.
    """

    @initialize()
    def start(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.path = self.folder / "kernels.nnk"
        self.caches = [ManualCache(self.path), ManualCache(self.path)]
        self.own: list[dict[Kernel, bytes]] = [{}, {}]
        self.safe: set[Kernel] = set()
        self.possible: dict[Kernel, set[bytes]] = {}
        self.counter = 0

    def teardown(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CacheWarning)
            for cache in self.caches:
                cache.close()
        shutil.rmtree(self.folder)

    @rule(owner=owners, number=numbers, version=versions, identity=identities)
    def put(self, owner: int, number: int, version: int, identity: bytes) -> None:
        self.counter += 1
        name, value = (key(number, version=version), identity), spirv(self.counter)
        self.possible.setdefault(name, set()).add(value)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CacheWarning)
            self.caches[owner].put(name[0], value, identity=identity)
        self.own[owner][name] = value

    @rule(owner=owners, number=numbers, version=versions, identity=identities)
    def get(self, owner: int, number: int, version: int, identity: bytes) -> None:
        name = key(number, version=version), identity
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CacheWarning)
            value = self.caches[owner].get(name[0], identity=identity)
        assert value is None or value in self.possible.get(name, set())
        if name in self.own[owner]:
            assert value == self.own[owner][name]
        elif name in self.safe:
            assert value is not None

    @rule(owner=owners)
    def flush(self, owner: int) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CacheWarning)
            self.caches[owner].flush()
        # From now on the other process may replace the value, so only that there is one is certain.
        self.safe.update(self.own[owner])
        self.own[owner].clear()

    @rule(owner=owners)
    def crash(self, owner: int) -> None:
        """End a process without a goodbye: what it had not written is gone."""
        cache = self.caches[owner]
        with cache._lock:
            cache._stop_timer()
            cache._pending.clear()
            cache._dropped.clear()
            cache._touched.clear()
            cache._closed = True
        (self.folder / f"{files.temporary_prefix(self.path)}{self.counter}-dead").write_bytes(b"part of a file")
        self.caches[owner] = ManualCache(self.path)
        self.own[owner].clear()

    @rule(where=st.floats(0, 1, exclude_max=True), mask=st.integers(1, 255))
    def corrupt(self, where: float, mask: int) -> None:
        if self.path.exists() and self.path.stat().st_size:
            data = bytearray(self.path.read_bytes())
            data[int(where * len(data))] ^= mask
            self._replace(data)

    @rule(where=st.floats(0, 1))
    def truncate(self, where: float) -> None:
        if self.path.exists():
            data = self.path.read_bytes()
            self._replace(data[:int(where * len(data))])

    @rule(cap=st.sampled_from([300, 600, 1200]))
    def evict(self, cap: int) -> None:
        if self.path.exists():
            tools.gc(self.path, max_bytes=cap)
            assert self.path.stat().st_size <= cap
            self.safe.clear()

    @rule()
    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
        self.safe.clear()

    def _replace(self, data: bytes) -> None:
        temporary = self.folder / "other"
        temporary.write_bytes(data)
        os.replace(temporary, self.path)
        snapshot = Snapshot.open(self.path)
        if snapshot.state == "newer":
            # Two changes can make a file of a newer version; nnk would leave it alone. Not what is tested here.
            self.path.unlink()
        snapshot.close()
        self.safe.clear()

    @invariant()
    def the_file_holds_what_is_certain(self) -> None:
        if hasattr(self, "path"):
            snapshot = Snapshot.open(self.path)
            for name, identity in self.safe:
                found = [snapshot.read(place) for place in (name, collision_key(name, identity))]
                values = [entry.spirv for entry in found if entry is not None and entry.identity == identity]
                assert values
                assert self.possible[name, identity].issuperset(values)
            snapshot.close()


CacheModel.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestCache = CacheModel.TestCase
