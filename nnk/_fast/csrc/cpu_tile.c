/* Executes the passes of a plan over one block: some whole rows, or a part of one row, tile by tile.
 *
 * A tile is small enough for the first-level cache. Inputs that lie in memory as the tile needs them are read in
 * place; all others are copied into the tile's own buffer. A node whose value is the same all over the tile is passed
 * on as one value (is_scalar).
 */
#include <stdlib.h>
#include <string.h>

#include "cpu.h"

enum {
    CACHE_LINE_FLOATS = 16,
    PIECE = 1024, /* elements of a line that are converted at a time; divides a chunk */
};

static size_t round_up(size_t n) { return (n + CACHE_LINE_FLOATS - 1) / CACHE_LINE_FLOATS * CACHE_LINE_FLOATS; }

static float *tile_buf(const nnk_context *ctx, unsigned i) { return ctx->tiles + i * ctx->run->tile; }

static float *row_values(const nnk_context *ctx, const nnk_node *node) {
    return ctx->row_bufs + node->row_buf * ctx->row_capacity;
}

static void fill(float *o, float value, size_t n) {
    for (size_t i = 0; i < n; i++) o[i] = value;
}

static void lanes_reset(float *lanes, size_t n) {
    static const union { uint32_t bits; float value; } identity = {NNK_SUM_IDENTITY_BITS};
    fill(lanes, identity.value, n);
}

static float max_identity(void) {
    union { uint32_t bits; float value; } identity = {NNK_MAX_IDENTITY_BITS};
    return identity.value;
}

/* ---- context ---- */

static bool needs_accumulators(const nnk_run *run) {
    return run->schedule->n_passes > 1 && run->cols > run->tile && !run->plan->spec.column;
}

bool nnk_context_init(nnk_context *ctx, const nnk_run *run) {
    const nnk_plan *p = run->plan;
    const nnk_schedule *s = run->schedule;
    ctx->run = run;
    ctx->row_capacity = round_up(run->block_rows);
    size_t tiles = (size_t)s->n_tile_bufs * run->tile, rows = s->n_row_bufs * ctx->row_capacity;
    size_t saved = s->n_saved_bufs * round_up(run->saved_cols);
    size_t lanes = needs_accumulators(run) ? (size_t)p->n_nodes * 3 * NNK_REDUCE_LANES : 0;
    size_t acc = lanes ? p->n_nodes * sizeof(nnk_accumulator) : 0;
    size_t bytes = (tiles + rows + saved + lanes) * sizeof(float) + acc;
    ctx->memory = aligned_alloc(64, (bytes + 64) / 64 * 64);
    if (!ctx->memory) return false;
    ctx->tiles = ctx->memory;
    ctx->row_bufs = ctx->tiles + tiles;
    ctx->saved = ctx->row_bufs + rows;
    ctx->acc = NULL;
    if (lanes) {
        float *first = ctx->saved + saved;
        ctx->acc = (nnk_accumulator *)(void *)(first + lanes);
        for (size_t v = 0; v < p->n_nodes; v++) ctx->acc[v].lanes = first + v * 3 * NNK_REDUCE_LANES;
    }
    memset(ctx->filled_rows, 0, p->n_nodes * sizeof *ctx->filled_rows);
    for (unsigned v = 0; v < p->n_nodes; v++) {
        const nnk_node *node = &p->nodes[v];
        ctx->is_scalar[v] = node->cls == NNK_UNIFORM;
        ctx->loc[v] = ctx->row_loc[v] = &ctx->uniform[v];
        if (node->kind == NNK_NODE_WORD) memcpy(&ctx->uniform[v], &run->words[node->index], sizeof(float));
    }
    for (unsigned i = 0; i < p->n_uniform; i++) {
        const nnk_node *node = &p->nodes[p->uniform[i]];
        run->isa->loops[node->op][0](ctx->loc[node->src[0]], ctx->loc[node->src[1]], ctx->loc[node->src[2]],
                                     &ctx->uniform[p->uniform[i]], 1);
    }
    return true;
}

void nnk_context_free(nnk_context *ctx) { free(ctx->memory); }

/* ---- sums and maxima of long lines, piece by piece ---- */

static void accumulator_reset(nnk_accumulator *acc) {
    lanes_reset(acc->lanes, 3 * NNK_REDUCE_LANES);
    memset(acc->seen, 0, sizeof acc->seen);
    acc->maximum = max_identity();
}

/* Adds one value to the lanes of a level; a full chunk goes on to the next one. */
static void push(const nnk_isa *isa, nnk_accumulator *acc, int level, float value) {
    float *lanes = acc->lanes + level * NNK_REDUCE_LANES;
    float *lane = &lanes[acc->seen[level] % NNK_REDUCE_LANES];
    *lane = *lane + value;
    if (++acc->seen[level] % NNK_REDUCE_CHUNK == 0 && level < 2) {
        push(isa, acc, level + 1, isa->lanes_tree(lanes));
        lanes_reset(lanes, NNK_REDUCE_LANES);
    }
}

/* A piece starts at a multiple of its size, which divides a chunk: it never crosses a chunk's end. */
static void accumulator_add(const nnk_isa *isa, nnk_accumulator *acc, bool is_sum, const float *x, size_t n) {
    if (!is_sum) {
        float pair[2] = {acc->maximum, isa->row_max(x, n)};
        acc->maximum = isa->row_max(pair, 2);
        return;
    }
    isa->lanes_add(acc->lanes, x, n);
    acc->seen[0] += n;
    if (acc->seen[0] % NNK_REDUCE_CHUNK) return;
    push(isa, acc, 1, isa->lanes_tree(acc->lanes));
    lanes_reset(acc->lanes, NNK_REDUCE_LANES);
}

static float accumulator_value(const nnk_isa *isa, nnk_accumulator *acc, bool is_sum) {
    if (!is_sum) return acc->maximum;
    for (int level = 0; level < 2; level++)
        if (acc->seen[level] % NNK_REDUCE_CHUNK)
            push(isa, acc, level + 1, isa->lanes_tree(acc->lanes + level * NNK_REDUCE_LANES));
    return isa->lanes_tree(acc->lanes + 2 * NNK_REDUCE_LANES);
}

/* The sum or maximum of n elements of an input, of any type, from element `first` on. */
static float reduce_input(const nnk_run *run, unsigned slot, uint64_t first, uint64_t n, bool is_sum) {
    const nnk_isa *isa = run->isa;
    if (nnk_is_word(run->in_type[slot])) return (is_sum ? isa->row_sum : isa->row_max)(nnk_in(run, slot) + first, n);
    if (n == 0) return is_sum ? 0.0f : max_identity();
    float lanes[3 * NNK_REDUCE_LANES], piece[PIECE];
    nnk_accumulator acc = {.lanes = lanes};
    accumulator_reset(&acc);
    for (uint64_t i = 0; i < n; i += PIECE) {
        size_t count = n - i < PIECE ? (size_t)(n - i) : PIECE;
        nnk_load(run, slot, (int64_t)(first + i), piece, count);
        accumulator_add(isa, &acc, is_sum, piece, count);
    }
    return accumulator_value(isa, &acc, is_sum);
}

/* ---- row values ---- */

static bool is_word_input(const nnk_run *run, unsigned slot) { return nnk_is_word(run->in_type[slot]); }

static void resolve_row_leaf(nnk_context *ctx, unsigned v, uint64_t r0, size_t nr) {
    const nnk_run *run = ctx->run;
    const nnk_node *node = &run->plan->nodes[v];
    float *o = row_values(ctx, node);
    ctx->row_loc[v] = o;
    if (node->kind == NNK_NODE_ROW) {
        for (size_t i = 0; i < nr; i++) o[i] = (float)((r0 + i) % run->m);
        return;
    }
    if (node->kind == NNK_NODE_BATCH) {
        for (size_t i = 0; i < nr; i++) o[i] = (float)((r0 + i) / run->m);
        return;
    }
    const nnk_raw_view *view = &run->plan->spec.views[node->index];
    bool is_sum = view->kind == NNK_VIEW_ROW_REDUCE_SUM;
    switch (view->kind) {
    case NNK_VIEW_ROW_BROADCAST:
        if (is_word_input(run, node->index)) ctx->row_loc[v] = nnk_in(run, node->index) + r0;
        else nnk_load(run, node->index, (int64_t)r0, o, nr);
        return;
    case NNK_VIEW_BATCH_MOD:
        for (size_t i = 0; i < nr; i++)
            o[i] = nnk_load_one(run, node->index, (int64_t)((r0 + i) / run->m % run->words[view->word]));
        return;
    default:
        for (size_t i = 0; i < nr; i++) o[i] = reduce_input(run, node->index, (r0 + i) * run->cols, run->cols, is_sum);
    }
}

void nnk_row_instr(nnk_context *ctx, unsigned v, size_t nr) {
    const nnk_run *run = ctx->run;
    const nnk_node *nodes = run->plan->nodes, *node = &nodes[v];
    unsigned variant = 0;
    for (unsigned i = 0; i < node->arity; i++)
        if (nodes[node->src[i]].cls == NNK_UNIFORM) variant |= 1u << i;
    float *o = row_values(ctx, node);
    run->isa->loops[node->op][variant](ctx->row_loc[node->src[0]], ctx->row_loc[node->src[1]],
                                       ctx->row_loc[node->src[2]], o, nr);
    ctx->row_loc[v] = o;
}

/* Makes row values readable for element code: one value where the block is one row, else spread over the tile. */
static void expand(nnk_context *ctx, unsigned v, size_t nr, uint64_t nc) {
    const nnk_node *node = &ctx->run->plan->nodes[v];
    const float *values = ctx->row_loc[v];
    ctx->is_scalar[v] = nr == 1;
    ctx->loc[v] = values;
    if (nr == 1 || nc == 1) return;
    float *o = tile_buf(ctx, node->tile_buf);
    for (size_t i = 0; i < nr; i++) fill(o + i * nc, values[i], nc);
    ctx->loc[v] = o;
}

/* ---- element leaves ---- */

static void copy_row(float *o, const float *s, size_t n) { memcpy(o, s, n * sizeof *o); }

/* The table row that index i names. It was checked before the run; checked again, since another thread of the host
 * process may write to the index meanwhile. */
uint64_t nnk_index_at(const nnk_run *run, const nnk_raw_view *view, uint64_t i) {
    size_t slot = (size_t)(view - run->plan->spec.views);
    uint32_t row;
    if (view->kind == NNK_VIEW_ROW_GATHER) {
        float label = nnk_in(run, view->param)[i];
        row = label >= 0.0f && label < 0x1p31f ? (uint32_t)label : 0;
    } else {
        row = (uint32_t)((const int32_t *)run->in[view->param].data)[i];
    }
    return row < run->in[slot].bytes / nnk_type_bytes(run->in_type[slot]) / run->cols ? row : 0;
}

/* The row of the input that a row-picking view reads at grid row r; *negate: with the sign flipped. */
static uint64_t source_row(const nnk_run *run, const nnk_raw_view *view, uint64_t r, bool *negate) {
    const uint32_t *w = run->words + view->word;
    *negate = false;
    switch (view->kind) {
    case NNK_VIEW_ROW_MOD: return r % w[0];
    case NNK_VIEW_ROW_ACCESS: return (uint64_t)w[1] + r % w[0];
    case NNK_VIEW_ROTATE_HALF: {
        uint32_t l = (uint32_t)(r % w[0]), half = w[0] / 2;
        *negate = view->negate && l < half;
        return l < half ? r + half : r - half;
    }
    default: return nnk_index_at(run, view, r);
    }
}

static void resolve_rows(nnk_context *ctx, unsigned v, const nnk_raw_view *view, unsigned slot, nnk_window w) {
    const nnk_run *run = ctx->run;
    bool negate;
    uint64_t first = source_row(run, view, w.r0, &negate);
    if (w.nr == 1 && !negate && is_word_input(run, slot)) {
        ctx->loc[v] = nnk_in(run, slot) + first * run->cols + w.c0;
        return;
    }
    float *o = tile_buf(ctx, run->plan->nodes[v].tile_buf);
    for (size_t i = 0; i < w.nr; i++) {
        float *row = o + i * w.nc;
        nnk_load(run, slot, (int64_t)(source_row(run, view, w.r0 + i, &negate) * run->cols + w.c0), row, w.nc);
        if (!negate) continue;
        for (size_t j = 0; j < w.nc; j++) {
            uint32_t bits;
            memcpy(&bits, &row[j], 4);
            bits ^= 0x80000000u;
            memcpy(&row[j], &bits, 4);
        }
    }
    ctx->loc[v] = o;
}

static void resolve_strided(nnk_context *ctx, unsigned v, unsigned slot, nnk_window w) {
    const nnk_run *run = ctx->run;
    const nnk_strided *s = &run->strided[slot];
    const float *data = nnk_in(run, slot);
    bool is_word = is_word_input(run, slot);
    nnk_odometer od;
    nnk_odometer_set(&od, s, w.r0);
    ctx->is_scalar[v] = w.nr == 1 && s->col_stride == 0;
    if (w.nr == 1 && is_word && (s->col_stride == 1 || s->col_stride == 0)) {
        ctx->loc[v] = data + od.base + (int64_t)w.c0 * s->col_stride;
        return;
    }
    float *o = tile_buf(ctx, run->plan->nodes[v].tile_buf);
    ctx->loc[v] = o;
    for (size_t i = 0; i < w.nr; i++, o += w.nc) {
        int64_t row = od.base + (int64_t)w.c0 * s->col_stride;
        if (s->col_stride == 1) nnk_load(run, slot, row, o, w.nc);
        else if (s->col_stride == 0) fill(o, nnk_load_one(run, slot, row), w.nc);
        else if (is_word)
            for (size_t j = 0; j < w.nc; j++) o[j] = data[row + (int64_t)j * s->col_stride];
        else
            for (size_t j = 0; j < w.nc; j++) o[j] = nnk_load_one(run, slot, row + (int64_t)j * s->col_stride);
        if (i + 1 < w.nr) nnk_odometer_next(&od, s);
    }
}

/* Leaves that are the same in every row: one row is made, then repeated; whole rows stay valid for the next block. */
static void repeat_row(nnk_context *ctx, unsigned v, float *o, nnk_window w) {
    size_t have = ctx->filled_rows[v];
    for (size_t i = have ? have : 1; i < w.nr; i++) copy_row(o + i * w.nc, o, w.nc);
    bool whole = w.c0 == 0 && w.nc == ctx->run->work_cols;
    ctx->filled_rows[v] = whole ? (w.nr > have ? w.nr : have) : 0;
    ctx->loc[v] = o;
}

static void resolve_gather(nnk_context *ctx, unsigned v, const nnk_raw_view *view, unsigned slot, nnk_window w) {
    const nnk_run *run = ctx->run;
    float *o = tile_buf(ctx, run->plan->nodes[v].tile_buf);
    for (size_t j = 0; j < w.nc && !ctx->filled_rows[v]; j++)
        o[j] = nnk_load_one(run, slot, (int64_t)(nnk_index_at(run, view, w.c0 + j) * run->cols + w.c0 + j));
    repeat_row(ctx, v, o, w);
}

static void resolve_grouped(nnk_context *ctx, unsigned v, const nnk_raw_view *view, unsigned slot, nnk_window w) {
    const nnk_run *run = ctx->run;
    uint64_t count = run->words[view->word], cols = run->work_cols;
    bool is_sum = view->kind == NNK_VIEW_GROUPED_REDUCE_SUM;
    float *o = tile_buf(ctx, run->plan->nodes[v].tile_buf);
    ctx->loc[v] = o;
    for (size_t i = 0; i < w.nr; i++, o += w.nc)
        (is_sum ? nnk_column_sum : nnk_column_max)(run, slot, (w.r0 + i) * count * cols + w.c0, cols, count, w.nc, o);
}

void nnk_tile_leaf(nnk_context *ctx, unsigned v, nnk_window w) {
    const nnk_run *run = ctx->run;
    const nnk_node *node = &run->plan->nodes[v];
    ctx->is_scalar[v] = 0;
    if (node->kind == NNK_NODE_MATMUL) {
        ctx->loc[v] = (run->product ? run->product : run->sums) + w.r0 * run->work_cols + w.c0;
        return;
    }
    float *o = tile_buf(ctx, node->tile_buf);
    if (node->kind == NNK_NODE_COL) {
        for (size_t j = 0; j < w.nc && !ctx->filled_rows[v]; j++) o[j] = (float)(w.c0 + j);
        repeat_row(ctx, v, o, w);
        return;
    }
    unsigned slot = node->index;
    const nnk_raw_view *view = &run->plan->spec.views[slot];
    bool in_place = is_word_input(run, slot) && w.nr == 1;
    switch (view->kind) {
    case NNK_VIEW_LINEAR:
    case NNK_VIEW_HEAD_GROUP:
        ctx->loc[v] = is_word_input(run, slot) ? nnk_in_at(run, slot, (int64_t)(w.r0 * run->work_cols + w.c0)) : o;
        if (ctx->loc[v] == o) nnk_load(run, slot, (int64_t)(w.r0 * run->work_cols + w.c0), o, w.nr * w.nc);
        return;
    case NNK_VIEW_COL_BROADCAST:
        if (in_place) {
            ctx->loc[v] = nnk_in(run, slot) + w.c0;
            ctx->filled_rows[v] = 0;
            return;
        }
        if (!ctx->filled_rows[v]) nnk_load(run, slot, (int64_t)w.c0, o, w.nc);
        repeat_row(ctx, v, o, w);
        return;
    case NNK_VIEW_BATCH_COL:
        for (size_t i = 0; i < w.nr; i++) {
            int64_t first = (int64_t)((w.r0 + i) / run->m * run->words[view->word] + w.c0);
            ctx->loc[v] = in_place ? nnk_in(run, slot) + first : o;
            if (!in_place) nnk_load(run, slot, first, o + i * w.nc, w.nc);
        }
        return;
    case NNK_VIEW_GROUPED_REDUCE_SUM:
    case NNK_VIEW_GROUPED_REDUCE_MAX: resolve_grouped(ctx, v, view, slot, w); return;
    case NNK_VIEW_STRIDED: resolve_strided(ctx, v, slot, w); return;
    case NNK_VIEW_ROW_GATHER: resolve_gather(ctx, v, view, slot, w); return;
    default: resolve_rows(ctx, v, view, slot, w);
    }
}

/* ---- element instructions ---- */

void nnk_tile_elem(nnk_context *ctx, const nnk_pass *pass, unsigned i, nnk_window w) {
    const nnk_run *run = ctx->run;
    unsigned v = pass->elems[i];
    const nnk_node *node = &run->plan->nodes[v];
    size_t n = w.nr * w.nc;
    float *o;
    bool is_out = pass->dst_kind[i] == NNK_DST_OUT && !run->vector_out;
    uint64_t at = w.r0 * run->work_cols + w.c0;
    bool store = is_out && run->out_type[pass->dst[i]] == NNK_TYPE_FLOAT;
    if (store) o = nnk_out(run, pass->dst[i]) + at;
    else if (pass->dst_kind[i] == NNK_DST_OUT) o = tile_buf(ctx, run->plan->out_buf[pass->dst[i]]);
    else if (pass->dst_kind[i] == NNK_DST_SAVED) o = ctx->saved + pass->dst[i] * round_up(run->saved_cols) + w.c0;
    else o = tile_buf(ctx, pass->dst[i]);
    unsigned variant = 0;
    for (unsigned j = 0; j < node->arity; j++) variant |= (unsigned)ctx->is_scalar[node->src[j]] << j;
    bool single = variant == (1u << node->arity) - 1;
    const nnk_loop loop = run->isa->loops[node->op][(single ? 0 : variant) + (store ? NNK_CANONICAL : 0)];
    loop(ctx->loc[node->src[0]], ctx->loc[node->src[1]], ctx->loc[node->src[2]], o, single ? 1 : n);
    ctx->loc[v] = o;
    bool spread = single && pass->dst_kind[i] != NNK_DST_TILE; /* others read the buffer as a whole */
    if (spread) fill(o + 1, o[0], n - 1);
    if (is_out && !store) nnk_store(run, pass->dst[i], at, o, n);
    ctx->is_scalar[v] = single && !spread;
}

/* ---- reductions ---- */

const float *nnk_tile_operand(nnk_context *ctx, unsigned src, size_t n) {
    if (!ctx->is_scalar[src]) return ctx->loc[src];
    float *o = tile_buf(ctx, ctx->run->plan->splat_buf);
    fill(o, *ctx->loc[src], n);
    return o;
}

static void reduce_rows(nnk_context *ctx, unsigned v, nnk_window w) {
    const nnk_run *run = ctx->run;
    const nnk_node *node = &run->plan->nodes[v];
    const float *x = nnk_tile_operand(ctx, node->src[0], w.nr * w.nc);
    float *o = row_values(ctx, node);
    float (*reduce)(const float *, uint64_t) = node->op == NNK_OP_ROW_SUM ? run->isa->row_sum : run->isa->row_max;
    for (size_t i = 0; i < w.nr; i++) o[i] = reduce(x + i * w.nc, w.nc);
    ctx->row_loc[v] = o;
}

static void accumulate(nnk_context *ctx, unsigned v, nnk_window w) {
    const nnk_node *node = &ctx->run->plan->nodes[v];
    const float *x = nnk_tile_operand(ctx, node->src[0], w.nc);
    accumulator_add(ctx->run->isa, &ctx->acc[v], node->op == NNK_OP_ROW_SUM, x, w.nc);
}

static void accumulate_end(nnk_context *ctx, unsigned v) {
    const nnk_node *node = &ctx->run->plan->nodes[v];
    float *o = row_values(ctx, node);
    ctx->row_loc[v] = o;
    o[0] = accumulator_value(ctx->run->isa, &ctx->acc[v], node->op == NNK_OP_ROW_SUM);
}

/* ---- blocks ---- */

/* Stores outputs that no element instruction wrote: row and single values, copies, and one value a row. */
void nnk_tile_store(nnk_context *ctx, nnk_window w) {
    const nnk_run *run = ctx->run;
    const nnk_plan *p = run->plan;
    for (unsigned i = 0; i < p->n_outputs; i++) {
        unsigned v = p->out_node[i];
        const nnk_node *node = &p->nodes[v];
        if (run->vector_out) { /* only the first tile of a line, or of a chunk, comes here in the last pass */
            uint64_t first = w.r0 * run->chunks + w.c0 / NNK_REDUCE_CHUNK;
            bool direct = nnk_is_word(run->out_type[i]);
            float *o = direct ? nnk_out(run, i) + first : tile_buf(ctx, p->out_buf[i]);
            const float *from = ctx->loc[v]; /* may be the scratch tile itself: values move to the front */
            for (size_t r = 0; r < w.nr; r++)
                o[r] = node->cls == NNK_ELEM ? from[ctx->is_scalar[v] ? 0 : r * w.nc]
                       : node->cls == NNK_ROW ? ctx->row_loc[v][r] : ctx->uniform[v];
            nnk_store(run, i, first, o, w.nr);
            continue;
        }
        uint64_t at = w.r0 * run->work_cols + w.c0;
        size_t n = w.nr * w.nc;
        if (node->cls == NNK_ELEM && node->kind == NNK_NODE_INSTR && p->out_first[i] == i) continue;
        const float *from = ctx->loc[v];
        if (ctx->is_scalar[v]) {
            float *o = nnk_is_word(run->out_type[i]) ? nnk_out(run, i) + at : tile_buf(ctx, p->out_buf[i]);
            fill(o, *from, n);
            from = o;
        }
        nnk_store(run, i, at, from, n);
    }
}

static void run_tile(nnk_context *ctx, const nnk_pass *pass, bool is_last, bool whole_row, nnk_window w) {
    for (unsigned i = 0; i < pass->n_leaves && w.nc; i++) nnk_tile_leaf(ctx, pass->leaves[i], w);
    for (unsigned i = 0; i < pass->n_elems && w.nc; i++) nnk_tile_elem(ctx, pass, i, w);
    for (unsigned i = 0; i < pass->n_reduces; i++) {
        if (whole_row) reduce_rows(ctx, pass->reduces[i], w);
        else accumulate(ctx, pass->reduces[i], w);
    }
    if (is_last) nnk_tile_store(ctx, w);
}

/* Values saved by an earlier pass: their place moves with the tile. */
static void locate_saved(nnk_context *ctx, uint64_t c0) {
    const nnk_plan *p = ctx->run->plan;
    if (ctx->run->schedule != &p->saved || p->saved.n_saved_bufs == 0) return;
    for (unsigned v = 0; v < p->n_nodes; v++)
        if (p->nodes[v].is_saved) ctx->loc[v] = ctx->saved + p->nodes[v].saved_buf * round_up(ctx->run->saved_cols) + c0;
}

void nnk_context_block(nnk_context *ctx, uint64_t r0, size_t nr, uint64_t c0, uint64_t nc) {
    const nnk_run *run = ctx->run;
    const nnk_plan *p = run->plan;
    bool whole_row = nr * nc <= run->tile;
    for (unsigned i = 0; i < p->n_row_leaves; i++) resolve_row_leaf(ctx, p->row_leaves[i], r0, nr);
    for (unsigned n = 0; n < run->schedule->n_passes; n++) {
        const nnk_pass *pass = &run->schedule->passes[n];
        bool is_last = n + 1 == run->schedule->n_passes;
        for (unsigned i = 0; i < pass->n_rows; i++) nnk_row_instr(ctx, pass->rows[i], nr);
        for (unsigned i = 0; i < pass->n_expand; i++) expand(ctx, pass->expand[i], nr, nc);
        for (unsigned i = 0; i < pass->n_reduces && !whole_row; i++) accumulator_reset(&ctx->acc[pass->reduces[i]]);
        uint64_t c = 0;
        do { /* once even without columns: the row values are still stored */
            size_t width = nr > 1 || nc - c < run->tile ? (size_t)(nc - c) : run->tile;
            locate_saved(ctx, c0 + c);
            run_tile(ctx, pass, is_last, whole_row, (nnk_window){r0, c0 + c, nr, width});
            c += width;
        } while (c < nc && !(is_last && run->vector_out)); /* one value a row needs the first column only */
        for (unsigned i = 0; i < pass->n_reduces && !whole_row; i++) accumulate_end(ctx, pass->reduces[i]);
    }
}
