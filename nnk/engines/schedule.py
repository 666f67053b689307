"""Schedules: what an engine runs for a graph, kept per graph structure.

A graph's signature holds its ops, shapes and constants, but no values of leaves; an equal signature means equal
kernels, launches and parameter words, so that a repeated expression is not lowered again.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nnk.engines.limits import CPU_LIMITS, Limits
from nnk.engines.pieces import Piece, fits, pieces_of, with_own_operands
from nnk.errors import LimitError
from nnk.expr.fuse import PlannedKernel, partition, topological
from nnk.expr.key import kernel_identity, kernel_key, spec_key
from nnk.expr.lower import lower
from nnk.expr.merge import merge
from nnk.expr.meta import KernelMeta, Launch, group_count_of, kernel_meta_of, pack_words
from nnk.expr.node import Tensor
from nnk.expr.spec import ExprSpec

__all__ = ["Schedule", "Scheduler", "Step"]

#: Schedules, and nodes of their graphs, kept before all are dropped: bounds on memory, not a policy.
MAX_SCHEDULES = 1024
MAX_NODES = 500_000


@dataclass(frozen=True, slots=True)
class Step:
    """One kernel of a schedule.

    ``inputs`` and ``root`` are positions in the graph's topological order. ``release`` lists the positions that no
    later step reads: dropping them there frees intermediates as early as the graph allows. ``more_roots`` are the
    positions of the outputs after the first, each as large. ``variant`` is that of the kernel's code
    (:data:`nnk.numerics.VARIANTS`). A step beyond the limits of the device has ``pieces``, which are launched instead
    of it; its own ``words`` are empty then.
    """

    key: str
    identity: bytes
    spec: ExprSpec
    meta: KernelMeta
    launch: Launch
    words: bytes
    group_count: int
    inputs: tuple[int, ...]
    root: int
    out_bytes: int
    release: tuple[int, ...]
    more_roots: tuple[int, ...] = ()
    variant: str = ""
    pieces: tuple[Piece, ...] = ()


@dataclass(frozen=True, slots=True)
class Schedule:
    """The kernels of a graph in order."""

    steps: tuple[Step, ...]

    @property
    def key(self) -> str:
        """16 hex digits that are equal for equal plans, whatever device, version and values are.

        FNV-1a over 64-bit little-endian words: the number of steps, then for each step its rows, columns, vector_out,
        precision signature and structure key, the number of its outputs and inputs, and for each input the place of
        the output that it is (exprspec 5.2), counted from 1 over all steps, or 0 for a tensor that was stored before.
        """
        state = 0xCBF29CE484222325
        made: dict[int, int] = {}
        words = [len(self.steps)]
        for step in self.steps:
            launch, structure = step.launch, int(spec_key(step.spec), 16)
            words += [launch.rows, launch.cols, int(launch.vector_out), step.meta.prec_sig, structure,
                      1 + len(step.more_roots), len(step.inputs)]
            words += [made.get(position, 0) for position in step.inputs]
            for position in (step.root, *step.more_roots):
                made[position] = len(made) + 1
        for byte in struct.pack(f"<{len(words)}Q", *words):
            state = (state ^ byte) * 0x100000001B3 % 2**64
        return f"{state:016x}"


def signature_of(order: Sequence[Tensor], outputs: Sequence[Tensor]) -> tuple[Any, ...]:
    """Return a hashable value that is equal for graphs with the same schedule."""
    position: dict[int, int] = {}
    rows: list[Any] = []
    for node in order:
        position[id(node)] = len(position)
        if node.storage is not None:
            rows.append((node.shape, node.dtype.char))
        else:
            rows.append((node.op, node.attrs, node.shape, node.dtype.char, *[position[id(arg)] for arg in node.args]))
    rows.append(tuple(position[id(node)] for node in outputs))
    return tuple(rows)


def _check_bindings(meta: KernelMeta, limits: Limits) -> None:
    """Check that a device binds all buffers of a kernel: a fold is never cut at fewer inputs."""
    if meta.binding_count > limits.bindings:
        raise LimitError(f"Expected at most {limits.bindings} storage buffers of a kernel on {limits.device}, got "
                         f"{meta.binding_count} (inputs, outputs, parameters) for one of the form {meta.form}; use "
                         f"another device", limit="storage buffers", requested=meta.binding_count,
                         maximum=limits.bindings)


class _UncutError(Exception):
    """A launch passes the limits and cannot be cut."""

    def __init__(self, kernel: PlannedKernel, error: LimitError) -> None:
        super().__init__(str(error))
        self.kernel, self.error = kernel, error


def _spanning_views(kernel: PlannedKernel, limits: Limits) -> list[Tensor]:
    """Return the views that a kernel reads of more than it binds; a kernel that only stores a view has none."""
    return [node for node in kernel.reached() if node.op == "view" and node.storage is None and node is not kernel.root
            and node.args[0].nbytes > limits.buffer_bytes]


class Scheduler:
    """Builds schedules and keeps them by signature. ``variant`` of the kernels: see :data:`nnk.numerics.VARIANTS`."""

    def __init__(self, generator_version: int, variant: str = "") -> None:
        self.generator_version = generator_version
        self.variant = variant
        self._schedules: dict[tuple[Any, ...], Schedule] = {}
        self._node_count = 0

    def schedule(self, outputs: Sequence[Tensor], limits: Limits = CPU_LIMITS) -> tuple[Schedule, list[Tensor]]:
        """Return the schedule of ``outputs`` and the nodes that its positions mean.

        Raises
        ------
        UnsupportedOpError
            If a part of the graph is not run by this version.
        LimitError
            If a launch passes ``limits`` and cannot be cut, or a kernel binds more buffers than they allow.
        """
        order = topological(outputs)
        signature = (limits, signature_of(order, outputs))
        found = self._schedules.get(signature)
        if found is None:
            found = self._build(outputs, order, limits)
            if len(self._schedules) >= MAX_SCHEDULES or self._node_count > MAX_NODES:
                self._schedules.clear()
                self._node_count = 0
            self._schedules[signature] = found
            self._node_count += len(order)
        return found, order

    def _build(self, outputs: Sequence[Tensor], order: Sequence[Tensor], limits: Limits) -> Schedule:
        """Return the schedule; views that keep a kernel from being cut are stored in row-major order first."""
        stored: frozenset[int] = frozenset()
        while True:
            try:
                return self._plan(outputs, order, limits, stored)
            except _UncutError as refused:
                more = stored.union(id(node) for node in _spanning_views(refused.kernel, limits))
                if more == stored:
                    raise refused.error from None
                stored = more

    def _plan(self, outputs: Sequence[Tensor], order: Sequence[Tensor], limits: Limits,
              stored: frozenset[int]) -> Schedule:
        position = {id(node): index for index, node in enumerate(order)}
        planned = partition(outputs, limits.inputs, limits.longest_k, stored)
        kernels = merge([kernel for kernel in planned if kernel.root.size], outputs)
        last_use: dict[int, int] = {}
        for index, kernel in enumerate(kernels):
            for node in kernel.reached():
                last_use[position[id(node)]] = index
        for node in outputs:
            last_use.pop(position[id(node)], None)
        released: list[list[int]] = [[] for _ in kernels]
        for where in sorted(last_use):
            released[last_use[where]].append(where)
        steps = []
        for kernel, release in zip(kernels, released, strict=True):
            lowered = lower(kernel, stored)
            is_whole = fits(lowered, limits)
            if not is_whole:
                lowered = with_own_operands(lowered)
            meta = kernel_meta_of(lowered.spec, lowered.prec_sig, lowered.slots)
            _check_bindings(meta, limits)
            try:
                pieces = () if is_whole else pieces_of(lowered, meta, limits)
            except LimitError as error:
                raise _UncutError(kernel, error) from error
            steps.append(Step(
                key=kernel_key(spec_key(lowered.spec), meta.prec_sig, self.generator_version, self.variant, meta.slots),
                identity=kernel_identity(lowered.spec, meta.prec_sig, self.generator_version, self.variant,
                                         meta.slots),
                spec=lowered.spec, meta=meta, launch=lowered.launch,
                words=b"" if pieces else pack_words(meta, lowered.launch),
                group_count=group_count_of(meta, lowered.launch),
                inputs=tuple(position[id(node)] for node in lowered.inputs), root=position[id(kernel.root)],
                out_bytes=kernel.root.nbytes, release=tuple(release),
                more_roots=tuple(position[id(node)] for node in lowered.more_roots),
                variant=self.variant, pieces=pieces))
        return Schedule(tuple(steps))
