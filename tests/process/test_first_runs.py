"""First runs on a machine: many at once on one fresh cache, without Vulkan, without a home, without a PATH."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nnk.cache.tools import list_kernels, verify
from tests.commands import NO_VULKAN, environment, nnk, nnk_command, python

PROCESSES = 8


def test_eight_first_runs_at_once(tmp_path: Path) -> None:
    """No error, one digest, and a cache file that holds every kernel afterwards."""
    surroundings = environment(NN_KERNEL_CACHE_DIR=str(tmp_path / "new" / "folder"), NNK_LOCK_TIMEOUT_S="60")
    running = [subprocess.Popen(nnk_command("embed", "a cat", "", "--device", "vulkan", "--json"), env=surroundings,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8")
               for _ in range(PROCESSES)]
    reports = []
    for process in running:
        out, err = process.communicate(timeout=300)
        assert (process.returncode, err) == (0, "")
        reports.append(json.loads(out))
    assert len({report["digest"] for report in reports}) == 1
    kernels = {sum(report["kernels"].values()) for report in reports}
    assert len(kernels) == 1
    path = tmp_path / "new" / "folder" / "kernels.nnk"
    assert verify(path).is_good
    # And that of the self-test, which ran where its result was not yet there.
    assert len(list_kernels(path)) == kernels.pop() + 1
    left = sorted(file.name for file in path.parent.iterdir())
    assert {Path(name).suffix for name in left} <= {".nnk", ".nnp", ".nns", ".lock"}, left
    last = json.loads(nnk("embed", "a cat", "", "--device", "vulkan", "--json",
                          NN_KERNEL_CACHE_DIR=str(path.parent)).stdout)
    assert last["kernels"]["compiled"] == 0
    assert last["digest"] == reports[0]["digest"]


# --------------------------------------------------------------------------- no Vulkan

def test_vulkan_is_asked_for_and_missing() -> None:
    code = ("import nnk\n"
            "try:\n    nnk.engine('vulkan')\n"
            "except nnk.errors.NoDeviceError as error:\n    print(error); print(*error.hints, sep='\\n')\n")
    done = python(code, **NO_VULKAN)
    assert (done.returncode, done.stderr) == (0, "")
    first, *hints = done.stdout.splitlines()
    assert first.startswith("The Vulkan loader finds no driver")
    for word in ("mesa-vulkan-drivers", "VK_DRIVER_FILES"):
        assert any(word in hint for hint in hints)


def test_package_is_missing() -> None:
    done = python("import sys; sys.modules['vulkan'] = None; from nnk.cli import main; "
                  "sys.exit(main(['explain', 'x + 1', '--device', 'vulkan']))")
    assert done.returncode == 1
    assert done.stdout == ""
    assert re.match("NoDeviceError: The Python package vulkan cannot be imported .*pip install vulkan",
                    done.stderr)
    assert "Traceback" not in done.stderr


def test_auto_falls_back_and_says_so_once() -> None:
    code = ("import warnings\n"
            "with warnings.catch_warnings(record=True) as caught:\n"
            "    warnings.simplefilter('always')\n"
            "    import nnk\n"
            "    engines = [nnk.engine('auto'), nnk.engine(), nnk.array([1.0]).engine]\n"
            "assert engines == [nnk.engine('cpu')] * 3, engines\n"
            "print(*[f'{type(w.message).__name__} {w.filename}: {w.message}' for w in caught], sep='\\n')\n")
    done = python(code, **NO_VULKAN)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("PerformanceWarning <string>: nnk runs on the CPU engine: ")
    assert done.stdout.count("\n") == 1


def test_embed_without_vulkan() -> None:
    refused = nnk("embed", "a cat", "--device", "vulkan", **NO_VULKAN)
    assert (refused.returncode, refused.stdout) == (1, "")
    first, *hints = refused.stderr.splitlines()
    assert first.startswith("NoDeviceError: ")
    assert all(hint.startswith("  - ") for hint in hints)
    found = nnk("embed", "a cat", "--digest", **NO_VULKAN)
    assert found.returncode == 0
    assert re.fullmatch("PerformanceWarning: nnk runs on the CPU engine: .*\n", found.stderr)
    assert found.stdout == nnk("embed", "a cat", "--digest", "--device", "cpu").stdout


# --------------------------------------------------------------------------- an odd environment

DIGEST = "import nnk; print(nnk.digest(nnk.tanh(nnk.array([0.5, 1.0], engine={engine!r}) * 3)))"


@pytest.mark.parametrize("engine", ["cpu", "vulkan"])
@pytest.mark.parametrize("changes", [
    {"HOME": None, "XDG_CACHE_HOME": None}, {"HOME": "/nonexistent"}, {"HOME": ""}, {"PATH": ""}, {"PATH": None},
    {"TMPDIR": "/nonexistent"}, {"LC_ALL": "C", "LANG": None, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    {"TERM": None}], ids=lambda changes: "-".join(changes))
def test_odd_environment(engine: str, changes: dict[str, Any]) -> None:
    expected = python(DIGEST.format(engine="cpu"))
    done = python(DIGEST.format(engine=engine), **changes)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == expected.stdout


def test_nothing_but_python(tmp_path: Path) -> None:
    """An empty environment, and no setting for the cache."""
    found = subprocess.run([sys.executable, "-c", DIGEST.format(engine="cpu")], capture_output=True, text=True,
                           check=False, cwd=tmp_path, env={"PYTHONPATH": environment()["PYTHONPATH"]})
    assert (found.returncode, found.stderr) == (0, "")
    assert re.fullmatch("[0-9a-f]{16}\n", found.stdout)


def test_cache_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    done = nnk("parity", "x + 1", "tanh(x)", "x @ x", NN_KERNEL_CACHE_DIR=str(tmp_path / "file"))
    assert done.returncode == 0
    assert re.fullmatch("CacheWarning: .*\n", done.stderr)
    assert str(tmp_path / "file") in done.stderr
    assert done.stdout.count(" equal ") == 3


# --------------------------------------------------------------------------- what an import costs

def test_import_loads_no_device() -> None:
    done = python("import nnk, sys; print(sorted({'vulkan', 'cffi', 'nnk._fast.shaderc'} & set(sys.modules)))")
    assert (done.returncode, done.stdout) == (0, "[]\n")


def test_cpu_engine_loads_no_device() -> None:
    done = python("import nnk, sys; nnk.array([1.0], engine='cpu').eval(); "
                  "print(sorted({'vulkan', 'cffi', 'nnk._fast.shaderc'} & set(sys.modules)))")
    assert (done.returncode, done.stdout) == (0, "[]\n")
