"""Rules about names: modules, public names, commands, settings, errors, C functions."""

from __future__ import annotations

import ast
import builtins
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from audit.project import Finding, Page, Project

API, CLI, SETTINGS, ERRORS = (f"docs/reference/{name}.md" for name in ("api", "cli", "settings", "errors"))

#: A header of nnk/include whose functions are documented elsewhere than in the C ABI page.
HEADER_PAGES = {"nnk_math.h": "docs/numerics.md", "nnk_math_binary.h": "docs/numerics.md"}
C_ABI = "docs/c-abi.md"

_DOTTED = re.compile(r"(?<![\w./-])nnk(?:\.[A-Za-z_]\w*)+")
_VARIABLE = re.compile(r"\bNNK?_[A-Z][A-Z0-9_]*\b")
_C_FUNCTION = re.compile(r"^(?:\w[\w ]*?[ *])?(nnk?_\w+)\s*\(", re.MULTILINE)
_TREE_ENTRY = re.compile(r"^\s*([│├└─\s]*)(\w+)")


def resolves(project: Project, dotted: str) -> bool:
    """Say whether ``nnk.a.b.c`` names a module, a name of a module, or an attribute of such a name."""
    module = "nnk"
    parts = dotted.split(".")[1:]
    while parts and f"{module}.{parts[0]}" in project.modules:
        module = f"{module}.{parts.pop(0)}"
    if not parts:
        return True
    names = project.names_of(module)
    public = {row["name"] for row in project.fact("api")} if module == "nnk" else set()
    if parts[0] not in names:
        return parts[0] in public
    node = names[parts[0]]
    if len(parts) > 1 and isinstance(node, ast.ClassDef) and not node.bases:
        members = {ast.unparse(child).split("(")[0].split(":")[0].split("=")[0].removeprefix("def ").strip()
                   for child in node.body}
        members |= {child.name for child in node.body if isinstance(child, ast.FunctionDef)}
        return parts[1] in members
    return True


def modules(project: Project) -> Iterator[Finding]:
    """D03: a page names a part of nnk that does not exist, or architecture.md leaves a module out."""
    for page in project.pages:
        for line, code in page.code_spans:
            for dotted in _DOTTED.findall(code):
                if not resolves(project, dotted):
                    yield Finding(page.name, line, "D03", f"{dotted} does not exist")
    page = project.page("docs/architecture.md")
    text = "\n".join(page.lines) if page else ""
    for module, path in project.modules.items():
        if path.name != "__init__.py" and not re.search(rf"\b{re.escape(path.name)}", text):
            yield Finding("docs/architecture.md", 1, "D03", f"no line about {module} ({path.name})")


def public_names(project: Project) -> Iterator[Finding]:
    """D04: the public names and reference/api.md differ."""
    page = project.page(API)
    if page is None:
        yield Finding(API, 1, "D04", "the page is missing")
        return
    written = {cells[0].removeprefix("nnk."): line for line, cells in page.table_rows()
               if re.fullmatch(r"nnk\.\w+", cells[0])}
    public = {row["name"]: row for row in project.fact("api")}
    for name in sorted(public.keys() - written.keys()):
        yield Finding(API, 1, "D04", f"public name nnk.{name} is missing")
    for name in sorted(written.keys() - public.keys()):
        yield Finding(API, written[name], "D04", f"nnk.{name} is not public")
    for name, row in public.items():
        if not row["summary"] and row["kind"] != "constant":
            yield Finding("nnk/__init__.py", 1, "D04", f"public name nnk.{name} has no docstring")


def _command_lines(page: Page) -> Iterator[tuple[int, list[str]]]:
    """Yield the words of each ``nnk ...`` call in inline code and console blocks, up to a shell operator."""
    spans = list(page.code_spans)
    for block in page.blocks:
        if block.language in ("console", "sh", "bash"):
            spans += [(number, text.strip().removeprefix("$ ")) for number, text in enumerate(block.lines, block.line)]
    for line, text in spans:
        if re.match(r"nnk [a-z-]", text):
            try:
                words = shlex.split(text)
            except ValueError:
                continue
            stop = next((i for i, word in enumerate(words) if word in ("|", ">", "&&", ";", "2>", "<")), len(words))
            yield line, words[:stop]


def commands(project: Project) -> Iterator[Finding]:
    """D05: commands and options of the parser and of the pages differ."""
    rows = {row["command"]: row for row in project.fact("cli")}
    page = project.page(CLI)
    written = {line.lstrip("# ").strip("`") for _, line in page.prose if line.startswith("#")} if page else set()
    for name, row in rows.items():
        if not row["summary"]:
            yield Finding("nnk/cli/__init__.py", 1, "D05", f"command `{name}` has no help text")
        if name not in written and name != "nnk":
            yield Finding(CLI, 1, "D05", f"no heading for the command `{name}`")
    for name in sorted(name for name in written if name.startswith("nnk ") and name not in rows):
        yield Finding(CLI, 1, "D05", f"there is no command `{name}`")
    for page in project.pages:
        for line, words in _command_lines(page):
            depth = next((n for n in (3, 2, 1) if " ".join(words[:n]) in rows), 1)
            command = " ".join(words[:depth])
            if depth == 1 and not words[1].startswith("-"):
                yield Finding(page.name, line, "D05", f"there is no command `{' '.join(words[:2])}`")
                continue
            known = {flag for row in (rows["nnk"], rows[command]) for option in row["options"]
                     for flag in option["flags"]} | {"--help", "-h"}
            for word in words[depth:]:
                if re.match(r"--?[a-z]", word) and word.split("=")[0] not in known:
                    yield Finding(page.name, line, "D05", f"`{command}` has no option {word.split('=')[0]}")


def settings(project: Project) -> Iterator[Finding]:
    """D06: environment variables of the code and of the pages differ."""
    page = project.page(SETTINGS)
    written = {cells[0] for _, cells in page.table_rows()} if page else set()
    setup = (project.root / "setup.py").read_text(encoding="utf-8")
    build = set(re.findall(r"[\"'](NNK?_\w+)[\"']", setup))
    for name in sorted({row["env"] for row in project.fact("settings")} | build):
        if name not in written:
            yield Finding(SETTINGS, 1, "D06", f"no row for {name}")
    sources = [setup, *(path.read_text(encoding="utf-8") for pattern in
                        ("nnk/config.py", "nnk/include/*.h", "tests/conftest.py", "scripts/**/*")
                        for path in sorted(project.root.glob(pattern)) if path.is_file() and path.suffix != ".pyc")]
    known = {row["env"] for row in project.fact("settings")} | set(_VARIABLE.findall("\n".join(sources)))
    for page in project.pages:
        if page.name == "CHANGELOG.md":
            continue
        for line, text in enumerate(page.lines, 1):
            for name in _VARIABLE.findall(text):
                if name not in known:
                    yield Finding(page.name, line, "D06", f"nothing reads {name}")


def drawn_tree(lines: tuple[str, ...] | list[str]) -> dict[str, str]:
    """Return child -> parent of a class tree drawn with box characters; roots have the parent ''."""
    parents: dict[str, str] = {}
    trail: list[tuple[int, str]] = []
    for text in lines:
        match = _TREE_ENTRY.match(text)
        if match is None or not match[2][0].isupper():
            continue
        depth = match.start(2)
        trail = [entry for entry in trail if entry[0] < depth]
        parents[match[2]] = trail[-1][1] if trail else ""
        trail.append((depth, match[2]))
    return parents


def errors(project: Project) -> Iterator[Finding]:
    """D07: the exceptions, or their places in the tree, differ from reference/errors.md."""
    page = project.page(ERRORS)
    block = page.marked_block("error tree") if page else None
    if page is None or block is None:
        yield Finding(ERRORS, 1, "D07", "no code block below <!-- error tree -->")
        return
    drawn = drawn_tree(block.lines)
    real = {row["name"]: row["parent"] for row in project.fact("errors")}
    rows = {cells[0] for _, cells in page.table_rows()}
    for name, parent in real.items():
        if name not in drawn:
            yield Finding(ERRORS, block.line, "D07", f"{name} is not in the tree")
        elif drawn[name] != parent:
            yield Finding(ERRORS, block.line, "D07", f"{name} is drawn under {drawn[name] or 'nothing'}, "
                                                     f"its parent is {parent or 'no class of nnk'}")
        if name not in rows:
            yield Finding(ERRORS, 1, "D07", f"no row for {name}")
    for name in sorted(drawn.keys() - real.keys()):
        yield Finding(ERRORS, block.line, "D07", f"{name} is not an exception of nnk")


def headers(project: Project) -> Iterator[Finding]:
    """D14: the functions of a header and the page that explains it differ."""
    pages: dict[str, list[Path]] = {}
    for path in sorted((project.root / "nnk" / "include").glob("*.h")):
        pages.setdefault(HEADER_PAGES.get(path.name, C_ABI), []).append(path)
    for name, paths in pages.items():
        page = project.page(name)
        title = " and ".join(path.name for path in paths)
        if page is None:
            yield Finding(name, 1, "D14", f"the page about {title} is missing")
            continue
        prefix = "nnk_" if name == C_ABI else "nn_"
        functions = {function for path in paths for function in _C_FUNCTION.findall(path.read_text(encoding="utf-8"))
                     if function.startswith(prefix)}
        spans = [(line, word) for line, code in page.code_spans for word in re.findall(r"\w+", code)]
        for function in sorted(functions - {word for _, word in spans}):
            yield Finding(name, 1, "D14", f"{function} of {title} is not explained")
        for line, word in spans:
            if word.startswith(prefix) and word not in functions and not word.startswith("nnk_math"):
                yield Finding(name, line, "D14", f"{title} has no function {word}")


def raises(project: Project) -> Iterator[Finding]:
    """D16: a docstring's Raises section names a class that does not exist."""
    known = {row["name"] for row in project.fact("errors")} | set(dir(builtins))
    for path in project.modules.values():
        lines = path.read_text(encoding="utf-8").splitlines()
        name = path.relative_to(project.root).as_posix()
        for number, line in enumerate(lines):
            if line.strip() != "Raises" or number + 1 == len(lines) or set(lines[number + 1].strip()) != {"-"}:
                continue
            indent = len(line) - len(line.lstrip())
            for offset, entry in enumerate(lines[number + 2:], number + 3):
                if not entry.strip() or entry.strip().startswith('"""') or len(entry) - len(entry.lstrip()) < indent:
                    break
                if len(entry) - len(entry.lstrip()) == indent:
                    for word in re.split(r"[,\s]+", entry.strip().rstrip('"')):
                        if word and word not in known:
                            yield Finding(name, offset, "D16", f"Raises names {word}, which is no exception")
