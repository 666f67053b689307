"""Expressions as text: what they mean, and that nothing else gets in."""

from __future__ import annotations

import contextlib
import string
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import nnk
from nnk.cli.parser import FUNCTIONS, MAX_CHARACTERS, MAX_DEPTH, MAX_ELEMENTS, names_in, parse_shapes, tensor_of
from nnk.engines.parity import SUITE, digest
from nnk.errors import ExprError, ShapeError

HOSTILE = (
    "__import__('os')", "a.b", "x[0]", "lambda: x", "lambda x: x", "x.__class__", "x if x else x", "[x]", "{x}",
    "{x: x}", "(x, x)", "[y for y in x]", "f'{x}'", "'x'", "b'x'", "True * x", "x * False", "x + None", "...",
    "1j * x", "x and x", "not x",
    "~x", "x << 1", "x >> 1", "x | x", "x < x < x", "x is x", "x in x", "(x := x)", "await x", "*x",
    "tanh(*x)", "tanh(**x)", "tanh(x=x)", "(tanh)(x)(x)", "print(x)", "open(x)", "tanh", "x + tanh", "tanh(tanh)",
    "tanh()", "tanh(x, x)", "where(x, x)", "matmul(x)", "layer_norm(x, x, x, x)", "softmax(x, 0)", "max(x, x)")

BROKEN = ("", " ", "x +", "(x", "x)", "x x", "x;x", "x = 1", "x\n+ x", "#", "\0", "x\0", "import os", "yield x",
          "\ud800", "0777 * x", "'", "x * 1" + "0" * 5000, "(" * 1000, "-" * 5000, "+".join("x" * 4000))


@pytest.fixture
def values(rng: np.random.Generator) -> dict[str, np.ndarray[Any, Any]]:
    return {name: rng.standard_normal((3, 3)).astype(np.float32) for name in "xwb"}


@pytest.fixture
def variables(values: dict[str, np.ndarray[Any, Any]], cpu: Any) -> dict[str, Any]:
    return {name: cpu.array(array) for name, array in values.items()}


MEANINGS: dict[str, Any] = {
    "tanh(x*w+3)": lambda x, w, b: nnk.tanh(x * w + 3),
    "-x": lambda x, w, b: -x,
    "+x": lambda x, w, b: x,
    "-(-2) * x": lambda x, w, b: 2 * x,
    "x - w - b": lambda x, w, b: (x - w) - b,
    "x / w * b": lambda x, w, b: (x / w) * b,
    "x + w * b": lambda x, w, b: x + (w * b),
    "x @ w + b": lambda x, w, b: (x @ w) + b,
    "-x ** 2": lambda x, w, b: -(x ** 2),
    "x ** -3": lambda x, w, b: x ** -3,
    "x ** 0": lambda x, w, b: x ** 0,
    "x ** 2.0": lambda x, w, b: x ** 2,
    "x * 2 ** 3": lambda x, w, b: x * 8,
    "x ** w + 2 ** x": lambda x, w, b: x ** w + 2 ** x,
    "x // w % 3": lambda x, w, b: (x // w) % 3,
    "fmod(x, w) + remainder(x, w)": lambda x, w, b: nnk.fmod(x, w) + nnk.remainder(x, w),
    "x * (2 * 3)": lambda x, w, b: x * 6,
    "0x10 * x + 1_000": lambda x, w, b: 16 * x + 1000,
    "x * 1e-3": lambda x, w, b: x * 1e-3,
    "  x  # a note": lambda x, w, b: x,
    "x < w": lambda x, w, b: x < w,
    "x != 0": lambda x, w, b: x != 0,
    "where(x >= w, x, 1)": lambda x, w, b: nnk.where(x >= w, x, 1),
    "max(x) + min(x)": lambda x, w, b: nnk.max(x, -1, True) + nnk.min(x, -1, True),
    "argmax(x) + argmin(w)": lambda x, w, b: nnk.argmax(x, -1, True) + nnk.argmin(w, -1, True),
    "sum(x) + mean(x)": lambda x, w, b: nnk.sum(x, -1, True) + nnk.mean(x, -1, True),
    "abs(x)": lambda x, w, b: abs(x),
    "gelu(x) + gelu_tanh(x)": lambda x, w, b: nnk.gelu(x) + nnk.gelu(x, "tanh"),
    "round(x) + clip(x, -1, w)": lambda x, w, b: nnk.round(x) + nnk.clip(x, -1, w),
    "logical_or(isnan(x), log2(w) < sin(b))": lambda x, w, b: nnk.logical_or(nnk.isnan(x), nnk.log2(w) < nnk.sin(b)),
    "transpose(x)": lambda x, w, b: x.T,
    "logical_xor(x, bool(w > 0))": lambda x, w, b: nnk.logical_xor(x, w > 0),
    "(int32(x) & 3 | 4) ^ ~uint8(x) << 2 >> 1": lambda x, w, b: (x.astype("int32") & 3 | 4)
        ^ ~x.astype("uint8") << 2 >> 1,
    "int32(x) // 2 % 3": lambda x, w, b: x.astype("int32") // 2 % 3,
    "softmax(x @ transpose(w)) @ b": lambda x, w, b: nnk.softmax(x @ w.T) @ b,
    "layer_norm(x, 2, 1)": lambda x, w, b: nnk.layer_norm(x, 2, 1),
    "rms_norm(x) * matmul(w, b)": lambda x, w, b: nnk.rms_norm(x) * (w @ b),
    "x * exp(1)": lambda x, w, b: x * nnk.exp(1),
}


@pytest.mark.parametrize("text", MEANINGS)
def test_meaning(text: str, variables: dict[str, Any]) -> None:
    found = tensor_of(text, {name: variables[name] for name in names_in(text)})
    expected = MEANINGS[text](*variables.values())
    assert found.shape == expected.shape
    assert digest(found) == digest(expected)


def test_every_function_is_called_somewhere() -> None:
    texts = (*MEANINGS, *SUITE)
    assert [name for name in FUNCTIONS if not any(f"{name}(" in text for text in texts)] == []


def test_names_come_in_order_of_first_use() -> None:
    assert names_in("tanh(b * x) + w @ x - b") == ["b", "x", "w"]
    assert names_in("softmax(\u00e9 + _1)") == ["\u00e9", "_1"]
    assert names_in("1 + 2") == []


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_expression(text: str, cpu: Any) -> None:
    x = cpu.array(np.ones((2, 2), np.float32))
    with pytest.raises(ExprError) as caught:
        tensor_of(text, dict.fromkeys(["a", *names_in(text)], x))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", BROKEN, ids=range(len(BROKEN)))
def test_text_that_does_not_parse(text: str, cpu: Any) -> None:
    x = cpu.array(np.ones((2, 2), np.float32))
    with pytest.raises(ExprError, match="Expected an expression") as caught:
        tensor_of(text, {"x": x})
    assert len(str(caught.value)) < 300


def test_error_says_where(variables: dict[str, Any]) -> None:
    with pytest.raises(ExprError, match="at column 2"):
        tensor_of("x;w", variables)
    with pytest.raises(ExprError, match=r"got 'x\.b'"):
        tensor_of("   1 + x.b", variables)
    with pytest.raises(ExprError, match=r"Expected 3 arguments for where, got 2 in 'where\(x, w\)'"):
        tensor_of("1 + where(x, w)", variables)
    with pytest.raises(ExprError, match="Expected 1 to 3 arguments for layer_norm, got 0"):
        tensor_of("layer_norm()", variables)


@pytest.mark.parametrize("text", ["1 + 2", "exp(1)", "3", "2 ** 3"])
def test_no_variable(text: str) -> None:
    with pytest.raises(ExprError, match="at least one variable"):
        tensor_of(text, {})


def test_limits(variables: dict[str, Any]) -> None:
    deepest = "-" * (MAX_DEPTH - 1) + "x"
    assert digest(tensor_of(deepest, variables)) == digest(-variables["x"])
    with pytest.raises(ExprError, match=f"at most {MAX_DEPTH} levels"):
        tensor_of("-" + deepest, variables)
    with pytest.raises(ExprError, match=f"at most {MAX_CHARACTERS} characters"):
        names_in("x" * (MAX_CHARACTERS + 1))


def test_towers_of_powers_end(variables: dict[str, Any]) -> None:
    """Numbers are float32 constants, not Python integers that grow without end."""
    tower = "(" * 30 + "9" + " ** 64)" * 30
    assert tensor_of(f"0 * x + 1 / {tower}", variables).numpy().tolist() == [[0.0] * 3] * 3
    assert np.isinf(tensor_of("9 ** 9 ** 9 + x", variables).numpy()).all()
    with pytest.raises(ExprError, match="more than 308 digits"):
        tensor_of("x * 1" + "0" * 400, variables)


TOKENS = st.sampled_from([*FUNCTIONS, *"xwb0123(),+-*/@<>=.[]:'", "**", "==", "<=", " ", "1e9", "lambda", "if", "None"])


@given(st.one_of(st.lists(TOKENS, max_size=14).map("".join),
                 st.text(string.printable, max_size=20), st.text(max_size=10)))
def test_any_text_parses_or_is_refused(text: str) -> None:
    x = nnk.array(np.ones((2, 2), np.float32), engine="cpu")
    with contextlib.suppress(ExprError):
        tensor = tensor_of(text, dict.fromkeys(names_in(text), x))
        assert len(tensor.shape) <= 2


@st.composite
def grammar(draw: st.DrawFn, depth: int = 3) -> str:
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        return draw(st.sampled_from(["x", "w", "b", "2", "0.5", "-1", "1e30"]))
    part = grammar(depth - 1)
    if draw(st.booleans()):
        return f"({draw(part)} {draw(st.sampled_from(['+', '-', '*', '/', '@', '<', '==']))} {draw(part)})"
    name = draw(st.sampled_from(sorted(FUNCTIONS)))
    count = draw(st.integers(FUNCTIONS[name].fewest, FUNCTIONS[name].most))
    return f"{name}({', '.join(draw(part) for _ in range(count))})"


@given(grammar())
def test_what_the_grammar_allows_runs_or_is_refused(text: str) -> None:
    x = nnk.array(np.array([[1.0, -2.0], [0.0, 3.0]], np.float32), engine="cpu")
    with contextlib.suppress(ExprError):
        tensor = tensor_of(text, dict.fromkeys("xwb", x))
        assert tensor.numpy().shape == tensor.shape


@pytest.mark.parametrize(("options", "shapes"), [
    ([], {}), (["x=4,384"], {"x": (4, 384)}), (["x=4", "w=0,3"], {"x": (4,), "w": (0, 3)}),
    (["x=4,", "x=5"], {"x": (5,)}), (["x=1,1,1,1,1,1,1,1"], {"x": (1,) * 8}),
    ([f"x={MAX_ELEMENTS}"], {"x": (MAX_ELEMENTS,)})])
def test_shapes(options: list[str], shapes: dict[str, tuple[int, ...]]) -> None:
    assert parse_shapes(options) == shapes


@pytest.mark.parametrize("option", [
    "", "x", "x=", "x=,", "=3", "x=a", "x=1.5", "x=-1", "x=4,-4", "1=3", "x y=3", "x=4x4", "x=" + "9" * 5000,
    "x=0," + "9" * 30, "x=1,1,1,1,1,1,1,1,1", "x=100000,100000", f"x={MAX_ELEMENTS + 1}"])
def test_wrong_shapes(option: str) -> None:
    with pytest.raises(ShapeError, match="Expected --shape") as caught:
        parse_shapes([option])
    assert len(str(caught.value)) < 200
