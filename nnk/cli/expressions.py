"""``nnk explain`` and ``nnk parity``: what an expression runs, and whether its bits agree."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from nnk.cli.output import print_json, print_table
from nnk.cli.parser import names_in, parse_shapes, tensor_of
from nnk.engines.base import Engine
from nnk.engines.explain import explain as explain_tensor
from nnk.engines.parity import SUITE, compare, digest, special_values
from nnk.engines.select import cpu_engine, get_engine
from nnk.errors import ParityError, ShapeError
from nnk.expr.node import Tensor

__all__ = ["explain", "parity"]

_DEFAULT_SHAPE = (64, 64)


def _variables(text: str, shapes: dict[str, tuple[int, ...]], engine: Engine, seed: int) -> dict[str, Tensor]:
    names = names_in(text)
    unknown = sorted(set(shapes) - set(names))
    if unknown and shapes:
        raise ShapeError(f"Expected shapes of {', '.join(names) or 'no variables'}, got one of {', '.join(unknown)}",
                         op="parse")
    return {name: engine.array(special_values(shapes.get(name, _DEFAULT_SHAPE), seed + index))
            for index, name in enumerate(names)}


def explain(arguments: argparse.Namespace) -> int:
    """Print the kernels of an expression: key, spec, GLSL, meta data, cache hit or miss."""
    engine = get_engine(arguments.device)
    variables = _variables(arguments.expression, parse_shapes(arguments.shape), engine, 0)
    explanation = explain_tensor(tensor_of(arguments.expression, variables))
    if arguments.json:
        print_json(explanation.as_dict())
    else:
        print(explanation)
    return 0


def _check(text: str, shapes: dict[str, tuple[int, ...]], engine: Engine, seed: int) -> dict[str, Any]:
    results: list[np.ndarray[Any, Any]] = []
    for where in (cpu_engine(), engine):
        used = {name: shape for name, shape in shapes.items() if name in names_in(text)}
        results.append(tensor_of(text, _variables(text, used, where, seed)).numpy())
    row: dict[str, Any] = {"expression": text, "cpu": digest(results[0]), "device": digest(results[1]), "equal": True}
    try:
        compare(*results)
    except ParityError as error:
        row |= {"equal": False, "difference": str(error)}
    return row


def parity(arguments: argparse.Namespace) -> int:
    """Run expressions on the CPU and on a device and print digests and the first differing bits."""
    engine = get_engine(arguments.device)
    shapes = parse_shapes(arguments.shape)
    rows = [_check(text, shapes, engine, arguments.seed) for text in arguments.expressions or SUITE]
    if arguments.json:
        print_json({"device": engine.device_name, "results": rows})
    else:
        print_table([(row["cpu"], row["device"], "equal" if row["equal"] else "DIFFERENT", row["expression"])
                     for row in rows], ("cpu", str(engine), "", "expression"))
        for row in rows:
            if not row["equal"]:
                print(f"{row['expression']}: {row['difference']}")
    return 0 if all(row["equal"] for row in rows) else 1
