"""The operators as functions."""

import operator

import numpy as np
import pytest

import nnk
from nnk.engines.parity import special_values
from nnk.expr import operators

PAIRS = {"add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "divide": operator.truediv,
         "less": operator.lt, "less_equal": operator.le, "greater": operator.gt, "greater_equal": operator.ge,
         "equal": operator.eq, "not_equal": operator.ne}


@pytest.mark.parametrize("name", PAIRS)
def test_functions_are_the_operators(name, cpu, quiet_numpy):
    assert set(PAIRS) == set(operators.__all__)
    a, b = special_values((4, 5), 1), special_values((5,), 2)
    call, numpys = getattr(nnk, name), getattr(np, name)
    x, y = cpu.array(a), cpu.array(b)
    assert nnk.digest(call(x, y)) == nnk.digest(PAIRS[name](x, y))
    assert np.array_equal(call(x, y).numpy(), numpys(a, b), equal_nan=True)
    assert np.array_equal(call(2.0, y).numpy(), numpys(np.float32(2), b), equal_nan=True)
    assert np.array_equal(call(x, b).numpy(), numpys(a, b), equal_nan=True)
