"""The GLSL compiler binding."""

from __future__ import annotations

import struct
import subprocess
import sys
import threading

import pytest

from nnk._fast import shaderc
from nnk.errors import CompileError

GOOD = """#version 450
layout(local_size_x = 64) in;
layout(std430, binding = 0) buffer A { float a[]; };
void main() { a[gl_GlobalInvocationID.x] = a[0] * 2.0 + 1.0; }
"""


def test_compiles_to_spirv_1_5() -> None:
    words = struct.unpack_from("<5I", shaderc.compile_glsl(GOOD, "good"))
    assert words[0] == 0x07230203
    assert words[1] == 0x00010500


def test_same_source_gives_the_same_bytes() -> None:
    assert shaderc.compile_glsl(GOOD, "one") == shaderc.compile_glsl(GOOD, "two")


def test_nothing_is_optimised() -> None:
    """Zero optimisation keeps a constant expression of variables; spirv-opt would fold the loop away."""
    source = GOOD.replace("a[0] * 2.0", "a[0] * 2.0; float unused = a[1] + a[2]; a[3] = 0.0")
    module = shaderc.compile_glsl(source, "unused")
    words = struct.unpack(f"<{len(module) // 4}I", module)
    assert any(word == (5 << 16 | 129) for word in words), "OpFAdd of an unused value is gone"


def test_refused_source_is_explained() -> None:
    bad = GOOD.replace("a[0]", "nothing[0]")
    with pytest.raises(CompileError, match="refused 'k': k:4: error: 'nothing' : undeclared identifier") as caught:
        shaderc.compile_glsl(bad, "k")
    assert caught.value.source == bad  # type: ignore[attr-defined]
    assert "undeclared identifier" in caught.value.log  # type: ignore[attr-defined]


@pytest.mark.parametrize("source", ["", "void", "#version 450\n", "\x7fELF", "#version 450\nvoid main() { } }"])
def test_nonsense_is_refused(source: str) -> None:
    with pytest.raises(CompileError):
        shaderc.compile_glsl(source, "nonsense")


def test_null_characters_and_huge_sources_are_refused() -> None:
    with pytest.raises(CompileError, match="null characters"):
        shaderc.compile_glsl(GOOD + "\0", "x")
    with pytest.raises(CompileError, match="null characters"):
        shaderc.compile_glsl(GOOD, "x\0")
    with pytest.raises(CompileError, match="at most 16777216 bytes"):
        shaderc.compile_glsl("/" * (16777216 + 1), "x")


@pytest.mark.parametrize(("source", "name"), [(None, "x"), (b"", "x"), (GOOD, None)])
def test_arguments_are_text(source: object, name: object) -> None:
    with pytest.raises(TypeError):
        shaderc.compile_glsl(source, name)  # type: ignore[arg-type]


def test_threads_share_the_compiler() -> None:
    sources = [GOOD.replace("1.0", f"{number}.0") for number in range(8)]
    expected = [shaderc.compile_glsl(source, "x") for source in sources]
    found: dict[int, bytes] = {}

    def work(number: int) -> None:
        found[number] = shaderc.compile_glsl(sources[number], "x")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[number] for number in range(8)] == expected
    assert len(set(expected)) == 8


def test_first_use_from_many_threads() -> None:
    code = ("import threading\nfrom nnk._fast import shaderc\n"
            f"source = {GOOD!r}\nout = []\n"
            "work = lambda: out.append(shaderc.compile_glsl(source, 'x'))\n"
            "threads = [threading.Thread(target=work) for _ in range(6)]\n"
            "[t.start() for t in threads]; [t.join() for t in threads]\n"
            "print(len(out), len(set(out)))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["6", "1"]


def test_version_names_spirv() -> None:
    assert shaderc.version().startswith("SPIR-V 1.")
