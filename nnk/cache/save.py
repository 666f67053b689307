"""One save of the cache file: lock, read the file as it is now, merge, publish.

Nothing here keeps state: a :class:`Change` goes in, an :class:`Outcome` comes out, and the file is either the old one,
byte for byte, or the new one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from pathlib import Path

from nnk.cache import files
from nnk.cache.container import HISTORY, Snapshot, head_bytes, layout
from nnk.cache.entry import Entry, Item, collision_key, item_of
from nnk.cache.location import shown
from nnk.cache.lock import locked
from nnk.errors import CacheError, RecordError

__all__ = ["Change", "Outcome", "collides", "keep_recent", "newest_version", "save", "stored_items"]


@dataclass(frozen=True, slots=True)
class Change:
    """What a save is to do to the file.

    ``put`` are new entries, ``drop`` keys to remove, ``touch`` keys that were used on ``today`` (days since 1970).
    ``recency`` orders keys of one day: a higher number was used later. ``max_bytes`` is 0 for no limit.
    ``rewrite`` writes the file even if nothing changes. ``counts`` are added to the file's history.
    """

    put: Mapping[str, Entry] = field(default_factory=dict)
    drop: AbstractSet[str] = frozenset()
    touch: AbstractSet[str] = frozenset()
    today: int = 0
    recency: Mapping[str, int] = field(default_factory=dict)
    compiler: str = ""
    generator_version: str = ""
    max_bytes: int = 0
    rewrite: bool = False
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a save did. ``size_bytes`` is that of the new file, 0 if the file needed no change.

    ``damage`` is what it found damaged, ``healed`` the number of damaged or rejected parts that are gone now.
    """

    size_bytes: int = 0
    damage: tuple[str, ...] = ()
    evicted: int = 0
    healed: int = 0


def collides(there: Entry | Item, identity: bytes) -> bool:
    """Say whether an entry is another kernel under the same key. One without an identity gives its place away."""
    return bool(there.identity and identity and there.identity != identity)


def stored_items(old: Snapshot, drop: AbstractSet[str] = frozenset()) -> tuple[dict[str, Item], list[str]]:
    """Return the entries of a file that their checks prove, and what is wrong with the others."""
    damage = list(old.problems) if old.state == "damaged" else []
    items: dict[str, Item] = {}
    for _ in range(2):
        items.clear()
        for key in old.keys():  # noqa: SIM118
            try:
                item = None if key in drop else old.item(key)
            except RecordError as exc:
                damage.append(str(exc))
                continue
            if item is not None:
                items[key] = item
        if not damage or old.state != "good":
            break
        # What the table says about one entry was wrong: others may be found where it does not lead to.
        old.use_salvage(damage[0])
    return items, damage


def keep_recent(items: Iterable[Item], *, room_bytes: int, recency: Mapping[str, int]) -> tuple[list[Item], int]:
    """Return the entries that fit into ``room_bytes``, those used last first, and the number of the others."""
    kept: list[Item] = []
    evicted = 0
    for item in sorted(items, key=lambda item: (-item.day, -recency.get(item.key, -1), item.key)):
        if item.cost_bytes > room_bytes:
            evicted += 1
            continue
        room_bytes -= item.cost_bytes
        kept.append(item)
    return kept, evicted


def _merged(items: dict[str, Item], change: Change) -> dict[str, Item]:
    """Return the file's entries with the new ones and with the days of use moved on."""
    merged = {}
    for key, item in items.items():
        day = change.today if key in change.touch else min(item.day, change.today)
        merged[key] = item if day == item.day else replace(item, day=day)
    for key, entry in change.put.items():
        there = merged.get(key)
        if there is not None and collides(there, entry.identity):
            key = collision_key(key, entry.identity)
        merged[key] = item_of(key, entry)
    return merged


def _needs_write(old: Snapshot, merged: Mapping[str, Item], change: Change, damage: list[str]) -> bool:
    if change.rewrite or change.put or damage or old.problems or any(key in old for key in change.drop):
        return True
    return any(key in merged and old.day(key) < change.today for key in change.touch)


def newest_version(keys: Iterable[str], default: str) -> str:
    """Return the highest generator version among kernel keys."""
    numbers = [int(match[1]) for key in keys if (match := re.match(r"v(\d+)\.", key))]
    return str(max(numbers)) if numbers else default


def _publish(path: Path, old: Snapshot, change: Change) -> Outcome:
    if old.state == "newer":
        raise CacheError(f"Kernel cache {shown(path)} was written by a newer nnk and is left alone "
                         f"({old.problems[0]})", path=path)
    items, damage = stored_items(old, change.drop)
    merged = _merged(items, change)
    if not _needs_write(old, merged, change, damage):
        return Outcome()
    version = change.generator_version or newest_version(change.put or merged, old.generator_version)
    compiler = change.compiler or old.compiler
    evicted = 0
    kept = list(merged.values())
    if change.max_bytes:
        room = change.max_bytes - head_bytes(version, compiler)
        kept, evicted = keep_recent(kept, room_bytes=room, recency=change.recency)
    if damage:
        files.set_aside(path)
    healed = len(damage) + sum(key in old for key in change.drop)
    more = {**change.counts, "evicted": evicted, "saves": 1, "healed": healed}
    more["damaged"] = max(more.get("damaged", 0), len(damage))
    history = [before + more.get(name, 0) for name, before in zip(HISTORY, old.history, strict=True)]
    size = files.publish(path, layout(kept, generator_version=version, compiler=compiler, history=history))
    return Outcome(size, tuple(damage), evicted, healed)


def save(path: Path, change: Change, *, timeout_s: float) -> Outcome:
    """Apply ``change`` to the cache file ``path``.

    Raises
    ------
    CacheError
        If the file cannot be written, is not to be trusted, or has a newer format. It is then unchanged.
    CacheLockTimeout
        If another writer holds the lock for longer than ``timeout_s``.
    """
    try:
        files.make_folder(path.parent)
        with locked(path, timeout_s):
            files.remove_stale(path)
            old = Snapshot.open(path)
            try:
                return _publish(path, old, change)
            finally:
                old.close()
    except CacheError:
        raise
    except OSError as exc:
        raise CacheError(f"Kernel cache {shown(path)} cannot be written: {exc.strerror or exc}; set "
                         f"NN_KERNEL_CACHE_DIR to a directory that can", path=path) from exc
