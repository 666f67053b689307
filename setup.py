"""The dynamic half of the build: extension modules, their flags, and a C header written from the op tables.

Environment: NNK_BUILD_ONLY=a,b builds only these modules; NNK_BUILD_DEBUG=1 turns checks and -O0 on;
NNK_BUILD_SANITIZE=1 adds ASan and UBSan; NNK_SHADERC_LIBS replaces the link line of the GLSL compiler.
Everything static is in pyproject.toml.
"""

import os
import runpy
import shlex
import subprocess
import tempfile
from glob import glob
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

DEBUG = os.environ.get("NNK_BUILD_DEBUG", "") not in ("", "0")
SANITIZE = os.environ.get("NNK_BUILD_SANITIZE", "") not in ("", "0")
ONLY = [name for name in os.environ.get("NNK_BUILD_ONLY", "").split(",") if name]

GENERATED = Path("build/generated")

#: Contraction and fast-math would break the numerics contract, whatever CFLAGS says; they come last.
EXACT_FLAGS = ["-ffp-contract=off", "-fno-fast-math"]

GLSLANG_ARCHIVES = ("glslang", "MachineIndependent", "GenericCodeGen", "OSDependent", "OGLCompiler", "HLSL", "SPIRV",
                    "SPIRV-Tools-opt", "SPIRV-Tools")


def write_op_header() -> None:
    """Write build/generated/nnk_ops.h: the op table and the contract's expressions as C macros."""
    ops = runpy.run_path("nnk/ops.py")
    numerics = runpy.run_path("nnk/numerics.py")
    lines = ["/* Written by setup.py from nnk/ops.py and nnk/numerics.py. */", "#pragma once"]
    kinds: dict[str, list[str]] = {}
    for op in ops["OPS"]:
        lines.append(f"#define NNK_OP_{op.name.upper()} {op.code}")
        if op.name in numerics["FUNCTIONS"]:
            text = numerics["FUNCTIONS"][op.name].format(a="a", b="b", c="c")
            kinds.setdefault(f"ARITY{op.arity}", []).append(f"X({op.code}, {op.name}, {text})")
    for kind, rows in kinds.items():
        lines.append(f"#define NNK_OPS_{kind}(X) " + " ".join(rows))
    for kind in ops["OPERANDS"]:
        lines.append(f"#define NNK_OPERAND_{kind.name.upper()} {kind.code}")
    for view in ops["VIEWS"]:
        lines.append(f"#define NNK_VIEW_{view.name.upper()} {view.code}")
    for name, value in ops["LIMITS"].items():
        lines.append(f"#define NNK_MAX_{name.upper()} {value}")
    for name, value in numerics.items():
        if name.isupper() and isinstance(value, int):
            lines.append(f"#define NNK_{name} {value}u")
    text = "\n".join(lines) + "\n"
    GENERATED.mkdir(parents=True, exist_ok=True)
    target = GENERATED / "nnk_ops.h"
    if not target.exists() or target.read_text() != text:
        target.write_text(text)


def links(libraries: list[str]) -> bool:
    """Say whether a program that compiles a shader links against ``libraries``."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.c")
        source.write_text("#include <shaderc/shaderc.h>\n"
                          "int main(void) { return shaderc_compiler_initialize() == 0; }\n")
        compiler = shlex.split(os.environ.get("CXX", "g++"))
        command = [*compiler, "-x", "c", str(source), "-x", "none", "-o", str(Path(folder, "probe")), *libraries]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


def shaderc_link_line() -> list[str]:
    """Return the linker arguments for shaderc: static archives where they are whole, else the shared library."""
    if "NNK_SHADERC_LIBS" in os.environ:
        return shlex.split(os.environ["NNK_SHADERC_LIBS"])
    tail = ["-lstdc++", "-lm", "-lpthread"]
    folders = ["/usr/lib", "/usr/local/lib", *glob("/usr/lib/*-linux-gnu")]
    present = [name for name in GLSLANG_ARCHIVES if any(Path(f, f"lib{name}.a").exists() for f in folders)]
    static = ["-Wl,--start-group", "-l:libshaderc_combined.a", *(f"-l:lib{name}.a" for name in present),
              "-Wl,--end-group", "-Wl,--exclude-libs,ALL", *tail]
    shared = ["-lshaderc", *tail]
    for line in (static, shared):
        if links(line):
            return line
    raise SystemExit("nnk needs the shaderc compiler to build: no static or shared library links. "
                     "Install it with: apt-get install -y g++ libshaderc-dev glslang-dev spirv-tools "
                     "or set NNK_SHADERC_LIBS to the linker arguments.")


def extension(path: str) -> Extension:
    """Describe the extension module of one .pyx file."""
    name = Path(path).stem
    compile_args = ["-O0", "-g"] if DEBUG else ["-O3"]
    compile_args += ["-Wall", "-Wno-unused-function", *EXACT_FLAGS]
    link_args: list[str] = []
    sources = [path]
    depends = [str(GENERATED / "nnk_ops.h"), *glob("nnk/include/*.h"), *glob("nnk/_fast/csrc/*.h"),
               *glob("nnk/_fast/csrc/*.inc")]
    if name == "cpu":
        sources += sorted(glob("nnk/_fast/csrc/cpu*.c"))
        # Nobody reads errno or the exception flags, so loops with selects and square roots become vector code.
        # Jump threading would turn runs of selects on one condition back into branches.
        compile_args += ["-fno-math-errno", "-fno-trapping-math", "-fno-thread-jumps"]
        link_args += ["-lpthread", "-lm"]
    if name == "shaderc":
        link_args += shaderc_link_line()
    if SANITIZE:
        compile_args += ["-fsanitize=address,undefined", "-fno-omit-frame-pointer"]
        link_args += ["-fsanitize=address,undefined"]
    return Extension(f"nnk._fast.{name}", sources, depends=depends, extra_compile_args=compile_args,
                     extra_link_args=link_args,
                     include_dirs=["nnk/include", "nnk/_fast/csrc", str(GENERATED)])


write_op_header()
paths = [path for path in sorted(glob("nnk/_fast/*.pyx")) if not ONLY or Path(path).stem in ONLY]
setup(
    ext_modules=cythonize(
        [extension(path) for path in paths],
        build_dir="build/cython",
        annotate=DEBUG,
        compiler_directives={
            "language_level": 3,
            "binding": True,
            "embedsignature": True,
            "boundscheck": DEBUG,
            "wraparound": DEBUG,
            "initializedcheck": DEBUG,
            "cdivision": True,
        },
    ),
)
