#!/usr/bin/env python3
"""Fuzz the KVRecord readers, guided by coverage, under ASan and UBSan: ``python scripts/cache_fuzz_guided.py -runs=N``.

Needs clang and the package atheris in this Python. The compiled readers are built in a temporary folder with the
instrumentation of libFuzzer; the corpus starts from the hostile files. Arguments go to libFuzzer. Any bytes must parse,
or raise FormatError; a record that loads must dump, or raise FormatError.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

#: pointer-overflow would report the argument handling that Cython generates for calls without arguments.
SANITIZERS = "address,undefined,fuzzer-no-link"
LEFT_OUT = "vptr,function,pointer-overflow"


def fuzz() -> None:
    """Run libFuzzer in this process; it exits when it is done."""
    import atheris

    from nnk import kvrecord
    from nnk._fast.kvrecord import parse
    from nnk.errors import FormatError

    def read(data: bytes) -> None:
        for reader in (parse, kvrecord.loads):
            try:
                found = reader(data)
            except FormatError:
                continue
            if isinstance(found, kvrecord.Record):
                kvrecord.dumps(found)

    atheris.Setup([sys.argv[0], *sys.argv[2:]], read)
    atheris.Fuzz()


def main() -> int:
    """Build the readers, then fuzz them in a process with the sanitizers loaded."""
    import atheris
    site = Path(atheris.__file__).parent.parent
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        shutil.copytree(ROOT / "nnk", copy / "nnk", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, copy)
        flags = f"-fsanitize={SANITIZERS} -fno-sanitize={LEFT_OUT}"
        env = {**os.environ, "CC": "clang", "CXX": "clang++", "LDSHARED": "clang -shared", "CFLAGS": flags,
               "LDFLAGS": flags, "NNK_BUILD_ONLY": "kvrecord,keyindex"}
        subprocess.run([sys.executable, "setup.py", "-q", "build_ext", "-i"], cwd=copy, env=env, check=True)
        corpus = copy / "corpus"
        corpus.mkdir()
        hostile = json.loads((ROOT / "tests/golden/kvrecord/hostile_nnk.json").read_text(encoding="utf-8"))
        for name, row in hostile.items():
            (corpus / name).write_bytes(bytes.fromhex(row["hex"]))
        env = {**os.environ, "LD_PRELOAD": str(site / "asan_with_fuzzer.so"),
               "ASAN_OPTIONS": "detect_leaks=0:quarantine_size_mb=16", "UBSAN_OPTIONS": "halt_on_error=1",
               "PYTHONPATH": str(copy)}
        command = [sys.executable, __file__, "--fuzz", str(corpus), "-max_len=4096", "-rss_limit_mb=0", *sys.argv[1:]]
        return subprocess.run(command, cwd=copy, env=env, check=False).returncode


if __name__ == "__main__":
    if sys.argv[1:2] == ["--fuzz"]:
        fuzz()
    else:
        sys.exit(main())
