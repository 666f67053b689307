"""``nnk digest``: one short hash over results, to be kept and compared later."""

from __future__ import annotations

import argparse
import runpy
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from nnk.cache.location import shown
from nnk.cli.output import print_json, print_table
from nnk.engines.base import Engine
from nnk.engines.parity import digest as digest_of
from nnk.engines.select import exact_engine
from nnk.engines.suite import anchors
from nnk.errors import FormatError, ModelError, ParityError
from nnk.expr.node import Tensor
from nnk.models.suite import model_outputs
from nnk.models.weights import load_safetensors

__all__ = ["digest"]

#: Named results; a result without a name has the name "".
Outputs = Mapping[str, Any]


def _arrays_of(path: str) -> Outputs:
    """Return the arrays of a NumPy file."""
    try:
        with open(path, "rb") as file:
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return {"": loaded}
            return {name: loaded[name] for name in loaded.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise FormatError(f"Expected a NumPy file at {shown(path)}, found none that can be read: {error}",
                          field=path) from error


def _outputs_of_script(path: str, engine: Engine) -> Outputs:
    """Run a Python file and return what its function ``outputs(engine)`` does."""
    try:
        function = runpy.run_path(path, run_name="nnk_digest").get("outputs")
        if not callable(function):
            raise ModelError(f"Expected a function outputs(engine) in {shown(path)}, found none")
        found = function(engine)
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(f"Expected {shown(path)} to run, got {type(error).__name__}: {error}") from error
    outputs = {str(name): value for name, value in found.items()} if isinstance(found, Mapping) else {"": found}
    for name, value in outputs.items():
        if not isinstance(value, (Tensor, np.ndarray, np.generic)):
            raise ModelError(f"Expected outputs(engine) of {shown(path)} to return tensors or arrays, got "
                             f"{type(value).__name__}{f' for {name!r}' if name else ''}")
    return outputs


_READERS: dict[str, Callable[[str], Outputs]] = {".npy": _arrays_of, ".npz": _arrays_of,
                                                 ".safetensors": load_safetensors}


def _outputs(arguments: argparse.Namespace) -> Outputs:
    if arguments.model is not None:
        return model_outputs(arguments.model, exact_engine(arguments.device, "nnk digest"))
    suffix = Path(arguments.file).suffix.lower()
    if suffix == ".py":
        return _outputs_of_script(arguments.file, exact_engine(arguments.device, "nnk digest"))
    if suffix not in _READERS:
        raise FormatError(f"Expected a file of {', '.join((*_READERS, '.py'))}, got {shown(arguments.file)}",
                          field=arguments.file)
    return _READERS[suffix](arguments.file)


def digest(arguments: argparse.Namespace) -> int:
    """Print the digest of every result and one over all; compare it with the expected one."""
    outputs = _outputs(arguments)
    what = arguments.model or arguments.file
    single = set(outputs) == {""}
    rows = {} if single else {name: digest_of(outputs[name]) for name in sorted(outputs)}
    total = digest_of(outputs[""] if single else outputs)
    expected = arguments.check
    if expected is None and arguments.model is not None:
        expected = anchors().digests.get(f"model {arguments.model}")
    if arguments.json:
        print_json({"results": rows, "digest": total, "expected": expected})
    else:
        print_table([*((value, name) for name, value in rows.items()), (total, what)])
    if expected is not None and expected.lower() != total:
        raise ParityError(f"Expected the digest {expected} of {what}, got {total}")
    return 0
