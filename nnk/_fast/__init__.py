"""All compiled code of nnk: formats, key index, dispatch, GLSL compiler, CPU engine.

Lives here: work that runs per byte or per dispatch. No policy, no file access, no settings.
May import: errors, ops.
Main names: `kvrecord.RecordTable`, `keyindex.KeyIndex`, `exprspec`, `cpu`, `dispatch`, `shaderc`.

There is no fallback in Python. A package whose modules were not compiled fails here, with the remedy.
"""

from importlib.machinery import EXTENSION_SUFFIXES as _SUFFIXES
from pathlib import Path as _Path

if not any(file.name.endswith(tuple(_SUFFIXES)) for file in _Path(__file__).parent.iterdir()):
    raise ImportError("nnk is not built: its compiled modules are missing. In a source checkout, run "
                      "`pip install -e .` (it needs gcc and libshaderc-dev); otherwise reinstall the nnk wheel.")
