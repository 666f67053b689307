"""Mutated records, cache files and kernels: what a reader makes of them, how long it takes, how much memory."""

from __future__ import annotations

import contextlib
import json
import os
import random
import struct
import time
import warnings
from pathlib import Path

from nnk import kvrecord
from nnk._fast.kvrecord import parse, parse_head
from nnk.cache import files
from nnk.cache.container import Snapshot, layout
from nnk.cache.entry import Entry, item_of
from nnk.cache.store import KernelCache
from nnk.cache.tools import verify
from nnk.errors import FormatError, RecordError
from tests import ROOT
from tests.kernels import key, spirv

INTERESTING = [0, 1, 2, 3, 4, 7, 8, 13, 21, 30, 34, 0x7f, 0x80, 0xff, 0xffff, 0x7fffffff, 0x80000000, 0xfffffff8,
               0xffffffff, 2**63 - 1, 2**63, 2**64 - 8, 2**64 - 1]


def identity(number: int) -> bytes:
    return bytes([number + 1]) * 16


def file_of(count: int, *, words: int = 20) -> bytes:
    """Return a good cache file."""
    items = [item_of(key(n), Entry(spirv(n, words=words), identity(n), b"", 20_000, bytes(range(60))))
             for n in range(count)]
    return b"".join(layout(items, generator_version="1", compiler="glslang 12"))


def seeds() -> list[bytes]:
    """Return good and hostile files to start from."""
    hostile = json.loads((ROOT / "tests/golden/kvrecord/hostile_nnk.json").read_text())
    nested: dict[str, object] = {"a": 1}
    for _ in range(5):
        nested = {"n": 7, "r": nested, "s": b"text", "u": [1, 2]}
    return [bytes.fromhex(row["hex"]) for row in hostile.values()] + [
        file_of(3), kvrecord.dumps(nested), kvrecord.dumps(nested, version=1)]


def mutate(data: bytes, chance: random.Random) -> bytes:
    """Change a few bytes or numbers, cut, repeat or insert."""
    out = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 4, 8))):
        at = chance.randrange(len(out) + 1)
        kind = chance.randrange(6)
        if kind == 0 and at < len(out):
            out[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            out[at:at + 4] = struct.pack("<I", chance.choice(INTERESTING) & 0xFFFFFFFF)
        elif kind == 2:
            out[at:at + 8] = struct.pack("<Q", chance.choice(INTERESTING))
        elif kind == 3:
            del out[at:at + chance.randrange(1, 40)]
        elif kind == 4:
            other = chance.randrange(len(out) + 1)
            out[at:at] = out[other:other + chance.randrange(1, 60)]
        else:
            out[at:at + 1] = chance.randbytes(chance.randrange(1, 9))
    return bytes(out)


def fuzz_records(count: int, *, seed: int) -> dict[str, float]:
    """Give mutated bytes to the readers: they return a table or raise the one error class. Return counts."""
    chance = random.Random(seed)
    pool = seeds()
    counts: dict[str, float] = {"executions": 0, "accepted": 0, "slowest_ms": 0.0}
    for _ in range(count):
        data = mutate(chance.choice(pool), chance)
        offset = chance.choice((0, 0, 0, 8))
        start = time.thread_time()
        try:
            table = parse(data, chance.choice((0, 0, 8, 2**63)), offset)
            for number in range(len(table)):
                table.raw(number)
            counts["accepted"] += 1
        except FormatError:
            pass
        with contextlib.suppress(FormatError):
            parse_head(data[:chance.randrange(len(data) + 1)], len(data))
        counts["slowest_ms"] = max(counts["slowest_ms"], 1000 * (time.thread_time() - start))
        counts["executions"] += 1
        if chance.random() < 0.01 and len(pool) < 500:
            pool.append(data[:4096])
    return counts


def fuzz_files(folder: Path, count: int, *, seed: int) -> dict[str, float]:
    """Give mutated files to the cache's reader: it returns right kernels or none."""
    chance = random.Random(seed)
    pool = [file_of(3), file_of(8), file_of(1, words=5)]
    right = {key(n): (spirv(n), spirv(n, words=5)) for n in range(8)}
    counts: dict[str, float] = {"executions": 0, "kernels": 0, "slowest_ms": 0.0}
    path = folder / "kernels.nnk"
    for _ in range(count):
        data = mutate(chance.choice(pool), chance)
        path.write_bytes(data)
        path.chmod(0o600)
        start = time.thread_time()
        snapshot = Snapshot.open(path)
        for _ in range(2):
            problem = ""
            for name in snapshot.keys():  # noqa: SIM118
                try:
                    entry = snapshot.read(name)
                except RecordError as exc:
                    problem = str(exc)
                    continue
                if entry is not None:
                    assert entry.spirv in right[name], name
                    counts["kernels"] += 1
            if not problem or snapshot.state != "good":
                break
            snapshot.use_salvage(problem)
        snapshot.close()
        counts["slowest_ms"] = max(counts["slowest_ms"], 1000 * (time.thread_time() - start))
        counts["executions"] += 1
    return counts


def fuzz_kernels(folder: Path, count: int, *, seed: int) -> int:
    """Change the bytes of one stored kernel: `get` returns the others alone. Return how many were tried."""
    chance = random.Random(seed)
    data = file_of(3, words=100)
    at = data.index(spirv(1, words=100))
    path = folder / "kernels.nnk"
    for _ in range(count):
        value = spirv(1, words=100)
        while value == spirv(1, words=100):
            changed = bytearray(value)
            for _ in range(chance.choice((1, 1, 2, 5))):
                changed[chance.randrange(len(changed))] = chance.randrange(256)
            value = bytes(changed)
        path.write_bytes(data[:at] + value + data[at + len(value):])
        path.chmod(0o600)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            cache = KernelCache(path, readonly=True)
            got = [cache.get(key(n), identity=identity(n)) for n in range(3)]
            cache.close()
        assert got == [spirv(0, words=100), None, spirv(2, words=100)]
        assert len(caught) == 1
    return count


def flip_every_bit(folder: Path, kernels: int, *, step: int = 1, heal_every: int = 97) -> dict[str, int]:
    """Flip the bits of a file one at a time; return how many cost how many kernels. One in ``heal_every`` is healed."""
    data = file_of(kernels, words=8)
    path = folder / "kernels.nnk"
    counts = {"bits": 0, "cost nothing": 0, "cost one kernel": 0}
    for bit in range(0, 8 * len(data), step):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        path.chmod(0o600)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            cache = KernelCache(path, readonly=True)
            got = [cache.get(key(n), identity=identity(n)) for n in range(kernels)]
            cache.close()
        assert len(caught) <= 1
        lost = 0
        for number, value in enumerate(got):
            assert value in (None, spirv(number, words=8)), bit
            lost += value is None
        counts["bits"] += 1
        if bit % heal_every == 0:
            check_healing(path, kernels, [n for n, value in enumerate(got) if value is None])
        assert lost <= 1, bit
        counts["cost one kernel" if lost else "cost nothing"] += 1
    return counts


def check_healing(path: Path, kernels: int, lost: list[int]) -> None:
    """Put what was lost, and look whether the file is good afterwards."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with KernelCache(path) as cache:
            for number in range(kernels):
                value = cache.get(key(number), identity=identity(number))
                assert (value is None) == (number in lost)
                if value is None:
                    cache.put(key(number), spirv(number, words=8), identity=identity(number))
    report = verify(path)
    assert report.is_good, report.problems
    for kept in files.evidence_of(path):
        kept.unlink()


def peak_memory_mb() -> float:
    """Return the most memory that this process ever held, in MB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return float(os.sysconf("SC_PAGE_SIZE"))
