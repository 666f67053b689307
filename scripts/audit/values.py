"""Rules about values: versions, marked constants, the op table of the numerics contract."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from audit.project import Finding, Project

NUMERICS = "docs/numerics.md"

#: Text that quotes a version -> the constant behind it. Pages of record (CHANGELOG, decisions) are left alone.
QUOTED_VERSIONS = (
    (re.compile(r"\bnnk (\d+\.\d+\.\d+)"), "nnk._version.__version__"),
    (re.compile(r"\bGENERATOR_VERSION`? (?:is|=) `?(\d+)"), "nnk.generator.version.GENERATOR_VERSION"),
    (re.compile(r"\bgenerator version is `?(\d+)"), "nnk.generator.version.GENERATOR_VERSION"),
    (re.compile(r"\bnnk_format_version`? (?:is|=) `?(\d+)"), "nnk.cache.container.FORMAT_VERSION"),
    (re.compile(r"\bcontract version is `?(\d+)"), "nnk.numerics.CONTRACT_VERSION"),
)

_MARKED = re.compile(r"`?([^\s`|(]+?)`?\s*<!-- const: ([\w.\[\]]+) -->")
_MARK = re.compile(r"<!-- const: ")


def versions(project: Project) -> Iterator[Finding]:
    """D09: a version is quoted that is not the current one, or the top of CHANGELOG.md is wrong."""
    version = project.constant("nnk._version.__version__")
    page = project.page("CHANGELOG.md")
    headings = [(line, text[3:].strip()) for line, text in page.prose if text.startswith("## ")] if page else []
    if not headings or headings[0][1].strip("[]") != "Unreleased":
        yield Finding("CHANGELOG.md", headings[0][0] if headings else 1, "D09", "the first section is not Unreleased")
    if len(headings) > 1 and not headings[1][1].lstrip("[").startswith(version):
        yield Finding("CHANGELOG.md", headings[1][0], "D09", f"the newest release is not {version} (nnk/_version.py)")
    for page in project.pages:
        if page.name == "CHANGELOG.md" or page.name.startswith("docs/decisions/"):
            continue
        for line, text in page.prose:
            for pattern, dotted in QUOTED_VERSIONS:
                for match in pattern.finditer(text):
                    value = _value(project, dotted)
                    if match[1] != str(value):
                        yield Finding(page.name, line, "D09", f"quotes {match[1]}, {dotted} is {value}")


def _value(project: Project, dotted: str) -> Any:
    try:
        return project.constant(dotted)
    except (KeyError, ValueError):
        return None


def _same(written: str, value: Any) -> bool:
    text = written.replace(",", "").replace("_", "")
    if isinstance(value, int) and not isinstance(value, bool):
        try:
            return int(text, 0) == value
        except ValueError:
            return False
    return written == str(value)


def constants(project: Project) -> Iterator[Finding]:
    """D10: a value marked ``<!-- const: nnk.module.NAME -->`` is not the constant's."""
    for page in project.pages:
        for line, text in page.prose:
            text = re.sub(r"`([^`]+)`", lambda span: "" if _MARK.search(span[1]) else span[0], text)
            matches = list(_MARKED.finditer(text))
            if len(matches) != len(_MARK.findall(text)):
                yield Finding(page.name, line, "D10", "a constant mark without a value before it")
            for match in matches:
                value = _value(project, match[2])
                if value is None:
                    yield Finding(page.name, line, "D10", f"there is no constant {match[2]}")
                elif not _same(match[1], value):
                    yield Finding(page.name, line, "D10", f"says {match[1]}, {match[2]} is {value}")


def ops(project: Project) -> Iterator[Finding]:
    """D11: the ops of nnk/ops.py and the rows of numerics.md (name, code, ...) differ."""
    page = project.page(NUMERICS)
    if page is None:
        yield Finding(NUMERICS, 1, "D11", "the page is missing")
        return
    written = {cells[0]: (line, cells[1]) for line, cells in page.table_rows()
               if len(cells) > 2 and re.fullmatch(r"[a-z]\w*", cells[0]) and cells[1].isdigit()}
    table = {op.name: op.code for op in project.ops["OPS"]}
    for name, code in table.items():
        if name not in written:
            yield Finding(NUMERICS, 1, "D11", f"no row for the op {name}")
        elif int(written[name][1]) != code:
            yield Finding(NUMERICS, written[name][0], "D11", f"says code {written[name][1]} for {name}, it is {code}")
    for name in sorted(written.keys() - table.keys()):
        yield Finding(NUMERICS, written[name][0], "D11", f"there is no op {name}")
