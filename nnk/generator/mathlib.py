"""The exact functions of ``include/nnk_math.h``, as GLSL: only what a kernel calls is pasted into it."""

from __future__ import annotations

import functools
import importlib.resources
import re

__all__ = ["function_names", "functions_for"]

_DEFINITION = re.compile(r"^(?:FN\s+)?(?:const\s+)?\w+\s+(\w+)\s*[\(\[=]")
_NAME = re.compile(r"[A-Za-z_]\w*")
_INCLUDE = re.compile(r'^#include "(nnk_\w+\.h)"\n', re.MULTILINE)


def _header_text(name: str) -> str:
    """Return the text of a header of the package with the headers of the package that it includes."""
    text = importlib.resources.files("nnk").joinpath("include", name).read_text(encoding="utf-8")
    return _INCLUDE.sub(lambda found: _header_text(found.group(1)), text)


def _glsl_lines(text: str) -> list[str]:
    """Return the lines of the header that GLSL sees: the top-level conditionals on NNK_C resolved as undefined."""
    lines: list[str] = []
    active: list[bool] = []
    for line in text.splitlines():
        word = line.split(maxsplit=1)[0] if line.strip() else ""
        if word in ("#ifdef", "#if"):
            active.append(False)
        elif word == "#ifndef":
            active.append(True)
        elif word == "#elif":
            active[-1] = False
        elif word == "#else":
            active[-1] = not active[-1]
        elif word == "#endif":
            active.pop()
        elif all(active):
            lines.append(line.split("//")[0].rstrip())
    return [line for line in lines if line]


@functools.cache
def _library() -> tuple[tuple[str, ...], dict[str, str]]:
    """Return (macro and struct lines, definition text by name)."""
    text = _header_text("nnk_math.h")
    prelude: list[str] = []
    definitions: dict[str, str] = {}
    current: list[str] = []
    depth = 0
    for line in _glsl_lines(text):
        if not current and line.startswith(("#", "struct")):
            prelude.append(line)
            continue
        current.append(line)
        depth += line.count("{") - line.count("}") + line.count("(") - line.count(")")
        if depth == 0:
            found = _DEFINITION.match(current[0])
            assert found is not None, current[0]
            definitions[found.group(1)] = "\n".join(current)
            current = []
    return tuple(prelude), definitions


@functools.cache
def _calls(name: str) -> tuple[str, ...]:
    _, definitions = _library()
    used = dict.fromkeys(_NAME.findall(definitions[name]))
    return tuple(other for other in used if other in definitions and other != name)


def function_names() -> frozenset[str]:
    """Return the names of all functions that GLSL sees in the header."""
    return frozenset(_library()[1])


def functions_for(body: str) -> str:
    """Return the GLSL macros and every function that ``body`` calls, directly or not, in the header's order."""
    prelude, definitions = _library()
    wanted: set[str] = set()
    stack = [name for name in dict.fromkeys(_NAME.findall(body)) if name in definitions]
    # Struct constructors of the prelude call nothing, so macros never pull functions in but through these names.
    while stack:
        name = stack.pop()
        if name not in wanted:
            wanted.add(name)
            stack.extend(_calls(name))
    return "\n".join((*prelude, *(text for name, text in definitions.items() if name in wanted)))
