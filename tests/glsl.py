"""Small kernels written by hand, for tests of the Vulkan room."""

from __future__ import annotations

from functools import lru_cache

from nnk import spirv
from nnk._fast import shaderc
from nnk.expr.meta import KernelMeta


def meta_of(n_inputs: int, n_outputs: int, param_words: int) -> KernelMeta:
    """Return the meta data of an elementwise kernel with so many bindings and parameter words."""
    return KernelMeta(form="elementwise", reduce_axis=-1, has_matmul=False, n_inputs=n_inputs, n_outputs=n_outputs,
                      view_param_offsets=(), view_param_count=param_words - 1, const_count=0, rparam_count=0,
                      vec_width=1, prec_sig=0, pc_base_fixed=1, fold_out=0, fold_per_thread_row=0)


def text_of(body: str, n_inputs: int = 1, n_outputs: int = 1, param_words: int = 1) -> str:
    """Return the GLSL of such a kernel, which runs ``body`` for every i below its first parameter.

    Inputs are float arrays b0, b1, ...; outputs o0, o1, ...; parameters the uint array w.
    """
    meta = meta_of(n_inputs, n_outputs, param_words)
    lines = ["#version 450", "layout(local_size_x = 256) in;"]
    lines += [f"layout(std430, binding = {i}) readonly buffer B{i} {{ float b{i}[]; }};" for i in range(n_inputs)]
    lines += [f"layout(std430, binding = {n_inputs + i}) buffer O{i} {{ float o{i}[]; }};" for i in range(n_outputs)]
    if meta.params_in_buffer:
        lines.append(f"layout(std430, binding = {n_inputs + n_outputs}) readonly buffer P {{ uint w[]; }};")
    else:
        lines.append(f"layout(push_constant) uniform P {{ uint w[{param_words}]; }};")
    return "\n".join([
        *lines, "void main() {",
        "  for (uint i = gl_GlobalInvocationID.x; i < w[0]; i += gl_NumWorkGroups.x * 256u) {", f"    {body}",
        "  }", "}"])


@lru_cache
def build(body: str, n_inputs: int = 1, n_outputs: int = 1, param_words: int = 1) -> tuple[bytes, KernelMeta]:
    """Return module and meta of the kernel of :func:`text_of`."""
    meta = meta_of(n_inputs, n_outputs, param_words)
    source = text_of(body, n_inputs, n_outputs, param_words)
    module = spirv.decorate_no_contraction(shaderc.compile_glsl(source, "test"))
    spirv.check_exact(module)
    spirv.check_interface(module, meta)
    return module, meta
