"""The emitter: a canonical ExprSpec becomes one GLSL compute shader.

It is data-driven: an op's text is its row in :data:`nnk.numerics.FUNCTIONS`, a view's address is its row in
:data:`_ADDRESSES`, a kernel form is a skeleton of :mod:`nnk.generator.blocks`. Buffers are arrays of uint: bits move
as bits, floats exist only between a load and a store. No zero is ever written as a literal operand of a float + - *
(docs/numerics.md R2b): constants are parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from nnk import numerics, ops
from nnk.errors import UnsupportedOpError
from nnk.expr.canonical import ValueForm, to_values
from nnk.expr.meta import (
    MATMUL_BLOCK,
    MATMUL_STEP,
    OWN_LANES,
    ROW_THREADS,
    KernelMeta,
    kernel_meta_of,
)
from nnk.expr.spec import ExprSpec, Instr, Operand
from nnk.generator import blocks
from nnk.generator.mathlib import functions_for
from nnk.generator.soft import KEEP_CALL, SOFT_VARIANTS, soft_functions
from nnk.generator.storage import Storage

__all__ = ["emit"]

_VIEW = {view.code: view.name for view in ops.VIEWS}
_KIND = {kind.code: kind.name for kind in ops.OPERANDS}
_LINEAR, _INPUT, _REDUCE = ops.VIEW_BY_NAME["linear"].code, ops.OPERAND_BY_NAME["input"].code, \
    ops.OPERAND_BY_NAME["reduce"].code
#: Reduce view name -> code of the op that reduces a linear input alike.
_REDUCE_OF_VIEW = {f"{axis}_reduce_{what}": ops.OP_BY_NAME[f"{axis}_{what}"].code
                   for axis in ("row", "col") for what in ("sum", "max")}

#: View name -> element index at (row, col, i = row*cols + col, batch); {p} is the number of the view's first
#: parameter word. The strided view is built by :func:`_strided_address`, take and row_gather by their index slot.
_ADDRESSES: dict[str, str] = {
    "linear": "i",
    "head_group": "i",
    "row_mod": "(row%W({p}))*cols+col",
    "row_broadcast": "row",
    "col_broadcast": "col",
    "batch_mod": "batch%W({p})",
    "batch_col": "batch*W({p})+col",
    "row_access": "(W({p}+1)+row%W({p}))*cols+col",
    "rotate_half": "((row/W({p}))*W({p})+(row%W({p})+W({p})/2u)%W({p}))*cols+col",
}

#: Zero that a driver's compiler cannot see through, as dispatches have one dimension. Drivers rewrite x + 0 and x * 0
#: for a zero that they can see, whatever the decorations say (R2b).
_OPAQUE_ZERO = "gl_WorkGroupID.y"

#: Views and operands whose value is the same all along a line, by reduce axis: a row, or a column.
_LINE_VIEWS = {0: frozenset(("row_broadcast", "batch_mod")), 1: frozenset(("col_broadcast", "row_gather"))}
_LINE_OPERANDS = {0: frozenset(("const", "rparam", "row", "batch")), 1: frozenset(("const", "rparam", "col"))}
_GROUPED = {"grouped_reduce_sum": "sum", "grouped_reduce_max": "max"}


def _hex(bits: int) -> str:
    return f"0x{bits:08x}u"


#: How every skeleton begins its entry point.
_MAIN = "void main(){"

_SUM_IDENTITY = _hex(numerics.SUM_IDENTITY_BITS)
_MAX_IDENTITY = _hex(numerics.MAX_IDENTITY_BITS)


def _strided_row(first_word: int, rank: int, row: str) -> str:
    """Return the address of column 0 of ``row``: the row number in mixed base, times the strides."""
    sizes, strides = first_word + 1, first_word + rank
    terms = []
    rest = row
    for axis in range(rank - 1, 0, -1):
        size = f"W({sizes + axis - 1})"
        terms.append(f"({rest})%{size}*W({strides + axis})")
        rest = f"({rest})/{size}"
    terms.append(f"({rest})*W({strides})")
    return f"W({first_word})+" + "+".join(terms)


class _Emitter:
    """The texts that all forms share: loads, operands, instructions, stores."""

    def __init__(self, spec: ExprSpec, meta: KernelMeta, variant: str = "") -> None:
        self.spec = spec
        self.meta = meta
        self.variant = variant
        self.storage = Storage(meta)
        self.program: ValueForm = to_values(spec) if spec.instrs else ValueForm((), spec.const_bits, ())

    # ---------------------------------------------------------------------------------- loads

    def address(self, slot: int, row: str = "row") -> str:
        """Return the element index that ``slot`` reads at (row, col)."""
        view = self.spec.views[slot]
        name = _VIEW[view.kind]
        word = self.meta.view_param_offsets[slot]
        if name == "strided":
            return f"{_strided_row(word, view.param, row)}+col*W({word + 2 * view.param})"
        if name == "take":
            return f"b{view.param}.d[{row}]*cols+col"
        if name == "row_gather":
            return f"label_row(b{view.param}.d[col],{self.storage.elements(slot)}/cols)*cols+col"
        if name not in _ADDRESSES:
            raise UnsupportedOpError(f"This version does not run the view {name} (input {slot})", op=name)
        return _ADDRESSES[name].format(p=word)

    def element(self, slot: int, index: str) -> str:
        """Return the bits of element ``index`` of ``slot``."""
        return self.storage.load(slot, index)

    def load(self, slot: int) -> str:
        """Return the bits of ``slot`` at (row, col)."""
        view = self.spec.views[slot]
        if _VIEW[view.kind] in _GROUPED:
            count = f"W({self.meta.view_param_offsets[slot]})"
            return f"group{slot}((row*{count})*cols+col,cols,{count})"
        bits = self.element(slot, self.address(slot))
        if _VIEW[view.kind] == "rotate_half" and view.negate:
            word = self.meta.view_param_offsets[slot]
            return f"({bits}^((row%W({word})<W({word})/2u)?0x80000000u:0u))"
        return bits

    def operand(self, operand: Operand) -> str:
        """Return a float expression for ``operand``."""
        kind, idx = _KIND[operand.kind], operand.idx
        if kind in ("reg", "fanout", "reduce"):
            return f"v{idx}"
        if kind == "input":
            return f"x{idx}"
        if kind == "const":
            return f"U2F(W({self.meta.const_offset + idx}))"
        if kind == "rparam":
            return f"U2F(W({self.meta.rparam_offset + idx}))"
        if kind == "matmul":
            return "mm"
        if kind in ("row", "col", "batch"):
            return {"row": "FLT(INT(batch_row))", "col": "FLT(INT(col))", "batch": "FLT(INT(batch))"}[kind]
        raise UnsupportedOpError(f"This version does not run the operand {kind}", op=kind)

    @staticmethod
    def used(instr: Instr) -> tuple[Operand, ...]:
        """Return the operands that the op reads."""
        return (instr.a, instr.b, instr.c)[:ops.OP_BY_CODE[instr.op].arity]

    def compute(self, instr: Instr) -> str:
        """Return the statement of an elementwise instruction."""
        name, used = ops.OP_BY_CODE[instr.op].name, self.used(instr)
        if name in ("lt", "gt") and used[0] == used[1]:
            return f"float v{instr.dst}=U2F({_OPAQUE_ZERO});"
        texts = dict(zip("abc", map(self.operand, used), strict=False))
        is_fast = self.variant == numerics.FAST_VARIANT and name in numerics.FAST_FUNCTIONS
        table = numerics.FAST_FUNCTIONS if is_fast else numerics.FUNCTIONS
        return f"float v{instr.dst}={table[name].format(**texts)};"

    # ---------------------------------------------------------------------------------- straight-line code

    def needed(self, results: list[Operand], stop: Callable[[int], bool]) -> list[int]:
        """Return, in order, the instructions below ``results`` for which ``stop`` is false."""
        wanted: set[int] = set()
        stack = list(results)
        while stack:
            operand = stack.pop()
            if _KIND[operand.kind] in ("reg", "fanout", "reduce") and not stop(operand.idx) \
                    and operand.idx not in wanted:
                wanted.add(operand.idx)
                stack.extend(self.used(self.program.instrs[operand.idx]))
        return sorted(wanted)

    def statements(self, positions: list[int], results: list[Operand], skip: Callable[[int], bool],
                   load: str | None = None) -> list[str]:
        """Return loads and instructions at ``positions``; inputs for which ``skip`` holds exist already.

        ``load`` is the text of a load with ``{slot}`` in it, by default the load of :meth:`load`.
        """
        operands = [operand for position in positions for operand in self.used(self.program.instrs[position])]
        slots = dict.fromkeys(operand.idx for operand in (*operands, *results) if _KIND[operand.kind] == "input")
        lines = [f"float x{slot}=U2F({load.format(slot=slot) if load else self.load(slot)});"
                 for slot in slots if not skip(slot)]
        if self.meta.form == "reduce" and any(_KIND[operand.kind] == "matmul" for operand in (*operands, *results)):
            lines.append("float mm=product(row,col);")
        return lines + [self.compute(self.program.instrs[position]) for position in positions]

    def grid_values(self) -> list[str]:
        """Return the definitions of batch and batch_row where the code can name them."""
        kinds = {_KIND[operand.kind] for instr in self.program.instrs for operand in self.used(instr)}
        views = {_VIEW[view.kind] for view in self.spec.views}
        if kinds & {"row", "batch"} or views & {"batch_mod", "batch_col"}:
            if self.meta.form == "reduce" and self.meta.has_matmul:
                return ["uint height=rows/W(5), batch=row/height, batch_row=row-batch*height;"]
            if self.meta.has_matmul:
                return ["uint batch_row=local_row;"]
            return [f"uint batch={_OPAQUE_ZERO}, batch_row=row;"]
        return []

    def outputs(self) -> list[Operand]:
        """Return the operand of each output slot."""
        if not self.spec.instrs:
            return [Operand(5, 0)]
        instrs = self.program.instrs
        return [Operand(4 if ops.OP_BY_CODE[instrs[position].op].kind == "reduce" else 0, position)
                for position in self.program.outputs]

    def store(self, index: int, value: str, at: str = "i") -> str:
        """Return the store of one output."""
        return self.storage.store(index, at, f"F2U({value})")

    def whole_body(self) -> list[str]:
        """Return loads, instructions and stores for one element."""
        results = self.outputs()
        lines = self.grid_values()
        lines += self.statements(self.needed(results, lambda _: False), results, lambda _: False)
        return lines + [self.store(index, self.operand(result)) for index, result in enumerate(results)]

    # ---------------------------------------------------------------------------------- whole shader

    def buffers(self) -> list[str]:
        """Return the buffer declarations."""
        lines = [f"layout(std430,set=0,binding={slot}) readonly buffer B{slot}{{uint d[];}} b{slot};"
                 for slot in range(self.meta.n_inputs)]
        first = self.meta.n_inputs
        # A matmul goes on from the sums in its output (blocks.MATMUL); an output that is written in parts of words is
        # read too.
        lines += [f"layout(std430,set=0,binding={first + slot}) "
                  f"{'writeonly ' if self.writes_only(slot) else ''}buffer O{slot}{{uint d[];}} o{slot};"
                  for slot in range(self.meta.n_outputs)]
        lines += [f"layout(std430,set=0,binding={slot}) readonly buffer C{slot}{{uvec4 d[];}} c{slot};"
                  for slot in self.quad_slots()]
        if self.meta.vec_width == 4:
            lines += [f"layout(std430,set=0,binding={first + slot}) writeonly buffer Q{slot}{{uvec4 d[];}} q{slot};"
                      for slot in range(self.meta.n_outputs)]
        words = self.meta.param_words
        if self.meta.params_in_buffer:
            last = first + self.meta.n_outputs
            lines.append(f"layout(std430,set=0,binding={last}) readonly buffer P{{uint words[];}};")
        else:
            lines.append(f"layout(push_constant) uniform P{{uint words[{words}];}};")
        return lines

    def writes_only(self, index: int) -> bool:
        """Say whether the kernel never reads the output."""
        return self.meta.form != "matmul" and self.storage.is_plain_output(index)

    def quad_slots(self) -> list[int]:
        """Return the input slots that are read four elements at a time: they get a second name for their buffer."""
        if self.spec.matmul is not None:
            return sorted({self.spec.matmul.a_input, self.spec.matmul.b_input})
        return list(range(self.meta.n_inputs)) if self.meta.vec_width == 4 else []

    def group_functions(self, slot: int) -> str:
        """Return the functions that reduce a group of ``slot``: ``group<slot>(first element, step, count)``."""
        name = f"group{slot}"
        value = self.element(slot, "base+j*step")
        if _GROUPED[_VIEW[self.spec.views[slot].kind]] == "max":
            return blocks.GROUPED_MAX.substitute(name=name, identity=_MAX_IDENTITY, value=value)
        chunk = numerics.REDUCE_CHUNK
        below = f"(first+j)*{chunk}u"
        values = [self.element(slot, "base+(first+j)*step"),
                  f"{name}_0(base,step,{below},min(count-{below},{chunk}u),count)",
                  f"{name}_1(base,step,{below},min((count-1u)/{chunk}u+1u-{below},{chunk}u),count)"]
        levels = [blocks.GROUPED_SUM.substitute(name=f"{name}_{level}", chunk=chunk, lane_count=numerics.REDUCE_LANES,
                                                identity=_SUM_IDENTITY, value=text)
                  for level, text in enumerate(values)]
        return "".join(levels) + (
            f"uint {name}(uint base,uint step,uint count){{\n"
            f"  uint chunks=(count-1u)/{chunk}u+1u;\n"
            f"  if(chunks==1u) return {name}_0(base,step,0u,count,count);\n"
            f"  if(chunks<={chunk}u) return {name}_1(base,step,0u,chunks,count);\n"
            f"  return {name}_2(base,step,0u,(chunks-1u)/{chunk}u+1u,count);\n}}\n")

    def shader(self, main: str, helpers: str = "") -> str:
        """Return the complete source around ``main``."""
        head = ["#version 450", f"layout(local_size_x={self.meta.local_size[0]}) in;", *self.buffers(),
                "#define W(n) words[n]"]
        helpers = "".join(map(self.group_functions, self.meta.grouped_slots)) + helpers
        if any(_VIEW[view.kind] == "row_gather" for view in self.spec.views):
            helpers = blocks.LABEL_ROW + helpers
        helpers = self.storage.functions(self.quad_slots()) + helpers
        if self.variant in SOFT_VARIANTS:
            helpers = soft_functions(self.variant) + helpers
            main = main.replace(_MAIN, f"{_MAIN}\n  {KEEP_CALL}", 1)
        return "\n".join((*head, functions_for(helpers + main), helpers + main))


def _indent(lines: list[str], depth: int) -> str:
    return "\n".join("  " * depth + line for line in lines)


# ------------------------------------------------------------------------------------------ forms

def _emit_elementwise(emitter: _Emitter) -> str:
    if emitter.meta.vec_width == 1 or emitter.variant in SOFT_VARIANTS:
        # Calls instead of instructions: four copies of the code would cost more than wide loads give.
        return emitter.shader(blocks.ELEMENTWISE.substitute(local_size=emitter.meta.local_size[0],
                                                            body=_indent(emitter.whole_body(), 2)))
    views = {_VIEW[view.kind] for view in emitter.spec.views}
    results = emitter.outputs()
    positions = emitter.needed(results, lambda _: False)
    vectors = []
    if views - {"linear"}:
        vectors.append("uint row=base/cols, col=base-row*cols;")
    storage = emitter.storage
    for slot, view in enumerate(emitter.spec.views):
        texts = {"linear": storage.quad(slot, "v"), "row_broadcast": f"uvec4({storage.load(slot, 'row')})",
                 "col_broadcast": storage.quad(slot, "col/4u")}
        vectors.append(f"uvec4 w{slot}={texts[_VIEW[view.kind]]};")
    vectors += [f"uvec4 y{index};" for index in range(len(results))]
    # Written out four times: a loop would index vectors by a variable, which drivers turn into memory traffic.
    for lane in "xyzw":
        code = emitter.statements(positions, results, lambda _: False, f"w{{slot}}.{lane}")
        code += [f"y{index}.{lane}={storage.put_word(index, f'F2U({emitter.operand(result)})')};"
                 for index, result in enumerate(results)]
        vectors += ["{", *("  " + line for line in code), "}"]
    vectors += [storage.put(index, "v", f"y{index}") for index in range(len(results))]
    fast = "count-base>=4u" + ("" if views <= {"linear"} else "&&cols%4u==0u")
    return emitter.shader(blocks.ELEMENTWISE_VEC4.substitute(
        local_size=emitter.meta.local_size[0], fast_path=fast, vector_body=_indent(vectors, 3),
        scalar_body=_indent(emitter.whole_body(), 4)))


def _with_reduce_instrs(spec: ExprSpec, program: ValueForm) -> tuple[ExprSpec, ValueForm]:
    """Return the same program with its reduce views as linear views and reduce instructions in front."""
    reducing = {slot: _REDUCE_OF_VIEW[_VIEW[view.kind]] for slot, view in enumerate(spec.views)
                if _VIEW[view.kind] in _REDUCE_OF_VIEW}
    used = [operand for instr in program.instrs for operand in _Emitter.used(instr)]
    slots = sorted({operand.idx for operand in used if _KIND[operand.kind] == "input" and operand.idx in reducing})
    shift = len(slots)

    def moved(operand: Operand) -> Operand:
        if _KIND[operand.kind] == "input" and operand.idx in slots:
            return Operand(_REDUCE, slots.index(operand.idx))
        if _KIND[operand.kind] in ("reg", "fanout", "reduce"):
            return Operand(operand.kind, operand.idx + shift)
        return operand

    front = tuple(Instr(reducing[slot], dst, Operand(_INPUT, slot)) for dst, slot in enumerate(slots))
    rest = tuple(Instr(instr.op, instr.dst + shift, *map(moved, (instr.a, instr.b, instr.c)))
                 for instr in program.instrs)
    views = tuple(view._replace(kind=_LINEAR) if slot in reducing else view for slot, view in enumerate(spec.views))
    return spec._replace(views=views), replace(program, instrs=front + rest,
                                               outputs=tuple(position + shift for position in program.outputs))


class _ReduceEmitter(_Emitter):
    """Adds the split of a program into values of a line (a row or a column) and values of an element."""

    def __init__(self, spec: ExprSpec, meta: KernelMeta, variant: str = "") -> None:
        super().__init__(spec, meta, variant)
        self.spec, self.program = _with_reduce_instrs(spec, self.program)
        self.axis = meta.reduce_axis
        self.along = "row" if self.axis else "col"
        self.line_value: list[bool] = []
        for instr in self.program.instrs:
            is_reduce = ops.OP_BY_CODE[instr.op].kind == "reduce"
            self.line_value.append(is_reduce or all(map(self.is_line_value, self.used(instr))))

    def is_line_slot(self, slot: int) -> bool:
        return _VIEW[self.spec.views[slot].kind] in _LINE_VIEWS[self.axis]

    def is_line_value(self, operand: Operand) -> bool:
        """Say whether ``operand`` is the same all along a line."""
        kind = _KIND[operand.kind]
        if kind == "input":
            return self.is_line_slot(operand.idx)
        if kind in ("reg", "fanout", "reduce"):
            return self.line_value[operand.idx]
        return kind in _LINE_OPERANDS[self.axis]

    def element_code(self, results: list[Operand]) -> list[str]:
        """Return the code of one element for ``results``, over the line values that exist already."""
        positions = self.needed(results, lambda position: self.line_value[position])
        code = self.statements(positions, results, self.is_line_slot)
        return [*self.grid_values(), *code] if self.axis else code

    def passes(self) -> str:
        """Return the line values in program order, each reduction as a loop."""
        slots = [slot for slot in range(len(self.spec.views)) if self.is_line_slot(slot)]
        head = [] if self.axis else self.grid_values()
        lines = [_indent([*head, *(f"float x{slot}=U2F({self.load(slot)});" for slot in slots)], 2)]
        for position, instr in enumerate(self.program.instrs):
            if not self.line_value[position]:
                continue
            op = ops.OP_BY_CODE[instr.op]
            if op.kind != "reduce":
                lines.append(_indent([self.compute(instr)], 2))
                continue
            is_sum = op.name.endswith("sum")
            skeleton = blocks.REDUCE_SUM if is_sum else blocks.REDUCE_MAX
            lines.append(skeleton.substitute(
                result=f"s{position}", chunk=numerics.REDUCE_CHUNK, lane_count=numerics.REDUCE_LANES,
                along=self.along,
                identity=_SUM_IDENTITY if is_sum else _MAX_IDENTITY,
                body=_indent(["uint i=row*cols+col;", *self.element_code([instr.a])], 6 if is_sum else 4),
                value=self.operand(instr.a)).rstrip())
            lines.append(_indent([f"float v{position}=U2F(s{position});"], 2))
        return "\n".join(line for line in lines if line)

    def product(self) -> str:
        """Return the function that computes the matmul segment at one element, if the spec has one."""
        matmul = self.spec.matmul
        if matmul is None:
            return ""
        addresses = [_inner_address(self, name, slot) for name, slot in (("a", matmul.a_input), ("b", matmul.b_input))]
        a, b = (self.element(slot, address)
                for slot, (_, address) in zip((matmul.a_input, matmul.b_input), addresses, strict=True))
        operands = [line for lines, _ in addresses for line in lines]
        return blocks.PRODUCT.substitute(operands=_indent(operands, 1), identity=_SUM_IDENTITY, a=a, b=b)


def _tree(name: str) -> str:
    own, other = ("LANE(level,line,j)", "LANE(level,line,j+s)")
    combine = ("F2U(U2F({a})+U2F({b}))" if name == "sum" else "nn_max({a},{b})")
    return blocks.TREE.substitute(
        name=name, half_own=OWN_LANES // 2,
        combine_own=combine.format(a=own, b=other),
        combine_other=combine.format(a=own.replace(",j", ",t"), b=other.replace(",j", ",t")))


#: What is a line in the skeleton of a reduce kernel, by reduce axis.
_ROLES = {
    0: {"along": "col", "along_count": "cols", "across": "row", "across_count": "rows", "item_line": "item/chunks_out",
        "item_chunk": "item%chunks_out", "t": "&(threads-1u)", "line": ">>shift"},
    1: {"along": "row", "along_count": "rows", "across": "col", "across_count": "cols", "item_line": "item%cols",
        "item_chunk": "item/cols", "t": "/lines", "line": "%lines"},
}


def _emit_reduce(spec: ExprSpec, meta: KernelMeta, variant: str) -> str:
    emitter = _ReduceEmitter(spec, meta, variant)
    names = {op.name.split("_")[1] for op in (ops.OP_BY_CODE[instr.op] for instr in emitter.program.instrs)
             if op.kind == "reduce"}
    lanes = blocks.COLUMN_LANES if emitter.axis else blocks.ROW_LANES
    local_size = meta.local_size[0]
    helpers = lanes.substitute(levels=2 if "sum" in names else 1, lines=local_size // ROW_THREADS,
                               lane_count=numerics.REDUCE_LANES, local_size=local_size)
    helpers += "".join(_tree(name) for name in sorted(names)) + emitter.product()
    results = emitter.outputs()
    body = emitter.element_code(results)
    body += [emitter.store(index, emitter.operand(result), "at") for index, result in enumerate(results)]
    return emitter.shader(blocks.REDUCE.substitute(
        passes=emitter.passes(), body=_indent(body, 3), local_size=local_size, row_threads=ROW_THREADS,
        own_lanes=OWN_LANES, chunk=numerics.REDUCE_CHUNK, **_ROLES[emitter.axis]), helpers)


def _inner_address(emitter: _Emitter, name: str, slot: int) -> tuple[list[str], str]:
    """Return definitions, and the element index of a matmul operand at (local_row, k) or (k, col) of ``batch``."""
    view = emitter.spec.views[slot]
    lines = _operand_bases(emitter, name, slot)
    if _VIEW[view.kind] == "strided" and name == "a":
        return lines, f"{_strided_row(emitter.meta.view_param_offsets[slot], view.param, 'row')}+k*a_column"
    return lines, "a_base+local_row*a_row+k*a_column" if name == "a" else "b_base+k*b_row+col*b_column"


def _operand_bases(emitter: _Emitter, name: str, slot: int) -> list[str]:
    """Return base, row stride and column stride of a matmul operand: a by (m, k), b by (k, n)."""
    view = emitter.spec.views[slot]
    word = emitter.meta.view_param_offsets[slot]
    is_a = name == "a"
    if _VIEW[view.kind] == "strided":
        row = "batch*depth"
        lines = [f"uint {name}_column=W({word + 2 * view.param});"]
        if not is_a:
            lines += [f"uint b_base={_strided_row(word, view.param, row)}, b_row=W({word + 2 * view.param - 1});"]
        return lines
    if _VIEW[view.kind] not in ("linear", "head_group"):
        raise UnsupportedOpError(f"Expected a linear, head_group or strided view for a matmul operand, got "
                                 f"{_VIEW[view.kind]} (input {slot})", op="matmul")
    rows, columns, bit = ("height", "depth", "1u") if is_a else ("depth", "cols", "2u")
    block = f"(batch/W({word}))" if _VIEW[view.kind] == "head_group" else "batch"
    return [f"uint {name}_base={block}*{rows}*{columns}, {name}_row=(trans&{bit})==0u?{columns}:1u, "
            f"{name}_column=(trans&{bit})==0u?1u:{rows};"]


def _fetch(storage: Storage, name: str, slot: int, address: str) -> str:
    """Return the function that fetches patches of operand ``name``."""
    (load, end), (quad, _) = storage.brackets(slot), storage.quad_brackets(slot)
    pad = numerics.MATMUL_PAD_A_BITS if name == "a" else numerics.MATMUL_PAD_B_BITS
    return blocks.FETCH.substitute(name=name, quads=MATMUL_BLOCK // 4, pad=_hex(pad), address=address,
                                   load=load, quad=quad, end=end)


def _products(emitter: _Emitter, a: int, b: int) -> list[str]:
    """Return the loop over a step of k. If both operands are float16 at run time it may fuse (R9)."""
    sums = {False: "p=vec4(a{row}.{lane})*b{half}; acc{at}=acc{at}+p;",
            True: "acc{at}=fma(vec4(a{row}.{lane}),b{half},acc{at});"}

    def loop(fused: bool) -> list[str]:
        lines = [sums[fused].format(at=row * 2 + half, row=row // 4, lane="xyzw"[row % 4], half=half)
                 for row in range(8) for half in range(2)]
        return blocks.PRODUCTS.substitute(product="" if fused else ", p", sums=_indent(lines, 1)).split("\n")

    if not emitter.meta.may_fuse:
        return loop(False)
    both = (1 << a) | (1 << b)
    return [f"if((W({emitter.meta.half_offset})&{both}u)=={both}u){{", *loop(True), "} else {", *loop(False), "}"]


def _sums(emitter: _Emitter, a: int, b: int) -> dict[str, str]:
    """Return the parts of the skeleton that work on the 16 quads of sums of a thread."""
    if emitter.variant in SOFT_VARIANTS:
        # A call for each product and each sum: written out, they would be most of a kernel of 50 000 instructions.
        return {"accumulators": "vec4 sums[16]; for(uint quad=0u;quad<16u;quad++) sums[quad]=vec4(start);",
                "restore": _indent(["for(uint quad=0u;quad<16u;quad++)",
                                    "  sums[quad]=saved(at+quad/2u,col0+(quad%2u)*32u,cols,row0+quad/2u<height);"], 3),
                "products": _indent(blocks.ROLLED_PRODUCTS.split("\n"), 3),
                "choose": _indent(["vec4 acc=sums[quad];"], 3)}
    accumulators = ", ".join(f"acc{quad}=vec4(start)" for quad in range(16))
    restore = [f"acc{row * 2 + half}=saved(at+{row}u,col0+{32 * half}u,cols,row0+{row}u<height);"
               for row in range(8) for half in range(2)]
    choose = ["vec4 acc=acc0;", *(f"if(quad=={quad}u) acc=acc{quad};" for quad in range(1, 16))]
    return {"accumulators": f"vec4 {accumulators};", "restore": _indent(restore, 3),
            "products": _indent(_products(emitter, a, b), 3), "choose": _indent(choose, 3)}


def _emit_matmul(emitter: _Emitter) -> str:
    matmul = emitter.spec.matmul
    assert matmul is not None
    a, b = matmul.a_input, matmul.b_input
    view_a = emitter.spec.views[a]
    if _VIEW[view_a.kind] == "strided":
        # The rows of a strided left operand may be any mix of axes: each row address is taken apart anew.
        row = _strided_row(emitter.meta.view_param_offsets[a], view_a.param, "base+x+j")
        address, fetch_a = f"{row}+y*k_stride", "batch*height,m0,height,k0,k_end,0u,a_column"
    else:
        address, fetch_a = "base+(x+j)*stride+y*k_stride", "a_base,m0,height,k0,k_end,a_row,a_column"
    fetch = (_fetch(emitter.storage, "a", a, address)
             + _fetch(emitter.storage, "b", b, "base+(x+j)*stride+y*k_stride"))
    return emitter.shader(blocks.MATMUL.substitute(
        step=MATMUL_STEP, block=MATMUL_BLOCK, quads=MATMUL_BLOCK // 4, last=f"{MATMUL_BLOCK - 1}u", fetch=fetch,
        operands=_indent([*_operand_bases(emitter, "a", a), *_operand_bases(emitter, "b", b)], 2),
        identity=_SUM_IDENTITY, fetch_a=fetch_a, fetch_b="b_base,n0,cols,k0,k_end,b_column,b_row",
        save=emitter.store(0, "mm"), body=_indent(emitter.whole_body(), 5), **_sums(emitter, a, b)))


def emit(spec: ExprSpec, prec_sig: int = 0, variant: str = "", slots: str = "") -> str:
    """Return the GLSL source of the kernel of a canonical ``spec``; see :func:`nnk.expr.meta.kernel_meta_of`.

    ``variant`` is one of the values of :data:`nnk.numerics.VARIANTS`, or :data:`nnk.numerics.FAST_VARIANT`.

    Raises
    ------
    UnsupportedOpError
        If this version has no kernel shape for the spec, or no text for a view or operand.
    """
    meta = kernel_meta_of(spec, prec_sig, slots)
    if spec.fold is not None:
        from nnk.generator.fold import emit_fold
        return emit_fold(spec, meta, variant)
    if meta.form == "reduce":
        return _emit_reduce(spec, meta, variant)
    emitter = _Emitter(spec, meta, variant)
    return _emit_matmul(emitter) if meta.form == "matmul" else _emit_elementwise(emitter)
