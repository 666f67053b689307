/* Reads the parameter words of a run and proves that every access stays inside its buffer.
 *
 * All products are made in 64 bits with saturation: words come from outside and may say anything.
 */
#include <inttypes.h>
#include <string.h>

#include "cpu.h"

static uint64_t mul(uint64_t a, uint64_t b) {
    uint64_t r;
    return __builtin_mul_overflow(a, b, &r) ? UINT64_MAX : r;
}

static uint64_t add(uint64_t a, uint64_t b) {
    uint64_t r;
    return __builtin_add_overflow(a, b, &r) ? UINT64_MAX : r;
}

static uint64_t min64(uint64_t a, uint64_t b) { return a < b ? a : b; }

static int need_input(nnk_run *run, unsigned slot, uint64_t elements) {
    size_t size = nnk_type_bytes(run->in_type[slot]);
    if (elements <= run->in[slot].bytes / size) return NNK_OK;
    return nnk_fail(run->fault, NNK_EXTENT, "Input %u: expected at least %" PRIu64 " elements of %zu bytes, got %" PRIu64
                    " bytes", slot, elements, size, run->in[slot].bytes);
}

/* ---- strided views ---- */

static void read_strided(nnk_run *run, unsigned slot, uint64_t rows) {
    const nnk_raw_view *view = &run->plan->spec.views[slot];
    const uint32_t *w = run->words + view->word;
    nnk_strided *s = &run->strided[slot];
    int n = s->n = (int)view->param;
    s->offset = w[0];
    uint64_t inner = 1;
    for (int i = 1; i < n; i++) inner = mul(inner, s->size[i] = w[i]);
    for (int i = 0; i < n; i++) s->stride[i] = (int32_t)w[n + i];
    s->col_stride = (int32_t)w[2 * n];
    uint64_t outer = inner ? (rows + inner - 1) / inner : 0;
    s->size[0] = (uint32_t)min64(outer, UINT32_MAX);
}

int nnk_check_strided(nnk_run *run, unsigned slot, uint64_t rows, uint64_t cols) {
    read_strided(run, slot, rows);
    const nnk_strided *s = &run->strided[slot];
    if (rows == 0 || cols == 0) return NNK_OK;
    /* |stride| <= 2**31 and size < 2**32, so eight terms stay below 2**66: 128 bits are enough. */
    __int128 low = s->offset, high = s->offset;
    for (int i = 0; i <= s->n; i++) {
        uint64_t size = i < s->n ? s->size[i] : cols;
        int64_t stride = i < s->n ? s->stride[i] : s->col_stride;
        if (size == 0)
            return nnk_fail(run->fault, NNK_EXTENT, "Input %u: row dimension %d of its strided view has size 0, but the"
                            " grid has %" PRIu64 " rows", slot, i, rows);
        __int128 reach = (__int128)stride * (__int128)(size - 1);
        if (reach < 0) low += reach;
        else high += reach;
    }
    if (low < 0)
        return nnk_fail(run->fault, NNK_EXTENT, "Input %u: its strided view reaches %" PRId64 " elements before the "
                        "start of the buffer", slot, (int64_t)-low);
    return need_input(run, slot, high >= UINT32_MAX ? UINT64_MAX : (uint64_t)high + 1);
}

void nnk_odometer_set(nnk_odometer *od, const nnk_strided *view, uint64_t row) {
    od->base = view->offset;
    for (int i = view->n - 1; i >= 0; i--) {
        od->i[i] = i ? (uint32_t)(row % view->size[i]) : (uint32_t)row;
        if (i) row /= view->size[i];
        od->base += (int64_t)od->i[i] * view->stride[i];
    }
}

void nnk_odometer_next(nnk_odometer *od, const nnk_strided *view) {
    for (int i = view->n - 1; i >= 0; i--) {
        od->base += view->stride[i];
        if (++od->i[i] < view->size[i] || i == 0) return;
        od->base -= (int64_t)view->size[i] * view->stride[i];
        od->i[i] = 0;
    }
}

/* ---- indices ---- */

/* The rows of the table behind a row-picking view. */
static uint64_t table_rows(const nnk_run *run, unsigned slot) {
    return run->in[slot].bytes / nnk_type_bytes(run->in_type[slot]) / run->cols;
}

/* The index of a take: one int32 for each of n rows. */
static int check_index(nnk_run *run, unsigned slot, unsigned index_slot, uint64_t n) {
    if (!nnk_is_word(run->in_type[index_slot]))
        return nnk_fail(run->fault, NNK_INVALID, "Input %u holds indices, which are int32", index_slot);
    if (need_input(run, index_slot, n)) return run->fault->kind;
    uint64_t table = table_rows(run, slot);
    const int32_t *index = run->in[index_slot].data;
    for (uint64_t i = 0; i < n; i++)
        if (index[i] < 0 || (uint64_t)index[i] >= table)
            return nnk_fail(run->fault, NNK_INDEX, "Index %" PRId32 " at position %" PRIu64 " of input %u is outside of "
                            "input %u, which has %" PRIu64 " rows", index[i], i, index_slot, slot, table);
    return NNK_OK;
}

/* The labels of a row_gather: one float for each of n columns, without its fraction a row of the table. */
static int check_labels(nnk_run *run, unsigned slot, unsigned label_slot, uint64_t n) {
    if (!nnk_is_word(run->in_type[label_slot]))
        return nnk_fail(run->fault, NNK_INVALID, "Input %u holds labels, which are float32", label_slot);
    if (need_input(run, label_slot, n)) return run->fault->kind;
    uint64_t table = table_rows(run, slot);
    const float *label = run->in[label_slot].data;
    for (uint64_t i = 0; i < n; i++)
        if (!(label[i] >= 0.0f && (double)label[i] < (double)table)) /* false for NaN */
            return nnk_fail(run->fault, NNK_INDEX, "Label %g at position %" PRIu64 " of input %u is outside of input %u, "
                            "which has %" PRIu64 " rows", (double)label[i], i, label_slot, slot, table);
    return NNK_OK;
}

/* ---- views ---- */

static int zero_param(nnk_run *run, unsigned slot) {
    return nnk_fail(run->fault, NNK_EXTENT, "Input %u: expected a view parameter above 0, got 0", slot);
}

static int check_view(nnk_run *run, unsigned slot) {
    const nnk_raw_view *view = &run->plan->spec.views[slot];
    const uint32_t *w = run->words + view->word;
    uint64_t rows = run->rows, cols = run->cols, batches = run->batch;
    if (view->kind == NNK_VIEW_STRIDED) return nnk_check_strided(run, slot, rows, cols);
    if (rows == 0) return NNK_OK;
    if (view->kind == NNK_VIEW_ROW_BROADCAST) return need_input(run, slot, rows);
    if (cols == 0) return NNK_OK;
    switch (view->kind) {
    case NNK_VIEW_COL_BROADCAST: return need_input(run, slot, cols);
    case NNK_VIEW_ROTATE_HALF: {
        if (w[0] == 0 || w[0] % 2)
            return nnk_fail(run->fault, NNK_EXTENT, "Input %u: expected an even number of block rows above 0, got %u",
                            slot, w[0]);
        /* A row reads the other half of its block, so a last block that is cut reads beyond the grid. */
        uint64_t whole = rows / w[0] * w[0], rest = rows - whole, half = w[0] / 2;
        uint64_t last = rest == 0 ? whole : whole + (rest > half ? w[0] : half + rest);
        return need_input(run, slot, mul(last, cols));
    }
    case NNK_VIEW_ROW_MOD:
        if (w[0] == 0) return zero_param(run, slot);
        return need_input(run, slot, mul(min64(rows, w[0]), cols));
    case NNK_VIEW_ROW_ACCESS:
        if (w[0] == 0) return zero_param(run, slot);
        return need_input(run, slot, mul(add(w[1], min64(rows, w[0])), cols));
    case NNK_VIEW_BATCH_MOD:
        if (w[0] == 0) return zero_param(run, slot);
        return need_input(run, slot, min64(batches, w[0]));
    case NNK_VIEW_BATCH_COL: return need_input(run, slot, add(mul(batches - 1, w[0]), cols));
    case NNK_VIEW_TAKE: return check_index(run, slot, view->param, rows);
    case NNK_VIEW_ROW_GATHER: return check_labels(run, slot, view->param, cols);
    case NNK_VIEW_GROUPED_REDUCE_SUM:
    case NNK_VIEW_GROUPED_REDUCE_MAX:
        if (w[0] == 0) return zero_param(run, slot);
        return need_input(run, slot, mul(mul(rows, w[0]), cols));
    case NNK_VIEW_HEAD_GROUP:
        if (w[0] == 0) return zero_param(run, slot);
        return need_input(run, slot, mul(rows, cols));
    default: return need_input(run, slot, mul(rows, cols));
    }
}

static int check_matmul_operand(nnk_run *run, unsigned slot, uint64_t rows, uint64_t cols) {
    const nnk_raw_view *view = &run->plan->spec.views[slot];
    if (view->kind == NNK_VIEW_STRIDED) return nnk_check_strided(run, slot, mul(run->batch, rows), cols);
    uint64_t blocks = run->batch;
    if (view->kind == NNK_VIEW_HEAD_GROUP) {
        if (run->words[view->word] == 0) return zero_param(run, slot);
        blocks = (blocks - 1) / run->words[view->word] + 1;
    } else if (view->kind != NNK_VIEW_LINEAR) {
        return nnk_fail(run->fault, NNK_UNSUPPORTED, "Expected a linear, head_group or strided view for matmul operand "
                        "%u, got view %u", slot, view->kind);
    }
    return need_input(run, slot, mul(mul(blocks, rows), cols));
}

/* ---- the head ---- */

/* 0: the grid, 1: one value a line, 2: the value of each chunk of a line, of a program that is one reduction. */
static int read_vector_out(nnk_run *run, uint32_t word) {
    const nnk_plan *p = run->plan;
    run->vector_out = word != 0;
    if (word < 2) return NNK_OK;
    const nnk_node *out = &p->nodes[p->out_node[0]];
    if (word > 2 || !out->is_reduce || out->level)
        return nnk_fail(run->fault, NNK_EXTENT, "Parameter words: expected vector_out 0 or 1, or 2 for a program that is "
                        "one reduction, got %u", word);
    uint64_t n = p->spec.column ? run->rows : run->cols;
    run->chunks = n / NNK_REDUCE_CHUNK + (n % NNK_REDUCE_CHUNK != 0);
    return NNK_OK;
}

static int read_head(nnk_run *run) {
    const uint32_t *w = run->words;
    unsigned form = run->plan->spec.form;
    uint64_t count = w[0];
    run->cols = w[1];
    run->batch = 1;
    run->k = run->k_first = run->k_end = run->trans = 0;
    run->vector_out = false;
    run->chunks = 1;
    if (form == NNK_FORM_ELEMENTWISE) {
        run->rows = run->cols ? count / run->cols : 0;
    } else {
        run->rows = w[2];
    }
    if (mul(run->rows, run->cols) != count)
        return nnk_fail(run->fault, NNK_EXTENT, "Parameter words: %" PRIu64 " elements are not %" PRIu64 " rows of %"
                        PRIu64, count, run->rows, run->cols);
    run->m = run->rows;
    if (form == NNK_FORM_REDUCE && read_vector_out(run, w[3])) return run->fault->kind;
    if (!run->plan->spec.has_matmul) return NNK_OK;
    if (form == NNK_FORM_REDUCE) w++; /* behind vector_out */
    run->k = w[3];
    run->batch = w[4];
    run->trans = w[5];
    if (run->trans > 3)
        return nnk_fail(run->fault, NNK_EXTENT, "Parameter words: expected transposes 0 to 3, got %u", w[5]);
    run->k_first = form == NNK_FORM_MATMUL ? w[6] : 0;
    run->k_end = form == NNK_FORM_MATMUL ? w[7] : run->k;
    if (run->k_end > run->k || (run->k && run->k_first >= run->k_end))
        return nnk_fail(run->fault, NNK_EXTENT, "Parameter words: expected a part of k (0 to %u), got %u to %u", w[3], w[6],
                        w[7]);
    if (run->k_end - run->k_first < run->k && !nnk_is_word(run->out_type[0]))
        return nnk_fail(run->fault, NNK_EXTENT, "Parameter words: expected the whole of k (0 to %u) for an output that "
                        "cannot hold sums, got %u to %u", w[3], w[6], w[7]);
    if (run->batch == 0 || run->rows % run->batch)
        return nnk_fail(run->fault, NNK_EXTENT, "Parameter words: %" PRIu64 " rows are not a multiple of %" PRIu64
                        " batches", run->rows, run->batch);
    run->m = run->rows / run->batch;
    return NNK_OK;
}

static int check_outputs(nnk_run *run) {
    const nnk_plan *p = run->plan;
    uint64_t lines = p->spec.column ? run->cols : run->rows, length = p->spec.column ? run->rows : run->cols;
    if (run->vector_out && length == 0 && p->nodes[p->out_node[0]].cls == NNK_ELEM)
        return nnk_fail(run->fault, NNK_EXTENT, "Expected at least one element in a line for an output of one value a "
                        "line, got 0");
    uint64_t elements = run->vector_out ? mul(lines, run->chunks) : mul(run->rows, run->cols);
    for (unsigned i = 0; i < p->n_outputs; i++) {
        size_t size = nnk_type_bytes(run->out_type[i]);
        if (run->out[i].bytes / size < elements)
            return nnk_fail(run->fault, NNK_EXTENT, "Output %u: expected at least %" PRIu64 " elements of %zu bytes, got %"
                            PRIu64 " bytes", i, elements, size, run->out[i].bytes);
    }
    return NNK_OK;
}

/* The type of every slot: what the spec says, and the halves that the words name (bit 16: the outputs). */
static int read_types(nnk_run *run) {
    const nnk_spec *s = &run->plan->spec;
    memcpy(run->in_type, s->in_type, sizeof run->in_type);
    memcpy(run->out_type, s->out_type, sizeof run->out_type);
    if (!s->half_word) return NNK_OK;
    for (unsigned half = 0; half < 2; half++) {
        uint32_t bits = run->words[s->half_word + half];
        unsigned type = half ? NNK_TYPE_BF16 : NNK_TYPE_F16;
        for (unsigned i = 0; i < s->n_views; i++) {
            if (!(bits >> i & 1)) continue;
            if (run->in_type[i] != NNK_TYPE_WORD)
                return nnk_fail(run->fault, NNK_EXTENT, "Parameter words: input %u has two types", i);
            run->in_type[i] = (uint8_t)type;
        }
        for (unsigned i = 0; i < run->plan->n_outputs && bits >> 16 & 1; i++) {
            if (run->out_type[i] != NNK_TYPE_FLOAT)
                return nnk_fail(run->fault, NNK_EXTENT, "Parameter words: output %u has two types", i);
            run->out_type[i] = (uint8_t)type;
        }
    }
    return NNK_OK;
}

static bool overlap(const nnk_buffer *a, const nnk_buffer *b) {
    uintptr_t x = (uintptr_t)a->data, y = (uintptr_t)b->data;
    return a->bytes && b->bytes && x < y + b->bytes && y < x + a->bytes;
}

/* Writing over an input is right only where every element is read by the tile that writes it. */
static int check_overlaps(nnk_run *run) {
    const nnk_plan *p = run->plan;
    for (unsigned i = 0; i < p->n_outputs; i++) {
        for (unsigned j = 0; j < i; j++)
            if (overlap(&run->out[i], &run->out[j]))
                return nnk_fail(run->fault, NNK_EXTENT, "Outputs %u and %u overlap in memory", j, i);
        for (unsigned j = 0; j < p->spec.n_views; j++)
            if (overlap(&run->out[i], &run->in[j]) &&
                !(p->is_flat && p->n_outputs == 1 && run->out[i].data == run->in[j].data &&
                  nnk_type_bytes(run->out_type[i]) == nnk_type_bytes(run->in_type[j])))
                return nnk_fail(run->fault, NNK_EXTENT, "Output %u overlaps input %u in memory", i, j);
    }
    return NNK_OK;
}

int nnk_run_check(nnk_run *run) {
    const nnk_plan *p = run->plan;
    if (read_types(run)) return run->fault->kind;
    if (p->spec.form == NNK_FORM_FOLD) return nnk_fold_check(run);
    if (read_head(run) || check_outputs(run)) return run->fault->kind;
    for (unsigned v = 0; v < p->n_nodes; v++)
        if (p->nodes[v].is_live && p->nodes[v].kind == NNK_NODE_INPUT && check_view(run, p->nodes[v].index))
            return run->fault->kind;
    if (p->spec.has_matmul) {
        uint64_t cols = run->cols;
        if (run->rows && cols &&
            (check_matmul_operand(run, p->spec.a_input, run->m, run->k) ||
             check_matmul_operand(run, p->spec.b_input, run->k, cols)))
            return run->fault->kind;
    }
    return check_overlaps(run);
}
