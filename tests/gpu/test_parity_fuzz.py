"""The short form of scripts/parity_fuzz.py, and what the fuzz itself must be able to do."""

from __future__ import annotations

import bisect
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnk import ops
from nnk._fast import cpu
from nnk.expr.meta import reduce_axis_of
from nnk.expr.spec import ExprSpec, Instr, Operand, ViewSpec
from nnk.vk import instance
from nnk.vk.device import Device
from tests import ROOT, fitting, fuzz_coverage, half_storage, parity_fuzz, strategies, typed_programs
from tests.oracle import specrules as rules
from tests.parity_fuzz import Fuzzer, Mismatch, Sample

#: Samples on the software device; the script runs thousands.
SAMPLES = 30


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    """An open device for all samples."""
    with Device(instance.select()) as opened:
        yield opened


def test_engines_give_the_bits_of_the_oracle(device: Device) -> None:
    fuzzer = Fuzzer(device, spirv_val=True)
    for index in range(SAMPLES):
        fuzzer.run(20_000, index)
    assert fuzzer.counts["specs"] == fuzzer.counts["modules through spirv-val"] == SAMPLES
    launches, beyond = fuzzer.counts["launches on the CPU"], fuzzer.counts["launches beyond the driver's loops"]
    assert fuzzer.counts["launches on Vulkan"] == launches - beyond > 2 * SAMPLES
    # Groups of rows in the tail of a product are always beyond llvmpipe's loops.
    assert beyond <= launches // 5


@pytest.fixture(scope="module")
def samples() -> list[Sample]:
    """Samples of one launch each, made but not run."""
    return [parity_fuzz.sample(1, index, launches=1) for index in range(500)]


def test_samples_cover_the_tables(samples: list[Sample]) -> None:
    """Every op, view, operand, dtype and form of nnk's tables, counted in the canonical form that engines run."""
    counts: Counter[tuple[str, str]] = Counter()
    for drawn in samples:
        counts.update(fuzz_coverage.drawn(parity_fuzz.canonical_case(drawn.cases[0])))
    assert fuzz_coverage.missing(counts) == []
    counts["op", "idiv"] = counts["input", "uint8"] = 0
    assert fuzz_coverage.missing(counts) == ["op idiv", "input uint8"]
    assert fuzz_coverage.lines(counts)[-1] == "never drawn: op idiv, input uint8"


def test_samples_cover_the_format(samples: list[Sample]) -> None:
    specs = [drawn.spec for drawn in samples]
    launches = [case.launch for drawn in samples for case in drawn.cases]
    reduced = {(reduce_axis_of(spec), spec.matmul is not None) for spec in specs}
    assert reduced == {(axis, product) for axis in (-1, 0, 1) for product in (False, True)}
    assert set(parity_fuzz.FORM_WEIGHTS) == {*strategies.FORMS, "fold"}
    assert any(spec.extras for spec in specs)
    sides = [side for launch in launches for side in (launch.rows // launch.mm_batch, launch.cols)]
    assert min(sides) == 0
    assert fitting.MAX_SIDE in {*sides, *(launch.mm_k for launch in launches)}
    folds = [case.spec.fold for drawn in samples for case in drawn.cases if case.spec.fold is not None]
    assert {(fold.matmul is not None, fold.vecacc is not None) for fold in folds} == {
        (product, vector) for product in (False, True) for vector in (False, True)}
    assert max(fold.k for fold in folds) >= 1000
    assert max(fold.vec_state_len for fold in folds) > 200
    typed = [case for drawn in samples for case in drawn.cases if case.spec.fold is not None and case.dtypes]
    assert {dtype for case in typed for dtype in case.dtypes[:-1]} == set(typed_programs.DTYPES)
    assert {case.dtypes[-1] for case in typed} == set(typed_programs.DTYPES)
    assert len({op.code for op in ops.OPS if op.kind == "integer"} & {
        instr.op for case in typed for instr in case.spec.fold.body}) >= 10
    assert any(spec.matmul and spec.matmul.a_input == spec.matmul.b_input for spec in specs)
    assert any(launch.vector_out for launch in launches)
    mixes = [(case.launch.halves, len(case.inputs)) for drawn in samples for case in drawn.cases
             if any(case.launch.halves)]
    assert len(mixes) > 20
    for slots in (range(16), [half_storage.OUTPUT_BIT]):
        assert {half_storage.halves_of(halves, bit) for halves, inputs in mixes for bit in slots
                if bit < inputs or bit == half_storage.OUTPUT_BIT} == {0, 1, 2}


def test_typed_programs_keep_integers_and_floats_apart(samples: list[Sample]) -> None:
    """An integer op that read a float would see what a NaN carries."""
    drawn = [sample.cases[0] for sample in samples]
    typed = [case for case in drawn if case.dtypes and case.spec.fold is None]
    assert len(typed) > 80
    for case in typed:
        assert typed_programs.check_types(case.spec, case.dtypes), case.spec
        canonical = parity_fuzz.canonical_case(case)
        assert typed_programs.check_types(canonical.spec, canonical.dtypes), case.spec
    row = Operand(rules.ROW, 0)
    linear, spoiled = ViewSpec(rules.LINEAR), 0
    for case in typed:
        by_name = {op.name: op.code for op in ops.OPS}
        first = Instr(by_name["i2f"], 0, row)
        spoiled += typed_programs.check_types(case.spec._replace(instrs=(first, *case.spec.instrs)), case.dtypes)
    assert spoiled == 0
    one = ExprSpec(1, (Instr(69, 0, Operand(rules.INPUT, 0)),), (linear,))
    accepted = {(source, target) for source in typed_programs.DTYPES for target in typed_programs.DTYPES
                if typed_programs.check_types(one, (source, target))}
    assert accepted == {("float32", "float32"), ("float32", "bool"), ("bool", "bool"), ("bool", "float32"),
                        *((source, target) for source in ("int32", "uint8") for target in ("int32", "uint8"))}
    summed = one._replace(views=(ViewSpec(rules.ROW_VIEWS[0]),))
    assert not typed_programs.check_types(summed, ("int32", "int32"))
    assert typed_programs.check_types(summed, ("bool", "float32"))


def test_halves_are_rounded_once_to_the_nearest() -> None:
    """Against exact fractions: the two neighbours of a value, and the even one in the middle."""
    words = np.array([*strategies.SPECIAL_BITS, *strategies.EDGE_BITS, *range(0x33000000, 0x48000000, 0x1234567)],
                     np.uint32)
    values = words.view(np.float32)
    for kind, (name, nan) in {1: ("float16", 0x7E00), 2: ("bfloat16", 0x7FC0)}.items():
        every = np.arange(65536, dtype=np.uint32).astype(np.uint16)
        table = half_storage.widen(every, kind)
        finite = sorted((float(value), int(bits)) for value, bits in zip(table, every, strict=True)
                        if np.isfinite(value) and bits != 0x8000)
        top = finite[-1][0] + (finite[-1][0] - finite[-2][0]) / 2
        for value, bits in zip(values, half_storage.narrow(values, kind), strict=True):
            if np.isnan(value):
                assert bits == nan
            elif abs(float(value)) >= top:
                assert half_storage.widen(np.array([bits], np.uint16), kind)[0] == np.sign(value) * np.inf, name
            else:
                at = bisect.bisect_left(finite, (float(value), 0))
                near = finite[max(at - 1, 0):at + 1]
                best = min(near, key=lambda pair, v=float(value): (abs(pair[0] - v), pair[1] & 1))
                assert half_storage.widen(np.array([bits], np.uint16), kind)[0] == best[0], (name, value)
                assert bits >> 15 == np.signbit(value)


def relu_plus(extra: int) -> strategies.Case:
    """max(x, c) in the middle of ``extra`` instructions that do not matter."""
    x, c = Operand(rules.INPUT, 0), Operand(rules.CONST, 0)
    waste = [Instr(rules.NEG, 1 + step % 3, x) for step in range(extra)]
    instrs = (*waste, Instr(rules.MAX, 0, x, c), Instr(rules.ADD, 4, Operand(rules.REG, 0), c))
    spec = ExprSpec(5, instrs, (ViewSpec(rules.LINEAR),), (0x3F800000,))
    values = np.array(strategies.SPECIAL_BITS, np.uint32).view(np.float32)
    return strategies.Case(spec, strategies.launch_of(spec, 1, len(values), ((),), False), [values])


def wrong_division(monkeypatch: pytest.MonkeyPatch) -> None:
    """An oracle that rounds integer quotients toward zero."""
    from tests.oracle.integers import _integers, _words

    def toward_zero(a: Any, b: Any) -> Any:
        x, y = _integers(a), _integers(b)
        return _words(np.where(y == 0, 0, np.sign(x) * np.sign(y) * (abs(x) // np.maximum(abs(y), 1))))
    monkeypatch.setitem(parity_fuzz.evaluate.arrays.ARRAY_OPS, 124, toward_zero)


def test_a_typed_difference_is_found_shrunk_saved_and_repeated(monkeypatch: pytest.MonkeyPatch,
                                                               tmp_path: Path) -> None:
    """The launch that is left is typed too, and its file says so."""
    wrong_division(monkeypatch)
    fuzzer = Fuzzer()
    case = next(found for index in range(2000) if (found := _failure(fuzzer, index)))
    small = parity_fuzz.shrink(fuzzer, case)
    assert typed_programs.check_types(small.spec, small.dtypes)
    assert 124 in {instr.op for instr in small.spec.instrs}
    assert len(small.spec.instrs) <= 4
    parity_fuzz.save(tmp_path / "case.npz", small)
    again = parity_fuzz.load(tmp_path / "case.npz")
    assert (again.spec, again.launch, again.dtypes) == (small.spec, small.launch, small.dtypes)
    with pytest.raises(Mismatch):
        fuzzer.check_alone(again)


def _failure(fuzzer: Fuzzer, index: int) -> strategies.Case | None:
    """The launch of a sample with a wrong result, if it divides integers."""
    drawn = parity_fuzz.sample(3, index, launches=1)
    if not any(instr.op == 124 for instr in drawn.spec.instrs):
        return None
    try:
        fuzzer.run(3, index)
    except Mismatch as mismatch:
        return mismatch.case
    return None


def wrong_maximum(monkeypatch: pytest.MonkeyPatch) -> None:
    """An oracle that takes the smaller one."""
    monkeypatch.setitem(parity_fuzz.evaluate.arrays.ARRAY_OPS, rules.MAX,
                        parity_fuzz.evaluate.arrays.ARRAY_OPS[rules.MIN])


def test_a_difference_is_found_shrunk_saved_and_repeated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fuzzer = Fuzzer()
    case = relu_plus(7)
    fuzzer.check_alone(case)
    wrong_maximum(monkeypatch)
    with pytest.raises(Mismatch, match=r"CPU engine, output 0 at 1 x .* elements differ"):
        fuzzer.check_alone(case)
    small = parity_fuzz.shrink(fuzzer, case)
    assert [instr.op for instr in small.spec.instrs] == [rules.MAX]
    parity_fuzz.save(tmp_path / "case.npz", small)
    again = parity_fuzz.load(tmp_path / "case.npz")
    assert again.spec == small.spec
    assert again.launch == small.launch
    with pytest.raises(Mismatch):
        fuzzer.check_alone(again)
    monkeypatch.undo()
    fuzzer.check_alone(again)


def test_products_run_in_parts_of_k(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the sums of the parts before, a result would be wrong."""
    fuzzer, program = Fuzzer(), cpu.Program
    numbers = [index for index in range(120) if parity_fuzz.sample(5, index, 1).spec.matmul is not None]
    for index in numbers:
        fuzzer.run(5, index)
    assert fuzzer.counts["of them in parts of k"] > 3

    class Forgetful:
        def __init__(self, spec: Any, meta: Any) -> None:
            self.program = program(spec, meta)

        def run(self, words: Any, inputs: Any, outputs: Any, threads: int) -> None:
            outputs[0][:-parity_fuzz.GUARD] = 0
            self.program.run(words, inputs, outputs, threads)

    monkeypatch.setattr(parity_fuzz.cpu, "Program", Forgetful)
    found = 0
    for index in numbers:
        try:
            fuzzer.run(5, index)
        except Mismatch:
            found += 1
    assert found > 0


def test_a_write_behind_the_output_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    program = cpu.Program

    class Careless:
        def __init__(self, spec: Any, meta: Any) -> None:
            self.program = program(spec, meta)

        def run(self, words: Any, inputs: Any, outputs: Any, threads: int) -> None:
            self.program.run(words, inputs, outputs, threads)
            outputs[0][-1] = 0

    fuzzer = Fuzzer()
    monkeypatch.setattr(parity_fuzz.cpu, "Program", Careless)
    with pytest.raises(Mismatch, match="memory behind the output was written"):
        fuzzer.check_alone(relu_plus(0))


def test_a_wrong_module_does_not_pass() -> None:
    module = parity_fuzz.compile_kernel(parity_fuzz.canonicalise(relu_plus(0).spec), "test")
    parity_fuzz.check_module(module)
    kernel_capability = struct.pack("<2I", 2 << 16 | 17, 6)
    with pytest.raises(AssertionError, match=r"spirv-val.*Kernel"):
        parity_fuzz.check_module(module.replace(struct.pack("<2I", 2 << 16 | 17, 1), kernel_capability, 1))


def test_the_script_runs_samples_and_says_what_it_ran() -> None:
    done = subprocess.run([sys.executable, "scripts/parity_fuzz.py", "--count", "6", "--device", "none", "--spirv-val"],
                          cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "6 specs\n" in done.stdout
    assert "6 modules through spirv-val\n" in done.stdout
    assert "0 failures" in done.stdout
    assert "by op: neg " in done.stdout
    assert "never drawn: op " in done.stdout
