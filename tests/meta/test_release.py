"""Content of wheel and sdist, and the CHANGELOG at a release."""

import tarfile
import tomllib
import zipfile

import layering
import pytest
import release
from setuptools import find_packages

from tests import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
GOOD_WHEEL = [name.replace("*", "x") for name in release.WHEEL_NEEDS]
GOOD_SDIST = [name.replace("*", "x") for name in release.SDIST_NEEDS]


def wheel(tmp_path, names):
    path = tmp_path / "nnk-1.0.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, "")
    return path


def sdist(tmp_path, names):
    path = tmp_path / "nnk-1.0.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name in names:
            archive.addfile(tarfile.TarInfo(f"nnk-1.0.0/{name}"))
    return path


def test_good_archives_pass(tmp_path):
    assert release.check([wheel(tmp_path, GOOD_WHEEL), sdist(tmp_path, GOOD_SDIST)]) == 0


@pytest.mark.parametrize("name", ["tests/oracle/arith.py", "nnk/oracle.py", "nnk/_fast/cpu.c", "nnk/_fast/cpu.pyx"])
def test_stray_file_in_wheel_is_found(tmp_path, name, capsys):
    assert release.main(["check", str(wheel(tmp_path, [*GOOD_WHEEL, name]))]) == 1
    assert name in capsys.readouterr().out


@pytest.mark.parametrize("name", GOOD_WHEEL)
def test_missing_file_in_wheel_is_found(tmp_path, name):
    assert release.problems_of(wheel(tmp_path, [other for other in GOOD_WHEEL if other != name]))


@pytest.mark.parametrize("name", ["nnk/_fast/cpu.so", "nnk/__pycache__/x.pyc"])
def test_stray_file_in_sdist_is_found(tmp_path, name):
    assert release.problems_of(sdist(tmp_path, [*GOOD_SDIST, name]))


def test_packages_hold_neither_tests_nor_scripts():
    packages = find_packages(str(ROOT), include=PROJECT["tool"]["setuptools"]["packages"]["find"]["include"])
    assert {name.split(".")[0] for name in packages} == {"nnk"}
    rooms = {path.parent.relative_to(ROOT).as_posix().replace("/", ".") for path in (ROOT / "nnk").rglob("*.py")}
    assert rooms == set(packages), "a room without __init__.py is not packaged"


def test_every_external_import_is_a_declared_dependency():
    declared = PROJECT["project"]["dependencies"] + PROJECT["project"]["optional-dependencies"]["models"]
    names = {line.split(">")[0].split("=")[0].strip() for line in declared}
    assert set(layering.OWNERS) - {"argparse"} == names


CHANGELOG = "# Changelog\n\n## [Unreleased]\n\n- New thing.\n\n## [1.0.0] - 2020-01-01\n\n- First.\n"


def test_changelog_is_dated_and_gives_the_tag_text():
    text = release.dated_changelog(CHANGELOG, "1.1.0", "2020-02-02")
    assert text.index("## [Unreleased]\n\n## [1.1.0] - 2020-02-02\n\n- New thing.") < text.index("## [1.0.0]")
    assert release.notes_of(text, "1.1.0") == "nnk 1.1.0\n\n- New thing.\n"
    with pytest.raises(ValueError, match="nothing under"):
        release.dated_changelog(text, "1.2.0", "2020-03-03")


def test_version_must_be_three_numbers(capsys):
    assert release.main(["prepare", "1.1"]) == 2
    assert "1.2.3" in capsys.readouterr().err


def test_version_is_the_one_of_the_package():
    assert release.current_version() in (ROOT / "nnk/_version.py").read_text(encoding="utf-8")
