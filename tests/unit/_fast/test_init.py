"""A package that was not built says so, with the remedy."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import nnk._fast


def test_not_built(tmp_path: Path) -> None:
    package = tmp_path / "nnk" / "_fast"
    package.mkdir(parents=True)
    (tmp_path / "nnk" / "__init__.py").touch()
    shutil.copy(nnk._fast.__file__, package / "__init__.py")
    done = subprocess.run([sys.executable, "-c", "import nnk._fast"], cwd=tmp_path, capture_output=True, text=True,
                          check=False)
    assert done.returncode == 1
    assert "ImportError: nnk is not built" in done.stderr
    assert "pip install -e ." in done.stderr
