"""``nnk embed``: sentence embeddings from the command line."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from nnk.cache.location import shown
from nnk.cli.output import print_json, print_table, progress_bar
from nnk.engines.base import Engine
from nnk.engines.cpu import CpuEngine
from nnk.engines.parity import digest
from nnk.engines.select import counts_of, get_engine
from nnk.errors import FormatError, ModelError
from nnk.models.minilm import MiniLM

__all__ = ["embed"]


def _lines_of(name: str) -> list[str]:
    """Return the lines of a UTF-8 file, without their ends."""
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ModelError(f"Expected a readable text file at {shown(name)}, found none: {reason}") from error
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(f"Expected UTF-8 text in {shown(name)}, found byte 0x{data[error.start]:02x} at offset "
                          f"{error.start}; convert the file to UTF-8", offset=error.start, field=name) from error
    lines = text.replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _texts_of(arguments: argparse.Namespace) -> list[str]:
    texts = list(arguments.texts)
    for text in texts:
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise FormatError(f"Expected UTF-8 text as an argument, found {text!r}; set a UTF-8 locale",
                              offset=error.start, field="TEXT") from error
    if arguments.file is not None:
        texts += _lines_of(arguments.file)
    return texts


def _engine_of(arguments: argparse.Namespace) -> Engine:
    engine = get_engine(arguments.device)
    if arguments.threads is not None and isinstance(engine, CpuEngine):
        return CpuEngine(arguments.threads)
    return engine


def _print_report(texts: list[str], vectors: np.ndarray[Any, Any], model: Any, seconds: float) -> None:
    names = [text.replace("\n", " ")[:32] or "(empty)" for text in texts]
    cosine = vectors @ vectors.T
    rows = [(f"{row}", *(f"{value: .3f}" for value in cosine[row]), names[row]) for row in range(len(texts))]
    print_table(rows, ("", *map(str, range(len(texts))), "text"))
    kernels = model.engine.kernels
    for key in kernels.compiled:
        print(f"compiled {key}")
    print(f"{len(texts)} texts in {seconds:.3f} s on {model.engine.device_name} ({model.engine.name}); "
          f"kernels: {len(kernels.compiled)} compiled, {len(kernels.hits)} hits; digest {digest(vectors)}")


def embed(arguments: argparse.Namespace) -> int:
    """Embed the texts of the command line and print them, their cosines or their digest."""
    texts = _texts_of(arguments)
    if not texts:
        print("nnk embed: expected a TEXT or --file with at least one line, got none", file=sys.stderr)
        return 2
    model = MiniLM(_engine_of(arguments))
    start = time.perf_counter()
    cache = getattr(model.engine, "cache", None)
    with contextlib.nullcontext() if cache is None else cache.deferred(), progress_bar("embedding") as progress:
        vectors = model.encode(texts, arguments.batch_size, progress)
    seconds = time.perf_counter() - start
    if not np.isfinite(vectors).all():
        raise ModelError("Expected finite embeddings, got NaN or infinity: the weights are damaged")
    if arguments.digest:
        print(digest(vectors))
    elif arguments.json:
        print_json({"embeddings": vectors.tolist(), "digest": digest(vectors), "device": model.engine.device_name,
                    "kernels": counts_of(model.engine), "seconds": seconds})
    else:
        _print_report(texts, vectors, model, seconds)
    return 0
