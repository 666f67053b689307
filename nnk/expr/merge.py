"""Kernels that share a launch: elementwise work of one shape becomes one kernel with several outputs.

:mod:`nnk.expr.fuse` gives every stored value a kernel of its own. Here those kernels meet again whose grids are equal
and that only compute element by element (exprspec 5.2, R1): independent ones, and ones that read each other's results
at the same element, which then stay in a register. A value that nothing else reads is not stored at all.

The pass is deterministic: kernels are taken in order, and each joins the first one before it that it may join.
"""

from __future__ import annotations

import copy
import heapq
from collections.abc import Iterable, Sequence

from nnk import ops
from nnk.expr.fuse import ADDRESSING, MAX_MEMBERS, PlannedKernel, is_scalar
from nnk.expr.node import FLOAT32, Tensor

__all__ = ["merge"]

#: Kernels of one grid that a kernel is tried with, and kernels of a graph up to which the pass looks at all: bounds on
#: its time.
MAX_TRIED = 8
MAX_KERNELS = 2048


def _is_mergeable(kernel: PlannedKernel) -> bool:
    """Say whether a kernel is elementwise float32 work over float32 values that stores its whole grid."""
    return (bool(kernel.members) and not kernel.takes and kernel.root.shape == kernel.grid
            and all(node.op in ops.OP_BY_NAME and ops.OP_BY_NAME[node.op].kind != "reduce"
                    and all(value.dtype == FLOAT32 for value in (node, *node.args))
                    for node in kernel.members.values()))


def _union(first: PlannedKernel, second: PlannedKernel) -> PlannedKernel | None:
    """Return the kernel that computes both, or None beyond the limits. ``second`` ends last.

    An output more costs a buffer, as an input does, so that the limit on inputs holds for both together.
    """
    members = {**first.members, **second.members}
    # All outputs of a kernel are stored alike.
    if len(members) > MAX_MEMBERS or first.root.dtype != second.root.dtype:
        return None
    outside = {id(arg): arg for node in members.values() for arg in node.args if id(arg) not in members}
    scalars = [node for node in outside.values() if is_scalar(node)]
    union = copy.copy(second)
    union.members = members
    union.inputs = {key: 1 for key, node in outside.items() if not is_scalar(node)}
    union.consts = {node.attrs[0] for node in scalars if node.op == "const"}
    union.rparams = {id(node) for node in scalars if node.op == "rparam"}
    union.more_roots = (*first.more_roots, first.root, *second.more_roots)
    if (len(union.inputs) + len(union.more_roots) > second.max_inputs
            or len(union.consts) > ops.LIMITS["consts"] or len(union.rparams) > ops.LIMITS["rparams"]):
        return None
    return union


def _bits(numbers: Iterable[int]) -> int:
    return sum(1 << number for number in set(numbers))


class _Merge:
    """Sets of kernels are integers with one bit a kernel."""

    def __init__(self, kernels: Sequence[PlannedKernel]) -> None:
        self.kernels = list(kernels)
        self.owner = {id(root): index for index, kernel in enumerate(kernels) for root in kernel.roots}
        #: The kernels that each one reads from, and those whose results it reads through a view.
        self.reads: list[int] = []
        self.views: list[int] = []
        #: The kernels that must run before and after each one, and those that run with it.
        self.before: list[int] = []
        self.after = [0] * len(self.kernels)
        self.group: list[int] = []
        for index, kernel in enumerate(kernels):
            reached = kernel.reached()
            viewed = {id(arg) for node in reached if node.op in ADDRESSING and node.storage is None
                      for arg in node.args}
            self.reads.append(_bits(self.owner[id(node)] for node in reached if id(node) in self.owner) & ~(1 << index))
            self.views.append(_bits(self.owner[key] for key in viewed if key in self.owner) & ~(1 << index))
            before = self.reads[index]
            for earlier in _indices(before):
                before |= self.before[earlier]
            for earlier in _indices(before):
                self.after[earlier] |= 1 << index
            self.before.append(before)
            self.group.append(1 << index)

    def is_apart(self, first: int, second: int) -> bool:
        """Say whether a kernel outside lies between the two groups, or one reads the other through a view."""
        group = self.group[first]
        return bool(self.views[second] & group or self.before[first] >> second & 1
                    or self.before[second] & ~group & self.after[first])

    def join(self, first: int, second: int, union: PlannedKernel) -> None:
        """Make the two groups one."""
        group = self.group[first] | self.group[second]
        before = (self.before[first] | self.before[second]) & ~group
        after = (self.after[first] | self.after[second]) & ~group
        views = self.views[first] | self.views[second]
        for index in _indices(group):
            self.group[index], self.before[index], self.after[index] = group, before, after
            self.views[index], self.kernels[index] = views, union
        for index in _indices(before):
            self.after[index] |= group | after
        for index in _indices(after):
            self.before[index] |= group | before

    def run(self) -> None:
        open_groups: dict[tuple[int, ...], list[int]] = {}
        for index, kernel in enumerate(self.kernels):
            if not _is_mergeable(kernel):
                continue
            tried = open_groups.setdefault(kernel.grid, [])
            for first in tried:
                union = None if self.is_apart(first, index) else _union(self.kernels[first], kernel)
                if union is not None:
                    self.join(first, index, union)
                    break
            else:
                tried.append(index)
                del tried[:-MAX_TRIED]

    def order(self) -> list[int]:
        """Return one kernel of each group, in an order in which each finds its inputs stored."""
        first = [(group & -group).bit_length() - 1 for group in self.group]
        heads = sorted(set(first))
        waits: dict[int, set[int]] = {}
        for head in heads:
            needed = 0
            for index in _indices(self.group[head]):
                needed |= self.reads[index]
            waits[head] = {first[index] for index in _indices(needed & ~self.group[head])}
        users: dict[int, list[int]] = {}
        for head in heads:
            for other in waits[head]:
                users.setdefault(other, []).append(head)
        ready = [head for head in heads if not waits[head]]
        heapq.heapify(ready)
        order = []
        while ready:
            head = heapq.heappop(ready)
            order.append(head)
            for user in users.get(head, ()):
                waits[user].discard(head)
                if not waits[user]:
                    heapq.heappush(ready, user)
        assert len(order) == len(heads), "kernels wait for each other"
        return order


def _indices(bits: int) -> Iterable[int]:
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def _stored_only(kernels: Sequence[PlannedKernel], outputs: Iterable[Tensor]) -> None:
    """Drop the outputs that no other kernel reads and nobody asked for."""
    asked = {id(node) for node in outputs}
    read: dict[int, int] = {}
    for kernel in kernels:
        for node in kernel.reached():
            if id(node) not in kernel.members:
                read[id(node)] = read.get(id(node), 0) + 1
    for kernel in kernels:
        if kernel.more_roots:
            kernel.more_roots = tuple(root for root in kernel.more_roots if id(root) in asked or id(root) in read)


def merge(kernels: Sequence[PlannedKernel], outputs: Sequence[Tensor]) -> list[PlannedKernel]:
    """Return kernels that compute ``outputs`` as ``kernels`` do, fewer of them, in an order to run them in."""
    if not 1 < len(kernels) <= MAX_KERNELS:
        return list(kernels)
    pass_ = _Merge(kernels)
    pass_.run()
    merged = [pass_.kernels[index] for index in pass_.order()]
    _stored_only(merged, outputs)
    return merged
