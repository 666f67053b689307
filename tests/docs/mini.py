"""A small repository that passes every rule of doc_audit, to be broken in one place at a time."""

from pathlib import Path

FILES = {
    "README.md": "# mini\n\nSee [the docs](docs/index.md).\n",
    "CHANGELOG.md": "# Changelog\n\n## [Unreleased]\n\n- Nothing.\n\n## [1.2.3]\n\n- First, without NNK_OLD.\n",
    "setup.py": 'import os\nDEBUG = os.environ.get("NNK_BUILD_DEBUG")\n',
    "scripts/layering.py": 'ALLOWED = {"errors": frozenset(), "config": frozenset({"errors"}), "ops": frozenset()}\n',
    "nnk/__init__.py": '"""Mini."""\n\nfrom nnk.ops import double\n\n__all__ = ["double"]\n',
    "nnk/_version.py": '"""Version."""\n\n__version__ = "1.2.3"\n',
    "nnk/__main__.py": '"""Entry."""\n\nfrom nnk.cli import main\n\nmain()\n',
    "nnk/errors.py": '''"""Errors.

::

    NnkError(Exception)
    └── SmallError(ValueError)   .size

Each class is small.
"""

__all__ = ["NnkError", "SmallError"]


class NnkError(Exception):
    """Root."""

    attributes = ()


class SmallError(NnkError, ValueError):
    """Too small."""

    attributes = ("size",)
''',
    "nnk/config.py": '''"""Settings."""

from types import SimpleNamespace

LIMIT = 16
SETTINGS = {"device": SimpleNamespace(name="device", env="NNK_DEVICE", group="device", default="auto",
                                      expected="a name", doc="Device.", changes_code=False)}
''',
    "nnk/ops.py": '''"""Ops."""

from types import SimpleNamespace

OPS = (SimpleNamespace(code=7, name="add", arity=2, kind="binary", doc="a + b"),)
LIMITS = {"inputs": 16}


def double(x):
    """Return twice x.

    Raises
    ------
    SmallError
        Never.
    """
    return x + x
''',
    "nnk/cli/__init__.py": '''"""Commands."""

import argparse


def build_parser():
    parser = argparse.ArgumentParser(prog="nnk", description="Mini tool.")
    commands = parser.add_subparsers(dest="command")
    info = commands.add_parser("info", help="Print the version.")
    info.add_argument("--json", action="store_true", help="As JSON.")
    return parser


def main():
    arguments = build_parser().parse_args()
    print('{"version": "1.2.3"}' if arguments.json else "mini 1.2.3")
''',
    "nnk/include/nnk_math.h": "float nn_exp(float x) {\n    return x;\n}\n",
    "docs/index.md": """# Map

- [Architecture](architecture.md), [numerics](numerics.md#ops), [guide](guide.md)
- [API](reference/api.md), [CLI](reference/cli.md), [settings](reference/settings.md), [errors](reference/errors.md)
""",
    "docs/architecture.md": """# Architecture

<!-- tree -->
```text
.
├── nnk/
│   ├── __main__.py _version.py   start
│   ├── errors.py      every error
│   ├── config.py
│   ├── ops.py
│   ├── cli/           commands
│   └── include/
│       └── nnk_math.h
└── setup.py
```

<!-- arrows -->
```text
errors → (nothing)
config → errors
ops    → (nothing)
```
""",
    "docs/numerics.md": """# Numerics

## Ops

| op | code | function |
| --- | --- | --- |
| `add` | 7 | one addition |

`nn_exp` is exact. At most 16 <!-- const: nnk.config.LIMIT --> slots, `0x10` <!-- const: nnk.ops.LIMITS[inputs] -->.
""",
    "docs/guide.md": """# Guide

`nnk.double` is in `nnk.ops`; set `NNK_DEVICE`. This is nnk 1.2.3.

```python
import nnk
four = nnk.double(2)
```

```python
>>> nnk.double(four)
8
```

```console
$ nnk info
mini ...
$ nnk info --json
{"version": "1.2.3"}
```

```python no-run: needs a network
raise SystemExit(1)
```
""",
    "docs/reference/api.md": "# API\n\n<!-- generated: api -->\n<!-- end generated -->\n",
    "docs/reference/cli.md": "# CLI\n\n<!-- generated: cli -->\n<!-- end generated -->\n",
    "docs/reference/settings.md": """# Settings

<!-- generated: settings -->
<!-- end generated -->

| variable | meaning |
| --- | --- |
| `NNK_BUILD_DEBUG` | checks |
""",
    "docs/reference/errors.md": """# Errors

<!-- generated: error-tree -->
<!-- end generated -->

<!-- generated: errors -->
<!-- end generated -->
""",
}


def write_files(root: Path, files: dict[str, str]) -> None:
    """Write files below ``root``."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
