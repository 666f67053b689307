"""Kernel keys: structure key, precision signature, variant and generator version, and their explanation."""

from __future__ import annotations

import hashlib

from nnk import numerics, ops
from nnk._fast import exprspec as _fast
from nnk.expr import meta
from nnk.expr.spec import ExprSpec

__all__ = ["explain_key", "kernel_identity", "kernel_key", "key_parts", "key_suffix", "native16",
           "precision_suffix", "spec_key"]

#: Longest text of slot letters that is written out in a key; a longer one is hashed.
_MAX_LETTERS = 10

#: Smallest constant that native float16 arithmetic may meet: half of float16's smallest subnormal.
_SMALLEST_NATIVE = 5.9e-8

#: Every constant of the kernel forms and of the contract: sizes, limits, bit patterns. The contract's expressions are
#: not among them: GENERATOR_VERSION stands for the text of code, and the variant has a place of its own.
_CONSTANTS = [(module, name) for module in (meta, numerics) for name, value in vars(module).items()
              if name.isupper() and name[0] != "_" and isinstance(value, (int, tuple, dict))
              and name not in ("FUNCTIONS", "FAST_FUNCTIONS", "VARIANTS")]


def spec_key(spec: ExprSpec) -> str:
    """Return the structure key of a canonical ``spec`` as 16 hex digits."""
    return f"{_fast.spec_key(spec):016x}"


def precision_suffix(prec_sig: int) -> str:
    """Return the suffix of a precision signature: none for all float32, ``#x`` run-time, ``#a`` native float16."""
    if prec_sig == 0:
        return ""
    return "#x" if prec_sig == meta.DISPATCH_SIGNATURE else "#a"


def key_suffix(prec_sig: int, variant: str, slots: str = "") -> str:
    """Return the end of a kernel key: precision, variant, and ``s`` with the letters of slots that are not all plain.

    Such as ``#x``, ``#t3``, ``#xt3`` or ``#xswbf``; none for none of them.
    """
    if len(slots) > _MAX_LETTERS:
        slots = hashlib.blake2b(slots.encode(), digest_size=_MAX_LETTERS // 2).hexdigest()
    suffix = variant + ("s" + slots if slots else "")
    return f"{precision_suffix(prec_sig) or '#'}{suffix}" if suffix else precision_suffix(prec_sig)


def kernel_key(structure_key: str, prec_sig: int, generator_version: int, variant: str = "", slots: str = "") -> str:
    """Return the cache key ``v<generator version>.<structure key><suffix>``.

    ``variant`` is a value of :data:`nnk.numerics.VARIANTS`, or :data:`nnk.numerics.FAST_VARIANT`; ``slots`` as in
    :class:`nnk.expr.meta.KernelMeta`.
    """
    return f"v{generator_version}.{structure_key}{key_suffix(prec_sig, variant, slots)}"


def native16(spec: ExprSpec, prec_sig: int) -> bool:
    """Say whether float16 arithmetic could run the kernel of ``spec`` (exprspec 4.5).

    Constants count with their values, which are not part of a key: the answer holds for one launch. The exact mode
    never uses it, because float16 arithmetic has other bits.
    """
    every_input = (1 << len(spec.views)) - 1
    if prec_sig == 0 or prec_sig & (1 << 16 | every_input) != 1 << 16 | every_input:
        return False
    if spec.fold is not None or spec.matmul is not None or spec.rparam_bits or meta.reduce_axis_of(spec) != -1:
        return False
    if any(0 < abs(value) < _SMALLEST_NATIVE for value in spec.consts):
        return False
    return not any(meta.reads_grid(instr) for instr in spec.instrs)


def without_values(spec: ExprSpec) -> ExprSpec:
    """Return ``spec`` with every value that is given at launch set to zero: what is left is structure."""
    views = tuple(view if ops.VIEW_BY_CODE[view.kind].keyed else view._replace(param=0, param2=0)
                  for view in spec.views)
    matmul = None if spec.matmul is None else spec.matmul._replace(trans_a=0, trans_b=0, k=0, batch=0)
    fold = spec.fold
    if fold is not None:
        inner = None if fold.matmul is None else fold.matmul._replace(k=0, batch=0)
        fold = fold._replace(k=0, vec_state_len=0, matmul=inner)
    return spec._replace(views=views, const_bits=(0,) * len(spec.const_bits),
                         rparam_bits=(0,) * len(spec.rparam_bits), matmul=matmul, fold=fold)


def kernel_identity(spec: ExprSpec, prec_sig: int, generator_version: int, variant: str = "",
                    slots: str = "") -> bytes:
    """Return 16 bytes that are independent of the 64-bit structure key: BLAKE2b over everything that makes a kernel.

    A cache entry whose key matches and whose identity does not is another kernel.
    """
    state = hashlib.blake2b(digest_size=16, person=b"nnk kernel")
    state.update(_fast.encode(without_values(spec)))
    state.update(repr((prec_sig, generator_version, [vars(module)[name] for module, name in _CONSTANTS])).encode())
    if variant:
        state.update(f"variant {variant}".encode())
    if slots:
        state.update(f"slots {slots}".encode())
    return state.digest()


def explain_key(spec: ExprSpec, prec_sig: int, generator_version: int, variant: str = "",
                slots: str = "") -> list[tuple[str, str]]:
    """Return each part of a kernel key with a hash of its own, so that two logs show why two keys differ."""
    bare = without_values(spec)
    parts: list[tuple[str, object]] = [
        ("generator_version", generator_version), ("precision", precision_suffix(prec_sig)),
        ("variant", variant),
        ("slots", slots),
        ("num_regs", spec.num_regs),
        ("instrs", spec.instrs), ("views", bare.views),
        ("const_count", len(spec.const_bits)), ("rparam_count", len(spec.rparam_bits)),
        ("matmul", spec.matmul and spec.matmul[:2]), ("fold", bare.fold),
        ("extras", spec.extras)]
    return [(name, hashlib.sha256(repr(tuple(part) if isinstance(part, tuple) else part).encode()).hexdigest()[:12])
            for name, part in parts]


def key_parts(spec: ExprSpec, prec_sig: int, generator_version: int, variant: str = "", slots: str = "") -> bytes:
    """Return the hashes of :func:`explain_key`, six bytes each: a cache keeps them to explain later misses."""
    parts = explain_key(spec, prec_sig, generator_version, variant, slots)
    return bytes.fromhex("".join(digest for _, digest in parts))
