"""The cut of a graph into kernels.

Nodes are visited consumers first. A node joins the one kernel that reads it when that kernel's form allows it;
otherwise it becomes the root of a kernel of its own and its result is stored. The rules are local and ordered, so
that equal graphs are always cut alike:

* A node that several kernels read, that is asked for, that a matmul takes as an operand, or that a view reads
  through, is a root.
* A kernel has one grid: the shape of its root, or, when the root is one value a line over a reduction, the shape
  that is reduced. A line is a row, or a column of a column reduction. A reduction joins when it reduces the lines of
  the grid and all others of the kernel reduce the same lines.
* A reduction to the results of chunks is always a root.
* A kernel holds at most one matmul, as the source of its tail, and never beside a reduction.
* A fold is a kernel of its own over stored tensors; only a cast of its result to a half joins it.
* Limits of the format (inputs, constants, registers) close a kernel; they never refuse an expression.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nnk import ops
from nnk.expr.meta import CHUNKS_OUT, VECTOR_OUT
from nnk.expr.node import CHUNKED, Shape, Tensor, check_operands

__all__ = ["ADDRESSING", "GRID_NUMBERS", "PlannedKernel", "is_chunked", "is_scalar", "partition", "topological"]

#: Ops that only say how to read a stored tensor.
ADDRESSING = frozenset(("view", "take"))

#: Nodes that are the number of a row or a column of the grid that they are read on.
GRID_NUMBERS = frozenset(("row", "col"))

#: Reduction -> 0 for one of rows, 1 for one of columns.
_REDUCES = {op.name: op.axis for op in ops.OPS if op.kind == "reduce"}

#: Ops that a half-precision store does by itself.
_ROUNDS = frozenset(("round_f16", "round_bf16"))

#: Instructions of one kernel: with one register each, register allocation can never run out.
MAX_MEMBERS = ops.LIMITS["regs"]

_WORD = 4
_MOST_OPERANDS = max(op.arity for op in ops.OPS)


def is_scalar(node: Tensor) -> bool:
    """Say whether no buffer holds ``node``: a constant or run-time parameter, or a number of the grid."""
    return node.storage is None and (node.op in ("const", "rparam") or node.op in GRID_NUMBERS)


def is_chunked(node: Tensor) -> bool:
    """Say whether ``node`` reduces each line to the results of its chunks (docs/numerics.md R7)."""
    return node.storage is None and node.op in _REDUCES and node.attrs == CHUNKED


def _shapes_of_lines(axis: int, grid: Shape) -> tuple[Shape, ...]:
    """Return the shapes that one value a line of ``grid`` may have: they broadcast to it."""
    if axis == 0:
        return ((*grid[:-1], 1),)
    return ((*(1,) * (len(grid) - 1), grid[-1]), grid[-1:])


def topological(outputs: Iterable[Tensor]) -> list[Tensor]:
    """Return the nodes below ``outputs``, arguments before users, stored tensors included, without recursion."""
    order: list[Tensor] = []
    done: set[int] = set()
    stack: list[tuple[Tensor, bool]] = [(node, False) for node in reversed(list(outputs))]
    while stack:
        node, ready = stack.pop()
        if ready:
            order.append(node)
            continue
        if id(node) in done:
            continue
        done.add(id(node))
        stack.append((node, True))
        if node.storage is None:
            check_operands(node, node.args)
            stack.extend((arg, False) for arg in reversed(node.args) if id(arg) not in done)
    return order


class PlannedKernel:
    """One kernel to be: its root, its grid, and the nodes computed inside of it."""

    def __init__(self, root: Tensor, grid: Shape, max_inputs: int, max_k: int) -> None:
        self.root = root
        #: Further results that are stored, of the root's shape; see :mod:`nnk.expr.merge`.
        self.more_roots: tuple[Tensor, ...] = ()
        self.grid = grid
        self.max_inputs = max_inputs
        self.max_k = max_k
        self.members: dict[int, Tensor] = {}
        #: Takes that are read in place; any other is stored by a kernel of its own.
        self.takes: set[int] = set()
        self.matmul: Tensor | None = None
        #: The fold whose result is stored, as it is or as the halves that the root rounds it to.
        self.fold: Tensor | None = root if root.op == "fold" else None
        #: 0 where the kernel reduces rows, 1 where it reduces columns, else -1.
        self.reduce_axis = -1
        #: Node, or place of an operand of the matmul -> input slots.
        self.inputs: dict[int, int] = {}
        self.consts: set[int] = set()
        self.rparams: set[int] = set()

    @property
    def roots(self) -> tuple[Tensor, ...]:
        """Every result that is stored, the root first."""
        return (self.root, *self.more_roots)

    @property
    def has_reduce(self) -> bool:
        """Whether the kernel reduces lines of its grid."""
        return self.reduce_axis >= 0

    @property
    def vector_out(self) -> int:
        """What a kernel stores (:class:`nnk.expr.meta.Launch`): the grid, a value a line, or a value a chunk of one."""
        if is_chunked(self.root):
            return CHUNKS_OUT
        return VECTOR_OUT if self.reduce_axis >= 0 and self.root.shape != self.grid else 0

    def _fits(self, node: Tensor) -> bool:
        if node.op == "matmul":
            # Sums that wait in the output need a word each.
            waits = self.root.dtype.itemsize == _WORD or node.args[0].shape[-1] <= self.max_k
            return self.matmul is None and self.reduce_axis < 0 and node.shape == self.grid and waits
        if node.op not in _REDUCES:
            return True
        axis = _REDUCES[node.op]
        is_line = node is self.root if is_chunked(node) else node.shape in _shapes_of_lines(axis, self.grid)
        return (self.matmul is None and self.reduce_axis in (-1, axis) and node.args[0].shape == self.grid
                and is_line)

    def absorb(self, node: Tensor) -> bool:
        """Take ``node`` in if form and limits allow it."""
        if not self._fits(node) or len(self.members) >= MAX_MEMBERS:
            return False
        inputs = {key: slots for key, slots in self.inputs.items() if key != id(node)}
        consts, rparams = set(self.consts), set(self.rparams)
        for position, arg in enumerate(node.args):
            if is_scalar(arg):
                if arg.op == "const":
                    consts.add(arg.attrs[0])
                elif arg.op == "rparam":
                    rparams.add(id(arg))
            elif node.op == "matmul":
                # No input that it shares with others: where a launch is cut, operands are inputs of their own.
                inputs[-1 - position] = 1
            elif id(arg) not in self.members:
                inputs[id(arg)] = 2 if self._reads_takes and arg.op == "take" and arg.storage is None else 1
        if (sum(inputs.values()) > self.max_inputs or len(consts) > ops.LIMITS["consts"]
                or len(rparams) > ops.LIMITS["rparams"]):
            return False
        self.inputs, self.consts, self.rparams = inputs, consts, rparams
        self.members[id(node)] = node
        if node.op == "matmul":
            self.matmul = node
        self.reduce_axis = max(self.reduce_axis, _REDUCES.get(node.op, -1))
        return True

    def absorb_fold(self, node: Tensor) -> bool:
        """Take the fold ``node`` in if all that the kernel does is to round it for the store."""
        if self.root.op not in _ROUNDS or self.root.args[0] is not node:
            return False
        self.fold = node
        self.members[id(node)] = node
        return True

    @property
    def _reads_takes(self) -> bool:
        """Whether there is room for two inputs for each operand of an instruction."""
        return self.max_inputs >= 2 * _MOST_OPERANDS

    def reads_take(self, node: Tensor) -> bool:
        """Say whether a kernel with this grid can read the take ``node`` in place: one index a row."""
        table = node.args[0]
        return self._reads_takes and node.shape == self.grid and table.ndim == 2 and self.matmul is None

    def reached(self) -> list[Tensor]:
        """Return the nodes that this kernel computes or reads, views and their bases included."""
        found: dict[int, Tensor] = {}
        stack = list(self.roots)
        while stack:
            node = stack.pop()
            if id(node) not in found:
                found[id(node)] = node
                if node is self.root or id(node) in self.members or node.op == "view" or id(node) in self.takes:
                    stack.extend(node.args)
        return list(found.values())

    def settle(self) -> None:
        """Fall back to the root's own grid when no reduction joined after all."""
        if self.reduce_axis < 0 and self.root.op != "take":
            self.grid = self.root.shape


def _grid_of(root: Tensor) -> Shape:
    """Return the grid of a kernel that ends in ``root``: the reduced shape for one value a row."""
    if root.op == "take":
        index = root.args[1]
        return (index.size, root.size // index.size if index.size else 0)
    if is_chunked(root):
        return root.args[0].shape
    if not root.shape or (root.shape[-1] != 1 and any(size != 1 for size in root.shape[:-1])):
        return root.shape
    stack, seen = [root], {id(root)}
    # A kernel holds no more members than this: what lies deeper is no part of it.
    while stack and len(seen) <= 3 * MAX_MEMBERS:
        node = stack.pop()
        if node.op in _REDUCES and not is_chunked(node) \
                and root.shape in _shapes_of_lines(_REDUCES[node.op], node.args[0].shape):
            return node.args[0].shape
        if node.op in ops.OP_BY_NAME:
            for arg in reversed(node.args):
                if arg.storage is None and arg.shape == root.shape and id(arg) not in seen:
                    seen.add(id(arg))
                    stack.append(arg)
    return root.shape


class _Partition:
    def __init__(self, outputs: Sequence[Tensor], max_inputs: int, max_k: int, stored: frozenset[int]) -> None:
        self.max_inputs = max_inputs
        self.max_k = max_k
        self.order = topological(outputs)
        self.asked = stored.union(id(node) for node in outputs)
        self.required = set(self.asked)
        self.users: dict[int, list[Tensor]] = {}
        self.kernel_of: dict[int, PlannedKernel] = {}
        self.kernels: list[PlannedKernel] = []
        for node in self.order:
            if node.storage is None:
                for arg in node.args:
                    self.users.setdefault(id(arg), []).append(node)

    def readers(self, node: Tensor) -> list[PlannedKernel]:
        """Return the kernels that compute a user of ``node``, each once."""
        found: dict[int, PlannedKernel] = {}
        for user in self.users.get(id(node), ()):
            kernel = self.kernel_of.get(id(user))
            if kernel is not None:
                found[id(kernel)] = kernel
        return list(found.values())

    def start(self, node: Tensor) -> None:
        kernel = PlannedKernel(node, _grid_of(node), self.max_inputs, self.max_k)
        self.kernels.append(kernel)
        self.kernel_of[id(node)] = kernel
        if node.op not in ADDRESSING and node.op not in ("const", "fold"):
            absorbed = kernel.absorb(node)
            assert absorbed, node
        self.required.update(id(arg) for arg in self.stored_arguments(node))

    @staticmethod
    def stored_arguments(node: Tensor) -> tuple[Tensor, ...]:
        """Return the arguments that must be stored before ``node`` can be read or computed."""
        return node.args if node.op in ADDRESSING or node.op in ("matmul", "fold") else ()

    def visit(self, node: Tensor) -> None:
        if node.storage is not None or node.op in GRID_NUMBERS:
            return
        if node.op in ("const", "rparam"):
            if id(node) in self.required:
                self.start(node)
            return
        readers = self.readers(node)
        if node.op in ADDRESSING:
            if self.is_stored(node, readers):
                self.start(node)
            else:
                self.required.update(id(arg) for arg in node.args)
                for kernel in readers:
                    kernel.takes.add(id(node))
            return
        if (id(node) in self.required or len(readers) != 1
                or not (readers[0].absorb_fold if node.op == "fold" else readers[0].absorb)(node)):
            self.start(node)
            return
        self.kernel_of[id(node)] = readers[0]
        self.required.update(id(arg) for arg in self.stored_arguments(node))

    def is_stored(self, node: Tensor, readers: list[PlannedKernel]) -> bool:
        """Say whether a view or take needs a copy kernel; a matmul reads any strides, but no take."""
        if node.op == "view":
            return id(node) in self.asked
        return id(node) in self.required or not all(kernel.reads_take(node) for kernel in readers)

    def run(self) -> list[PlannedKernel]:
        for node in reversed(self.order):
            self.visit(node)
        for kernel in self.kernels:
            kernel.settle()
        position = {id(node): index for index, node in enumerate(self.order)}
        return sorted(self.kernels, key=lambda kernel: position[id(kernel.root)])


def partition(outputs: Sequence[Tensor], max_inputs: int = ops.LIMITS["inputs"], max_k: int = 2**32,
              stored: frozenset[int] = frozenset()) -> list[PlannedKernel]:
    """Return the kernels that compute ``outputs``, in an order in which each finds its inputs stored.

    ``max_inputs``: most inputs of a kernel, 3 at least. ``max_k``: longest k of a matmul whose kernel stores elements
    smaller than a word; beyond it the float32 product is stored first. ``stored``: ids of views that get a kernel of
    their own, too.
    """
    return _Partition(outputs, max_inputs, max_k, stored).run()
