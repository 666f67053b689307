"""Expressions as text: "tanh(x*w+3)" becomes a tensor. A parser of its own grammar; nothing is ever evaluated.

Grammar: numbers, names, ``+ - * / @ ** // % & | ^ << >> ~``, signs, comparisons, calls of the functions in
:data:`FUNCTIONS` with positional arguments, and parentheses. Python's tokens and precedence; everything else of Python
is refused by name.
``sum``, ``max``, ``min``, ``mean``, ``argmax`` and ``argmin`` reduce the last axis and keep it with size 1; the name of
a dtype converts to it.
"""

from __future__ import annotations

import ast
import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

from nnk.errors import ExprError, ShapeError
from nnk.expr import functions, norms, reductions
from nnk.expr.attention import attention
from nnk.expr.dtypes import DTYPES
from nnk.expr.node import MAX_RANK, Tensor, constant, elementwise
from nnk.expr.positions import argmax, argmin
from nnk.expr.products import matmul

__all__ = ["FUNCTIONS", "names_in", "parse_shapes", "tensor_of"]

#: Limits of an expression: far above what people write, and low enough that no stage runs out of stack.
MAX_CHARACTERS = 10_000
MAX_DEPTH = 150

#: Most elements of a variable (1 GiB of float32).
MAX_ELEMENTS = 2 ** 28


class Function(NamedTuple):
    """A function of the grammar and how many arguments it takes."""

    call: Callable[..., Tensor]
    fewest: int = 1
    most: int = 1


def _last_axis(reduce: Callable[..., Tensor]) -> Callable[[Any], Tensor]:
    return lambda x: reduce(x, -1, keepdims=True)


def _converter(dtype: str) -> Callable[[Any], Tensor]:
    return lambda x: _tensor(x).astype(dtype)


FUNCTIONS: dict[str, Function] = {
    **{name: Function(getattr(functions, name)) for name in (
        "arccos", "arcsin", "arctan", "ceil", "cos", "erf", "exp", "exp2", "expm1", "floor", "isfinite", "isinf",
        "isnan", "log", "log10", "log1p", "log2", "logical_not", "reciprocal", "relu", "rsqrt", "sigmoid", "sign",
        "silu", "sin", "sqrt", "square", "tanh", "trunc")},
    **{name: Function(getattr(functions, name), 2, 2) for name in (
        "arctan2", "floor_divide", "fmod", "hypot", "logical_and", "logical_or", "logical_xor", "maximum", "minimum",
        "power", "remainder")},
    **{name: Function(_converter(name)) for name in DTYPES},
    "abs": Function(functions.absolute),
    "argmax": Function(_last_axis(argmax)),
    "argmin": Function(_last_axis(argmin)),
    "attention": Function(attention, 3, 4),
    "causal_attention": Function(lambda q, k, v: attention(q, k, v, "causal"), 3, 3),
    "clip": Function(functions.clip, 3, 3),
    "gelu": Function(lambda x: functions.gelu(x)),
    "gelu_tanh": Function(lambda x: functions.gelu(x, "tanh")),
    "layer_norm": Function(norms.layer_norm, 1, 3),
    "matmul": Function(matmul, 2, 2),
    "max": Function(_last_axis(reductions.reduce_max)),
    "mean": Function(_last_axis(reductions.mean)),
    "min": Function(_last_axis(reductions.reduce_min)),
    "rms_norm": Function(norms.rms_norm, 1, 2),
    "round": Function(functions.rint),
    "softmax": Function(lambda x: norms.softmax(x)),
    "sum": Function(_last_axis(reductions.reduce_sum)),
    "transpose": Function(lambda x: _tensor(x).swapaxes(-1, -2)),
    "where": Function(functions.where, 3, 3),
}

_BINARY: dict[type[ast.AST], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.BitAnd: "iand", ast.BitOr: "ior",
    ast.BitXor: "ixor", ast.LShift: "ishl", ast.RShift: "ishr"}
_BY_FUNCTION: dict[type[ast.AST], Callable[[Any, Any], Tensor]] = {
    ast.MatMult: matmul, ast.Pow: functions.power, ast.Mod: functions.remainder,
    ast.FloorDiv: functions.floor_divide}
_COMPARE: dict[type[ast.AST], str] = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq",
                                      ast.NotEq: "ne"}


def _shown(text: str) -> str:
    """Return ``text`` in quotes, the middle of a long one left out."""
    return repr(text if len(text) <= 60 else f"{text[:40]} ... {text[-15:]}")


def _depth_of(tree: ast.AST) -> int:
    depth, level = 0, [tree]
    while level:
        depth += 1
        level = [child for node in level for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
    return depth


def _tree(text: str) -> ast.expr:
    if len(text) > MAX_CHARACTERS:
        raise ExprError(f"Expected an expression of at most {MAX_CHARACTERS} characters, got {len(text)}", op="parse")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        where = f" at column {error.offset}" if isinstance(error, SyntaxError) and error.offset else ""
        raise ExprError(f'Expected an expression such as "tanh(x*w+3)", got {_shown(text)}: it does not parse{where}',
                        op="parse") from error
    if _depth_of(tree) > MAX_DEPTH:
        raise ExprError(f"Expected an expression of at most {MAX_DEPTH} levels, got {_shown(text)} with "
                        f"{_depth_of(tree)}; put long sums in parentheses", op="parse")
    return tree


def _refuse(node: ast.AST, text: str) -> ExprError:
    part = ast.get_source_segment(text, node) or type(node).__name__
    return ExprError(f"Expected numbers, names, + - * / @ ** // % & | ^ << >> ~, comparisons and calls of "
                     f"{', '.join(sorted(FUNCTIONS))}; got {_shown(part)}", op="parse")


def names_in(text: str) -> list[str]:
    """Return the variables of an expression in order of first use."""
    found: dict[str, tuple[int, int]] = {}
    for node in ast.walk(_tree(text.strip())):
        if isinstance(node, ast.Name) and node.id not in FUNCTIONS:
            place = (node.lineno, node.col_offset)
            found[node.id] = min(place, found.get(node.id, place))
    return sorted(found, key=lambda name: found[name])


def _tensor(value: Tensor | float) -> Tensor:
    return value if isinstance(value, Tensor) else constant(value)


def _number(value: int | float, text: str) -> int | float:
    try:
        float(value)
    except OverflowError as error:
        raise ExprError(f"Expected numbers that fit float64 in {_shown(text)}, got one with "
                        f"more than 308 digits", op="parse") from error
    return value


def _call(node: ast.Call, name: str, values: list[Any], text: str) -> Tensor:
    function = FUNCTIONS[name]
    if not function.fewest <= len(values) <= function.most:
        wanted = str(function.fewest) if function.fewest == function.most else f"{function.fewest} to {function.most}"
        raise ExprError(f"Expected {wanted} argument{'' if wanted == '1' else 's'} for {name}, got {len(values)} in "
                        f"{_shown(ast.get_source_segment(text, node) or text)}", op=name)
    return function.call(*values)


def _build(node: ast.expr, variables: dict[str, Tensor], text: str) -> Any:
    """Return the tensor of ``node``, or the number that it is."""
    def value(part: ast.expr) -> Any:
        return _build(part, variables, text)

    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
        return _number(node.value, text)
    if isinstance(node, ast.Name) and node.id in variables:
        return variables[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        operand = value(node.operand)
        return -operand if isinstance(node.op, ast.USub) else operand
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        return functions.invert(value(node.operand))
    if isinstance(node, ast.BinOp):
        if type(node.op) in _BY_FUNCTION:
            return _BY_FUNCTION[type(node.op)](value(node.left), value(node.right))
        if type(node.op) in _BINARY:
            return elementwise(_BINARY[type(node.op)], value(node.left), value(node.right))
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARE:
        return elementwise(_COMPARE[type(node.ops[0])], value(node.left), value(node.comparators[0]))
    if (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS
            and not node.keywords and not any(isinstance(part, ast.Starred) for part in node.args)):
        return _call(node, node.func.id, [value(part) for part in node.args], text)
    raise _refuse(node, text)


def tensor_of(text: str, variables: dict[str, Tensor]) -> Tensor:
    """Return the tensor that ``text`` describes over ``variables``.

    Raises
    ------
    ExprError
        If the text is not an expression of this grammar; ShapeError if its shapes do not fit.
    """
    text = text.strip()
    result = _build(_tree(text), variables, text)
    if not isinstance(result, Tensor) or result.engine is None:
        raise ExprError(f"Expected an expression with at least one variable, got {_shown(text)}", op="parse")
    return result


def parse_shapes(options: list[str]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of ``NAME=N,N`` options.

    Raises
    ------
    ShapeError
        If an option has another form, or the shape more axes or elements than a variable may have.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for option in options:
        name, _, sizes = option.partition("=")
        try:
            shape = tuple(int(size) for size in sizes.split(",") if size.strip())
        except ValueError:
            shape = (-1,)
        if not name.isidentifier() or not shape or any(size < 0 for size in shape):
            raise ShapeError(f"Expected --shape NAME=N,N (for example x=4,384), got {_shown(option)}", op="parse")
        if len(shape) > MAX_RANK or math.prod(shape) > MAX_ELEMENTS or max(shape) > MAX_ELEMENTS:
            raise ShapeError(f"Expected --shape with at most {MAX_RANK} axes and {MAX_ELEMENTS} elements, got "
                             f"{_shown(option)}", op="parse", shapes=(shape,))
        shapes[name] = shape
    return shapes
