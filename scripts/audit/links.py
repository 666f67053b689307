"""Rules about pages: links, reachability, and the drawings of architecture.md."""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator
from pathlib import Path

from audit.project import Finding, Page, Project

ARCHITECTURE = "docs/architecture.md"

_EXTERNAL = re.compile(r"^[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_TREE_LINE = re.compile(r"^([\s│├└─]*)([^\s│├└─].*?)(?:\s{2,}.*)?$")
#: What a drawn directory must list; stubs and headers may share a line with their module.
_LISTED_SUFFIXES = frozenset({".py", ".pyx", ".h", ".c", ".inc", ""})


def _target_of(project: Project, page: Page, link: str) -> tuple[Path, str]:
    path, _, anchor = link.partition("#")
    return (page.path if not path else (page.path.parent / path).resolve()), anchor


def links(project: Project) -> Iterator[Finding]:
    """D01: a link leads nowhere, or its anchor does."""
    by_path = {page.path: page for page in project.pages}
    for page in project.pages:
        for line, link in page.links:
            if _EXTERNAL.match(link):
                continue
            path, anchor = _target_of(project, page, link)
            if not path.exists():
                yield Finding(page.name, line, "D01", f"link {link}: no such file")
            elif anchor and path in by_path and anchor not in by_path[path].anchors:
                yield Finding(page.name, line, "D01", f"link {link}: no heading makes the anchor #{anchor}")


def reachable(project: Project) -> Iterator[Finding]:
    """D02: a page of docs/ that no chain of links from docs/index.md reaches."""
    by_path = {page.path: page for page in project.pages}
    index = project.page("docs/index.md")
    if index is None:
        yield Finding("docs/index.md", 1, "D02", "the index is missing")
        return
    seen, queue = {index.path}, [index]
    while queue:
        page = queue.pop()
        for _, link in page.links:
            if _EXTERNAL.match(link):
                continue
            target = _target_of(project, page, link)[0]
            if target in by_path and target not in seen:
                seen.add(target)
                queue.append(by_path[target])
    for page in project.pages:
        if page.name.startswith("docs/") and page.path not in seen:
            yield Finding(page.name, 1, "D02", "not reachable from docs/index.md")


def arrows(project: Project) -> Iterator[Finding]:
    """D12: the arrows of architecture.md are not those of scripts/layering.py."""
    page = project.page(ARCHITECTURE)
    block = page.marked_block("arrows") if page else None
    if page is None or block is None:
        yield Finding(ARCHITECTURE, 1, "D12", "no code block below <!-- arrows -->")
        return
    allowed = runpy.run_path(str(project.root / "scripts" / "layering.py"))["ALLOWED"]
    drawn: dict[str, int] = {}
    for line, text in enumerate(block.lines, block.line):
        source, arrow, targets = text.partition("→")
        if not arrow:
            continue
        name = source.strip()
        drawn[name] = line
        if name not in allowed:
            yield Finding(page.name, line, "D12", f"{name} has no row in ALLOWED")
            continue
        names = set(targets.split()) - {"(nothing)"}
        for wrong in sorted(names - allowed[name]):
            yield Finding(page.name, line, "D12", f"{name} → {wrong} is drawn but not allowed")
        for missing in sorted(allowed[name] - names):
            yield Finding(page.name, line, "D12", f"{name} → {missing} is allowed but not drawn")
    for name in sorted(set(allowed) - set(drawn)):
        yield Finding(page.name, block.line, "D12", f"{name} is not drawn")


def _drawn_paths(lines: tuple[str, ...], first: int) -> Iterator[tuple[int, str]]:
    """Yield (line, path) of each entry of a tree drawing; ``a.pyx .pyi`` names two files of one stem."""
    trail: list[str] = []
    for number, text in enumerate(lines, first):
        match = _TREE_LINE.match(text)
        if match is None or not text.strip() or text.strip() == ".":
            continue
        depth = len(match[1]) // 4
        del trail[max(depth - 1, 0):]
        stem = ""
        for name in match[2].split():
            full = stem + name if name.startswith(".") and stem else name
            stem = stem or name.rpartition(".")[0]
            yield number, "".join(trail) + full
        if match[2].endswith("/"):
            trail.append(match[2])


def tree(project: Project) -> Iterator[Finding]:
    """D13: the tree of architecture.md and the files differ. A directory drawn with content is drawn whole."""
    page = project.page(ARCHITECTURE)
    block = page.marked_block("tree") if page else None
    if page is None or block is None:
        yield Finding(ARCHITECTURE, 1, "D13", "no code block below <!-- tree -->")
        return
    drawn = {path: line for line, path in _drawn_paths(block.lines, block.line)}
    for path, line in drawn.items():
        target = project.root / path
        if not (target.is_dir() if path.endswith("/") else target.is_file()):
            yield Finding(page.name, line, "D13", f"{path} is drawn but does not exist")
    for folder, line in [item for item in drawn.items() if item[0].endswith("/")]:
        if not any(path.startswith(folder) and path != folder for path in drawn):
            continue
        for child in sorted((project.root / folder).iterdir() if (project.root / folder).is_dir() else ()):
            name = folder + child.name + ("/" if child.is_dir() else "")
            hidden = child.name.startswith((".", "__pycache__")) or child.name == "__init__.py"
            if hidden or name in drawn or (child.is_file() and child.suffix not in _LISTED_SUFFIXES):
                continue
            yield Finding(page.name, line, "D13", f"{name} exists but is not drawn")
