"""The engine protocol: from lazy tensors to values.

:meth:`Engine.evaluate` is the same for all engines: find the schedule, run its steps, turn the results into leaves.
An engine adds storage (``allocate``, ``upload``, ``download``) and ``run`` for one step.
"""

from __future__ import annotations

import abc
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nnk.engines.limits import CPU_LIMITS, Limits
from nnk.engines.pieces import run_pieces
from nnk.engines.region import active
from nnk.engines.schedule import Schedule, Scheduler, Step
from nnk.errors import DTypeError, ExprError, ShapeError
from nnk.expr.dtypes import BOOL, DTYPES, FLOAT32, INT32, dtype_of, info_of
from nnk.expr.node import Tensor, geometry_of, is_row_major, leaf
from nnk.generator.version import GENERATOR_VERSION

__all__ = ["Engine", "KernelCounts", "dtype_for"]

#: Kind of a NumPy dtype that tensors do not have -> the dtype that stands for it.
_WIDEST = {"f": FLOAT32, "i": INT32, "u": INT32, "b": BOOL}


@dataclass
class KernelCounts:
    """How an engine got its kernels: compiled in this process, or found in the cache; each key counts once."""

    compiled: list[str] = field(default_factory=list)
    hits: list[str] = field(default_factory=list)


def _check_range(low: int, high: int, wanted: np.dtype[Any]) -> None:
    """Check the least and the largest of some integers."""
    limits = np.iinfo(wanted)
    if low < limits.min or high > limits.max:
        worst = low if low < limits.min else high
        raise DTypeError(f"Expected integers from {limits.min} to {limits.max} for a tensor of {wanted}, got "
                         f"{worst if abs(worst) < 10**20 else f'one of {worst.bit_length()} bits'}; pass "
                         f"dtype=\"float32\" for numbers to compute with", op="array", dtypes=(wanted,))


def dtype_for(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of a tensor made of an array of ``dtype``, which is one of numbers."""
    return dtype_of(dtype.name, "nnk.array") if dtype.name in DTYPES else _WIDEST[dtype.kind]


def _typed(data: Any, source: np.ndarray[Any, Any], wanted: np.dtype[Any] | None) -> np.ndarray[Any, Any]:
    """Return the array that NumPy made of ``data``, with a dtype of numbers where some are integers beyond 64 bits.

    NumPy makes objects of them, or floats. For a float dtype they are floats; else they are too large.
    """
    if not source.size:
        return source
    if source.dtype == np.float64 and not isinstance(data, (np.ndarray, np.generic)) and np.abs(source).max() >= 2**63:
        objects = np.asarray(data, dtype=object)
        source = objects if all(isinstance(value, (int, np.integer)) for value in objects.flat) else source
    if source.dtype.kind != "O" or not all(isinstance(value, (int, float, np.integer)) for value in source.flat):
        return source
    if any(isinstance(value, float) for value in source.flat) or (wanted is not None and info_of(wanted).word != "int"):
        try:
            return source.astype(np.float64)
        except OverflowError as error:
            raise DTypeError("Expected numbers that a float can hold for nnk.array, got a larger integer", op="array",
                             dtypes=(source.dtype,)) from error
    _check_range(int(min(source.flat)), int(max(source.flat)), INT32 if wanted is None else wanted)
    return source.astype(np.int64)


def _array_of(data: Any, dtype: Any) -> np.ndarray[Any, Any]:
    """Return ``data`` as a C-contiguous array of a dtype of tensors that nobody else writes to."""
    wanted = None if dtype is None else dtype_of(dtype, "nnk.array")
    try:
        source = np.asarray(data)
    except ValueError as error:
        raise ShapeError(f"Expected rows of one length for nnk.array: {error}", op="array") from error
    source = _typed(data, source, wanted)
    if source.dtype.kind not in _WIDEST and source.dtype.name != "bfloat16":
        raise DTypeError(f"Expected numbers for nnk.array, got dtype {source.dtype}", op="array",
                         dtypes=(source.dtype,))
    wanted = dtype_for(source.dtype) if wanted is None else wanted
    if info_of(wanted).word == "int" and source.size:
        if source.dtype.kind not in "iub":
            raise DTypeError(f"Expected integers for a tensor of {wanted}, got dtype {source.dtype}; round them before "
                             f"nnk.array", op="array", dtypes=(source.dtype,))
        _check_range(int(source.min()), int(source.max()), wanted)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.array(source, dtype=wanted, order="C", copy=True)


class Engine(abc.ABC):
    """Runs expressions on one device.

    Attributes
    ----------
    name : str
        ``"cpu"`` or ``"vulkan:<index>"``.
    device_name : str
        What runs the kernels, for people.
    limits : Limits
        What one launch may ask of the device; larger ones are cut.
    kernels : KernelCounts
    numerics : str
        ``"exact"``: the bits of the contract. ``"fast"``: what the device's own functions give.
    """

    name: str
    device_name: str

    def __init__(self, limits: Limits = CPU_LIMITS) -> None:
        self.limits = limits
        self.numerics = "exact"
        self.kernels = KernelCounts()
        self.scheduler = Scheduler(GENERATOR_VERSION)
        self.dispatch_count = 0
        self._lock = threading.RLock()

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<nnk engine {self.name}: {self.device_name}>"

    # -------------------------------------------------------------------------------------- storage

    @abc.abstractmethod
    def allocate(self, nbytes: int) -> Any:
        """Return storage of ``nbytes`` bytes."""

    @abc.abstractmethod
    def upload(self, array: np.ndarray[Any, Any]) -> Any:
        """Return storage that holds the C-contiguous ``array``."""

    @abc.abstractmethod
    def download(self, storage: Any, out: np.ndarray[Any, Any]) -> None:
        """Copy the first ``out.nbytes`` bytes of ``storage`` to ``out``."""

    @abc.abstractmethod
    def run(self, step: Step, inputs: Sequence[Any], *outputs: Any) -> None:
        """Run, or queue, one kernel."""

    @abc.abstractmethod
    def window(self, storage: Any, start: int, nbytes: int) -> Any:
        """Return a part of ``storage``, from byte ``start`` on, as storage."""

    @abc.abstractmethod
    def copy_rows(self, source: Any, source_start: int, source_step: int, target: Any, target_start: int,
                  target_step: int, row_bytes: int, rows: int) -> None:
        """Copy ``rows`` runs of ``row_bytes`` bytes, one every so many bytes on either side, between storages."""

    def flush(self) -> None:  # noqa: B027 - engines without a queue have nothing to do
        """Start queued work."""

    def synchronize(self) -> None:  # noqa: B027 - engines without a queue have nothing to do
        """Wait until all queued work is done."""

    def close(self) -> None:  # noqa: B027 - engines without a device have nothing to release
        """Release the device. Tensors of this engine cannot be used afterwards."""

    # -------------------------------------------------------------------------------------- tensors

    def array(self, data: Any, dtype: Any = None) -> Tensor:
        """Return a tensor with a copy of ``data`` on this engine; see :func:`nnk.array`."""
        array = _array_of(data, dtype)
        bounds = (int(array.min()), int(array.max())) if array.dtype == INT32 and array.size else ()
        return leaf(self, self.upload(array), array.shape, array.dtype, bounds)

    def read(self, tensor: Tensor) -> np.ndarray[Any, Any]:
        """Return the values of an evaluated tensor as a new array."""
        if tensor.storage is None:
            raise ExprError("Expected values to be read after the region of nnk.record(), got a read inside of it",
                            op="record")
        out = np.empty(tensor.shape, tensor.dtype)
        if out.size:
            with self._lock:
                self.download(tensor.storage, out)
        return out

    # -------------------------------------------------------------------------------------- evaluation

    def schedule(self, tensors: Iterable[Tensor]) -> tuple[Schedule, list[Tensor]]:
        """Return what :meth:`evaluate` would run now, without running it."""
        with self._lock:
            return self.scheduler.schedule(_targets(self, tensors), self.limits)

    def evaluate(self, tensors: Iterable[Tensor]) -> None:
        """Compute ``tensors`` together: shared parts once. They become leaves, in a region when it ends."""
        region = active()
        if region is not None:
            region.add(self, tensors)
            return
        with self._lock:
            wanted = [tensor for tensor in tensors if tensor.storage is None]
            targets = _targets(self, wanted)
            if targets:
                self._run_steps(*self.scheduler.schedule(targets, self.limits))
            for node in targets:
                if node.storage is None:
                    assert node.size == 0, node
                    _become_leaf(node, self.allocate(0))
            for tensor in wanted:
                if tensor.storage is None:
                    self._settle_view(tensor)
            self.flush()

    def _settle_view(self, view: Tensor) -> None:
        """Turn a view whose base exists into a leaf: one that only reshapes shares the storage of its base.

        Every other view was a kernel of its own.
        """
        base, _, _ = geometry_of(view)
        assert _is_same_storage(view), view
        _become_leaf(view, base.storage, base.attrs)

    def _run_steps(self, schedule: Schedule, order: list[Tensor]) -> None:
        nodes: list[Any] = list(order)
        order.clear()
        for step in schedule.steps:
            roots = (step.root, *step.more_roots)
            inputs = [nodes[position].storage for position in step.inputs]
            outputs = [self.allocate(step.out_bytes) for _ in roots]
            if step.pieces:
                run_pieces(self, step, inputs, outputs)
            else:
                self.run(step, inputs, *outputs)
            self.dispatch_count += len(step.pieces) or 1
            for position, output in zip(roots, outputs, strict=True):
                _become_leaf(nodes[position], output)
            for position in step.release:
                nodes[position] = None


def _become_leaf(node: Tensor, storage: Any, attrs: tuple[Any, ...] = ()) -> None:
    # In this order: see geometry_of, which other threads may be in.
    node.storage = storage
    node.op = "leaf"
    node.args = ()
    node.attrs = attrs


def _is_same_storage(view: Tensor) -> bool:
    """Say whether a view is its base in another shape: no kernel has to move anything."""
    base, offset, strides = geometry_of(view)
    return base.size == view.size and is_row_major(view.shape, offset, strides)


def _targets(engine: Engine, tensors: Iterable[Tensor]) -> list[Tensor]:
    """Return what must be computed for ``tensors``: themselves, or the base of a view that only reshapes."""
    targets: dict[int, Tensor] = {}
    for tensor in tensors:
        if tensor.storage is not None:
            continue
        if tensor.engine is not engine:
            raise ExprError(f"Expected a tensor of engine {engine}, got one of {tensor.engine}", op="eval")
        target = tensor
        if tensor.op == "view" and _is_same_storage(tensor):
            target = tensor.args[0]
        if target.storage is None:
            targets[id(target)] = target
    return list(targets.values())
