"""The operators as functions, which take ``out=``: ``nnk.add(a, b)`` is ``a + b``."""

from __future__ import annotations

from typing import Any

from nnk.expr.node import Tensor, elementwise
from nnk.expr.out import stored

__all__ = ["add", "divide", "equal", "greater", "greater_equal", "less", "less_equal", "multiply", "not_equal",
           "subtract"]


def add(a: Any, b: Any, *, out: Tensor | None = None) -> Tensor:
    """Return a + b, elementwise."""
    return stored("add", elementwise("add", a, b), out)


def subtract(a: Any, b: Any, *, out: Tensor | None = None) -> Tensor:
    """Return a - b, elementwise."""
    return stored("subtract", elementwise("sub", a, b), out)


def multiply(a: Any, b: Any, *, out: Tensor | None = None) -> Tensor:
    """Return a * b, elementwise."""
    return stored("multiply", elementwise("mul", a, b), out)


def divide(a: Any, b: Any, *, out: Tensor | None = None) -> Tensor:
    """Return a / b, correctly rounded for floats, elementwise."""
    return stored("divide", elementwise("div", a, b), out)


def less(a: Any, b: Any, *, out: Tensor | None = None) -> Tensor:
    """Return whether a < b, elementwise."""
    return stored("less", elementwise("lt", a, b), out)


def less_equal(a: Any, b: Any, *, out: Tensor | None = None) -> Tensor:
    """Return whether a <= b, elementwise."""
    return stored("less_equal", elementwise("le", a, b), out)


def greater(a: Any, b: Any, *, out: Tensor | None = None) -> Tensor:
    """Return whether a > b, elementwise."""
    return stored("greater", elementwise("gt", a, b), out)


def greater_equal(a: Any, b: Any, *, out: Tensor | None = None) -> Tensor:
    """Return whether a >= b, elementwise."""
    return stored("greater_equal", elementwise("ge", a, b), out)


def equal(a: Any, b: Any, *, out: Tensor | None = None) -> Tensor:
    """Return whether a == b, elementwise."""
    return stored("equal", elementwise("eq", a, b), out)


def not_equal(a: Any, b: Any, *, out: Tensor | None = None) -> Tensor:
    """Return whether a != b, elementwise."""
    return stored("not_equal", elementwise("ne", a, b), out)
