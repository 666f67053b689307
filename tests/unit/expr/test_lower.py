"""Lowering: views chosen, slots shared, launches, and specs that the oracle's evaluator understands."""

import random

import numpy as np
import pytest
from hypothesis import given

import nnk
from nnk import ops
from nnk.errors import UnsupportedOpError
from nnk.expr import lower as rules
from nnk.expr.canonical import canonicalise
from nnk.expr.spec import float_of
from nnk.expr.spec_rules import validate
from tests.expression_strategies import Program, programs, random_program
from tests.oracle.evaluate import evaluate
from tests.results import steps_of

VIEW = {view.code: view.name for view in ops.VIEWS}
OP = {op.code: op.name for op in ops.OPS}

pytestmark = pytest.mark.usefixtures("quiet_numpy")


@pytest.fixture
def make(cpu, rng):
    """Return a function from a shape to a tensor of random values."""
    return lambda *shape: cpu.array(rng.standard_normal(shape).astype(np.float32))


def as_words(array):
    return array.astype(np.float32) if array.dtype == np.bool_ else array


def step_of(tensor):
    (step,) = steps_of(tensor)
    return step


def views_of(tensor):
    """Return name and words of the view of each slot of a one-kernel tensor."""
    step = step_of(tensor)
    return [(VIEW[view.kind], words) for view, words in zip(step.spec.views, step.launch.view_params, strict=True)]


# ------------------------------------------------------------------------------------------------- views of tensors

@pytest.mark.parametrize(("shape", "grid", "want"), [
    ((3, 4), (3, 4), ("linear", ())), ((4,), (3, 4), ("col_broadcast", ())), ((1, 4), (3, 4), ("col_broadcast", ())),
    ((3, 1), (3, 4), ("row_broadcast", ())), ((2, 3, 1), (2, 3, 4), ("row_broadcast", ())),
    ((3, 4), (2, 3, 4), ("row_mod", (3,))), ((1, 3, 4), (2, 3, 4), ("row_mod", (3,))),
    ((2, 3, 4), (5, 2, 3, 4), ("row_mod", (6,))), ((4,), (1, 4), ("col_broadcast", ())),
    ((1,), (3, 4), ("strided", (0, 1, 3, 0, 0, 0, 0))), ((), (3, 4), ("strided", (0, 1, 3, 0, 0, 0, 0))),
    ((2, 1, 4), (2, 3, 4), ("strided", (0, 2, 3, 0, 4, 0, 1))),
    ((2, 1, 1), (2, 3, 4), ("strided", (0, 2, 3, 0, 1, 0, 0))),
    ((1, 3, 1), (2, 3, 4), ("strided", (0, 2, 3, 0, 0, 1, 0)))])
def test_views_of_whole_tensors(shape, grid, want, make):
    assert views_of(make(*grid) + make(*shape))[1:] == [want]


def test_strided_words(make):
    x = make(4, 6)
    words = dict(views_of(x.T * 2))["strided"]
    assert words == (0, 1, 6, 0, 0, 1, 6)
    assert dict(views_of(x[1::2, ::-1] * 2))["strided"] == (11, 1, 2, 0, 0, 12, -1)


def test_neighbouring_axes_merge(make):
    """Axes that walk memory as one are one row dimension: few ranks, few kernels."""
    x = make(2, 3, 4, 5)
    assert dict(views_of(x.transpose(2, 3, 0, 1).reshape(4, 5, 6) + 0.5))["strided"] == (0, 1, 20, 0, 0, 1, 20)
    assert dict(views_of(x[:, :, 1:] + 0.5))["strided"] == (5, 6, 3, 0, 20, 5, 1)
    assert step_of(x[:, :, 1:] + 0.5).spec.views[0].param == 3
    assert step_of(make(2, 2, 2, 2, 2)[:, ::-1, :, ::-1] + 0.5).spec.views[0].param == 7


def test_seven_row_axes_fit_and_the_view_has_rank_7(make):
    x = make(2, 2, 2, 2, 2, 2, 2, 2)
    y = x[::-1, :, ::-1, :, ::-1, :, ::-1, :].transpose(6, 4, 2, 0, 1, 3, 5, 7)
    assert step_of(y + 1.0).spec.views[0].param == 7
    assert np.array_equal((y + 1.0).numpy(), y.numpy() + np.float32(1))
    with pytest.raises(UnsupportedOpError, match="at most 7 row axes through one view, got 8"):
        rules.strided_view(0, [(2, 1)] * 8, 1)


def test_batch_size_changes_no_view(make):
    b = make(4)
    assert len({step_of(make(rows, 4) * b + make(rows, 1)).key for rows in (1, 2, 40)}) == 1
    assert len({step_of(nnk.layer_norm(make(n, 7, 4) + make(7, 4), b, b)).key for n in (1, 2, 40)}) == 1


# ------------------------------------------------------------------------------------------------- matmul operands

@pytest.mark.parametrize(("a", "b", "trans", "kinds"), [
    (lambda m: m(3, 5), lambda m: m(5, 4), 0, ["linear", "linear"]),
    (lambda m: m(5, 3).T, lambda m: m(5, 4), 1, ["linear", "linear"]),
    (lambda m: m(3, 5), lambda m: m(4, 5).T, 2, ["linear", "linear"]),
    (lambda m: m(5, 3).T, lambda m: m(4, 5).T, 3, ["linear", "linear"]),
    (lambda m: m(2, 5, 3).swapaxes(1, 2), lambda m: m(2, 4, 5).swapaxes(1, 2), 3, ["linear", "linear"]),
    (lambda m: m(2, 3, 5), lambda m: m(5, 4), 0, ["linear", "linear"]),
    (lambda m: m(2, 5, 3).swapaxes(1, 2), lambda m: m(5, 4), 0, ["strided", "linear"]),
    (lambda m: m(3, 5), lambda m: m(2, 5, 4), 0, ["strided", "linear"]),
    (lambda m: m(3, 6)[:, 1:], lambda m: m(5, 8)[:, ::2], 0, ["strided", "strided"])])
def test_matmul_operands(a, b, trans, kinds, make):
    step = step_of(a(make) @ b(make))
    assert step.launch.mm_trans == trans
    assert [VIEW[view.kind] for view in step.spec.views] == kinds
    assert step.launch.mm_k == 5


def test_transposed_stacks_are_addressed_alike_for_every_batch(make):
    w = make(5, 4)
    assert len({step_of(make(n, 5, 3).swapaxes(1, 2) @ w).key for n in (1, 2, 9)}) == 1


def test_k_of_a_right_operand_is_an_axis_of_its_own(make):
    """The kernel walks k by one stride: it must not be merged with a batch axis."""
    step = step_of(make(2, 3, 5) @ make(2, 5, 8)[:, :, :4])
    assert step.launch.view_params[1] == (0, 2, 5, 0, 40, 8, 1)


def test_batches(make):
    launch = step_of(make(7, 1, 2, 3) @ make(5, 3, 4)).launch
    assert (launch.rows, launch.cols, launch.mm_k, launch.mm_batch) == (70, 4, 3, 35)
    launch = step_of(make(7, 2, 3) @ make(3, 4)).launch
    assert (launch.rows, launch.mm_batch) == (14, 1)


# ------------------------------------------------------------------------------------------------- slots and values

def test_one_tensor_through_one_view_is_one_slot(make):
    x = make(3, 4)
    assert len(step_of(x * x + x).spec.views) == 1
    assert len(step_of(x * x.reshape(3, 4)[...]).spec.views) == 1
    assert len(step_of(x.T * x.T + 1.0).spec.views) == 1
    assert len(step_of(x * x[::-1]).spec.views) == 2
    square = make(4, 4)
    assert len(step_of(square @ square).spec.views) == 1
    assert len(step_of(square @ square.T + square).spec.views) == 1


def test_slots_come_in_the_order_of_reading(make):
    a, b, c = make(4), make(4), make(4)
    step = step_of((c - a) * (b - c))
    order = a.engine.schedule([(c - a) * (b - c)])[1]
    assert [order[position] for position in step.inputs] == [c, a, b]


def test_constants_are_values_not_structure(make):
    x = make(3)
    keys = {step_of(x * n + 1.0).key for n in (2.0, 3.0, -0.5)}
    assert len(keys) == 1
    assert step_of(x * 1.0 + 1.0).key not in keys
    assert [float_of(bits) for bits in step_of(x * 2.0 + 3.0).launch.const_bits] == [2.0, 3.0]
    assert step_of(x * 2.0 + 2.0).launch.const_bits == (0x40000000,)


def test_run_time_parameters_are_not_pooled(make):
    for n in (4, 8):
        step = step_of(nnk.rms_norm(make(3, n), eps=float(n)))
        assert [float_of(bits) for bits in step.launch.rparam_bits] == [float(n)] * 2
    assert len({step_of(nnk.rms_norm(make(3, n), eps=eps)).key for n in (2, 3, 4) for eps in (4.0, 0.1)}) == 1


def test_zero_dimensional_tensors(make, cpu):
    x, row = cpu.array(3.0), make(4)
    launch = step_of(x * x + 1.0).launch
    assert (launch.rows, launch.cols) == (1, 1)
    assert (row[2] * row[1] + x).item() == np.float32(row.numpy()[2] * row.numpy()[1]) + np.float32(3)


def test_take_has_its_index_in_the_next_slot(make, cpu):
    step = step_of(nnk.rms_norm(make(9, 4).take(np.array([[1, 2], [3, 4]]))))
    assert [VIEW[view.kind] for view in step.spec.views] == ["take", "row_broadcast"]
    assert step.spec.views[0].param == 1


@pytest.mark.parametrize("engine", ["cpu", "vulkan"])
def test_a_reduction_that_the_canonical_form_drops(engine, request, rng):
    """where(1, y, sum) + 1 is y + 1: the kernel has the grid of y, not the one of the reduction."""
    engine = request.getfixturevalue(engine)
    x, y, row = (engine.array(rng.standard_normal(shape).astype(np.float32)) for shape in ((6, 8), (6, 1), (6, 8)))
    z = nnk.where(1.0, y * 2.0, x.sum(-1, True)) + row.T[1, :, None]
    step = step_of(z)
    assert (step.meta.form, step.launch.rows, step.launch.cols, step.launch.vector_out) == ("elementwise", 6, 1, False)
    assert np.array_equal(z.numpy(), y.numpy() * np.float32(2) + row.numpy().T[1, :, None])
    wide = nnk.where(0.0, x.sum(-1, True), x) * 2.0
    assert step_of(wide).meta.form == "elementwise"
    assert np.array_equal(wide.numpy(), x.numpy() * np.float32(2))
    product = nnk.where(1.0, x, x @ x.T[:, :1] + x) * 2.0
    assert np.array_equal(product.numpy(), x.numpy() * np.float32(2))


def test_a_root_that_computes_nothing_is_a_copy(make):
    step = step_of(make(3, 4).T)
    assert [OP[instr.op] for instr in step.spec.instrs] == ["copy"]


# ------------------------------------------------------------------------------------------------- whole programs

def run_with_oracle(program: Program) -> None:
    """Check each lowered kernel of a program: valid, canonical, and worth what the engine computes."""
    engine = nnk.engine("cpu")
    values = program.tensors(engine)
    targets = [values[number] for number in program.outputs]
    schedule, order = engine.schedule(targets)
    nodes = list(order)
    roots = [[nodes[position] for position in (step.root, *step.more_roots)] for step in schedule.steps]
    engine.evaluate([root for found in roots for root in found])
    for step, found in zip(schedule.steps, roots, strict=True):
        validate(step.spec)
        assert canonicalise(step.spec) == step.spec
        # A kernel sees bools as 1.0 and 0.0.
        inputs = [as_words(nodes[position].numpy()).reshape(-1) for position in step.inputs]
        for want, root in zip(evaluate(step.spec, step.launch, inputs), found, strict=True):
            assert np.array_equal(np.ascontiguousarray(want).view(np.uint32).reshape(-1),
                                  np.atleast_1d(as_words(root.numpy())).view(np.uint32).reshape(-1))


@given(programs())
def test_every_lowered_kernel_is_valid_and_canonical(program):
    with np.errstate(all="ignore"):
        run_with_oracle(program)


def test_lowered_programs_use_every_view_that_lowering_knows():
    seen = set()
    for seed in range(150):
        with np.errstate(all="ignore"):
            program = random_program(random.Random(seed))
        values = program.tensors(nnk.engine("cpu"))
        for step in steps_of(*(values[number] for number in program.outputs)):
            seen |= {VIEW[view.kind] for view in step.spec.views}
    assert seen == {"linear", "row_mod", "row_broadcast", "col_broadcast", "strided", "take"}
