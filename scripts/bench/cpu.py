"""Measure the CPU engine's core against NumPy: call overhead, fused chains, row reductions, matmul.

Run it with PYTHONPATH set to the repository. Each line compares one kernel with the NumPy calls that it replaces, in
the same process, one after the other; the ratio is NumPy's best time over nnk's (above 1: nnk is faster). NumPy's
matmul uses all cores unless OPENBLAS_NUM_THREADS says otherwise, so set that together with --threads. OPENBLAS_CORETYPE
and OPENBLAS_L2_SIZE should not be set.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from harness import Result, arguments, measure, report

from nnk import ops
from nnk._fast import cpu
from nnk.expr.meta import Launch, kernel_meta_of, out_count_of, pack_words
from nnk.expr.spec import ExprSpec, Instr, Matmul, Operand, ViewSpec, bits_of

Array = np.ndarray[Any, np.dtype[np.float32]]


def _operand(text: str) -> Operand:
    """Read an operand: x0 input, c0 constant, r0 register, s0 reduction, m matmul."""
    kinds = {"x": "input", "c": "const", "r": "reg", "s": "reduce", "m": "matmul"}
    return Operand(ops.OPERAND_BY_NAME[kinds[text[0]]].code, int(text[1:] or 0))


def spec_of(program: str, views: str, consts: Sequence[float] = (), matmul: Matmul | None = None) -> ExprSpec:
    """Build a spec from text: "mul x0 x1; add r0 c0", instruction n writing register n."""
    instrs = []
    for number, line in enumerate(filter(None, program.split(";"))):
        name, *operands = line.split()
        instrs.append(Instr(ops.OP_BY_NAME[name].code, number, *map(_operand, operands)))
    slots = tuple(ViewSpec(ops.VIEW_BY_NAME[name].code) for name in views.split())
    return ExprSpec(len(instrs), tuple(instrs), slots, tuple(map(bits_of, consts)), (), matmul)


class Case:
    """One kernel with its inputs, and the NumPy code that it replaces."""

    def __init__(self, name: str, spec: ExprSpec, rows: int, cols: int, inputs: list[Array],
                 numpy: Callable[..., object], work: float, unit: str, **launch: Any) -> None:
        self.name, self.inputs, self.numpy, self.work, self.unit = name, inputs, numpy, work, unit
        meta = kernel_meta_of(spec)
        self.program = cpu.Program(spec, meta)
        run = Launch(rows, cols, ((),) * len(spec.views), spec.const_bits, (), **launch)
        self.words = pack_words(meta, run)
        self.output = np.empty(out_count_of(meta, run), np.float32)

    def results(self, repeat: int, threads: int) -> tuple[Result, Result]:
        """Time both sides."""
        outputs = (self.output,)
        ours = measure(self.name, lambda: self.program.run(self.words, self.inputs, outputs, threads), repeat,
                       work=self.work, unit=self.unit)
        return ours, measure(f"  numpy: {self.name}", lambda: self.numpy(*self.inputs), repeat, work=self.work,
                             unit=self.unit)


def _floats(*shape: int) -> Array:
    return np.random.default_rng(1).standard_normal(shape, np.float32)


def elementwise_cases(sizes: Sequence[int]) -> list[Case]:
    """Chains of one call each."""
    half, three = np.float32(0.5), np.float32(3)
    chain = spec_of("mul x0 c0; add r0 x1; mul r1 c1; sub r2 x0", "linear linear", (1.5, 0.5))
    tanh = spec_of("mul x0 x1; add r0 c0; tanh r1", "linear linear", (3.0,))
    silu = spec_of("silu x0; mul r0 x1", "linear linear")
    cases = []
    for size in sizes:
        pair = [_floats(size), _floats(size)]
        cases += [
            Case(f"(x*1.5+y)*0.5-x, {size}", chain, 1, size, pair, lambda x, y: (x * np.float32(1.5) + y) * half - x,
                 size, "element"),
            Case(f"tanh(x*y+3), {size}", tanh, 1, size, pair, lambda x, y: np.tanh(x * y + three), size, "element"),
            Case(f"silu(x)*y, {size}", silu, 1, size, pair, lambda x, y: x / (1 + np.exp(-x)) * y, size, "element")]
    return cases


def _softmax(x: Array) -> Array:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def reduce_cases(shapes: Sequence[tuple[int, int]]) -> list[Case]:
    """Sums and softmax over rows."""
    total = spec_of("row_sum x0", "linear")
    softmax = spec_of("row_max x0; sub x0 s0; exp r1; row_sum r2; div r2 s3", "linear")
    cases = []
    for rows, cols in shapes:
        x = _floats(rows, cols)
        cases += [Case(f"row sum {rows}x{cols}", total, rows, cols, [x], lambda x: x.sum(axis=1), x.nbytes, "byte",
                       vector_out=True),
                  Case(f"softmax {rows}x{cols}", softmax, rows, cols, [x], _softmax, x.size, "element")]
    return cases


def matmul_cases(shapes: Sequence[tuple[int, int, int]]) -> list[Case]:
    """Pure products; NumPy's uses fused multiply-add, which the contract forbids."""
    spec = spec_of("", "linear linear", matmul=Matmul(0, 1))
    return [Case(f"matmul {m}x{n}x{k}", spec, m, n, [_floats(m, k), _floats(k, n)], np.matmul, 2.0 * m * n * k, "flop",
                 mm_k=k) for m, n, k in shapes]


def main() -> None:
    """Run the benchmark."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--threads", type=int, default=0, help="threads of the CPU engine, 0 for all cores")
    parser.add_argument("--only", default="", help="run the cases whose name has this text")
    options = parser.parse_args()
    cases = elementwise_cases((64 * 64, 1 << 20, 1 << 24))
    cases += reduce_cases(((1000, 1000), (15625, 64), (1, 4_000_000)))
    cases += matmul_cases(((1024, 1024, 1024), (2048, 2048, 2048), (1200, 384, 384), (40, 384, 384), (1, 1536, 384)))
    results: list[Result] = []
    ratios = []
    for case in cases:
        if options.only in case.name:
            ours, theirs = case.results(options.repeat, options.threads)
            results += [ours, theirs]
            ratios.append(f"{theirs.best / ours.best:6.2f}x  {case.name}")
    report(results, options)
    print(f"\nnumpy's best time over nnk's ({cpu.isas()[-1]}, {options.threads or 'all'} threads)", *ratios, sep="\n")


if __name__ == "__main__":
    main()
