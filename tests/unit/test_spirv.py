"""SPIR-V modules: decorate, check, extend, read; and that damage is a FormatError and nothing else."""

from __future__ import annotations

import contextlib
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnk import spirv
from nnk._fast import shaderc
from nnk.errors import CompileError, FormatError
from tests.glsl import build, meta_of, text_of

MODES = tuple(spirv.FLOAT_MODES)
HEAD = """#version 450
layout(local_size_x = 256) in;
layout(std430, binding = 0) buffer A { float a[]; };
layout(std430, binding = 1) buffer U { uint u[]; };
layout(push_constant) uniform P { uint n; float f; uvec2 v; };
shared float s[256];
"""


def compiled(body: str, head: str = HEAD) -> bytes:
    return shaderc.compile_glsl(f"{head}\nvoid main() {{ uint i = gl_GlobalInvocationID.x; {body} }}", "test")


def words(module: bytes) -> list[int]:
    return list(struct.unpack(f"<{len(module) // 4}I", module))


def instructions(module: bytes) -> list[tuple[int, list[int]]]:
    """Cut a module, slow and obvious."""
    found, all_words, at = [], words(module), 5
    while at < len(all_words):
        count = all_words[at] >> 16
        found.append((all_words[at] & 0xFFFF, all_words[at + 1:at + count]))
        at += count
    return found


def join(head: list[int], rows: list[tuple[int, list[int]]]) -> bytes:
    out = list(head)
    for op, operands in rows:
        out += [(len(operands) + 1) << 16 | op, *operands]
    return struct.pack(f"<{len(out)}I", *out)


@pytest.fixture(scope="module")
def sample() -> bytes:
    """A module with every function of the contract."""
    math = (Path(spirv.__file__).parent / "include/nnk_math.h").read_text().split("#include \"nnk_math")[0]
    calls = " + ".join(f"nn_{name}(x)" for name in ("exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "silu", "gelu",
                                                     "gelu_tanh", "erf"))
    return spirv.decorate_no_contraction(compiled(f"float x = a[i]; a[i] = {calls} + nn_div(x, f);", HEAD + math))


@pytest.fixture(scope="module")
def small() -> bytes:
    return build("o0[i] = b0[i] + uintBitsToFloat(w[1]);", param_words=2)[0]


def validate(module: bytes, tmp_path: Path) -> None:
    assert shutil.which("spirv-val"), "spirv-val is missing: apt-get install spirv-tools"
    path = tmp_path / "module.spv"
    path.write_bytes(module)
    done = subprocess.run(["spirv-val", "--target-env", "vulkan1.2", str(path)], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stdout + done.stderr


# ---- NoContraction ---------------------------------------------------------------------------------------------------

def test_every_float_result_is_decorated(sample: bytes, tmp_path: Path) -> None:
    rows = instructions(sample)
    decorated = [operands[0] for op, operands in rows if op == 71 and operands[1] == 42]
    arithmetic = [operands[1] for op, operands in rows if op in (127, 129, 131, 133, 136, 142)]
    assert len(arithmetic) > 150
    assert sorted(decorated) == sorted(arithmetic)
    validate(sample, tmp_path)


def test_precise_alone_leaks_and_is_completed() -> None:
    head = HEAD + "float g(float x) { return x * x + f; }\n"
    module = compiled("precise float x = g(a[i]) * f; a[i] = x * x + 1.0;", head)
    assert 0 < sum(op == 71 and operands[1] == 42 for op, operands in instructions(module)) < 5
    with pytest.raises(CompileError, match="lacks NoContraction"):
        spirv.check_exact(module)
    done = spirv.decorate_no_contraction(module)
    spirv.check_exact(done)
    assert spirv.decorate_no_contraction(done) == done


def test_integers_are_left_alone() -> None:
    module = compiled("u[i] = u[i] * n + 3u;")
    assert spirv.decorate_no_contraction(module) == module


# ---- exactness -------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("body", [
    "a[i] = a[i] + f; a[i] = a[i] - f * f / a[0];",
    "a[i] = inversesqrt(f);",
    "a[i] = -f;",
    "a[i] = f < a[i] ? f : 1.0;",
    "a[i] = uintBitsToFloat(mix(u[i], n, a[i] > f));",
    "a[i] = float(int(u[i])); u[i] = uint(int(a[i]));",
    "vec4 x = vec4(a[i], f, a[0], 1.0); x = x * f + x; a[i] = x.z;",
    "u[i] = uint(findMSB(u[i])) + min(u[i], 3u) + uint(clamp(int(n), 0, 7));",
    "s[gl_LocalInvocationID.x] = a[i]; barrier(); a[i] = s[0] + s[1];",
    "uint h, l; umulExtended(u[i], n, h, l); u[i] = h + l;",
    "a[i] = uintBitsToFloat(0x80000000u); for (uint k = 0u; k < n; k++) a[i] = a[i] + a[k] * f;",
])
def test_allowed(body: str) -> None:
    spirv.check_exact(spirv.decorate_no_contraction(compiled(body)))


def test_the_contract_functions_are_allowed(sample: bytes) -> None:
    spirv.check_exact(sample)


@pytest.mark.parametrize(("body", "name"), [
    ("a[i] = fma(a[i], f, f);", "Fma"),
    ("a[i] = exp(f);", "Exp"),
    ("a[i] = log2(f);", "Log2"),
    ("a[i] = pow(f, 2.0);", "Pow"),
    ("a[i] = tanh(f);", "Tanh"),
    ("a[i] = sqrt(f);", "Sqrt"),
    ("a[i] = sin(f);", "Sin"),
    ("a[i] = max(a[i], f);", "FMax"),
    ("a[i] = min(a[i], f);", "FMin"),
    ("a[i] = clamp(a[i], f, 1.0);", "FClamp"),
    ("a[i] = mix(a[i], f, 0.5);", "FMix"),
    ("a[i] = abs(f);", "FAbs"),
    ("a[i] = floor(f);", "Floor"),
    ("a[i] = fract(f);", "Fract"),
    ("a[i] = round(f);", "Round"),
    ("a[i] = mod(a[i], f);", "FMod"),
    ("a[i] = dot(vec2(a[i], f), vec2(f));", "Dot"),
    ("a[i] = length(vec2(a[i], f));", "Length"),
    ("a[i] = (mat2(f) * vec2(a[i])).x;", "MatrixTimesVector"),
    ("u[i] = packHalf2x16(vec2(f));", "PackHalf2x16"),
    ("a[i] = unpackHalf2x16(n).x;", "UnpackHalf2x16"),
    ("a[i] = float(u[i]);", "instruction 112"),
    ("mediump float x = a[i] * f; a[i] = x * x;", "decoration 0 relaxes"),
])
def test_forbidden(body: str, name: str) -> None:
    with pytest.raises(CompileError, match=f"numerics contract.*{name}"):
        spirv.check_exact(spirv.decorate_no_contraction(compiled(body)))


def test_fma_needs_leave_and_no_contraction(tmp_path: Path) -> None:
    module = compiled("vec4 x = fma(vec4(a[i]), vec4(f), vec4(0.5)); a[i] = x.y;")
    with pytest.raises(CompileError, match="Fma lacks NoContraction"):
        spirv.check_exact(module, may_fuse=True)
    done = spirv.decorate_no_contraction(module)
    assert spirv.decorate_no_contraction(done) == done
    spirv.check_exact(done, may_fuse=True)
    validate(done, tmp_path)
    with pytest.raises(CompileError, match="Fma has no exact result"):
        spirv.check_exact(done)
    with pytest.raises(CompileError, match="Exp has no exact result"):
        spirv.check_exact(spirv.decorate_no_contraction(compiled("a[i] = exp(f);")), may_fuse=True)


def test_subgroup_arithmetic_is_forbidden_and_movement_is_not() -> None:
    head = HEAD.replace("450\n", "450\n#extension GL_KHR_shader_subgroup_arithmetic : enable\n"
                                 "#extension GL_KHR_shader_subgroup_shuffle : enable\n")
    with pytest.raises(CompileError, match="instruction 350 makes a float"):
        spirv.check_exact(spirv.decorate_no_contraction(compiled("a[i] = subgroupAdd(a[i]);", head)))
    spirv.check_exact(spirv.decorate_no_contraction(compiled("a[i] = subgroupShuffle(a[i], n);", head)))
    spirv.check_exact(spirv.decorate_no_contraction(compiled("u[i] = subgroupAdd(u[i]);", head)))


@pytest.mark.parametrize("extra", [
    (16, [0, 4460, 32]),        # DenormFlushToZero
    (16, [0, 4463, 32]),        # RoundingModeRTZ
    (71, [3, 40, 16]),          # FPFastMathMode
])
def test_result_changing_declarations_are_forbidden(small: bytes, extra: tuple[int, list[int]]) -> None:
    rows = instructions(small)
    at = next(index for index, (op, _) in enumerate(rows) if op == extra[0])
    with pytest.raises(CompileError):
        spirv.check_exact(join(words(small)[:5], [*rows[:at], extra, *rows[at:]]))


@pytest.mark.parametrize("op", [4457, 5361, 6035])
def test_matrix_and_float_atomic_instructions_are_forbidden(small: bytes, op: int) -> None:
    rows = instructions(small)
    float_type = next(operands[0] for kind, operands in rows if kind == 22)
    with pytest.raises(CompileError):
        spirv.check_exact(join(words(small)[:5], [*rows, (op, [float_type, 9, 9, 9])]))


# ---- execution modes -------------------------------------------------------------------------------------------------

def test_modes_are_added_once_and_valid(sample: bytes, tmp_path: Path) -> None:
    done = spirv.add_execution_modes(sample, MODES)
    rows = instructions(done)
    assert [operands[1:] for op, operands in rows if op == 16 and operands[1] != 17] == [
        [4459, 32], [4461, 32], [4462, 32]]
    assert [operands[0] for op, operands in rows if op == 17] == [1, 4464, 4466, 4467]
    assert spirv.add_execution_modes(done, MODES) == done
    validate(done, tmp_path)


def test_some_modes_first_the_rest_later(small: bytes) -> None:
    done = spirv.add_execution_modes(small, MODES[1:])
    assert spirv.add_execution_modes(small, ()) == small
    assert spirv.interface_of(done).capabilities == {1, 4466, 4467}
    both = spirv.add_execution_modes(done, MODES)
    assert spirv.interface_of(both).capabilities == {1, 4464, 4466, 4467}
    assert sum(op == 10 for op, _ in instructions(both)) == 1


def test_the_rest_of_the_module_stays(small: bytes) -> None:
    done = instructions(spirv.add_execution_modes(small, MODES))
    assert [row for row in done if row in instructions(small)] == instructions(small)


# ---- interface -------------------------------------------------------------------------------------------------------

def test_interface() -> None:
    found = spirv.interface_of(compiled("a[i] = f + float(int(v.y));"))
    assert found.entry_point == "main"
    assert found.local_size == (256, 1, 1)
    assert found.push_bytes == 16
    assert found.capabilities == {1}
    assert [(binding.set, binding.binding, binding.readonly) for binding in found.bindings] == [
        (0, 0, False), (0, 1, False)]


def test_readonly_and_aliased_bindings() -> None:
    head = ("#version 450\nlayout(local_size_x = 8, local_size_y = 4, local_size_z = 2) in;\n"
            "layout(std430, set = 1, binding = 3) readonly buffer A { float a[]; };\n"
            "layout(std430, set = 1, binding = 3) readonly buffer B { vec4 b[]; };\n"
            "layout(std430, binding = 7) buffer O { float o[]; };\n")
    found = spirv.interface_of(compiled("o[i] = a[i] + b[i].x;", head))
    assert found.local_size == (8, 4, 2)
    assert found.push_bytes == 0
    assert [(binding.set, binding.binding, binding.readonly) for binding in found.bindings] == [
        (0, 7, False), (1, 3, True)]


def test_only_storage_buffers() -> None:
    head = HEAD + "layout(binding = 2) uniform X { float x; };\n"
    with pytest.raises(FormatError, match="storage buffers only"):
        spirv.interface_of(compiled("a[i] = x;", head))


def test_fitting_interface_passes(small: bytes) -> None:
    spirv.check_interface(small, meta_of(1, 1, 2))
    module, meta = build("o0[i] = uintBitsToFloat(w[39]);", param_words=40)
    assert meta.params_in_buffer
    spirv.check_interface(module, meta)


@pytest.mark.parametrize(("meta", "field"), [
    (meta_of(2, 1, 2), "bindings"),
    (meta_of(1, 0, 2), "bindings"),
    (meta_of(1, 1, 3), "push constant bytes"),
    (meta_of(1, 1, 33), "bindings"),
])
def test_interface_must_fit(small: bytes, meta: object, field: str) -> None:
    with pytest.raises(FormatError, match=f"does not fit its kernel: expected {field}") as caught:
        spirv.check_interface(small, meta)  # type: ignore[arg-type]
    assert caught.value.field == field  # type: ignore[attr-defined]


def test_workgroup_size_entry_point_and_capabilities_must_fit(small: bytes) -> None:
    meta = meta_of(1, 1, 2)
    rows = instructions(small)

    def replaced(op: int, operands: list[int]) -> bytes:
        at = next(index for index, row in enumerate(rows) if row[0] == op)
        return join(words(small)[:5], [*rows[:at], (op, operands), *rows[at + 1:]])

    local = next(operands for op, operands in rows if op == 16)
    entry = next(operands for op, operands in rows if op == 15)
    for module, field in ((replaced(16, [*local[:2], 128, 1, 1]), "workgroup size"),
                          (replaced(15, [*entry[:2], int.from_bytes(b"nain", "little"), *entry[3:]]), "entry point"),
                          (replaced(17, [9]), "capabilities"),
                          (replaced(17, [61]), "capabilities")):
        with pytest.raises(FormatError, match=f"expected {field}"):
            spirv.check_interface(module, meta, capabilities={1})
    spirv.check_interface(replaced(17, [9]), meta, capabilities={9})
    spirv.check_interface(replaced(17, [61]), meta)


def test_kinds_of_bindings_must_fit() -> None:
    """An input that the kernel could write, and an output that it cannot, belong to another kernel."""
    body = "o0[i] = b0[i];"
    for good, bad in (("readonly buffer B0", "buffer B0"), ("buffer O0", "readonly buffer O0")):
        source = text_of(body).replace(good, bad)
        module = shaderc.compile_glsl(source if bad == "buffer B0" else source.replace(body, ""), "test")
        with pytest.raises(FormatError, match="does not fit its kernel: expected bindings"):
            spirv.check_interface(module, meta_of(1, 1, 1))
    with pytest.raises(FormatError, match="expected one storage buffer, got a variable"):
        spirv.check_interface(shaderc.compile_glsl(text_of("o0[i] = b0[1].b[i];").replace(
            "readonly buffer B0 { float b0[]; }", "readonly buffer B0 { float b[]; } b0[2]"), "test"), meta_of(1, 1, 1))


def test_extensions_and_versions_must_fit(small: bytes) -> None:
    rows, head = instructions(small), words(small)[:5]
    name = list(struct.unpack("<6I", b"SPV_KHR_float_controls\0\0"))
    with pytest.raises(FormatError, match="expected extensions"):
        spirv.check_interface(join(head, [rows[0], (10, name), *rows[1:]]), meta_of(1, 1, 2))
    assert spirv.interface_of(small).version == (1, 5)
    head[1] = 0x00010600
    with pytest.raises(FormatError, match=r"expected version \(1, 5\), got \(1, 6\)"):
        spirv.check_interface(join(head, rows), meta_of(1, 1, 2))
    head[1] = 0x00010300
    spirv.check_interface(join(head, rows), meta_of(1, 1, 2))


def test_a_kernel_is_checked_as_a_whole(small: bytes) -> None:
    spirv.check_kernel(small, meta_of(1, 1, 2))
    rows, head = instructions(small), words(small)[:5]
    with pytest.raises(FormatError, match="whole functions"):
        spirv.check_kernel(join(head, rows[:-1]), meta_of(1, 1, 2))
    with pytest.raises(FormatError, match="push constant bytes"):
        spirv.check_kernel(small, meta_of(1, 1, 3))
    with pytest.raises(FormatError, match="capabilities"):
        spirv.check_kernel(small, meta_of(1, 1, 2), {61})


# ---- structure -------------------------------------------------------------------------------------------------------

def everything(module: bytes) -> None:
    """Run every reader; only FormatError, and CompileError of a well-formed module, may come out."""
    for call in (spirv.check_structure, spirv.check_exact, spirv.interface_of, spirv.decorate_no_contraction,
                 lambda data: spirv.add_execution_modes(data, MODES),
                 lambda data: spirv.check_interface(data, meta_of(1, 1, 2))):
        with contextlib.suppress(FormatError, CompileError):
            call(module)


def test_structure_of_good_modules(sample: bytes, small: bytes) -> None:
    for module in (sample, small, spirv.add_execution_modes(sample, MODES)):
        spirv.check_structure(module)


@pytest.mark.parametrize(("position", "value", "text"), [
    (0, 0x03022307, "magic number"),
    (1, 0x00020000, "version 1.0 to 1.6"),
    (3, 0, "id bound"),
    (3, 2**31, "id bound"),
    (4, 1, "reserved word"),
    (5, 17, "no length"),
    (5, 0xFFFF0011, "the last instruction ends"),
])
def test_header_and_lengths(small: bytes, position: int, value: int, text: str) -> None:
    changed = words(small)
    changed[position] = value
    with pytest.raises(FormatError, match=text):
        spirv.check_structure(join(changed, []))


def test_structure_errors(small: bytes) -> None:
    head, rows = words(small)[:5], instructions(small)
    function = next(index for index, (op, _) in enumerate(rows) if op == 54)
    add = next(index for index, (op, _) in enumerate(rows) if op == 129)
    cases = [
        ([*rows[:-1]], "whole functions"),
        (rows[:function], "whole functions"),
        ([*rows, rows[-1]], "ends that has not begun"),
        ([*rows, rows[add]], "between functions"),
        ([*rows[:add], rows[function], *rows[add:]], "begins inside of another"),
        ([*rows[:add + 1], *rows[add:]], "defined twice"),
        ([*rows[:function], (17, [1]), *rows[function:]], "later section"),
        ([*rows[:function], (61, [1, 2, 3]), *rows[function:]], "outside of a function"),
        ([row for row in rows if row[0] != 14], "one memory model, got 0"),
        ([row for row in rows if row[0] != 15], "one entry point, got 0"),
        ([*rows[:add], (129, [head[3], 1, 1, 1]), *rows[add:]], "is not defined"),
        ([*rows[:add], (129, [rows[add][1][0], head[3], 1, 1]), *rows[add:]], "within the bound"),
    ]
    for changed, text in cases:
        with pytest.raises(FormatError, match=text):
            spirv.check_structure(join(head, changed))


@given(st.data())
def test_damage_fails_cleanly(small: bytes, data: st.DataObject) -> None:
    changed = bytearray(small)
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    everything(bytes(changed))


@given(st.data())
def test_damaged_words_fail_cleanly(small: bytes, data: st.DataObject) -> None:
    changed = words(small)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(5, len(changed) - 1))
        changed[place] = data.draw(st.one_of(st.integers(0, 2**32 - 1), st.integers(0, 600), st.sampled_from(changed)))
    everything(join(changed, []))


@given(st.binary(max_size=200))
def test_any_bytes_fail_cleanly(data: bytes) -> None:
    everything(data)
    everything(struct.pack("<5I", 0x07230203, 0x00010500, 0, 100, 0) + data)


def test_every_truncation_is_refused(small: bytes) -> None:
    for length in range(0, len(small), 3):
        with pytest.raises(FormatError):
            spirv.check_structure(small[:length])
