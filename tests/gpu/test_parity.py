"""Vulkan against the CPU engine and the oracle: the same bits for every kernel form, shape and operand layout."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import nnk
from nnk import config
from nnk.cache.store import KernelCache
from nnk.engines.gpu import GpuEngine
from nnk.engines.parity import SUITE, compare, special_values
from nnk.errors import LimitError
from nnk.expr import lines
from nnk.expr.canonical import canonicalise
from nnk.expr.meta import group_count_of, kernel_meta_of, loop_count_of, out_count_of, pack_words
from nnk.generator.compile import compile_kernel
from nnk.generator.version import GENERATOR_VERSION
from tests.expression_strategies import Program, check, programs
from tests.oracle import tensors as oracle
from tests.oracle.evaluate import evaluate
from tests.strategies import Case, runnable_cases

LENGTHS = (1, 2, 31, 32, 33, 255, 256, 257, 16384, 16385, 16640, 40000)

pytestmark = pytest.mark.usefixtures("quiet_numpy")


def same_bits(build: Any, *engines: Any) -> np.ndarray:
    """Return the bits of ``build(engine)``, which all engines must agree on."""
    results = [build(engine).numpy() for engine in engines]
    for result in results[1:]:
        compare(results[0], result)
    return results[0].view(f"u{results[0].itemsize}")


@given(program=programs(max_calls=12))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture],
          max_examples=max(20, settings.default.max_examples * 7 // 10))
def test_programs_give_the_bits_of_the_contract(vulkan: Any, program: Program) -> None:
    with np.errstate(all="ignore"), vulkan.cache.deferred():
        check(program, vulkan)


@given(case=runnable_cases())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture],
          max_examples=max(15, settings.default.max_examples * 3 // 10))
def test_kernels_of_random_specs_give_the_bits_of_the_contract(vulkan: Any, case: Case) -> None:
    """Every view and operand that the emitter knows, those that no tensor makes included."""
    spec = canonicalise(case.spec)
    launch = dataclasses.replace(case.launch, const_bits=spec.const_bits)
    meta = kernel_meta_of(spec)
    kernel = vulkan.device.build_kernel(compile_kernel(spec, "test", 0, vulkan.scheduler.variant), meta)
    inputs = [vulkan.upload(np.ascontiguousarray(array)) for array in case.inputs]
    outputs = [vulkan.allocate(4 * out_count_of(meta, launch)) for _ in range(meta.n_outputs)]
    vulkan.device.dispatch(kernel, inputs, outputs, pack_words(meta, launch), group_count_of(meta, launch))
    with np.errstate(all="ignore"):
        expected = evaluate(spec, launch, case.inputs)
    for output, want in zip(outputs, expected, strict=True):
        got = np.empty(want.shape, np.float32)
        vulkan.download(output, got)
        compare(np.ascontiguousarray(want), got)


def test_every_expression_of_the_parity_command(vulkan: Any, cpu: Any) -> None:
    from nnk.cli.parser import tensor_of
    for text in SUITE:
        x, w = (special_values((33, 33), seed) for seed in (1, 2))
        names = [{"x": engine.array(x), "w": engine.array(w)} for engine in (cpu, vulkan)]
        compare(*(tensor_of(text, values).numpy() for values in names))


# ------------------------------------------------------------------------------------------------- reductions

@pytest.mark.parametrize("length", LENGTHS)
def test_reductions_of_every_length(length: int, vulkan: Any, cpu: Any) -> None:
    for rows in (1, 7, 8, 9):
        x = special_values((rows, length), length + rows)
        x[-1, ::2] = np.float32(-0.0)
        got = same_bits(lambda engine, x=x: engine.array(x).sum(axis=-1), cpu, vulkan)
        assert np.array_equal(got, oracle.bits_of(oracle.sum_of(x, -1)))
        got = same_bits(lambda engine, x=x: engine.array(x).max(axis=-1), cpu, vulkan)
        assert np.array_equal(got, oracle.bits_of(oracle.max_of(x, -1)))
        got = same_bits(lambda engine, x=x: nnk.softmax(engine.array(x)), cpu, vulkan)
        assert np.array_equal(got, oracle.bits_of(oracle.softmax(x)))


def test_finite_rows_of_many_chunks(vulkan: Any, cpu: Any) -> None:
    """Finite values show the order of a sum: chunks of 16384, then a row of their results."""
    for length in (16384 * 3 + 5, 16384 * 100 + 300):
        x = np.random.default_rng(length).standard_normal((2, length)).astype(np.float32)
        got = same_bits(lambda engine, x=x: engine.array(x).sum(axis=-1), cpu, vulkan)
        want = oracle.sum_of(x, -1)
        assert np.isfinite(want).all()
        assert np.array_equal(got, oracle.bits_of(want))


def test_more_chunks_than_lanes(vulkan: Any, cpu: Any) -> None:
    """257 chunks: the row of chunk results is summed by lanes again."""
    x = np.random.default_rng(5).standard_normal((1, 16384 * 257 + 3)).astype(np.float32)
    got = same_bits(lambda engine: engine.array(x).sum(axis=-1), cpu, vulkan)
    assert np.array_equal(got, oracle.bits_of(oracle.sum_of(x, -1)))


@pytest.mark.parametrize("length", [1, 2, 31, 33, 256, 257, 16385])
def test_columns_of_every_length(length: int, vulkan: Any, cpu: Any) -> None:
    for columns in (1, 7, 8, 9):
        x = special_values((length, columns), length + columns)
        for name, build, want in (
                ("sum", lambda t: t.sum(0), oracle.sum_of(x, 0)), ("max", lambda t: t.max(0), oracle.max_of(x, 0)),
                ("softmax", lambda t: nnk.softmax(t, 0), oracle.softmax(x, 0)),
                ("var", lambda t: t.var(0), oracle.var(x, 0))):
            got = same_bits(lambda engine, x=x, build=build: build(engine.array(x)), cpu, vulkan)
            assert np.array_equal(got, oracle.bits_of(want)), (name, columns)


#: What has lines that are longer than one kernel reduces.
LONG_LINES = {
    "rows": ((3, 70001), lambda t: (t * 2).sum(-1)), "columns": ((70001, 3), lambda t: (t * 2).sum(0)),
    "least of columns": ((70001, 3), lambda t: t.min(0)), "any": ((70001, 3), lambda t: (t > 4.5).any(0)),
    "softmax": ((2, 70001), nnk.softmax), "columns less their mean": ((70001, 2), lambda t: t - t.mean(0)),
    "all values": ((300, 401), lambda t: t.sum()), "transposed": ((2, 70001), lambda t: t.T.sum(0)),
}


@pytest.mark.parametrize("name", LONG_LINES)
def test_long_lines_have_the_bits_of_one_kernel(name: str, vulkan: Any, cpu: Any, monkeypatch: Any) -> None:
    shape, build = LONG_LINES[name]
    x = np.random.default_rng(len(name)).standard_normal(shape).astype(np.float32)
    cut = same_bits(lambda engine: build(engine.array(x)), cpu, vulkan)
    monkeypatch.setattr(lines, "LONGEST_LINE", x.size)
    assert np.array_equal(cut, same_bits(lambda engine: build(engine.array(x)), cpu))
    assert len(cpu.schedule([build(cpu.array(x))])[0].steps) < 4


# ------------------------------------------------------------------------------------------------- llvmpipe's loops

def unaligned(engine: Any, rows: int, columns: int, seed: int) -> Any:
    """Return a matrix whose rows start at odd addresses: no quad of it can be loaded whole."""
    values = np.random.default_rng(seed).standard_normal((rows, columns + 1)).astype(np.float32)
    return engine.array(values)[:, 1:]


#: Name -> (expression of length n, launch field that n is, a length near the limit).
LOOPS = {
    "sum": (lambda e, n: unaligned(e, 1, n, 1).sum(-1), "cols"),
    "max": (lambda e, n: unaligned(e, 1, n, 1).max(-1), "cols"),
    "softmax": (lambda e, n: nnk.softmax(unaligned(e, 1, n, 1)), "cols"),
    "column": (lambda e, n: unaligned(e, n, 1, 1).sum(0), "rows"),
    "layer_norm": (lambda e, n: nnk.layer_norm(unaligned(e, 2, n, 1)), "cols"),
}


@pytest.mark.parametrize("name", LOOPS)
def test_longest_loops_of_llvmpipe_are_right_and_longer_ones_refused(name: str, vulkan: Any, cpu: Any,
                                                                     monkeypatch: Any) -> None:
    """llvmpipe cuts loops without an error: the last length that nnk lets through must still be right.

    Long lines are cut into several kernels before they come near; here they are not.
    """
    monkeypatch.setattr(lines, "LONGEST_LINE", 2**32)
    limit = vulkan._loop_limit
    if not limit:
        assert not vulkan.info.driver_name.startswith("llvmpipe")
        return
    build, field = LOOPS[name]
    step = vulkan.schedule([build(vulkan, 64)])[0].steps[-1]

    def bound(n: int) -> int:
        launch = dataclasses.replace(step.launch, **{field: n})
        return loop_count_of(step.meta, launch, min(group_count_of(step.meta, launch), 65535))

    low, high = 64, 4_000_000
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if bound(middle) <= limit else (low, middle)
    same_bits(lambda engine: build(engine, low), cpu, vulkan)
    with pytest.raises(LimitError, match="would cut the loop") as caught:
        build(vulkan, high).eval()
    assert caught.value.maximum == limit < caught.value.requested


@pytest.mark.parametrize("tail", [False, True])
def test_longer_products_run_in_parts_of_k(tail: bool, vulkan: Any, cpu: Any) -> None:
    """The last k that llvmpipe takes in one launch, and beyond: the sums wait in the output between the launches."""
    def build(engine: Any, k: int) -> Any:
        product = unaligned(engine, 67, k, 1) @ unaligned(engine, 70, k, 2).T
        return nnk.tanh(product * 0.01 + engine.array(np.arange(70, dtype=np.float32))) if tail else product

    step = vulkan.schedule([build(vulkan, 64)])[0].steps[-1]
    k = 16
    while vulkan._loop_limit and len(vulkan.launches(dataclasses.replace(step, launch=dataclasses.replace(
            step.launch, mm_k=k + 16)))) == 1:
        k += 16
    for length in (k, k + 16, 2 * k + 5):
        before = vulkan.device.stats()["dispatches"]
        same_bits(lambda engine, length=length: build(engine, length), cpu, vulkan)
        if vulkan._loop_limit:
            assert vulkan.device.stats()["dispatches"] - before == {k: 1, k + 16: 2}.get(length, 3)


def test_parts_of_k_on_any_device(vulkan: Any, cpu: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(vulkan, "_loop_limit", 500)
    for a_shape, b_shape in (((3, 9, 100), (3, 100, 7)), ((65, 333), (333, 130)), ((1, 97), (97, 1))):
        products(special_values(a_shape, 1), special_values(b_shape, 2), cpu, vulkan)


# ------------------------------------------------------------------------------------------------- matmul

def products(a: np.ndarray, b: np.ndarray, *engines: Any, left: Any = lambda t: t, right: Any = lambda t: t) -> None:
    """Compare left(a) @ right(b) on all engines with the oracle."""
    got = same_bits(lambda engine: left(engine.array(a)) @ right(engine.array(b)), *engines)
    assert np.array_equal(got, oracle.bits_of(oracle.matmul(left(a), right(b))))


@pytest.mark.parametrize("m", [1, 7, 8, 9, 63, 64, 65])
def test_matmul_of_every_edge(m: int, vulkan: Any, cpu: Any) -> None:
    for k, n in ((1, 65), (3, 64), (15, 63), (16, 1), (17, 5), (33, 129), (64, 4), (130, 33)):
        products(special_values((m, k), m * k), special_values((k, n), k * n), cpu, vulkan)


LAYOUTS = {
    "plain": ((6, 20, 36), (6, 36, 24), lambda t: t, lambda t: t),
    "a transposed": ((6, 36, 20), (6, 36, 24), lambda t: t.transpose(0, 2, 1), lambda t: t),
    "b transposed": ((6, 20, 36), (6, 24, 36), lambda t: t, lambda t: t.transpose(0, 2, 1)),
    "both transposed": ((6, 36, 20), (6, 24, 36), lambda t: t.transpose(0, 2, 1), lambda t: t.transpose(0, 2, 1)),
    "stack by one matrix": ((6, 20, 36), (36, 24), lambda t: t, lambda t: t),
    "stack of transposed by one matrix": ((6, 36, 20), (36, 24), lambda t: t.transpose(0, 2, 1), lambda t: t),
    "one matrix by stack": ((20, 36), (6, 36, 24), lambda t: t, lambda t: t),
    "transposed matrix by stack": ((36, 20), (6, 24, 36), lambda t: t.T, lambda t: t.transpose(0, 2, 1)),
    "batches broadcast": ((3, 1, 20, 36), (2, 36, 24), lambda t: t, lambda t: t),
    "heads": ((2, 7, 3, 16), (2, 9, 3, 16), lambda t: t.transpose(0, 2, 1, 3), lambda t: t.transpose(0, 2, 3, 1)),
    "reversed": ((20, 36), (36, 24), lambda t: t[::-1, ::-1], lambda t: t[::-1, ::-1]),
    "every second": ((40, 72), (72, 48), lambda t: t[1::2, ::2], lambda t: t[::2, 1::2]),
    "unaligned rows": ((20, 37), (37, 25), lambda t: t[:, 1:], lambda t: t[1:, 1:]),
    "unaligned start": ((21, 36), (40, 24), lambda t: t[1:], lambda t: t[3:39]),
    "unaligned transposed": ((37, 21), (25, 37), lambda t: t[1:, 1:].T, lambda t: t[1:, 1:].T),
    "row by matrix": ((36,), (36, 24), lambda t: t, lambda t: t),
    "matrix by column": ((20, 36), (36,), lambda t: t, lambda t: t),
    "row by column": ((36,), (36,), lambda t: t, lambda t: t),
    "stack by column": ((6, 20, 36), (36,), lambda t: t, lambda t: t),
    "sizes of one": ((1, 1, 1), (1, 1, 1), lambda t: t, lambda t: t),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_matmul_of_every_layout(name: str, vulkan: Any, cpu: Any) -> None:
    a_shape, b_shape, left, right = LAYOUTS[name]
    products(special_values(a_shape, 1), special_values(b_shape, 2), cpu, vulkan, left=left, right=right)
    finite = [np.random.default_rng(n).standard_normal(shape).astype(np.float32)
              for n, shape in enumerate((a_shape, b_shape))]
    products(*finite, cpu, vulkan, left=left, right=right)


def test_matmul_with_a_long_k(vulkan: Any, cpu: Any) -> None:
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((9, 5000)).astype(np.float32), rng.standard_normal((5000, 11)).astype(np.float32)
    products(a, b, cpu, vulkan)


def test_matmul_with_a_tail(vulkan: Any, cpu: Any) -> None:
    """Rows, columns, whole matrices and other batches beside the product, in the same kernel."""
    x, w = special_values((3, 33, 20), 1), special_values((20, 65), 2)
    bias, rows, residual = special_values((65,), 3), special_values((3, 33, 1), 4), special_values((3, 33, 65), 5)
    one = special_values((33, 65), 6)

    def build(engine: Any) -> Any:
        parts = [engine.array(part) for part in (x, w, bias, rows, residual, one)]
        y = nnk.gelu(parts[0] @ parts[1] + parts[2]) * parts[3] + parts[4] + parts[5] * 0.5
        assert len(engine.schedule([y])[0].steps) == 1
        return y

    e = oracle.elementwise
    want = e("gelu", e("add", oracle.matmul(x, w), bias))
    want = e("add", e("add", e("mul", want, rows), residual), e("mul", one, 0.5))
    assert np.array_equal(same_bits(build, cpu, vulkan), oracle.bits_of(want))


# ------------------------------------------------------------------------------------------------- parameters

def test_parameters_in_a_buffer(vulkan: Any, cpu: Any) -> None:
    """More parameter words than push constants hold: the same words are read from a buffer."""
    x = special_values((5, 6, 7), 1)

    def build(engine: Any) -> Any:
        t = engine.array(x)
        y = t.transpose(2, 0, 1)[::-1] * 2.0 + t.transpose(2, 0, 1)[:, ::-1] * 3.0
        y = y + t.transpose(2, 0, 1)[:, :, ::-1] * 0.1 + t.transpose(2, 0, 1) / 7.0
        assert engine.schedule([y])[0].steps[-1].meta.params_in_buffer
        return y

    same_bits(build, cpu, vulkan)


def test_plain_descriptor_sets_give_the_same_bits(vulkan: Any, cpu: Any, cache_dir: Any) -> None:
    """A device without push descriptors runs the same SPIR-V through descriptor sets."""
    with config.override(push_descriptors=False):
        plain = GpuEngine(vulkan.info, KernelCache(cache_dir / "plain.nnk", generator_version=GENERATOR_VERSION))
    try:
        assert not plain.device.push_descriptors
        x, w = special_values((40, 33), 1), special_values((33, 33), 2)
        for build in (lambda e: nnk.gelu(e.array(x) @ e.array(w)) + e.array(x), lambda e: nnk.softmax(e.array(x)),
                      lambda e: e.array(x).T[::-1] * 2.0 + e.array(x)[::-1].T * 3.0 + e.array(x).T[:, ::-1] / 3.0):
            same_bits(build, cpu, vulkan, plain)
    finally:
        plain.close()


def test_many_small_results_of_one_flush(vulkan: Any, cpu: Any) -> None:
    """Thousands of dispatches without a read: command buffers and freed memory come around."""
    def build(engine: Any) -> Any:
        x = engine.array(np.arange(300, dtype=np.float32) / 7)
        for _ in range(1500):
            x = x * 0.5 + 1.0
            x.eval()
        return x
    same_bits(build, cpu, vulkan)
