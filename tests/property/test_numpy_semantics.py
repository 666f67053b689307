"""NumPy's semantics: a generated table of calls, errors of the same kind, and where scalars get their dtype."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import nnk
from nnk.errors import DTypeError, NnkError
from tests import numpy_calls
from tests.numpy_calls import check, table, tensors_of

pytestmark = pytest.mark.usefixtures("quiet_numpy")

GROUPS = ("unary", "binary", "whole", "reduction", "position", "product", "move")


def test_table_is_large() -> None:
    calls = table()
    assert len(calls) >= 2000
    assert len({repr(call) for call in calls}) >= 2000
    assert {call.rule for call in calls} == {"exact", "zeros", "flag", "ulps", "contract", "moved", "passed", "cast"}


@pytest.mark.parametrize("group", GROUPS)
def test_calls_have_the_results_of_numpy(group: str, cpu: Any) -> None:
    for call in getattr(numpy_calls, f"{group}_calls")():
        check(call, call.ours(*tensors_of(call, cpu)).numpy())


# ------------------------------------------------------------------------------------------------- errors

_X = np.arange(12, dtype=np.float32).reshape(3, 4)

#: Text -> (array, nnk's call, NumPy's call), which NumPy refuses.
REFUSED: dict[str, tuple[np.ndarray, Any, Any]] = {}


def _refused(text: str, array: np.ndarray, ours: Any, numpys: Any = None) -> None:
    REFUSED[text] = array, ours, ours if numpys is None else numpys


def _refused_reduction(name: str, array: np.ndarray, axis: Any) -> None:
    _refused(f"{name} {array.shape} {axis}", array, partial(getattr(nnk, name), axis=axis),
             partial(getattr(np, name), axis=axis))


for _name in ("sum", "max", "min", "mean"):
    for _axis in (2, -3, (0, 2), (0, 0), (1, -1), 1.0, "0", (0.5,)):
        _refused_reduction(_name, _X, _axis)
    _refused_reduction(_name, _X[0, 0], 1)
for _name in ("max", "min"):
    for _axis in (1, None, (0, 1)):
        _refused_reduction(_name, np.zeros((3, 0), np.float32), _axis)
for _name in ("argmax", "argmin"):
    for _axis in (2, -3, (0, 1), 1.0, "0"):
        _refused_reduction(_name, _X, _axis)
    for _axis in (1, None):
        _refused_reduction(_name, np.zeros((3, 0), np.float32), _axis)
for _shape in ((3,), (2, 4), (4, 3), (0,), (2, 3, 3)):
    _refused(f"+ {_shape}", _X, lambda t, s=_shape: t + np.zeros(s, np.float32))
for _shape in ((), (3,), (3, 4), (2, 3, 4)):
    _refused(f"@ {_shape}", _X, lambda t, s=_shape: t @ np.zeros(s, np.float32))
for _shape in ((5,), (-1, 5), (-1, -1), (0,), (0, -1), (3.0, 4), ("12",), (13,)):
    _refused(f"reshape {_shape}", _X, lambda t, s=_shape: t.reshape(s))
for _axes in ((0, 0), (0, 2), (0,), (0, 1, 2), (0, 1.0)):
    _refused(f"transpose {_axes}", _X, lambda t, a=_axes: t.transpose(a))
for _shape in ((4,), (3, 3), (-1, 4), ()):
    _refused(f"broadcast_to {_shape}", _X, lambda t, s=_shape: nnk.broadcast_to(t, s),
             lambda t, s=_shape: np.broadcast_to(t, s))
for _index in (3, -4, (0, 4), (0, 0, 0), 1.0, "a", (Ellipsis, Ellipsis), slice(None, None, 0), slice(0.5, 2), [3], [-4],
               [0.5], (0, 0, None, 0)):
    _refused(f"[{_index}]", _X, lambda t, i=_index: t[i])
_refused("reshape nothing", np.zeros((3, 0), np.float32), lambda t: t.reshape(-1, 0))
_refused("swapaxes", _X, lambda t: t.swapaxes(0, 2))
_refused("@ number", _X, lambda t: nnk.matmul(t, 2.0), lambda t: np.matmul(t, 2.0))
_refused("+ None", _X, lambda t: t + None)
_refused("+ text", _X, lambda t: t + "a")
_refused("take of a wrong axis", _X, lambda t: nnk.take(t, [0], 2), lambda t: np.take(t, [0], 2))
_refused("take beyond", _X, lambda t: nnk.take(t, [4], 1), lambda t: np.take(t, [4], 1))
_refused("bool of many", _X, bool)
_refused("bool of nothing", np.zeros((3, 0), np.float32), bool)
_refused("item of many", _X, lambda t: t.item())
_refused("len of a number", np.asarray(_X[0, 0]), len)
_refused("iteration of a number", np.asarray(_X[0, 0]), iter)


@pytest.mark.parametrize("name", REFUSED)
def test_refused_calls_raise_the_kind_of_error_that_numpy_raises(name: str, cpu: Any) -> None:
    array, ours, numpys = REFUSED[name]
    with pytest.raises(Exception) as wanted:  # noqa: PT011 - the kind is what is compared
        numpys(array)
    with pytest.raises(NnkError) as caught:
        ours(cpu.array(array))
    for kind in (IndexError, TypeError, ValueError):
        assert isinstance(caught.value, kind) >= wanted.errisinstance(kind), (wanted.value, caught.value)


# ------------------------------------------------------------------------------------------------- dtypes

@pytest.mark.parametrize("scalar", [2, True, 0.1, 1e300, 10**30, np.float32(2), np.float16(0.1), np.int8(1),
                                    np.bool_(True)])
def test_scalars_take_the_dtype_of_the_tensor(scalar: Any, cpu: Any) -> None:
    array = np.float32([1.0, 2.0])
    for ours, numpys in ((cpu.array(array) + scalar, array + scalar), (scalar * cpu.array(array), scalar * array)):
        assert ours.dtype == numpys.dtype
        assert np.array_equal(ours.numpy(), numpys)


@pytest.mark.parametrize("scalar", [np.float64(0.1), np.int64(3), np.int32(3), np.uint16(3) + np.uint32(0)])
def test_wider_scalars_are_rounded_to_float32_where_numpy_widens(scalar: Any, cpu: Any) -> None:
    """A documented difference: there is no float64 on the device."""
    array = np.float32([1.0, 2.0])
    assert (array + scalar).dtype == np.float64
    got = (cpu.array(array) + scalar).numpy()
    assert got.dtype == np.float32
    assert np.array_equal(got, array + np.float32(scalar))


def test_number_beyond_every_float(cpu: Any) -> None:
    with pytest.raises(OverflowError):
        np.float32([1.0]) + 10**400
    with pytest.raises(DTypeError, match="in the range of a float"):
        cpu.array([1.0]) + 10**400


def test_assignment_operators_make_a_new_tensor(cpu: Any) -> None:
    """A documented difference: NumPy writes into the array."""
    x = cpu.array([1.0, 2.0])
    before = x
    x += 1.0
    x *= 2.0
    assert (before.tolist(), x.tolist()) == ([1.0, 2.0], [4.0, 6.0])


def test_one_element_with_axes_is_a_number(cpu: Any) -> None:
    """A documented difference: NumPy converts 0-D arrays alone."""
    assert (float(cpu.array([[2.5]])), int(cpu.array([2.0]))) == (2.5, 2)
    with pytest.raises(TypeError):
        float(np.float32([[2.5]]))
