"""What a start loads: neither `import nnk` nor the small commands may pay for a device, a compiler or NumPy."""

import json
import os
import subprocess
import sys

import pytest

from tests import ROOT

PROBE = """
import json, runpy, sys
arguments = json.loads(sys.argv[1])
before = set(sys.modules)
if arguments is None:
    import nnk
else:
    sys.argv = ["nnk", *arguments]
    try:
        runpy.run_module("nnk", run_name="__main__")
    except SystemExit as stop:
        assert not stop.code, stop.code
print("\\n" + json.dumps(sorted(set(sys.modules) - before)))
"""


def modules_loaded(arguments, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NN_KERNEL_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", PROBE, json.dumps(arguments)], env=environment, text=True,
                          capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_import_loads_neither_device_nor_compiler(tmp_path):
    loaded = modules_loaded(None, tmp_path)
    assert "nnk" in loaded
    assert loaded & {"vulkan", "cffi", "nnk.vk", "nnk._fast.shaderc", "nnk._fast.cpu", "nnk.models", "nnk.generator",
                     "safetensors", "tokenizers", "rich"} == set()


@pytest.mark.parametrize("arguments", [["--version"], ["cache", "path"], ["--help"]])
def test_small_command_loads_neither_numpy_nor_vulkan(arguments, tmp_path):
    loaded = modules_loaded(arguments, tmp_path)
    assert "nnk.cli" in loaded
    assert loaded & {"numpy", "vulkan", "cffi", "nnk._fast.shaderc", "nnk._fast.cpu", "safetensors", "rich"} == set()
