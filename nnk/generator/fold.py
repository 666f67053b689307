"""The emitter of folds: attention and other streaming reductions, a workgroup for some rows of one batch.

A body becomes values in single assignment form. Each has a class, one for each row or for each element of a block, and
a level: how many block reductions lie before it. A block runs level by level: the row values of the level (one thread
a row), its elements (eight rows of one item a thread), its reductions. Values that several threads read pass through
shared memory. Sums keep the order of rules F3 to F5 (docs/numerics.md), whatever the workgroup is.
"""

from __future__ import annotations

from collections.abc import Iterable

from nnk import numerics, ops
from nnk.errors import UnsupportedOpError
from nnk.expr.meta import FOLD_COLUMNS, FOLD_ROWS, FOLD_STEP, KernelMeta
from nnk.expr.spec import ExprSpec, Instr, Operand
from nnk.generator import fold_blocks as blocks
from nnk.generator.fold_values import REGISTER_KINDS, FoldValues
from nnk.generator.glsl import _Emitter, _strided_row

__all__ = ["emit_fold"]

_KIND = {kind.code: kind.name for kind in ops.OPERANDS}
_REG = ops.OPERAND_BY_NAME["reg"].code
_VIEW = {view.code: view.name for view in ops.VIEWS}


def _hex(bits: int) -> str:
    return f"0x{bits:08x}u"


_SUM_IDENTITY = _hex(numerics.SUM_IDENTITY_BITS)
_MAX_IDENTITY = _hex(numerics.FOLD_MAX_IDENTITY_BITS)


def _tree(count: int, name: str) -> list[str]:
    """Return the statements of a tree over ``a[0..count)``, the far half first."""
    combine = "F2U(U2F(a[{i}])+U2F(a[{k}]))" if name == "sum" else "nn_max(a[{i}],a[{k}])"
    lines = []
    half = count // 2
    while half:
        lines += [f"a[{i}]={combine.format(i=i, k=i + half)};" for i in range(half)]
        half //= 2
    return lines


def _indent(lines: Iterable[str], depth: int) -> str:
    return "\n".join("  " * depth + line for line in lines)


class _FoldEmitter(_Emitter):
    """Writes one fold. ``place`` says where code runs: ``row``, ``element`` or ``final``."""

    def __init__(self, spec: ExprSpec, meta: KernelMeta, variant: str) -> None:
        super().__init__(spec, meta, variant)
        assert spec.fold is not None
        self.fold = spec.fold
        self.body = FoldValues(spec, self.fold)
        self.place = "row"
        #: Value or state -> its place in row_value.
        self.slots: dict[int, int] = {}
        #: The value that the items hold after the body: the source of the last reduction.
        reduces = [n for level in range(self.body.levels) for n in self.body.at(level, False, True)]
        self.in_items = self.body.values[reduces[-1]].instr.a if reduces else None
        self.level = 0

    # ---------------------------------------------------------------------------------- operands

    def quad_slots(self) -> list[int]:
        """Return the input slots that are read four elements at a time."""
        matmul = self.fold.matmul
        return [matmul.b_input] if matmul is not None and (matmul.trans_b or self.is_strided(matmul.b_input)) else []

    def is_strided(self, slot: int) -> bool:
        """Say whether the slot is read through a strided view."""
        return _VIEW[self.spec.views[slot].kind] == "strided"

    def strides(self, slot: int) -> tuple[str, str]:
        """Return the words of a strided view that hold the stride of a batch's rows and that of columns."""
        word = self.meta.view_param_offsets[slot] + 2 * self.spec.views[slot].param
        return f"W({word - 1})", f"W({word})"

    def first(self, slot: int, rows: str) -> str:
        """Return the address of column 0 of the batch's first row, of a strided view with ``rows`` rows a batch."""
        return _strided_row(self.meta.view_param_offsets[slot], self.spec.views[slot].param, f"batch*{rows}")

    def address(self, slot: int, row: str = "row") -> str:
        """Return the element index that the body reads: the rows of a batch are one stride apart."""
        if not self.is_strided(slot):
            return super().address(slot, row)
        row_stride, column_stride = self.strides(slot)
        return f"first{slot}+batch_row*{row_stride}+col*{column_stride}"

    def slot_of(self, number: int) -> int:
        """Return the place of a row value that other threads read."""
        return self.slots.setdefault(number, len(self.slots))

    def is_kept(self, number: int) -> bool:
        """Say whether an element value is read after its own pass: it then lives in an array."""
        value = self.body.values[number]
        if any(number in self.body.sources(n) and (self.body.values[n].is_element or self.body.values[n].is_reduce)
               and (self.body.values[n].level > value.level or n in self.late_reduces()) for n in self.body.live):
            return True
        return (self.fold.vecacc is not None and number == self.body.now[self.fold.vecacc.weight_reg]
                and self.in_items != Operand(_REG, number))

    def late_reduces(self) -> set[int]:
        """Return the reductions that are not the first of their level: each has a pass of its own for its items."""
        return {n for level in range(self.body.levels) for n in self.body.at(level, False, True)[1:]}

    def operand(self, operand: Operand) -> str:
        """Return a float expression for ``operand`` at the current place."""
        kind = _KIND[operand.kind]
        if kind == "vec_state":
            return "o[x]"
        if kind in REGISTER_KINDS:
            return self.register(operand.idx)
        if kind == "matmul":
            if self.place == "final":
                raise UnsupportedOpError("The matmul operand is not there in the finalize part of a fold", op="fold")
            return "score[e]"
        if kind in ("row", "batch"):
            return f"FLT(INT({'first_row+batch_row' if kind == 'row' else 'first_batch+batch'}))"
        return super().operand(operand)

    def register(self, number: int) -> str:
        if self.place == "final" and number >= 0:
            return f"f{number}"
        if number >= 0 and self.body.values[number].is_element:
            return f"v{number}" if self.body.values[number].level == self.level else f"kept{number}[e]"
        if self.place == "row":
            return f"v{number}" if number >= 0 else f"s{-1 - number}"
        return f"U2F(row_value[{self.slot_of(number)}][r])"

    def loads(self, operands: Iterable[Operand]) -> list[str]:
        slots = dict.fromkeys(operand.idx for operand in operands if _KIND[operand.kind] == "input")
        return [f"float x{slot}=U2F({self.load(slot)});" for slot in slots]

    def assign(self, instr: Instr) -> str:
        """Return an instruction whose result was declared before."""
        return self.compute(instr).removeprefix("float ")

    # ---------------------------------------------------------------------------------- passes over a block

    def row_pass(self, level: int, published: set[int]) -> list[str]:
        """Return the row values of a level, and the stores of those that other threads read."""
        self.place, self.level = "row", level
        numbers = self.body.at(level, False)
        instrs = [self.body.values[n].instr for n in numbers]
        lines = self.loads(operand for instr in instrs for operand in self.used(instr))
        lines += [self.assign(instr) for instr in instrs]
        before = self.body.at(level - 1, False, True) if level else [-1 - s for s in range(self.fold.num_state)]
        lines += [f"row_value[{self.slot_of(n)}][t]=F2U({self.register(n)});" for n in numbers + before
                  if n in published]
        return lines

    def item_store(self, number: int, text: str) -> str:
        """Return the store of an item of reduction ``number``; the identity where the row has no item (F3, F7)."""
        is_sum = ops.OP_BY_CODE[self.body.values[number].instr.op].name == "row_sum"
        there = "j<width" + ("&&k0+j<=first_row+batch_row" if self.fold.tri_skip else "")
        return (f"items[j*5u+r/4u][r%4u]=U2F({there}?F2U({text}):"
                f"{_SUM_IDENTITY if is_sum else _MAX_IDENTITY});")

    def element_pass(self, level: int) -> list[str]:
        """Return the element values of a level and the items of its first reduction."""
        self.place, self.level = "element", level
        numbers = self.body.at(level, True)
        instrs = [self.body.values[n].instr for n in numbers]
        first = self.body.at(level, False, True)[:1]
        sources = [self.body.values[n].instr.a for n in first]
        lines = self.loads([*(operand for instr in instrs for operand in self.used(instr)), *sources])
        for n, instr in zip(numbers, instrs, strict=True):
            lines.append(self.compute(instr))
            if self.is_kept(n):
                lines.append(f"kept{n}[e]=v{n};")
        return lines + [self.item_store(n, self.operand(source)) for n, source in zip(first, sources, strict=True)]

    def late_pass(self, number: int) -> list[str]:
        """Return the pass that writes the items of one more reduction of a level."""
        self.place, self.level = "element", -1
        source = self.body.values[number].instr.a
        return [*self.loads([source]), self.item_store(number, self.operand(source))]

    def read_by_elements(self) -> set[int]:
        """Return the row values and states that element code, accumulation or finalize read."""
        found: set[int] = set()
        for n in self.body.live:
            value = self.body.values[n]
            if value.is_element or value.is_reduce:
                instr = value.instr
                found.update(operand.idx for operand in self.used(instr) if _KIND[operand.kind] in REGISTER_KINDS
                             and not self.body.is_element(operand))
        vecacc = self.fold.vecacc
        if vecacc is not None:
            if vecacc.has_scale:
                found.add(self.body.now[vecacc.scale_reg])
            if not self.body.is_element(Operand(_REG, self.body.now[vecacc.weight_reg])):
                found.add(self.body.now[vecacc.weight_reg])
        return found

    def reduction(self, number: int) -> list[str]:
        name = ops.OP_BY_CODE[self.body.values[number].instr.op].name.removeprefix("row_")
        return ["barrier();", f"part[t]=stage_{name}(t);", "barrier();",
                f"if(t<{FOLD_ROWS}u) v{number}=U2F(finish_{name}(t));"]

    def block_code(self) -> str:
        """Return the code of one block, its scores included."""
        body = self.body
        published = self.read_by_elements()
        text = [self.scores()] if self.fold.matmul is not None else []
        names = [f"v{n}" for n in body.live if not body.values[n].is_element]
        kept = [f"kept{n}[8]" for n in body.live if body.values[n].is_element and self.is_kept(n)]
        text.append(_indent([f"float {', '.join(names + kept)};"] if names + kept else [], 3))
        for level in range(body.levels):
            rows = self.row_pass(level, published)
            if rows:
                text.append(_indent([f"if(t<{FOLD_ROWS}u){{", *("  " + line for line in (
                    "uint batch_row=min(m0+t,height-1u), row=batch*height+batch_row;", *rows)), "}"], 3))
            reduces = body.at(level, False, True)
            elements = self.element_pass(level)
            if any("row_value[" in line for line in (*rows, *elements)):
                text.append(_indent(["barrier();"], 3))
            if elements:
                text.append(blocks.ELEMENTS.substitute(body=_indent(elements, 5)).rstrip())
            for index, number in enumerate(reduces):
                if index:
                    text.append(blocks.ELEMENTS.substitute(body=_indent(self.late_pass(number), 5)).rstrip())
                text.append(_indent(self.reduction(number), 3))
        text.append(self.accumulation())
        text.append(_indent(self.new_states(), 3))
        return "\n".join(part for part in text if part)

    def new_states(self) -> list[str]:
        """Return the update of the states; a row without items in the block keeps its own (F7)."""
        self.place = "row"
        changed = [state for state in range(self.fold.num_state) if self.body.now[state] != -1 - state]
        condition = f"t<{FOLD_ROWS}u" + ("&&k0<=top+t" if self.fold.tri_skip else "")
        temporary = [f"float n{state}={self.register(self.body.now[state])};" for state in changed]
        stores = [f"s{state}=n{state};" for state in changed]
        return [f"if({condition}){{ {' '.join(temporary + stores)} }}"] if changed else []

    # ---------------------------------------------------------------------------------- matmul and vectors

    def operand_base(self, name: str, slot: int, rows: str) -> str:
        """Return the definition of where operand ``name`` begins for a batch, and of the strides of a strided one.

        ``rows``: how many rows its strided view has a batch. Those of the key are its values of k.
        """
        if self.is_strided(slot):
            row_stride, column_stride = self.strides(slot)
            return f"uint {name}_base={self.first(slot, rows)}, {name}_row={row_stride}, {name}_column={column_stride};"
        sizes = {"query": "height*depth", "key": "cols*depth", "vector": "cols*out_cols"}
        return f"uint {name}_base=({self.block_number(slot)})*{sizes[name]};"

    def block_number(self, slot: int) -> str:
        """Return the block of an operand that a batch reads."""
        name = _VIEW[self.spec.views[slot].kind]
        if name not in ("linear", "head_group"):
            raise UnsupportedOpError(f"This version does not run a fold operand with the view {name} (input {slot})",
                                     op=name)
        return "batch" if name == "linear" else f"batch/W({self.meta.view_param_offsets[slot]})"

    def scores(self) -> str:
        matmul = self.fold.matmul
        assert matmul is not None
        pads = {"pad_a": _hex(numerics.MATMUL_PAD_A_BITS), "pad_b": _hex(numerics.MATMUL_PAD_B_BITS)}
        key = matmul.b_input
        if matmul.trans_b or self.is_strided(key):
            at, adjacent, load = "key_base+(k0+j)*depth+y", "", "at+i"
            if self.is_strided(key):
                at, adjacent, load = "key_base+(k0+j)*key_column+y*key_row", "&&key_row==1u", "at+i*key_row"
            fetch = blocks.FETCH_ROWS.substitute(quads=FOLD_STEP // 4, pad_b=pads["pad_b"], at=at, adjacent=adjacent,
                                                 quad=self.storage.quad(key, "at/4u"), load=self.element(key, load))
        else:
            fetch = blocks.FETCH_COLUMNS.substitute(step=FOLD_STEP, pad_b=pads["pad_b"],
                                                    load=self.element(key, "key_base+(k1+n)*cols+k0+j"))
        by_strides = self.is_strided(matmul.a_input)
        if matmul.trans_a and not by_strides:
            place = {"query_k": f"t/{FOLD_ROWS}u", "query_row": f"t%{FOLD_ROWS}u"}
            query = self.element(matmul.a_input, "query_base+(k1+y)*height+m0+r")
        else:
            place = {"query_k": f"t%{FOLD_STEP}u", "query_row": f"t/{FOLD_STEP}u"}
            query = self.element(matmul.a_input, "query_base+(m0+r)*query_row+(k1+y)*query_column" if by_strides
                                 else "query_base+(m0+r)*depth+k1+y")
        spread = [f"score[{n}]=acc{n // 4}.{'xyzw'[n % 4]};" for n in range(8)]
        return blocks.SCORES.substitute(
            identity=_SUM_IDENTITY, step=FOLD_STEP, query=query, fetch=fetch,
            spread=_indent([" ".join(spread)], 3), pad_a=pads["pad_a"], **place).rstrip()

    def accumulation(self) -> str:
        """Return the vector accumulation, the weights put into the items where the body did not leave them there."""
        vecacc = self.fold.vecacc
        if vecacc is None:
            return ""
        weight = Operand(_REG, self.body.now[vecacc.weight_reg])
        text = ""
        if weight != self.in_items:
            self.place, self.level = "element", -1
            store = f"items[j*5u+r/4u][r%4u]={self.operand(weight)};"
            text = "\n".join((_indent(["barrier();"], 3), blocks.ELEMENTS.substitute(body=_indent([store], 5)).rstrip(),
                              _indent(["barrier();"], 3), ""))
        scale = []
        if vecacc.has_scale:
            at = self.slot_of(self.body.now[vecacc.scale_reg])
            skip = (lambda row, value: f"(k0<=top+{row}?{value}:0x3f800000u)") if self.fold.tri_skip else \
                (lambda row, value: value)
            for n, quad in enumerate(("quad", "quad+quad_step", "2u", "3u")):
                lanes = ",".join(f"U2F({skip(f'({quad})*4u+{x}u', f'row_value[{at}][({quad})*4u+{x}u]')})"
                                 for x in range(4))
                guard = ("", "if(quad_step<4u) ", "if(quad_step<2u) ", "if(quad_step<2u) ")[n]
                scale.append(f"{guard}sum{n}=sum{n}*vec4({lanes});")
        tri = self.fold.tri_skip
        span = "uint whole_items=top<k0?0u:min(width,top+1u-k0), items_end=min(width,top+live-k0);" if tri else \
            "uint whole_items=width;"
        vector = self.element(vecacc.b_input, "vector_base+(k0+item)*vector_row+d*vector_column"
                              if self.is_strided(vecacc.b_input) else "vector_base+(k0+item)*out_cols+d")
        edge = blocks.EDGE.substitute(vector=vector).rstrip() if tri else ""
        return text + blocks.ACCUMULATE.substitute(scale=_indent([*scale, span], 4), vector=vector,
                                                   edge=edge).rstrip()

    # ---------------------------------------------------------------------------------- whole kernel

    def begin(self) -> list[str]:
        """Return what a group of rows starts with."""
        fold = self.fold
        # Or-ed with a zero that the driver does not know: a literal zero must not meet an operation (R2b).
        lines = ["float " + ", ".join(f"s{n}=U2F({_hex(bits)}|nought)" for n, bits in enumerate(fold.init_bits)) + ";"]
        if fold.matmul is not None:
            lines += [self.operand_base("query", fold.matmul.a_input, "height"),
                      self.operand_base("key", fold.matmul.b_input, "depth")]
        read = {operand.idx for n in self.body.live for operand in self.used(self.body.values[n].instr)
                if _KIND[operand.kind] == "input"}
        lines += [f"uint first{slot}={self.first(slot, 'height')};" for slot in sorted(read) if self.is_strided(slot)]
        if fold.vecacc is not None:
            lines += [self.operand_base("vector", fold.vecacc.b_input, "cols"),
                      f"uint d0=chunk*{FOLD_COLUMNS}u, span=min(out_cols-d0,{FOLD_COLUMNS}u);",
                      "uint across=span<=64u?64u:span<=128u?128u:256u, quad=t/across, quad_step=256u/across;",
                      "uint d=min(d0+t%across,out_cols-1u);",
                      f"vec4 sum0=vec4(U2F({_SUM_IDENTITY}|nought)), sum1=sum0, sum2=sum0, sum3=sum0;"]
        if fold.tri_skip:
            lines.append("uint top=first_row+m0, stop=min(cols,top+live);")
        return lines

    def final_code(self) -> list[str]:
        """Return finalize for one element: row r, column col."""
        self.place = "final"
        now = {state: -1 - state for state in range(self.fold.num_state)}
        lines = ["uint batch_row=m0+r, row=batch*height+batch_row;"]
        result = ""
        for number, instr in enumerate(self.fold.finalize):
            operands = [Operand(_REG, now[operand.idx]) if _KIND[operand.kind] in REGISTER_KINDS else operand
                        for operand in self.used(instr)]
            text = self.compute(Instr(instr.op, number, *operands))
            lines.append(text.replace(f"float v{number}=", f"float f{number}=", 1))
            now[instr.dst] = number
            result = f"f{number}"
        return [*lines, self.store(0, result, "row*out_cols+col")]

    def end(self) -> list[str]:
        code = self.final_code()
        states = [state for state in range(self.fold.num_state) if -1 - state in self.slots
                  and any(f"row_value[{self.slots[-1 - state]}]" in line for line in code)]
        publish = [f"row_value[{self.slots[-1 - state]}][t]=F2U(s{state});" for state in states]
        lines = [f"if(t<{FOLD_ROWS}u){{ {' '.join(publish)} }}", "barrier();"] if publish else []
        if self.fold.vecacc is None:
            return [*lines, "if(t<live){", "  uint r=t, col=nought;", *("  " + line for line in code), "}"]
        return [*lines, f"for(uint n=0u;n<{FOLD_ROWS}u/quad_step;n++){{",
                "  uint x=n%4u, r=(quad+n/4u*quad_step)*4u+x, col=d0+t%across;",
                "  vec4 o=sum0;", "  if(n/4u==1u) o=sum1;", "  if(n/4u==2u) o=sum2;", "  if(n/4u==3u) o=sum3;",
                "  if(r<live&&t%across<span){", *("    " + line for line in code), "  }", "}"]

    def text(self) -> str:
        """Return the whole shader."""
        matmul = self.fold.matmul
        end = self.end()
        block_code = self.block_code()
        main = blocks.MAIN.substitute(
            head=", batches=1u" if matmul is None else
            ", depth=W(5), batches=W(6), first_row=W(7), first_batch=W(8)", block=numerics.FOLD_BLOCK,
            rows=FOLD_ROWS, columns=FOLD_COLUMNS, stop="stop" if self.fold.tri_skip else "cols",
            begin=_indent(self.begin(), 2), block_code=block_code, end=_indent(end, 2))
        names = {ops.OP_BY_CODE[self.body.values[n].instr.op].name.removeprefix("row_")
                 for n in self.body.live if self.body.values[n].is_reduce}
        helpers = blocks.SHARED.substitute(block=numerics.FOLD_BLOCK, threads=self.meta.local_size[0],
                                     slots=max(1, len(self.slots)), rows=FOLD_ROWS)
        if matmul is not None:
            helpers += blocks.TILES.substitute(step=FOLD_STEP, quads=numerics.FOLD_BLOCK // 4)
        for name in sorted(names):
            helpers += blocks.STAGE.substitute(
                name=name, rows=FOLD_ROWS, steps=_indent(_tree(8, name), 1), last_steps=_indent(_tree(16, name), 1),
                result="a[0]" if name == "sum" else f"nn_max(a[0],{_MAX_IDENTITY})")
        return self.shader(main, helpers)


def emit_fold(spec: ExprSpec, meta: KernelMeta, variant: str = "") -> str:
    """Return the GLSL source of the kernel of a fold; ``variant`` as for :func:`nnk.generator.glsl.emit`.

    Raises
    ------
    ExprError
        If the body leaves a state, a weight or a scale without a value of its class.
    UnsupportedOpError
        If an operand has a view that this version does not run.
    """
    return _FoldEmitter(spec, meta, variant).text()
