"""The op table: codes of the format, look-ups, view words."""

import pytest

from nnk import ops


@pytest.mark.parametrize(("name", "code", "arity"), [
    ("neg", 0, 1), ("exp", 1, 1), ("tanh", 6, 1), ("add", 7, 2), ("div", 10, 2), ("max", 11, 2), ("ne", 18, 2),
    ("select", 19, 3), ("col_sum", 20, 1), ("row_max", 23, 1), ("erf", 64, 1), ("gelu_tanh", 68, 1), ("sin", 70, 1),
    ("floor", 72, 1), ("rint", 75, 1), ("isfinite", 79, 1), ("exp2", 80, 1), ("expm1", 83, 1)])
def test_codes_never_change(name, code, arity):
    assert ops.OP_BY_NAME[name] is ops.OP_BY_CODE[code]
    assert ops.OP_BY_CODE[code].arity == arity


@pytest.mark.parametrize(("name", "code"), [
    ("linear", 0), ("rotate_half", 1), ("row_broadcast", 7), ("col_broadcast", 8), ("row_gather", 9),
    ("row_access", 12), ("grouped_reduce_max", 14), ("strided", 64), ("take", 65)])
def test_view_codes_never_change(name, code):
    assert ops.VIEW_BY_NAME[name].code == code


def test_format_and_own_codes_do_not_mix():
    for rows, last in ((ops.OPS, 23), (ops.VIEWS, 15)):
        codes = [row.code for row in rows]
        assert codes == sorted(set(codes))
        assert all(code <= last or code >= ops.FIRST_OWN_CODE for code in codes)
    assert [kind.code for kind in ops.OPERANDS] == list(range(11))


def test_kinds_fit_arity_and_axis():
    arity = {"unary": 1, "binary": 2, "compare": 2, "select": 3, "reduce": 1, "cast": 1}
    for op in ops.OPS:
        assert op.arity == arity[op.kind] if op.kind in arity else op.arity in (1, 2)
        assert (op.axis >= 0) == (op.kind == "reduce")
        assert not (op.foldable and op.kind == "reduce")


def test_words_and_key_exclude_each_other():
    # A view's params are either in the key or words of a launch; the strided view has both: rank and geometry.
    for view in ops.VIEWS:
        assert view.keyed == (view.param_words == 0)


@pytest.mark.parametrize(("name", "param", "words"), [
    ("linear", 0, 0), ("row_mod", 5, 1), ("row_access", 5, 2), ("take", 1, 0), ("strided", 3, 7), ("strided", 7, 15)])
def test_view_param_words(name, param, words):
    assert ops.view_param_words(ops.VIEW_BY_NAME[name].code, param) == words


def test_strided_words_are_offset_sizes_strides_and_column():
    for rank in ops.STRIDED_RANKS:
        assert ops.view_param_words(ops.VIEW_BY_NAME["strided"].code, rank) == 1 + (rank - 1) + rank + 1
