#!/usr/bin/env python3
"""Check which room of nnk imports which: ``python scripts/layering.py [ROOT]``.

:data:`ALLOWED` is the table of arrows, :data:`OWNERS` says which module may import an external package. Imports of
``.py`` files are read from the syntax tree, imports and cimports of ``.pyx`` and ``.pxd`` files from their lines.
Prints ``file:line: message`` and exits with 1 on any finding. docs/architecture.md draws the same arrows; rule D12
of doc_audit holds the two together.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

#: Room or root module -> what it may import. Imports inside a room are free, as long as those that run when a module
#: is loaded make no cycle; a method may import a function of its room that is built upon it.
ALLOWED: dict[str, frozenset[str]] = {
    name: frozenset(targets.split())
    for name, targets in {
        "errors": "",
        "_version": "",
        "config": "errors",
        "ops": "errors",
        "numerics": "errors ops",
        "spirv": "errors _fast",
        "kvrecord": "errors _fast",
        "exprspec": "errors _fast expr",
        "_fast": "errors ops",
        "expr": "errors ops numerics _fast",
        "generator": "errors config ops numerics spirv _fast expr",
        "cache": "errors config spirv _fast",
        "vk": "errors _version config spirv _fast expr",
        "engines": "errors config ops numerics spirv _fast expr generator cache vk",
        "models": "errors config _fast expr engines",
        "cli": ("errors config ops numerics spirv kvrecord exprspec _version _fast expr generator cache vk engines "
                "models"),
        "api": "errors cache expr engines vk",
        "__main__": "cli",
        "__init__": "errors config _version exprspec kvrecord api cache expr engines models",
    }.items()
}

#: External package (or restricted standard module) -> modules that may import it; a room covers its modules.
OWNERS: dict[str, tuple[str, ...]] = {
    "argparse": ("cli",),
    "cffi": ("vk",),
    "ml_dtypes": ("expr.dtypes",),
    "numpy": ("expr", "engines", "models", "vk.memory", "cli"),
    "platformdirs": ("cache.location",),
    "portalocker": ("cache.lock", "cache.quarantine"),
    "rich": ("cli",),
    "safetensors": ("models.weights",),
    "tokenizers": ("models",),
    "vulkan": ("vk",),
    "xxhash": ("cache",),
}

#: Packages that any module may import for type checkers alone.
TYPING_PACKAGES = frozenset({"numpy", "typing_extensions"})

#: The only module that reads the environment.
ENVIRONMENT_READER = "config"

_CYTHON_IMPORT = re.compile(
    r"^\s*(?:from\s+(?P<source>[.\w]+)\s+c?import\s+(?P<names>[\w\s,()*]+)|c?import\s+(?P<modules>[.\w\s,]+))")
_ENVIRONMENT_TEXT = re.compile(r"\bos\s*\.\s*(environb?|getenvb?|putenv)\b|\bgetenv\s*\(")
_ENVIRONMENT_NAMES = frozenset({"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"})
#: Not packages to install: what Cython itself provides to cimport, and __future__.
_BUILT_IN = frozenset({"cython", "libc", "libcpp", "cpython", "posix"}) | sys.stdlib_module_names


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module. ``at_load``: the import runs when the module is loaded, not in a call of a function."""

    target: str
    line: int
    at_load: bool = True
    typing_only: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken rule."""

    path: Path
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


def module_of(path: Path) -> str:
    """Return the dotted name of the module in ``path`` (relative to the root that holds ``nnk``)."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def _absolute(package: tuple[str, ...], level: int, module: str) -> str:
    """Resolve a relative import of ``level`` dots inside ``package``."""
    if level == 0:
        return module
    base = package[: len(package) - level + 1]
    return ".".join((*base, module)) if module else ".".join(base)


def _package_of(path: Path) -> tuple[str, ...]:
    return path.parent.parts


def _lines_of(nodes: Iterable[ast.stmt]) -> set[int]:
    return {line for node in nodes for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}


def _late_lines(tree: ast.AST) -> tuple[set[int], set[int]]:
    """Return the lines inside functions and the lines inside ``if TYPE_CHECKING:`` blocks."""
    functions, typing = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions |= _lines_of(node.body)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            typing |= _lines_of(node.body)
    return functions, typing


def python_imports(text: str, package: tuple[str, ...]) -> Iterator[Import]:
    """Yield the imports of a Python file. ``from a import b`` gives ``a.b``: the caller knows which are modules."""
    tree = ast.parse(text)
    functions, typing = _late_lines(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            source = _absolute(package, node.level, node.module or "")
            targets = [f"{source}.{alias.name}" for alias in node.names]
        else:
            continue
        for target in targets:
            yield Import(target, node.lineno, node.lineno not in functions | typing, node.lineno in typing)


def cython_imports(text: str, package: tuple[str, ...]) -> Iterator[Import]:
    """Yield the imports and cimports of a Cython file, which may span lines in parentheses."""
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if line.count("(") > line.count(")") and re.match(r"\s*from\b", line):
            rest = iter(lines[number:])
            while ")" not in line:
                line += " " + next(rest, ")")
        match = _CYTHON_IMPORT.match(line.split("#")[0])
        if match is None:
            continue
        if match["modules"] is not None:
            for name in match["modules"].split(","):
                yield Import(name.split(" as ")[0].strip(), number)
            continue
        dots = len(match["source"]) - len(match["source"].lstrip("."))
        source = _absolute(package, dots, match["source"].lstrip("."))
        for name in re.sub(r"[()]", " ", match["names"]).split(","):
            if name.strip():
                yield Import(f"{source}.{name.split(' as ')[0].strip()}", number)


def environment_reads(path: Path, text: str) -> Iterator[int]:
    """Yield the lines that read or write the environment."""
    if path.suffix != ".py":
        for number, line in enumerate(text.splitlines(), 1):
            if _ENVIRONMENT_TEXT.search(line.split("#")[0]):
                yield number
        return
    for node in ast.walk(ast.parse(text)):
        attribute = (isinstance(node, ast.Attribute) and node.attr in _ENVIRONMENT_NAMES
                     and isinstance(node.value, ast.Name) and node.value.id == "os")
        imported = (isinstance(node, ast.ImportFrom) and node.module == "os"
                    and any(alias.name in _ENVIRONMENT_NAMES for alias in node.names))
        if attribute or imported:
            yield node.lineno


def _room_of(module: str) -> str:
    """Return the room or root module that ``nnk.a.b`` belongs to."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def _covers(owners: tuple[str, ...], module: str) -> bool:
    inside = module.removeprefix("nnk.")
    return any(inside == owner or inside.startswith(owner + ".") for owner in owners)


def _check_import(path: Path, module: str, target: str, line: int) -> Iterator[Finding]:
    top = target.split(".")[0]
    if top == "nnk":
        source, goal = _room_of(module), _room_of(target)
        if source not in ALLOWED:
            yield Finding(path, line, f"room {source} has no row in ALLOWED (scripts/layering.py)")
        elif source != goal and goal not in ALLOWED[source]:
            allowed = " ".join(sorted(ALLOWED[source])) or "nothing of nnk"
            yield Finding(path, line, f"{source} may not import {goal} ({target}); it may import {allowed}")
    elif top in OWNERS:
        if not _covers(OWNERS[top], module):
            yield Finding(path, line, f"{module} may not import {top}; owners: {', '.join(OWNERS[top])}")
    elif top not in _BUILT_IN:
        yield Finding(path, line, f"{module} imports {top}, which has no owner in OWNERS (scripts/layering.py)")


def _cycles(edges: dict[str, dict[str, int]]) -> Iterator[list[str]]:
    """Yield each cycle of modules once, by depth-first search."""
    state: dict[str, int] = {}
    trail: list[str] = []

    def visit(node: str) -> Iterator[list[str]]:
        state[node] = 1
        trail.append(node)
        for goal in sorted(edges.get(node, ())):
            if state.get(goal) == 1:
                yield trail[trail.index(goal):]
            elif goal not in state:
                yield from visit(goal)
        trail.pop()
        state[node] = 2

    for start in sorted(edges):
        if start not in state:
            yield from visit(start)


def check(root: Path) -> list[Finding]:
    """Return everything under ``root/nnk`` that breaks the table."""
    files = sorted(path for suffix in ("*.py", "*.pyx", "*.pxd") for path in (root / "nnk").rglob(suffix))
    modules = {module_of(path.relative_to(root)) for path in files}
    findings: list[Finding] = []
    edges: dict[str, dict[str, int]] = {}
    where: dict[str, Path] = {}
    for file in files:
        path = file.relative_to(root)
        text, module = file.read_text(encoding="utf-8"), module_of(path)
        where.setdefault(module, path)
        imports = python_imports if path.suffix == ".py" else cython_imports
        for item in imports(text, _package_of(path)):
            target = item.target
            while target.startswith("nnk.") and target not in modules:
                target = target.rpartition(".")[0]
            if not (item.typing_only and target.split(".")[0] in TYPING_PACKAGES):
                findings.extend(_check_import(path, module, target, item.line))
            if target in modules and target != module and item.at_load:
                edges.setdefault(module, {})[target] = item.line
        if module != f"nnk.{ENVIRONMENT_READER}":
            findings.extend(Finding(path, line, f"only nnk/{ENVIRONMENT_READER}.py reads the environment")
                            for line in environment_reads(path, text))
    for cycle in _cycles(edges):
        line = edges[cycle[-1]][cycle[0]]
        findings.append(Finding(where[cycle[-1]], line, f"import cycle: {' -> '.join([*cycle, cycle[0]])}"))
    return findings


def main(arguments: list[str]) -> int:
    """Print the findings; return the exit status."""
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent
    findings = check(root)
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
