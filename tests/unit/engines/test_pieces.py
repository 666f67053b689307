"""Launches in pieces: the same bits under small limits, right addresses under huge shapes, clear refusals."""

import contextlib
import dataclasses
import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nnk
from nnk import ops
from nnk.engines import pieces
from nnk.engines.cpu import CpuEngine
from nnk.engines.limits import CPU_LIMITS, Limits
from nnk.engines.parity import special_values
from nnk.engines.pieces import fits, with_own_operands
from nnk.engines.schedule import Scheduler
from nnk.errors import LimitError
from nnk.expr.fuse import partition
from nnk.expr.lines import LONGEST_LINE
from nnk.expr.lower import lower
from nnk.expr.meta import CHUNKS_OUT, Launch
from nnk.expr.node import geometry_of, leaf
from nnk.expr.spec import ExprSpec, Instr, Operand, ViewSpec
from nnk.numerics import REDUCE_CHUNK
from tests import folds
from tests.cut_launches import random_cut_case, random_limits, run_cut, run_whole
from tests.expression_strategies import Program, check, programs
from tests.strategies import FORMS, Case

pytestmark = pytest.mark.usefixtures("quiet_numpy")

VIEW = {view.code: view.name for view in ops.VIEWS}
KIND = {kind.name: kind.code for kind in ops.OPERANDS}
OP = {op.name: op.code for op in ops.OPS}

#: Text -> expression of x (12, 40, 33), m (33, 65) and v (33,).
EXPRESSIONS = {
    "linear": lambda x, m, v: x * 2.0 + 1.0,
    "flat": lambda x, m, v: x.reshape(-1) * 2.0 - 1.0,
    "column vector": lambda x, m, v: x + v,
    "row vector": lambda x, m, v: x * x[:, :, :1],
    "stored row vector": lambda x, m, v: x - x.max(-1, keepdims=True).eval(),
    "period": lambda x, m, v: x - x[3].reshape(40, 33).eval(),
    "periods": lambda x, m, v: x.reshape(3, 4, 40, 33) * x[:4].eval() + x[1].eval(),
    "reversed": lambda x, m, v: x[::-1, ::-1, ::-1] + x,
    "steps": lambda x, m, v: x[1::2, ::3, 2:-1] * 2.0,
    "transposed": lambda x, m, v: x.T + 1.0,
    "permuted": lambda x, m, v: x.transpose(1, 2, 0) - x.transpose(1, 2, 0)[::-1],
    "transposed and linear": lambda x, m, v: x.reshape(480, 33)[40:205].T + x.reshape(96, 165)[:33],
    "broadcast": lambda x, m, v: x[:, None, :, 1:2] * x[:, :5, None, :],
    "take": lambda x, m, v: nnk.take(x.reshape(480, 33), [7, -1, 250, 0, 7, 8, 9]) * 2.0,
    "row sum": lambda x, m, v: x.sum(-1),
    "column sum": lambda x, m, v: x.reshape(480, 33)[100:260].sum(0),
    "column softmax": lambda x, m, v: nnk.softmax(x.reshape(480, 33)[:160] + v, 0),
    "middle sum": lambda x, m, v: x.sum(1) + 1.0,
    "row maximum": lambda x, m, v: x.max(-1) + 1.0,
    "softmax": lambda x, m, v: nnk.softmax(x),
    "layer_norm": lambda x, m, v: nnk.layer_norm(x, v, v),
    "softmax of columns": lambda x, m, v: nnk.softmax(x.reshape(480, 33)[100:260].T),
    "sum of two views": lambda x, m, v: (x.reshape(480, 33)[::3].T * x.reshape(480, 33)[::-3].T).sum(-1),
    "mean of a turned tensor": lambda x, m, v: (x.reshape(480, 33)[160::-1, ::-1] + 1.0).mean(0),
    "a view and its maximum": lambda x, m, v: x.reshape(480, 33)[:99].T - x.reshape(480, 33)[:99].T.max(
        -1, keepdims=True),
    "product of a view in a sum": lambda x, m, v: (x.reshape(480, 33)[::3].T @ x.reshape(480, 33)[::3]).sum(0),
    "strided rows": lambda x, m, v: x[::-1, 1:, ::-1].sum(-1),
    "product": lambda x, m, v: x[0] @ m,
    "stack by one": lambda x, m, v: x @ m,
    "stack by stack": lambda x, m, v: x @ x.transpose(0, 2, 1),
    "transposed product": lambda x, m, v: m.T @ x[1].T,
    "stack of transposed": lambda x, m, v: x.transpose(0, 2, 1) @ x,
    "one by stack": lambda x, m, v: m.T @ x.transpose(0, 2, 1),
    "strided product": lambda x, m, v: x[::2, ::-1] @ m[::-1, 3:50],
    "batches broadcast": lambda x, m, v: x.reshape(3, 4, 40, 33)[:, :1] @ x.reshape(3, 4, 40, 33).transpose(0, 1, 3, 2),
    "batches of a slice": lambda x, m, v: x.reshape(3, 4, 40, 33)[:, 1:] @ x.reshape(3, 4, 40, 33)[:, 1:].transpose(
        0, 1, 3, 2),
    "square and itself": lambda x, m, v: x[0, :33] @ x[0, :33].T + x[0, :33],
    "tail": lambda x, m, v: nnk.gelu(x @ m[:, :33] + v) * x + x[:, :, :1],
    "attention of halves": lambda x, m, v: nnk.attention(x.astype("float16"), x[:6].astype("bfloat16"), x[:6], (
        x[0] @ x[1].T) > 0.0).astype("bfloat16"),
    "attention": lambda x, m, v: nnk.attention(x, x[::-1], x * 0.5),
    "grouped attention": lambda x, m, v: nnk.attention(x, x[:4], x[4:8], doc_ids=np.arange(40) // 7),
    "one mask": lambda x, m, v: nnk.attention(x, x, x, x[0].eval() @ x[1].T, doc_ids=x[0, :, 0] > 0.5),
    "causal attention": lambda x, m, v: nnk.attention(x, x, x, "causal", doc_ids=np.arange(40) // 9),
    "few keys": lambda x, m, v: nnk.attention(x, x[:4, :7], x[4:8, :7], "causal", alibi=x[0, 0, :12]),
    "slopes": lambda x, m, v: nnk.attention(x.reshape(2, 6, 40, 33), x.reshape(2, 6, 40, 33), x.reshape(2, 6, 40, 33), (
        x @ x.transpose(0, 2, 1)).reshape(2, 6, 40, 40), alibi=x[0, 0, :6]),
    "heads side by side": lambda x, m, v: nnk.attention(*[x.reshape(2, 40, 6, 33).transpose(0, 2, 1, 3)] * 3, "causal"),
    "a mask for each": lambda x, m, v: nnk.attention(x, x, x[:, :, :7], x @ x.transpose(0, 2, 1)),
}

#: Text -> product of x (3, 4, 3000) and w (3000,) in which a single row or column passes the limits.
LONG = {
    "rows by column": lambda x, w: x[0] @ w,
    "row by columns": lambda x, w: w @ x[0].T.eval(),
    "dot product": lambda x, w: x[0, 0] @ w * 2.0,
    "gram": lambda x, w: x[0] @ x[0].T,
    "stack": lambda x, w: nnk.gelu(x @ x.transpose(0, 2, 1)) + x[:, :, 5:6],
    "stack by one": lambda x, w: x @ x[1].T,
    "transposed": lambda x, w: x[0].T.eval().T @ x[1].T.eval(),
    "strided": lambda x, w: x[:, ::2, ::-1] @ x[:, 1:, :].transpose(0, 2, 1),
    "halves": lambda x, w: x.astype("float16") @ w.astype("bfloat16"),
    "to integers": lambda x, w: (x[0] @ w[:, None]).astype("int32"),
    "to halves": lambda x, w: (x[0] @ x[1].T).astype("float16"),
    "to bools": lambda x, w: x[0] @ x[1].T > 0.5,
}

LIMITS = {
    "buffer of 9000": {"buffer_bytes": 9000},
    "buffer of 9216, aligned to 256": {"buffer_bytes": 9216, "alignment": 256},
    "elements": {"elements": 1000},
    "few elements": {"elements": 200, "buffer_bytes": 9000, "alignment": 64},
}


def test_long_lines_are_cut_between_chunks(cpu, rng):
    """A reduction that gives the results of its chunks has parts, of rows and of columns."""
    small = CpuEngine()
    small.limits = dataclasses.replace(CPU_LIMITS, buffer_bytes=9 * REDUCE_CHUNK)
    x = rng.standard_normal((2, LONGEST_LINE + 5)).astype(np.float32)
    for build in (lambda t: t.sum(-1), lambda t: t.reshape(-1).sum(), lambda t: t.reshape(-1, 2).sum(0),
                  lambda t: t.reshape(-1, 2).max(0)):
        y = build(small.array(x))
        steps = small.schedule([y])[0].steps
        assert steps[0].launch.vector_out == CHUNKS_OUT
        assert len(steps[0].pieces) > 3
        assert nnk.digest(y) == nnk.digest(build(cpu.array(x)))


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_pieces_have_the_bits_of_the_whole(name, limits, cpu):
    small = CpuEngine()
    small.limits = dataclasses.replace(CPU_LIMITS, **LIMITS[limits])
    arrays = special_values((12, 40, 33), 1), special_values((33, 65), 2), special_values((33,), 3)
    want, got = (EXPRESSIONS[name](*map(engine.array, arrays)) for engine in (cpu, small))
    steps = small.schedule([got])[0].steps
    assert any(step.pieces for step in steps)
    before = small.dispatch_count
    assert nnk.digest(got) == nnk.digest(want)
    assert small.dispatch_count == before + sum(max(1, len(step.pieces)) for step in steps)


@pytest.mark.parametrize("limits", [{"buffer_bytes": 5000}, {"buffer_bytes": 4096, "alignment": 256}], ids=str)
@pytest.mark.parametrize("name", LONG)
def test_products_over_a_long_k(name, limits, cpu):
    """The sums wait in the output, in the window of the piece or in a copy of it."""
    small = CpuEngine()
    small.limits = dataclasses.replace(CPU_LIMITS, **limits)
    arrays = special_values((3, 4, 3000), 1), special_values((3000,), 2)
    want, got = (LONG[name](*map(engine.array, arrays)) for engine in (cpu, small))
    (step,) = (step for step in small.schedule([got])[0].steps if step.meta.form == "matmul")
    assert any(piece.goes_on for piece in step.pieces)
    assert not all(piece.ends for piece in step.pieces)
    assert nnk.digest(got) == nnk.digest(want)


def test_k_is_cut_into_few_parts(cpu):
    """No more than blocks of results need: every part reads the operands once for each block."""
    x, w = (leaf(cpu, object(), shape) for shape in ((64, 2**25), (2**25, 64)))
    limits = Limits("llvmpipe", 2**27 - 2**20, 16, bindings=32)
    (step,) = Scheduler(1).schedule([x @ w], limits)[0].steps
    assert len(step.pieces) == 128
    assert step.pieces[0].launch.mm_range == (0, 2**18)
    assert (step.pieces[1].goes_on, step.pieces[1].ends, step.pieces[-1].ends) == (True, False, True)


@pytest.mark.parametrize("kind", ["row", "batch"])
def test_folds_are_told_their_numbers(kind, cpu, rng):
    spec = folds.attention(5, 6, 40)
    number = Operand(KIND[kind], 0)
    last = spec.fold.finalize[-1]._replace(op=OP["add"], a=Operand(KIND["vec_state"], 0), b=number)
    spec = spec._replace(fold=spec.fold._replace(finalize=(last,)))
    launch = Launch(240, 40, ((), (), ()), spec.const_bits, mm_k=5, mm_batch=6, out_cols=5)
    case = Case(spec, launch, [rng.standard_normal(1200).astype(np.float32) for _ in range(3)])
    engine = CpuEngine()
    engine.limits = dataclasses.replace(CPU_LIMITS, buffer_bytes=800, elements=70)
    got, pieces = run_cut(engine, case)
    assert pieces > 12
    assert got[0].tolist() == run_whole(cpu, case)[0].tolist()


@pytest.mark.parametrize("form", [*FORMS, "fold"])
def test_random_kernels_in_pieces(form, cpu):
    """Every view, operand and form: small limits never change a bit."""
    cut = launches = 0
    for seed in range(CASES[form]):
        rand = random.Random(f"{form}:{seed}")
        case = random_cut_case(rand, form)
        if 0 in (case.launch.rows, case.launch.cols):
            continue
        engine = CpuEngine()
        engine.limits = random_limits(rand, case)
        with contextlib.suppress(LimitError):
            got, pieces = run_cut(engine, case)
            for mine, theirs in zip(got, run_whole(cpu, case), strict=True):
                assert mine.tolist() == theirs.tolist(), (seed, engine.limits)
            cut += pieces > 1
            launches += pieces
    assert cut > CASES[form] // 8
    assert launches > 5 * cut


@pytest.mark.parametrize("operand", ["keys", "vectors", "mask"])
def test_folds_over_strides_in_pieces(operand, cpu, rng):
    """Three times two heads whose axes are swapped in memory: a part has whole rows of heads, or lies in one."""
    queries = rng.standard_normal((3, 2, 50, 8)).astype(np.float32)
    heads = rng.standard_normal((2, 3, 5, 8)).astype(np.float32)
    mask = rng.standard_normal((2, 3, 1, 5)).astype(np.float32)

    def build(engine):
        q, swapped = engine.array(queries), engine.array(heads).swapaxes(0, 1)
        packed = engine.array(heads.swapaxes(0, 1))
        bias = engine.array(mask).swapaxes(0, 1) if operand == "mask" else None
        return nnk.attention(q, swapped if operand == "keys" else packed, swapped if operand == "vectors" else packed,
                             bias)

    whole = build(cpu).numpy()
    counts = set()
    for nbytes in range(1000, 9600, 400):
        engine = CpuEngine()
        engine.limits = Limits("small", nbytes, 4)
        (step,) = engine.schedule([build(engine)])[0].steps
        assert "strided" in {VIEW[view.kind] for view in step.spec.views}
        counts.add(len(step.pieces))
        assert build(engine).numpy().tobytes() == whole.tobytes()
    assert len(counts) > 3


@given(programs(max_calls=8), st.sampled_from((256, 1024, 4096)), st.sampled_from((60, 1000, 10**9)),
       st.sampled_from((4, 64)), st.sampled_from((4, 6, 18)))
@settings(max_examples=settings.default.max_examples * 2)
def test_programs_in_pieces(program: Program, nbytes, elements, alignment, bindings):
    engine = CpuEngine()
    engine.limits = Limits("small", nbytes, alignment, elements, bindings)
    with np.errstate(all="ignore"), contextlib.suppress(LimitError):
        check(program, engine)


def test_a_launch_that_fits_is_whole(cpu):
    x = cpu.array(np.zeros((4, 5), np.float32))
    limits = dataclasses.replace(CPU_LIMITS, buffer_bytes=80, elements=20)
    scheduler = Scheduler(1)
    assert scheduler.schedule([x + 1.0], limits)[0].steps[0].pieces == ()
    for smaller in ({"buffer_bytes": 79}, {"elements": 19}):
        step = scheduler.schedule([x + 1.0], dataclasses.replace(limits, **smaller))[0].steps[0]
        assert (len(step.pieces), step.words) == (2, b"")


def test_equal_limits_give_equal_pieces(cpu):
    x = cpu.array(special_values((50, 70), 1))
    limits = dataclasses.replace(CPU_LIMITS, buffer_bytes=1000, alignment=64)
    first, second = (Scheduler(1).schedule([x.T @ x], limits)[0] for _ in range(2))
    assert first == second


# ------------------------------------------------------------------------------------------------- addresses

#: Text -> view of a leaf, whose elements nobody has.
HUGE = {
    "2**31 + 7": ((2**31 + 7,), lambda t: t),
    "2**31 + 7 reversed": ((2**31 + 7,), lambda t: t[::-1]),
    "beyond 32 bits": ((2**33 + 5,), lambda t: t),
    "every third of more": ((3 * 2**32 + 5,), lambda t: t[2::3]),
    "wide rows": ((3, 2**32 + 9), lambda t: t),
    "rows": ((2**22 + 3, 1025), lambda t: t),
    "cut columns": ((2**22 + 3, 1025), lambda t: t[:, 1:-1]),
    "transposed": ((2**17 + 1, 2**16 + 3), lambda t: t.T),
    "permuted": ((2**16 + 1, 5, 4099), lambda t: t.transpose(1, 0, 2)),
    "permuted to the front": ((2**16 + 1, 4099, 5), lambda t: t.transpose(2, 0, 1)),
    "broadcast column": ((2**20 + 1, 1), lambda t: t.broadcast_to((2**20 + 1, 4099))),
    "broadcast row": ((4099,), lambda t: t.broadcast_to((2**20 + 1, 4099))),
    "broadcast stack": ((1031, 4099), lambda t: t.broadcast_to((1025, 1031, 4099))),
}

#: Form -> random kernels that are tried in pieces.
CASES = {"elementwise": 60, "reduce": 40, "columns": 40, "matmul": 60, "reduce a matmul": 24, "columns of a matmul": 24,
         "fold": 80}

DEVICES = {"cpu": CPU_LIMITS, "llvmpipe": Limits("llvmpipe", 2**27, 16, bindings=32),
           "gpu": Limits("gpu", 2**32 - 64, 64, bindings=32)}


def local_address(view, words, cols, row, col):
    """The element that a kernel reads at (row, col), in its 32-bit arithmetic."""
    words = [word & 0xFFFFFFFF for word in words]
    name = VIEW[view.kind]
    if name == "strided":
        rank, address, rest = view.param, words[0], row
        for axis in range(rank - 1, 0, -1):
            address += rest % words[axis] * words[rank + axis]
            rest //= words[axis]
        return (address + rest * words[rank] + col * words[2 * rank]) & 0xFFFFFFFF
    return {"linear": row * cols + col, "row_mod": row % (words or [1])[0] * cols + col, "row_broadcast": row,
            "col_broadcast": col}[name]


def global_address(window, local):
    """The element of the whole buffer behind an element of a window."""
    if window.rows == 1:
        assert 4 * local < window.nbytes
        return window.start // 4 + local
    width = window.row_bytes // 4
    assert local // width < window.rows
    return (window.start + local // width * window.step) // 4 + local % width


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", HUGE)
def test_addresses_of_huge_tensors(name, device, cpu):
    """Every piece reads and writes what the whole would: no 32-bit address starts over."""
    shape, view_of = HUGE[name]
    tensor = view_of(leaf(cpu, object(), shape))
    limits = DEVICES[device]
    (step,) = Scheduler(1).schedule([tensor * 2.0], limits)[0].steps
    pieces = step.pieces
    assert len(pieces) > 1 or device == "cpu" or 4 * tensor.size <= limits.buffer_bytes
    grid, (_, offset, strides) = tensor.shape, geometry_of(tensor)
    cols, written = grid[-1], 0
    rand = random.Random(1)
    for piece in pieces if len(pieces) < 300 else rand.sample(pieces, 300):
        launch, out = piece.launch, piece.output
        assert launch.rows * launch.cols <= limits.elements
        for window in (*piece.inputs, out):
            assert 0 < window.nbytes <= limits.buffer_bytes
        corners = [(0, 0), (launch.rows - 1, launch.cols - 1)]
        corners += [(rand.randrange(launch.rows), rand.randrange(launch.cols)) for _ in range(4)]
        for row, col in corners:
            flat = global_address(out, row * launch.cols + col)
            index = np.unravel_index(flat // cols, grid[:-1]) if grid[:-1] else ()
            want = offset + sum(int(i) * s for i, s in zip((*index, flat % cols), strides, strict=True))
            local = local_address(step.spec.views[0], launch.view_params[0], launch.cols, row, col)
            assert global_address(piece.inputs[0], local) == want
    for piece in pieces:
        written += piece.output.nbytes
    assert not pieces or written == 4 * tensor.size


@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_long_columns_whose_parts_jump_over_a_buffer(dtype, rng):
    """Sums of integers and positions take columns beyond one kernel as rows, which a large matrix stores first."""
    engine = CpuEngine()
    engine.limits = dataclasses.replace(CPU_LIMITS, buffer_bytes=400_000)
    a = rng.integers(-2**20, 2**20, (LONGEST_LINE + 4000, 7)).astype(dtype)
    for x, axis in ((engine.array(a), 0), (engine.array(a).T, 1)):
        assert np.array_equal(nnk.argmax(x, axis).numpy(), a.argmax(0))
        assert np.array_equal(nnk.argmin(x, axis).numpy(), a.argmin(0))
        assert dtype == "float32" or np.array_equal(nnk.sum(x, axis).numpy(), a.sum(0, dtype=np.int32))


@pytest.mark.parametrize("view_of", [lambda t: t.T, lambda t: t[::-1], lambda t: t[:, ::2**31 + 8]])
@pytest.mark.parametrize("dtype", ["uint8", "float16"])
def test_strides_over_small_elements_fit_a_word(dtype, view_of, cpu):
    """A buffer that a kernel binds may have more elements than a stride with a sign reaches."""
    tensor = view_of(leaf(cpu, object(), (2, 2**31 + 40), np.dtype(dtype)))
    (step,) = Scheduler(1).schedule([tensor * 2.0])[0].steps
    rank = step.spec.views[0].param
    assert VIEW[step.spec.views[0].kind] == "strided"
    assert len(step.pieces) > 1
    for piece in step.pieces:
        assert all(-2**31 <= stride < 2**31 for stride in piece.launch.view_params[0][rank:])
    assert sum(piece.output.nbytes for piece in step.pieces) == 4 * tensor.size


def test_pieces_cover_the_grid_once(cpu):
    x = cpu.array(np.zeros((21, 35), np.float32))
    limits = dataclasses.replace(CPU_LIMITS, buffer_bytes=300, alignment=64)
    for y in (x * 2.0, x.T * 2.0, x @ cpu.array(np.zeros((35, 9), np.float32)), x.sum(-1, keepdims=True)):
        seen = np.zeros(y.size, int)
        for piece in Scheduler(1).schedule([y], limits)[0].steps[-1].pieces:
            out = piece.output
            for row in range(out.rows):
                first = (out.start + row * out.step) // 4
                seen[first:first + out.row_bytes // 4] += 1
        assert (seen == 1).all()


def test_a_view_is_stored_where_its_kernel_cannot_be_cut(cpu):
    """One copy, for both kernels that need it, dropped behind the last one; none where lines can be cut."""
    x = cpu.array(special_values((30, 20), 5))
    small = dataclasses.replace(CPU_LIMITS, buffer_bytes=1000)
    view = x.T
    results = [nnk.softmax(view), nnk.softmax(view * 2.0)]
    schedule, order = Scheduler(1).schedule(results, small)
    copies = [step for step in schedule.steps if order[step.root] is view]
    assert len(copies) == 1
    assert len(schedule.steps) == 1 + len(Scheduler(1).schedule(results)[0].steps)
    readers = [step for step in schedule.steps if copies[0].root in step.inputs]
    assert len(readers) == 2
    assert [step for step in schedule.steps if copies[0].root in step.release] == [schedule.steps[-1]] == readers[-1:]
    columns = [nnk.softmax(x.T, 0)]
    assert len(Scheduler(1).schedule(columns, small)[0].steps) == len(Scheduler(1).schedule(columns)[0].steps)


# ------------------------------------------------------------------------------------------------- refusals

@pytest.mark.parametrize(("build", "text"), [
    (lambda x: x.reshape(-1).sum(), "a row that is reduced cannot be cut"),
    (lambda x: nnk.softmax(x.reshape(-1)), "a row that is reduced cannot be cut"),
    (lambda x: nnk.attention(x[:2], x, x), "the items of a fold cannot be cut")])
def test_what_cannot_be_cut_is_refused(build, text, cpu):
    x = cpu.array(np.zeros((20, 30), np.float32))
    limits = dataclasses.replace(CPU_LIMITS, device="small device", buffer_bytes=1000)
    text = f"at most 1000 in one kernel launch on small device, got 2400.*{text}"
    with pytest.raises(LimitError, match=text) as caught:
        Scheduler(1).schedule([build(x)], limits)
    assert (caught.value.limit, caught.value.requested, caught.value.maximum) == ("maxStorageBufferRange", 2400, 1000)


@pytest.mark.parametrize(("view", "words", "rows", "text"), [
    ("grouped_reduce_sum", (300,), 2, "a group of rows"), ("rotate_half", (600,), 600, "a block of rows"),
    ("row_gather", (), 2, "a column of a table")])
def test_what_a_view_reads_as_a_whole_is_named(view, words, rows, text, cpu):
    codes = {name: code for code, name in VIEW.items()}
    views = (ViewSpec(codes[view], 0, 1 if view == "row_gather" else 0), ViewSpec(codes["col_broadcast"]))
    spec = ExprSpec(1, (Instr(OP["copy"], 0, Operand(KIND["input"], 0)),), views)
    case = Case(spec, Launch(rows, 2, (words, ())), [np.zeros(1200, np.float32), np.zeros(2, np.float32)])
    engine = CpuEngine()
    engine.limits = dataclasses.replace(CPU_LIMITS, buffer_bytes=1000)
    with pytest.raises(LimitError, match=f"at most 1000 in one kernel launch on CPU, got .*: {text} cannot be cut"):
        run_cut(engine, case)


def test_kernels_that_read_numbers_say_so(cpu):
    spec = ExprSpec(1, (Instr(OP["copy"], 0, Operand(KIND["row"], 0)),), ())
    engine = CpuEngine()
    engine.limits = dataclasses.replace(CPU_LIMITS, elements=10)
    case = Case(spec, Launch(20, 2, ()), [])
    got, pieces = run_cut(engine, case._replace(launch=Launch(10, 2, ())))
    assert (pieces, got[0].tolist()) == (2, run_whole(cpu, case)[0][:20].tolist())
    with pytest.raises(LimitError, match="rows and columns whose numbers the kernel reads cannot be cut"):
        run_cut(engine, case)


def test_views_in_too_many_parts_are_refused(cpu, monkeypatch):
    """A permuted tensor whose every row reaches over the whole buffer."""
    monkeypatch.setattr(pieces, "MAX_PIECES", 20)
    tensor = cpu.array(np.zeros((8, 30, 4), np.float32)).transpose(1, 0, 2)
    limits = dataclasses.replace(CPU_LIMITS, device="small device", buffer_bytes=3000)
    with pytest.raises(LimitError, match=r"at most 20 launches for one kernel on small device, got more") as caught:
        Scheduler(1).schedule([tensor + 1.0], limits)
    assert caught.value.maximum == 20


def test_operands_become_inputs_of_their_own(cpu):
    x = cpu.array(np.zeros((5, 5), np.float32))
    for build, before, after in ((lambda x: x @ x.T, 1, 2), (lambda x: x @ x.T + x, 1, 3), (lambda x: x + 1.0, 1, 1),
                                 (lambda x: x @ (x[::-1]), 2, 2)):
        (kernel,) = partition([build(x)])
        lowered = lower(kernel)
        own = with_own_operands(lowered)
        assert (len(lowered.inputs), len(own.inputs), len(own.spec.views)) == (before, after, after)
        assert set(map(id, own.inputs)) == {id(x)}
        if own.spec.matmul is not None:
            assert own.spec.matmul.a_input != own.spec.matmul.b_input


@pytest.mark.parametrize("bindings", [18, 6, 5])
@pytest.mark.parametrize("count", range(11, 17))
def test_operands_of_their_own_have_room(count, bindings, cpu):
    """A product with as many inputs in its tail as the device or the format allow."""
    engine = CpuEngine()
    engine.limits = dataclasses.replace(CPU_LIMITS, buffer_bytes=1000, bindings=bindings)
    arrays = [special_values((20, 20), seed) for seed in range(count + 1)]

    def build(on):
        x = on.array(arrays[0])
        y = x @ x.T + x
        for array in arrays[1:]:
            y = y * on.array(array)
        return y

    y = build(engine)
    steps = engine.schedule([y])[0].steps
    assert max(len(step.inputs) for step in steps) <= engine.limits.inputs
    assert all(step.pieces for step in steps)
    assert nnk.digest(y) == nnk.digest(build(cpu))


def test_fits_counts_bytes_and_elements(cpu):
    (kernel,) = partition([cpu.array(np.zeros((4, 6), np.float32)).max(-1, keepdims=True)])
    lowered = lower(kernel)
    for limits, want in (({}, True), ({"buffer_bytes": 96}, True), ({"buffer_bytes": 95}, False),
                         ({"elements": 24}, True), ({"elements": 23}, False)):
        assert fits(lowered, dataclasses.replace(CPU_LIMITS, **limits)) is want
    assert math.prod(lowered.root.shape) == 4
