"""Kernels that share a launch: which do, what is stored, and that bits and limits stay."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnk
from nnk import ops
from nnk.expr.fuse import MAX_MEMBERS, PlannedKernel, partition
from nnk.expr.merge import MAX_KERNELS, merge
from nnk.expr.node import Tensor
from tests.expression_strategies import random_program


@pytest.fixture
def make(cpu: Any, rng: np.random.Generator) -> Callable[..., Tensor]:
    """Return a function that makes a leaf of a shape."""
    return lambda *shape: cpu.array(rng.standard_normal(shape).astype(np.float32))


def merged(*outputs: Tensor) -> list[PlannedKernel]:
    return merge(partition(outputs), outputs)


def roots(*outputs: Tensor) -> list[list[str]]:
    """Return the ops that each kernel stores, the last one first."""
    return [[root.op for root in kernel.roots] for kernel in merged(*outputs)]


# ------------------------------------------------------------------------------------------------- what joins

def test_independent_work_of_one_shape_shares_a_kernel(make: Any) -> None:
    x, y = make(4, 5), make(4, 5)
    assert roots(nnk.exp(x), nnk.log(y), x * y) == [["mul", "exp", "log"]]


def test_work_of_other_shapes_is_apart(make: Any) -> None:
    x = make(4, 5)
    assert roots(nnk.exp(x), nnk.log(x.reshape(5, 4)), nnk.sin(x.reshape(20))) == [["exp"], ["log"], ["sin"]]


def test_a_shared_value_stays_in_a_register(make: Any) -> None:
    x = make(4, 5)
    shared = nnk.exp(x)
    (kernel,) = merged(shared + 1, shared * 2)
    assert [root.op for root in kernel.roots] == ["mul", "add"]
    assert [node.op for node in kernel.members.values()] == ["exp", "add", "mul"]


def test_a_shared_value_that_others_read_is_stored(make: Any) -> None:
    x = make(4, 5)
    shared = nnk.exp(x)
    for reader in (lambda: shared @ make(5, 3), lambda: nnk.softmax(shared), lambda: shared.T * 2,
                   lambda: shared[1:] * 2):
        kernels = merged(shared + 1, shared * 2, reader())
        assert [root.op for root in kernels[0].roots] == ["mul", "exp", "add"]
        assert len(kernels) == 2


def test_chains_of_asked_values_share_a_kernel(make: Any) -> None:
    x = make(4, 5)
    y = x + 1
    z = y * 2
    assert roots(z, y) == [["mul", "add"]]


def test_reductions_and_products_stay_apart(make: Any) -> None:
    x, w = make(5, 5), make(5, 5)
    assert sorted(roots(nnk.softmax(x), x @ w, x + 1, nnk.tanh(w))) == [["div"], ["matmul"], ["tanh", "add"]]


def test_what_is_read_through_a_view_is_stored_first(make: Any) -> None:
    x = make(5, 5)
    y = x + 1
    kernels = merged(y.T * 2, y)
    assert [[root.op for root in kernel.roots] for kernel in kernels] == [["add"], ["mul"]]


def test_nothing_joins_around_another_kernel(make: Any) -> None:
    """exp feeds the matmul and the matmul feeds the last: the three cannot be two."""
    x, w = make(5, 5), make(5, 5)
    y = nnk.exp(x)
    z = nnk.softmax(y @ w) + 0.5
    kernels = merged(y, nnk.sin(z) * (x @ w), nnk.cos(x))
    stored = [[root.op for root in kernel.roots] for kernel in kernels]
    assert ["cos", "exp"] in stored
    assert sum(len(names) for names in stored) == len(partition([y, nnk.sin(z) * (x @ w), nnk.cos(x)]))


def test_the_order_serves_readers(make: Any) -> None:
    """A later kernel moves up to the first one: what waits for the first must still come after both."""
    x = make(5, 5)
    a = nnk.exp(x)
    b = a @ x
    c = nnk.sin(x)
    kernels = merged(a, b, c @ b)
    done: set[int] = set()
    for kernel in kernels:
        for node in kernel.reached():
            if node.storage is None and id(node) not in kernel.members and node.op not in ("const", "rparam", "view"):
                assert id(node) in done
        done.update(id(root) for root in kernel.roots)
    assert [[root.op for root in kernel.roots] for kernel in kernels] == [["sin", "exp"], ["matmul"], ["matmul"]]


# ------------------------------------------------------------------------------------------------- limits

def test_outputs_count_as_inputs(make: Any) -> None:
    outputs = [make(3, 4) * float(n) for n in range(20)]
    kernels = merged(*outputs)
    assert sum(len(kernel.roots) for kernel in kernels) == 20
    for kernel in kernels:
        assert sum(kernel.inputs.values()) + len(kernel.more_roots) <= ops.LIMITS["inputs"]
        assert len(kernel.consts) <= ops.LIMITS["consts"]
    assert len(kernels) < 5
    nnk.eval(outputs)
    again = [np.asarray(output) for output in outputs]
    assert all(np.isfinite(values).all() for values in again)


def test_constants_parameters_and_registers_have_room(make: Any) -> None:
    x = make(3, 4)
    constants = [x + float(n) for n in range(20)]
    assert max(len(kernel.consts) for kernel in merged(*constants)) == ops.LIMITS["consts"]
    chains = []
    for start in range(4):
        y = x
        for step in range(10):
            y = nnk.sin(y) if (step + start) % 2 else nnk.cos(y)
        chains.append(y)
    kernels = merged(*chains)
    assert all(len(kernel.members) <= MAX_MEMBERS for kernel in kernels)
    assert sum(len(kernel.members) for kernel in kernels) == 40
    assert len(kernels) == 2


def test_large_graphs_are_left_alone(make: Any) -> None:
    x = make(2, 2)
    outputs = [x + float(n) for n in range(MAX_KERNELS + 1)]
    assert len(merged(*outputs)) == MAX_KERNELS + 1


# ------------------------------------------------------------------------------------------------- results

def test_same_graph_same_kernels(cpu: Any) -> None:
    def cut(rows: int) -> list[list[str]]:
        x = cpu.array(np.ones((rows, 8), np.float32))
        y, z = nnk.exp(x), nnk.log(x)
        return roots(y * z, nnk.softmax(y), z - 1, y + 1)
    assert cut(2) == cut(3) == cut(40)


@pytest.mark.parametrize("seed", range(12))
def test_bits_are_those_of_single_evaluations(seed: int) -> None:
    """Everything of a program evaluated together, and every value by itself."""
    engine = nnk.engine("cpu")
    count = 0
    for number in range(12):
        with np.errstate(all="ignore"):
            program = random_program(random.Random(1000 * seed + number), 16)
        together, alone = program.tensors(engine), program.tensors(engine)
        outputs = [value for value in together if value.dtype == np.float32]
        count += sum(len(step.more_roots) for step in engine.schedule(outputs)[0].steps)
        engine.evaluate(outputs)
        for left, right in zip(together, alone, strict=True):
            assert left.numpy().tobytes() == right.numpy().tobytes(), program
    assert count > 0


def test_vulkan_stores_every_output(vulkan: Any, cpu: Any, rng: np.random.Generator) -> None:
    values = rng.standard_normal((33, 7)).astype(np.float32)
    results = []
    for engine in (cpu, vulkan):
        x = engine.array(values)
        shared = nnk.exp(x)
        outputs = [shared + 1, nnk.gelu(x), shared * x, shared]
        before = engine.dispatch_count
        nnk.eval(outputs)
        assert engine.dispatch_count == before + 1
        results.append([nnk.digest(output) for output in outputs])
    assert results[0] == results[1]
    assert len(set(results[0])) == 4
