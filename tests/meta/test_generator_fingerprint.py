"""Emitted code and GENERATOR_VERSION move together, or a cache serves stale kernels under a new meaning."""

import json

import golden_glsl
import pytest

from nnk import ops
from nnk.generator.version import GENERATOR_VERSION
from tests import ROOT

FOLDER = ROOT / "tests/golden/glsl"


@pytest.fixture(scope="module")
def files():
    return golden_glsl.texts()


def test_golden_kernels_are_current(files):
    assert golden_glsl.verdict(FOLDER, files, GENERATOR_VERSION, golden_glsl.spirv_fingerprint(files)) == ""
    assert golden_glsl.differences(FOLDER, files) == []


def test_emission_is_deterministic(files):
    assert golden_glsl.texts() == files


def test_set_covers_every_form_and_function(files):
    code = "\n".join(files.values())
    for function in ("nn_exp", "nn_log", "nn_sqrt", "nn_rsqrt", "nn_tanh", "nn_sigmoid", "nn_erf", "nn_silu",
                     "nn_gelu", "nn_gelu_tanh", "nn_div", "nn_max", "nn_min"):
        assert f"{function}(" in code, function
    schedules = [(make(), name) for name, make in golden_glsl.expressions().items()]
    steps = [step for tensor, _ in schedules for step in tensor.engine.schedule([tensor])[0].steps]
    assert {step.meta.form for step in steps} == {"elementwise", "reduce", "matmul", "fold_matmul"}
    views = {ops.VIEW_BY_CODE[view.kind].name for step in steps for view in step.spec.views}
    assert {"linear", "row_broadcast", "col_broadcast", "strided", "take"} <= views
    assert {view.param for step in steps for view in step.spec.views
            if ops.VIEW_BY_CODE[view.kind].name == "strided"} == set(ops.STRIDED_RANKS)


@pytest.fixture
def stored(tmp_path):
    golden_glsl.write(tmp_path, {"a.comp": "old\n", "b.comp": "same\n"}, 7, ("0x1", "hash"))
    return tmp_path


def test_changed_text_needs_a_new_version(stored):
    changed = {"a.comp": "new\n", "b.comp": "same\n"}
    assert "GENERATOR_VERSION is still 7" in golden_glsl.verdict(stored, changed, 7)
    assert golden_glsl.verdict(stored, changed, 8) == ""
    assert golden_glsl.differences(stored, changed) == ["a.comp: the text changed"]


def test_changed_spirv_needs_a_new_version(stored):
    same = {"a.comp": "old\n", "b.comp": "same\n"}
    assert golden_glsl.verdict(stored, same, 7, ("0x1", "hash")) == ""
    assert "SPIR-V of compiler 0x1 changed" in golden_glsl.verdict(stored, same, 7, ("0x1", "other"))
    assert golden_glsl.verdict(stored, same, 7, ("0x2", "other")) == ""
    assert golden_glsl.verdict(stored, same, 8, ("0x1", "other")) == ""


def test_hashes_of_other_compilers_stay_with_the_version(stored):
    def known():
        return json.loads((stored / "fingerprint.json").read_text(encoding="utf-8"))["spirv"]

    same = {"a.comp": "old\n", "b.comp": "same\n"}
    golden_glsl.write(stored, same, 7, ("0x2", "other"))
    assert known() == {"0x1": "hash", "0x2": "other"}
    golden_glsl.write(stored, same, 8, ("0x2", "new"))
    assert known() == {"0x2": "new"}


def test_spirv_hash_sees_the_passes(files, monkeypatch):
    before = golden_glsl.spirv_fingerprint(files)
    monkeypatch.setattr(golden_glsl.spirv, "decorate_no_contraction", lambda module: module)
    after = golden_glsl.spirv_fingerprint(files)
    assert before[0] == after[0]
    assert before[1] != after[1]


def test_version_never_goes_back(stored):
    assert "went back from 7 to 6" in golden_glsl.verdict(stored, {"a.comp": "old\n", "b.comp": "same\n"}, 6)


def test_missing_and_left_over_files_are_found(stored):
    assert golden_glsl.differences(stored, {"b.comp": "same\n", "c.comp": "new\n"}) == [
        "c.comp: not in the folder", "a.comp: nothing emits it"]


def test_main_refuses_then_writes(stored, monkeypatch, capsys):
    monkeypatch.setattr(golden_glsl, "texts", lambda: {"a.comp": "new\n"})
    monkeypatch.setattr(golden_glsl, "spirv_fingerprint", lambda files: ("0x1", "hash"))
    monkeypatch.setattr(golden_glsl, "GENERATOR_VERSION", 7)
    assert golden_glsl.main(["--folder", str(stored)]) == 1
    assert "a.comp: the text changed" in capsys.readouterr().out
    assert (stored / "a.comp").read_text(encoding="utf-8") == "old\n"
    monkeypatch.setattr(golden_glsl, "GENERATOR_VERSION", 8)
    assert golden_glsl.main(["--folder", str(stored), "--check"]) == 1
    assert golden_glsl.main(["--folder", str(stored)]) == 0
    assert json.loads((stored / "fingerprint.json").read_text(encoding="utf-8"))["generator_version"] == 8
    assert not (stored / "b.comp").exists()
    assert golden_glsl.main(["--folder", str(stored), "--check"]) == 0
