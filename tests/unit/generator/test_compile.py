"""From a spec to SPIR-V: decorated, checked, dumped where asked, and errors that show the source."""

import struct

import pytest

from nnk import config, spirv
from nnk._fast import shaderc
from nnk.errors import CompileError, UnsupportedOpError
from nnk.expr.meta import DISPATCH_SIGNATURE, kernel_meta_of
from nnk.expr.spec import ExprSpec, Instr, Matmul, Operand, ViewSpec
from nnk.generator import compile as rules
from nnk.generator.compile import compile_kernel, compiler_version
from nnk.generator.glsl import emit
from nnk.numerics import FAST_VARIANT
from tests import folds

TANH = ExprSpec(1, (Instr(6, 0, Operand(1, 0)),), (ViewSpec(0),))


def test_module_is_exact_and_fits_its_meta():
    module = compile_kernel(TANH, "v1.test")
    spirv.check_exact(module)
    spirv.check_interface(module, kernel_meta_of(TANH))
    assert module == compile_kernel(TANH, "v1.other")


def test_undecorated_module_would_not_pass():
    with pytest.raises(CompileError, match="NoContraction"):
        spirv.check_exact(shaderc.compile_glsl(emit(TANH), "test"))


def test_a_product_of_halves_alone_may_fuse():
    product = ExprSpec(1, (Instr(69, 0, Operand(5, 0)),), (ViewSpec(0), ViewSpec(0)), matmul=Matmul(0, 1))
    spirv.check_exact(compile_kernel(product, "v1.test"))
    module = compile_kernel(product, "v1.test", DISPATCH_SIGNATURE)
    spirv.check_exact(module, may_fuse=True)
    with pytest.raises(CompileError, match="Fma has no exact result"):
        spirv.check_exact(module)


def test_fast_kernels_decorate_the_exact_functions_alone():
    add = ExprSpec(2, (Instr(64, 0, Operand(1, 0)), Instr(7, 1, Operand(0, 0), Operand(1, 0))), (ViewSpec(0),), (), ())
    exact, fast = (compile_kernel(add, "v1.test", 0, variant) for variant in ("", FAST_VARIANT))
    no_contraction = struct.pack("<I", 42)
    assert 10 < fast.count(no_contraction) < exact.count(no_contraction)
    with pytest.raises(CompileError, match="of FAdd lacks NoContraction"):
        spirv.check_exact(fast)
    assert "=exp(x0)" in emit(TANH._replace(instrs=(Instr(1, 0, Operand(1, 0)),)), 0, FAST_VARIANT)


def test_error_of_the_compiler_shows_key_source_and_log(monkeypatch):
    source = "#version 450\nvoid main(){ float x = oops; }\n"
    monkeypatch.setattr(rules, "emit", lambda spec, prec_sig, variant, slots: source)
    with pytest.raises(CompileError, match=r"Kernel v1\.broken: ") as caught:
        compile_kernel(TANH, "v1.broken")
    assert caught.value.key == "v1.broken"
    assert "oops" in caught.value.source
    assert "oops" in caught.value.log
    assert isinstance(caught.value.__cause__, CompileError)


def test_kernel_outside_of_the_contract_is_refused(monkeypatch):
    source = emit(TANH).replace("nn_tanh(x0)", "tanh(x0)")
    assert source != emit(TANH)
    monkeypatch.setattr(rules, "emit", lambda spec, prec_sig, variant, slots: source)
    with pytest.raises(CompileError, match=r"Kernel v1\.native: .*"):
        compile_kernel(TANH, "v1.native")


def test_unsupported_specs_pass_their_error_on():
    spec = folds.row_max(4)
    last = Instr(0, 1, Operand(5, 0))
    with pytest.raises(UnsupportedOpError, match="finalize part of a fold"):
        compile_kernel(spec._replace(fold=spec.fold._replace(finalize=(last,))), "v1.fold")
    with pytest.raises(UnsupportedOpError, match="got both"):
        compile_kernel(TANH._replace(views=(ViewSpec(3), ViewSpec(5))), "v1.view")


def test_dump(tmp_path):
    folder = tmp_path / "new" / "dump"
    with config.override(dump_dir=str(folder)):
        module = compile_kernel(TANH, "v1.0123456789abcdef#x")
    assert sorted(path.name for path in folder.iterdir()) == ["v1.0123456789abcdef-x.comp", "v1.0123456789abcdef-x.spv"]
    assert (folder / "v1.0123456789abcdef-x.spv").read_bytes() == module
    assert (folder / "v1.0123456789abcdef-x.comp").read_text() == emit(TANH)


def test_broken_source_is_dumped_too(tmp_path, monkeypatch):
    monkeypatch.setattr(rules, "emit", lambda spec, prec_sig, variant, slots: "no shader")
    with config.override(dump_dir=str(tmp_path)), pytest.raises(CompileError):
        compile_kernel(TANH, "v1.broken")
    assert (tmp_path / "v1.broken.comp").read_text() == "no shader"


def test_compiler_version():
    assert compiler_version() == shaderc.version() != ""
