"""The parity fuzz: random specs, each on several grids, must give the same bits on every engine and in the oracle.

One spec is one kernel. It runs on several launches; the oracle evaluates the spec as it was made, the engines its
canonical form. What must not change a bit is varied: threads, instruction sets, numbers and sizes of workgroups.
Every case follows from two numbers, a seed and an index; a failure is shrunk and written to a file.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import random
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import numpy.typing as npt

from nnk import config, exprspec, spirv
from nnk._fast import cpu
from nnk.errors import ExprError
from nnk.expr import meta as meta_module
from nnk.expr.canonical import canonicalise
from nnk.expr.meta import (
    DISPATCH_SIGNATURE,
    MATMUL_STEP,
    KernelMeta,
    Launch,
    group_count_of,
    index_slots_of,
    kernel_meta_of,
    loop_count_of,
    out_count_of,
    pack_words,
    reduce_axis_of,
)
from nnk.expr.spec import ExprSpec
from nnk.expr.spec_rules import validate
from nnk.generator.compile import compile_kernel
from nnk.generator.soft import SOFT_VARIANTS
from nnk.numerics import VARIANTS
from tests import fitting, fold_fitting, fuzz_coverage, half_storage, strategies, typed_folds, typed_programs
from tests.oracle import evaluate
from tests.oracle import specrules as rules
from tests.strategies import Case

Random = random.Random
Words = npt.NDArray[np.uint32]

#: Launches of one spec, and the work of an ordinary and of a rare launch; see fitting.random_grid.
LAUNCHES, BUDGET, LARGE_BUDGET, LARGE_EVERY = 4, 30_000, 600_000, 40

#: How often a spec has each form, relative to the others.
FORM_WEIGHTS = {"elementwise": 5, "reduce": 3, "columns": 3, "matmul": 4, "reduce a matmul": 1,
                "columns of a matmul": 1, "fold": 3}

#: One spec of so many is a program over integers, bools and floats.
TYPED_EVERY = 3

#: One spec of so many has launches with halves among its inputs and outputs.
HALVES_EVERY = 4

#: What an output holds before a launch, and how much of it lies behind the last element that may be written.
UNWRITTEN, GUARD = 0xC0E80000, 67

#: Workgroup sizes of the forms whose kernels take any; a line of a reduction has up to 32 threads.
LOCAL_SIZES = (32, 64, 128, 256)

#: llvmpipe ends the loops of a thread after so many iterations in all.
LLVMPIPE_LOOPS = 65535


class Mismatch(AssertionError):
    """An engine's bits differ from the oracle's."""

    def __init__(self, text: str, case: Case) -> None:
        super().__init__(text)
        self.case = case


class Sample(NamedTuple):
    """A spec and its launches. Where one stores halves, all may: one kernel serves every mix."""

    spec: ExprSpec
    cases: list[Case]


def _share_slots(rand: Random, spec: ExprSpec) -> ExprSpec:
    """At times a matmul of a slot with itself, or one whose tail reads an operand."""
    matmul = spec.matmul
    if matmul is None or any(spec.views[slot].kind != rules.LINEAR for slot in (matmul.a_input, matmul.b_input)):
        return spec
    if rand.randrange(6) == 0:
        spec = spec._replace(matmul=matmul._replace(b_input=matmul.a_input))
    if spec.instrs and rand.randrange(4) == 0:
        at = rand.randrange(len(spec.instrs))
        instr = spec.instrs[at]
        if instr.a.kind == rules.INPUT:
            changed = instr._replace(a=instr.a._replace(idx=matmul.a_input))
            spec = spec._replace(instrs=(*spec.instrs[:at], changed, *spec.instrs[at + 1:]))
    return spec


def _budget(rand: Random) -> int:
    return LARGE_BUDGET if rand.randrange(LARGE_EVERY) == 0 else BUDGET


def _with_halves(rand: Random, case: Case) -> Case:
    """The case with some of its float slots stored as halves, and inputs that these can hold."""
    slots, outputs = typed_programs.float_slots(case.spec, case.dtypes)
    halves = half_storage.draw(rand, slots - index_slots_of(case.spec), outputs)
    inputs = half_storage.exact(rand, case.inputs, halves)
    return case._replace(inputs=inputs, launch=dataclasses.replace(case.launch, halves=halves))


def sample(seed: int, index: int, launches: int = LAUNCHES) -> Sample:
    """The sample of this number."""
    rand = Random(f"{seed}:{index}")
    drawn = _plain_sample(rand, launches)
    if rand.randrange(HALVES_EVERY) == 0:
        return Sample(drawn.spec, [_with_halves(rand, case) for case in drawn.cases])
    return drawn


def _plain_sample(rand: Random, launches: int) -> Sample:
    form = rand.choices(tuple(FORM_WEIGHTS), tuple(FORM_WEIGHTS.values()))[0]
    is_typed = rand.randrange(TYPED_EVERY) == 0
    dtypes: tuple[str, ...] = ()
    if form == "fold":
        spec = fold_fitting.random_fold_spec(rand)
        if is_typed:
            spec, dtypes = typed_folds.typed_fold(rand, spec)
        return Sample(spec, [fold_fitting.fit_fold(rand, spec, _budget(rand), dtypes) for _ in range(launches)])
    if is_typed:
        spec, dtypes = typed_programs.random_typed_case(rand, form)
    else:
        spec = _share_slots(rand, strategies.random_case(rand, form).spec)
    canonical = canonicalise(spec)
    cases = []
    for _ in range(launches):
        grid = fitting.random_grid(rand, spec, _budget(rand))
        vector_out = grid.rows * grid.cols > 0 and reduce_axis_of(canonical) >= 0 and rand.randrange(2) == 0
        cases.append(fitting.fit(rand, spec, grid, vector_out, dtypes))
    return Sample(spec, cases)


# ------------------------------------------------------------------------------------------------------- one kernel

def canonical_case(case: Case) -> Case:
    """The case as engines take it. Constants are those of the canonical form."""
    spec = canonicalise(case.spec)
    return case._replace(spec=spec, launch=dataclasses.replace(case.launch, const_bits=spec.const_bits))


def _meta(case: Case) -> KernelMeta:
    """The meta data of the kernel that runs a case."""
    return kernel_meta_of(case.spec, _prec_sig(case), _slots(case))


def _variant() -> str:
    """The variant of the code for the tier that the settings force."""
    return VARIANTS.get(config.get("tier"), "")


def _prec_sig(case: Case) -> int:
    return DISPATCH_SIGNATURE if any(case.launch.halves) else 0


def _slots(case: Case) -> str:
    return typed_programs.letters_of(case.spec, case.dtypes)


def _guarded(case: Case) -> list[Words]:
    """Output buffers of a case, with room behind their last elements."""
    meta = _meta(case)
    count = out_count_of(meta, case.launch)
    per_word = [{"u": 4, "b": 4}.get(letter, 2 if half_storage.is_half(case.launch.halves) else 1)
                for letter in meta.output_letters]
    return [np.full(-(-count // elements) + GUARD, UNWRITTEN, np.uint32) for elements in per_word]


def _parts(case: Case, rand: Random) -> list[bytes]:
    """The parameter words of a launch, at times of several that go through the k of a matmul one after the other.

    The sums wait in the output between them, so that must have words (nnk.expr.meta.Launch.mm_range).
    """
    meta, launch = _meta(case), case.launch
    steps = -(-launch.mm_k // MATMUL_STEP)
    is_word = meta.output_letters in ("f", "i") and not half_storage.is_half(launch.halves)
    if meta.form != "matmul" or not is_word or steps < 2 or rand.randrange(2):
        return [pack_words(meta, launch)]
    cuts = {MATMUL_STEP * rand.randrange(1, steps) for _ in range(rand.randrange(1, 4))}
    bounds = [0, *sorted(cuts), launch.mm_k]
    return [pack_words(meta, dataclasses.replace(launch, mm_range=part)) for part in itertools.pairwise(bounds)]


@contextmanager
def local_size(size: int) -> Iterator[None]:
    """Emit and launch kernels with this workgroup size.

    Those of matmuls and folds have the one size that their tiles are cut for (MATMUL_BLOCK, FOLD_ROWS in
    nnk.expr.meta).
    """
    with mock.patch.dict(meta_module.LOCAL_SIZES, elementwise=size, reduce=size):
        yield


def check_module(module: bytes) -> None:
    """Have spirv-val judge a module as a device gets it."""
    whole = spirv.add_execution_modes(module, tuple(spirv.FLOAT_MODES))
    with tempfile.NamedTemporaryFile(suffix=".spv") as file:
        file.write(whole)
        file.flush()
        done = subprocess.run(["spirv-val", "--target-env", "vulkan1.2", file.name], capture_output=True, text=True,
                              check=False)
    if done.returncode:
        raise AssertionError(f"spirv-val: {done.stdout}{done.stderr}")


class Fuzzer:
    """Runs samples on the CPU engine and, if there is one, on an open Vulkan device.

    ``counts`` says what was run: specs, launches by engine, launches that the driver's loop limit kept off; ``drawn``
    counts launches by op, view, operand, dtype and form (tests/fuzz_coverage.py).
    """

    def __init__(self, device: Any = None, *, spirv_val: bool = False) -> None:
        self.device = device
        self.spirv_val = spirv_val
        self.counts: Counter[str] = Counter()
        self.drawn: Counter[tuple[str, str]] = Counter()
        self._loops = 0
        self._groups = 0xFFFFFFFF
        if device is not None:
            self._loops = LLVMPIPE_LOOPS if device.info.driver_name.startswith("llvmpipe") else 0
            self._groups = device.info.limits["maxComputeWorkGroupCount"][0]

    # ------------------------------------------------------------------------------------------ engines

    def run_cpu(self, case: Case, rand: Random) -> list[Words]:
        """The outputs of the CPU engine, guards included."""
        outputs, parts = _guarded(case), _parts(case, rand)
        inputs = half_storage.stored(case.inputs, case.launch.halves)
        cpu.set_isa(rand.choice(cpu.isas()))
        try:
            program = cpu.Program(case.spec, _meta(case))
            for words in parts:
                program.run(words, inputs, outputs, rand.choice((1, 2, 3, 8)))
        finally:
            cpu.set_isa(cpu.isas()[-1])
        self.counts["launches on the CPU"] += 1
        self.counts["of them in parts of k"] += len(parts) > 1
        return outputs

    def build(self, case: Case) -> Any:
        """The built kernel of a case with a canonical spec; None without a device, but spirv-val has judged it."""
        if self.device is None and not self.spirv_val:
            return None
        module = compile_kernel(case.spec, "fuzz", _prec_sig(case), _variant(), _slots(case))
        if self.spirv_val:
            check_module(module)
            self.counts["modules through spirv-val"] += 1
        return None if self.device is None else self.device.build_kernel(module, _meta(case))

    def groups_of(self, case: Case, rand: Random) -> int:
        """A number of workgroups for the launch, 0 if the driver would cut its loops with any."""
        meta = _meta(case)
        most = min(group_count_of(meta, case.launch), self._groups)
        groups = max(rand.choice((most, most, most // 2, most // 7, rand.randrange(most + 1))), 1)
        for count in (groups, most):
            loops = loop_count_of(meta, case.launch, count, _variant() in SOFT_VARIANTS) if self._loops else 0
            if loops <= self._loops:
                return count
        return 0

    def run_vulkan(self, kernel: Any, case: Case, groups: int, rand: Random) -> list[Words]:
        """The outputs of the device, guards included."""
        inputs: list[Any] = []
        outputs: list[Any] = []
        for buffers, arrays in ((inputs, half_storage.stored(case.inputs, case.launch.halves)),
                                (outputs, _guarded(case))):
            for array in arrays:
                buffers.append(self.device.allocate(array.nbytes, host_write=True))
                if array.nbytes:
                    self.device.upload(buffers[-1], np.ascontiguousarray(array).view(np.uint8))
        for words in _parts(case, rand):
            self.device.dispatch(kernel, inputs, outputs, words, groups)
        self.counts["launches on Vulkan"] += 1
        return [np.frombuffer(self.device.download(output), np.uint32) for output in outputs]

    # ------------------------------------------------------------------------------------------ comparison

    def check(self, case: Case, rand: Random, kernel: Any = None) -> None:
        """Compare the engines with the oracle on one launch."""
        with np.errstate(all="ignore"):
            expected = [half_storage.expected(want, case.launch.halves)
                        for want in evaluate.evaluate(case.spec, case.launch, case.inputs, case.dtypes)]
        canonical = canonical_case(case)
        self.drawn.update(fuzz_coverage.drawn(canonical))
        _compare("CPU engine", expected, self.run_cpu(canonical, rand), case)
        if kernel is None:
            return
        groups = self.groups_of(canonical, rand)
        if not groups:
            self.counts["launches beyond the driver's loops"] += 1
            return
        _compare(f"Vulkan, {groups} workgroups", expected, self.run_vulkan(kernel, canonical, groups, rand), case)

    def run(self, seed: int, index: int) -> None:
        """Run one sample.

        Raises
        ------
        Mismatch
            With the launch whose bits differ.
        """
        drawn = sample(seed, index)
        rand = Random(f"{seed}:{index}:run")
        with ExitStack() as stack:
            stack.enter_context(local_size(rand.choice(LOCAL_SIZES)))
            first = canonical_case(drawn.cases[0])
            self.counts["specs with halves"] += _prec_sig(first) != 0
            self.counts["specs with integers or bools"] += _slots(first) != ""
            self.counts["specs"] += 1
            kernel = self.build(first)
            for case in drawn.cases:
                self.check(case, rand, kernel)

    def check_alone(self, case: Case) -> None:
        """Compare the engines on one launch, with a kernel of its own."""
        rand = Random(0)
        kernel = self.build(canonical_case(case))
        for _ in range(3):
            self.check(case, rand, kernel)


def _compare(who: str, expected: list[Words], found: list[Words], case: Case) -> None:
    for output, (want, got) in enumerate(zip(expected, found, strict=True)):
        got = got.view(want.dtype)
        size, untouched = want.size, np.full(GUARD + 1, UNWRITTEN, np.uint32).view(want.dtype)
        different = np.flatnonzero(want != got[:size])
        where = f"{case.launch.rows} x {case.launch.cols}, k {case.launch.mm_k}, batch {case.launch.mm_batch}"
        if different.size:
            at = int(different[0])
            raise Mismatch(f"{who}, output {output} at {where}: {different.size} of {size} elements differ; the first "
                           f"at {at}: oracle 0x{int(want[at]):08x}, found 0x{int(got[at]):08x}", case)
        if (got[size:] != untouched[-(got.size - size):]).any():
            raise Mismatch(f"{who}, output {output} at {where}: memory behind the output was written", case)


# ------------------------------------------------------------------------------------------------------- shrinking

def _smaller(case: Case) -> Iterator[Case]:
    """Simpler forms of a case: fewer instructions and outputs, then ordinary inputs."""
    spec = case.spec
    if spec.extras:
        outputs = case.dtypes[:len(spec.views) + 1]
        yield case._replace(spec=spec._replace(extras=()), dtypes=outputs)
    for end in range(1, len(spec.instrs)):
        yield case._replace(spec=spec._replace(instrs=spec.instrs[end:]))
    for end in range(1, len(spec.instrs)):
        yield case._replace(spec=spec._replace(instrs=spec.instrs[:end]))
    for at in range(len(spec.instrs)):
        yield case._replace(spec=spec._replace(instrs=spec.instrs[:at] + spec.instrs[at + 1:]))
    for slot, array in enumerate(case.inputs):
        if array.dtype == np.float32 and array.size and (array.view(np.uint32) != 0x3F800000).any():
            yield case._replace(inputs=[*case.inputs[:slot], np.ones_like(array), *case.inputs[slot + 1:]])


def _fails(fuzzer: Fuzzer, case: Case) -> Case | None:
    try:
        validate(case.spec)
        if case.dtypes and not typed_programs.check_types(case.spec, case.dtypes):
            return None
        if case.launch.vector_out and reduce_axis_of(canonicalise(case.spec)) < 0:
            return None
        fuzzer.check_alone(case)
    except Mismatch as mismatch:
        return mismatch.case
    except ExprError:
        return None
    return None


def shrink(fuzzer: Fuzzer, case: Case, attempts: int = 300) -> Case:
    """A simpler case that fails too; the case itself if none does, or if it does not fail by itself."""
    best = case
    while attempts > 0:
        for candidate in _smaller(best):
            attempts -= 1
            found = _fails(fuzzer, candidate)
            if found is not None:
                best = found
                break
            if attempts <= 0:
                break
        else:
            break
    return best


# ------------------------------------------------------------------------------------------------------- files

def save(path: Path, case: Case) -> None:
    """Write a case to an .npz file."""
    launch = json.dumps(dataclasses.asdict(case.launch))
    arrays: dict[str, Any] = {f"input{slot}": array for slot, array in enumerate(case.inputs)}
    np.savez(path, spec=np.frombuffer(exprspec.encode(case.spec), np.uint8), launch=np.array(launch),
             dtypes=np.array(case.dtypes, "U8"), **arrays)


def load(path: Path) -> Case:
    """Read a case that :func:`save` wrote."""
    with np.load(path) as file:
        spec = exprspec.decode(file["spec"].tobytes())
        launch = json.loads(str(file["launch"]))
        inputs = [file[f"input{slot}"] for slot in range(len(spec.views))]
        dtypes = tuple(map(str, file["dtypes"]))
    launch["view_params"] = tuple(tuple(words) for words in launch["view_params"])
    for name in ("const_bits", "rparam_bits", "halves"):
        launch[name] = tuple(launch[name])
    return Case(spec, Launch(**launch), inputs, dtypes)
