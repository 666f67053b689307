"""nnk.attention: its values against float64, its bits against the oracle, one kernel a kind, and its errors."""

import dataclasses

import numpy as np
import pytest

import nnk
from nnk.engines.cpu import CpuEngine
from nnk.errors import DTypeError, ExprError, LimitError, ShapeError
from nnk.expr.key import spec_key
from tests.oracle import attention as oracle
from tests.oracle.tensors import bits_of

#: Largest error of a result against float64, in units in the last place of the largest |v|: docs/numerics.md.
MOST_ULP = 4.6

pytestmark = pytest.mark.usefixtures("quiet_numpy")


def normal(*shape, seed=0):
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(np.float32)


def reference(q, k, v, mask=None, doc_ids=None, alibi=None, scale=None):
    """Attention by its definition, in float64."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    if q.ndim > 2:
        k, v = (np.repeat(x, q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    scores = q @ np.swapaxes(k, -1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    i, j = np.arange(q.shape[-2])[:, None], np.arange(k.shape[-2])
    if alibi is not None:
        scores = scores + np.asarray(alibi, np.float64)[:, None, None] * (j - i)
    if isinstance(mask, str):
        scores = np.where(j > i, -np.inf, scores)
    elif mask is not None:
        scores = np.where(mask, scores, -np.inf) if np.asarray(mask).dtype == bool else scores + mask
    if doc_ids is not None:
        ids = np.asarray(doc_ids)[..., None, :] if q.ndim > 2 else np.asarray(doc_ids)
        scores = np.where(ids[..., :, None] == ids[..., None, :], scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights @ v / weights.sum(-1, keepdims=True)


def ulps(found, wanted, v):
    """The largest error in units in the last place of the largest |v|."""
    return float(np.abs(found - wanted).max() / np.spacing(np.abs(v).max()))


CASES = {
    "plain": ((2, 3, 40, 16), (2, 3, 150, 16), (2, 3, 150, 24), {}),
    "matrices": ((7, 5), (9, 5), (9, 3), {}),
    "one query": ((2, 1, 8), (2, 300, 8), (2, 300, 8), {}),
    "one key": ((2, 5, 8), (2, 1, 8), (2, 1, 8), {}),
    "scale": ((2, 5, 8), (2, 6, 8), (2, 6, 8), {"scale": 0.3}),
    "causal": ((2, 150, 8), (2, 140, 8), (2, 140, 8), {"mask": "causal"}),
    "causal, more keys": ((2, 20, 8), (2, 140, 8), (2, 140, 8), {"mask": "causal"}),
    "grouped": ((2, 6, 20, 8), (2, 2, 33, 8), (2, 2, 33, 8), {}),
    "one key head": ((6, 20, 8), (1, 33, 8), (1, 33, 8), {"mask": "causal"}),
    "documents": ((2, 2, 20, 8), (2, 2, 20, 8), (2, 2, 20, 8), {"doc_ids": np.arange(40).reshape(2, 20) // 7}),
    "documents of all": ((2, 2, 20, 8), (2, 1, 20, 8), (2, 1, 20, 8), {"doc_ids": np.arange(20) // 7,
                                                                         "mask": "causal"}),
    "documents of matrices": ((20, 8), (20, 8), (20, 8), {"doc_ids": [0] * 9 + [5] * 11}),
    "alibi": ((2, 4, 20, 8), (2, 4, 33, 8), (2, 4, 33, 8), {"alibi": np.float32([0.5, 0.25, 0.125, 0.0625])}),
    "bools": ((2, 2, 17, 8), (2, 2, 33, 8), (2, 2, 33, 8), {"mask": np.arange(33) % 5 < np.arange(1, 18)[:, None]}),
    "additive": ((2, 2, 17, 8), (2, 2, 33, 8), (2, 2, 33, 8), {"mask": normal(17, 33, seed=9)}),
    "padding": ((2, 2, 17, 8), (2, 2, 33, 8), (2, 2, 33, 8), {"mask": np.arange(33) < np.array([[[[9]]], [[[33]]]])}),
    "whole mask": ((2, 2, 17, 8), (2, 2, 33, 8), (2, 2, 33, 8), {"mask": normal(2, 2, 17, 33, seed=9)}),
    "mask of heads": ((2, 2, 17, 8), (2, 2, 33, 8), (2, 2, 33, 8), {"mask": normal(2, 1, 17, 33, seed=9)}),
    "all": ((2, 20, 8), (2, 20, 8), (2, 20, 8), {"mask": normal(20, 20, seed=9), "doc_ids": np.arange(20) // 7,
                                                   "alibi": [0.5, 0.25], "scale": 0.1}),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_bits(name, cpu):
    *shapes, options = CASES[name]
    q, k, v = (normal(*shape, seed=n) for n, shape in enumerate(shapes))
    found = nnk.attention(*map(cpu.array, (q, k, v)), **options).numpy()
    error = ulps(found, reference(q, k, v, **options), v)
    print(f"{name}: {error:.2f} ulp of the largest |v|")
    assert found.shape == (*np.broadcast_shapes(q.shape[:-2], q.shape[:-2]), q.shape[-2], v.shape[-1])
    assert error < MOST_ULP
    assert np.array_equal(found.view(np.uint32), bits_of(oracle.attention(q, k, v, **options)))


def test_long_rows_stay_near_float64(cpu):
    """Many blocks: rescaling loses nothing that shows."""
    q, k, v = normal(16, 64), normal(3000, 64, seed=1), normal(3000, 64, seed=2)
    found = nnk.attention(*map(cpu.array, (q, k, v))).numpy()
    error = ulps(found, reference(q, k, v), v)
    print(f"3000 keys: {error:.2f} ulp of the largest |v|")
    assert error < MOST_ULP


def test_threads_change_no_bit():
    q, k, v = normal(3, 100, 16), normal(3, 200, 16, seed=1), normal(3, 200, 16, seed=2)
    results = []
    for threads in (1, 2, 3, 7):
        engine = CpuEngine(threads=threads)
        results.append(nnk.attention(*map(engine.array, (q, k, v)), "causal").numpy().tobytes())
    assert len(set(results)) == 1


def test_leading_axes_broadcast(cpu):
    q, k = normal(2, 1, 5, 4), normal(1, 1, 7, 4, seed=1)
    found = nnk.attention(*map(cpu.array, (q, k, k))).numpy()
    assert found.shape == (2, 1, 5, 4)
    one = nnk.attention(*map(cpu.array, (q[1], k[0], k[0]))).numpy()
    assert np.array_equal(found[1], one)


def test_views_and_lazy_operands(cpu):
    """Operands are read where they lie; what comes before and what follows are kernels of their own."""
    x = cpu.array(normal(2, 9, 3, 4))
    heads = x.transpose(0, 2, 1, 3)
    result = nnk.attention(heads * 2, heads, heads) + 1
    rows = np.ascontiguousarray(x.numpy().transpose(0, 2, 1, 3))
    same = nnk.attention(cpu.array(rows * 2), cpu.array(rows), cpu.array(rows)).numpy() + np.float32(1)
    assert np.array_equal(result.numpy(), same)
    flat = cpu.array(normal(24)).reshape(6, 4)
    assert len(cpu.schedule([nnk.attention(flat, flat, flat)])[0].steps) == 1


def test_one_kernel_whatever_the_sizes_and_the_scale(cpu):
    def key(shape, groups, **options):
        q, k = cpu.array(np.ones(shape, np.float32)), cpu.array(np.ones((shape[0], groups, 11, shape[3]), np.float32))
        (step,) = cpu.schedule([nnk.attention(q, k, k, **options)])[0].steps
        assert step.meta.form == "fold_matmul"
        return spec_key(step.spec)

    keys = {key((1, 4, 3, 8), 4), key((2, 6, 7, 16), 2), key((1, 1, 1, 1), 1, scale=5.0)}
    assert len(keys) == 1
    assert key((1, 4, 3, 8), 4, mask="causal") not in keys


def test_bool_masks_are_additive_ones(cpu):
    q, k = cpu.array(normal(5, 4)), cpu.array(normal(7, 4))
    allowed = np.arange(7) < np.arange(1, 6)[:, None]
    added = np.where(allowed, np.float32(0), np.float32(-np.inf))
    assert nnk.attention(q, k, k, allowed).numpy().tobytes() == nnk.attention(q, k, k, added).numpy().tobytes()
    assert nnk.attention(q, k, k, cpu.array(added)).numpy().tobytes() == \
        nnk.attention(q, k, k, allowed).numpy().tobytes()


def test_bool_tensors_integers_and_halves(cpu):
    """Bool tensors are masks, integer tensors document numbers, halves are read as float32."""
    x, limit = cpu.array(normal(7, 4)), cpu.array(normal(7, 7))
    found = nnk.attention(x, x, x, limit < 0.5).numpy()
    assert found.tobytes() == nnk.attention(x, x, x, limit.numpy() < 0.5).numpy().tobytes()
    numbers = np.array([0, 0, 0, 5, 5, 5, 5])
    found = nnk.attention(x, x, x, doc_ids=cpu.array(numbers)).numpy()
    assert found.tobytes() == nnk.attention(x, x, x, doc_ids=numbers.tolist()).numpy().tobytes()
    for dtype in ("float16", "bfloat16"):
        half = x.astype(dtype)
        result = nnk.attention(half, half, half, "causal")
        single = cpu.array(half.astype("float32").numpy())
        assert result.dtype == np.float32
        assert result.numpy().tobytes() == nnk.attention(single, single, single, "causal").numpy().tobytes()


def kernels(cpu, *tensors):
    """The kernels that compute tensors: (form, letters of the slots, halves)."""
    return [(step.meta.form, step.meta.slots, step.launch.halves) for step in cpu.schedule(list(tensors))[0].steps]


def test_halves_and_masks_need_no_kernel_of_their_own(cpu):
    x, y = (cpu.array(normal(2, 7, 4)).astype(dtype).eval() for dtype in ("float16", "bfloat16"))
    assert kernels(cpu, nnk.attention(x, y, x)) == [("fold_matmul", "", (0b101, 0b010))]
    assert kernels(cpu, nnk.attention(y, y, y, alibi=y[:, 0, 0].eval())) == [("fold_matmul", "", (0, 0b1111))]
    for dtype, letter in (("bool", "b"), ("uint8", "u"), ("int32", "w"), ("float16", "w")):
        mask = cpu.array(np.ones((7, 7), dtype))
        (kernel,) = kernels(cpu, nnk.attention(x, x, x, mask))
        assert kernel[1] == ("" if letter == "w" else f"www{letter}f")
        assert kernel[2] == (0b111 | (dtype == "float16") << 3, 0)
    numbers = cpu.array(np.arange(7))
    flat = x[0].eval()
    assert len(kernels(cpu, nnk.attention(flat, flat, flat, doc_ids=numbers))) == 1


def test_a_cast_to_halves_is_the_store_of_the_fold(cpu):
    x = cpu.array(normal(2, 7, 4))
    plain = nnk.attention(x, x, x, "causal").numpy()
    for dtype, halves in (("float16", (1 << 16, 0)), ("bfloat16", (0, 1 << 16))):
        result = nnk.attention(x, x, x, "causal").astype(dtype)
        assert kernels(cpu, result) == [("fold_matmul", "", halves)]
        assert result.numpy().tobytes() == plain.astype(result.dtype).tobytes()
    # Other uses of the result need its float32 values.
    attended = nnk.attention(x, x, x, "causal")
    half = attended.astype("float16")
    assert [form for form, _, _ in kernels(cpu, half, attended)] == ["fold_matmul", "elementwise"]
    assert [form for form, _, _ in kernels(cpu, half + 1)] == ["fold_matmul", "elementwise"]
    assert [form for form, _, _ in kernels(cpu, half, attended + 1)] == ["fold_matmul"] + ["elementwise"] * 2
    assert [form for form, _, _ in kernels(cpu, half, half + 1)] == ["fold_matmul", "elementwise"]
    more = half + 1
    nnk.eval(half, more)
    assert half.numpy().tobytes() == plain.astype(np.float16).tobytes()
    assert more.numpy().tobytes() == (plain.astype(np.float16).astype(np.float32) + 1).tobytes()


def packed(cpu, tensor):
    return cpu.array(tensor.numpy())


def test_operands_of_more_axes_than_a_view_has_are_copied(cpu):
    """Six axes of batches that lie apart, and the queries that share a key: a view has seven row dimensions in all."""
    whole = cpu.array(normal(3, 3, 3, 3, 3, 3, 4, 5))
    for heads, has_copies in ((2, False), (4, True)):
        q, k = cpu.array(normal(2, 2, 2, 2, 2, heads, 2, 3, seed=2)), whole[:2, :2, :2, :2, :2, :2, :, :3]
        y = nnk.attention(q, k, k)
        assert (kernels(cpu, y)[0][0] == "elementwise") is has_copies
        assert nnk.digest(y) == nnk.digest(nnk.attention(q, packed(cpu, k), packed(cpu, k)))


def test_strided_operands_and_broadcast_masks_need_no_copy(cpu):
    """The layouts that people have: heads behind tokens, parts of one projection, a cache that is longer than that."""
    qkv = cpu.array(normal(2, 9, 3, 4, 8))
    q, k, v = (qkv[:, :, part].transpose(0, 2, 1, 3) for part in range(3))
    cache = cpu.array(normal(2, 4, 30, 8, seed=5))
    wide = cpu.array(normal(30, 40, seed=6))
    shared = cpu.array(normal(2, 9, 2, 8, seed=7)).transpose(0, 2, 1, 3)
    documents = np.array([[0, 0, 0, 1, 1, 1, 1, 2, 2], [0, 1, 1, 1, 1, 1, 1, 1, 1]])
    slopes = cpu.array(np.float32([0.5, 0.25, 0.125, 0.0625]))

    def calls(of):
        return {"heads": nnk.attention(of(q), of(k), of(v)),
                "causal": nnk.attention(of(q), of(k), of(v), "causal", alibi=slopes).astype("float16"),
                "transposed keys": nnk.attention(of(q), of(k.swapaxes(-1, -2).swapaxes(-1, -2)), of(v)),
                "cache": nnk.attention(of(q), of(cache[:, :, 3:21]), of(cache[:, :, 3:21, ::-1])),
                "prefix": nnk.attention(of(q[0, 0]), of(cache[0, 0, :7]), of(cache[0, 0, :7])),
                "sizes": nnk.attention(of(q), of(k), of(qkv[:, :, 2, :, :3].transpose(0, 2, 1, 3))),
                "grouped": nnk.attention(of(q), of(shared), of(shared)),
                "one for all": nnk.attention(of(q), of(shared[:1, :1]), of(shared[:1, :1])),
                "padding": nnk.attention(of(q), of(k), of(v), np.arange(9) < np.array([4, 9])[:, None, None, None]),
                "mask": nnk.attention(of(q), of(k), of(v), wide[2:11, 5:14]),
                "line": nnk.attention(of(q), of(k), of(v), wide[2:3, 5:14]),
                "masks": nnk.attention(of(q), of(k), of(v), normal(2, 1, 9, 9)),
                "masks of heads": nnk.attention(of(q), of(k), of(v), normal(4, 9, 9) > 0),
                "documents": nnk.attention(of(q), of(k), of(v), "causal", documents),
                "more documents": nnk.attention(of(q), of(k), of(v), None, documents[1], slopes)}

    found, wanted = calls(lambda tensor: tensor), calls(lambda tensor: packed(cpu, tensor))
    for name, tensor in found.items():
        assert [form for form, _, _ in kernels(cpu, tensor)] == ["fold_matmul"], name
        assert tensor.numpy().tobytes() == wanted[name].numpy().tobytes(), name


def test_one_kernel_for_all_sizes_of_a_layout(cpu):
    """Offsets, sizes and strides are data of a launch, a head or a token alone is no special case."""
    def key(batch, tokens, heads, size):
        q, k, v = (cpu.array(normal(batch, tokens, 3, heads, size))[:, :, part].transpose(0, 2, 1, 3)
                   for part in range(3))
        (step,) = cpu.schedule([nnk.attention(q, k, v)])[0].steps
        return step.key

    assert len({key(2, 9, 4, 8), key(1, 9, 4, 8), key(3, 1, 2, 16), key(2, 5, 1, 4)}) == 1
    x = cpu.array(normal(9, 4))
    assert nnk.attention(x, x, x).astype("float32").numpy().shape == (9, 4)


def test_operands_in_buffers_beyond_a_kernel_are_copied(cpu):
    engine = CpuEngine()
    engine.limits = dataclasses.replace(engine.limits, buffer_bytes=3000)
    x = normal(3, 9, 4, 8)
    q, k, v = (engine.array(x)[part].transpose(1, 0, 2) for part in range(3))
    steps = engine.schedule([nnk.attention(q, k, v)])[0].steps
    assert [step.meta.form for step in steps] == ["elementwise"] * 3 + ["fold_matmul"]
    same = nnk.attention(*(cpu.array(part).transpose(1, 0, 2) for part in x)).numpy()
    assert nnk.attention(q, k, v).numpy().tobytes() == same.tobytes()
    # A copy can be cut at heads; a view has the items of one head all over its buffer.
    engine.limits = dataclasses.replace(engine.limits, buffer_bytes=1000)
    q, k, v = (engine.array(part).transpose(1, 0, 2) for part in x)
    steps = engine.schedule([nnk.attention(q, k, v)])[0].steps
    assert [step.meta.form for step in steps] == ["elementwise"] * 3 + ["fold_matmul"]
    assert len(steps[-1].pieces) > 1
    assert nnk.attention(q, k, v).numpy().tobytes() == same.tobytes()


def test_masked_rows_and_empty_axes(cpu):
    q, k = cpu.array(normal(3, 4)), cpu.array(normal(7, 4))
    mask = np.ones((3, 7), bool)
    mask[1] = False
    found = nnk.attention(q, k, k, mask).numpy()
    assert np.isnan(found).all(1).tolist() == [False, True, False]
    assert set(found[1].view(np.uint32).tolist()) == {0x7FC00000}
    nothing = cpu.array(np.zeros((0, 4), np.float32))
    assert nnk.attention(q, nothing, nothing).numpy().tolist() == [[0.0] * 4] * 3
    assert nnk.attention(nothing, k, k, "causal").numpy().shape == (0, 4)
    assert nnk.attention(q, k, k[:, :0]).numpy().shape == (3, 0)
    same = nnk.attention(q[:, :0], k[:, :0], k, scale=1.0).numpy()
    assert np.allclose(same, k.numpy().mean(0), atol=1e-6)


def test_special_values_follow_the_oracle(cpu):
    from nnk.engines.parity import special_values
    for mask in (None, "causal"):
        values = [special_values((2, 140, 8), seed) for seed in (1, 2, 3)]
        found = nnk.attention(*map(cpu.array, values), mask).numpy()
        assert np.array_equal(found.view(np.uint32), bits_of(oracle.attention(*values, mask)))
        assert mask is None or np.isfinite(found).any()


def test_explanation_names_the_fold(cpu):
    q = cpu.array(normal(5, 4))
    text = nnk.explain(nnk.attention(q, q, q, "causal")).kernels[0].spec
    for part in ("fold over 5, items up to the diagonal:", "matmul = in0 @ in1^T", "r0 = -inf at first",
                 "vec_state = r", "then:", "div(vec_state, r1)"):
        assert part in text, text


@pytest.mark.parametrize(("shapes", "options", "error", "text"), [
    (((5, 4), (2, 5, 4), (5, 4)), {}, ShapeError, "same number of axes"),
    (((4,), (4,), (4,)), {}, ShapeError, "at least 2"),
    (((5, 4), (5, 3), (5, 4)), {}, ShapeError, r"k \(\.\.\., hkv, m, d\)"),
    (((5, 4), (5, 4), (6, 4)), {}, ShapeError, r"v \(\.\.\., hkv, m, dv\)"),
    (((2, 5, 4), (2, 5, 4), (1, 5, 4)), {}, ShapeError, "hkv"),
    (((3, 5, 4), (2, 5, 4), (2, 5, 4)), {}, ShapeError, "multiple of the key heads for attention, got 3 and 2"),
    (((2, 5, 4), (0, 5, 4), (0, 5, 4)), {}, ShapeError, "multiple of the key heads"),
    (((2, 1, 5, 4), (3, 1, 5, 4), (3, 1, 5, 4)), {}, ShapeError, "broadcast"),
    (((5, 0), (5, 0), (5, 4)), {}, ShapeError, "head size above 0"),
    (((1, 1025), (1, 1025), (1, 4)), {}, LimitError, "at most 1024 for q and k"),
    (((1, 4), (1, 4), (1, 1025)), {}, LimitError, "at most 1024 for v"),
    (((5, 4), (5, 4), (5, 4)), {"mask": "full"}, ExprError, "'full'"),
    (((5, 4), (5, 4), (5, 4)), {"mask": np.ones((5, 4))}, ShapeError, "broadcast"),
    (((5, 4), (5, 4), (5, 4)), {"mask": np.ones(5)}, ShapeError, "at least 2 axes"),
    (((5, 4), (5, 4), (5, 4)), {"mask": np.ones((2, 5, 5))}, ShapeError, "mask of at least 2 axes that broadcasts"),
    (((5, 4), (6, 4), (6, 4)), {"doc_ids": np.zeros(5)}, ShapeError, "as many keys as queries"),
    (((5, 4), (5, 4), (5, 4)), {"doc_ids": np.zeros(4)}, ShapeError, "broadcast"),
    (((5, 4), (5, 4), (5, 4)), {"doc_ids": np.zeros((2, 5))}, ShapeError, "doc_ids that broadcast"),
    (((5, 4), (5, 4), (5, 4)), {"doc_ids": np.array(["a"] * 5)}, DTypeError, "numbers for doc_ids"),
    (((5, 4), (5, 4), (5, 4)), {"doc_ids": np.arange(5) + 2**24}, ExprError, "up to 16777216"),
    (((2, 5, 4), (2, 5, 4), (2, 5, 4)), {"alibi": [1.0]}, ShapeError, "one slope for each of 2 query heads")])
def test_errors(shapes, options, error, text, cpu):
    q, k, v = (cpu.array(np.ones(shape, np.float32)) for shape in shapes)
    with pytest.raises(error, match=text):
        nnk.attention(q, k, v, **options)
