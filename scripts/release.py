#!/usr/bin/env python3
"""Make a release, and check what a wheel or sdist holds.

``release.py check FILE...`` checks built files; ``release.py prepare X.Y.Z`` writes the version and dates the
CHANGELOG; ``release.py build`` builds wheel and sdist into dist/, checks both and prints the text of the tag.
"""

from __future__ import annotations

import argparse
import datetime
import re
import subprocess
import sys
import tarfile
import zipfile
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

#: Patterns that must match a file, and patterns that must match none, by kind of archive.
WHEEL_NEEDS = ("nnk/__init__.py", "nnk/py.typed", "nnk/include/nnk_math*.h", "nnk/_fast/exprspec.*.so",
               "nnk/_fast/kvrecord.*.so", "nnk/_fast/keyindex.*.so", "nnk/_fast/shaderc.*.so", "nnk/_fast/cpu.*.so",
               "nnk/_fast/dispatch.*.so", "nnk/engines/anchors.json", "nnk/_fast/exprspec.pyi",
               "nnk/_fast/kvrecord.pyi", "*.dist-info/METADATA", "*.dist-info/entry_points.txt",
               "*.dist-info/licenses/LICENSE")
WHEEL_REFUSES = ("tests/*", "*/tests/*", "*oracle*", "scripts/*", "docs/*", "build/*", "*.c", "*.cpp", "*.pyx",
                 "*.pyc", "setup.py")
SDIST_NEEDS = ("setup.py", "pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "nnk/_fast/kvrecord.pyx",
               "nnk/_fast/kvrecord.pyi", "nnk/_fast/common.pxd", "nnk/_fast/csrc/*.c", "nnk/include/nnk_math.h",
               "nnk/py.typed", "tests/conftest.py", "tests/oracle/kvrecord.py", "docs/index.md", "scripts/test")
SDIST_REFUSES = ("*.so", "*.pyc", "*__pycache__*", "build/*", ".venv/*")


def names_in(path: Path) -> list[str]:
    """Return the file names in a wheel or an sdist (without its top folder)."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as archive:
            return [name for name in archive.namelist() if not name.endswith("/")]
    with tarfile.open(path) as archive:
        return [member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()]


def problems_of(path: Path) -> list[str]:
    """Return what is missing from an archive and what should not be in it."""
    names = names_in(path)
    needs, refuses = (WHEEL_NEEDS, WHEEL_REFUSES) if path.suffix == ".whl" else (SDIST_NEEDS, SDIST_REFUSES)
    missing = [f"{path.name}: no file matches {pattern}" for pattern in needs
               if not any(fnmatch(name, pattern) for name in names)]
    extra = [f"{path.name}: {name} should not be there ({pattern})" for name in names for pattern in refuses
             if fnmatch(name, pattern)]
    return missing + extra


def check(paths: list[Path]) -> int:
    """Print the problems of archives; return the exit status."""
    problems = [problem for path in paths for problem in problems_of(path)]
    for problem in problems:
        print(problem)
    return 1 if problems else 0


def dated_changelog(text: str, version: str, date: str) -> str:
    """Return the CHANGELOG with its Unreleased section turned into ``version`` and a new empty one above.

    Raises
    ------
    ValueError
        If there is no Unreleased section, or nothing is in it.
    """
    match = re.search(r"^## \[Unreleased\]\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if match is None or not match[1].strip():
        raise ValueError("CHANGELOG.md has nothing under '## [Unreleased]'")
    heading = f"## [Unreleased]\n\n## [{version}] - {date}\n{match[1]}"
    return text[:match.start()] + heading + text[match.end():]


def notes_of(text: str, version: str) -> str:
    """Return the CHANGELOG section of a version: the text of its tag."""
    match = re.search(rf"^## \[{re.escape(version)}\][^\n]*\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return f"nnk {version}\n\n{match[1].strip() if match else ''}\n"


def current_version() -> str:
    """Return the version in nnk/_version.py."""
    match = re.search(r'__version__ = "([^"]+)"', (ROOT / "nnk/_version.py").read_text(encoding="utf-8"))
    assert match is not None
    return match[1]


def prepare(version: str) -> int:
    """Write the version and date the CHANGELOG."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        print(f"expected a version like 1.2.3, got {version}", file=sys.stderr)
        return 2
    changelog = ROOT / "CHANGELOG.md"
    text = dated_changelog(changelog.read_text(encoding="utf-8"), version, datetime.date.today().isoformat())
    path = ROOT / "nnk/_version.py"
    source = path.read_text(encoding="utf-8").replace(f'"{current_version()}"', f'"{version}"')
    changelog.write_text(text, encoding="utf-8")
    path.write_text(source, encoding="utf-8")
    return 0


def build() -> int:
    """Build wheel and sdist, check them, print the text of the tag."""
    subprocess.run([sys.executable, "-m", "build", "--outdir", "dist", str(ROOT)], cwd=ROOT, check=True)
    version = current_version()
    status = check(sorted((ROOT / "dist").glob(f"nnk-{version}*")))
    print(notes_of((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version))
    return status


def main(arguments: list[str] | None = None) -> int:
    """Run a command; return the exit status."""
    parser = argparse.ArgumentParser(description="Make a release.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check", help="check built files").add_argument("files", nargs="+", type=Path)
    commands.add_parser("prepare", help="set the version, date the CHANGELOG").add_argument("version")
    commands.add_parser("build", help="build and check wheel and sdist")
    options = parser.parse_args(arguments)
    if options.command == "check":
        return check(options.files)
    return prepare(options.version) if options.command == "prepare" else build()


if __name__ == "__main__":
    sys.exit(main())
