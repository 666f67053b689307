"""Float instructions become calls: every one, everywhere in T3, outside of nnk_math.h in T2."""

import re
import struct
import subprocess

import pytest

from nnk import spirv
from nnk._fast import shaderc
from nnk.errors import CompileError
from nnk.expr.canonical import canonicalise
from nnk.expr.spec import ExprSpec, Instr, Matmul, Operand, ViewSpec
from nnk.generator.compile import compile_kernel
from nnk.generator.glsl import emit
from nnk.generator.mathlib import function_names, functions_for
from nnk.generator.soft import KEEP_CALL, SOFT_VARIANTS, check_replaced, replace_arithmetic, soft_functions
from nnk.ops import OPS
from tests import folds

X, Y, C = Operand(1, 0), Operand(1, 1), Operand(2, 0)
LIBRARY = function_names()

#: A shader with every float instruction that the pass knows, on scalars and vectors, in main and in functions.
BODY = """
  float a=U2F(i.d[0]), b=U2F(i.d[1]);
  vec4 v=vec4(a,b,a,b), w=vec4(b);
  vec4 r=v+w*b-v*w; vec2 q=v.xy*w.xy-v.yz*b; r.xy=r.xy+q;
  r=-r+fma(v,w,r);
  uint c=uint(a<b)+uint(a<=b)*2u+uint(a>b)*4u+uint(a>=b)*8u+uint(a==b)*16u+uint(a!=b)*32u;
  r.x=nn_helper(r.y)+float(int(c))+float(c)-own(a);
  o.d[0]=F2U(r.x+r.y+r.z+r.w+(-a));
"""


def source(variant, body=BODY):
    soft = soft_functions(variant)
    return f"""#version 450
layout(local_size_x=1) in;
layout(std430,set=0,binding=0) readonly buffer I{{uint d[];}} i;
layout(std430,set=0,binding=1) buffer O{{uint d[];}} o;
{functions_for(soft)}
{soft}
float nn_helper(float x){{return x*x+1.0;}}
float own(float x){{return x*x-2.0;}}
void main(){{
  {KEEP_CALL}
{body}
}}
"""


def floats_by_function(module, tmp_path):
    """Return function name -> float instructions in it, as the reference disassembler shows them."""
    path = tmp_path / "module.spv"
    path.write_bytes(module)
    text = subprocess.run(["spirv-dis", "--raw-id", "--no-color", str(path)], check=True, capture_output=True,
                          text=True).stdout
    names = dict(re.findall(r'OpName (%\d+) "(\w+)', text))
    found, name = {}, ""
    for line in text.splitlines():
        if " = OpFunction " in line:
            name = names[line.split()[0]]
            found[name] = []
        hit = re.search(r"= (Op(?:F(?!unction)\w+|Convert[SU]ToF|VectorTimes\w+|Dot))|%1 (Fma)", line)
        if hit:
            found.setdefault(name, []).append(hit.group(1) or hit.group(2))
    return found


def is_valid(module, tmp_path):
    path = tmp_path / "valid.spv"
    path.write_bytes(module)
    subprocess.run(["spirv-val", "--target-env", "vulkan1.2", str(path)], check=True)
    return True


def test_the_sample_has_every_instruction(tmp_path):
    found = floats_by_function(shaderc.compile_glsl(source("t3"), "x"), tmp_path)
    assert set(found["main"]) >= {
        "OpFAdd", "OpFSub", "OpFMul", "OpFNegate", "OpVectorTimesScalar", "Fma", "OpFOrdLessThan", "OpFOrdEqual",
        "OpFOrdLessThanEqual", "OpFOrdGreaterThan", "OpFOrdGreaterThanEqual", "OpConvertSToF", "OpConvertUToF"}
    assert found["nn_helper"] == ["OpFMul", "OpFAdd"]


def test_t3_leaves_none(tmp_path):
    module = replace_arithmetic(shaderc.compile_glsl(source("t3"), "x"), "t3", LIBRARY)
    assert [name for name, ops in floats_by_function(module, tmp_path).items() if ops] == []
    check_replaced(module, "t3", LIBRARY)
    assert is_valid(module, tmp_path)


def test_t2_leaves_those_of_the_library_and_conversions(tmp_path):
    library = LIBRARY | {"nn_helper"}
    module = replace_arithmetic(shaderc.compile_glsl(source("t2"), "x"), "t2", library)
    found = floats_by_function(module, tmp_path)
    assert sorted(found.pop("main")) == ["OpConvertSToF", "OpConvertUToF"]
    assert found.pop("nn_helper") == ["OpFMul", "OpFAdd"]
    assert {name for name, ops in found.items() if ops} == {"nn_g_add", "nn_g_mul"}
    check_replaced(module, "t2", library)
    assert is_valid(module, tmp_path)
    with pytest.raises(CompileError, match="Expected a kernel of tier T3 without native float arithmetic"):
        check_replaced(module, "t3", library)


@pytest.mark.parametrize("variant", SOFT_VARIANTS)
def test_the_call_that_keeps_functions_is_gone(variant):
    before = shaderc.compile_glsl(source(variant, "o.d[0]=1u;"), "x")
    after = replace_arithmetic(before, variant, LIBRARY)
    assert len(before) - len(after) == 4 * 4
    assert after[20:] != before[20:]


@pytest.mark.parametrize("variant", SOFT_VARIANTS)
def test_four_components_share_a_call(variant, tmp_path):
    """+, *, - and fma of a vec4, a vec4 times a scalar: one call each, two for fma."""
    body = "vec4 v=vec4(U2F(i.d[0])), w=v+v*v.x-v*v; o.d[0]=F2U(fma(w,v,w).y);"
    module = replace_arithmetic(shaderc.compile_glsl(source(variant, body), "x"), variant, LIBRARY)
    path = tmp_path / "module.spv"
    path.write_bytes(module)
    text = subprocess.run(["spirv-dis", "--raw-id", "--no-color", str(path)], check=True, capture_output=True,
                          text=True).stdout
    names = dict(re.findall(r'OpName (%\d+) "(\w+)', text))
    calls = [names[name] for name in re.findall(r"OpFunctionCall %\d+ (%\d+)", text)]
    # soft_keep calls each of them once.
    assert {name: calls.count(name) for name in ("soft_add4", "soft_sub4", "soft_mul4")} == {
        "soft_add4": 1 + 2, "soft_sub4": 1 + 1, "soft_mul4": 1 + 3}
    assert is_valid(module, tmp_path)


def test_a_missing_function_is_an_error():
    text = source("t3").replace("soft_keep();\n\n", "\n").replace("  soft_keep();", "")
    with pytest.raises(CompileError, match="Expected the function soft_"):
        replace_arithmetic(shaderc.compile_glsl(text, "x"), "t3", LIBRARY)


@pytest.mark.parametrize("body", ["double z=double(i.d[0])*1.5lf; o.d[0]=uint(z);",
                                  "dvec4 z=dvec4(i.d[0])*dvec4(1.5lf); o.d[0]=uint(z.y);"])
def test_arithmetic_of_another_width_is_an_error(body):
    double = source("t3", body)
    with pytest.raises(CompileError, match=r"Expected (32-bit float arithmetic|float vectors)"):
        replace_arithmetic(shaderc.compile_glsl(double, "x"), "t3", LIBRARY)


@pytest.mark.parametrize("op", [111, 112, 115, 127, 129, 131, 133, 140, 141, 142, 148, 180, 184, 190])
def test_check_finds_what_is_left(op):
    """One instruction put into a clean module, in its last function."""
    module = replace_arithmetic(shaderc.compile_glsl(source("t3"), "x"), "t3", LIBRARY)
    check_replaced(module, "t3", LIBRARY)
    planted = module[:-4] + struct.pack("<6I", 5 << 16 | op, 1, 1, 1, 1, 1 << 16 | 56)
    with pytest.raises(CompileError, match=f"got instruction {op} in "):
        check_replaced(planted, "t3", LIBRARY)


def test_an_instruction_without_length_is_an_error():
    with pytest.raises(CompileError, match="has no length"):
        check_replaced(shaderc.compile_glsl("#version 450\nvoid main(){}", "x") + bytes(4), "t3", LIBRARY)


# ---- kernels

def kernels():
    """One kernel of each form, and one for each op."""
    for op in OPS:
        if op.kind != "reduce":
            operands = (X, Y, C)[:op.arity] + (Operand(0, 0),) * (3 - op.arity)
            views = (ViewSpec(0),) * min(op.arity, 2)
            yield op.name, ExprSpec(1, (Instr(op.code, 0, *operands),), views, (0x40000000,) * (op.arity == 3), ())
    total = Instr(22, 0, X)
    yield "row_sum", ExprSpec(2, (total, Instr(8, 1, X, Operand(4, 0))), (ViewSpec(0),), (), ())
    yield "matmul", ExprSpec(2, (Instr(7, 0, Operand(5, 0), Y), Instr(9, 1, Operand(0, 0), Operand(7, 0))),
                             (ViewSpec(0), ViewSpec(0)), (), (), Matmul(0, 1))
    yield "fold", canonicalise(folds.attention(16, 2, 20, "causal", True))


@pytest.mark.parametrize(("name", "spec"), [pytest.param(*row, id=row[0]) for row in kernels()])
def test_kernels_have_no_native_arithmetic(name, spec, tmp_path):
    """The proof for a device of tier T3: seeds alone are left."""
    module = compile_kernel(spec, "test", 0, "t3")
    spirv.check_exact(module)
    left = {op for ops in floats_by_function(module, tmp_path).values() for op in ops}
    assert left <= {"OpFDiv"}
    assert is_valid(module, tmp_path)
    guarded = compile_kernel(spec, "test", 0, "t2")
    spirv.check_exact(guarded)
    own = {function: ops for function, ops in floats_by_function(guarded, tmp_path).items() if function not in LIBRARY}
    assert {op for ops in own.values() for op in ops} <= {"OpConvertSToF"}
    assert is_valid(guarded, tmp_path)


def test_a_matmul_calls_in_loops():
    """Drivers put the callee in place of each call: 128 of them in the innermost loop made kernels of seconds."""
    product = ExprSpec(1, (Instr(69, 0, Operand(5, 0)),), (ViewSpec(0), ViewSpec(0)), matmul=Matmul(0, 1))
    for variant in SOFT_VARIANTS:
        module = compile_kernel(product, "test", 0, variant)
        assert emit(product, 0, variant).count("sums[quad][x]+a*b[x]") == 1
        words, calls, at = struct.unpack(f"<{len(module) // 4}I", module), 0, 5
        while at < len(words):
            calls += words[at] & 0xFFFF == 57
            at += words[at] >> 16
        assert calls < 60


def test_text_of_a_variant_is_another_text():
    spec = ExprSpec(1, (Instr(7, 0, X, Y),), (ViewSpec(0), ViewSpec(0)), (), ())
    texts = {variant: emit(spec, 0, variant) for variant in ("", *SOFT_VARIANTS)}
    assert len(set(texts.values())) == 3
    assert KEEP_CALL not in texts[""]
    assert "nn_g_add" not in texts["t3"]
    assert "nn_g_add" in texts["t2"]
