"""GLSL -> SPIR-V: compile at zero optimisation, decorate every float operation, check the contract (R11)."""

from __future__ import annotations

import pathlib

from nnk import config, spirv
from nnk.errors import CompileError
from nnk.expr.meta import kernel_meta_of
from nnk.expr.spec import ExprSpec
from nnk.generator.glsl import emit
from nnk.generator.mathlib import function_names
from nnk.generator.soft import SOFT_VARIANTS, check_replaced, replace_arithmetic
from nnk.numerics import FAST_VARIANT

__all__ = ["compile_kernel", "compiler_version"]


def compiler_version() -> str:
    """Return the name and version of the GLSL compiler."""
    from nnk._fast import shaderc
    return shaderc.version()


def _dump(key: str, suffix: str, data: bytes) -> None:
    folder = config.get("dump_dir")
    if folder:
        path = pathlib.Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        (path / (key.replace("#", "-") + suffix)).write_bytes(data)


def compile_kernel(spec: ExprSpec, key: str, prec_sig: int = 0, variant: str = "", slots: str = "") -> bytes:
    """Return the SPIR-V of the kernel of a canonical ``spec``, ready for the cache.

    ``variant`` is one of the values of :data:`nnk.numerics.VARIANTS`, or :data:`nnk.numerics.FAST_VARIANT`, whose
    kernels are outside of the contract.

    Raises
    ------
    UnsupportedOpError
        If this version has no code for the spec.
    CompileError
        If the compiler refuses the source, or the result breaks the numerics contract.
    """
    # The compiler is loaded by the first miss: a process with a warm cache never pays for it.
    from nnk._fast import shaderc
    source = emit(spec, prec_sig, variant, slots)
    _dump(key, ".comp", source.encode())
    try:
        module = shaderc.compile_glsl(source, key)
        if variant in SOFT_VARIANTS:
            module = replace_arithmetic(module, variant, function_names())
            check_replaced(module, variant, function_names())
        if variant == FAST_VARIANT:
            # Without the decoration, drivers may fuse + - *, but the exact functions would be wrong.
            module = spirv.decorate_no_contraction(module, function_names())
        else:
            module = spirv.decorate_no_contraction(module)
            spirv.check_exact(module, may_fuse=kernel_meta_of(spec, prec_sig, slots).may_fuse)
    except CompileError as error:
        raise CompileError(f"Kernel {key}: {error.message}", key=key, source=source, log=error.log) from error
    _dump(key, ".spv", module)
    return module
