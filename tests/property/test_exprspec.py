"""ExprSpec bytes, rules and keys over random specs and random bytes: round trips, and agreement with the oracle."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from nnk import exprspec
from nnk._fast import exprspec as fast
from nnk.errors import ExprError, SpecDecodeError
from nnk.expr.spec_rules import validate
from tests import strategies
from tests.oracle import exprspec as oracle
from tests.oracle import specrules

HEAD = b"NNEXP\x0a\x01\x00\x00\x00"


@given(strategies.specs())
def test_round_trip_is_bit_exact(spec):
    data = fast.encode(spec)
    assert data == oracle.encode(spec)
    assert fast.decode(data) == spec == oracle.decode(data)
    assert exprspec.decode(exprspec.encode(spec)) == spec


@given(strategies.specs())
def test_public_decode_gives_the_named_tuples(spec):
    decoded = exprspec.decode(memoryview(bytearray(exprspec.encode(spec))))
    assert type(decoded) is exprspec.ExprSpec
    assert decoded.views == spec.views
    assert all(type(view) is exprspec.ViewSpec for view in decoded.views)
    assert all(type(instr) is exprspec.Instr and type(instr.a) is exprspec.Operand for instr in decoded.instrs)
    assert decoded.fold is None or all(type(instr) is exprspec.Instr for instr in decoded.fold.body)


def outcome(decode: Any, data: bytes) -> Any:
    try:
        return decode(data)
    except SpecDecodeError as error:
        return type(error), error.offset


def check_any_bytes(data: bytes) -> None:
    found = outcome(fast.decode, data)
    assert found == outcome(oracle.decode, data)
    if len(found) == 8:
        assert fast.encode(found) == data == oracle.encode(found)
    else:
        assert found[0] is SpecDecodeError
        assert 0 <= found[1] <= len(data)


@given(st.binary(max_size=80) | st.binary(max_size=80).map(HEAD.__add__))
def test_any_bytes_decode_or_raise(data):
    check_any_bytes(data)


@st.composite
def mutations(draw):
    """A valid payload after a few changes: single bytes, whole words, cuts, insertions, doubled parts."""
    data = bytearray(oracle.encode(draw(strategies.specs())))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        change = draw(st.sampled_from(("byte", "word", "cut", "insert", "repeat", "remove")))
        if change == "byte" and at < len(data):
            data[at] = draw(st.sampled_from((0, 1, 2, 15, 16, 24, 63, 64, 66, 70, 255)) | st.integers(0, 255))
        elif change == "word":
            data[at:at + 4] = draw(st.sampled_from((0, 1, 17, 65, 2**31, 2**32 - 1))).to_bytes(4, "little")
        elif change == "cut":
            del data[at:]
        elif change == "insert":
            data[at:at] = draw(st.binary(min_size=1, max_size=9))
        elif change == "repeat":
            data[at:at] = data[at:at + draw(st.integers(1, 20))]
        else:
            del data[at:at + draw(st.integers(1, 9))]
    return bytes(data)


@given(mutations())
def test_damaged_payloads_decode_or_raise(data):
    check_any_bytes(data)


@given(strategies.specs(), st.data())
def test_every_truncation_is_refused_at_the_first_missing_field(spec, data):
    payload = oracle.encode(spec)
    cut = payload[:data.draw(st.integers(0, len(payload) - 1))]
    found = outcome(fast.decode, cut)
    assert found == outcome(oracle.decode, cut)
    # A field is at most four bytes long (the magic five).
    assert found[0] is SpecDecodeError
    assert len(cut) - 4 <= found[1] <= len(cut)


@given(strategies.specs(), st.binary(min_size=1, max_size=5))
def test_trailing_bytes_are_refused_where_they_start(spec, tail):
    payload = oracle.encode(spec)
    assert outcome(fast.decode, payload + tail) == (SpecDecodeError, len(payload))


@given(strategies.specs())
def test_key_agrees_with_the_oracle(spec):
    assert fast.spec_key(spec) == oracle.raw_key(spec)
    assert exprspec.key(spec) == oracle.key(spec)


@given(mutations())
def test_key_of_any_decodable_spec_agrees(data):
    found = outcome(oracle.decode, data)
    if len(found) == 8:
        assert fast.spec_key(found) == oracle.raw_key(found)


# ------------------------------------------------------------------------------------------------------------ rules

def rule_of(check: Any, spec: Any) -> int | None:
    """The number of the rule that a spec breaks; 0 for a number of no table, None for a valid spec."""
    try:
        check(spec)
    except ExprError as error:
        number = re.search(r"\brule (\d+)", str(error))
        return int(number[1]) if number else 0
    return None


@given(strategies.specs())
def test_strategies_and_validators_agree_on_validity(spec):
    assert rule_of(specrules.validate, spec) is None
    assert rule_of(validate, spec) is None


@given(mutations())
def test_rules_agree_on_damaged_specs(data):
    found = outcome(oracle.decode, data)
    if len(found) == 8:
        assert rule_of(validate, strategies.as_spec(found)) == rule_of(specrules.validate, found)


@st.composite
def broken_specs(draw):
    """A valid spec with one part replaced by a part of another, or grown past its limit."""
    spec, other = draw(strategies.specs()), draw(strategies.specs())
    field = draw(st.sampled_from(spec._fields))
    if draw(st.booleans()):
        return spec._replace(**{field: getattr(other, field)})
    grown = {"num_regs": 33, "instrs": spec.instrs * 65, "views": spec.views * 17, "const_bits": (0,) * 17,
             "rparam_bits": (0,) * 17, "extras": (0,) * 33}
    return spec._replace(**{field: grown.get(field)})


@given(broken_specs())
def test_rules_agree_on_mixed_specs(spec):
    assert rule_of(validate, spec) == rule_of(specrules.validate, spec)


@st.composite
def broken_folds(draw):
    """A valid fold with one field replaced by another fold's, or by a small number."""
    spec, other = draw(strategies.fold_specs()), draw(strategies.fold_specs())
    field = draw(st.sampled_from(spec.fold._fields))
    value = getattr(other.fold, field)
    if isinstance(value, int) and draw(st.booleans()):
        value = draw(st.integers(0, 9) | st.sampled_from((1024, 1025)))
    return spec._replace(fold=spec.fold._replace(**{field: value}))


@given(broken_folds())
def test_rules_agree_on_mixed_folds(spec):
    assert rule_of(validate, spec) == rule_of(specrules.validate, spec)
