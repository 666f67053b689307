"""Keys: the published ones, what changes them and what does not, and the parts that make up a kernel key."""

from __future__ import annotations

import json

import pytest

from nnk import config, exprspec
from nnk._fast import exprspec as fast
from nnk.cache.entry import KEY
from nnk.expr import meta
from nnk.expr.key import (
    explain_key,
    kernel_identity,
    kernel_key,
    key_parts,
    native16,
    precision_suffix,
    spec_key,
)
from nnk.expr.spec import ExprSpec, Instr, Matmul, Operand, ViewSpec, bits_of
from nnk.generator.glsl import emit
from nnk.numerics import FAST_VARIANT, VARIANTS
from tests import ROOT, folds
from tests.commands import python
from tests.oracle import exprspec as oracle
from tests.oracle import specrules


def _tuples(part):
    return tuple(map(_tuples, part)) if isinstance(part, list) else part


def _published():
    rows = json.loads((ROOT / "tests/golden/exprspec/keys.json").read_text(encoding="utf-8"))["keys"]
    for row in rows:
        instrs = tuple(Instr(op, dst, *(Operand(*operand) for operand in operands))
                       for op, dst, *operands in _tuples(row["instrs"]))
        matmul = row.get("matmul")
        yield row["name"], row["key"], ExprSpec(
            row["num_regs"], instrs, tuple(ViewSpec(*view) for view in row["views"]),
            tuple(map(bits_of, row["consts"])), (), matmul and Matmul(matmul["a_input"], matmul["b_input"]))


PUBLISHED = [
    *_published(),
    ("attention plain", "27c7edd7a0a4f808", folds.attention(64, 8, 256)),
    ("attention causal", "66b03ef936bb97c7", folds.attention(64, 8, 256, "causal")),
    ("attention causal bias", "42c00eeeb388f264", folds.attention(64, 8, 256, "causal", bias=True)),
    ("attention plain bias", "0e83f3132ad08661", folds.attention(64, 8, 256, bias=True)),
    ("fold row_max", "cb6c11c1e9ca9f3b", folds.row_max(100)),
]


@pytest.mark.parametrize(("name", "key", "spec"), PUBLISHED, ids=[row[0] for row in PUBLISHED])
def test_published_key(name, key, spec):
    exprspec.validate(spec)
    assert exprspec.canonicalise(spec) == spec
    assert exprspec.key(spec) == spec_key(spec) == oracle.key(spec) == key


def test_published_list_is_whole():
    assert {"relu", "matmul", "linear", "x*y+3"} < {name for name, _key, _spec in PUBLISHED}


def test_bytes_that_relu_feeds():
    relu = PUBLISHED[0][2]
    assert oracle.key_bytes(relu).hex() == ("01000000" "01000000" "0b00010002000000" "01000000" "0000"
                                            "00000000" "00000000" "01000000" "00000000")


@pytest.mark.parametrize(("mask", "bias", "registers", "body"), [
    ("plain", False, 12, 11), ("causal", False, 15, 14), ("causal", True, 18, 17), ("plain", True, 15, 14)])
def test_attention_folds_have_the_published_size(mask, bias, registers, body):
    spec = folds.attention(64, 8, 256, mask, bias)
    assert (spec.num_regs, len(spec.fold.body)) == (registers, body)


def test_six_attention_folds_have_six_keys():
    keys = {exprspec.key(folds.attention(64, 8, 256, mask, bias))
            for mask in ("plain", "causal", "causal_doc") for bias in (False, True)}
    assert len(keys) == 6


def test_sizes_are_not_part_of_an_attention_key():
    assert exprspec.key(folds.attention(64, 8, 256)) == exprspec.key(folds.attention(32, 2, 1000))


IN0, IN1, C0, P0 = Operand(1, 0), Operand(1, 1), Operand(2, 0), Operand(9, 0)
BASE = ExprSpec(3, (Instr(9, 0, IN0, C0), Instr(7, 1, Operand(0, 0), P0), Instr(7, 2, Operand(0, 1), Operand(5, 0))),
                (ViewSpec(0), ViewSpec(2, 0, 5)), (7,), (8,), Matmul(0, 1))

SAME_KEY = {
    "constant value": BASE._replace(const_bits=(9,)),
    "run-time parameter value": BASE._replace(rparam_bits=(9,)),
    "matmul transposes": BASE._replace(matmul=Matmul(0, 1, 1, 1)),
    "matmul sizes": BASE._replace(matmul=Matmul(0, 1, 0, 0, 99, 12)),
    "run-time view params": BASE._replace(views=(ViewSpec(0), ViewSpec(2, 0, 6, 1))),
}
OTHER_KEY = {
    "registers": BASE._replace(num_regs=4),
    "op": BASE._replace(instrs=(Instr(8, 0, IN0, C0), *BASE.instrs[1:])),
    "operand": BASE._replace(instrs=(Instr(9, 0, IN1, C0), *BASE.instrs[1:])),
    "order of operands": BASE._replace(instrs=(Instr(9, 0, C0, IN0), *BASE.instrs[1:])),
    "view": BASE._replace(views=(ViewSpec(7), ViewSpec(2, 0, 5))),
    "negate": BASE._replace(views=(ViewSpec(0), ViewSpec(2, 1, 5))),
    "keyed view param": BASE._replace(views=(ViewSpec(0, 0, 1), ViewSpec(2, 0, 5))),
    "keyed view param2": BASE._replace(views=(ViewSpec(0, 0, 0, 1), ViewSpec(2, 0, 5))),
    "number of constants": BASE._replace(const_bits=(7, 7)),
    "number of run-time parameters": BASE._replace(rparam_bits=()),
    "matmul inputs": BASE._replace(matmul=Matmul(1, 0)),
    "no matmul": BASE._replace(matmul=None),
    "extras": BASE._replace(extras=(0,)),
}


@pytest.mark.parametrize("spec", SAME_KEY.values(), ids=SAME_KEY)
def test_run_time_side_is_not_part_of_the_key(spec):
    assert spec != BASE
    assert fast.spec_key(spec) == fast.spec_key(BASE)


def test_structure_is_part_of_the_key():
    keys = [fast.spec_key(spec) for spec in (BASE, *OTHER_KEY.values())]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("kind", specrules.VIEW_KINDS)
def test_params_of_run_time_views_only_are_left_out(kind):
    one, other = (BASE._replace(views=(ViewSpec(0), ViewSpec(kind, 0, param, param))) for param in (2, 4))
    assert (fast.spec_key(one) == fast.spec_key(other)) == (kind in specrules.RUNTIME_VIEWS)


FOLD = folds.attention(64, 8, 256)


@pytest.mark.parametrize("parts", [
    {"init_bits": (0, 0)}, {"tri_skip": 1}, {"matmul": FOLD.fold.matmul._replace(trans_b=1)},
    {"matmul": FOLD.fold.matmul._replace(a_input=1)}, {"vecacc": FOLD.fold.vecacc._replace(has_scale=0)},
    {"finalize": FOLD.fold.finalize * 2}, {"body": FOLD.fold.body[:-1]}], ids=lambda parts: next(iter(parts)))
def test_structure_of_a_fold_is_part_of_the_key(parts):
    assert exprspec.key(FOLD._replace(fold=FOLD.fold._replace(**parts))) != exprspec.key(FOLD)


@pytest.mark.parametrize("parts", [
    {"k": 3}, {"vec_state_len": 3}, {"matmul": FOLD.fold.matmul._replace(k=3, batch=3)}],
    ids=lambda parts: next(iter(parts)))
def test_sizes_of_a_fold_are_not_part_of_the_key(parts):
    assert exprspec.key(FOLD._replace(fold=FOLD.fold._replace(**parts))) == exprspec.key(FOLD)


def test_kernel_key_names_version_structure_and_precision():
    assert kernel_key("366917b6a3da7f00", 0x00020000, 3) == "v3.366917b6a3da7f00#x"
    assert kernel_key("366917b6a3da7f00", 0, 12) == "v12.366917b6a3da7f00"
    assert precision_suffix(0x00010001) == "#a"


def test_kernel_key_names_the_variant():
    assert kernel_key("366917b6a3da7f00", 0, 3, "t2") == "v3.366917b6a3da7f00#t2"
    assert kernel_key("366917b6a3da7f00", 0x00020000, 3, "t3") == "v3.366917b6a3da7f00#xt3"
    assert kernel_key("366917b6a3da7f00", 0, 3, "") == kernel_key("366917b6a3da7f00", 0, 3)


def test_explanation_tells_which_part_differs():
    before = dict(explain_key(BASE, 0, 1))
    after = dict(explain_key(BASE._replace(views=(ViewSpec(7), ViewSpec(2, 0, 5))), 0, 1))
    assert {name for name in before if before[name] != after[name]} == {"views"}
    assert dict(explain_key(BASE, 0, 2))["generator_version"] != before["generator_version"]
    other = dict(explain_key(BASE, 0, 1, "t2"))
    assert {name for name in before if before[name] != other[name]} == {"variant"}


def test_parts_are_the_hashes_of_the_explanation():
    assert key_parts(BASE, 0, 1).hex() == "".join(digest for _, digest in explain_key(BASE, 0, 1))


@pytest.mark.parametrize("spec", SAME_KEY.values(), ids=SAME_KEY)
def test_explanation_of_one_key_is_one_explanation(spec):
    assert explain_key(spec, 0, 1) == explain_key(BASE, 0, 1)


def test_explanation_of_a_fold_leaves_sizes_out():
    other = folds.attention(32, 2, 1000)
    assert explain_key(other, 0, 1) == explain_key(FOLD, 0, 1)
    assert explain_key(folds.attention(64, 8, 256, "causal"), 0, 1) != explain_key(FOLD, 0, 1)


# ---- identity: everything that makes a kernel, and nothing else -----------------------------------------------------

_SPEC = ExprSpec(2, (Instr(9, 0, Operand(1, 0), Operand(1, 1)), Instr(7, 1, Operand(0, 0), Operand(2, 0))),
                 (ViewSpec(0), ViewSpec(2, 0, 5)), (0x40400000,), ())


def test_values_and_shapes_are_no_part_of_the_identity():
    other = _SPEC._replace(const_bits=(0x3F800000,), views=(ViewSpec(0), ViewSpec(2, 0, 9)))
    assert kernel_identity(other, 0, 1) == kernel_identity(_SPEC, 0, 1)
    assert len(kernel_identity(_SPEC, 0, 1)) == 16


@pytest.mark.parametrize("changed", [
    (_SPEC._replace(num_regs=3), 0, 1), (_SPEC._replace(views=(ViewSpec(0), ViewSpec(0))), 0, 1), (_SPEC, 1, 1),
    (_SPEC, 0, 2)])
def test_structure_precision_and_generator_are(changed):
    assert kernel_identity(*changed) != kernel_identity(_SPEC, 0, 1)


def test_identity_is_the_same_in_every_process():
    code = ("from nnk.expr.key import kernel_identity; from nnk.expr.spec import ExprSpec, Instr, Operand, ViewSpec; "
            "print(kernel_identity(ExprSpec(1, (Instr(9, 0, Operand(1, 0), Operand(1, 0)),), (ViewSpec(0),), (), ()), "
            "0, 1).hex())")
    found = {python(code, PYTHONHASHSEED=seed).stdout for seed in ("0", "1", "12345")}
    assert len(found) == 1
    assert len(found.pop()) == 33


def test_every_variant_has_its_identity():
    variants = {*VARIANTS.values(), FAST_VARIANT}
    assert len({kernel_identity(_SPEC, 0, 1, variant) for variant in variants}) == len(variants)
    assert len({kernel_key("0" * 16, 0, 1, variant) for variant in variants}) == len(variants)
    assert kernel_identity(_SPEC, 0, 1, "") == kernel_identity(_SPEC, 0, 1)


def test_workgroup_sizes_are(monkeypatch):
    before = kernel_identity(_SPEC, 0, 1)
    monkeypatch.setitem(meta.LOCAL_SIZES, "matmul", 128)
    assert kernel_identity(_SPEC, 0, 1) != before


#: Settings that do not take any text.
OTHER_VALUES = {"tier": "T3", "numerics": "fast"}


@pytest.mark.parametrize("name", sorted(config.SETTINGS))
def test_a_setting_changes_the_identity_exactly_when_it_changes_code(name):
    """And a setting that says that it changes no code leaves the emitted text as it is."""
    setting = config.SETTINGS[name]
    other = OTHER_VALUES.get(name, {bool: not setting.default, int: 7, float: 0.5, str: "7"}[type(setting.default)])

    def made():
        fast = config.get("numerics") == "fast"
        variant = FAST_VARIANT if fast else VARIANTS.get(config.get("tier"), "")
        return kernel_identity(_SPEC, 0, 1, variant), emit(_SPEC, 0, variant)
    before = made()
    with config.override(**{name: other}):
        after = made()
    assert (before[0] != after[0]) == setting.changes_code
    assert (before[1] != after[1]) <= setting.changes_code


# ---- how slots are stored -------------------------------------------------------------------------------------------

def test_suffix_has_the_letters_of_slots_that_are_not_plain():
    sign = meta.DISPATCH_SIGNATURE
    assert kernel_key("0123456789abcdef", 0, 1, slots="wbf") == "v1.0123456789abcdef#swbf"
    assert kernel_key("0123456789abcdef", sign, 1, "t3", "wbf") == "v1.0123456789abcdef#xt3swbf"
    long = kernel_key("0123456789abcdef", sign, 1, "t3", "w" * 16 + "u")
    assert KEY.fullmatch(long)
    assert long != kernel_key("0123456789abcdef", sign, 1, "t3", "w" * 16 + "b")


def test_letters_of_slots_are_part_of_the_identity():
    assert len({kernel_identity(_SPEC, 0, 1, slots=slots) for slots in ("", "wwi", "wbf", "wuf")}) == 4


_HALVES = 0x10003


@pytest.mark.parametrize(("spec", "prec_sig", "want"), [
    (_SPEC, _HALVES, True), (_SPEC, 0, False), (_SPEC, 0x10001, False), (_SPEC, 0x3, False),
    (_SPEC._replace(rparam_bits=(0,)), _HALVES, False), (_SPEC._replace(matmul=Matmul(0, 1)), _HALVES, False),
    (_SPEC._replace(const_bits=(bits_of(5.8e-8),)), _HALVES, False),
    (_SPEC._replace(const_bits=(bits_of(-5.8e-8),)), _HALVES, False),
    (_SPEC._replace(const_bits=(bits_of(6e-8),)), _HALVES, True), (_SPEC._replace(const_bits=(0,)), _HALVES, True),
    (_SPEC._replace(const_bits=(0x7F800000,)), _HALVES, True),
    (_SPEC._replace(instrs=(_SPEC.instrs[0], Instr(7, 1, Operand(0, 0), Operand(7, 0)))), _HALVES, False),
    (_SPEC._replace(views=(ViewSpec(5), ViewSpec(0))), _HALVES, False),
    (_SPEC._replace(instrs=(*_SPEC.instrs, Instr(22, 2, Operand(0, 1)))), _HALVES, False),
    (FOLD, 0x10007, False)])
def test_native_float16(spec, prec_sig, want):
    assert native16(spec, prec_sig) == want
