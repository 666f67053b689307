"""Expressions as text: "tanh(x*w+3)" becomes a tensor. A parser of its own grammar; nothing is ever evaluated.

Grammar: numbers, names, ``+ - * / @ **``, unary minus, comparisons, calls of the public functions with positional
arguments, and parentheses. Python's tokens and precedence; everything else of Python is refused by name.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from nnk.errors import ExprError, ShapeError
from nnk.expr import functions
from nnk.expr.node import Tensor, elementwise

__all__ = ["FUNCTIONS", "names_in", "parse_shapes", "tensor_of"]

FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    name: getattr(functions, name) for name in (
        "erf", "exp", "gelu", "layer_norm", "log", "matmul", "maximum", "mean", "minimum", "relu", "rms_norm", "rsqrt",
        "sigmoid", "silu", "softmax", "sqrt", "tanh", "where")}
FUNCTIONS |= {"abs": functions.absolute, "sum": lambda x: functions.reduce_sum(x, -1, keepdims=True),
              "max": lambda x: functions.reduce_max(x, -1, keepdims=True),
              "min": lambda x: functions.reduce_min(x, -1, keepdims=True),
              "gelu_tanh": lambda x: functions.gelu(x, "tanh"), "transpose": lambda x: x.swapaxes(-1, -2)}

_BINARY: dict[type[ast.AST], str] = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div"}
_COMPARE: dict[type[ast.AST], str] = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq",
                                      ast.NotEq: "ne"}


def _tree(text: str) -> ast.expr:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        where = f" at column {error.offset}" if isinstance(error, SyntaxError) and error.offset else ""
        raise ExprError(f'Expected an expression such as "tanh(x*w+3)", got {text!r}: it does not parse{where}',
                        op="parse") from error


def _refuse(node: ast.AST, text: str) -> ExprError:
    part = ast.get_source_segment(text, node) or type(node).__name__  # type: ignore[arg-type]
    return ExprError(f"Expected numbers, names, + - * / @ **, comparisons and calls of {', '.join(sorted(FUNCTIONS))}; "
                     f"got {part!r}", op="parse")


def names_in(text: str) -> list[str]:
    """Return the variables of an expression in order of first use."""
    tree = _tree(text)
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    found = {node.id: (node.lineno, node.col_offset) for node in reversed(list(ast.walk(tree)))
             if isinstance(node, ast.Name) and node.id not in called}
    return sorted(found, key=lambda name: found[name])


def _build(node: ast.expr, variables: dict[str, Tensor], text: str) -> Any:
    def value(part: ast.expr) -> Any:
        return _build(part, variables, text)

    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value
    if isinstance(node, ast.Name) and node.id in variables:
        return variables[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        operand = value(node.operand)
        return -operand if isinstance(node.op, ast.USub) else operand
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, ast.MatMult):
            return functions.matmul(value(node.left), value(node.right))
        if isinstance(node.op, ast.Pow):
            return functions.power(value(node.left), value(node.right))
        if type(node.op) in _BINARY:
            return elementwise(_BINARY[type(node.op)], value(node.left), value(node.right))
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARE:
        return elementwise(_COMPARE[type(node.ops[0])], value(node.left), value(node.comparators[0]))
    if (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS
            and not node.keywords):
        try:
            return FUNCTIONS[node.func.id](*map(value, node.args))
        except TypeError as error:
            raise ExprError(f"Wrong arguments for {node.func.id} in {text!r}: {error}", op=node.func.id) from error
    raise _refuse(node, text)


def tensor_of(text: str, variables: dict[str, Tensor]) -> Tensor:
    """Return the tensor that ``text`` describes over ``variables``.

    Raises
    ------
    ExprError
        If the text is not an expression of this grammar; ShapeError if its shapes do not fit.
    """
    try:
        result = _build(_tree(text), variables, text)
    except RecursionError as error:
        raise ExprError("Expected an expression of less depth", op="parse") from error
    if not isinstance(result, Tensor) or result.engine is None:
        raise ExprError(f"Expected an expression with at least one variable, got {text!r}", op="parse")
    return result


def parse_shapes(options: list[str]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of ``NAME=N,N`` options."""
    shapes: dict[str, tuple[int, ...]] = {}
    for option in options:
        name, _, sizes = option.partition("=")
        try:
            shape = tuple(int(size) for size in sizes.split(",") if size.strip())
        except ValueError:
            shape = (-1,)
        if not name.isidentifier() or not shape or any(size < 0 for size in shape):
            raise ShapeError(f"Expected --shape NAME=N,N (for example x=4,384), got {option!r}", op="parse")
        shapes[name] = shape
    return shapes
