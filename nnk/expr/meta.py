"""Kernel meta data: what emitter, pipeline builder, dispatcher and CPU engine must agree on.

:func:`kernel_meta_of` is the one source of every binding number, parameter offset and workgroup size. Parameters are
32-bit words: a fixed head by form, the two words that say which slots are halves if the kernel asks for them, then the
words of the run-time views in slot order, then the constants, then the run-time parameters. They are push constants; a
kernel with more than :data:`MAX_PUSH_WORDS` reads the same words in the same order from a storage buffer bound last.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

from nnk import ops
from nnk.errors import LimitError, UnsupportedOpError
from nnk.expr.spec import ExprSpec, Instr
from nnk.numerics import FOLD_BLOCK, REDUCE_CHUNK, REDUCE_LANES

__all__ = ["CHUNKS_OUT", "DISPATCH_SIGNATURE", "MAX_PUSH_WORDS", "VECTOR_OUT", "KernelMeta", "Launch",
           "group_count_of", "k_ranges_of", "kernel_meta_of", "loop_count_of", "out_count_of", "pack_words",
           "reads_grid", "reduce_axis_of"]

#: Vulkan guarantees 128 bytes of push constants. The limit is part of the SPIR-V, so it is the same everywhere.
MAX_PUSH_WORDS = 32

#: Fixed head words by form (emitter 7.3).
HEADS: dict[str, tuple[str, ...]] = {
    "elementwise": ("count", "cols"),
    "matmul": ("count", "cols", "rows", "mm_k", "mm_batch", "mm_trans", "mm_first", "mm_end"),
    "reduce": ("count", "cols", "rows", "vector_out"),
    "reduce_matmul": ("count", "cols", "rows", "vector_out", "mm_k", "mm_batch", "mm_trans"),
    "fold": ("count", "cols", "rows", "out_cols", "fold_k"),
    "fold_matmul": ("count", "cols", "rows", "out_cols", "fold_k", "mm_k", "mm_batch", "first_row", "first_batch"),
}

#: Head words of a kernel that reads its precision at run time: bit i for input i, bit 16 for the outputs.
HALF_HEAD = ("float16_slots", "bfloat16_slots")

#: Precision signature (exprspec 4.3) of a kernel that reads its precision at run time.
DISPATCH_SIGNATURE = 0x00020000

#: Most elements of a buffer that a strided view reaches: strides are words with a sign.
STRIDED_ELEMENTS = 2**31

#: Threads of a workgroup by form.
LOCAL_SIZES = {"elementwise": 256, "reduce": 256, "matmul": 64, "fold": 256, "fold_matmul": 256}

#: A reduce workgroup takes several lines (rows, or columns of a column reduction) at a time. A line has a power of two
#: of threads, ROW_THREADS at most, of which each owns up to OWN_LANES of the line's lanes (docs/numerics.md R7).
ROW_THREADS = 32
OWN_LANES = REDUCE_LANES // ROW_THREADS

#: A matmul workgroup makes a block of MATMUL_BLOCK x MATMUL_BLOCK results, MATMUL_STEP values of k at a time.
MATMUL_BLOCK = 64
MATMUL_STEP = 16

#: A fold workgroup makes FOLD_COLUMNS result columns of FOLD_ROWS rows of one batch, and takes FOLD_STEP values of its
#: matmul's k at a time.
FOLD_ROWS = 16
FOLD_COLUMNS = 256
FOLD_STEP = 16

#: Iterations of a loop over four components, its last test counted.
_VECTOR_LOOPS = 5

#: Values of the head word ``vector_out``.
VECTOR_OUT, CHUNKS_OUT = 1, 2

_VEC4_VIEWS = frozenset(ops.VIEW_BY_NAME[name].code for name in ("linear", "row_broadcast", "col_broadcast"))
_GRID_OPERANDS = frozenset(ops.OPERAND_BY_NAME[name].code for name in ("row", "col", "batch"))
_GROUPED_VIEWS = frozenset(ops.VIEW_BY_NAME[name].code for name in ("grouped_reduce_sum", "grouped_reduce_max"))
_INDEX_VIEWS = frozenset(ops.VIEW_BY_NAME[name].code for name in ("take", "row_gather"))


@dataclass(frozen=True, slots=True)
class KernelMeta:
    """Everything about a kernel but its code. Bindings: inputs, outputs, then the parameter buffer if there is one.

    ``slots`` has a letter for each input and output slot (:mod:`nnk.expr.dtypes`); empty: all hold 32-bit words, and
    outputs are floats.
    """

    form: str
    reduce_axis: int
    has_matmul: bool
    n_inputs: int
    n_outputs: int
    view_param_offsets: tuple[int, ...]
    view_param_count: int
    const_count: int
    rparam_count: int
    vec_width: int
    prec_sig: int
    pc_base_fixed: int
    fold_out: int
    fold_per_thread_row: int
    reduce_count: int = 0
    grouped_slots: tuple[int, ...] = ()
    slots: str = ""

    @property
    def head(self) -> tuple[str, ...]:
        """Names of the fixed head words."""
        return _head_of(self.form, self.has_matmul)

    @property
    def reads_halves(self) -> bool:
        """Whether the parameters say at run time which float slots are halves."""
        return self.prec_sig == DISPATCH_SIGNATURE

    @property
    def may_fuse(self) -> bool:
        """Whether the kernel fuses products of float16 into sums, which changes no bit (R9)."""
        return self.form == "matmul" and self.reads_halves

    @property
    def half_offset(self) -> int:
        """Word offset of the two words of :data:`HALF_HEAD`."""
        return self.pc_base_fixed - len(HALF_HEAD)

    @property
    def input_letters(self) -> str:
        """The letter of each input slot."""
        return self.slots[:self.n_inputs] or "w" * self.n_inputs

    @property
    def output_letters(self) -> str:
        """The letter of each output slot."""
        return self.slots[self.n_inputs:] or "f" * self.n_outputs

    @property
    def const_offset(self) -> int:
        """Word offset of the constants."""
        return self.pc_base_fixed + self.view_param_count

    @property
    def rparam_offset(self) -> int:
        """Word offset of the run-time parameters."""
        return self.const_offset + self.const_count

    @property
    def param_words(self) -> int:
        """Total number of parameter words."""
        return self.rparam_offset + self.rparam_count

    @property
    def params_in_buffer(self) -> bool:
        """Whether the parameters travel in a storage buffer instead of push constants."""
        return self.param_words > MAX_PUSH_WORDS

    @property
    def binding_count(self) -> int:
        """Number of storage buffers that the kernel binds, all in set 0."""
        return self.n_inputs + self.n_outputs + int(self.params_in_buffer)

    @property
    def local_size(self) -> tuple[int, int, int]:
        """Workgroup size."""
        return (LOCAL_SIZES[self.form], 1, 1)


@dataclass(frozen=True, slots=True)
class Launch:
    """The run-time side of a kernel: shape data and values, none of which is part of its key.

    ``view_params`` holds one tuple of integers for each input slot (empty for views without run-time words). They
    become 32-bit words modulo 2**32: offsets and strides may be negative, and of any size until a launch is cut.
    ``vector_out`` of a reduce kernel: 0 gives the grid, :data:`VECTOR_OUT` one value a line (a row, or a column of a
    column reduction), :data:`CHUNKS_OUT` the value of each chunk of a line, of a program that is one reduction.
    ``mm_trans``: bit 0 transposes a, bit 1 b.
    ``mm_range``: the part [first, end) of a matmul's k that a launch adds, None for all; see :func:`k_ranges_of`.
    ``out_cols``: the columns of a fold's output, whose length is ``cols``; 0 for other forms.
    ``first_row``, ``first_batch``: the numbers of each batch's first row and of the first batch, of a fold that is a
    part of a larger one.
    ``halves``: which slots hold float16 and which bfloat16 (:func:`nnk.expr.dtypes.half_words`).
    """

    rows: int
    cols: int
    view_params: tuple[tuple[int, ...], ...]
    const_bits: tuple[int, ...] = ()
    rparam_bits: tuple[int, ...] = ()
    vector_out: int = 0
    mm_k: int = 0
    mm_batch: int = 1
    mm_trans: int = 0
    out_cols: int = 0
    mm_range: tuple[int, int] | None = None
    halves: tuple[int, int] = (0, 0)
    first_row: int = 0
    first_batch: int = 0


def reduce_axis_of(spec: ExprSpec) -> int:
    """Return the reduce axis (exprspec 3.10): -1 none, 0 row reductions, 1 column reductions, -2 both."""
    axes = {ops.VIEW_BY_CODE[view.kind].axis for view in spec.views}
    axes |= {ops.OP_BY_CODE[instr.op].axis for instr in spec.instrs}
    axes.discard(-1)
    if not axes:
        return -1
    return axes.pop() if len(axes) == 1 else -2


def index_slots_of(spec: ExprSpec) -> frozenset[int]:
    """Return the input slots that hold integer indices for another slot's view."""
    return frozenset(view.param for view in spec.views if view.kind in _INDEX_VIEWS)


def _form_of(spec: ExprSpec, axis: int) -> str:
    if spec.fold is not None:
        return "fold" if spec.fold.matmul is None else "fold_matmul"
    if axis == -2:
        raise UnsupportedOpError("Expected row reductions or column reductions in one kernel, got both; cut the "
                                 "expression into two kernels", op="reduce")
    if axis >= 0:
        return "reduce"
    return "elementwise" if spec.matmul is None else "matmul"


def _head_of(form: str, has_matmul: bool) -> tuple[str, ...]:
    return HEADS["reduce_matmul" if form == "reduce" and has_matmul else form]


def reads_grid(instr: Instr) -> bool:
    """Say whether an instruction reads the row, column or batch number."""
    operands = (instr.a, instr.b, instr.c)[:ops.OP_BY_CODE[instr.op].arity]
    return any(operand.kind in _GRID_OPERANDS for operand in operands)


def _vec_width_of(spec: ExprSpec, axis: int) -> int:
    """Return the vector width (emitter 7.5)."""
    if spec.fold is not None or axis >= 0 or spec.matmul is not None:
        return 1
    if any(view.kind not in _VEC4_VIEWS for view in spec.views):
        return 1
    return 1 if any(map(reads_grid, spec.instrs)) else 4


def kernel_meta_of(spec: ExprSpec, prec_sig: int = 0, slots: str = "") -> KernelMeta:
    """Return the meta data of the kernel of a canonical ``spec``.

    Parameters
    ----------
    spec : ExprSpec
    prec_sig : int
        0: no slot is a half; :data:`DISPATCH_SIGNATURE`: the parameters say which are.
    slots : str
        A letter for each input and output slot, see :class:`KernelMeta`.

    Raises
    ------
    UnsupportedOpError
        If this version has no kernel shape for the spec.
    """
    if prec_sig not in (0, DISPATCH_SIGNATURE):
        raise UnsupportedOpError(f"Expected precision signature 0 or {DISPATCH_SIGNATURE:#x}, got {prec_sig:#x}: "
                                 f"native float16 arithmetic is not exact", op="prec_sig")
    axis = reduce_axis_of(spec)
    form = _form_of(spec, axis)
    program = spec.instrs if spec.fold is None else spec.fold.body
    offsets: list[int] = []
    fixed = cursor = len(_head_of(form, spec.matmul is not None)) + (len(HALF_HEAD) if prec_sig else 0)
    for view in spec.views:
        offsets.append(cursor)
        cursor += ops.view_param_words(view.kind, view.param)
    return KernelMeta(
        form=form,
        reduce_axis=axis,
        has_matmul=(spec.matmul if spec.fold is None else spec.fold.matmul) is not None,
        n_inputs=len(spec.views),
        n_outputs=1 + len(spec.extras),
        view_param_offsets=tuple(offsets),
        view_param_count=cursor - fixed,
        const_count=len(spec.const_bits),
        rparam_count=len(spec.rparam_bits),
        vec_width=_vec_width_of(spec, axis),
        prec_sig=prec_sig,
        pc_base_fixed=fixed,
        fold_out=int(spec.fold is not None and spec.fold.vecacc is not None),
        fold_per_thread_row=0,
        reduce_count=sum(ops.OP_BY_CODE[instr.op].kind == "reduce" for instr in program)
        + sum(ops.VIEW_BY_CODE[view.kind].axis >= 0 for view in spec.views),
        grouped_slots=tuple(slot for slot, view in enumerate(spec.views) if view.kind in _GROUPED_VIEWS),
        slots=slots,
    )


def pack_words(meta: KernelMeta, launch: Launch) -> bytes:
    """Return the parameter words of a launch, little-endian.

    Raises
    ------
    LimitError
        If the grid has more than 2**32 - 1 elements.
    """
    columns = launch.out_cols or launch.cols
    count = launch.rows * columns
    if count > 0xFFFFFFFF:
        raise LimitError(f"Expected at most 4294967295 elements in one kernel, got {launch.rows} x {columns}",
                         limit="elements", requested=count, maximum=0xFFFFFFFF)
    values = {"count": count, "cols": launch.cols, "rows": launch.rows, "vector_out": int(launch.vector_out),
              "out_cols": launch.out_cols, "fold_k": launch.cols,
              "mm_k": launch.mm_k, "mm_batch": launch.mm_batch, "mm_trans": launch.mm_trans,
              "mm_first": _range_of(launch)[0], "mm_end": _range_of(launch)[1],
              "first_row": launch.first_row, "first_batch": launch.first_batch}
    words: list[int] = [values[name] for name in meta.head]
    if meta.reads_halves:
        words.extend(launch.halves)
    for params in launch.view_params:
        words.extend(word & 0xFFFFFFFF for word in params)
    words.extend(launch.const_bits)
    words.extend(launch.rparam_bits)
    assert len(words) == meta.param_words, (len(words), meta)
    return struct.pack(f"<{len(words)}I", *words)


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def _range_of(launch: Launch) -> tuple[int, int]:
    return (0, launch.mm_k) if launch.mm_range is None else launch.mm_range


def _line_of(meta: KernelMeta, launch: Launch) -> tuple[int, int]:
    """Return (lines, values of a line) of a reduce kernel: rows, or columns of a column reduction."""
    return (launch.cols, launch.rows) if meta.reduce_axis == 1 else (launch.rows, launch.cols)


def _threads_of(length: int) -> int:
    """Return the number of threads of a line of this length."""
    threads = 1
    while threads < ROW_THREADS and threads * OWN_LANES < length:
        threads *= 2
    return threads


def _length_of_item(meta: KernelMeta, launch: Launch) -> int:
    """Return the most elements that the threads of a line reduce at a time: a line, or a chunk of it."""
    length = _line_of(meta, launch)[1]
    return min(length, REDUCE_CHUNK) if launch.vector_out == CHUNKS_OUT else length


def _chunks_of(meta: KernelMeta, launch: Launch) -> int:
    """Return the number of results of a line."""
    return _ceil_div(_line_of(meta, launch)[1], REDUCE_CHUNK) if launch.vector_out == CHUNKS_OUT else 1


def out_count_of(meta: KernelMeta, launch: Launch) -> int:
    """Return the number of elements of one output."""
    if launch.out_cols:
        return launch.rows * launch.out_cols
    if launch.vector_out:
        return _line_of(meta, launch)[0] * _chunks_of(meta, launch)
    return launch.rows * launch.cols


def group_count_of(meta: KernelMeta, launch: Launch) -> int:
    """Return the number of workgroups that cover a launch.

    Every kernel strides over its work by the number of workgroups, so a device that takes fewer may run fewer.
    """
    if meta.form == "elementwise":
        return _ceil_div(launch.rows * launch.cols, meta.local_size[0] * meta.vec_width)
    if meta.form == "reduce":
        lines = meta.local_size[0] // _threads_of(_length_of_item(meta, launch))
        return _ceil_div(_line_of(meta, launch)[0] * _chunks_of(meta, launch), lines)
    rows_per_batch = launch.rows // launch.mm_batch
    if meta.form in ("fold", "fold_matmul"):
        return _ceil_div(rows_per_batch, FOLD_ROWS) * launch.mm_batch * _ceil_div(launch.out_cols, FOLD_COLUMNS)
    return _ceil_div(launch.cols, MATMUL_BLOCK) * _ceil_div(rows_per_batch, MATMUL_BLOCK) * launch.mm_batch


def loop_count_of(meta: KernelMeta, launch: Launch, group_count: int, has_calls: bool = False) -> int:
    """Return an upper bound of the loop iterations of one thread, nested loops added up.

    llvmpipe silently ends loops after 65535 iterations of a thread in all; see :mod:`nnk.engines.gpu`. It counts a
    loop's last test as an iteration, and runs the loops of a branch that no thread takes once.

    ``has_calls``: float operations are calls, as in tiers T2 and T3 (:mod:`nnk.generator.soft`). Then those of four
    components, and the products of a matmul, are loops as well.
    """
    rounds = _ceil_div(group_count_of(meta, launch), group_count)
    grouped = sum(_group_loops(launch.view_params[slot][0]) for slot in meta.grouped_slots)
    if meta.form == "elementwise":
        return 1 + (6 + grouped) * rounds
    if meta.form == "matmul":
        # Each step of k: the products, and two fetches of 4 x 4 elements, each with a branch not taken.
        step = 1 + (MATMUL_STEP + 1) + 2 * 28
        # Then 16 quads of 4 results. Calls: the quads begin, are restored, and take each k, in loops too.
        begin = 2 * (16 + 1) if has_calls else 0
        step += MATMUL_STEP * (16 * (1 + _VECTOR_LOOPS) + 1) if has_calls else 0
        first, end = _range_of(launch)
        return 1 + rounds * (begin + _ceil_div(end - first, MATMUL_STEP) * step + 17 + 16 * (5 + 4 * grouped) + 3)
    if meta.form in ("fold", "fold_matmul"):
        # A step of k: the keys (at most 4 x 4 elements, each with a branch not taken) and the products.
        vector = _VECTOR_LOOPS if has_calls else 0
        # Two products and sums of rows for each k; each weighted vector has four, and a block scales four.
        step = 1 + 2 * (1 + 5) + 1 + FOLD_STEP * (1 + 4 * vector) + 1
        # Each level of reductions passes over 8 rows twice and sums 8 and 16 values; then 128 weighted vectors.
        block = 2 + _ceil_div(launch.mm_k, FOLD_STEP) * step + 1 + (meta.reduce_count + 1) * (2 * 9 + 9 + 17)
        block += meta.fold_out * (FOLD_BLOCK * (1 + 8 * vector) + 4 * vector + 3)
        return 1 + rounds * (_ceil_div(launch.cols, FOLD_BLOCK) * block + FOLD_ROWS + 3)
    length = _length_of_item(meta, launch)
    chunks = _ceil_div(length, REDUCE_CHUNK)
    threads = _threads_of(length)
    element = 1 + grouped + (launch.mm_k + 1 if meta.has_matmul else 0)
    # A thread adds its lanes one after the other; a tree takes 21 iterations. Chunks of chunks have two more trees.
    # A maximum takes less: one loop over the same elements and one tree.
    reduction = _ceil_div(length, threads) * element + chunks * (2 * OWN_LANES + 27) + 45
    store = (1 if launch.vector_out else _ceil_div(length, threads)) * element
    return 7 + rounds * (max(1, meta.reduce_count) * reduction + store + 3)


def k_ranges_of(meta: KernelMeta, launch: Launch, group_count: int, max_loops: int,
                has_calls: bool = False) -> list[tuple[int, int]]:
    """Return the parts of k that a matmul launch goes through in as many launches, each within ``max_loops``.

    A launch stores the sums so far in the output, the next one goes on from there (docs/numerics.md R8 allows it); the
    last one runs the instructions behind the matmul. The list is empty if even one step of k is too much.
    """
    def loops(k: int) -> int:
        return loop_count_of(meta, replace(launch, mm_range=(0, k)), group_count, has_calls)

    first, end = _range_of(launch)
    steps = (max_loops - loops(0)) // (loops(MATMUL_STEP) - loops(0))
    length = max(steps, 0) * MATMUL_STEP
    return [(start, min(start + length, end)) for start in range(first, end, length)] if length else []


def _group_loops(size: int) -> int:
    """Return an upper bound of the iterations that reduce a group: its elements, and lanes and merges of a chunk."""
    return size + _ceil_div(size, REDUCE_CHUNK) * (3 * REDUCE_LANES + 3) + 6 * REDUCE_LANES
