# cython: language_level=3
"""The CPU engine's core: runs one ExprSpec over buffers, with the bits that the numerics contract fixes.

The work is done by the C files in csrc (see csrc/cpu.h); this module hands a spec over, keeps buffers alive during a
run, and turns faults into nnk's errors. No result depends on the number of threads or on the instruction set.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from nnk.errors import ExprError, ShapeError, UnsupportedOpError

__all__ = ["Program", "isas", "set_isa"]

cdef extern from "cpu.h" nogil:
    enum:
        NNK_MAX_INSTRS
        NNK_MAX_INPUTS
        NNK_MAX_OUTPUTS
        NNK_MAX_EXTRAS
        NNK_MAX_REGS
        NNK_MAX_WORDS
        NNK_FORM_ELEMENTWISE
        NNK_FORM_REDUCE
        NNK_FORM_MATMUL
        NNK_FORM_FOLD
        NNK_MAX_FOLD_BODY
        NNK_MAX_FOLD_FINALIZE
        NNK_MAX_FOLD_STATES
        NNK_TYPE_WORD
        NNK_TYPE_FLOAT
        NNK_TYPE_U8
        NNK_TYPE_BOOL
        NNK_OK
        NNK_INVALID
        NNK_UNSUPPORTED
        NNK_EXTENT
        NNK_INDEX
        NNK_NO_MEMORY

    ctypedef struct nnk_raw_instr:
        uint8_t op
        uint8_t dst
        uint8_t kind[3]
        uint8_t idx[3]

    ctypedef struct nnk_raw_view:
        uint8_t kind
        uint8_t negate
        uint32_t param
        uint32_t word

    ctypedef struct nnk_fold:
        uint32_t n_states
        uint32_t n_body
        uint32_t n_finalize
        uint32_t inits[1]
        nnk_raw_instr body[1]
        nnk_raw_instr finalize[1]
        uint32_t has_matmul
        uint32_t a_input
        uint32_t b_input
        uint32_t trans_a
        uint32_t trans_b
        uint32_t tri_skip
        uint32_t has_vecacc
        uint32_t weight_reg
        uint32_t v_input
        uint32_t scale_reg
        uint32_t has_scale

    ctypedef struct nnk_spec:
        uint32_t form
        uint32_t n_instrs
        uint32_t n_views
        uint32_t n_regs
        uint32_t n_extras
        uint32_t const_word
        uint32_t n_consts
        uint32_t rparam_word
        uint32_t n_rparams
        uint32_t n_words
        uint32_t column
        uint32_t has_matmul
        uint32_t a_input
        uint32_t b_input
        uint32_t half_word
        uint8_t in_type[1]
        uint8_t out_type[1]
        nnk_raw_instr instrs[1]
        nnk_raw_view views[1]
        uint8_t extras[1]
        nnk_fold fold

    ctypedef struct nnk_plan:
        nnk_spec spec
        uint32_t n_outputs

    ctypedef struct nnk_fault:
        int kind
        char text[240]

    ctypedef struct nnk_buffer:
        const void *data
        uint64_t bytes

    ctypedef struct nnk_run:
        const nnk_plan *plan
        uint32_t words[1]
        nnk_buffer input "in" [1]
        nnk_buffer output "out" [1]
        unsigned threads
        nnk_fault *fault

    ctypedef struct nnk_isa:
        const char *name

    int nnk_plan_build(nnk_plan *plan, nnk_fault *fault) noexcept
    void nnk_plan_free(nnk_plan *plan) noexcept
    int nnk_run_execute(nnk_run *run) noexcept
    size_t nnk_isa_list(const nnk_isa **list) noexcept
    bint nnk_isa_select(const char *name) noexcept

#: The letters of input and output slots (nnk.expr.dtypes).
cdef dict INPUT_TYPES = {"w": NNK_TYPE_WORD, "u": NNK_TYPE_U8, "b": NNK_TYPE_BOOL}
cdef dict OUTPUT_TYPES = {"f": NNK_TYPE_FLOAT, "i": NNK_TYPE_WORD, "u": NNK_TYPE_U8, "b": NNK_TYPE_BOOL}

cdef dict FORMS = {"elementwise": NNK_FORM_ELEMENTWISE, "reduce": NNK_FORM_REDUCE, "matmul": NNK_FORM_MATMUL,
                   "fold": NNK_FORM_FOLD, "fold_matmul": NNK_FORM_FOLD}

#: More threads than this are not started, whatever a caller asks for.
cdef enum:
    MAX_THREADS = 256


cdef object error_of(const nnk_fault *fault):
    """Return the exception for a fault."""
    cdef str text = (<bytes>fault.text).decode("utf-8", "replace")
    if fault.kind == NNK_UNSUPPORTED:
        return UnsupportedOpError(text)
    if fault.kind == NNK_EXTENT:
        return ShapeError(text)
    if fault.kind == NNK_INDEX:
        return ExprError(text, op="take")
    if fault.kind == NNK_NO_MEMORY:
        return MemoryError(text)
    return ExprError(text)


cdef uint32_t number(object value, uint32_t limit, str what) except? 0xFFFFFFFF:
    """Return ``value`` as an integer of at most ``limit``."""
    cdef object n = int(value)
    if n < 0 or n > limit:
        raise ExprError(f"Expected {what} from 0 to {limit}, got {n}")
    return <uint32_t>n


cdef int read_instrs(nnk_raw_instr *out, uint32_t *count, object instrs, uint32_t limit) except -1:
    cdef uint32_t i = 0, j
    cdef nnk_raw_instr *raw
    count[0] = number(len(instrs), limit, "a number of instructions")
    for instr in instrs:
        raw = &out[i]
        raw.op = <uint8_t>number(instr.op, 255, "an op code")
        raw.dst = <uint8_t>number(instr.dst, 255, "a register")
        j = 0
        for operand in (instr.a, instr.b, instr.c):
            raw.kind[j] = <uint8_t>number(operand.kind, 255, "an operand kind")
            raw.idx[j] = <uint8_t>number(operand.idx, 255, "an operand index")
            j += 1
        i += 1
    return 0


cdef int read_fold(nnk_fold *out, object fold) except -1:
    """Copy a fold; csrc/cpu_fold_plan.c judges it. Its sizes are data of a run."""
    cdef uint32_t i = 0
    read_instrs(out.body, &out.n_body, fold.body, NNK_MAX_FOLD_BODY)
    read_instrs(out.finalize, &out.n_finalize, fold.finalize, NNK_MAX_FOLD_FINALIZE)
    out.n_states = number(fold.num_state, NNK_MAX_FOLD_STATES, "a number of fold states")
    if len(fold.init_bits) != out.n_states:
        raise ExprError(f"Expected {out.n_states} initial values of a fold, got {len(fold.init_bits)}")
    for bits in fold.init_bits:
        out.inits[i] = number(bits, 0xFFFFFFFF, "an initial value")
        i += 1
    out.tri_skip = number(fold.tri_skip, 1, "a tri_skip flag")
    out.has_matmul = fold.matmul is not None
    if out.has_matmul:
        out.a_input = number(fold.matmul.a_input, 255, "an input slot of matmul operand a")
        out.b_input = number(fold.matmul.b_input, 255, "an input slot of matmul operand b")
        out.trans_a = number(fold.matmul.trans_a, 1, "a transpose flag")
        out.trans_b = number(fold.matmul.trans_b, 1, "a transpose flag")
    out.has_vecacc = fold.vecacc is not None
    if out.has_vecacc:
        out.weight_reg = number(fold.vecacc.weight_reg, 255, "a weight register")
        out.v_input = number(fold.vecacc.b_input, 255, "an input slot of the vectors")
        out.scale_reg = number(fold.vecacc.scale_reg, 255, "a scale register")
        out.has_scale = number(fold.vecacc.has_scale, 1, "a scale flag")
    return 0


cdef int read_views(nnk_spec *out, object views, object offsets) except -1:
    cdef uint32_t i = 0
    out.n_views = number(len(views), NNK_MAX_INPUTS, "a number of inputs")
    if len(offsets) != len(views):
        raise ExprError(f"Expected a parameter offset for each of {len(views)} views, got {len(offsets)}")
    for view, offset in zip(views, offsets):
        out.views[i].kind = <uint8_t>number(view.kind, 255, "a view code")
        out.views[i].negate = <uint8_t>number(view.negate, 1, "a negate flag")
        out.views[i].param = number(view.param, 0xFFFFFFFE, "a view parameter")
        out.views[i].word = number(offset, NNK_MAX_WORDS, "a parameter offset")
        i += 1
    return 0


cdef int read_spec(nnk_spec *out, object spec, object meta) except -1:
    """Copy what the engine needs of ``spec`` and ``meta``; csrc/cpu_plan.c judges it."""
    cdef uint32_t i = 0
    if meta.form not in FORMS or (spec.fold is not None) != (FORMS[meta.form] == NNK_FORM_FOLD):
        raise UnsupportedOpError(f"The CPU engine does not run the kernel form {meta.form!r}"
                                 + (" with a fold" if spec.fold is not None else ""), op=meta.form)
    out.form = FORMS[meta.form]
    if spec.fold is not None:
        read_fold(&out.fold, spec.fold)
    out.n_regs = number(spec.num_regs, NNK_MAX_REGS, "a number of registers")
    read_instrs(out.instrs, &out.n_instrs, spec.instrs, NNK_MAX_INSTRS)
    read_views(out, spec.views, meta.view_param_offsets)
    out.n_extras = number(len(spec.extras), NNK_MAX_EXTRAS, "a number of extra outputs")
    for register in spec.extras:
        out.extras[i] = <uint8_t>number(register, 255, "a register")
        i += 1
    out.const_word = number(meta.const_offset, NNK_MAX_WORDS, "a constant offset")
    out.n_consts = number(len(spec.const_bits), NNK_MAX_WORDS, "a number of constants")
    out.rparam_word = number(meta.rparam_offset, NNK_MAX_WORDS, "a run-time parameter offset")
    out.n_rparams = number(len(spec.rparam_bits), NNK_MAX_WORDS, "a number of run-time parameters")
    out.n_words = number(meta.param_words, NNK_MAX_WORDS, "a number of parameter words")
    out.column = out.form == NNK_FORM_REDUCE and meta.reduce_axis == 1
    out.has_matmul = spec.matmul is not None
    if out.has_matmul != (out.form == NNK_FORM_MATMUL or (out.form == NNK_FORM_REDUCE and meta.has_matmul)):
        segment = "with" if out.has_matmul else "without"
        raise UnsupportedOpError(f"The CPU engine does not run the form {meta.form!r} {segment} a matmul segment",
                                 op="matmul")
    if out.has_matmul:
        if out.n_views == 0:
            raise ExprError("A matmul needs inputs, got none", op="matmul")
        out.a_input = number(spec.matmul.a_input, out.n_views - 1, "an input slot of matmul operand a")
        out.b_input = number(spec.matmul.b_input, out.n_views - 1, "an input slot of matmul operand b")
    if meta.n_inputs != out.n_views or meta.n_outputs != 1 + out.n_extras:
        raise ExprError(f"The kernel meta has {meta.n_inputs} inputs and {meta.n_outputs} outputs, the spec "
                        f"{out.n_views} and {1 + out.n_extras}")
    read_types(out, meta)
    return 0


cdef int read_types(nnk_spec *out, object meta) except -1:
    """Read how the slots are stored: their letters, and where the words are that say which are halves."""
    cdef uint32_t i
    cdef str inputs = meta.input_letters
    cdef str outputs = meta.output_letters
    if len(inputs) != out.n_views or len(outputs) != 1 + out.n_extras:
        raise ExprError(f"Expected a letter for each of {out.n_views} inputs and {1 + out.n_extras} outputs, got "
                        f"{inputs!r} and {outputs!r}")
    for i in range(out.n_views):
        if inputs[i] not in INPUT_TYPES:
            raise ExprError(f"Expected one of {', '.join(INPUT_TYPES)} for the type of input {i}, got {inputs[i]!r}")
        out.in_type[i] = INPUT_TYPES[inputs[i]]
    for i in range(1 + out.n_extras):
        if outputs[i] not in OUTPUT_TYPES:
            raise ExprError(f"Expected one of {', '.join(OUTPUT_TYPES)} for the type of output {i}, got {outputs[i]!r}")
        out.out_type[i] = OUTPUT_TYPES[outputs[i]]
    if meta.reads_halves:
        out.half_word = number(meta.half_offset, NNK_MAX_WORDS, "an offset of half words")
    return 0


cdef int take_buffers(object items, uint32_t expected, int flags, str what, Py_buffer *views, nnk_buffer *out,
                      uint32_t *held) except -1:
    """Fill ``out`` from objects with the buffer protocol. ``held`` counts the views that the caller must release."""
    cdef Py_buffer *view
    if len(items) != expected:
        raise ShapeError(f"Expected {expected} {what} buffers, got {len(items)}")
    cdef uint32_t slot = 0
    for item in items:
        view = &views[slot]
        try:
            PyObject_GetBuffer(item, view, flags)
        except (BufferError, TypeError, ValueError) as exc:
            raise ExprError(f"Expected C-contiguous{' writable' if flags & PyBUF_WRITABLE else ''} memory for {what} "
                            f"{slot}, got {type(item).__name__}: {exc}") from exc
        held[0] += 1
        if <size_t>view.buf % 4:
            raise ExprError(f"Expected memory aligned to 4 bytes for {what} {slot}")
        out[slot].data = view.buf
        out[slot].bytes = <uint64_t>view.len
        slot += 1
    return 0


@cython.final
@cython.auto_pickle(False)
cdef class Program:
    """Run one kernel's program on the CPU.

    Parameters
    ----------
    spec : nnk.expr.spec.ExprSpec
        The program, in canonical form or not.
    meta : nnk.expr.meta.KernelMeta
        Its meta data: the layout of the parameter words.

    Raises
    ------
    UnsupportedOpError
        If the spec has a part that this engine does not run.
    ExprError
        If the spec is not valid.
    """

    cdef nnk_plan *plan

    def __cinit__(self, spec, meta):
        cdef nnk_fault fault
        fault.kind = NNK_OK
        self.plan = <nnk_plan *>calloc(1, sizeof(nnk_plan))
        if self.plan == NULL:
            raise MemoryError()
        read_spec(&self.plan.spec, spec, meta)
        if nnk_plan_build(self.plan, &fault):
            raise error_of(&fault)

    def __dealloc__(self):
        if self.plan != NULL:
            nnk_plan_free(self.plan)
            free(self.plan)

    def run(self, words not None, inputs not None, outputs not None, int threads=0):
        """Run the program once, without the GIL.

        Parameters
        ----------
        words : bytes-like
            The parameter words of the launch, as :func:`nnk.expr.meta.pack_words` makes them.
        inputs, outputs : sequence of objects with the buffer protocol
            C-contiguous memory aligned to 4 bytes, one object a slot. Outputs are written from their start. An output
            may share memory with an input only if it is the same array and the program is elementwise with linear
            views throughout.
        threads : int
            Most threads to use, 0 for one a core. Never changes a result.

        Raises
        ------
        ShapeError
            If a buffer is too small for what the words say; nothing is read or written then.
        ExprError
            If a buffer cannot be used or an index lies outside of its table.
        """
        cdef Py_buffer word_view
        cdef Py_buffer[NNK_MAX_INPUTS + NNK_MAX_OUTPUTS] views
        cdef uint32_t held = 0, i
        cdef nnk_fault fault
        cdef nnk_run run
        cdef int failed
        if threads < 0:
            raise ExprError(f"Expected a number of threads from 0, got {threads}")
        fault.kind = NNK_OK
        run.plan = self.plan
        run.fault = &fault
        run.threads = <unsigned>min(threads, MAX_THREADS)
        PyObject_GetBuffer(words, &word_view, PyBUF_SIMPLE)
        try:
            if <uint64_t>word_view.len != 4 * <uint64_t>self.plan.spec.n_words:
                raise ShapeError(f"Expected {self.plan.spec.n_words} parameter words ({4 * self.plan.spec.n_words} "
                                 f"bytes), got {word_view.len} bytes")
            memcpy(run.words, word_view.buf, <size_t>word_view.len)
        finally:
            PyBuffer_Release(&word_view)
        try:
            take_buffers(inputs, self.plan.spec.n_views, PyBUF_SIMPLE, "input", views, run.input, &held)
            take_buffers(outputs, self.plan.n_outputs, PyBUF_WRITABLE, "output", views + held, run.output, &held)
            with nogil:
                failed = nnk_run_execute(&run)
            if failed:
                raise error_of(&fault)
        finally:
            for i in range(held):
                PyBuffer_Release(&views[i])


def isas():
    """Return the names of the instruction sets that the engine has code for and this CPU runs, slowest first."""
    cdef const nnk_isa *found[3]
    cdef size_t count = nnk_isa_list(found)
    return tuple([(<bytes>found[i].name).decode("ascii") for i in range(count)])


def set_isa(str name not None):
    """Use the instruction set ``name`` from now on: for tests and benchmarks. Results are the same with each.

    Raises
    ------
    ExprError
        If ``name`` is not one of :func:`isas`.
    """
    if not nnk_isa_select(name.encode()):
        raise ExprError(f"Expected one of {', '.join(isas())}, got {name!r}")
