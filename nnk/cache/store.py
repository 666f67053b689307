"""KernelCache: SPIR-V by kernel key, in memory and in one file that all processes of a user share.

How a change reaches the file: `put` marks the entry dirty. Outside :meth:`KernelCache.deferred` it is written at once
if the last write is long enough ago, else by a timer: a lone miss is there for other processes at once, a burst waits
half a second, and the pause between writes doubles while misses keep coming, so that n misses do not rewrite the file
n times. What is left is written at exit. A save takes the lock, reads the
file as it is now, merges, and replaces it as a whole.

What is never done: return an entry that fails a check; raise because of damage; block longer than the lock's
deadline; touch a file of a newer format. Trouble is one CacheWarning for each cache object; later trouble is logged.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import threading
import time
import warnings
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from nnk import config
from nnk.cache import files
from nnk.cache.container import Snapshot
from nnk.cache.entry import IDENTITY_BYTES, MAX_PARTS_BYTES, Entry, check_key, check_spirv, collision_key, today
from nnk.cache.location import cache_path, extra_paths, shown
from nnk.cache.quarantine import Marks, suspects_of
from nnk.cache.save import Change, Outcome, collides, save
from nnk.cache.sign import is_signed, mac_of, read_secret
from nnk.cache.stats import COUNTED, TOLD, CacheStats
from nnk.errors import CacheError, CacheWarning, RecordError

__all__ = ["KernelCache"]

_log = config.logger("nnk.cache")

#: Shortest time between two writes. It doubles with every write up to the second value; no miss for QUIET_S resets it.
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 60.0
QUIET_S = 5.0

#: Once a cache object has written this many times the file's size (and a megabyte), it only writes at the longest
#: pause: many lone misses would otherwise rewrite a large file each.
WRITE_BUDGET = 8
WRITE_BUDGET_BYTES = 10**6

#: After a save that failed, the next automatic one waits this long. An explicit flush does not.
RETRY_AFTER_S = 30.0


class KernelCache:
    """Kernels by key. Safe for threads, for processes that share the file, and over fork.

    Parameters
    ----------
    path : str or Path, optional
        The cache file; by default :func:`nnk.cache_path`. Nothing is read or created before the first use.
    readonly : bool, optional
        Never write; by default the setting ``NNK_CACHE_READONLY``.
    generator_version : int, optional
        What the file's ``generator_version`` says after a write; by default the version in the newest key.

    Examples
    --------
    >>> with KernelCache("kernels.nnk") as cache:
    ...     cache.put("v1.0123456789abcdef", spirv)
    ...     cache.get("v1.0123456789abcdef") == spirv
    True
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, readonly: bool | None = None,
                 generator_version: int | None = None) -> None:
        self.path = cache_path() if path is None else Path(os.path.abspath(os.path.expanduser(path)))
        self.readonly: bool = config.get("cache_readonly") if readonly is None else readonly
        self._generator_version = "" if generator_version is None else str(generator_version)
        self._max_bytes: int = config.get("cache_max_mb") * 10**6
        self._timeout_s: float = config.get("lock_timeout_s")
        self._compiler = ""
        self._counts = dict.fromkeys(COUNTED, 0)
        self._told = dict.fromkeys(TOLD, 0)    # what of them is in the file's history
        self._marks = Marks(self.path)
        self._secret = read_secret(config.get("cache_key_file"))
        self._extra: list[Snapshot] | None = None
        self._snapshot: Snapshot | None = None
        self._pending: dict[str, Entry] = {}
        self._memory: dict[str, Entry] = {}     # not to be written: read-only, newer file, or the parent's to write
        self._dropped: set[str] = set()         # to be removed from the file
        self._distrusted: set[str] = set()      # all that were ever dropped: the extra files keep theirs
        self._used: dict[str, int] = {}         # key -> number of its last use in this process
        self._clock = itertools.count()
        self._touched: set[str] = set()         # keys whose day in the file is to move
        self._heal = False
        self._has_warned = False
        self._has_quarantined = False
        self._deferrals = 0
        self._closed = False
        self._timer: threading.Timer | None = None
        self._pause_s = FIRST_PAUSE_S
        self._last_write = self._last_put = -LONGEST_PAUSE_S
        self._not_before = 0.0
        self._lock = threading.RLock()
        self._saving = threading.Lock()         # taken before _lock, never while holding it
        _alive.add(self)

    # ---- the public face ----------------------------------------------------------------------------------------

    def get(self, key: str, *, identity: bytes = b"") -> bytes | None:
        """Return the SPIR-V of ``key``, or None.

        Parameters
        ----------
        key : str
            ``v<generator version>.<structure key><suffix>``.
        identity : bytes, optional
            128 bits over everything that the kernel's meaning depends on. An entry that carries another identity, or
            none, is not returned.

        Raises
        ------
        CacheError
            If ``key`` is no kernel key.
        """
        check_key(key)
        with self._lock:
            found = self._find(key, identity)
            self._counts["misses" if found is None else "hits"] += 1
            return None if found is None else found[1].spirv

    def has(self, key: str, *, identity: bytes = b"") -> bool:
        """Say whether :meth:`get` would return the kernel; nothing is counted and no use is noted."""
        check_key(key)
        with self._lock:
            return self._find(key, identity, peek=True) is not None

    def __contains__(self, key: object) -> bool:
        """Say whether there is a kernel with this key, whatever its identity."""
        return isinstance(key, str) and self.has(key)

    def put(self, key: str, spirv: bytes, *, compiler: str = "", identity: bytes = b"", parts: bytes = b"") -> None:
        """Keep ``spirv`` under ``key``, in memory now and in the file soon.

        Parameters
        ----------
        key : str
            As for :meth:`get`.
        spirv : bytes
            A SPIR-V module, little-endian words.
        compiler : str, optional
            Name and version of the compiler, for the file's ``compiler`` field.
        identity : bytes, optional
            16 bytes, as for :meth:`get`.
        parts : bytes, optional
            Hashes of the parts of the key, at most 512 bytes, so that a later miss can be explained.

        Raises
        ------
        CacheError
            If ``key`` is no kernel key, ``identity`` has another length or ``parts`` is too long.
        RecordError
            If ``spirv`` cannot be SPIR-V.
        """
        check_key(key)
        spirv, identity = bytes(spirv), bytes(identity)
        check_spirv(spirv)
        if identity and len(identity) != IDENTITY_BYTES:
            raise CacheError(f"Expected an identity of {IDENTITY_BYTES} bytes for kernel `{key}`, got {len(identity)}")
        if len(parts) > MAX_PARTS_BYTES:
            raise CacheError(f"Expected parts of at most {MAX_PARTS_BYTES} bytes for kernel `{key}`, got {len(parts)}")
        with self._lock:
            self._counts["puts"] += 1
            self._counts["compiles"] += bool(compiler)
            self._compiler = compiler or self._compiler
            there = self._pending.get(key) or self._memory.get(key)
            if there is not None and collides(there, identity):
                key = collision_key(key, identity)
            entry = Entry(spirv, identity, self._mac(key, spirv, identity), today(), bytes(parts))
            self._memory.pop(key, None)
            (self._memory if self.readonly else self._pending)[key] = entry
            self._note_use(key)
            is_due = self._is_due()
        if is_due:
            self._save_softly()

    def discard(self, key: str, *, identity: bytes = b"") -> None:
        """Forget what :meth:`get` would return, here and, at the next save, in the file: a driver rejected it."""
        check_key(key)
        with self._lock:
            name = self._name_of(key, identity)
            self._pending.pop(name, None)
            self._memory.pop(name, None)
            self._drop([name])
            is_due = self._is_due()
        if is_due:
            self._save_softly()

    def flush(self) -> None:
        """Write what is pending now.

        Raises
        ------
        CacheError
            If the file cannot be written.
        CacheLockTimeout
            If another process holds the lock for longer than ``NNK_LOCK_TIMEOUT_S``.
        """
        with self._lock:
            self._stop_timer()
        self._save()

    @contextlib.contextmanager
    def deferred(self) -> Iterator[Self]:
        """Write once, at the end of the block (of the outermost one): for a warm-up of many kernels."""
        with self._lock:
            self._deferrals += 1
        try:
            yield self
        finally:
            with self._lock:
                self._deferrals = max(0, self._deferrals - 1)
                is_due = self._deferrals == 0 and bool(self._pending or self._dropped or self._heal)
            if is_due:
                self._save_softly()

    @contextlib.contextmanager
    def building(self, key: str, *, identity: bytes = b"") -> Iterator[None]:
        """Mark that a driver works on the kernel that :meth:`get` returned.

        If the process dies within the block, the next one does not get the entry again: it warns and compiles.
        """
        check_key(key)
        if self.readonly:
            yield
            return
        with self._lock:
            name = self._name_of(key, identity)
        self._marks.begin(name)
        try:
            yield
        finally:
            self._marks.end(name)

    def stats(self) -> CacheStats:
        """Return the counts so far."""
        with self._lock:
            snapshot = self._current()
            keys = set() if snapshot is None else {key for key in snapshot.keys() if snapshot.is_checked(key)}  # noqa: SIM118
            keys -= self._dropped
            return CacheStats(**self._counts, entries=len(keys.union(self._pending, self._memory)),
                              pending=len(self._pending), bytes=0 if snapshot is None else snapshot.size)

    def close(self) -> None:
        """Write what is pending and close the file; the cache then only remembers. A second call does nothing."""
        with self._lock:
            if self._closed:
                return
            self._stop_timer()
            self._not_before = 0.0
        self._marks.close()
        self._save_softly()
        with self._lock:
            self._closed = True
            self._drop_snapshots()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"KernelCache({shown(self.path)!r}{', readonly=True' if self.readonly else ''})"

    # ---- reading ------------------------------------------------------------------------------------------------

    def _find(self, key: str, identity: bytes, *, peek: bool = False) -> tuple[str, Entry] | None:
        """Return the entry and the key under which it is stored."""
        self._current()     # finds suspects, which are then among _dropped
        names = (key, collision_key(key, identity)) if identity else (key,)
        for name in names:
            entry = self._pending.get(name) or self._memory.get(name)
            day = None
            if entry is None and name not in self._dropped:
                entry = self._read(name)
                day = None if entry is None else entry.day
            if entry is not None and _fits(entry, identity):
                if not peek:
                    self._note_use(name, day)
                return name, entry
        for snapshot in self._extras():
            for name in names:
                entry = None if name in self._distrusted else self._read_from(snapshot, name)
                if entry is not None and _fits(entry, identity):
                    return name, entry
        return None

    def _name_of(self, key: str, identity: bytes) -> str:
        found = self._find(key, identity, peek=True)
        return key if found is None else found[0]

    def _read(self, key: str) -> Entry | None:
        """Read from the file as it was, then, on a miss, from the file as it is."""
        snapshot = self._current()
        entry = None if snapshot is None else self._read_from(snapshot, key)
        if entry is None and self._has_changed():
            self._drop_snapshot()
            snapshot = self._current()
            entry = None if snapshot is None else self._read_from(snapshot, key)
        return entry

    def _read_from(self, snapshot: Snapshot, key: str) -> Entry | None:
        """Return the entry, or None; damage is counted, and the rest of the file is searched for what is whole."""
        for _ in range(2):
            if key not in snapshot:
                return None
            try:
                entry = snapshot.read(key)
                if entry is not None and (not self._secret or is_signed(self._secret, key, entry)):
                    return entry
                self._counts["unchecked"] += 1
                return None
            except RecordError as exc:
                self._note_damage(snapshot.path, str(exc))
                if snapshot.state != "good":
                    return None
                snapshot.use_salvage(str(exc))
            except OSError as exc:
                self._warn(f"Kernel cache {shown(snapshot.path)}: cannot be read ({exc}); kernels are compiled again")
                return None
        return None

    def _open(self, path: Path) -> Snapshot | None:
        try:
            with contextlib.suppress(FileNotFoundError):
                files.check_folder(path.parent)
            return Snapshot.open(path)
        except CacheError as exc:
            self._warn(f"Kernel cache {shown(path)} is not used: {exc}")
        except OSError as exc:
            self._warn(f"Kernel cache {shown(path)}: cannot be read ({exc}); kernels stay in memory")
        return None

    def _current(self) -> Snapshot | None:
        if self._snapshot is None and not self._closed:
            self._snapshot = self._open(self.path)
            if self._snapshot is None:
                self._snapshot = Snapshot(self.path)    # stands for a file that is not used
            elif self._snapshot.state == "damaged":
                self._note_damage(self.path, self._snapshot.problems[0])
                self._quarantine()
            elif self._snapshot.state in ("absent", "empty", "good"):
                self._heal = self._heal or bool(self._snapshot.problems)
                self._quarantine()
            elif self._snapshot.state == "newer":
                self._warn(f"Kernel cache {shown(self.path)} was written by a newer nnk "
                           f"({self._snapshot.problems[0]}); it is left alone, and new kernels stay in memory")
        return self._snapshot

    def _quarantine(self) -> None:
        """Drop the kernels on which the driver of a dead process worked; looked for once."""
        if self.readonly or self._has_quarantined:
            return
        self._has_quarantined = True
        suspects = suspects_of(self.path)
        if suspects:
            self._drop(suspects)
            self._warn(f"Kernel cache {shown(self.path)}: a process ended while the driver worked on kernel "
                       f"{suspects[0]}; it is compiled again")

    def _extras(self) -> list[Snapshot]:
        if self._extra is None:
            opened = (self._open(path) for path in extra_paths()) if not self._closed else ()
            self._extra = [snapshot for snapshot in opened if snapshot is not None]
        return self._extra

    def _has_changed(self) -> bool:
        if self._closed or self._snapshot is None:
            return False
        try:
            info = os.stat(self.path, follow_symlinks=False)
        except OSError:
            return False
        return (info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns) != self._snapshot.signature

    def _drop_snapshot(self) -> None:
        if self._snapshot is not None:
            self._snapshot.close()
            self._snapshot = None

    def _drop_snapshots(self) -> None:
        self._drop_snapshot()
        for snapshot in self._extra or ():
            snapshot.close()
        self._extra = None

    # ---- bookkeeping --------------------------------------------------------------------------------------------

    def _note_use(self, key: str, day: int | None = None) -> None:
        self._used[key] = next(self._clock)
        if day is not None and day < today():
            self._touched.add(key)

    def _drop(self, names: Sequence[str]) -> None:
        self._dropped.update(names)
        self._distrusted.update(names)
        self._counts["damaged"] += len(names)

    def _note_damage(self, path: Path, problem: str) -> None:
        self._counts["damaged"] += 1
        if path == self.path:
            self._heal = True
        remedy = "the file is repaired at the next save" if path == self.path else "replace the file"
        self._warn(f"Kernel cache {shown(path)} is damaged: {problem}. What is damaged is compiled again; {remedy}")

    def _warn(self, message: str) -> None:
        """Warn once for each cache object; later trouble goes to the log."""
        if self._has_warned:
            _log.warning("%s", message)
            return
        self._has_warned = True
        warnings.warn(message, CacheWarning, stacklevel=2)

    def _mac(self, key: str, spirv: bytes, identity: bytes) -> bytes:
        return mac_of(self._secret, key, spirv, identity) if self._secret else b""

    # ---- writing ------------------------------------------------------------------------------------------------

    def _is_due(self) -> bool:
        """Say whether to write now; if not, see to it that a timer writes later. See the head of this module."""
        if self.readonly or self._deferrals or self._timer is not None:
            self._last_put = time.monotonic()
            return False
        now = time.monotonic()
        if now - self._last_put >= QUIET_S:
            self._pause_s = FIRST_PAUSE_S
        self._last_put = now
        pause_s = LONGEST_PAUSE_S if self._is_over_budget() else self._pause_s
        wait_s = max(self._last_write + pause_s, self._not_before) - now
        if wait_s > 0 and not self._closed:
            self._timer = threading.Timer(wait_s, self._on_timer)
            self._timer.daemon = True
            try:
                self._timer.start()
                return False
            except RuntimeError:        # the interpreter is shutting down
                self._timer = None
        self._start_pause(now)
        return True

    def _is_over_budget(self) -> bool:
        size_bytes = 0 if self._snapshot is None else self._snapshot.size
        size_bytes += sum(len(entry.spirv) for entry in self._pending.values())
        return self._counts["written_bytes"] > WRITE_BUDGET * size_bytes + WRITE_BUDGET_BYTES

    def _start_pause(self, now: float) -> None:
        self._last_write = now
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)

    def _on_timer(self) -> None:
        with self._lock:
            self._timer = None
            if self._deferrals:
                return
            self._start_pause(time.monotonic())
        # A warning filter that raises has nobody to raise to in this thread.
        with contextlib.suppress(CacheWarning):
            self._save_softly()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _save_softly(self) -> None:
        """Save; a failure is a warning, and the entries stay in memory for the next try."""
        with self._lock:
            is_only_use = not (self._pending or self._dropped or self._heal)
            if time.monotonic() < self._not_before:
                return
        if is_only_use and not os.access(self.path.parent, os.W_OK):
            return
        try:
            self._save()
        except CacheError as exc:
            with self._lock:
                self._not_before = time.monotonic() + RETRY_AFTER_S
            if is_only_use:
                _log.debug("the day of use is not recorded: %s", exc)
            else:
                self._warn(f"{exc}; new kernels stay in memory")

    def _save(self) -> None:
        """Write everything that is pending; every failure is a CacheError. Look-ups go on meanwhile."""
        with self._saving:
            with self._lock:
                if self.readonly or not (self._pending or self._dropped or self._heal or self._touched):
                    return
                change = Change(put=dict(self._pending), drop=frozenset(self._dropped),
                                touch=frozenset(self._touched), today=today(), recency=dict(self._used),
                                compiler=self._compiler, generator_version=self._generator_version,
                                max_bytes=self._max_bytes,
                                counts={name: self._counts[name] - self._told[name] for name in TOLD})
            outcome = save(self.path, change, timeout_s=self._timeout_s)
            with self._lock:
                self._after_save(change, outcome)

    def _after_save(self, change: Change, outcome: Outcome) -> None:
        for key, entry in change.put.items():
            if self._pending.get(key) is entry:
                del self._pending[key]
            if self._closed:
                self._memory[key] = entry   # the file is not opened again
        self._dropped -= change.drop
        self._touched -= change.touch
        if outcome.damage and not self._heal:
            self._note_damage(self.path, outcome.damage[0])
        self._heal = False
        self._not_before = 0.0
        self._last_write = time.monotonic()
        self._counts["evicted"] += outcome.evicted
        self._counts["healed"] += outcome.healed
        if outcome.size_bytes:
            self._told.update({name: self._told[name] + n for name, n in change.counts.items()})
            self._counts["flushes"] += 1
            self._counts["written_bytes"] += outcome.size_bytes
            self._drop_snapshot()

    # ---- fork and exit ------------------------------------------------------------------------------------------

    def _after_fork_in_child(self) -> None:
        """What was pending is the parent's to write; locks and timers of other threads do not exist here."""
        self._lock = threading.RLock()
        self._saving = threading.Lock()
        self._timer = None
        self._memory = {**self._memory, **self._pending}
        self._pending = {}
        self._dropped = set()
        self._touched = set()
        self._heal = False
        self._deferrals = 0


def _fits(entry: Entry, identity: bytes) -> bool:
    """Say whether the entry is the kernel asked for; one that does not say what it is fits no identity."""
    return not identity or entry.identity == identity


_alive: weakref.WeakSet[KernelCache] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for cache in list(_alive):
        cache._after_fork_in_child()


def _at_exit() -> None:
    for cache in list(_alive):
        cache.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
atexit.register(_at_exit)
