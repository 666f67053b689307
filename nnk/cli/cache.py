"""``nnk cache ...``: the kernel cache from outside."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import Any

from nnk.cache.location import cache_path
from nnk.cli.output import print_json, print_table

__all__ = ["clear", "explain", "export", "gc", "import_", "list_", "merge", "path", "show", "stats", "verify"]


def path(arguments: argparse.Namespace) -> int:
    """Print the path of the cache file."""
    found = cache_path()
    if arguments.json:
        print_json({"path": str(found), "exists": found.exists()})
    else:
        print(found)
    return 0


def _days_ago(day: int) -> int | None:
    """Return how many days ago a kernel was used, or None where the file does not say."""
    from nnk.cache.entry import today
    return max(0, today() - day) if day else None


def _row(info: Any) -> dict[str, Any]:
    return {**dataclasses.asdict(info), "days_since_use": _days_ago(info.day)}


def list_(arguments: argparse.Namespace) -> int:
    """Print every kernel with its size, state and last use."""
    from nnk.cache.tools import list_kernels
    rows = [_row(info) for info in list_kernels(cache_path())]
    if arguments.json:
        print_json(rows)
    else:
        print_table([(row["key"], row["bytes"], row["state"], "-" if row["days_since_use"] is None else
                      row["days_since_use"]) for row in rows], ("key", "bytes", "state", "days since use"))
    return 0


def show(arguments: argparse.Namespace) -> int:
    """Print what is known of one kernel, or write its SPIR-V to a file."""
    from nnk import spirv
    from nnk.cache.store import KernelCache
    from nnk.cache.tools import list_kernels
    from nnk.errors import CacheError
    known = {info.key: info for info in list_kernels(cache_path())}
    info = known.get(arguments.key)
    with KernelCache(readonly=True) as cache:
        module = cache.get(arguments.key) if info is not None else None
    if info is None or module is None:
        raise CacheError(f"Expected a good kernel {arguments.key} in {cache_path()}, got "
                         f"{'none' if info is None else info.state}; see nnk cache list", path=cache_path())
    if arguments.output is not None:
        Path(arguments.output).write_bytes(module)
    interface = dataclasses.asdict(spirv.interface_of(module))
    interface["capabilities"] = sorted(interface["capabilities"])
    interface["extensions"] = sorted(interface["extensions"])
    facts = _row(info)
    if arguments.json:
        print_json({**facts, "interface": interface})
    else:
        print_table([*facts.items(), *interface.items()])
    return 0


def stats(arguments: argparse.Namespace) -> int:
    """Print what all processes did with the cache file so far, and its size, age, versions and damage."""
    from nnk.cache.tools import summary
    found = summary(cache_path())
    facts: dict[str, Any] = {
        "path": str(found.path), "state": found.state, "bytes": found.bytes, "kernels": found.kernels,
        "compiler": found.compiler, "last_writer": found.generator_version,
        **{name: found.history[name] for name in ("hits", "misses", "compiles", "puts", "damaged", "healed", "evicted",
                                                  "saves")},
        "generator_versions": {f"v{version}": count for version, count in found.versions.items()},
        "days_since_use": {str(days): count for days, count in found.ages.items()},
        "damaged_files_kept": [str(path) for path in found.set_aside]}
    if arguments.json:
        print_json(facts)
        return 0
    for name in ("generator_versions", "days_since_use"):
        facts[name] = ", ".join(f"{key}: {count}" for key, count in facts[name].items()) or "-"
    facts["damaged_files_kept"] = " ".join(facts["damaged_files_kept"]) or "-"
    print_table(list(facts.items()))
    return 0


def verify(arguments: argparse.Namespace) -> int:
    """Check every entry; exit with 1 if anything is wrong. With --repair, save the file without what is damaged."""
    from nnk.cache.tools import verify as verify_file
    report = verify_file(cache_path(), repair=arguments.repair)
    if arguments.json:
        print_json({"path": str(report.path), "state": report.state, "bytes": report.bytes,
                    "kernels": [_row(info) for info in report.kernels], "problems": list(report.problems),
                    "repaired": report.repaired, "good": report.is_good})
    else:
        for problem in report.problems:
            print(problem)
        state = "good" if report.is_good else ("repaired" if report.repaired else report.state)
        print(f"{report.path}: {state}, {len(report.kernels)} kernels, {report.bytes} bytes")
    return 0 if report.is_good or report.repaired else 1


def explain(arguments: argparse.Namespace) -> int:
    """Print for each kernel of an expression whether the cache has it, and if not, what differs from the nearest."""
    from nnk.cache.store import KernelCache
    from nnk.cache.tools import list_kernels
    from nnk.cli.expressions import lowered_steps
    from nnk.errors import CacheError
    from nnk.expr.key import explain_key
    from nnk.generator.version import GENERATOR_VERSION
    try:
        stored = list_kernels(cache_path())
    except CacheError:
        stored = []
    rows: list[dict[str, Any]] = []
    with KernelCache(readonly=True) as cache:
        for step in lowered_steps(arguments.expression, arguments.shape):
            parts = dict(explain_key(step.spec, step.meta.prec_sig, GENERATOR_VERSION, step.variant, step.meta.slots))
            verdict = _verdict(step, cache, stored)
            rows.append({"key": step.key, "verdict": verdict, "parts": parts,
                         "nearest": None if verdict == "hit" else _nearest(parts, stored)})
    if arguments.json:
        print_json(rows)
        return 0
    for row in rows:
        print(f"{row['key']}: {row['verdict']}")
        nearest = row["nearest"] or {"key": "", "parts": row["parts"]}
        if row["nearest"]:
            print(f"  nearest: {nearest['key']}, which differs in {', '.join(nearest['differs']) or 'no part'}")
        print_table([(f"  {name}", digest, "" if nearest["parts"][name] == digest else nearest["parts"][name])
                     for name, digest in row["parts"].items()])
    return 0


def _nearest(parts: dict[str, str], stored: list[Any]) -> dict[str, Any] | None:
    """Return the stored kernel that differs in the fewest parts of its key; None if none says what its parts are."""
    best: dict[str, Any] | None = None
    for info in stored:
        digests = [info.parts[at:at + 12] for at in range(0, len(info.parts), 12)]
        if len(digests) != len(parts):
            continue
        found = dict(zip(parts, digests, strict=True))
        differs = [name for name in parts if parts[name] != found[name]]
        if best is None or len(differs) < len(best["differs"]):
            best = {"key": info.key, "differs": differs, "parts": found}
    return best


def _verdict(step: Any, cache: Any, stored: list[Any]) -> str:
    """Say whether the cache has the kernel of ``step``, or what keeps it from a hit."""
    if cache.has(step.key, identity=step.identity):
        return "hit"
    same = [info for info in stored if info.key == step.key]
    if same and same[0].state != "good":
        return f"miss: the entry is {same[0].state}"
    if same:
        found = same[0].identity or "none"
        return f"miss: another kernel has this key (identity {found}, expected {step.identity.hex()})"
    version, structure = step.key.partition("#")[0].split(".", 1)
    others = [info.key for info in stored if info.key.partition("#")[0].split(".", 1)[1] == structure]
    versions = sorted({key.split(".", 1)[0] for key in others} - {version})
    if versions:
        return f"miss: only generator versions {', '.join(versions)} have it"
    if others:
        return f"miss: only {', '.join(sorted(others))} has it, for another precision"
    return f"miss: none of {len(stored)} kernels has this structure"


def export(arguments: argparse.Namespace) -> int:
    """Write the kernels, or only the named ones, to a new cache file."""
    from nnk.cache.tools import export as export_file
    count = export_file(cache_path(), Path(arguments.file), arguments.keys or None)
    print(f"{count} kernels to {arguments.file}", file=sys.stderr)
    return 0


def import_(arguments: argparse.Namespace) -> int:
    """Add the kernels of a file that the cache does not have."""
    from nnk.cache.tools import import_ as import_file
    count = import_file(Path(arguments.file), cache_path())
    print(f"{count} kernels from {arguments.file}", file=sys.stderr)
    return 0


def merge(arguments: argparse.Namespace) -> int:
    """Write the union of cache files to a new file."""
    from nnk.cache.tools import merge as merge_files
    count = merge_files([Path(source) for source in arguments.files], Path(arguments.output))
    print(f"{count} kernels to {arguments.output}", file=sys.stderr)
    return 0


def gc(arguments: argparse.Namespace) -> int:
    """Remove kernels by size and age, and leftovers of dead writers."""
    from nnk.cache.tools import gc as collect
    max_bytes = None if arguments.max_mb is None else arguments.max_mb * 10**6
    count = collect(cache_path(), max_bytes=max_bytes, older_than_days=arguments.older_than_days)
    print(f"{count} kernels removed", file=sys.stderr)
    return 0


def clear(_: argparse.Namespace) -> int:
    """Remove all kernels."""
    from nnk.cache.tools import clear as clear_file
    count = clear_file(cache_path())
    print(f"{count} kernels removed", file=sys.stderr)
    return 0
