"""A real file system of 64 KB that is full: results stay right, the old file stays whole, nothing is left behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_PROGRAM = """
import os, sys, warnings
from pathlib import Path
from nnk.cache.store import KernelCache
from nnk.errors import CacheError
from tests.kernels import key, spirv

folder = Path(sys.argv[1])
with KernelCache(folder / "kernels.nnk") as cache:
    cache.put(key(0), spirv(0))
    cache.flush()
before = (folder / "kernels.nnk").read_bytes()
with open(folder / "filler", "wb", buffering=0) as filler:
    try:
        while True:
            filler.write(bytes(1024))
    except OSError:
        pass
descriptors = len(os.listdir("/proc/self/fd"))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    cache = KernelCache(folder / "kernels.nnk")
    for number in range(20):
        cache.put(key(number), spirv(number))
        assert cache.get(key(number)) == spirv(number)
    try:
        cache.flush()
    except CacheError as error:
        print("flush:", error)
    cache.close()
print("warnings:", len(caught))
print("same file:", (folder / "kernels.nnk").read_bytes() == before)
print("left:", sorted(path.name for path in folder.iterdir()))
print("descriptors:", len(os.listdir("/proc/self/fd")) - descriptors)
(folder / "filler").unlink()
with KernelCache(folder / "kernels.nnk") as cache:
    assert cache.get(key(0)) == spirv(0)
    cache.put(key(1), spirv(1))
    cache.flush()
print("healed:", (folder / "kernels.nnk").read_bytes() != before)
"""


def test_full_file_system(tmp_path: Path) -> None:
    """A namespace of its own lets any user mount the file system, and takes it away at the end."""
    (tmp_path / "disk").mkdir()
    script = 'mount -t tmpfs -o size=64k tmpfs "$1" && exec "$2" -c "$3" "$1"'
    done = subprocess.run(["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh",
                           str(tmp_path / "disk"), sys.executable, _PROGRAM], capture_output=True, text=True,
                          timeout=120, check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    lines = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert "No space left on device" in lines["flush"]
    assert lines["warnings"] == "1"
    assert lines["same file"] == "True"
    assert lines["left"] == "['filler', 'kernels.nnk', 'kernels.nnk.lock']"
    assert lines["descriptors"] == "0"
    assert lines["healed"] == "True"
