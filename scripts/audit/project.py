"""A repository as the rules see it: Markdown pages, source modules, and the facts that an import gives."""

from __future__ import annotations

import ast
import json
import os
import re
import runpy
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

FACTS_PROGRAM = Path(__file__).with_name("facts.py")

_FENCE = re.compile(r"^(?P<indent>\s*)```(?P<info>.*)$")
_HEADING = re.compile(r"^(#{1,6})\s+(.*?)\s*#*\s*$")
_LINK = re.compile(r"\[(?:[^\]\[]|\[[^\]]*\])*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
#: Inline code may go on in the next line, but not in the next paragraph.
_CODE_SPAN = re.compile(r"`((?:[^`\n]|\n(?!\s*\n))+)`")
_IGNORED_PARTS = frozenset({"__pycache__", "build", "dist", ".venv", ".git", "node_modules"})


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken rule. ``path`` is relative to the repository."""

    path: str
    line: int
    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule} {self.message}"


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced code block; ``line`` is the number of its first line of code."""

    info: str
    line: int
    lines: tuple[str, ...]

    @property
    def language(self) -> str:
        """The first word after the fence."""
        return self.info.split()[0] if self.info.split() else ""

    @property
    def text(self) -> str:
        """The code."""
        return "\n".join(self.lines) + "\n"


class Page:
    """A Markdown page. ``prose`` holds (line number, line) of everything outside code blocks."""

    def __init__(self, root: Path, path: Path) -> None:
        self.path = path
        self.name = path.relative_to(root).as_posix()
        self.lines = path.read_text(encoding="utf-8").splitlines()
        self.prose: list[tuple[int, str]] = []
        self.blocks: list[Block] = []
        start: int | None = None
        info = ""
        for number, line in enumerate(self.lines, 1):
            fence = _FENCE.match(line)
            if fence is None:
                if start is None:
                    self.prose.append((number, line))
            elif start is None:
                start, info = number, fence["info"].strip()
            else:
                self.blocks.append(Block(info, start + 1, tuple(self.lines[start:number - 1])))
                start = None

    @cached_property
    def anchors(self) -> set[str]:
        """Anchors of the headings, as GitHub makes them."""
        found: set[str] = set()
        for _, line in self.prose:
            heading = _HEADING.match(line)
            if heading is None:
                continue
            text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[2]).replace("`", "")
            slug = base = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
            number = 0
            while slug in found:
                number += 1
                slug = f"{base}-{number}"
            found.add(slug)
        return found

    @cached_property
    def _prose_text(self) -> str:
        """The page with its code blocks blank, so that a position still tells the line."""
        kept = dict(self.prose)
        return "\n".join(kept.get(number, "") for number in range(1, len(self.lines) + 1))

    def _found(self, pattern: re.Pattern[str], text: str) -> list[tuple[int, str]]:
        return [(text.count("\n", 0, match.start()) + 1, " ".join(match[1].split()))
                for match in pattern.finditer(text)]

    @property
    def links(self) -> list[tuple[int, str]]:
        """Link targets with their line, code excluded."""
        blank = _CODE_SPAN.sub(lambda span: re.sub(r"[^\n]", "-", span[0]), self._prose_text)
        return self._found(_LINK, blank)

    @property
    def code_spans(self) -> list[tuple[int, str]]:
        """Inline code with its line."""
        return self._found(_CODE_SPAN, self._prose_text)

    def table_rows(self) -> list[tuple[int, list[str]]]:
        """Cells of every table row with its line; code marks removed, header and separator rows included."""
        return [(number, [cell.strip().strip("`") for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))])
                for number, line in self.prose if line.lstrip().startswith("|")]

    def marked_block(self, mark: str) -> Block | None:
        """Return the code block below the line ``<!-- mark -->``."""
        for number, line in self.prose:
            if line.strip() == f"<!-- {mark} -->":
                return next((block for block in self.blocks if block.line > number), None)
        return None


class Project:
    """The repository under ``root``."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()

    @cached_property
    def pages(self) -> list[Page]:
        """Every page that the rules read."""
        named = [self.root / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "tests/README.md")]
        paths = [path for path in named if path.exists()] + sorted((self.root / "docs").rglob("*.md"))
        return [Page(self.root, path) for path in paths]

    def page(self, name: str) -> Page | None:
        """Return the page with this path, if it exists."""
        return next((page for page in self.pages if page.name == name), None)

    @cached_property
    def modules(self) -> dict[str, Path]:
        """Dotted name -> source file of every module of the package, packages included."""
        found: dict[str, Path] = {}
        for path in sorted((self.root / "nnk").rglob("*.py*")):
            if path.suffix in (".py", ".pyx") and not _IGNORED_PARTS & set(path.parts):
                parts = path.relative_to(self.root).with_suffix("").parts
                found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
        return found

    def names_of(self, module: str) -> dict[str, ast.stmt]:
        """Return what a module defines at top level; the stub speaks for a compiled module."""
        path = self.modules[module]
        if path.suffix == ".pyx":
            path = path.with_suffix(".pyi")
            if not path.exists():
                return {}
        names: dict[str, ast.stmt] = {}
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names[node.name] = node
            elif isinstance(node, ast.Import | ast.ImportFrom):
                names.update({(alias.asname or alias.name).split(".")[0]: node for alias in node.names})
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                names[node.target.id] = node
            elif isinstance(node, ast.Assign):
                names.update({target.id: node for target in node.targets if isinstance(target, ast.Name)})
        return names

    def constant(self, dotted: str) -> Any:
        """Return the literal that ``nnk.module.NAME`` or ``nnk.module.NAME[key]`` has in the source.

        Raises
        ------
        KeyError
            If there is no such module, name or key.
        """
        match = re.fullmatch(r"([\w.]+)\.(\w+)(?:\[(\w+)\])?", dotted)
        if match is None or match[1] not in self.modules:
            raise KeyError(dotted)
        path = self.modules[match[1]]
        if path.suffix == ".pyx":
            text = path.read_text(encoding="utf-8")
            found = re.search(rf"^(?:cdef .*?|DEF )?{match[2]}\s*(?::[^=]*)?=\s*(.+?)\s*(?:#.*)?$", text, re.MULTILINE)
            if found is None:
                raise KeyError(dotted)
            return ast.literal_eval(found[1])
        node = self.names_of(match[1])[match[2]]
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            raise KeyError(dotted)
        value = ast.literal_eval(node.value)
        return value[match[3]] if match[3] else value

    @cached_property
    def ops(self) -> dict[str, Any]:
        """The names of nnk/ops.py, which imports nothing."""
        return runpy.run_path(str(self.root / "nnk" / "ops.py"))

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What a fresh interpreter that imports nnk says: ``api``, ``cli``, ``settings``, ``errors``.

        A part that cannot be imported is ``{"failure": text}`` instead of a list.
        """
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("NN_", "NNK_"))}
        environment["PYTHONPATH"] = str(self.root)
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
        done = subprocess.run([sys.executable, str(FACTS_PROGRAM)], env=environment, cwd=self.root, text=True,
                              capture_output=True, check=False, timeout=120)
        if done.returncode:
            return {name: {"failure": done.stderr.strip()[-500:]} for name in ("api", "cli", "settings", "errors")}
        result: dict[str, Any] = json.loads(done.stdout)
        return result

    def fact(self, name: str) -> list[Any]:
        """Return a part of the facts.

        Raises
        ------
        FactsError
            If the package could not be imported.
        """
        value = self.facts[name]
        if isinstance(value, dict):
            raise FactsError(f"cannot import the {name} of nnk: {value['failure']}")
        return list(value)


class FactsError(Exception):
    """The package cannot be imported, so a rule has nothing to compare with."""
