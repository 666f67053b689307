"""Regions: what is asked for in them is computed at their end, together."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import nnk
from nnk.engines import region
from nnk.engines.cpu import CpuEngine
from nnk.errors import ExprError


@pytest.fixture
def engine() -> CpuEngine:
    """Return an engine that counts from zero."""
    return CpuEngine(threads=1)


@pytest.fixture
def x(engine: CpuEngine) -> nnk.Tensor:
    """Return a leaf."""
    return engine.array([[1.0, 2.0, 3.0]])


def test_evaluations_of_a_region_run_together_at_its_end(engine: CpuEngine, x: nnk.Tensor) -> None:
    with nnk.record() as recorded:
        a = nnk.exp(x).eval()
        b = (a * 2).eval()
        c = (x - 1).eval()
        assert engine.dispatch_count == 0
        assert not a.is_evaluated
        assert [id(tensor) for tensor in recorded.tensors] == [id(a), id(b), id(c)]
    assert engine.dispatch_count == 1
    assert all(tensor.is_evaluated for tensor in (a, b, c))
    assert np.array_equal(c.numpy(), [[0, 1, 2]])
    assert b.numpy().tobytes() == (a * 2).numpy().tobytes()
    assert region.active() is None


def test_without_a_region_each_evaluation_runs(engine: CpuEngine, x: nnk.Tensor) -> None:
    a = nnk.exp(x).eval()
    (a * 2).eval()
    assert engine.dispatch_count == 2


def test_eval_of_several_tensors(engine: CpuEngine, x: nnk.Tensor) -> None:
    a, b, c = x + 1, x * 2, x / 3
    nnk.eval(a, [b, c])
    assert engine.dispatch_count == 1
    nnk.eval()
    nnk.eval([])
    nnk.eval(a)
    assert engine.dispatch_count == 1
    with nnk.record():
        nnk.eval(nnk.sin(x), nnk.cos(x))
        assert engine.dispatch_count == 1
    assert engine.dispatch_count == 2


def test_what_a_region_never_asked_for_stays_lazy(engine: CpuEngine, x: nnk.Tensor) -> None:
    with nnk.record():
        a = x + 1
    assert engine.dispatch_count == 0
    assert not a.is_evaluated


def test_a_region_in_a_region_is_refused(x: nnk.Tensor) -> None:
    with nnk.record():
        with pytest.raises(ExprError, match="Expected no open region"), nnk.record():
            pass
        y = (x + 1).eval()
    assert y.is_evaluated


def test_values_are_read_after_the_region(x: nnk.Tensor) -> None:
    with nnk.record():
        with pytest.raises(ExprError, match="Expected values to be read after the region"):
            (x + 1).numpy()
        assert x.numpy().tolist() == [[1, 2, 3]]


def test_a_region_has_one_engine(x: nnk.Tensor) -> None:
    other = CpuEngine(threads=1).array([1.0])
    with nnk.record():
        (x + 1).eval()
        with pytest.raises(ExprError, match="a region has one engine"):
            (other + 1).eval()
    with pytest.raises(ExprError, match="Expected a tensor of engine"):
        nnk.eval(x + 1, other + 1)


def test_an_error_ends_the_region_and_computes_nothing(engine: CpuEngine, x: nnk.Tensor) -> None:
    y = x + 1
    with pytest.raises(ZeroDivisionError), nnk.record():
        y.eval().engine.array([1 / (y.ndim - 2)])
    assert region.active() is None
    assert engine.dispatch_count == 0
    assert y.tolist() == [[2, 3, 4]]


def test_threads_record_for_themselves(engine: CpuEngine, x: nnk.Tensor) -> None:
    found: list[Any] = []

    def other() -> None:
        found.append(region.active())
        found.append((x + 5).eval().is_evaluated)

    with nnk.record():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert found == [None, True]


@pytest.mark.parametrize(("value", "text"), [
    (3.0, "Expected tensors for nnk.eval, got float"), ([1.0], "got float"), (np.zeros(3), "got ndarray")])
def test_eval_of_something_else(value: Any, text: str) -> None:
    with pytest.raises(ExprError, match=text):
        nnk.eval(value)


def test_eval_of_a_constant() -> None:
    with pytest.raises(ExprError, match="got a bare constant"):
        nnk.eval(nnk.exp(1.0))
