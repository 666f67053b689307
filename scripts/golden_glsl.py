#!/usr/bin/env python3
"""Golden kernels: ``python scripts/golden_glsl.py [--check]`` writes, or compares, tests/golden/glsl.

One GLSL file for each kernel of a fixed set of expressions, and ``fingerprint.json`` with the generator version that
emitted them, a hash of the texts, and a hash of their SPIR-V for each GLSL compiler that was tried. A changed text, or
changed SPIR-V of a known compiler, under an unchanged ``GENERATOR_VERSION`` is refused: a cache would go on serving
the old kernel under the same key.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

import nnk
from nnk import spirv
from nnk._fast import shaderc
from nnk.engines.cpu import CpuEngine
from nnk.expr.node import Tensor
from nnk.generator.glsl import emit
from nnk.generator.version import GENERATOR_VERSION

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "golden" / "glsl"
#: Kernels that never change again: they tell compilers apart.
REFERENCE = FOLDER / "reference"


def expressions() -> dict[str, Callable[[], Tensor]]:
    """Return the expressions by name; together they use every kernel form, view and function."""
    engine = CpuEngine(threads=1)

    def data(*shape: int) -> Tensor:
        return engine.array(np.ones(shape, np.float32))

    x, row, batch = data(6, 8), data(8), data(2, 3, 4)
    heads = data(2, 5, 4)
    index = engine.array(np.array([0, 2, 1]))
    half, whole, byte, mask = (engine.array(np.ones((6, 8), dtype)) for dtype in ("float16", "int32", "uint8", "bool"))
    unary = ("exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "erf", "relu", "silu", "gelu", "absolute", "negative")
    table: dict[str, Callable[[], Tensor]] = {name: functools.partial(getattr(nnk, name), x) for name in unary}
    table |= {
        "chain": lambda: nnk.tanh(x * row + 3),
        "divide": lambda: x / row,
        "gelu_tanh": lambda: nnk.gelu(x, approximate="tanh"),
        "compare": lambda: nnk.where((x < row) + (x >= 1) + (x == row) + (x != 2), nnk.maximum(x, row), x - row),
        "minimum": lambda: nnk.minimum(x, 0.5) ** 3,
        "transposed": lambda: x.transpose() * 2 + 1,
        "sliced": lambda: x[1:, ::2] + row[::2],
        "broadcast": lambda: batch + data(3, 1) * data(2, 1, 1),
        "high_rank": lambda: data(2, 1, 2, 1, 2) + data(1, 2, 1, 2, 2),
        "take": lambda: x.take(index) * 2,
        "sum": lambda: nnk.sum(x, axis=-1),
        "max": lambda: nnk.max(x * row, axis=-1, keepdims=True),
        "mean": lambda: nnk.mean(x, axis=-1),
        "softmax": lambda: nnk.softmax(x),
        "column_sum": lambda: nnk.sum(x, axis=0),
        "column_softmax": lambda: nnk.softmax(x * row, axis=0),
        "layer_norm": lambda: nnk.layer_norm(x, row, row),
        "rms_norm": lambda: nnk.rms_norm(x, row),
        "matmul": lambda: x @ data(8, 4),
        "matmul_tail": lambda: nnk.gelu(x @ data(8, 4) + data(4)),
        "matmul_transposed": lambda: x.transpose() @ data(6, 4),
        "attention": lambda: nnk.attention(x, data(9, 8), data(9, 3)),
        "attention_causal": lambda: nnk.attention(heads, heads, heads, "causal", np.arange(5) // 2, [0.5, 0.25]),
        "attention_mask": lambda: nnk.attention(heads, data(1, 7, 4), data(1, 7, 4), data(5, 7)),
        "attention_half": lambda: nnk.attention(half, half, half, "causal").astype("float16"),
        "attention_strided": lambda: nnk.attention(heads.swapaxes(0, 1), heads.swapaxes(0, 1), heads.swapaxes(0, 1),
                                                   mask[:5, None, :2]),
        "half_chain": lambda: (half * half + x).astype("float16"),
        "half_strided": lambda: (half.transpose() * 2).astype("bfloat16"),
        "half_softmax": lambda: nnk.softmax(half).astype("float16"),
        "half_matmul": lambda: (half @ data(8, 4).astype("bfloat16").eval()).astype("float16"),
        "integers": lambda: (whole * 3 + (whole >> 1)) ^ whole // 5,
        "bytes": lambda: byte.transpose() * 2 + byte.transpose(),
        "masks": lambda: nnk.where(mask & (x > 0), x, -1) > 0,
        "casts": lambda: (x * 1000).astype("uint8").astype("int32") + whole * (whole % 7),
        "matmul_batched": lambda: batch @ batch.swapaxes(-1, -2),
    }
    return table


def texts() -> dict[str, str]:
    """Return file name -> GLSL of every kernel."""
    result: dict[str, str] = {}
    for name, make in expressions().items():
        tensor = make()
        schedule, _ = tensor.engine.schedule([tensor])
        for number, step in enumerate(schedule.steps):
            suffix = f"_{number}" if len(schedule.steps) > 1 else ""
            result[f"{name}{suffix}.comp"] = emit(step.spec, step.meta.prec_sig, step.variant, step.meta.slots)
    return result


def fingerprint_of(files: dict[str, str]) -> str:
    """Return one hash over all names and texts."""
    state = hashlib.sha256()
    for name in sorted(files):
        state.update(f"{name}\0{files[name]}\0".encode())
    return state.hexdigest()


def compiler_identity() -> str:
    """Return a name for the GLSL compiler: a hash of what it makes of frozen kernels.

    Compilers of different versions write different SPIR-V, under one version number of the format.
    """
    state = hashlib.sha256()
    for path in sorted(REFERENCE.glob("*.comp")):
        state.update(shaderc.compile_glsl(path.read_text(encoding="utf-8"), "reference"))
    return state.hexdigest()[:16]


def spirv_fingerprint(files: dict[str, str]) -> tuple[str, str]:
    """Return (compiler, one hash over all finished modules)."""
    state = hashlib.sha256()
    for name in sorted(files):
        module = spirv.decorate_no_contraction(shaderc.compile_glsl(files[name], "golden"))
        state.update(f"{name}\0{len(module)}\0".encode() + module)
    return compiler_identity(), state.hexdigest()


def differences(folder: Path, files: dict[str, str]) -> list[str]:
    """Return one line for each file that is missing, stale or left over."""
    stored = {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.comp"))}
    lines = [f"{name}: {'not in the folder' if name not in stored else 'the text changed'}"
             for name in files if stored.get(name) != files[name]]
    return lines + [f"{name}: nothing emits it" for name in stored if name not in files]


def verdict(folder: Path, files: dict[str, str], version: int, modules: tuple[str, str] = ("", "")) -> str:
    """Return why ``files``, and the ``modules`` of this compiler, may not take the place of what is stored, or nothing.

    A compiler that is not stored is no reason: its modules have nothing to be compared with.
    """
    path = folder / "fingerprint.json"
    if not path.exists():
        return ""
    stored = json.loads(path.read_text(encoding="utf-8"))
    if stored["generator_version"] == version and stored["sha256"] != fingerprint_of(files):
        return (f"The emitted code changed, but GENERATOR_VERSION is still {version}: raise it in "
                "nnk/generator/version.py, then run scripts/golden_glsl.py")
    compiler, modules_hash = modules
    if stored["generator_version"] == version and stored["spirv"].get(compiler, modules_hash) != modules_hash:
        return (f"The SPIR-V of compiler {compiler} changed, but GENERATOR_VERSION is still {version}: raise it in "
                "nnk/generator/version.py, then run scripts/golden_glsl.py")
    if stored["generator_version"] > version:
        return f"GENERATOR_VERSION went back from {stored['generator_version']} to {version}"
    return ""


def write(folder: Path, files: dict[str, str], version: int, modules: tuple[str, str] = ("", "")) -> None:
    """Replace the stored files; hashes of other compilers stay as long as the version does."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "fingerprint.json"
    stored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    known = stored.get("spirv", {}) if stored.get("generator_version") == version else {}
    for old in folder.glob("*.comp"):
        old.unlink()
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    content = {"generator_version": version, "sha256": fingerprint_of(files),
               "spirv": dict(sorted({**known, **dict([modules])}.items()))}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Compare or write; return the exit status."""
    parser = argparse.ArgumentParser(description="Golden kernels.")
    parser.add_argument("--check", action="store_true", help="only compare")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the files are")
    options = parser.parse_args(arguments)
    files = texts()
    modules = spirv_fingerprint(files)
    reason = verdict(options.folder, files, GENERATOR_VERSION, modules)
    lines = differences(options.folder, files)
    if reason or (options.check and lines):
        print("\n".join([*lines, reason or "stale: run scripts/golden_glsl.py"]))
        return 1
    if not options.check:
        write(options.folder, files, GENERATOR_VERSION, modules)
    return 0


if __name__ == "__main__":
    sys.exit(main())
