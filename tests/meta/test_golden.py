"""The golden numerics files: current, complete, and not to be changed without a new contract version."""

import importlib.util
import json
import shutil

import pytest

from nnk import numerics, ops
from tests import ROOT


@pytest.fixture(scope="module")
def golden():
    spec = importlib.util.spec_from_file_location("golden", ROOT / "scripts/golden.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def folder(tmp_path):
    shutil.copytree(ROOT / "tests/golden/numerics", tmp_path / "numerics")
    return tmp_path / "numerics"


def edited(path, change):
    document = json.loads(path.read_text(encoding="utf-8"))
    change(document)
    path.write_text(json.dumps(document), encoding="utf-8")


def test_files_are_current(golden, capsys):
    assert golden.main(["--check"]) == 0
    assert "are current" in capsys.readouterr().out


def test_every_op_has_its_file():
    names = {path.stem for path in (ROOT / "tests/golden/numerics").glob("*.json")}
    assert names == {op.name for op in ops.OPS} | {"matmul"}


def test_changed_output_is_refused_and_nothing_is_written(golden, folder, capsys):
    edited(folder / "exp.json", lambda document: document["cases"][5].update(out=["00000000"]))
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert golden.main(["--folder", str(folder)]) == 1
    assert "exp.json: 1 outputs changed under contract version" in capsys.readouterr().out
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_new_contract_version_may_change_outputs(golden, folder):
    def older(document):
        document["contract_version"] = numerics.CONTRACT_VERSION - 1
        document["cases"][5].update(out=["00000000"])

    edited(folder / "exp.json", older)
    assert golden.main(["--folder", str(folder)]) == 0
    assert golden.main(["--check", "--folder", str(folder)]) == 0


@pytest.mark.parametrize("damage", [
    lambda path: path.unlink(), lambda path: path.write_text(path.read_text(encoding="utf-8") + " ", encoding="utf-8")])
def test_check_finds_missing_and_stale_files(golden, folder, capsys, damage):
    damage(folder / "log.json")
    assert golden.main(["--check", "--folder", str(folder)]) == 1
    assert "log.json" in capsys.readouterr().out
    assert golden.main(["--folder", str(folder)]) == 0
    assert golden.main(["--check", "--folder", str(folder)]) == 0
