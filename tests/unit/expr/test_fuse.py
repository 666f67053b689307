"""The cut into kernels: what joins, what is stored, and that nothing is computed twice."""

import numpy as np
import pytest

import nnk
from nnk import ops
from nnk.expr.fuse import partition, topological
from nnk.expr.meta import CHUNKS_OUT, VECTOR_OUT
from nnk.expr.views import materialised


@pytest.fixture
def x(cpu, rng):
    return cpu.array(rng.standard_normal((6, 8)).astype(np.float32))


@pytest.fixture
def w(cpu, rng):
    return cpu.array(rng.standard_normal((8, 8)).astype(np.float32))


@pytest.fixture
def b(cpu, rng):
    return cpu.array(rng.standard_normal(8).astype(np.float32))


def members(*outputs):
    """Return the ops of each kernel, its root's first."""
    return [[node.op for node in kernel.members.values()] for kernel in partition(outputs)]


def one_kernel(*outputs):
    kernels = partition(outputs)
    return len(kernels) == 1 and kernels[0]


# ------------------------------------------------------------------------------------------------- order

def test_topological_order_has_arguments_first(x):
    y = x + 1
    z = y * y
    order = topological([z])
    position = {id(node): index for index, node in enumerate(order)}
    assert len(order) == len(position) == 4
    assert position[id(x)] < position[id(y)] < position[id(z)]


def test_topological_order_does_not_recurse(x):
    y = x
    for _ in range(20000):
        y = y + 1.0
    assert len(topological([y])) == 40001


def test_evaluated_nodes_hide_what_is_below(x):
    y = (x + 1).eval()
    assert topological([y * 2])[0] is y


# ------------------------------------------------------------------------------------------------- what joins

def test_elementwise_chain_is_one_kernel(x, b):
    assert one_kernel(nnk.tanh(x * 2 + b) / (x + 3))


@pytest.mark.parametrize("build", [
    nnk.softmax, nnk.layer_norm, nnk.rms_norm, lambda x: nnk.softmax(x * 2 + 1) * x, lambda x: x.sum(-1, True),
    lambda x: x.sum(-1, True) + 1, lambda x: (x * x).sum(-1, True) / x.max(-1, True), lambda x: x - x.mean(-1, True),
    lambda x: nnk.softmax(x).sum(-1, True)])
def test_row_reductions_join(build, x):
    kernel = one_kernel(build(x))
    assert kernel
    assert kernel.has_reduce
    assert kernel.grid == (6, 8)


def test_vector_results(x):
    assert one_kernel(x.sum(-1, True)).vector_out == VECTOR_OUT
    assert one_kernel(x.max(-1, True) * 2).vector_out == VECTOR_OUT
    assert one_kernel(nnk.softmax(x)).vector_out == 0
    assert one_kernel(x.sum(0)).vector_out == VECTOR_OUT
    assert one_kernel(nnk.softmax(x, 0)).vector_out == 0


def test_matmul_takes_its_tail(x, w, b):
    kernel = one_kernel(nnk.gelu(x @ w + b) + x)
    assert kernel.matmul.op == "matmul"
    assert kernel.root.op == "add"


def test_a_broadcast_matmul_is_stored(x, w, cpu):
    """Its value would be computed once for each batch."""
    y = (x @ w) + cpu.array(np.zeros((3, 6, 8), np.float32))
    assert [len(kernel.members) for kernel in partition([y])] == [1, 1]


def test_two_matmuls_are_two_kernels(x, w):
    assert members((x @ w) + (x @ w.T)) in ([["matmul"], ["add", "matmul"]], [["matmul"], ["add", "matmul"]])


@pytest.mark.parametrize(("max_k", "kernels"), [(8, 1), (7, 2)])
@pytest.mark.parametrize("dtype", ["float16", "uint8", "bool"])
def test_a_product_over_a_long_k_is_stored_as_words(dtype, max_k, kernels, x, w):
    k = x.shape[-1]
    y = nnk.sigmoid(x @ w).astype(dtype)
    assert len(partition([y], max_k=max_k + k - 8)) == kernels
    assert len(partition([nnk.sigmoid(x @ w)], max_k=1)) == 1


def test_a_matmul_never_joins_a_reduction(x, w):
    assert [kernel.has_reduce for kernel in partition([nnk.softmax(x @ w)])] == [False, True]


def test_operands_of_a_matmul_are_stored(x, w):
    assert members((x + 1) @ w) == [["add"], ["matmul"]]


@pytest.mark.parametrize("build", [
    lambda x: x + x.sum(0), lambda x: (x - x.mean(0)) / x.std(0, keepdims=True), lambda x: nnk.softmax(x, 0),
    lambda x: (x * 2).sum(0), lambda x: (x * x).max(0, True) + 1, lambda x: x - x.T.sum(-1), lambda x: x - x.T.max(1)])
def test_column_reductions_join(build, x):
    kernel = one_kernel(build(x))
    assert kernel
    assert (kernel.reduce_axis, kernel.grid) == (1, (6, 8))


def test_columns_of_the_last_axis_join_over_all_other_axes(cpu):
    y = cpu.array(np.ones((2, 3, 4), np.float32))
    assert one_kernel((y * 2).sum((0, 1))).grid == (2, 3, 4)
    assert one_kernel(y - y.mean((0, 1))).grid == (2, 3, 4)


def test_one_kernel_has_reductions_of_one_axis(x):
    kernels = partition([x - x.mean(0) - x.mean(1, keepdims=True)])
    assert sorted(kernel.reduce_axis for kernel in kernels) == [0, 1]
    assert len(partition([x.sum(0) + x.sum(-1, True).sum()])) == 3


def test_reductions_over_other_shapes_are_apart(x, cpu):
    y = cpu.array(np.ones((3, 8), np.float32))
    assert sorted(kernel.grid for kernel in partition([x.sum(0) + y.sum(0)])) == [(3, 8), (6, 8)]


def test_long_lines_go_through_their_chunks(cpu):
    """The cut is after 65 536 values; chunks have 16 384 (R7)."""
    x = cpu.array(np.ones((2, 65537), np.float32))
    kernels = partition([(x * 2).sum(-1, True)])
    assert [(kernel.grid, kernel.vector_out, len(kernel.members)) for kernel in kernels] == \
        [((2, 65537), CHUNKS_OUT, 2), ((2, 5), VECTOR_OUT, 1)]
    kernels = partition([x.T.max(0).reshape(2, 1) + 1])
    assert [(kernel.grid, kernel.vector_out) for kernel in kernels][:2] == \
        [((2, 65537), CHUNKS_OUT), ((2, 5), VECTOR_OUT)]
    columns = cpu.array(np.ones((65537, 2), np.float32))
    kernels = partition([columns - columns.mean(0)])
    assert [(kernel.grid, kernel.vector_out) for kernel in kernels] == \
        [((65537, 2), CHUNKS_OUT), ((5, 2), VECTOR_OUT), ((65537, 2), 0)]
    assert one_kernel(x[:, :65536].sum(-1, True))


def test_a_reduction_of_a_reduction_is_two_kernels(x):
    assert len(partition([x.sum(-1, True).max(0, True)])) == 2


def test_bases_of_views_are_stored(x):
    y = x + 1
    assert [kernel.root.op for kernel in partition([y[::-1] * 2.0])] == ["add", "mul"]


def test_a_view_costs_a_kernel_only_when_it_is_asked_for(x):
    assert one_kernel(x.T * 2)
    (kernel,) = partition([x.T])
    assert kernel.root.op == "view"
    assert not kernel.members


def test_take_in_place_and_apart(x, b):
    rows = x.take([0, 3, 3])
    assert one_kernel(nnk.layer_norm(rows, b)).takes == {id(rows)}
    assert len(partition([rows + rows.sum()])) >= 2
    assert len(partition([x.take([1, 2], axis=1) + 1])) == 3
    table = x[:, 0]
    assert [kernel.root.op for kernel in partition([materialised(table).take([1]) + 1])] == ["copy", "take", "add"]


# ------------------------------------------------------------------------------------------------- what is shared

def test_shared_values_are_computed_once(x):
    y = nnk.exp(x)
    assert members(y * y + y) == [["add", "mul", "exp"]]


def test_a_value_of_several_kernels_is_stored(x, w):
    y = nnk.exp(x)
    kernels = partition([(y @ w) + 1, y * 2])
    assert [kernel.root.op for kernel in kernels].count("exp") == 1
    assert len(kernels) == 3


def test_outputs_are_roots(x):
    y = x + 1
    z = y * 2
    assert [kernel.root for kernel in partition([z, y])] == [y, z]


def test_every_node_is_in_one_kernel(x, w, b):
    y = nnk.layer_norm(nnk.gelu(x @ w + b) + x, b, b)
    z = nnk.softmax(y @ y.T) @ x
    outputs = [z, y, z.sum(), (z * 2).T]
    kernels = partition(outputs)
    computed = [id(node) for kernel in kernels for node in kernel.members.values()]
    assert len(computed) == len(set(computed))
    lazy = {id(node) for node in topological(outputs)
            if node.storage is None and node.op not in ("const", "rparam", "view", "take")}
    assert set(computed) == lazy


def test_kernels_find_their_inputs_stored(x, w, b):
    y = nnk.layer_norm(nnk.gelu(x @ w + b) + x, b, b)
    z = nnk.softmax(y @ y.T) @ x
    done = set()
    for kernel in partition([z]):
        for node in kernel.reached():
            if node.storage is None and id(node) not in kernel.members and node.op not in ("const", "rparam", "view"):
                assert id(node) in done
        done.add(id(kernel.root))


# ------------------------------------------------------------------------------------------------- limits

def test_many_ops_are_cut(x):
    y = x
    for n in range(100):
        y = nnk.maximum(y * 0.5, float(n))
    kernels = partition([y])
    assert max(len(kernel.members) for kernel in kernels) <= ops.LIMITS["regs"]
    assert sum(len(kernel.members) for kernel in kernels) == 200


def test_many_inputs_are_cut(cpu):
    parts = [cpu.array(np.full(5, n, np.float32)) for n in range(40)]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    kernels = partition([total])
    assert all(sum(kernel.inputs.values()) <= ops.LIMITS["inputs"] for kernel in kernels)
    assert 3 <= len(kernels) <= 4
    assert total.tolist() == [780.0] * 5


@pytest.mark.parametrize("kind", ["consts", "rparams"])
def test_many_values_are_cut(kind, x, b):
    y = x
    if kind == "consts":
        for n in range(40):
            y = y + float(n)
    else:
        for n in range(20):
            y = nnk.rms_norm(y, b, eps=0.1 * n)
    for kernel in partition([y]):
        assert len(kernel.consts) <= ops.LIMITS["consts"]
        assert len(kernel.rparams) <= ops.LIMITS["rparams"]
    assert np.isfinite(y.numpy()).all()


def test_equal_constants_share_a_slot(x):
    y = x
    for _ in range(20):
        y = y * 0.5 + 0.25
    kernels = partition([y])
    assert [len(kernel.consts) for kernel in kernels] == [2, 2]


def test_same_graph_same_cut(cpu, w, b):
    def cut(rows):
        x = cpu.array(np.ones((rows, 8), np.float32))
        y = nnk.layer_norm(nnk.gelu(x @ w + b) + x, b, b)
        return [[node.op for node in kernel.members.values()] for kernel in partition([nnk.softmax(y @ w)])]
    assert cut(1) == cut(2) == cut(40)
