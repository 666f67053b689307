"""ExprSpec -> GLSL -> SPIR-V.

Lives here: the emitter (one template a kernel form, one text an op), the functions that it pastes from
`include/nnk_math.h`, the compile step with the checks of the numerics contract, and the generator version.
May import: errors, config, ops, numerics, spirv, _fast, expr. It touches no device and no file but the header.
Main names: `glsl.emit`, `compile.compile_kernel`, `version.GENERATOR_VERSION`.
"""
