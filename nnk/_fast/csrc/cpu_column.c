/* Reductions down the columns of a grid: R6 and R7 with rows and columns in each other's place.
 *
 * A block of neighbouring columns is reduced at once, row by row, so that memory is read along its rows. A chunk of up
 * to 256 rows has one row a lane. They are visited in bit-reversed order: then the two lanes that a step of the tree
 * joins are known one after the other, and eight waiting lines hold what a tree over 256 lines would. A longer chunk is
 * read from its first row to its last, which memory is fast at, and all its lanes are kept.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "cpu.h"

enum {
    LEVELS = 3,      /* rows, chunks, chunks of chunks: 2**42 rows */
    TREE_LINES = 9,  /* a waiting line for each step of the tree, and one for a value of a level above the rows */
    MAX_COLUMNS = 4096,
    MIN_COLUMNS = 32,
    VIEW_COLUMNS = 64,
    LINE_BYTES = 1200 << 10, /* lanes, waiting lines and tiles of a block: their lines are swept in order */
};

static const double PARALLEL_NS = 40000.0;

typedef struct column_sum column_sum;

struct column_sum {
    /* Adds the values of a row to o, or stores them there if it is the first row of its lane. */
    void (*add)(column_sum *sum, uint64_t row, float *o, bool first);
    /* Stores the sum of two rows; NULL where a row's values do not stay when the next one is made. */
    void (*pair)(column_sum *sum, uint64_t a, uint64_t b, float *o);
    const nnk_isa *isa;
    size_t width;           /* values of a line */
    uint64_t count[LEVELS]; /* rows, chunks, chunks of chunks */
    float *waiting;         /* [level][TREE_LINES][width] */
    float *lanes;           /* [NNK_REDUCE_LANES][width], for chunks with more rows than lanes */
};

static float *waiting_line(const column_sum *s, unsigned level, unsigned i) {
    return s->waiting + (level * TREE_LINES + i) * s->width;
}

static void add_lines(const nnk_isa *isa, float *o, const float *x, size_t n) {
    isa->loops[NNK_OP_ADD][0](o, x, x, o, n);
}

static void sum_level(column_sum *s, unsigned level, uint64_t first, uint64_t n, float *o);

/* A value of a level above the rows is the sum of a chunk of the level below. */
static void add_value(column_sum *s, unsigned level, uint64_t i, float *o, bool first) {
    if (level == 0) {
        s->add(s, i, o, first);
        return;
    }
    uint64_t start = i * NNK_REDUCE_CHUNK, rest = s->count[level - 1] - start;
    float *value = first ? o : waiting_line(s, level, TREE_LINES - 1);
    sum_level(s, level - 1, start, rest < NNK_REDUCE_CHUNK ? rest : NNK_REDUCE_CHUNK, value);
    if (!first) add_lines(s->isa, o, value, s->width);
}

/* Lanes lane, lane + step, lane + 2 step, ... of the n values from `first` on, joined as the tree joins them. */
static void sum_tree(column_sum *s, unsigned level, uint64_t first, uint64_t n, uint64_t lane, unsigned depth, float *o) {
    uint64_t step = (uint64_t)1 << depth;
    if (step == NNK_REDUCE_LANES || lane + step >= n) {
        for (uint64_t i = lane; i < n; i += NNK_REDUCE_LANES) add_value(s, level, first + i, o, i == lane);
        return;
    }
    bool is_pair = 2 * step == NNK_REDUCE_LANES || lane + 2 * step >= n;
    if (is_pair && level == 0 && s->pair) { /* no more rows than lanes come here */
        s->pair(s, first + lane, first + lane + step, o);
        return;
    }
    float *other = waiting_line(s, level, depth);
    sum_tree(s, level, first, n, lane, depth + 1, o);
    sum_tree(s, level, first, n, lane + step, depth + 1, other);
    add_lines(s->isa, o, other, s->width);
}

static void sum_long_chunk(column_sum *s, uint64_t first, uint64_t n, float *o) {
    for (uint64_t i = 0; i < n; i++)
        s->add(s, first + i, s->lanes + i % NNK_REDUCE_LANES * s->width, i < NNK_REDUCE_LANES);
    for (size_t step = NNK_REDUCE_LANES / 2; step; step /= 2)
        add_lines(s->isa, s->lanes, s->lanes + step * s->width, step * s->width);
    memcpy(o, s->lanes, s->width * sizeof *o);
}

static void sum_level(column_sum *s, unsigned level, uint64_t first, uint64_t n, float *o) {
    if (level == 0 && n > NNK_REDUCE_LANES) sum_long_chunk(s, first, n, o);
    else sum_tree(s, level, first, n, 0, 0, o);
}

static unsigned levels_of(uint64_t n, uint64_t count[LEVELS]) {
    unsigned level = 0;
    count[0] = n;
    while (count[level] > NNK_REDUCE_CHUNK) {
        count[level + 1] = (count[level] + NNK_REDUCE_CHUNK - 1) / NNK_REDUCE_CHUNK;
        level++;
    }
    return level + 1;
}

static void sum_rows(column_sum *s, uint64_t n, float *o) {
    unsigned top = levels_of(n, s->count) - 1;
    sum_level(s, top, 0, s->count[top], o);
}

static void fill_bits(float *o, uint32_t bits, size_t n) {
    float value;
    memcpy(&value, &bits, sizeof value);
    for (size_t i = 0; i < n; i++) o[i] = value;
}

/* ---- columns of a matrix in memory ---- */

typedef struct {
    column_sum sum;
    const float *data;
    uint64_t stride;
} matrix_sum;

static void add_matrix_row(column_sum *s, uint64_t row, float *o, bool first) {
    const matrix_sum *m = (const matrix_sum *)(const void *)s;
    const float *x = m->data + row * m->stride;
    if (first) memcpy(o, x, s->width * sizeof *o);
    else add_lines(s->isa, o, x, s->width);
}

static void add_matrix_rows(column_sum *s, uint64_t a, uint64_t b, float *o) {
    const matrix_sum *m = (const matrix_sum *)(const void *)s;
    s->isa->loops[NNK_OP_ADD][0](m->data + a * m->stride, m->data + b * m->stride, m->data, o, s->width);
}

/* ---- columns of an input of any type ---- */

typedef struct {
    column_sum sum;
    const nnk_run *run;
    unsigned slot;
    uint64_t first, stride; /* in elements */
} input_sum;

static void add_input_row(column_sum *s, uint64_t row, float *o, bool first) {
    const input_sum *m = (const input_sum *)(const void *)s;
    float x[VIEW_COLUMNS];
    nnk_load(m->run, m->slot, (int64_t)(m->first + row * m->stride), first ? o : x, s->width);
    if (!first) add_lines(s->isa, o, x, s->width);
}

void nnk_column_sum(const nnk_run *run, unsigned slot, uint64_t first, uint64_t stride, uint64_t n, size_t width,
                    float *o) {
    float waiting[LEVELS * TREE_LINES * VIEW_COLUMNS], lanes[NNK_REDUCE_LANES * VIEW_COLUMNS];
    bool is_word = nnk_is_word(run->in_type[slot]);
    if (n == 0) {
        fill_bits(o, 0, width);
        return;
    }
    for (size_t j = 0; j < width; j += VIEW_COLUMNS) {
        size_t part = width - j < VIEW_COLUMNS ? width - j : VIEW_COLUMNS;
        if (is_word) {
            matrix_sum m = {{add_matrix_row, add_matrix_rows, run->isa, part, {0}, waiting, lanes},
                            nnk_in(run, slot) + first + j, stride};
            sum_rows(&m.sum, n, o + j);
        } else {
            input_sum m = {{add_input_row, NULL, run->isa, part, {0}, waiting, lanes}, run, slot, first + j, stride};
            sum_rows(&m.sum, n, o + j);
        }
    }
}

void nnk_column_max(const nnk_run *run, unsigned slot, uint64_t first, uint64_t stride, uint64_t n, size_t width,
                    float *o) {
    const nnk_loop larger = run->isa->loops[NNK_OP_MAX][0];
    fill_bits(o, NNK_MAX_IDENTITY_BITS, width);
    if (nnk_is_word(run->in_type[slot])) {
        const float *data = nnk_in(run, slot) + first;
        for (uint64_t i = 0; i < n; i++) larger(o, data + i * stride, data, o, width);
        return;
    }
    float x[VIEW_COLUMNS];
    for (size_t j = 0; j < width; j += VIEW_COLUMNS) {
        size_t part = width - j < VIEW_COLUMNS ? width - j : VIEW_COLUMNS;
        for (uint64_t i = 0; i < n; i++) {
            nnk_load(run, slot, (int64_t)(first + i * stride + j), x, part);
            larger(o + j, x, x, o + j, part);
        }
    }
}

/* ---- one block of columns of a run ---- */

typedef struct {
    column_sum sum;
    nnk_context *ctx;
    const nnk_pass *pass;
    uint64_t c0, r0; /* first column; first row of the chunk */
    size_t nc;
    float *results;  /* sums of the pass, one line a reduction */
} block;

static float *line_values(const nnk_context *ctx, unsigned v) {
    return ctx->row_bufs + ctx->run->plan->nodes[v].row_buf * ctx->row_capacity;
}

static void resolve_line_leaf(nnk_context *ctx, unsigned v, uint64_t c0, size_t nc) {
    const nnk_run *run = ctx->run;
    const nnk_node *node = &run->plan->nodes[v];
    float *o = line_values(ctx, v);
    ctx->row_loc[v] = o;
    if (node->kind == NNK_NODE_COL) {
        for (size_t j = 0; j < nc; j++) o[j] = (float)(c0 + j);
        return;
    }
    const nnk_raw_view *view = &run->plan->spec.views[node->index];
    switch (view->kind) {
    case NNK_VIEW_COL_BROADCAST:
        if (nnk_is_word(run->in_type[node->index])) ctx->row_loc[v] = nnk_in(run, node->index) + c0;
        else nnk_load(run, node->index, (int64_t)c0, o, nc);
        return;
    case NNK_VIEW_ROW_GATHER:
        for (size_t j = 0; j < nc; j++)
            o[j] = nnk_load_one(run, node->index, (int64_t)(nnk_index_at(run, view, c0 + j) * run->cols + c0 + j));
        return;
    case NNK_VIEW_COL_REDUCE_SUM: nnk_column_sum(run, node->index, c0, run->cols, run->rows, nc, o); return;
    default: nnk_column_max(run, node->index, c0, run->cols, run->rows, nc, o);
    }
}

/* One value for all columns of a row is passed on as one value. */
static void resolve_leaf(nnk_context *ctx, unsigned v, nnk_window w) {
    const nnk_run *run = ctx->run;
    const nnk_node *node = &run->plan->nodes[v];
    float *one = ctx->tiles + node->tile_buf * run->tile;
    const nnk_raw_view *view = node->kind == NNK_NODE_INPUT ? &run->plan->spec.views[node->index] : NULL;
    ctx->is_scalar[v] = 1;
    ctx->loc[v] = one;
    if (node->kind == NNK_NODE_ROW) *one = (float)(w.r0 % run->m);
    else if (node->kind == NNK_NODE_BATCH) *one = (float)(w.r0 / run->m);
    else if (view && view->kind == NNK_VIEW_ROW_BROADCAST) *one = nnk_load_one(run, node->index, (int64_t)w.r0);
    else if (view && view->kind == NNK_VIEW_BATCH_MOD)
        *one = nnk_load_one(run, node->index, (int64_t)(w.r0 / run->m % run->words[view->word]));
    else nnk_tile_leaf(ctx, v, w);
}

static nnk_window run_row(const block *b, uint64_t row) {
    nnk_window w = {row, b->c0, 1, b->nc};
    for (unsigned i = 0; i < b->pass->n_leaves; i++) resolve_leaf(b->ctx, b->pass->leaves[i], w);
    for (unsigned i = 0; i < b->pass->n_elems; i++) nnk_tile_elem(b->ctx, b->pass, i, w);
    return w;
}

static bool is_sum(const nnk_context *ctx, unsigned v) { return ctx->run->plan->nodes[v].op == NNK_OP_COL_SUM; }

/* All reductions of a pass take their operand of the row; sums go to o, line by line. */
static void add_grid_row(column_sum *s, uint64_t row, float *o, bool first) {
    const block *b = (const block *)(const void *)s;
    nnk_context *ctx = b->ctx;
    run_row(b, b->r0 + row);
    for (unsigned i = 0; i < b->pass->n_reduces; i++) {
        unsigned v = b->pass->reduces[i];
        const float *x = nnk_tile_operand(ctx, ctx->run->plan->nodes[v].src[0], b->nc);
        if (is_sum(ctx, v)) {
            if (first) memcpy(o, x, b->nc * sizeof *o);
            else add_lines(s->isa, o, x, b->nc);
            o += b->nc;
        } else {
            float *best = line_values(ctx, v);
            s->isa->loops[NNK_OP_MAX][0](best, x, x, best, b->nc);
        }
    }
}

/* The input of 32-bit words that a reduction sums as it lies in memory, or NULL. */
static const float *linear_input(const nnk_run *run, const nnk_pass *pass) {
    const nnk_node *source = &run->plan->nodes[run->plan->nodes[pass->reduces[0]].src[0]];
    if (pass->n_reduces != 1 || source->kind != NNK_NODE_INPUT || !nnk_is_word(run->in_type[source->index])) return NULL;
    unsigned kind = run->plan->spec.views[source->index].kind;
    return kind == NNK_VIEW_LINEAR || kind == NNK_VIEW_HEAD_GROUP ? nnk_in(run, source->index) : NULL;
}

static void reduce_pass(block *b, uint64_t rows) {
    nnk_context *ctx = b->ctx;
    unsigned n_sums = 0;
    for (unsigned i = 0; i < b->pass->n_reduces; i++) {
        unsigned v = b->pass->reduces[i];
        ctx->row_loc[v] = line_values(ctx, v);
        fill_bits(line_values(ctx, v), is_sum(ctx, v) ? 0 : NNK_MAX_IDENTITY_BITS, b->nc);
        n_sums += is_sum(ctx, v);
    }
    if (rows == 0 || b->pass->n_reduces == 0) return;
    b->sum.width = n_sums * b->nc;
    if (n_sums == 0) {
        for (uint64_t row = 0; row < rows; row++) add_grid_row(&b->sum, row, NULL, true);
        return;
    }
    const float *data = linear_input(ctx->run, b->pass);
    if (data) {
        uint64_t cols = ctx->run->cols;
        matrix_sum m = {b->sum, data + b->r0 * cols + b->c0, cols};
        m.sum.add = add_matrix_row;
        m.sum.pair = add_matrix_rows;
        sum_rows(&m.sum, rows, b->results);
    } else {
        sum_rows(&b->sum, rows, b->results);
    }
    const float *x = b->results;
    for (unsigned i = 0; i < b->pass->n_reduces; i++) {
        if (!is_sum(ctx, b->pass->reduces[i])) continue;
        memcpy(line_values(ctx, b->pass->reduces[i]), x, b->nc * sizeof *x);
        x += b->nc;
    }
}

static void store_line(const block *b, uint64_t chunk) {
    nnk_context *ctx = b->ctx;
    const nnk_run *run = ctx->run;
    unsigned v = run->plan->out_node[0];
    if (run->plan->nodes[v].cls == NNK_ELEM) run_row(b, 0);
    const float *x = nnk_tile_operand(ctx, v, b->nc);
    nnk_store(run, 0, chunk * run->cols + b->c0, x, b->nc);
}

static void run_block(block *b, uint64_t chunk) {
    nnk_context *ctx = b->ctx;
    const nnk_run *run = ctx->run;
    const nnk_plan *p = run->plan;
    uint64_t rows = run->rows - b->r0;
    if (run->chunks > 1 && rows > NNK_REDUCE_CHUNK) rows = NNK_REDUCE_CHUNK;
    for (unsigned i = 0; i < p->n_row_leaves; i++) resolve_line_leaf(ctx, p->row_leaves[i], b->c0, b->nc);
    for (unsigned n = 0; n < run->schedule->n_passes; n++) {
        b->pass = &run->schedule->passes[n];
        for (unsigned i = 0; i < b->pass->n_rows; i++) nnk_row_instr(ctx, b->pass->rows[i], b->nc);
        for (unsigned i = 0; i < b->pass->n_expand; i++) {
            unsigned v = b->pass->expand[i];
            ctx->loc[v] = ctx->row_loc[v];
            ctx->is_scalar[v] = 0;
        }
        reduce_pass(b, rows);
    }
    if (run->vector_out) {
        store_line(b, chunk);
        return;
    }
    for (uint64_t row = 0; row < run->rows; row++) nnk_tile_store(ctx, run_row(b, row));
}

/* ---- the run ---- */

typedef struct {
    const nnk_run *run;
    unsigned max_sums;
    atomic_bool started; /* some thread had the memory to work */
} column_work;

static bool is_long(const nnk_run *run) { return run->rows > NNK_REDUCE_LANES; }

/* Lines that the sums of a block need. */
static size_t lines_of(const nnk_run *run) {
    uint64_t count[LEVELS];
    return (size_t)levels_of(run->rows, count) * TREE_LINES + (is_long(run) ? NNK_REDUCE_LANES : 0);
}

static void work_columns(void *arg, nnk_job *job) {
    column_work *work = arg;
    const nnk_run *run = work->run;
    size_t line = (size_t)work->max_sums * run->tile, lines = lines_of(run) + 1;
    float *memory = malloc((lines * line + 1) * sizeof *memory);
    nnk_context ctx;
    if (!memory || !nnk_context_init(&ctx, run)) {
        free(memory);
        return;
    }
    atomic_store_explicit(&work->started, true, memory_order_relaxed);
    uint64_t blocks = (run->cols + run->tile - 1) / run->tile;
    for (uint64_t item; nnk_job_next(job, &item);) {
        uint64_t chunk = item / blocks, c0 = item % blocks * run->tile;
        block b = {.sum = {.add = add_grid_row, .isa = run->isa, .lanes = memory + line,
                           .waiting = memory + line + (is_long(run) ? NNK_REDUCE_LANES * line : 0)}, .ctx = &ctx, .c0 = c0,
                   .r0 = chunk * NNK_REDUCE_CHUNK, .results = memory};
        b.nc = run->cols - c0 < run->tile ? (size_t)(run->cols - c0) : run->tile;
        run_block(&b, chunk);
    }
    nnk_context_free(&ctx);
    free(memory);
}

int nnk_run_columns(nnk_run *run) {
    const nnk_plan *p = run->plan;
    run->work_rows = run->rows;
    run->work_cols = run->cols;
    run->schedule = &p->recompute;
    run->saved_cols = 0;
    if (run->cols == 0 || (run->rows == 0 && !run->vector_out)) return NNK_OK;
    double total = p->cost * (double)run->rows * (double)run->cols * run->schedule->n_passes;
    unsigned threads = total < PARALLEL_NS ? 1 : run->threads;
    column_work work = {.run = run};
    for (unsigned n = 0; n < run->schedule->n_passes; n++) {
        const nnk_pass *pass = &run->schedule->passes[n];
        unsigned sums = 0;
        for (unsigned i = 0; i < pass->n_reduces; i++) sums += p->nodes[pass->reduces[i]].op == NNK_OP_COL_SUM;
        if (sums > work.max_sums) work.max_sums = sums;
    }
    size_t lines = lines_of(run) * work.max_sums + run->schedule->n_tile_bufs;
    run->tile = MAX_COLUMNS;
    while (run->tile > MIN_COLUMNS &&
           (lines * run->tile * sizeof(float) > LINE_BYTES || run->tile / 2 >= run->cols ||
            (threads > 1 && run->tile * 2 * threads > run->cols * run->chunks)))
        run->tile /= 2;
    run->block_rows = run->tile; /* the room of a line value: one value a column */
    nnk_job_run(work_columns, &work, (run->cols + run->tile - 1) / run->tile * run->chunks, threads);
    if (!atomic_load(&work.started)) return nnk_fail(run->fault, NNK_NO_MEMORY, "Out of memory for column buffers");
    return NNK_OK;
}
