"""Beyond the limits of a device: the bits of the CPU engine, and no kernel more than the structure needs."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import nnk
from nnk.cache.store import KernelCache
from nnk.engines.gpu import GpuEngine
from nnk.engines.parity import ordinary_values, special_values
from nnk.generator.version import GENERATOR_VERSION

pytestmark = pytest.mark.usefixtures("quiet_numpy")


@pytest.fixture
def engine(vulkan: Any, tmp_path: Any) -> Any:
    """Return an engine with a cache of its own, whose limits a test may change."""
    opened = GpuEngine(vulkan.info, KernelCache(tmp_path / "kernels.nnk", generator_version=GENERATOR_VERSION))
    yield opened
    opened.close()


# ------------------------------------------------------------------------------------------------- large tensors

def beyond(engine: Any, width: int) -> tuple[int, int]:
    """Return the shape of a matrix with more bytes than the device binds: 160 MiB on llvmpipe."""
    rows = engine.limits.buffer_bytes // (4 * width) * 5 // 4 + 3
    return rows, width


#: Text -> (columns, expression): of a matrix that no kernel can bind as a whole.
LARGE = {
    "elementwise with a row and a column": (4099, lambda x: x * x[5] - x[:, 7:8]),
    "transposed": (4099, lambda x: x.T[:64] * 2.0),
    "rows": (4099, lambda x: x.max(-1)),
    "taken rows": (4099, lambda x: nnk.take(x, [0, 17, -1, 17]) * 2.0),
    "right operand": (512, lambda x: x[:2] @ x.T),
    "one row": (4099, lambda x: x.reshape(-1).sum()),
    "taken elements": (4099, lambda x: nnk.take(x.reshape(-1), [0, -1, 2**25 + 5, 17])),
}


@pytest.mark.parametrize("name", LARGE)
def test_tensors_beyond_the_buffer_range(name: str, engine: Any, cpu: Any) -> None:
    if engine.limits.buffer_bytes > 2**28:
        engine.limits = dataclasses.replace(engine.limits, buffer_bytes=2**27)
    width, build = LARGE[name]
    values = ordinary_values(beyond(engine, width), 1)
    assert values.nbytes > engine.limits.buffer_bytes
    y = build(engine.array(values))
    steps = engine.schedule([y])[0].steps
    assert any(step.pieces for step in steps)
    assert nnk.digest(y) == nnk.digest(build(cpu.array(values)))
    assert len(engine.kernels.compiled) <= len(steps) + 1, "a piece needs no kernel of its own; one is the self-test's"


#: The same for small limits: every kind of window, those that must be copied included.
SMALL = {
    "linear": lambda x, m: x * 2.0 + 1.0,
    "period": lambda x, m: x - x[3].reshape(40, 33).eval(),
    "transposed": lambda x, m: x.T + 1.0,
    "both": lambda x, m: x.reshape(480, 33)[40:205].T + x.reshape(96, 165)[:33],
    "take": lambda x, m: nnk.take(x.reshape(480, 33), [7, -1, 250, 0]) * 2.0,
    "softmax": lambda x, m: nnk.softmax(x),
    "softmax of columns": lambda x, m: nnk.softmax(x.reshape(480, 33).T),
    "stack by one": lambda x, m: x @ m,
    "stack by stack": lambda x, m: x @ x.transpose(0, 2, 1),
    "square and itself": lambda x, m: x[0, :33] @ x[0, :33].T + x[0, :33],
    "tail": lambda x, m: nnk.gelu(x @ m[:, :33]) * x + x[:, :, :1],
    "attention": lambda x, m: nnk.attention(x, x[:4], x[4:8]),
    "masked attention": lambda x, m: nnk.attention(x, x, x, x @ x.transpose(0, 2, 1)),
    "causal attention": lambda x, m: nnk.attention(x, x, x, "causal", alibi=x[0, 0, :12]),
    "bytes": lambda x, m: x.astype("uint8").eval().T[1:, ::-1] + 1,
    "halves": lambda x, m: (x.astype("float16").eval()[:, ::-1] * m[:, 0]).astype("bfloat16"),
    "product of bools": lambda x, m: (x[0] > 0.0) @ (m > 0.0),
}


@pytest.mark.parametrize("limits", [{"buffer_bytes": 9216, "alignment": 256}, {"elements": 999}], ids=str)
def test_small_limits(limits: dict[str, int], engine: Any, cpu: Any) -> None:
    arrays = special_values((12, 40, 33), 1), special_values((33, 65), 2)
    for name, build in SMALL.items():
        with engine.cache.deferred():
            engine.limits = dataclasses.replace(engine.limits, **limits)
            y = build(*map(engine.array, arrays))
            assert any(step.pieces for step in engine.schedule([y])[0].steps), name
            assert nnk.digest(y) == nnk.digest(build(*map(cpu.array, arrays))), name


def test_products_over_a_long_k(engine: Any, cpu: Any) -> None:
    """Single rows and columns beyond the limit, and at once a driver that would cut the loops of every part."""
    engine.limits = dataclasses.replace(engine.limits, buffer_bytes=2**16, alignment=256)
    arrays = special_values((2, 3, 70_000), 1), special_values((70_000, 5), 2)
    for build in (lambda x, w: nnk.gelu(x[0] @ w) + 1.0, lambda x, w: x @ x.transpose(0, 2, 1),
                  lambda x, w: x[1, :, ::-1] @ w[:, 1:], lambda x, w: x[1].astype("float16") @ w.astype("float16")):
        y = build(*map(engine.array, arrays))
        pieces = engine.schedule([y])[0].steps[-1].pieces
        assert any(piece.goes_on for piece in pieces)
        assert nnk.digest(y) == nnk.digest(build(*map(cpu.array, arrays)))


def test_narrow_results_of_a_long_k(vulkan: Any, cpu: Any) -> None:
    """Where a driver limits loops, no sum can wait in a half, a byte or a bool."""
    arrays = special_values((3, 20_000), 1), special_values((20_000, 5), 2)
    for build in (lambda x, w: (x @ w).astype("float16"), lambda x, w: x @ w > 0.5,
                  lambda x, w: nnk.sigmoid(x @ w).astype("uint8")):
        assert nnk.digest(build(*map(vulkan.array, arrays))) == nnk.digest(build(*map(cpu.array, arrays)))


# ------------------------------------------------------------------------------------------------- bindings, groups

@pytest.mark.parametrize(("count", "bindings"), [(5, 32), (16, 32), (17, 32), (33, 32), (64, 32), (17, 5), (33, 8)])
def test_many_inputs(count: int, bindings: int, engine: Any, cpu: Any) -> None:
    engine.limits = dataclasses.replace(engine.limits, bindings=bindings)
    arrays = [special_values((3, 7), seed) for seed in range(count)]

    def build(target: Any) -> Any:
        total = target.array(arrays[0])
        for n, array in enumerate(arrays[1:]):
            total = total * target.array(array) if n % 2 else total - target.array(array)
        return total

    y = build(engine)
    assert max(step.meta.binding_count for step in engine.schedule([y])[0].steps) <= bindings
    assert nnk.digest(y) == nnk.digest(build(cpu))


def test_few_workgroups(engine: Any, cpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """More groups than the device takes: kernels stride over their work."""
    counts = []
    real = engine.device.dispatch
    monkeypatch.setattr(engine.device, "dispatch", lambda *call: counts.append(call[-1]) or real(*call))
    engine.limits = dataclasses.replace(engine.limits, groups=3)
    x = special_values((300, 70), 1)
    for build in (lambda t: t * 2.0, lambda t: t.T * 2.0, lambda t: nnk.softmax(t), lambda t: t @ t.T):
        y = build(engine.array(x))
        assert engine.schedule([y])[0].steps[-1].group_count > 3
        assert nnk.digest(y) == nnk.digest(build(cpu.array(x)))
    assert set(counts) == {3}


# ------------------------------------------------------------------------------------------------- values

def test_two_hundred_scalars(engine: Any, cpu: Any) -> None:
    def build(target: Any) -> Any:
        y = target.array(special_values((4, 6), 1))
        for n in range(200):
            y = y * (n / 7 + 0.5) if n % 3 == 0 else y - (n + 0.25)
        return y
    assert nnk.digest(build(engine)) == nnk.digest(build(cpu))
    assert len(engine.kernels.compiled) < 30


def test_a_thousand_scalars_compile_twice_at_most(engine: Any) -> None:
    array = special_values((5, 9), 1)
    x = engine.array(array)
    before = len(engine.kernels.compiled)
    for n in range(1000):
        scalar = np.float32(n / 3 - 7)
        got = (x * scalar).numpy()
        assert np.array_equal(got, array * scalar, equal_nan=True)
    assert len(engine.kernels.compiled) - before <= 2


def test_shapes_compile_nothing(engine: Any, cpu: Any) -> None:
    """Sizes, offsets and strides are parameter words."""
    def results(target: Any, rows: int, columns: int) -> str:
        x = target.array(special_values((rows, columns), rows))
        return "".join(map(nnk.digest, (x * 2.0 + x[:, :1], x[::-1, ::-1] - x, nnk.softmax(x), x @ x.T)))
    results(engine, 4, 5)
    before = len(engine.kernels.compiled)
    for rows, columns in ((2, 3), (7, 64), (33, 65), (5, 1000), (300, 2)):
        assert results(engine, rows, columns) == results(cpu, rows, columns)
    assert len(engine.kernels.compiled) == before


def test_depth_of_ten_thousand(engine: Any, cpu: Any) -> None:
    def build(target: Any) -> Any:
        y = target.array(special_values((3, 5), 1))
        for _ in range(10_000):
            y = y * 0.75 + 0.5
        return y
    assert nnk.digest(build(engine)) == nnk.digest(build(cpu))
    assert len(engine.kernels.compiled) <= 4
