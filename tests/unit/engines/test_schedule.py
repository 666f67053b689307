"""Schedules: steps, positions, releases, and that equal graphs are planned once."""

import struct

import numpy as np
import pytest

import nnk
from nnk.engines import schedule as rules
from nnk.engines.schedule import Scheduler, signature_of
from nnk.expr.fuse import topological
from nnk.expr.key import kernel_identity, kernel_key, spec_key


@pytest.fixture
def scheduler():
    return Scheduler(generator_version=7)


@pytest.fixture
def make(cpu, rng):
    return lambda *shape: cpu.array(rng.standard_normal(shape).astype(np.float32))


def test_steps_name_their_kernels(make, scheduler):
    x = make(4, 8)
    found, order = scheduler.schedule([nnk.softmax(x @ x.T)])
    assert [step.meta.form for step in found.steps] == ["matmul", "reduce"]
    for step in found.steps:
        assert step.key == kernel_key(spec_key(step.spec), 0, 7)
        assert step.identity == kernel_identity(step.spec, 0, 7)
        assert step.words[:8] == struct.pack("<2I", step.launch.rows * step.launch.cols, step.launch.cols)
        assert len(step.words) == 4 * step.meta.param_words
        assert step.out_bytes == order[step.root].nbytes
    assert [order[position].op for position in found.steps[0].inputs] == ["leaf"]
    assert found.steps[1].inputs == (found.steps[0].root,)


def test_positions_are_released_after_their_last_reader(make, scheduler):
    x = make(4, 4)
    a = x @ x
    b = a @ a
    c = b @ a
    found, order = scheduler.schedule([c])
    released = [{order[position] for position in step.release} for step in found.steps]
    assert [a in nodes for nodes in released] == [False, False, True]
    assert [b in nodes for nodes in released] == [False, False, True]
    assert [x in nodes for nodes in released] == [True, False, False]
    assert not any(c in nodes for nodes in released)


def test_outputs_are_never_released(make, scheduler):
    x = make(4, 4)
    a = x @ x
    found, order = scheduler.schedule([a @ a, a])
    assert not any(order[position] is a for step in found.steps for position in step.release)


def test_equal_graphs_are_planned_once(make, scheduler):
    def plan(*shape):
        x = make(*shape)
        return scheduler.schedule([nnk.softmax(x * 2.0 + x.sum(-1, True))])[0]
    first = plan(3, 4)
    assert plan(3, 4) is first
    assert plan(4, 4) is not first
    assert plan(4, 4).steps[0].key == first.steps[0].key


@pytest.mark.parametrize("other", [
    lambda x, y: x + y * 2.0, lambda x, y: x * y + 3.0, lambda x, y: x * y + x, lambda x, y: x * x + 2.0,
    lambda x, y: x * y + 2.0 + 0.0, lambda x, y: x * y[::-1] + 2.0, lambda x, y: y - y.T, lambda x, y: x * y - 2.0])
def test_other_graphs_have_other_signatures(other, make):
    x, y = make(4, 4), make(4, 4)

    def signature(tensor):
        return signature_of(topological([tensor]), [tensor])

    assert signature(x * y + 2.0) == signature(make(4, 4) * make(4, 4) + 2.0)
    assert signature(other(x, y)) != signature(x * y + 2.0)


def test_signature_knows_sharing_dtypes_and_outputs(make, cpu):
    x = make(4, 4)
    a, b = x + 1.0, x + 1.0
    assert signature_of(topological([a + a]), []) != signature_of(topological([a + b]), [])
    c = a * 2.0
    assert signature_of(topological([c]), [c]) != signature_of(topological([c]), [c, a])
    index = [cpu.array(np.array([0, 1])), cpu.array([0.0, 1.0])]
    assert signature_of(index[:1], index[:1]) != signature_of(index[1:], index[1:])


def test_evaluated_tensors_are_leaves_of_a_plan(make, scheduler):
    x = make(4, 4)
    y = x + 1.0
    assert len(scheduler.schedule([y @ x])[0].steps) == 2
    y.eval()
    assert len(scheduler.schedule([y @ x])[0].steps) == 1


def test_kernels_without_elements_are_left_out(make, scheduler):
    assert scheduler.schedule([nnk.softmax(make(0, 4)) + 1.0])[0].steps == ()


def test_schedules_are_bounded(make, monkeypatch):
    monkeypatch.setattr(rules, "MAX_SCHEDULES", 3)
    scheduler = Scheduler(1)
    for n in range(1, 9):
        scheduler.schedule([make(n) + 1.0])
        assert len(scheduler._schedules) <= 3
    found = scheduler.schedule([make(8) + 1.0])[0]
    assert scheduler.schedule([make(8) + 1.0])[0] is found


def test_nodes_of_kept_schedules_are_bounded(make, monkeypatch):
    """Long graphs that differ each time must not pile up."""
    monkeypatch.setattr(rules, "MAX_NODES", 100)
    scheduler = Scheduler(1)
    for depth in range(20, 40):
        x = make(3)
        for _ in range(depth):
            x = x + 1.0
        scheduler.schedule([x])
        assert len(scheduler._schedules) <= 3


def test_version_is_part_of_key_and_identity(make):
    steps = [Scheduler(version).schedule([make(3) + 1.0])[0].steps[0] for version in (1, 2)]
    assert steps[0].key != steps[1].key
    assert steps[0].identity != steps[1].identity
    assert steps[0].spec == steps[1].spec


# ------------------------------------------------------------------------------------------------- plan keys

def plan_of(*outputs):
    return Scheduler(7).schedule(outputs)[0]


def independent_key(plan):
    """The key from its description, bytes by bytes."""
    data, made = struct.pack("<Q", len(plan.steps)), []
    for step in plan.steps:
        data += struct.pack("<7Q", step.launch.rows, step.launch.cols, step.launch.vector_out, step.meta.prec_sig,
                            int(spec_key(step.spec), 16), step.meta.n_outputs, len(step.inputs))
        data += b"".join(struct.pack("<Q", made.index(i) + 1 if i in made else 0) for i in step.inputs)
        made += [step.root, *step.more_roots]
    state = 0xCBF29CE484222325
    for byte in data:
        state = (state ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{state:016x}"


PLANS = {
    "one kernel": (lambda x, w: [nnk.tanh(x * 2 + 1)], 1, "9e760baaa537fcf8"),
    "three outputs of one kernel": (lambda x, w: [nnk.exp(x), nnk.log(w), x * w], 1, "f3f0d60f25e7726f"),
    "a chain through a matmul": (lambda x, w: [nnk.softmax(nnk.gelu(x @ w + 1) @ w)], 3, "38c8eb3f90c45a5e"),
    "an output that others read": (lambda x, w: [nnk.exp(x), nnk.exp(x) @ w, nnk.sin(x)], 2, "4489b1ee12426bbf"),
    "nothing": (lambda x, w: [x], 0, "a8c7f832281a39c5"),
}


@pytest.mark.parametrize("name", PLANS)
def test_plan_keys_are_golden(name, make):
    build, steps, key = PLANS[name]
    plan = plan_of(*build(make(8, 8), make(8, 8)))
    assert len(plan.steps) == steps
    assert plan.key == independent_key(plan) == key
    assert plan_of(*build(make(8, 8), make(8, 8))).key == key


def test_plan_keys_see_shapes_and_edges_not_values(make):
    x, w = make(8, 8), make(8, 8)
    assert plan_of(x * 2).key == plan_of(w * 3).key
    assert plan_of(x @ w).key == plan_of(w @ x).key
    others = [plan_of(x * 2), plan_of(make(4, 16) * 2), plan_of(x + 2), plan_of(x * 2, x * 2 + 1), plan_of(x @ w),
              plan_of((x @ w) @ w), plan_of(w @ (x @ w)), plan_of(x.sum(-1))]
    assert len({plan.key for plan in others}) == len(others)
