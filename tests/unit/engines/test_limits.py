"""The record of limits, and that expressions beyond them are cut: inputs, scalars, instructions, depth."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

import nnk
from nnk import ops
from nnk.engines.cpu import CpuEngine
from nnk.engines.limits import CPU_LIMITS, Limits, limits_of
from nnk.engines.parity import special_values
from nnk.errors import LimitError

pytestmark = pytest.mark.usefixtures("quiet_numpy")


def info_with(**limits):
    values = {"minStorageBufferOffsetAlignment": 32, "maxStorageBufferRange": 2**27 + 5,
              "maxPerStageDescriptorStorageBuffers": 32, "maxDescriptorSetStorageBuffers": 64,
              "maxPerStageResources": 128, "maxComputeWorkGroupCount": (65535, 1, 1), **limits}
    return SimpleNamespace(name="device", limits=values, limit=values.__getitem__)


def test_limits_of_a_device():
    assert limits_of(info_with()) == Limits("device", 2**27, 32, 2**32 - 1, 32, 65535)
    assert limits_of(info_with(minStorageBufferOffsetAlignment=4)).alignment == 16
    assert limits_of(info_with(maxPerStageResources=7)).bindings == 7
    assert limits_of(info_with(maxDescriptorSetStorageBuffers=9)).bindings == 9


@pytest.mark.parametrize(("bindings", "inputs"), [(4, 3), (5, 3), (8, 6), (18, 16), (1000, 16)])
def test_inputs_leave_room_for_output_and_parameters(bindings, inputs):
    assert dataclasses.replace(CPU_LIMITS, bindings=bindings).inputs == inputs


def test_longest_k_of_narrow_results():
    assert CPU_LIMITS.longest_k == CPU_LIMITS.buffer_bytes // 4
    assert dataclasses.replace(CPU_LIMITS, sum_k=100).longest_k == 100
    assert dataclasses.replace(CPU_LIMITS, sum_k=100, buffer_bytes=256).longest_k == 64


@pytest.mark.parametrize("bindings", [4, 5, 7, 18])
@pytest.mark.parametrize("count", [5, 16, 17, 33, 64])
def test_many_inputs(count, bindings):
    engine = CpuEngine()
    engine.limits = dataclasses.replace(CPU_LIMITS, bindings=bindings)
    arrays = [special_values((3, 5), seed) for seed in range(count)]
    y, want = engine.array(arrays[0]), arrays[0]
    for n, array in enumerate(arrays[1:]):
        x = engine.array(array)
        y, want = (y + x, want + array) if n % 2 else (nnk.where(x, y, x), np.where(array, want, array))
    steps = engine.schedule([y])[0].steps
    assert len(steps) >= count // engine.limits.inputs
    assert max(len(step.inputs) for step in steps) <= engine.limits.inputs
    assert np.array_equal(y.numpy(), want, equal_nan=True)


def test_a_fold_with_more_buffers_than_a_device_binds_is_refused():
    """Attention with all of its options has seven inputs, and is one kernel whatever the device."""
    engine = CpuEngine()
    shapes = (2, 5, 4), (5, 5), (2,)
    q, mask, slopes = (engine.array(special_values(shape, seed)) for seed, shape in enumerate(shapes))
    y = nnk.attention(q, q * 2.0, q + 1.0, mask, np.arange(5) // 2, slopes)
    engine.limits = dataclasses.replace(CPU_LIMITS, bindings=7)
    with pytest.raises(LimitError, match=r"at most 7 storage buffers .* on CPU, got 8 .* the form fold") as error:
        y.eval()
    assert (error.value.requested, error.value.maximum) == (8, 7)
    engine.limits = dataclasses.replace(CPU_LIMITS, bindings=8)
    assert y.eval().shape == (2, 5, 4)


def test_takes_are_stored_where_a_kernel_has_few_inputs():
    engine = CpuEngine()
    engine.limits = dataclasses.replace(CPU_LIMITS, bindings=4)
    arrays = [special_values((9, 4), seed) for seed in range(3)]
    rows = [[0, 3], [8, 1], [-1, 2]]
    taken = [nnk.take(engine.array(array), index) for array, index in zip(arrays, rows, strict=True)]
    y = nnk.where(*taken)
    assert [len(step.inputs) for step in engine.schedule([y])[0].steps] == [2, 2, 2, 3]
    assert np.array_equal(y.numpy(), np.where(*(a[i] for a, i in zip(arrays, rows, strict=True))), equal_nan=True)


def test_many_scalars_and_instructions(cpu):
    array = special_values((4, 6), 1)
    y, want = cpu.array(array), array
    for n in range(200):
        scalar = np.float32(n / 7)
        y, want = (y * scalar, want * scalar) if n % 3 == 0 else (y - scalar, want - scalar)
    steps = cpu.schedule([y])[0].steps
    assert max(len(step.launch.const_bits) for step in steps) <= ops.LIMITS["consts"]
    assert sum(len(step.spec.instrs) for step in steps) == 200
    assert np.array_equal(y.numpy(), want, equal_nan=True)


def test_one_kernel_for_every_scalar_and_shape(cpu):
    keys = {step.key for n in range(1000) for step in
            cpu.schedule([cpu.array(np.zeros((1 + n % 7, 3), np.float32)) * float(n) - (n + 0.5)])[0].steps}
    # The canonical form drops x * 1: one kernel more.
    assert len(keys) == 2


def test_depth_of_ten_thousand(cpu):
    x = cpu.array(np.float32([1.0, 2.0]))
    y = x
    for _ in range(10_000):
        y = y - 1.0
    assert "lazy" in repr(y)
    assert hash(y) == hash(y)
    assert sum(kernel.runs for kernel in nnk.explain(y).kernels) > 300
    assert y.tolist() == [-9999.0, -9998.0]
    del y


def test_outputs_count_as_bindings():
    engine = CpuEngine()
    arrays = [special_values((3, 5), seed) for seed in range(6)]
    for bindings in (5, 6, 9, 18):
        engine.limits = dataclasses.replace(CPU_LIMITS, bindings=bindings)
        results = [engine.array(arrays[n]) * n + engine.array(arrays[n + 1]) for n in range(5)]
        steps = engine.schedule(results)[0].steps
        assert max(len(step.inputs) + 1 + len(step.more_roots) for step in steps) <= bindings - 1
        engine.evaluate(results)
        for n, result in enumerate(results):
            assert np.array_equal(result.numpy(), arrays[n] * np.float32(n) + arrays[n + 1], equal_nan=True)
