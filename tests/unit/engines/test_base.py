"""Evaluation: what is run, shared, kept and freed, alone and from many threads."""

import gc
import threading
import weakref

import numpy as np
import pytest

import nnk
from nnk.engines.base import Engine
from nnk.engines.cpu import CpuEngine
from nnk.errors import DTypeError, ExprError, ShapeError

NAN = float("nan")


class Counting(CpuEngine):
    """The CPU engine; keeps the keys of what it runs, and weak references to what it allocates."""

    def __init__(self):
        super().__init__(threads=1)
        self.ran = []
        self.storages = []

    def allocate(self, nbytes):
        storage = super().allocate(nbytes)
        self.storages.append(weakref.ref(storage))
        return storage

    def run(self, step, inputs, *outputs):
        self.ran.append(step.key)
        super().run(step, inputs, *outputs)

    def alive(self):
        gc.collect()
        return sum(storage() is not None for storage in self.storages)


@pytest.fixture
def engine():
    return Counting()


@pytest.fixture
def x(engine, rng):
    return engine.array(rng.standard_normal((6, 8)).astype(np.float32))


# ------------------------------------------------------------------------------------------------- arrays

def test_array_is_a_copy_and_row_major(engine):
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    for source in (data, data.T, data[::-1], np.asfortranarray(data), data.astype(">f4"), data.astype(np.float16)):
        tensor = engine.array(source)
        assert tensor.dtype == source.dtype.newbyteorder("=")
        assert np.array_equal(tensor.numpy(), source)
    tensor = engine.array(data)
    data[:] = 9
    assert tensor.numpy()[0, 0] == 0


@pytest.mark.parametrize("data", [np.array([0x7FC12345, 0xFF800001, 1, 0x80000000], np.uint32).view(np.float32),
                                  np.array(NAN, np.float32), np.zeros((0, 3), np.float32)])
def test_array_keeps_bits_and_shape(data, engine):
    got = engine.array(data).numpy()
    assert got.shape == data.shape
    assert got.tobytes() == data.tobytes()


def test_array_of_a_tensor_keeps_its_dtype(engine):
    assert nnk.array(engine.array(np.array([1, 2])), engine=engine).dtype == np.int32
    assert nnk.array(engine.array([1.0]) + 1, engine="cpu").tolist() == [2.0]


def test_doubles_round_and_overflow_without_a_warning(engine):
    assert engine.array(np.array([0.1, 1e300, -1e300, 1e-50])).tolist() == [np.float32(0.1), np.inf, -np.inf, 0.0]


@pytest.mark.parametrize(("data", "dtype"), [
    ([2**70, -1], "float32"), ([2**63, -1], "float32"), ([[2**64], [1.5]], None), (-2**63 - 1, "bfloat16"),
    ([2**64, 0, True], "bool"), (np.array([1, 2**64], object), "float32"), ([1e300, 2.0], None)])
def test_numbers_beyond_64_bits_are_floats(data, dtype, engine):
    tensor = engine.array(data, dtype)
    assert tensor.dtype.name == (dtype or "float32")
    with np.errstate(over="ignore"):
        want = engine.array(np.array(data, np.float64).astype(np.float32)).astype(tensor.dtype)
    assert tensor.numpy().tobytes() == want.numpy().tobytes()


@pytest.mark.parametrize(("data", "dtype", "error", "text"), [
    (["a"], None, DTypeError, "Expected numbers for nnk.array, got dtype <U1"),
    ([1j], np.float32, DTypeError, "got dtype complex128"),
    ([None], None, DTypeError, "got dtype object"),
    ([[1], [1, 2]], None, ShapeError, "Expected rows of one length for nnk.array"),
    ([1.0], np.float64, DTypeError, "Expected float32, .* or bool for the dtype of nnk.array, got float64"),
    ([1.0], "no dtype", DTypeError, "Expected float32, .* or bool for the dtype of nnk.array, got no dtype"),
    ([1.5], np.int32, DTypeError, "Expected integers for a tensor of int32, got dtype float64"),
    (np.array([2**31]), None, DTypeError, "Expected integers from -2147483648 to 2147483647 for a tensor of int32, got "
     "2147483648; pass dtype=\"float32\""),
    (np.array([0, 2**64 - 1], np.uint64), None, DTypeError, "a tensor of int32, got 18446744073709551615;"),
    ([1, -2**31 - 1], None, DTypeError, "a tensor of int32, got -2147483649;"),
    (2**31, None, DTypeError, "a tensor of int32, got 2147483648;"),
    ([2**99, 1], None, DTypeError, "a tensor of int32, got one of 100 bits;"),
    ([2**63, -1], None, DTypeError, "a tensor of int32, got 9223372036854775808;"),
    ([2**64], np.uint8, DTypeError, "Expected integers from 0 to 255 for a tensor of uint8, got 18446744073709551616;"),
    ([10**400], np.float32, DTypeError, "Expected numbers that a float can hold for nnk.array"),
    ([2**64, "a"], None, DTypeError, "got dtype"),
    (np.array(["2020-01-01"], "M8"), None, DTypeError, "got dtype datetime64")])
def test_array_refuses(data, dtype, error, text, engine):
    with pytest.raises(error, match=text):
        engine.array(data, dtype)


def test_limits_of_int32(engine):
    values = np.array([-2**31, 2**31 - 1])
    assert engine.array(values).numpy().tolist() == values.tolist()
    assert engine.array([True, False], np.int32).tolist() == [1, 0]


# ------------------------------------------------------------------------------------------------- evaluation

def test_nothing_runs_before_a_value_is_asked_for(engine, x):
    y = nnk.softmax(x * 2 + 1)
    assert engine.ran == []
    y.numpy()
    y.numpy()
    assert len(engine.ran) == engine.dispatch_count == 1


def test_evaluated_tensors_are_not_run_again(engine, x):
    y = (x + 1).eval()
    z = (y * 2).eval()
    (z - y).eval()
    assert len(engine.ran) == 3


def test_tensors_are_evaluated_together(engine, x):
    shared = nnk.exp(x)
    a, b, c = shared + 1, shared * 2, x - 3
    engine.evaluate([a, b, c, a])
    assert len(engine.ran) == 1
    assert all(tensor.is_evaluated for tensor in (a, b, c))
    # Nobody asked for it and nothing else reads it.
    assert not shared.is_evaluated
    assert np.array_equal(shared.numpy(), np.asarray(nnk.exp(x)))
    assert np.array_equal(b.numpy(), (nnk.exp(x) * 2).numpy())


def test_views_that_reshape_share_storage(engine, x):
    y = x + 1
    flat, wide = y.reshape(48), y.reshape(2, 24)
    engine.evaluate([flat, wide, y])
    assert len(engine.ran) == 1
    assert flat.storage is wide.storage is y.storage
    assert np.array_equal(flat.numpy(), y.numpy().reshape(-1))


def test_a_tensor_of_another_engine_is_refused(engine, x):
    with pytest.raises(ExprError, match="Expected a tensor of engine cpu, got one of cpu"):
        CpuEngine().evaluate([x + 1])
    with pytest.raises(ExprError, match="got one of None"):
        engine.evaluate([nnk.exp(1.0)])


def test_nothing_at_all(engine):
    engine.evaluate([])
    empty = engine.array(np.zeros((0, 4), np.float32))
    for tensor in (empty + 1, (empty * 2).reshape(4, 0), empty.T, nnk.softmax(empty), empty[:, 1:],
                   (empty + 1).sum(-1)):
        assert tensor.numpy().size == 0
    assert engine.ran == []


def test_a_view_of_nothing_over_something(engine, x):
    assert (x + 1)[3:3].numpy().shape == (0, 8)
    assert ((x + 1)[3:3] * 2).numpy().shape == (0, 8)


def test_errors_leave_the_graph_usable(engine, x):
    y = nnk.exp(x + 1)
    failing = True

    def run(step, inputs, output, inner=engine.run):
        if failing:
            raise MemoryError
        inner(step, inputs, output)

    engine.run = run
    with pytest.raises(MemoryError):
        y.numpy()
    failing = False
    assert np.array_equal(y.numpy(), nnk.exp(x + 1).numpy())


# ------------------------------------------------------------------------------------------------- sizes

def test_forty_inputs(engine, rng):
    parts = [rng.standard_normal(9).astype(np.float32) for _ in range(40)]
    total, want = engine.array(parts[0]), parts[0]
    for part in parts[1:]:
        total, want = total + engine.array(part), want + part
    assert np.array_equal(total.numpy(), want)
    assert 3 <= len(engine.ran) <= 4


def test_hundred_ops(engine, x):
    y, want = x, x.numpy()
    for n in range(100):
        y, want = y * np.float32(0.9) + np.float32(n), want * np.float32(0.9) + np.float32(n)
    assert np.array_equal(y.numpy(), want)
    assert len(engine.ran) >= 200 // 32


def test_a_depth_of_ten_thousand(engine, x):
    y, want = x, x.numpy()
    for _ in range(10000):
        y, want = y + np.float32(0.5), want + np.float32(0.5)
    assert np.array_equal(y.numpy(), want)


def test_a_deep_graph_dies_without_recursion(x):
    y = x
    for _ in range(30_000):
        y = y + 1.0
    del y


def test_a_wide_shared_graph_is_linear(engine, x):
    """Doubling by y + y has 2**60 paths and 60 nodes."""
    y = x * 0
    for _ in range(60):
        y = y + y
    assert np.array_equal(y.numpy(), np.zeros((6, 8), np.float32))
    assert len(engine.ran) <= 4


# ------------------------------------------------------------------------------------------------- kernels

@pytest.mark.parametrize("build", [
    lambda x, w, b: nnk.gelu(x @ w + b) + x, lambda x, w, b: nnk.layer_norm(x, b, b), lambda x, w, b: nnk.softmax(x),
    lambda x, w, b: x * b + 1.0, lambda x, w, b: (x.reshape(-1, 2, 4).swapaxes(0, 1) * 2).sum(-1)])
def test_batches_of_every_size_use_the_same_kernels(build, rng):
    keys = []
    for rows in (1, 2, 40):
        engine = Counting()
        x, w, b = (engine.array(rng.standard_normal(shape).astype(np.float32)) for shape in ((rows, 8), (8, 8), (8,)))
        build(x, w, b).eval()
        keys.append(engine.ran)
    assert keys[0] == keys[1] == keys[2]


def test_scalars_add_no_kernels(engine, x):
    for scale in (2.0, 3.0, -0.5, NAN, 1e-40):
        nnk.tanh(x * scale + 7.0).eval()
        nnk.rms_norm(x, eps=abs(scale)).eval()
    assert len(set(engine.ran)) == 2


# ------------------------------------------------------------------------------------------------- memory

def test_intermediates_are_freed(engine, x):
    y = ((x + 1).T @ x).sum()
    y.eval()
    assert len(engine.storages) == 3
    assert engine.alive() == 1
    del y
    assert engine.alive() == 0


def test_intermediates_are_freed_while_a_long_graph_runs(engine, x):
    most = 0

    def run(step, inputs, output, inner=engine.run):
        nonlocal most
        inner(step, inputs, output)
        most = max(most, engine.alive())

    engine.run = run
    y = x
    for _ in range(8):
        y = (y @ x.T) @ x * 1e-3
    y.eval()
    assert len(engine.ran) == 16
    assert most <= 3


def test_what_the_user_holds_is_kept(engine, x):
    hidden = x @ x.T
    y = nnk.relu(hidden[::-1])
    y.eval()
    assert hidden.is_evaluated
    assert engine.alive() == 2
    del hidden
    assert engine.alive() == 1


def test_a_leaf_lets_go_of_its_graph(engine, x):
    y = x + 1
    reference = weakref.ref(y)
    z = y * 2
    z.eval()
    del y
    gc.collect()
    assert reference() is None
    assert (z.args, z.attrs, z.op) == ((), (), "leaf")


# ------------------------------------------------------------------------------------------------- threads

def work(engine, seed, results):
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((5 + seed, 7)).astype(np.float32)
    for n in range(12):
        x = engine.array(a)
        y = nnk.layer_norm(nnk.gelu(x @ x.T[:, : 3 + n % 3] + float(n)))
        results.append((seed, n, nnk.digest(nnk.softmax(y[::-1]).sum(-1))))


@pytest.mark.parametrize("kind", ["cpu", "vulkan"])
def test_eight_threads_evaluate_different_expressions(kind, request):
    engine = request.getfixturevalue(kind)
    wanted = []
    for seed in range(8):
        work(nnk.engine("cpu"), seed, wanted)
    found, threads = [], []
    for seed in range(8):
        threads.append(threading.Thread(target=work, args=(engine, seed, found)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == wanted


def test_eight_threads_evaluate_one_expression(engine, x):
    for _ in range(10):
        y = nnk.softmax(x * 2)
        views = [y[n:] for n in range(6)]
        barrier, errors = threading.Barrier(8), []

        def ask(y=y, views=views, barrier=barrier, errors=errors):
            barrier.wait()
            try:
                assert all(np.array_equal((view[::-1] + 0.0).numpy(), y.numpy()[n:][::-1])
                           for n, view in enumerate(views))
            except Exception as error:
                errors.append(error)

        engine.ran.clear()
        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []


def test_engine_is_abstract():
    with pytest.raises(TypeError, match="abstract"):
        Engine()


def test_engine_describes_itself(cpu):
    assert str(cpu) == "cpu"
    assert repr(cpu) == "<nnk engine cpu: CPU>"
