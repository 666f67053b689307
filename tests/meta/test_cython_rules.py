"""House rules of the compiled modules, read from their text."""

import re

import pytest

from tests import ROOT

FILES = sorted(path.relative_to(ROOT) for suffix in ("pyx", "pxd") for path in (ROOT / "nnk/_fast").glob(f"*.{suffix}"))

#: A view that a caller hands over to be filled has one of these names; every other view is const.
WRITABLE_VIEWS = ("out", "target")

_FUNCTION = re.compile(r"^\s*(?:cdef|cpdef)\s+(?!class\b|extern\b|struct\b|enum\b|union\b|packed\b)"
                       r"(?:(?:inline|readonly|public|api)\s+)*(?P<type>[\w.\s*\[\]:,<>]*?)\b(?P<name>\w+)\s*"
                       r"\((?P<rest>.*)$")
#: A Python object signals an error by NULL; Cython takes no other channel for it. Classes are written in CamelCase.
_PYTHON_TYPE = re.compile(r"^(object|bytes|bytearray|str|tuple|list|dict|set|_?[A-Z]\w*)?$")


def statements(text):
    """Yield (line number, logical line): comments and doc strings removed, parentheses joined."""
    text = re.sub(r'"""(?:.|\n)*?"""', lambda match: "\n" * match[0].count("\n"), text)
    lines = [line.split("#")[0].rstrip() for line in text.splitlines()]
    number = 0
    while number < len(lines):
        first, line = number + 1, lines[number]
        while line.count("(") > line.count(")") and number + 1 < len(lines):
            number += 1
            line += " " + lines[number].strip()
        number += 1
        yield first, line


def functions_without_channel(text):
    """Return the cdef functions that state neither ``except`` nor ``noexcept``."""
    found, extern_indent = [], None
    for number, line in statements(text):
        indent = len(line) - len(line.lstrip())
        if extern_indent is not None and line.strip() and indent <= extern_indent:
            extern_indent = None
        if re.match(r"\s*cdef extern\b", line):
            extern_indent = indent
            continue
        match = _FUNCTION.match(line)
        if match is None or extern_indent is not None or "=" in line.split("(")[0]:
            continue
        tail = line[line.rindex(")"):]
        if match["rest"].startswith("*") or _PYTHON_TYPE.match(match["type"].strip()):
            continue
        if not re.search(r"\bexcept\b|\bnoexcept\b", tail):
            found.append((number, match["name"]))
    return found


@pytest.mark.parametrize("path", FILES, ids=str)
def test_every_cdef_function_states_its_error_channel(path):
    assert functions_without_channel((ROOT / path).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(("text", "names"), [
    ("cdef int f(int a):\n    return a\n", ["f"]),
    ("cdef inline uint32_t f(const unsigned char *p) nogil:\n    pass\n", ["f"]),
    ("cdef class A:\n    cdef uint64_t g(self,\n                    int x):\n        pass\n", ["g"]),
    ("cpdef bint f(x)\n", ["f"]),
    ("cdef const char *f(x):\n    pass\n", ["f"]),
    ("cdef bytes f(x):\n    pass\ncdef g(x):\n    pass\ncdef Table h():\n    pass\n", []),
    ("cdef int f(int a) except -1 nogil:\n    pass\ncdef void g() noexcept:\n    pass\n", []),
    ("cdef extern from 'x.h' nogil:\n    int h(int)\n    void k()\ncdef int z = f(1)\n", []),
    ("cdef int count = min(a, b)\ncdef unsigned char[::1] view\ncdef int (*pointer)(int) noexcept\n", []),
])
def test_rule_sees_a_missing_channel(text, names):
    assert [name for _, name in functions_without_channel(text)] == names


@pytest.mark.parametrize("path", [path for path in FILES if path.suffix == ".pyx"], ids=str)
def test_module_follows_the_house_rules(path):
    text = (ROOT / path).read_text(encoding="utf-8")
    assert text.startswith("# cython: language_level=3\n")
    assert not re.search(r"^\s*include\s", text, re.MULTILINE)
    assert (ROOT / path).with_suffix(".pyi").is_file()
    header = (ROOT / path).with_suffix(".pxd")
    declared = text + (header.read_text(encoding="utf-8") if header.is_file() else "")
    for name in re.findall(r"^cdef class (\w+)", text, re.MULTILINE):
        pattern = rf"^@cython\.final\n(?:@.*\n)*cdef class {name}\b|^(?:@.*\n)+@cython\.final\ncdef class {name}\b"
        assert re.search(pattern, declared, re.MULTILINE), f"class {name} is not final"
    for head in re.findall(r"\bdef \w+\([^)]*\)", text):
        for view, name in re.findall(r"((?:const )?unsigned char\[::1\]) (\w+)", head):
            assert view.startswith("const ") or name in WRITABLE_VIEWS, f"a view that may write: {head[:80]}"


def test_there_are_compiled_modules():
    assert len(FILES) >= 6
