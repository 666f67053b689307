"""``nnk explain`` and ``nnk parity``: what an expression runs, and whether its bits agree."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from nnk import config
from nnk.cli.output import print_json, print_table
from nnk.cli.parser import names_in, parse_shapes, tensor_of
from nnk.engines.base import Engine
from nnk.engines.explain import explain as explain_tensor
from nnk.engines.parity import SUITE, compare, digest, special_values
from nnk.engines.schedule import Scheduler, Step
from nnk.engines.select import cpu_engine, exact_engine, get_engine
from nnk.engines.suite import CASES, anchors
from nnk.errors import ParityError, ShapeError
from nnk.expr.node import Tensor
from nnk.generator.version import GENERATOR_VERSION
from nnk.numerics import VARIANTS

__all__ = ["explain", "lowered_steps", "parity", "suite_results"]

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
    """Return the kernels of an expression, each once; no device is opened for it, so NNK_TIER alone names a tier."""
    tensor = _tensor(text, _shapes_of(shape_options, [text]), cpu_engine(), 0)
    variant = "" if config.get("tier") == "auto" else VARIANTS[config.get("tier")]
    steps, _ = Scheduler(GENERATOR_VERSION, variant).schedule([tensor])
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


def _row(name: str, cpu: np.ndarray[Any, Any], device: np.ndarray[Any, Any], anchor: str | None) -> dict[str, Any]:
    """Compare two results of one name with each other, and with the anchor if it has one."""
    row: dict[str, Any] = {"expression": name, "cpu": digest(cpu), "device": digest(device), "anchor": anchor,
                           "equal": True}
    if anchor is not None and anchor != row["cpu"]:
        row |= {"equal": False, "difference": f"the anchor is {anchor}"}
    try:
        compare(cpu, device)
    except ParityError as error:
        row |= {"equal": False, "difference": str(error)}
    return row


def suite_results(engine: Engine, shapes: dict[str, tuple[int, ...]] | None = None,
                  seed: int = 0) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Yield the name and the result of every part of the fixed suite on ``engine``."""
    for text in SUITE:
        yield text, _tensor(text, shapes or {}, engine, seed).numpy()
    for name, build in CASES.items():
        yield name, build(engine).numpy()


def _rows(arguments: argparse.Namespace, engine: Engine) -> Iterator[dict[str, Any]]:
    shapes = _shapes_of(arguments.shape, arguments.expressions or SUITE)
    if arguments.expressions:
        for text in arguments.expressions:
            cpu, device = (_tensor(text, shapes, where, arguments.seed).numpy() for where in (cpu_engine(), engine))
            yield _row(text, cpu, device, None)
        return
    # Anchors are those of the default shapes and values.
    known = {} if shapes or arguments.seed else anchors().digests
    pairs = zip(*(suite_results(where, shapes, arguments.seed) for where in (cpu_engine(), engine)), strict=True)
    for (name, cpu), (_, device) in pairs:
        yield _row(name, cpu, device, known.get(name))


def parity(arguments: argparse.Namespace) -> int:
    """Run expressions on the CPU and on a device; print digests and the first differing bits.

    Without expressions the fixed suite is run, and its results are also held to the anchors.
    """
    engine = exact_engine(arguments.device, "nnk parity")
    rows = list(_rows(arguments, engine))
    if arguments.json:
        print_json({"device": engine.device_name, "results": rows})
    else:
        shown = [name for name in ("cpu", "device", "anchor") if any(row[name] for row in rows)]
        print_table([(*(row[name] or "" for name in shown), "equal" if row["equal"] else "DIFFERENT",
                      row["expression"]) for row in rows],
                    (*({"device": str(engine)}.get(name, name) for name in shown), "", "expression"))
        for row in rows:
            if not row["equal"]:
                print(f"{row['expression']}: {row['difference']}")
    return 0 if all(row["equal"] for row in rows) else 1
