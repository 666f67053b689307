"""Random tensor expressions: a program of calls that nnk and the oracle both run.

A program is drawn from a ``random.Random``, as in :mod:`tests.strategies`. Each call is a row of :data:`CALLS`; its
shape is known at once, because NumPy computes it while the program is drawn.
"""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

import nnk
from nnk import ops
from tests.oracle import arrays
from tests.oracle import tensors as oracle
from tests.strategies import random_floats

Random = random.Random
Floats = npt.NDArray[np.float32]

#: Most elements of a value, and of a product's k: large enough for tile borders, small enough for many examples.
MAX_ELEMENTS = 6000

_SIZES = (1, 1, 2, 3, 4, 5, 7, 8, 9, 16, 33)
_UNARY = tuple(op.name for op in ops.OPS if op.kind == "unary" and op.name not in ("copy", "round_f16", "round_bf16"))
_BINARY = tuple(op.name for op in ops.OPS if op.kind in ("binary", "compare"))


def _as_float(flags: Any) -> Any:
    """Programs compute with floats; tests/integers.py has bools."""
    return flags.astype("float32")


_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "div": lambda a, b: a / b,
    "max": lambda a, b: nnk.maximum(a, b), "min": lambda a, b: nnk.minimum(a, b),
    "pow": lambda a, b: nnk.power(a, b), "atan2": lambda a, b: nnk.arctan2(a, b), "fmod": lambda a, b: nnk.fmod(a, b),
    "remainder": lambda a, b: a % b,
    **{name: lambda a, b, name=name: _as_float(getattr(operator, name)(a, b))
       for name in ("lt", "le", "gt", "ge", "eq", "ne")}}
_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "neg": lambda a: -a, "abs": abs, "gelu_tanh": lambda a: nnk.gelu(a, "tanh"), "rint": lambda a: nnk.round(a),
    **{name: lambda a, name=name: _as_float(getattr(nnk, name)(a)) for name in ("isnan", "isinf", "isfinite")},
    **{name: lambda a, name=name: getattr(nnk, name)(a)
       for name in _UNARY if name not in ("neg", "abs", "gelu_tanh", "rint", "isnan", "isinf", "isfinite")}}

#: Name -> (nnk's call, the oracle's call), both over values and keyword parameters.
CALLS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    **{name: (_FUNCTIONS[name], lambda a, name=name: oracle.elementwise(name, a)) for name in _UNARY},
    **{name: (_OPERATORS[name], lambda a, b, name=name: oracle.elementwise(name, a, b)) for name in _BINARY},
    "relu": (lambda a: nnk.relu(a), oracle.relu),
    "power": (lambda a, n: a ** n, oracle.power),
    # Some exponents that are numbers are no powers: squares, roots and the like.
    "pow": (_OPERATORS["pow"], lambda a, b: oracle.power(a, b) if isinstance(b, float) else
            oracle.elementwise("pow", a, b)),
    "where": (lambda a, b, c: nnk.where(a, b, c), lambda a, b, c: oracle.elementwise("select", a, b, c)),
    "sum": (lambda a, **how: a.sum(**how), oracle.sum_of),
    "max_of": (lambda a, **how: a.max(**how), oracle.max_of),
    "min_of": (lambda a, **how: a.min(**how), oracle.min_of),
    "mean": (lambda a, **how: a.mean(**how), oracle.mean),
    "var": (lambda a, **how: a.var(**how), oracle.var),
    "any": (lambda a, **how: _as_float(a.any(**how)), oracle.any_of),
    "all": (lambda a, **how: _as_float(a.all(**how)), oracle.all_of),
    "softmax": (lambda a, axis: nnk.softmax(a, axis), oracle.softmax),
    "layer_norm": (lambda *v: nnk.layer_norm(*v), oracle.layer_norm),
    "rms_norm": (lambda *v: nnk.rms_norm(*v), oracle.rms_norm),
    "matmul": (lambda a, b: a @ b, oracle.matmul),
    "reshape": (lambda a, shape: a.reshape(shape), lambda a, shape: a.reshape(shape)),
    "transpose": (lambda a, axes: a.transpose(axes), lambda a, axes: a.transpose(axes)),
    "getitem": (lambda a, index: a[index], lambda a, index: a[index]),
    "take": (lambda a, indices, axis: nnk.take(a, indices, axis), lambda a, indices, axis: np.take(a, indices, axis)),
    "broadcast_to": (lambda a, shape: a.broadcast_to(shape), lambda a, shape: np.broadcast_to(a, shape)),
}
_MOVES = frozenset(("reshape", "transpose", "getitem", "take", "broadcast_to"))


@dataclass(frozen=True)
class Call:
    """One call. An argument is the number of an earlier value (int) or a Python float."""

    name: str
    args: tuple[int | float, ...]
    how: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        words = [f"v{arg}" if isinstance(arg, int) else repr(arg) for arg in self.args]
        return f"{self.name}({', '.join(words + [f'{k}={v!r}' for k, v in self.how.items()])})"


@dataclass
class Program:
    """Values v0, v1, ...: the leaves, then the result of each call; ``outputs`` are evaluated together."""

    leaves: list[Floats] = field(default_factory=list)
    steps: list[Floats | Call] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    early: list[int] = field(default_factory=list)

    def __repr__(self) -> str:
        lines = [f"v{n} = {step if isinstance(step, Call) else f'leaf {step.shape}'}"
                 for n, step in enumerate(self.steps)]
        return "\n".join((*lines, f"evaluate {self.early}, then {self.outputs}"))

    def expected(self) -> list[Floats]:
        """Return the oracle's value of every step."""
        values: list[Floats] = []
        for step in self.steps:
            values.append(step if not isinstance(step, Call) else _call(1, step, values))
        return values

    def tensors(self, engine: Any) -> list[Any]:
        """Return every step as a tensor of ``engine``, the values of ``early`` evaluated on the way."""
        values: list[Any] = []
        for number, step in enumerate(self.steps):
            values.append(_call(0, step, values) if isinstance(step, Call) else engine.array(step))
            if number in self.early:
                values[-1].eval()
        return values

    def run(self, engine: Any) -> list[npt.NDArray[np.float32]]:
        """Return the outputs, computed by ``engine`` in one evaluation."""
        values = self.tensors(engine)
        engine.evaluate([values[number] for number in self.outputs])
        return [values[number].numpy() for number in self.outputs]


def _call(side: int, call: Call, values: list[Any]) -> Any:
    args = [values[arg] if isinstance(arg, int) else arg for arg in call.args]
    return CALLS[call.name][side](*args, **call.how)


class _Drawer:
    """Draws one program, call by call."""

    def __init__(self, rand: Random, max_calls: int) -> None:
        self.rand = rand
        self.program = Program()
        self.values: list[Floats] = []
        for _ in range(rand.randint(1, 2)):
            self.leaf(self.shape())
        for _ in range(rand.randint(1, max_calls)):
            self.step()
        last = len(self.values) - 1
        self.program.outputs = sorted({last, *rand.sample(range(last + 1), min(rand.randrange(3), last))})
        if rand.randrange(4) == 0:
            self.program.early = [rand.randrange(last + 1)]

    def shape(self) -> tuple[int, ...]:
        axes = self.rand.choice((0, 1, 1, 2, 2, 2, 3, 3, 4, 5, 6, 7))
        shape = tuple(self.rand.choice(_SIZES if axes < 5 else (1, 2, 3)) for _ in range(axes))
        if axes and self.rand.randrange(25) == 0:
            at = self.rand.randrange(axes)
            shape = (*shape[:at], 0, *shape[at + 1:])
        if axes and self.rand.randrange(12) == 0:
            shape = (*shape[:-1], self.rand.choice((255, 256, 257, 520)))
        return shape if math.prod(shape) <= MAX_ELEMENTS else shape[:1] + shape[-1:]

    def leaf(self, shape: tuple[int, ...]) -> int:
        self.program.steps.append(random_floats(self.rand, math.prod(shape)).reshape(shape))
        self.values.append(self.program.steps[-1])
        return len(self.values) - 1

    def pick(self) -> int:
        """Return an earlier value, mostly a late one."""
        last = len(self.values) - 1
        return last if self.rand.randrange(3) else self.rand.randint(0, last)

    def call(self, name: str, *args: int | float, **how: Any) -> None:
        call = Call(name, args, how)
        value = np.asarray(_call(1, call, self.values), np.float32)
        if value.size <= MAX_ELEMENTS and value.ndim <= 8:
            self.program.steps.append(call)
            self.values.append(value)

    def partner(self, shape: tuple[int, ...]) -> int | float:
        """Return something that broadcasts with ``shape``: a number, an earlier value, or a new leaf."""
        choice = self.rand.randrange(4)
        if choice == 0:
            return float(self.rand.choice((0.0, -0.0, 1.0, 2.0, 0.1, -3.5, math.inf, math.nan, 1e-40)))
        fits = [n for n, value in enumerate(self.values) if _broadcasts(value.shape, shape)]
        if choice < 3 and fits:
            return self.rand.choice(fits)
        own = [self.rand.choice((1, 2, 3)) if size == 1 and self.rand.randrange(4) == 0 else
               1 if self.rand.randrange(3) == 0 else size for size in shape]
        return self.leaf(tuple(own[self.rand.randint(0, len(own)):] if self.rand.randrange(2) else own))

    def step(self) -> None:
        kinds = (self.unary, self.binary, self.binary, self.three, self.reduce, self.norm, self.product, self.move,
                 self.move)
        self.rand.choice(kinds)(self.pick())

    def unary(self, at: int) -> None:
        name = self.rand.choice((*_UNARY, "relu", "power"))
        how = {"n": self.rand.choice((-3, -1, 0, 1, 2, 3, 0.5, 0.7))} if name == "power" else {}
        self.call(name, at, **how)

    def binary(self, at: int) -> None:
        args = [at, self.partner(self.values[at].shape)]
        if self.rand.randrange(2):
            args.reverse()
        self.call(self.rand.choice(_BINARY), *args)

    def three(self, at: int) -> None:
        second = self.partner(self.values[at].shape)
        both = np.broadcast_shapes(self.values[at].shape, () if isinstance(second, float) else
                                   self.values[second].shape)
        args = [at, second, self.partner(both)]
        self.rand.shuffle(args)
        self.call("where", *args)

    def axes(self, shape: tuple[int, ...]) -> Any:
        if not shape or self.rand.randrange(4) == 0:
            return None
        if self.rand.randrange(2):
            return -1
        count = self.rand.randint(1, len(shape))
        chosen = self.rand.sample(range(len(shape)), count)
        axes = [axis - len(shape) if self.rand.randrange(2) else axis for axis in chosen]
        return axes[0] if count == 1 else tuple(axes)

    def reduce(self, at: int) -> None:
        shape = self.values[at].shape
        axis = self.axes(shape)
        name = self.rand.choice(("sum", "sum", "max_of", "min_of", "mean", "var", "any", "all"))
        if name in ("max_of", "min_of") and 0 in shape:
            return
        self.call(name, at, axis=axis, keepdims=self.rand.randrange(2) == 0)

    def norm(self, at: int) -> None:
        shape = self.values[at].shape
        if not shape:
            return
        kind = self.rand.randrange(3)
        if kind == 0:
            self.call("softmax", at, axis=-1 if self.rand.randrange(2) else self.rand.randrange(len(shape)))
            return
        parameters = [self.leaf(shape[-1:]) for _ in range(self.rand.randint(0, 3 - kind))]
        self.call("layer_norm" if kind == 1 else "rms_norm", at, *parameters)

    def product(self, at: int) -> None:
        shape = self.values[at].shape
        if not shape or math.prod(shape) > MAX_ELEMENTS:
            return
        if len(shape) > 1 and self.rand.randrange(4) == 0:
            # Both operands from one value: x @ x.T.
            axes = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
            self.call("transpose", at, axes=tuple(axes))
            last = len(self.values) - 1
            self.call("matmul", *((at, last) if self.rand.randrange(2) else (last, at)))
            return
        n = self.rand.choice(_SIZES)
        batch = [1 if self.rand.randrange(2) else size for size in shape[:-2]]
        batch = batch[self.rand.randint(0, len(batch)):]
        if self.rand.randrange(2):
            other = (*batch, shape[-1], n) if self.rand.randrange(5) else shape[-1:]
            args = (at, self.operand(other))
        else:
            inner = shape[-2] if len(shape) > 1 else shape[-1]
            args = (self.operand((*batch, n, inner) if self.rand.randrange(5) else (inner,)), at)
        self.call("matmul", *args)

    def operand(self, shape: tuple[int, ...]) -> int:
        """Return a new leaf of ``shape``, or a transposed view of one."""
        if len(shape) < 2 or self.rand.randrange(2):
            return self.leaf(shape)
        axes = list(range(len(shape)))
        self.rand.shuffle(axes)
        at = self.leaf(tuple(shape[axes.index(axis)] for axis in range(len(shape))))
        before = len(self.values)
        self.call("transpose", at, axes=tuple(axes))
        return before if len(self.values) > before else self.leaf(shape)

    def move(self, at: int) -> None:
        shape = self.values[at].shape
        kind = self.rand.randrange(5)
        if kind == 0:
            self.call("reshape", at, shape=self.other_shape(shape))
        elif kind == 1:
            axes = list(range(len(shape)))
            self.rand.shuffle(axes)
            self.call("transpose", at, axes=tuple(axes))
        elif kind == 2:
            self.call("getitem", at, index=self.index(shape))
        elif kind == 3 and shape:
            axis = self.rand.randrange(len(shape))
            count = self.rand.choice(((), (1,), (3,), (2, 2), (0,)))
            if shape[axis]:
                picked = np.random.default_rng(self.rand.getrandbits(32)).integers(-shape[axis], shape[axis], count)
                self.call("take", at, indices=picked, axis=axis)
        else:
            wide = [self.rand.choice((1, 2, 3)) if size == 1 else size for size in shape]
            self.call("broadcast_to", at, shape=(*[self.rand.choice((1, 2))] * self.rand.randrange(2), *wide))

    def other_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        size = math.prod(shape)
        if size == 0:
            return (*shape, 1)
        sizes: list[int] = []
        while size > 1 and len(sizes) < 5:
            divisors = [d for d in range(2, size + 1) if size % d == 0]
            sizes.append(self.rand.choice(divisors))
            size //= sizes[-1]
        sizes += [size] if size > 1 else []
        if self.rand.randrange(2):
            sizes.insert(self.rand.randint(0, len(sizes)), 1)
        self.rand.shuffle(sizes)
        if sizes and self.rand.randrange(4) == 0:
            sizes[self.rand.randrange(len(sizes))] = -1
        return tuple(sizes)

    def index(self, shape: tuple[int, ...]) -> tuple[Any, ...]:
        entries: list[Any] = []
        for size in shape:
            choice = self.rand.randrange(5)
            if choice == 0 and size:
                entries.append(self.rand.randrange(-size, size))
            elif choice < 3:
                bounds = [None if self.rand.randrange(2) else self.rand.randint(-size - 1, size + 1) for _ in range(2)]
                entries.append(slice(*bounds, self.rand.choice((None, 1, 2, -1, -2, -3))))
            else:
                entries.append(slice(None))
        if self.rand.randrange(3) == 0:
            entries.insert(self.rand.randint(0, len(entries)), None)
        if self.rand.randrange(3) == 0:
            cut = self.rand.randint(0, len(entries))
            if all(entry == slice(None) for entry in entries[cut:]):
                entries[cut:] = [Ellipsis]
        return tuple(entries)


def _broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return all(x == y or 1 in (x, y) for x, y in zip(reversed(a), reversed(b), strict=False))


def random_program(rand: Random, max_calls: int = 14) -> Program:
    """Return a program of at most ``max_calls`` random calls."""
    return _Drawer(rand, max_calls).program


def programs(max_calls: int = 14) -> st.SearchStrategy[Program]:
    """Random programs: small ones that shrink, and any others by seed."""
    randoms = st.randoms(use_true_random=False) | st.integers(0, 2**64 - 1).map(Random)
    return randoms.map(lambda rand: random_program(rand, max_calls))


def check(program: Program, engine: Any) -> None:
    """Compare shapes, dtypes and bits of the outputs with the oracle's."""
    expected = program.expected()
    for number, got in zip(program.outputs, program.run(engine), strict=True):
        want = expected[number]
        assert got.shape == want.shape, f"v{number}: shape {got.shape}, expected {want.shape}"
        assert got.dtype == np.float32
        step = program.steps[number]
        # What was only moved may be what the user gave, payloads of NaNs included.
        moved = not isinstance(step, Call) or step.name in _MOVES or step.how.get("n") == 1 or (
            step.name == "pow" and isinstance(step.args[1], float) and step.args[1] == 1.0)
        left = (oracle.bits_of(got) if moved else arrays.bits_of(got)).reshape(-1)
        right = oracle.bits_of(want).reshape(-1)
        differ = np.flatnonzero(left != right)
        assert differ.size == 0, (f"v{number} on {engine}: {differ.size} of {got.size} differ, first at {differ[0]}: "
                                  f"{left[differ[0]]:#x}, expected {right[differ[0]]:#x}")
