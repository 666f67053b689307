"""``nnk explain`` and ``nnk parity``: what an expression runs, and whether its bits agree."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from nnk.cli.output import print_json, print_table
from nnk.cli.parser import names_in, parse_shapes, tensor_of
from nnk.engines.base import Engine
from nnk.engines.explain import explain as explain_tensor
from nnk.engines.parity import SUITE, compare, digest, special_values
from nnk.engines.schedule import Step
from nnk.engines.select import cpu_engine, get_engine
from nnk.errors import ParityError, ShapeError
from nnk.expr.node import Tensor

__all__ = ["explain", "lowered_steps", "parity"]

_DEFAULT_SHAPE = (64, 64)


def _shapes_of(options: list[str], texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the options; each must name a variable of ``texts``."""
    shapes = parse_shapes(options)
    names = list(dict.fromkeys(name for text in texts for name in names_in(text)))
    unknown = sorted(set(shapes) - set(names))
    if unknown:
        raise ShapeError(f"Expected --shape for {' or '.join(names) or 'no variable'}, got one for "
                         f"{', '.join(unknown)}", op="parse")
    return shapes


def _tensor(text: str, shapes: dict[str, tuple[int, ...]], engine: Engine, seed: int) -> Tensor:
    variables = {name: engine.array(special_values(shapes.get(name, _DEFAULT_SHAPE), seed + index))
                 for index, name in enumerate(names_in(text))}
    return tensor_of(text, variables)


def lowered_steps(text: str, shape_options: list[str]) -> list[Step]:
    """Return the kernels of an expression, each once; no device is opened for it."""
    tensor = _tensor(text, _shapes_of(shape_options, [text]), cpu_engine(), 0)
    steps, _ = cpu_engine().schedule([tensor])
    return list({step.key: step for step in steps.steps}.values())


def explain(arguments: argparse.Namespace) -> int:
    """Print the kernels of an expression: key, spec, GLSL, meta data, cache hit or miss."""
    shapes = _shapes_of(arguments.shape, [arguments.expression])
    explanation = explain_tensor(_tensor(arguments.expression, shapes, get_engine(arguments.device), 0))
    if arguments.json:
        print_json(explanation.as_dict())
    else:
        print(explanation)
    return 0


def _check(text: str, shapes: dict[str, tuple[int, ...]], engine: Engine, seed: int) -> dict[str, Any]:
    results = [_tensor(text, shapes, where, seed).numpy() for where in (cpu_engine(), engine)]
    row: dict[str, Any] = {"expression": text, "cpu": digest(results[0]), "device": digest(results[1]), "equal": True}
    try:
        compare(*results)
    except ParityError as error:
        row |= {"equal": False, "difference": str(error)}
    return row


def parity(arguments: argparse.Namespace) -> int:
    """Run expressions on the CPU and on a device and print digests and the first differing bits."""
    texts = arguments.expressions or SUITE
    shapes = _shapes_of(arguments.shape, texts)
    engine = get_engine(arguments.device)
    rows = [_check(text, shapes, engine, arguments.seed) for text in texts]
    if arguments.json:
        print_json({"device": engine.device_name, "results": rows})
    else:
        print_table([(row["cpu"], row["device"], "equal" if row["equal"] else "DIFFERENT", row["expression"])
                     for row in rows], ("cpu", str(engine), "", "expression"))
        for row in rows:
            if not row["equal"]:
                print(f"{row['expression']}: {row['difference']}")
    return 0 if all(row["equal"] for row in rows) else 1
