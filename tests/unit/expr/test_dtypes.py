"""The dtype table: names, letters of slots, the words that say which slots are halves."""

import ml_dtypes
import numpy as np
import pytest

from nnk.errors import DTypeError
from nnk.expr import dtypes
from nnk.expr.dtypes import BOOL, FLOAT16, FLOAT32, INT32, UINT8

BF16 = np.dtype(ml_dtypes.bfloat16)


@pytest.mark.parametrize(("given", "want"), [
    ("float32", FLOAT32), (np.float32, FLOAT32), (FLOAT16, FLOAT16), ("float16", FLOAT16), ("bfloat16", BF16),
    (BF16, BF16), (ml_dtypes.bfloat16, BF16), (np.int32, INT32), ("uint8", UINT8), (bool, BOOL), ("bool", BOOL),
    (float, FLOAT32), (int, INT32), (np.dtype(">f4"), FLOAT32)])
def test_names_of_dtypes(given, want):
    assert dtypes.dtype_of(given, "test") == want


@pytest.mark.parametrize("given", ["float64", np.int64, "complex64", "nonsense", object(), "int8", str])
def test_other_dtypes_are_refused(given):
    with pytest.raises(DTypeError, match=r"Expected float32, .*uint8 or bool for the dtype of test, got"):
        dtypes.dtype_of(given, "test")


def test_table_is_consistent():
    for name, row in dtypes.DTYPES.items():
        assert row.name == name == dtypes.dtype_of(name, "test").name
        assert row.word in ("float", "int", "bool")
        assert row.load in "wub"
        assert row.store in "fiub"


def test_letters_are_left_out_where_all_is_plain():
    assert dtypes.slot_letters([FLOAT32, FLOAT16, BF16, INT32], [FLOAT32]) == ""
    assert dtypes.slot_letters([FLOAT32, BOOL], [FLOAT16]) == "wbf"
    assert dtypes.slot_letters([UINT8], [UINT8, INT32]) == "uui"
    assert dtypes.slot_letters([], [BOOL]) == "b"


def test_half_words():
    assert dtypes.half_words([FLOAT32, INT32, UINT8], FLOAT32) == (0, 0)
    assert dtypes.half_words([FLOAT16, FLOAT32, BF16], FLOAT16) == (0x10001, 0b100)
    assert dtypes.half_words([], BF16) == (0, 0x10000)
    assert [dtypes.is_half(dtype) for dtype in (FLOAT16, BF16, FLOAT32, BOOL)] == [True, True, False, False]
