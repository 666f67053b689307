"""The emitter: every op, view and form gives a shader that compiles, validates and keeps the contract."""

import random
import re
import subprocess

import numpy as np
import pytest

import nnk
from nnk import numerics, ops, spirv
from nnk._fast import shaderc
from nnk.errors import UnsupportedOpError
from nnk.expr.canonical import canonicalise
from nnk.expr.meta import DISPATCH_SIGNATURE, kernel_meta_of
from nnk.expr.spec import ExprSpec, Instr, Matmul, Operand, ViewSpec
from nnk.generator.glsl import emit
from tests.strategies import FORMS, random_case

OP = {op.name: op for op in ops.OPS}
VIEW = {view.name: view.code for view in ops.VIEWS}
KIND = {kind.name: kind.code for kind in ops.OPERANDS}
ELEMENTWISE = [op for op in ops.OPS if op.kind != "reduce"]
EMITTED_VIEWS = ("linear", "rotate_half", "row_mod", "row_broadcast", "col_broadcast", "row_gather", "batch_mod",
                 "batch_col", "row_access", "strided", "take", "grouped_reduce_sum", "grouped_reduce_max", "head_group")


def arg(kind, idx=0):
    return Operand(KIND[kind], idx)


def view_specs(name, slot=0, param=4):
    """Return the views of an input with the named view, its index slot included."""
    if name == "take":
        return [ViewSpec(VIEW[name], 0, slot + 1), ViewSpec(VIEW["row_broadcast"])]
    if name == "row_gather":
        return [ViewSpec(VIEW[name], 0, slot + 1), ViewSpec(VIEW["col_broadcast"])]
    return [ViewSpec(VIEW[name], 0, 3 if name == "strided" else param if ops.VIEW_BY_NAME[name].param_words else 0)]


def spec_of(*instrs, views=("linear",), **more):
    specs = []
    for view in views:
        specs += [view] if isinstance(view, ViewSpec) else view_specs(view, len(specs))
    program = tuple(Instr(OP[op].code, dst, *operands) for dst, (op, *operands) in enumerate(instrs))
    return ExprSpec(len(instrs), program, tuple(specs), **more)


def check(spec, tmp_path=None, prec_sig=0, slots=""):
    """Compile a spec's kernel; check structure, contract and interface, and with a folder run the Khronos validator."""
    source = emit(spec, prec_sig, "", slots)
    module = spirv.decorate_no_contraction(shaderc.compile_glsl(source, "test"))
    spirv.check_structure(module)
    spirv.check_exact(module)
    spirv.check_interface(module, kernel_meta_of(spec, prec_sig, slots))
    if tmp_path is not None:
        with_modes = spirv.add_execution_modes(module, spirv.FLOAT_MODES)
        for name, code in (("plain.spv", module), ("modes.spv", with_modes)):
            (tmp_path / name).write_bytes(code)
            done = subprocess.run(["spirv-val", "--target-env", "vulkan1.2", str(tmp_path / name)], capture_output=True,
                                  text=True, check=False)
            assert done.returncode == 0, done.stderr + source
    return source


@pytest.mark.parametrize("op", ELEMENTWISE, ids=lambda op: op.name)
def test_every_op(op, tmp_path):
    operands = [arg("input", slot) for slot in range(op.arity)]
    source = check(spec_of((op.name, *operands), views=["linear"] * op.arity), tmp_path)
    assert "uvec4" in source
    check(spec_of(("row_max", arg("input")), (op.name, *[arg("reduce", 0)] * op.arity)))
    check(spec_of((op.name, *[arg("matmul")] * op.arity), views=("linear", "linear"), matmul=Matmul(0, 1)))


#: Form -> its sum.
REDUCES = {"reduce": "row_sum", "columns": "col_sum", "reduce a matmul": "row_sum", "columns of a matmul": "col_sum"}


def of_matmul(form, *views):
    """Return the views of a spec of this form, and its matmul if it has one."""
    if not form.endswith("matmul"):
        return {"views": views}
    return {"views": ("linear", "linear", *views), "matmul": Matmul(0, 1)}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("view", EMITTED_VIEWS)
def test_every_view_in_every_form(view, form, tmp_path):
    if form in REDUCES:
        reduce = REDUCES[form]
        read = arg("input", 2 * form.endswith("matmul"))
        spec = spec_of((reduce, read), ("mul", arg("reduce", 0), read), **of_matmul(form, view))
    elif form == "matmul":
        spec = spec_of(("add", arg("matmul"), arg("input", 2)), **of_matmul(form, view))
    else:
        spec = spec_of(("neg", arg("input")), views=(view,))
    check(spec, tmp_path)


def test_rotate_half_that_negates():
    plain = spec_of(("exp", arg("input")), views=(ViewSpec(VIEW["rotate_half"], 0, 4),))
    negated = spec_of(("exp", arg("input")), views=(ViewSpec(VIEW["rotate_half"], 1, 4),))
    assert "0x80000000u" in check(negated).split("void main")[1]
    assert "0x80000000u" not in check(plain).split("void main")[1]


@pytest.mark.parametrize("rank", ops.STRIDED_RANKS)
@pytest.mark.parametrize("slot", [0, 1])
def test_strided_matmul_operands(slot, rank, tmp_path):
    views = ["linear", "linear"]
    views[slot] = ViewSpec(VIEW["strided"], 0, rank)
    check(spec_of(views=views, matmul=Matmul(0, 1)), tmp_path)
    check(spec_of(views=[ViewSpec(VIEW["strided"], 0, rank)], matmul=Matmul(0, 0)), tmp_path)


@pytest.mark.parametrize("kind", ["row", "col", "batch", "const", "rparam"])
@pytest.mark.parametrize("form", FORMS)
def test_every_operand_in_every_form(form, kind, tmp_path):
    more = {"const_bits": (0x3F800000,), "rparam_bits": (0x40000000,)}
    if form in REDUCES:
        value = arg("matmul") if form.endswith("matmul") else arg("input")
        spec = spec_of((REDUCES[form], value), ("add", arg("reduce", 0), arg(kind)), **of_matmul(form, "linear"),
                       **more)
    elif form == "matmul":
        spec = spec_of(("add", arg("matmul"), arg(kind)), **of_matmul(form), **more)
    else:
        spec = spec_of(("add", arg("input"), arg(kind)), **more)
    check(spec, tmp_path)


def test_extra_outputs(tmp_path):
    spec = spec_of(("neg", arg("input")), ("exp", arg("reg", 0)), ("add", arg("reg", 0), arg("reg", 1)), extras=(0, 1))
    assert check(spec, tmp_path).count("writeonly buffer O") == 3


def test_many_parameters_come_from_a_buffer(tmp_path):
    wide = [ViewSpec(VIEW["strided"], 0, 7)] * 3
    spec = spec_of(("neg", arg("input", 0)), ("add", arg("reg", 0), arg("input", 1)),
                   ("add", arg("reg", 1), arg("input", 2)), views=wide)
    source = check(spec, tmp_path)
    assert "push_constant" not in source
    assert "binding=4) readonly buffer P{uint words[];}" in source
    assert "push_constant" in check(spec_of(("neg", arg("input"))))


def test_no_literal_zero_is_a_float_operand():
    """R2b: drivers fold x + 0 and 0 * x whatever they were told; zeros are parameters."""
    for zero in (0, 0x80000000):
        main = check(spec_of(("add", arg("input"), arg("const")), const_bits=(zero,))).split("void main")[1]
        assert not re.search(r"\b0\.0", main)
        assert "U2F(W(2))" in main


def test_values_are_no_part_of_the_text():
    texts = {emit(spec_of(("mul", arg("input"), arg("const")), const_bits=(bits,)))
             for bits in (0, 0x40000000, 0x7FC00000)}
    assert len(texts) == 1


def test_only_called_functions_are_pasted():
    assert "nn_exp" not in emit(spec_of(("neg", arg("input"))))
    assert "nn_exp" in emit(spec_of(("sigmoid", arg("input")))) or "expc" in emit(spec_of(("sigmoid", arg("input"))))


def test_row_values_are_computed_once_a_row():
    spec = spec_of(("row_sum", arg("input")), ("exp", arg("reduce", 0)), ("mul", arg("input"), arg("reg", 1)))
    assert emit(spec).split("void main")[1].count("nn_exp(") == 1


def test_vector_code_only_where_columns_keep_together():
    assert "cols%4u==0u" not in emit(spec_of(("neg", arg("input"))))
    assert "cols%4u==0u" in emit(spec_of(("neg", arg("input")), views=("col_broadcast",)))
    assert "uvec4" not in emit(spec_of(("neg", arg("input")), views=("row_mod",)))


def test_every_store_is_canonical():
    for seed in range(40):
        spec = canonicalise(random_case(random.Random(seed)).spec)
        main = emit(spec).split("void main")[1]
        stores = re.findall(r"\b[oq]\d+\.d\[[^\]]*\]\s*=\s*(.*?);", main)
        assert stores
        for store in stores:
            assert store.startswith("nn_canon(") or re.fullmatch(r"y\d+|uvec4\(.*", store), store


def test_emission_is_deterministic():
    for seed in range(20):
        spec = canonicalise(random_case(random.Random(seed)).spec)
        assert emit(spec) == emit(spec)


@pytest.mark.parametrize("form", FORMS)
def test_random_specs_compile_and_validate(form, tmp_path):
    for seed in range(12):
        check(canonicalise(random_case(random.Random(seed), form).spec), tmp_path if seed < 4 else None)


@pytest.mark.parametrize("spec", [
    spec_of(views=("row_mod", "linear"), matmul=Matmul(0, 1)), spec_of(("neg", arg("vec_state"))),
    spec_of(("row_sum", arg("input")), ("add", arg("reduce", 0), arg("input", 1)),
            views=("linear", "col_reduce_sum"))])
def test_what_is_not_emitted(spec):
    with pytest.raises(UnsupportedOpError, match=r"This version does not|Expected"):
        emit(spec)


def test_reduce_views_become_reductions(tmp_path):
    for axis in ("row", "col"):
        source = check(spec_of(("div", arg("input"), arg("input", 1)), ("neg", arg("reg", 0)),
                               views=(f"{axis}_reduce_max", f"{axis}_reduce_sum")), tmp_path)
        by_instr = spec_of((f"{axis}_max", arg("input")), (f"{axis}_sum", arg("input", 1)),
                           ("div", arg("reduce", 0), arg("reduce", 1)), ("neg", arg("reg", 2)),
                           views=("linear", "linear"))
        assert source == emit(by_instr)


def test_reduce_views_that_nothing_reads():
    assert "tree_" not in check(spec_of(("neg", arg("input", 1)), views=("row_reduce_sum", "linear")))
    assert "product(row,col)" in check(spec_of(views=("linear", "linear", "col_reduce_sum"), matmul=Matmul(0, 1)))


def test_neighbouring_threads_take_neighbouring_columns():
    main = check(spec_of(("col_sum", arg("input")))).split("void main")[1]
    assert "line=gl_LocalInvocationID.x%lines" in main
    assert "line=gl_LocalInvocationID.x>>shift" in emit(spec_of(("row_sum", arg("input"))))


def test_labels_never_leave_their_table():
    source = check(spec_of(("neg", arg("input")), views=("row_gather",)))
    assert "label_row(b1.d[col],uint(b0.d.length())/cols)*cols+col" in source
    assert "rows-1u" in source


def test_kernels_of_real_graphs_validate(cpu, tmp_path):
    x = cpu.array(np.ones((4, 8), np.float32))
    b = cpu.array(np.ones(8, np.float32))
    index = np.array([[0, 3], [1, 1]])
    for y in (nnk.softmax(x), nnk.layer_norm(x, b, b), nnk.gelu(x @ x.T) + 1.0, x.T[::-1] * 2.0, x.take(index) + b,
              nnk.rms_norm(x.take(index)), x[1:, 1:].T @ x[1:, 1:], nnk.where(x > 0, x ** 3, x / b)):
        for step in cpu.schedule([y])[0].steps:
            check(step.spec, tmp_path)


def test_contract_texts_are_emitted_as_they_are():
    source = emit(spec_of(("tanh", arg("input"))))
    assert f"float v0={numerics.FUNCTIONS['tanh'].format(a='x0')};" in source


def test_products_of_float16_alone_may_fuse():
    product = spec_of(("copy", arg("matmul")), views=("linear", "linear"), matmul=Matmul(0, 1))
    halves = emit(product, DISPATCH_SIGNATURE)
    assert "if((W(8)&3u)==3u){" in halves
    assert halves.count("=fma(") == 16
    kinds = ("t2", "t3")
    others = [emit(product), emit(spec_of(("add", arg("input"), arg("input", 1)), views=("linear", "linear")),
                                  DISPATCH_SIGNATURE), *(emit(product, DISPATCH_SIGNATURE, kind) for kind in kinds)]
    assert not any("=fma(" in text for text in others)
