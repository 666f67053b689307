"""The public face of the ExprSpec format."""

from __future__ import annotations

import pytest

from nnk import exprspec
from nnk.errors import ExprError, SpecDecodeError
from tests import folds

RELU = exprspec.ExprSpec(1, (exprspec.Instr(11, 0, exprspec.Operand(1, 0), exprspec.Operand(2, 0)),),
                         (exprspec.ViewSpec(0),), const_bits=(0,))
ATTENTION = folds.attention(16, 2, 40, "causal_doc", bias=True)


@pytest.mark.parametrize("spec", [RELU, ATTENTION], ids=["relu", "attention"])
def test_round_trip_gives_the_same_named_tuples(spec):
    again = exprspec.decode(exprspec.encode(spec))
    assert again == spec
    assert type(again) is exprspec.ExprSpec
    assert type(again.views[0]) is exprspec.ViewSpec
    if spec.fold is not None:
        assert type(again.fold) is exprspec.Fold
        assert type(again.fold.matmul) is exprspec.Matmul
        assert type(again.fold.vecacc) is exprspec.VecAcc
        assert {type(instr) for instr in again.fold.body + again.fold.finalize} == {exprspec.Instr}


def test_public_names():
    assert sorted(exprspec.__all__) == exprspec.__all__
    assert all(hasattr(exprspec, name) for name in exprspec.__all__)


def test_validate_accepts_and_refuses():
    exprspec.validate(RELU)
    exprspec.validate(ATTENTION)
    with pytest.raises(ExprError, match="rule 29: expected constant slot below 0, got 0"):
        exprspec.validate(RELU._replace(const_bits=()))


def test_decode_error_tells_where():
    with pytest.raises(SpecDecodeError, match="Expected NNEXP for magic at byte 0") as caught:
        exprspec.decode(b"NOTSPEC")
    assert (caught.value.offset, caught.value.field) == (0, "magic")


def test_key_is_over_the_canonical_form():
    doubled = RELU._replace(num_regs=3, instrs=(
        exprspec.Instr(0, 2, exprspec.Operand(1, 0)), exprspec.Instr(0, 1, exprspec.Operand(0, 2)),
        exprspec.Instr(11, 0, exprspec.Operand(3, 1), exprspec.Operand(2, 0))))
    assert exprspec.canonicalise(doubled) == RELU
    assert exprspec.key(doubled) == exprspec.key(RELU) == "cb3d830f25b84895"


def test_floats_of_the_constants():
    assert RELU._replace(const_bits=(0x3F800000, 0xFF800000)).consts == (1.0, float("-inf"))
    assert RELU._replace(rparam_bits=(0x40000000,)).rparams == (2.0,)
