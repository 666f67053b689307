"""Work on whole cache files: look, verify, repair, merge, export, import, shrink, clear.

The command line's `nnk cache` calls these. Each takes paths and returns data; nothing is printed.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from pathlib import Path

from nnk import config
from nnk.cache import files
from nnk.cache.container import HISTORY, Snapshot, layout
from nnk.cache.entry import Entry, Item, base_key, check_key, collision_key, today
from nnk.cache.location import shown
from nnk.cache.lock import locked
from nnk.cache.save import Change, newest_version, save, stored_items
from nnk.errors import CacheError, RecordError

__all__ = ["KernelInfo", "Report", "Summary", "clear", "export", "gc", "import_", "list_kernels", "merge", "summary",
           "verify"]


@dataclass(frozen=True, slots=True)
class KernelInfo:
    """One kernel of a file. ``state`` is ``"good"``, ``"unchecked"`` or ``"damaged"``; ``day`` counts from 1970."""

    key: str
    state: str
    bytes: int
    day: int
    identity: str
    signed: bool
    parts: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """What :func:`verify` found. ``state`` is that of the file: see :class:`~nnk.cache.container.Snapshot`."""

    path: Path
    state: str
    bytes: int
    compiler: str
    generator_version: str
    kernels: tuple[KernelInfo, ...]
    problems: tuple[str, ...]
    repaired: bool = False

    @property
    def is_good(self) -> bool:
        """Whether nothing at all is wrong."""
        return self.state in ("good", "empty", "absent") and not self.problems


def _opened(path: Path) -> Snapshot:
    """Open a file for work on the whole; a state that gives no entries is an error that says why."""
    try:
        snapshot = Snapshot.open(path)
    except OSError as exc:
        if isinstance(exc, CacheError):
            raise
        raise CacheError(f"Cache file {shown(path)} cannot be read: {exc.strerror or exc}", path=path) from exc
    if snapshot.state == "absent":
        raise CacheError(f"Expected a cache file at {shown(path)}, got none", path=path)
    if snapshot.state == "newer":
        raise CacheError(f"Cache file {shown(path)} was written by a newer nnk ({snapshot.problems[0]})", path=path)
    return snapshot


def _infos(snapshot: Snapshot, problems: list[str]) -> list[KernelInfo]:
    found = []
    for key in snapshot.keys():  # noqa: SIM118
        state, identity, signed, size, day, parts = "unchecked", "", False, 0, 0, ""
        try:
            raw = snapshot.raw(key)
            size = 0 if raw is None else len(raw)
            entry = snapshot.read(key)
            if entry is not None:
                state, identity, signed, day = "good", entry.identity.hex(), bool(entry.mac), entry.day
                parts = entry.parts.hex()
        except RecordError as exc:
            state = "damaged"
            problems.append(f"{key}: {exc}")
        found.append(KernelInfo(key, state, size, day, identity, signed, parts))
    return found


def list_kernels(path: Path) -> list[KernelInfo]:
    """Return the kernels of a file, every value read and checked.

    Raises
    ------
    CacheError
        If there is no such file, or it cannot be read.
    """
    with contextlib.closing(_opened(path)) as snapshot:
        return _infos(snapshot, [])


@dataclass(frozen=True, slots=True)
class Summary:
    """A cache file in numbers. ``ages`` maps days since the last use to the number of kernels, ``versions`` a generator
    version to theirs; ``history`` counts over all processes, as of their last saves; ``set_aside`` are damaged files
    that were kept.
    """

    path: Path
    state: str
    bytes: int
    kernels: int
    compiler: str
    generator_version: str
    ages: dict[int, int]
    versions: dict[int, int]
    history: dict[str, int]
    set_aside: tuple[Path, ...]


def summary(path: Path) -> Summary:
    """Return the numbers of a file; only its table and small fields are read.

    Raises
    ------
    CacheError
        If there is no such file, or it cannot be read.
    """
    with contextlib.closing(_opened(path)) as snapshot:
        now = today()
        ages: Counter[int] = Counter()
        versions: Counter[int] = Counter()
        keys = snapshot.keys()
        for key in keys:
            with contextlib.suppress(RecordError):
                ages[max(0, now - snapshot.day(key))] += 1
            versions[int(key[1:key.index(".")])] += 1
        return Summary(path, snapshot.state, snapshot.size, len(keys), snapshot.compiler, snapshot.generator_version,
                       dict(sorted(ages.items())), dict(sorted(versions.items())),
                       dict(zip(HISTORY, snapshot.history, strict=True)), tuple(files.evidence_of(path)))


def verify(path: Path, *, repair: bool = False) -> Report:
    """Check every byte that matters of a file; with ``repair``, save it again without what is damaged.

    Raises
    ------
    CacheError
        If there is no such file, or it cannot be read, or it cannot be repaired.
    """
    with contextlib.closing(_opened(path)) as snapshot:
        problems = list(snapshot.problems)
        problems += [f"field `{name}` is no kernel" for name in snapshot.strange_keys()]
        kernels = _infos(snapshot, problems)
        if snapshot.state == "good" and any(info.state == "damaged" for info in kernels):
            snapshot.use_salvage("an entry is damaged")
            saved = {info.key for info in _infos(snapshot, []) if info.state == "good"}
            kernels = [replace(info, state="good") if info.key in saved else info for info in kernels]
            state = "damaged"
        else:
            state = snapshot.state
        report = Report(path, state, snapshot.size, snapshot.compiler, snapshot.generator_version, tuple(kernels),
                        tuple(problems))
    if repair and not report.is_good:
        save(path, Change(today=today(), rewrite=True), timeout_s=config.get("lock_timeout_s"))
        return replace(report, repaired=True)
    return report


def _order(item: Item) -> tuple[int, int, bytes, bytes, bytes]:
    """Order items of one key by content alone, so that merging does not depend on the order of its arguments."""
    return item.length, item.check, item.identity, item.mac, item.parts


#: Key that is asked for -> identity -> the kernel.
_Kernels = dict[str, dict[bytes, Item]]


def _unite(collected: _Kernels, items: Iterable[Item]) -> None:
    for item in items:
        same = collected.setdefault(base_key(item.key, item.identity), {})
        there = same.get(item.identity, item)
        same[item.identity] = replace(max(there, item, key=_order), day=max(there.day, item.day))


def _named(collected: _Kernels) -> Iterator[Item]:
    """Yield the kernels under keys that depend on the set of them alone: of several with one key, the first gets it."""
    for key, same in collected.items():
        known = [item for identity, item in same.items() if identity or len(same) == 1]
        first, *others = sorted(known, key=_order, reverse=True)
        yield replace(first, key=key)
        for item in others:
            yield replace(item, key=collision_key(key, item.identity))


def merge(sources: Sequence[Path], output: Path, *, keys: Iterable[str] | None = None) -> int:
    """Write the union of cache files to a new file and return the number of its kernels.

    The result depends on the set of entries alone, byte for byte: not on the order of the sources, and merging twice
    changes nothing. Of two values of one kernel the one with the larger (length, check) stays; its day of use is the
    later one. Kernels of one key and different identities all stay; one without an identity gives its place to them.
    ``generator_version`` is the newest among the keys, ``compiler`` the last name in order. Damaged entries
    are left out.

    Parameters
    ----------
    sources : sequence of Path
        Cache files.
    output : Path
        The file to write; it is replaced as a whole and may be one of the sources.
    keys : iterable of str, optional
        Only these kernels.

    Raises
    ------
    CacheError
        If a source is no cache file, a key is in none of them, or the output cannot be written.
    """
    wanted = None if keys is None else set(keys)
    for key in wanted or ():
        check_key(key)
    found: set[str] = set()
    collected: _Kernels = {}
    compilers = {""}
    with contextlib.ExitStack() as stack:
        for path in sources:
            snapshot = stack.enter_context(contextlib.closing(_opened(path)))
            items, _ = stored_items(snapshot)
            compilers.add(snapshot.compiler)
            found.update(items)
            _unite(collected, (item for key, item in items.items() if wanted is None or key in wanted))
        missing = sorted((wanted or set()) - found)
        if missing:
            raise CacheError(f"Expected the kernel `{missing[0]}` in {', '.join(map(shown, sources))}, got none")
        merged = list(_named(collected))
        version = newest_version(collected, "")
        try:
            files.publish(output, layout(merged, generator_version=version, compiler=max(compilers)))
        except CacheError:
            raise
        except OSError as exc:
            raise CacheError(f"Cache file {shown(output)} cannot be written: {exc.strerror or exc}",
                             path=output) from exc
    return len(merged)


def export(path: Path, output: Path, keys: Iterable[str] | None = None) -> int:
    """Write the kernels of a cache, or only those of ``keys``, to a new file; return their number.

    Raises
    ------
    CacheError
        As for :func:`merge`.
    """
    return merge([path], output, keys=keys)


def import_(source: Path, path: Path) -> int:
    """Add the kernels of ``source`` that the cache ``path`` does not have; return their number.

    Raises
    ------
    CacheError
        If ``source`` is no cache file, or the cache cannot be written.
    """
    with contextlib.closing(_opened(source)) as snapshot:
        have: dict[str, set[bytes]] = {}
        if path.exists():
            with contextlib.closing(Snapshot.open(path)) as there:
                for key in there.keys():  # noqa: SIM118
                    if there.is_checked(key):
                        identity = there.identity(key)
                        have.setdefault(base_key(key, identity), set()).add(identity)
        put = {}
        for key in snapshot.keys():  # noqa: SIM118
            with contextlib.suppress(RecordError):
                entry = snapshot.read(key)
                if entry is not None and not _is_there(have, key, entry):
                    put[key] = replace(entry, day=today())
        if put:
            save(path, Change(put=put, today=today(), compiler=snapshot.compiler, max_bytes=_max_bytes()),
                 timeout_s=config.get("lock_timeout_s"))
    return len(put)


def _is_there(have: Mapping[str, AbstractSet[bytes]], key: str, entry: Entry) -> bool:
    """Say whether a cache has the kernel, or, for an entry without an identity, any of that key."""
    there = have.get(base_key(key, entry.identity), frozenset())
    return entry.identity in there if entry.identity else bool(there)


def _max_bytes() -> int:
    return int(config.get("cache_max_mb")) * 10**6


def gc(path: Path, *, max_bytes: int | None = None, older_than_days: int | None = None) -> int:
    """Remove kernels by size and age, and leftovers beside the file; return the number of kernels removed.

    Parameters
    ----------
    path : Path
        The cache file.
    max_bytes : int, optional
        Largest size of the file; by default ``NNK_CACHE_MAX_MB``. 0 for no limit.
    older_than_days : int, optional
        Remove kernels that were not used for longer.

    Raises
    ------
    CacheError
        If there is no such file, or it cannot be written.
    """
    now = today()
    with contextlib.closing(_opened(path)) as snapshot:
        before = len(snapshot)
        drop = set()
        if older_than_days is not None:
            drop = {key for key in snapshot.keys() if snapshot.day(key) < now - older_than_days}  # noqa: SIM118
    save(path, Change(drop=drop, today=now, max_bytes=_max_bytes() if max_bytes is None else max_bytes,
                      rewrite=True), timeout_s=config.get("lock_timeout_s"))
    with contextlib.closing(_opened(path)) as snapshot:
        return before - len(snapshot)


def clear(path: Path) -> int:
    """Remove all kernels and return their number.

    What is kept of devices, leftovers of dead writers and damaged files kept as evidence go too.

    The lock file stays: removing it would let two writers hold two locks.

    Raises
    ------
    CacheError
        If the file cannot be removed.
    """
    if not path.exists():
        return 0
    try:
        with locked(path, config.get("lock_timeout_s")):
            with contextlib.closing(Snapshot.open(path)) as snapshot:
                count = len(snapshot)
            path.unlink(missing_ok=True)
            for kept in (*files.evidence_of(path), *files.device_files(path)):
                kept.unlink(missing_ok=True)
            files.remove_stale(path)
    except CacheError:
        raise
    except OSError as exc:
        raise CacheError(f"Cache file {shown(path)} cannot be removed: {exc.strerror or exc}", path=path) from exc
    return count
