"""Softmax and norms: the contract's bits, one kernel each, clear errors."""

import numpy as np
import pytest

import nnk
from nnk.engines.parity import special_values
from nnk.errors import ShapeError
from tests.oracle import tensors as oracle
from tests.results import bits, steps_of

pytestmark = pytest.mark.usefixtures("quiet_numpy")

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
def test_softmax(axis, a, x):
    assert np.array_equal(bits(nnk.softmax(x, axis)), oracle.bits_of(oracle.softmax(a, axis)))


def test_softmax_rows(cpu):
    y = nnk.softmax(cpu.array([[0.0, -INF], [-INF, -INF], [1e38, -1e38], [NAN, 0.0]])).numpy()
    assert y[0].tolist() == [1.0, 0.0]
    assert y[2].tolist() == [1.0, 0.0]
    assert np.isnan(y[[1, 3]]).all()
    assert nnk.softmax(cpu.array(np.zeros((3, 0), np.float32))).numpy().shape == (3, 0)
    assert nnk.softmax(cpu.array(np.zeros((0, 3), np.float32))).numpy().shape == (0, 3)
    with pytest.raises(ShapeError, match="0-D tensor"):
        nnk.softmax(cpu.array(1.0))
    with pytest.raises(ShapeError, match="for softmax, got 2"):
        nnk.softmax(cpu.array([1.0]), 2)


def test_norms(a, x, cpu):
    w, b = special_values((5,), 3), special_values((5,), 4)
    for parameters in ((), (w,), (w, b)):
        tensors = [cpu.array(parameter) for parameter in parameters]
        want = oracle.bits_of(oracle.layer_norm(a, *parameters))
        assert np.array_equal(bits(nnk.layer_norm(x, *tensors)), want)
        assert np.array_equal(bits(nnk.layer_norm(x, *parameters)), want)
    assert np.array_equal(bits(nnk.layer_norm(x, bias=b)), oracle.bits_of(oracle.layer_norm(a, None, b)))
    assert np.array_equal(bits(nnk.layer_norm(x, eps=0.5)), oracle.bits_of(oracle.layer_norm(a, eps=0.5)))
    assert np.array_equal(bits(nnk.rms_norm(x, w)), oracle.bits_of(oracle.rms_norm(a, w)))
    assert np.array_equal(bits(nnk.rms_norm(x, 2.0, eps=0.1)), oracle.bits_of(oracle.rms_norm(a, np.float32(2), 0.1)))


def test_norm_of_nothing(cpu):
    assert nnk.layer_norm(cpu.array(np.zeros((3, 0), np.float32))).numpy().shape == (3, 0)
    assert nnk.rms_norm(cpu.array(np.zeros((0, 3), np.float32))).numpy().shape == (0, 3)


@pytest.mark.parametrize("wrong", [np.ones((4, 5), np.float32), np.ones(4, np.float32), np.ones((1,), np.float32)])
def test_norm_parameters_are_one_value_a_column(wrong, x, cpu):
    for parameter in (wrong, cpu.array(wrong)):
        for call in (lambda p: nnk.layer_norm(x, p), lambda p: nnk.layer_norm(x, None, p),
                     lambda p: nnk.rms_norm(x, p)):
            with pytest.raises(ShapeError, match=r"Expected shape \(5,\) for weight and bias of \w+_norm, got"):
                call(parameter)


def test_compositions_are_one_kernel_each(x, cpu, rng):
    w = cpu.array(rng.standard_normal((5, 5)).astype(np.float32))
    b = cpu.array(rng.standard_normal(5).astype(np.float32))
    for y in (nnk.softmax(x), nnk.layer_norm(x, b, b), nnk.rms_norm(x, b), nnk.gelu(x @ w + b) + x, x.mean(axis=-1),
              nnk.softmax(x * 0.5 + b), nnk.layer_norm(x + x * b, b, b) * 2.0, x.sum(axis=-1, keepdims=True) / 3.0):
        assert len(steps_of(y)) == 1
