"""What changes the code of a kernel changes its identity: over the golden kernels and every constant behind them."""

import golden_glsl
import pytest

from nnk import numerics
from nnk.expr import meta
from nnk.expr.key import kernel_identity, without_values
from nnk.expr.spec import ExprSpec, Instr, Operand, ViewSpec
from nnk.generator import blocks, glsl, mathlib

_SPEC = ExprSpec(2, (Instr(9, 0, Operand(1, 0), Operand(1, 1)), Instr(7, 1, Operand(0, 0), Operand(2, 0))),
                 (ViewSpec(0), ViewSpec(2, 0, 5)), (0x40400000,), ())


def constants():
    """Yield every whole number that a module of the generator, of the kernel forms or of the contract names."""
    for module in (meta, numerics, blocks, glsl, mathlib):
        for name, value in vars(module).items():
            if name.isupper() and isinstance(value, int) and not isinstance(value, bool):
                yield pytest.param(module, name, id=f"{module.__name__}.{name}")


@pytest.mark.parametrize(("module", "name"), [*constants()])
def test_constants_that_change_code_change_the_identity(module, name, monkeypatch):
    """Whoever reads the constant sees the new value, whether by the module or by a name of its own."""
    before, code = kernel_identity(_SPEC, 0, 1), golden_glsl.texts()
    value = getattr(module, name)
    for reader in (meta, numerics, blocks, glsl, mathlib):
        if vars(reader).get(name) == value:
            monkeypatch.setattr(reader, name, 2 * value if value < 2**31 else value ^ 1)
    changed = golden_glsl.texts() != code
    assert (kernel_identity(_SPEC, 0, 1) != before) >= changed, "it belongs to nnk.expr.meta or nnk.numerics"


def test_the_constants_that_are_known_to_change_code_do(monkeypatch):
    """Else the test above would prove nothing."""
    code = golden_glsl.texts()
    for module, name in ((meta, "MAX_PUSH_WORDS"), (numerics, "REDUCE_CHUNK")):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, getattr(module, name) // 4)
            assert golden_glsl.texts() != code, name
            assert kernel_identity(_SPEC, 0, 1) != kernel_identity(_SPEC, 0, 2)


def test_values_that_are_no_part_of_the_identity_change_no_code():
    """What the identity leaves out is zero here: the text must be the same, or two kernels would share one entry."""
    for make in golden_glsl.expressions().values():
        tensor = make()
        for step in tensor.engine.schedule([tensor])[0].steps:
            assert glsl.emit(without_values(step.spec)) == glsl.emit(step.spec)
            other = step.spec._replace(const_bits=tuple(bits ^ 0x7FFFFFFF for bits in step.spec.const_bits))
            assert glsl.emit(other) == glsl.emit(step.spec)
            assert kernel_identity(other, 0, 1) == kernel_identity(step.spec, 0, 1) == kernel_identity(
                without_values(step.spec), 0, 1)
