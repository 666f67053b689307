"""Generated tables: what stands between ``<!-- generated: NAME -->`` and ``<!-- end generated -->``, rule D15."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from audit.project import Finding, Page, Project

_BEGIN = re.compile(r"^<!-- generated: ([\w-]+) -->$")
_END = "<!-- end generated -->"


def _table(head: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> list[str]:
    def line(cells: Iterable[object]) -> str:
        return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"
    return [line(head), line("---" for _ in head), *(line(row) for row in rows)]


def _code(text: object) -> str:
    return f"`{text}`" if str(text) else ""


def _api(project: Project) -> list[str]:
    rows = project.fact("api")
    lines = _table(("name", "kind", "call", "what it does"),
                   ((_code(f"nnk.{row['name']}"), row["kind"], _code(row["signature"]), row["summary"])
                    for row in rows))
    for row in rows:
        methods = [method for method in row["methods"] if not method["inherited"] and method["summary"]]
        if row["kind"] == "class" and methods:
            lines += ["", f"### Members of nnk.{row['name']}", ""]
            lines += _table(("member", "call", "what it does"),
                            ((_code(method["name"]), _code(method["signature"]), method["summary"])
                             for method in methods))
    return lines


def _cli(project: Project) -> list[str]:
    lines: list[str] = []
    for row in project.fact("cli"):
        if row["command"] != "nnk":
            lines += [f"## `{row['command']}`", ""]
        lines += [row["summary"][:1].upper() + row["summary"][1:].rstrip(".") + ".", ""]
        # A flag of the whole program that a command takes again is described once.
        options = [option for option in row["options"] if not option["repeated"]]
        if options:
            lines += _table(("argument", "meaning"), (
                (_code(", ".join(option["flags"]) + (f" {option['name']}" if option["takes_value"] else ""))
                 if option["flags"] else _code(option["name"]), option["help"]) for option in options))
            lines.append("")
    return lines[:-1]


def _settings(project: Project) -> list[str]:
    return _table(("variable", "name", "group", "default", "values", "meaning"), (
        (_code(row["env"]), _code(row["name"]), row["group"], _code(_default(row["default"])), row["expected"],
         row["doc"] + (" **Part of the kernel key.**" if row["changes_code"] else ""))
        for row in project.fact("settings")))


def _default(value: object) -> object:
    return int(value) if isinstance(value, bool) else value


def _errors(project: Project) -> list[str]:
    return _table(("class", "parent", "also a", "adds", "raised when"), (
        (_code(row["name"]), _code(row["parent"]), ", ".join(map(_code, row["built_ins"])),
         ", ".join(_code("." + name) for name in row["attributes"]), row["summary"])
        for row in project.fact("errors")))


def _error_tree(project: Project) -> list[str]:
    text = (project.root / "nnk" / "errors.py").read_text(encoding="utf-8")
    drawing = text.split("::\n", 1)[1].split("\n\nEach class", 1)[0]
    return ["<!-- error tree -->", "```text",
            *(line.removeprefix("    ") for line in drawing.strip("\n").splitlines()), "```"]


def _ops(project: Project) -> list[str]:
    return _table(("code", "op", "arity", "kind", "value"),
                  ((op.code, _code(op.name), op.arity, op.kind, _code(op.doc)) for op in project.ops["OPS"]))


def _operands(project: Project) -> list[str]:
    return _table(("code", "kind", "idx", "value at (row r, column c)"), (
        (kind.code, _code(kind.name), "slot or register" if kind.indexed else "0", kind.doc)
        for kind in project.ops["OPERANDS"]))


def _views(project: Project) -> list[str]:
    return _table(("code", "view", "run-time words", "params in the key", "read at (row r, column c)"), (
        (view.code, _code(view.name), "2 param + 1" if view.name == "strided" else view.param_words,
         "yes" if view.keyed else "no", _code(view.doc)) for view in project.ops["VIEWS"]))


def _limits(project: Project) -> list[str]:
    return _table(("limit", "value"),
                  ((_code(name), value) for name, value in project.ops["LIMITS"].items()))


TABLES: dict[str, Callable[[Project], list[str]]] = {
    "api": _api,
    "cli": _cli,
    "error-tree": _error_tree,
    "errors": _errors,
    "limits": _limits,
    "operands": _operands,
    "ops": _ops,
    "settings": _settings,
    "views": _views,
}


def _sections(page: Page) -> Iterator[tuple[int, int | None, str]]:
    """Yield (line of the begin mark, line of the end mark or None, name)."""
    lines = page.lines
    for number, text in enumerate(lines, 1):
        match = _BEGIN.match(text.strip())
        if match:
            stop = next((i for i, line in enumerate(lines[number:], number + 1) if line.strip() == _END
                         or _BEGIN.match(line.strip())), None)
            yield number, stop if stop is not None and lines[stop - 1].strip() == _END else None, match[1]


def _wanted(project: Project, name: str) -> list[str]:
    return ["", *TABLES[name](project), ""]


def generated(project: Project) -> Iterator[Finding]:
    """D15: a generated table differs from its source (doc_audit --write mends it)."""
    for page in project.pages:
        for begin, end, name in _sections(page):
            if name not in TABLES:
                yield Finding(page.name, begin, "D15", f"nothing generates {name}; known: {', '.join(TABLES)}")
            elif end is None:
                yield Finding(page.name, begin, "D15", f"generated: {name} has no {_END}")
            elif page.lines[begin:end - 1] != _wanted(project, name):
                yield Finding(page.name, begin, "D15", f"the table {name} is stale; run scripts/doc_audit.py --write")


def write(project: Project) -> list[str]:
    """Rewrite every generated table; return the names of the pages that changed."""
    changed = []
    for page in project.pages:
        lines = list(page.lines)
        for begin, end, name in reversed(list(_sections(page))):
            if name in TABLES and end is not None:
                lines[begin:end - 1] = _wanted(project, name)
        if lines != page.lines:
            page.path.write_text("\n".join(lines) + "\n", encoding="utf-8")
            changed.append(page.name)
    return changed
