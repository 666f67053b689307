"""Attention as one fold: scores, mask, softmax and weighted sum in a single kernel (Milakov and Gimelshein, 2018).

The fold keeps a running maximum and a running sum for each query and rescales both and the weighted sum from block to
block, so that no score is ever stored. Shapes, the scale and the head-group ratio are data of a launch: there is one
kernel for each kind of mask and storage. Operands and masks are read where they lie, whatever their dtypes and strides.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nnk import ops
from nnk.errors import DTypeError, ExprError, LimitError, ShapeError
from nnk.expr.dtypes import BOOL, info_of
from nnk.expr.lower import Axes, merge_axes, strided_view
from nnk.expr.meta import Launch
from nnk.expr.node import (
    FLOAT32,
    Shape,
    Tensor,
    broadcast_shapes,
    constant,
    geometry_of,
)
from nnk.expr.promote import as_floats, operands_of
from nnk.expr.spec import ExprSpec, Fold, Instr, Matmul, Operand, VecAcc, ViewSpec, bits_of
from nnk.expr.views import broadcast_to, materialised, packed_base, readable, reshape

__all__ = ["attention"]

_OP = {op.name: op.code for op in ops.OPS}
_KIND = {kind.name: kind.code for kind in ops.OPERANDS}
_VIEW = {view.name: view.code for view in ops.VIEWS}

_NEGATIVE_INFINITY = 0xFF800000

#: Integers up to here are exact in float32: larger document numbers could not be told apart.
_MAX_DOCUMENT = 2**24


def _operand(kind: str, idx: int = 0) -> Operand:
    return Operand(_KIND[kind], idx)


class _Body:
    """A fold under construction: inputs, constants, instructions; registers count upwards."""

    def __init__(self, num_state: int) -> None:
        self.next = num_state
        self.instrs: list[Instr] = []
        self.views: list[ViewSpec] = []
        self.words: list[tuple[int, ...]] = []
        self.inputs: list[Tensor] = []
        self.consts: list[int] = []

    def input(self, base: Tensor, view: ViewSpec, words: tuple[int, ...]) -> Operand:
        self.views.append(view)
        self.words.append(words)
        self.inputs.append(base)
        return _operand("input", len(self.views) - 1)

    def packed(self, base: Tensor, view: str, *words: int) -> Operand:
        """Return an input that lies in row-major order from the start of ``base``."""
        return self.input(base, ViewSpec(_VIEW[view], 0, *words), words)

    def number(self, value: Operand) -> Operand:
        """Return an input as float32: integers are converted, a bool is 1 or 0 and a half a float32 already."""
        is_int = info_of(self.inputs[value.idx].dtype).word == "int"
        return self.emit("i2f", value) if is_int else value

    def strided(self, base: Tensor, offset: int, batches: Axes, rows: tuple[int, int], column: int) -> Operand:
        """Return an input by (size, stride) of its axes: those of batches, that of rows, the stride of columns.

        The axis of rows stays apart, as a kernel steps along it.
        """
        return self.input(base, *strided_view(offset, [*merge_axes(batches), rows], column))

    def const(self, bits: int) -> Operand:
        if bits not in self.consts:
            self.consts.append(bits)
        return _operand("const", self.consts.index(bits))

    def emit(self, op: str, *operands: Operand, dst: int | None = None) -> Operand:
        if dst is None:
            dst, self.next = self.next, self.next + 1
        self.instrs.append(Instr(_OP[op], dst, *operands))
        return _operand("reduce" if op in ("row_sum", "row_max") else "reg", dst)


class _Shapes:
    """The sizes of a call: lead axes, query and key heads, queries, keys, head sizes."""

    def __init__(self, q: Tensor, k: Tensor, v: Tensor) -> None:
        shapes = (q.shape, k.shape, v.shape)
        if not q.ndim == k.ndim == v.ndim >= 2:
            raise ShapeError(f"Expected q, k and v with the same number of axes, at least 2, for attention, got "
                             f"{q.shape}, {k.shape} and {v.shape}", op="attention", shapes=shapes)
        self.has_heads = q.ndim > 2
        self.heads, self.groups, value_groups = (t.shape[-3] if self.has_heads else 1 for t in (q, k, v))
        self.queries, self.depth = q.shape[-2:]
        self.keys, self.columns = v.shape[-2:]
        self.lead = broadcast_shapes("attention", [shape[:-3] for shape in shapes])
        if k.shape[-2:] != (self.keys, self.depth) or value_groups != self.groups:
            raise ShapeError(f"Expected q (..., hq, n, d), k (..., hkv, m, d) and v (..., hkv, m, dv) for attention, "
                             f"got {q.shape}, {k.shape} and {v.shape}", op="attention", shapes=shapes)
        if self.groups == 0 or self.heads % self.groups:
            raise ShapeError(f"Expected a number of query heads that is a multiple of the key heads for attention, got "
                             f"{self.heads} and {self.groups}", op="attention", shapes=shapes)
        for what, size, limit in (("q and k", self.depth, "fold_matmul_k"), ("v", self.columns, "vec_state_len")):
            if size > ops.LIMITS[limit]:
                raise LimitError(f"Expected a head size of at most {ops.LIMITS[limit]} for {what} of attention, got "
                                 f"{size}", limit=limit, requested=size, maximum=ops.LIMITS[limit])
        self.batch = math.prod(self.lead) * self.heads

    @property
    def result(self) -> Shape:
        return (*self.rows, self.columns)

    @property
    def rows(self) -> Shape:
        """The shape of one value a query."""
        return (*self.lead, self.heads, self.queries) if self.has_heads else (self.queries,)


def _mask_input(body: _Body, mask: Tensor, shapes: _Shapes) -> Operand:
    """Return the mask as an input: one for all batches, one row for all queries, or whole."""
    full = (*shapes.rows, shapes.keys)
    if mask.ndim < 2 or broadcast_shapes("attention", [mask.shape, full]) != full:
        raise ShapeError(f"Expected a mask of at least 2 axes that broadcasts to {full} for attention, got "
                         f"{mask.shape}", op="attention", shapes=(mask.shape, full))
    mask = readable(mask)
    is_line, is_shared = mask.shape[-2] == 1, math.prod(mask.shape[:-2]) == 1 and mask.shape[-2:] == full[-2:]
    whole = broadcast_to(mask, (*full[:-2], 1, full[-1]) if is_line else full)
    base = packed_base(mask if is_shared and not is_line else whole)
    if base is None:
        base, offset, strides = geometry_of(whole)
        axes = list(zip(whole.shape, strides, strict=True))
        row = 0 if is_line else strides[-2]
        return body.number(body.strided(base, offset, axes[:-2], (shapes.queries, row), strides[-1]))
    if is_line:
        return body.number(body.packed(base, "batch_col", shapes.keys))
    if is_shared:
        return body.number(body.packed(base, "row_mod", shapes.queries))
    return body.number(body.packed(base, "linear"))


def _bias(body: _Body, mask: Any, q: Tensor, shapes: _Shapes) -> Operand:
    """Return what a mask adds to the scores. Bools say which keys a query may attend to: they add 0 or -inf."""
    tensor = operands_of("attention", (q, mask))[0][1]
    value = _mask_input(body, tensor, shapes)
    if tensor.dtype != BOOL:
        return value
    masked = body.const(_NEGATIVE_INFINITY)
    return body.emit("select", value, body.const(bits_of(0.0)), masked)


def _documents(body: _Body, doc_ids: Any, q: Tensor, shapes: _Shapes) -> tuple[Operand, Operand]:
    """Return the document numbers of a query and of a key as inputs."""
    if shapes.queries != shapes.keys:
        raise ShapeError(f"Expected as many keys as queries with doc_ids for attention, got {shapes.keys} and "
                         f"{shapes.queries}", op="attention")
    if not isinstance(doc_ids, Tensor):
        array = np.asarray(doc_ids)
        if array.dtype.kind not in "iuf":
            raise DTypeError(f"Expected numbers for doc_ids of attention, got {array.dtype}", op="attention",
                             dtypes=(array.dtype,))
        if array.size and np.abs(array).max() > _MAX_DOCUMENT:
            raise ExprError(f"Expected document numbers up to {_MAX_DOCUMENT} for attention, got "
                            f"{np.abs(array).max()}", op="attention")
        doc_ids = array.astype(np.float32)
    documents = operands_of("attention", (q, doc_ids))[0][1]
    lead = shapes.lead if shapes.has_heads else ()
    if documents.ndim < 1 or broadcast_shapes("attention", [documents.shape, (*lead, shapes.queries)]) != \
            (*lead, shapes.queries):
        raise ShapeError(f"Expected doc_ids that broadcast to {(*lead, shapes.queries)} for attention, got "
                         f"{documents.shape}", op="attention", shapes=(documents.shape,))
    if shapes.has_heads:
        documents = reshape(documents, (*documents.shape[:-1], 1, documents.shape[-1]))
    documents = broadcast_to(readable(documents), shapes.rows)
    base = packed_base(documents)
    if base is not None:
        return body.packed(base, "row_broadcast"), body.packed(base, "batch_col", shapes.keys)
    base, offset, strides = geometry_of(documents)
    batches = list(zip(documents.shape[:-1], strides[:-1], strict=True))
    return (body.strided(base, offset, batches, (shapes.queries, strides[-1]), 0),
            body.strided(base, offset, batches, (shapes.queries, 0), strides[-1]))


def _masked(body: _Body, score: Operand, shapes: _Shapes, q: Tensor, mask: Any, doc_ids: Any, alibi: Any) -> Operand:
    """Return the score with bias and masks."""
    is_causal = isinstance(mask, str)
    if mask is not None and not is_causal:
        score = body.emit("add", score, _bias(body, mask, q, shapes))
    if alibi is not None:
        slopes = operands_of("attention", (q, alibi))[0][1]
        if slopes.shape != (shapes.heads,):
            raise ShapeError(f"Expected one slope for each of {shapes.heads} query heads for alibi of attention, got "
                             f"shape {slopes.shape}", op="attention", shapes=(slopes.shape,))
        distance = body.emit("sub", _operand("col"), _operand("row"))
        base = packed_base(slopes)
        slope = body.number(body.packed(materialised(slopes) if base is None else base, "batch_mod", shapes.heads))
        score = body.emit("add", score, body.emit("mul", slope, distance))
    if doc_ids is not None:
        own, others = _documents(body, doc_ids, q, shapes)
        own = body.number(own)
        other = body.emit("ne", own, body.number(others))
        score = body.emit("select", other, body.const(_NEGATIVE_INFINITY), score)
    if is_causal:
        later = body.emit("gt", _operand("col"), _operand("row"))
        score = body.emit("select", later, body.const(_NEGATIVE_INFINITY), score)
    return score


def _heads(body: _Body, tensor: Tensor, shapes: _Shapes, ratio: int = 0, swapped: bool = False) -> Operand:
    """Return q, or with a ratio of query heads k or v, as an input: one block of rows and columns a query head.

    A strided ``swapped`` operand has the columns of ``tensor`` as its rows.
    """
    tensor = readable(tensor)
    heads = tensor.shape[-3:-2] if shapes.has_heads else ()
    full = broadcast_to(tensor, (*shapes.lead, *heads, *tensor.shape[-2:]))
    base = packed_base(full)
    if base is None:
        base, offset, strides = geometry_of(full)
        *axes, rows, columns = zip(full.shape, strides, strict=True)
        if ratio > 1:
            axes.append((ratio, 0))
        if swapped:
            rows, columns = columns, rows
        if len(merge_axes(axes)) < ops.STRIDED_RANKS[-1]:
            return body.strided(base, offset, axes, rows, columns[1])
        base = materialised(full)
    return body.packed(base, "head_group", ratio) if ratio else body.packed(base, "linear")


def _fold(body: _Body, score: Operand, vectors: int, matmul: Matmul, shapes: _Shapes, tri_skip: bool) -> Fold:
    """Return the streaming softmax over ``score``: state 0 is the running maximum, state 1 the running sum."""
    maximum, total = _operand("reg", 0), _operand("reg", 1)
    largest = body.emit("max", maximum, body.emit("row_max", score))
    scale = body.emit("exp", body.emit("sub", maximum, largest))
    weight = body.emit("exp", body.emit("sub", score, largest))
    body.emit("add", body.emit("mul", total, scale), body.emit("row_sum", weight), dst=1)
    body.emit("copy", largest, dst=0)
    finalize = (Instr(_OP["div"], body.next, _operand("vec_state"), total),)
    return Fold(2, shapes.keys, (_NEGATIVE_INFINITY, 0), tuple(body.instrs), finalize, shapes.columns, matmul,
                VecAcc(0, weight.idx, vectors, scale.idx, 1), int(tri_skip))


def attention(q: Any, k: Any, v: Any, mask: Any = None, doc_ids: Any = None, alibi: Any = None,
              scale: float | None = None) -> Tensor:
    """Return softmax(scale * q @ k^T + bias) @ v for each head, as one kernel (Vaswani et al., 2017).

    Parameters
    ----------
    q : Tensor of shape (..., hq, n, d) or (n, d)
        All operands are read where they lie: halves as they are stored, transposed, sliced and broadcast tensors by
        their strides. ``attention(...).astype("float16")`` stores halves. Nothing is cast or copied around the kernel.
    k : Tensor of shape (..., hkv, m, d) or (m, d)
        hq is a multiple of hkv: hq / hkv neighbouring query heads share a key head (grouped-query attention).
    v : Tensor of shape (..., hkv, m, dv) or (m, dv)
    mask : None, "causal", or an array that broadcasts to (..., hq, n, m)
        ``"causal"``: query i attends to keys 0 to i, both counted from the start, whatever n and m are. Bools, in an
        array or a tensor, say which keys a query may attend to; other values are added to the scores.
    doc_ids : array of numbers of shape (..., n), optional
        Query i attends only to keys of the same document. Needs n == m. Numbers up to 2**24.
    alibi : array of shape (hq,), optional
        Slopes: slope * (j - i) is added to the score of query i and key j (Press et al., 2022).
    scale : float, optional
        Default 1 / sqrt(d).

    Returns
    -------
    Tensor of shape (..., hq, n, dv) or (n, dv), float32
        A query that may attend to no key has NaN; with no keys at all the result is 0, as of a matmul over nothing.

    Raises
    ------
    ShapeError
        If the shapes do not fit.
    LimitError
        If a head size is above 1024.
    """
    (q, k, v), engine = as_floats("attention", (q, k, v))
    shapes = _Shapes(q, k, v)
    if isinstance(mask, str) and mask != "causal":
        raise ExprError(f'Expected None, "causal" or an array for mask of attention, got {mask!r}', op="attention")
    if scale is None:
        if shapes.depth == 0:
            raise ShapeError("Expected a head size above 0 for attention without a scale, got 0", op="attention",
                             shapes=(q.shape,))
        scale = 1.0 / math.sqrt(shapes.depth)
    if shapes.depth == 0:
        # A sum over nothing is +0, and so is 0 * 0; a tensor without elements has no storage to read.
        q, k = (Tensor("const", (), constant(0.0).attrs, (*t.shape[:-1], 1), FLOAT32, engine) for t in (q, k))
        shapes = _Shapes(q, k, v)
    body = _Body(2)
    ratio = shapes.heads // shapes.groups
    _heads(body, q, shapes)
    key = _heads(body, k, shapes, ratio, swapped=True)
    _heads(body, v, shapes, ratio)
    scaled = body.emit("mul", _operand("matmul"), _operand("rparam"))
    score = _masked(body, scaled, shapes, q, mask, doc_ids, alibi)
    if shapes.keys == 0 or math.prod(shapes.result) == 0:
        return Tensor("const", (), constant(0.0).attrs, shapes.result, FLOAT32, engine)
    # Packed keys are stored (items, k); strides say for themselves how they lie.
    trans_b = int(body.views[key.idx].kind != _VIEW["strided"])
    fold = _fold(body, score, 2, Matmul(0, 1, 0, trans_b, shapes.depth, shapes.batch), shapes, isinstance(mask, str))
    spec = ExprSpec(body.next + 1, (), tuple(body.views), tuple(body.consts), (bits_of(float(scale)),), None, fold)
    launch = Launch(shapes.batch * shapes.queries, shapes.keys, tuple(body.words), spec.const_bits, spec.rparam_bits,
                    mm_k=shapes.depth, mm_batch=shapes.batch, out_cols=shapes.columns)
    return Tensor("fold", tuple(body.inputs), (spec, launch), shapes.result, FLOAT32, engine)
