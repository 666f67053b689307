/* From the fold of a spec to steps whose operands are known, and the check of a fold's run.
 *
 * The class of a register is that of its last writer: one value a row, or one for each element of a block. What the
 * format's rules leave open (a weight that nothing writes) is refused here, so that cpu_fold.c may trust the plan.
 */
#include <inttypes.h>
#include <string.h>

#include "cpu.h"

typedef struct {
    const nnk_spec *spec;
    nnk_fault *fault;
    int8_t cls[NNK_MAX_REGS]; /* -1: not written yet */
    bool is_finalize;
    bool is_state[NNK_MAX_REGS]; /* finalize: still holds the state */
} builder;

static bool is_fold_view(unsigned kind, bool has_matmul) {
    if (kind == NNK_VIEW_BATCH_MOD || kind == NNK_VIEW_BATCH_COL) return has_matmul;
    return kind == NNK_VIEW_LINEAR || kind == NNK_VIEW_ROW_MOD || kind == NNK_VIEW_ROW_BROADCAST ||
           kind == NNK_VIEW_STRIDED;
}

static int no_slot(const builder *b, unsigned n, const char *what, unsigned idx) {
    return nnk_fail(b->fault, NNK_INVALID, "Instruction %u of the fold reads %s %u, which does not exist", n, what, idx);
}

static int input_source(builder *b, unsigned n, unsigned idx, nnk_fold_step *step, unsigned at) {
    const nnk_spec *s = b->spec;
    if (idx >= s->n_views) return no_slot(b, n, "input", idx);
    unsigned view = s->views[idx].kind;
    if (b->is_finalize || !is_fold_view(view, s->fold.has_matmul))
        return nnk_fail(b->fault, NNK_INVALID, "Instruction %u of the fold reads input %u, whose view %u it cannot read",
                        n, idx, view);
    step->from[at] = NNK_FROM_INPUT;
    step->index[at] = (uint16_t)idx;
    bool is_row = view == NNK_VIEW_ROW_BROADCAST || view == NNK_VIEW_BATCH_MOD;
    if (!is_row) step->cls = NNK_ELEM;
    return NNK_OK;
}

static int grid_source(builder *b, unsigned n, unsigned kind, nnk_fold_step *step, unsigned at) {
    if (!b->spec->fold.has_matmul || (kind == NNK_OPERAND_MATMUL && b->is_finalize))
        return nnk_fail(b->fault, NNK_UNSUPPORTED, "Instruction %u of the fold reads operand kind %u, which is not there",
                        n, kind);
    step->from[at] = kind == NNK_OPERAND_MATMUL ? NNK_FROM_SCORE : kind == NNK_OPERAND_ROW ? NNK_FROM_ROW_NUMBER
                     : kind == NNK_OPERAND_COL ? NNK_FROM_COL_NUMBER : NNK_FROM_BATCH;
    if (kind == NNK_OPERAND_MATMUL || kind == NNK_OPERAND_COL) step->cls = NNK_ELEM;
    return NNK_OK;
}

static int word_source(nnk_fold_step *step, unsigned at, uint32_t word) {
    step->from[at] = NNK_FROM_WORD;
    step->index[at] = (uint16_t)word;
    return NNK_OK;
}

static int source(builder *b, unsigned n, unsigned kind, unsigned idx, nnk_fold_step *step, unsigned at) {
    const nnk_spec *s = b->spec;
    switch (kind) {
    case NNK_OPERAND_REG:
    case NNK_OPERAND_FANOUT:
    case NNK_OPERAND_REDUCE:
        if (idx >= s->n_regs || b->cls[idx] < 0) return no_slot(b, n, "register", idx);
        step->from[at] = b->cls[idx] == NNK_ELEM ? NNK_FROM_ELEM : NNK_FROM_ROW;
        step->index[at] = (uint16_t)(idx + (b->is_finalize && b->is_state[idx] ? NNK_MAX_REGS : 0));
        if (b->cls[idx] == NNK_ELEM) step->cls = NNK_ELEM;
        return NNK_OK;
    case NNK_OPERAND_INPUT: return input_source(b, n, idx, step, at);
    case NNK_OPERAND_CONST:
        return idx < s->n_consts ? word_source(step, at, s->const_word + idx) : no_slot(b, n, "constant", idx);
    case NNK_OPERAND_RPARAM:
        return idx < s->n_rparams ? word_source(step, at, s->rparam_word + idx)
                                  : no_slot(b, n, "run-time parameter", idx);
    case NNK_OPERAND_MATMUL:
    case NNK_OPERAND_ROW:
    case NNK_OPERAND_COL:
    case NNK_OPERAND_BATCH: return grid_source(b, n, kind, step, at);
    case NNK_OPERAND_VEC_STATE:
        if (!b->is_finalize || !s->fold.has_vecacc) return no_slot(b, n, "the vector state", idx);
        step->from[at] = NNK_FROM_VECTOR;
        step->cls = NNK_ELEM;
        return NNK_OK;
    default:
        return nnk_fail(b->fault, NNK_UNSUPPORTED, "The CPU engine does not run operand kind %u in a fold", kind);
    }
}

static int add_step(builder *b, unsigned n, const nnk_raw_instr *raw, nnk_fold_step *step) {
    *step = (nnk_fold_step){.op = raw->op, .dst = raw->dst, .cls = NNK_ROW};
    step->is_reduce = !b->is_finalize && (raw->op == NNK_OP_ROW_SUM || raw->op == NNK_OP_ROW_MAX);
    step->arity = step->is_reduce ? 1 : raw->op < NNK_OP_CODES ? nnk_isa_base.arity[raw->op] : 0;
    if (step->arity == 0)
        return nnk_fail(b->fault, NNK_UNSUPPORTED, "The CPU engine does not run op %u in a fold", raw->op);
    if (raw->dst >= b->spec->n_regs) return no_slot(b, n, "register", raw->dst);
    for (unsigned i = 0; i < step->arity; i++)
        if (source(b, n, raw->kind[i], raw->idx[i], step, i)) return b->fault->kind;
    if (step->is_reduce) step->cls = NNK_ROW;
    b->cls[raw->dst] = (int8_t)step->cls;
    b->is_state[raw->dst] = false;
    return NNK_OK;
}

static int check_body_end(const builder *b) {
    const nnk_fold *f = &b->spec->fold;
    for (unsigned i = 0; i < f->n_states; i++)
        if (b->cls[i] == NNK_ELEM)
            return nnk_fail(b->fault, NNK_INVALID, "State %u of the fold is overwritten for every element", i);
    if (!f->has_vecacc) return NNK_OK;
    if (f->weight_reg >= b->spec->n_regs || b->cls[f->weight_reg] < 0)
        return nnk_fail(b->fault, NNK_INVALID, "The weight register %u of the fold is never written", f->weight_reg);
    if (f->has_scale && (f->scale_reg >= b->spec->n_regs || b->cls[f->scale_reg] != NNK_ROW))
        return nnk_fail(b->fault, NNK_INVALID, "The scale register %u of the fold holds no value of a row", f->scale_reg);
    return NNK_OK;
}

int nnk_fold_plan_build(nnk_plan *p, nnk_fault *fault) {
    const nnk_spec *s = &p->spec;
    const nnk_fold *f = &s->fold;
    builder b = {.spec = s, .fault = fault};
    memset(b.cls, -1, sizeof b.cls);
    if (f->n_states == 0 || f->n_states > s->n_regs || f->n_body == 0 || f->n_finalize == 0)
        return nnk_fail(fault, NNK_INVALID, "A fold needs states, a body and a finalize part");
    if (f->has_matmul && s->n_words < 7)
        return nnk_fail(fault, NNK_INVALID, "A fold with a matmul needs at least 7 parameter words, got %u", s->n_words);
    if ((f->has_matmul && (f->a_input >= s->n_views || f->b_input >= s->n_views)) ||
        (f->has_vecacc && f->v_input >= s->n_views) || (f->tri_skip && !f->has_matmul))
        return nnk_fail(fault, NNK_INVALID, "The fold's matmul or vector accumulation names an input that does not exist");
    for (unsigned i = 0; i < f->n_states; i++) b.cls[i] = NNK_ROW;
    p->fold.cost = 0.1;
    for (unsigned n = 0; n < f->n_body; n++) {
        if (add_step(&b, n, &f->body[n], &p->fold.body[n])) return fault->kind;
        if (p->fold.body[n].cls == NNK_ELEM) p->fold.cost += p->fold.body[n].arity == 1 ? 1.5 : 0.2;
    }
    if (check_body_end(&b)) return fault->kind;
    if (f->has_vecacc) p->fold.weight_cls = (uint8_t)b.cls[f->weight_reg];
    memset(b.cls, -1, sizeof b.cls);
    for (unsigned i = 0; i < f->n_states; i++) b.cls[i] = NNK_ROW, b.is_state[i] = true;
    b.is_finalize = true;
    for (unsigned n = 0; n < f->n_finalize; n++)
        if (add_step(&b, f->n_body + n, &f->finalize[n], &p->fold.finalize[n])) return fault->kind;
    p->n_outputs = 1;
    return NNK_OK;
}

/* ---- the check of a run ---- */

static uint64_t mul(uint64_t a, uint64_t b) {
    uint64_t r;
    return __builtin_mul_overflow(a, b, &r) ? UINT64_MAX : r;
}

static uint64_t min64(uint64_t a, uint64_t b) { return a < b ? a : b; }

static int need(nnk_run *run, unsigned slot, uint64_t elements) {
    size_t size = nnk_type_bytes(run->in_type[slot]);
    if (elements <= run->in[slot].bytes / size) return NNK_OK;
    return nnk_fail(run->fault, NNK_EXTENT, "Input %u: expected at least %" PRIu64 " elements of %zu bytes, got %" PRIu64
                    " bytes", slot, elements, size, run->in[slot].bytes);
}

static int read_head(nnk_run *run) {
    const nnk_fold *f = &run->plan->spec.fold;
    const uint32_t *w = run->words;
    run->cols = w[1];
    run->rows = w[2];
    run->out_cols = w[3];
    run->k = f->has_matmul ? w[5] : 0;
    run->batch = f->has_matmul ? w[6] : 1;
    run->first_row = f->has_matmul ? w[7] : 0;
    run->first_batch = f->has_matmul ? w[8] : 0;
    if (mul(run->rows, run->out_cols) != w[0] || w[1] != w[4])
        return nnk_fail(run->fault, NNK_EXTENT, "Parameter words: %u results are not %u rows of %u, or the fold's length "
                        "%u is not %u", w[0], w[2], w[3], w[1], w[4]);
    if (run->cols == 0) return nnk_fail(run->fault, NNK_EXTENT, "Parameter words: expected a fold length above 0, got 0");
    if (f->has_vecacc ? run->out_cols == 0 || run->out_cols > NNK_MAX_VEC_STATE_LEN : run->out_cols != 1)
        return nnk_fail(run->fault, NNK_EXTENT, "Parameter words: a fold cannot have %" PRIu64 " output columns",
                        run->out_cols);
    if (run->k > NNK_MAX_FOLD_MATMUL_K)
        return nnk_fail(run->fault, NNK_EXTENT, "Parameter words: expected a fold matmul k of at most %d, got %" PRIu64,
                        NNK_MAX_FOLD_MATMUL_K, run->k);
    if (run->batch == 0 || run->rows % run->batch)
        return nnk_fail(run->fault, NNK_EXTENT, "Parameter words: %" PRIu64 " rows are not a multiple of %" PRIu64
                        " batches", run->rows, run->batch);
    run->m = run->rows / run->batch;
    return NNK_OK;
}

/* A strided view on rows of all batches: the rows of one are its innermost dimension, so that a kernel can step. */
static int check_strided(nnk_run *run, unsigned slot, uint64_t batch_rows, uint64_t cols) {
    if (nnk_check_strided(run, slot, mul(run->batch, batch_rows), cols)) return run->fault->kind;
    const nnk_strided *s = &run->strided[slot];
    if (batch_rows == 0 || cols == 0 || s->size[s->n - 1] == batch_rows) return NNK_OK;
    return nnk_fail(run->fault, NNK_EXTENT, "Input %u: expected the %" PRIu64 " rows of a batch as the innermost row "
                    "dimension of its strided view, got %u", slot, batch_rows, s->size[s->n - 1]);
}

static int check_input(nnk_run *run, unsigned slot) {
    const nnk_raw_view *view = &run->plan->spec.views[slot];
    if (view->kind == NNK_VIEW_STRIDED) return check_strided(run, slot, run->m, run->cols);
    uint32_t word = run->words[view->word];
    if ((view->kind == NNK_VIEW_ROW_MOD || view->kind == NNK_VIEW_BATCH_MOD) && word == 0)
        return nnk_fail(run->fault, NNK_EXTENT, "Input %u: expected a view parameter above 0, got 0", slot);
    switch (view->kind) {
    case NNK_VIEW_ROW_BROADCAST: return need(run, slot, run->rows);
    case NNK_VIEW_ROW_MOD: return need(run, slot, mul(min64(run->rows, word), run->cols));
    case NNK_VIEW_BATCH_MOD: return need(run, slot, min64(run->batch, word));
    case NNK_VIEW_BATCH_COL: return need(run, slot, mul(run->batch - 1, word) + run->cols);
    default: return need(run, slot, mul(run->rows, run->cols));
    }
}

/* An operand of the matmul or the vectors: one block of rows and columns a batch, or a group of batches. */
static int check_blocks(nnk_run *run, unsigned slot, uint64_t rows, uint64_t cols) {
    const nnk_raw_view *view = &run->plan->spec.views[slot];
    uint64_t blocks = run->batch;
    if (view->kind == NNK_VIEW_STRIDED) return check_strided(run, slot, rows, cols);
    if (view->kind == NNK_VIEW_HEAD_GROUP) {
        if (run->words[view->word] == 0)
            return nnk_fail(run->fault, NNK_EXTENT, "Input %u: expected a head-group ratio above 0, got 0", slot);
        blocks = (run->batch - 1) / run->words[view->word] + 1;
    } else if (view->kind != NNK_VIEW_LINEAR) {
        return nnk_fail(run->fault, NNK_UNSUPPORTED, "Expected a linear, head_group or strided view for input %u of a "
                        "fold, got view %u", slot, view->kind);
    }
    return need(run, slot, mul(blocks, mul(rows, cols)));
}

static int check_overlap(nnk_run *run) {
    uintptr_t out = (uintptr_t)run->out[0].data;
    size_t size = nnk_type_bytes(run->out_type[0]);
    uint64_t bytes = size * run->rows * run->out_cols;
    if (run->out[0].bytes < bytes)
        return nnk_fail(run->fault, NNK_EXTENT, "Output 0: expected at least %" PRIu64 " elements of %zu bytes, got %"
                        PRIu64 " bytes", bytes / size, size, run->out[0].bytes);
    for (unsigned j = 0; j < run->plan->spec.n_views; j++) {
        uintptr_t in = (uintptr_t)run->in[j].data;
        if (run->in[j].bytes && bytes && in < out + run->out[0].bytes && out < in + run->in[j].bytes)
            return nnk_fail(run->fault, NNK_EXTENT, "Output 0 overlaps input %u in memory", j);
    }
    return NNK_OK;
}

int nnk_fold_check(nnk_run *run) {
    const nnk_fold *f = &run->plan->spec.fold;
    const nnk_fold_plan *p = &run->plan->fold;
    if (read_head(run) || check_overlap(run)) return run->fault->kind;
    if (run->rows == 0) return NNK_OK;
    for (unsigned n = 0; n < f->n_body; n++)
        for (unsigned i = 0; i < p->body[n].arity; i++)
            if (p->body[n].from[i] == NNK_FROM_INPUT && check_input(run, p->body[n].index[i])) return run->fault->kind;
    if (f->has_matmul && (check_blocks(run, f->a_input, run->m, run->k) ||
                          check_blocks(run, f->b_input, run->k, run->cols)))
        return run->fault->kind;
    if (f->has_vecacc && check_blocks(run, f->v_input, run->cols, run->out_cols)) return run->fault->kind;
    return NNK_OK;
}
