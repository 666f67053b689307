/* The fold form: a tile of rows of one batch walks along the fold's axis in blocks of NNK_FOLD_BLOCK (rules F1 to F8).
 *
 * Registers live in buffers of the tile: one value a row, or a row of NNK_FOLD_BLOCK values for each row. The scores
 * and the weighted vectors are products of packed blocks, by the matmul kernel: the sums have its order (R8). What is
 * not stored as words is made words a block at a time.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "cpu.h"

enum {
    BLOCK = NNK_FOLD_BLOCK,
    TILE_ROWS = 64,
    THIN_ROWS = 4, /* most rows for which the matmul kernel's block would be mostly padding */
    LINE = 16,
};

static const double FLOPS_PER_NS = 20.0, PARALLEL_NS = 40000.0;

typedef struct {
    const nnk_run *run;
    uint64_t tile_rows, tiles_per_batch;
    atomic_bool started; /* some thread had the memory to work */
} fold_work;

/* Element (i, t) of an operand of the matmul or the vectors, of one batch: base + i * row + t * col. */
typedef struct {
    unsigned slot;
    int64_t base, row, col;
} fold_operand;

/* Words of some rows of it: element (i, t) is p[i * row + t * col]. */
typedef struct {
    const float *p;
    int64_t row, col;
} fold_words;

typedef struct {
    const nnk_run *run;
    float *memory;
    float *elem[NNK_MAX_REGS], *row[NNK_MAX_REGS]; /* body registers: tile x BLOCK values, tile values */
    float *line[3], *row_line[3];                  /* inputs that are read by a copy: a block's values, rows' values */
    float *wide;                                   /* rows of an operand that are read by a copy */
    int64_t first[NNK_MAX_INPUTS];                 /* strided inputs of the body: column 0 of the batch's first row */
    fold_operand query, key, value;
    float *score, *vector, *packed_a, *packed_w, *packed_b, *splat, *row_number, *col_number, *out_number;
    float *final[NNK_MAX_REGS];                    /* finalize registers: a row of output columns */
    float batch_number;
    uint64_t batch, i0, r0; /* first row: inside its batch, and of all */
    size_t n, lo;           /* rows of the tile; the first one that has items in the block */
    uint64_t k0;
    size_t width, valid[TILE_ROWS]; /* items of the block, and those of each row (F7) */
} fold_context;

static uint64_t min64(uint64_t a, uint64_t b) { return a < b ? a : b; }
static size_t round_up(size_t n, size_t step) { return (n + step - 1) / step * step; }

static float float_of(uint32_t bits) {
    union { uint32_t bits; float value; } u = {bits};
    return u.value;
}

static void fill(float *o, float value, size_t n) {
    for (size_t i = 0; i < n; i++) o[i] = value;
}

/* ---- memory of a thread ---- */

static float *take(float **next, size_t n) {
    float *p = *next;
    if (p) memset(p, 0, n * sizeof *p);
    *next = p ? p + round_up(n, LINE) : NULL;
    return p;
}

/* Whether rows of an operand are read by a copy. */
static bool is_copied(const nnk_run *run, const fold_operand *op, bool whole_rows) {
    return !nnk_is_word(run->in_type[op->slot]) || (whole_rows && op->col != 1);
}

/* Column 0 of a row of a strided view. */
static int64_t strided_at(const nnk_strided *view, uint64_t row) {
    nnk_odometer od;
    nnk_odometer_set(&od, view, row);
    return od.base;
}

/* The innermost row dimension of a strided view has the rows of one batch: they are one stride apart. */
static int64_t row_stride(const nnk_strided *view) { return view->stride[view->n - 1]; }

/* Where an operand of `rows` rows of `cols` values a batch lies; swapped: it is stored column by column. */
static fold_operand operand_of(const nnk_run *run, unsigned slot, uint64_t batch, uint64_t rows, uint64_t cols,
                               bool swapped) {
    const nnk_raw_view *view = &run->plan->spec.views[slot];
    if (view->kind == NNK_VIEW_STRIDED) {
        const nnk_strided *s = &run->strided[slot];
        int64_t base = rows && cols ? strided_at(s, batch * rows) : 0;
        return (fold_operand){.slot = slot, .base = base, .row = row_stride(s), .col = s->col_stride};
    }
    if (view->kind == NNK_VIEW_HEAD_GROUP) batch /= run->words[view->word];
    return (fold_operand){.slot = slot, .base = (int64_t)(batch * rows * cols), .row = swapped ? 1 : (int64_t)cols,
                          .col = swapped ? (int64_t)rows : 1};
}

static void find_operands(fold_context *ctx, uint64_t batch) {
    const nnk_run *run = ctx->run;
    const nnk_fold *f = &run->plan->spec.fold;
    const nnk_fold_plan *p = &run->plan->fold;
    if (f->has_matmul) {
        ctx->query = operand_of(run, f->a_input, batch, run->m, run->k, f->trans_a);
        fold_operand key = operand_of(run, f->b_input, batch, run->k, run->cols, f->trans_b);
        ctx->key = (fold_operand){.slot = key.slot, .base = key.base, .row = key.col, .col = key.row};
    }
    if (f->has_vecacc) ctx->value = operand_of(run, f->v_input, batch, run->cols, run->out_cols, false);
    for (unsigned n = 0; n < f->n_body; n++)
        for (unsigned i = 0; i < p->body[n].arity; i++) {
            unsigned slot = p->body[n].index[i];
            if (p->body[n].from[i] == NNK_FROM_INPUT && run->plan->spec.views[slot].kind == NNK_VIEW_STRIDED)
                ctx->first[slot] = strided_at(&run->strided[slot], batch * run->m);
        }
}

/* Most words of an operand that are copied at a time. */
static size_t wide_size(const fold_context *ctx) {
    const nnk_run *run = ctx->run;
    const nnk_fold *f = &run->plan->spec.fold;
    bool scores = f->has_matmul && (is_copied(run, &ctx->query, false) || is_copied(run, &ctx->key, false));
    bool vectors = f->has_vecacc && is_copied(run, &ctx->value, true);
    size_t n = scores ? (size_t)run->k : 0;
    if (vectors && run->out_cols > n) n = (size_t)run->out_cols;
    return BLOCK * n;
}

/* Lays the buffers out from `base`; with NULL it only adds up their sizes. */
static size_t lay_out(fold_context *ctx, float *base, size_t rows) {
    const nnk_run *run = ctx->run;
    const nnk_fold *f = &run->plan->spec.fold;
    size_t dv = (size_t)run->out_cols, d = (size_t)run->k, total = 0;
    bool is_elem[NNK_MAX_REGS] = {false};
    for (unsigned n = 0; n < f->n_body; n++)
        if (run->plan->fold.body[n].cls == NNK_ELEM) is_elem[run->plan->fold.body[n].dst] = true;
    float *next = base;
#define TAKE(target, count) total += round_up((count), LINE), (target) = take(&next, (count))
    for (unsigned i = 0; i < run->plan->spec.n_regs; i++) {
        TAKE(ctx->row[i], rows);
        TAKE(ctx->final[i], dv);
        if (is_elem[i]) TAKE(ctx->elem[i], rows * BLOCK);
    }
    size_t a = round_up(rows, run->isa->mr), depth = d > BLOCK ? d : BLOCK;
    size_t b = round_up(dv > BLOCK ? dv : BLOCK, run->isa->nr);
    for (unsigned i = 0; i < 3; i++) {
        TAKE(ctx->line[i], BLOCK);
        TAKE(ctx->row_line[i], rows);
    }
    TAKE(ctx->wide, wide_size(ctx));
    TAKE(ctx->score, rows * BLOCK);
    TAKE(ctx->splat, rows * BLOCK);
    TAKE(ctx->vector, f->has_vecacc ? rows * dv : 0);
    TAKE(ctx->packed_a, a * d);
    TAKE(ctx->packed_w, a * BLOCK);
    TAKE(ctx->packed_b, b * depth);
    TAKE(ctx->row_number, rows);
    TAKE(ctx->col_number, BLOCK);
    TAKE(ctx->out_number, dv);
#undef TAKE
    return total;
}

static bool context_init(fold_context *ctx, const nnk_run *run, size_t rows) {
    *ctx = (fold_context){.run = run};
    find_operands(ctx, 0);
    size_t total = lay_out(ctx, NULL, rows);
    ctx->memory = aligned_alloc(64, round_up(total * sizeof(float), 64));
    if (!ctx->memory) return false;
    lay_out(ctx, ctx->memory, rows);
    for (uint64_t d = 0; d < run->out_cols; d++) ctx->out_number[d] = (float)d;
    return true;
}

/* ---- operands ---- */

/* n elements of an input, `step` apart, as words. */
static void load_line(const nnk_run *run, unsigned slot, int64_t at, int64_t step, float *o, size_t n) {
    if (step == 1) {
        nnk_load(run, slot, at, o, n);
    } else if (step == 0) {
        fill(o, nnk_load_one(run, slot, at), n);
    } else {
        for (size_t i = 0; i < n; i++) o[i] = nnk_load_one(run, slot, at + (int64_t)i * step);
    }
}

/* Rows [first, first + n) of an operand, n <= BLOCK; whole_rows: the values of a row are neighbours. */
static fold_words read_rows(const fold_context *ctx, const fold_operand *op, uint64_t first, size_t n, uint64_t cols,
                            bool whole_rows) {
    const nnk_run *run = ctx->run;
    int64_t at = op->base + (int64_t)first * op->row, step = (int64_t)cols;
    if (!is_copied(run, op, whole_rows)) return (fold_words){nnk_in(run, op->slot) + at, op->row, op->col};
    if (op->row == 1 && op->col != 1) {
        float column[BLOCK];
        for (int64_t t = 0; t < step; t++) {
            nnk_load(run, op->slot, at + t * op->col, column, n);
            for (size_t i = 0; i < n; i++) ctx->wide[(int64_t)i * step + t] = column[i];
        }
    } else {
        for (size_t i = 0; i < n; i++)
            load_line(run, op->slot, at + (int64_t)i * op->row, op->col, ctx->wide + (int64_t)i * step, (size_t)cols);
    }
    return (fold_words){ctx->wide, step, 1};
}

/* Values of a row operand, one a row of the tile; *single: one value for all. */
static const float *row_operand(const fold_context *ctx, const nnk_fold_step *step, unsigned i, bool *single) {
    const nnk_run *run = ctx->run;
    unsigned index = step->index[i];
    *single = false;
    switch (step->from[i]) {
    case NNK_FROM_WORD: *single = true; return (const float *)(const void *)&run->words[index];
    case NNK_FROM_BATCH: *single = true; return &ctx->batch_number;
    case NNK_FROM_ROW_NUMBER: return ctx->row_number;
    case NNK_FROM_INPUT: {
        const nnk_raw_view *view = &run->plan->spec.views[index];
        *single = view->kind != NNK_VIEW_ROW_BROADCAST; /* batch_mod */
        uint64_t at = *single ? ctx->batch % run->words[view->word] : ctx->r0;
        if (nnk_is_word(run->in_type[index])) return nnk_in(run, index) + at;
        nnk_load(run, index, (int64_t)at, ctx->row_line[i], *single ? 1 : ctx->n);
        return ctx->row_line[i];
    }
    default: return ctx->row[index];
    }
}

static bool is_row_operand(const fold_context *ctx, const nnk_fold_step *step, unsigned i) {
    unsigned from = step->from[i];
    if (from == NNK_FROM_INPUT) {
        unsigned kind = ctx->run->plan->spec.views[step->index[i]].kind;
        return kind == NNK_VIEW_ROW_BROADCAST || kind == NNK_VIEW_BATCH_MOD;
    }
    return from != NNK_FROM_ELEM && from != NNK_FROM_SCORE && from != NNK_FROM_COL_NUMBER;
}

/* The block's values of an element operand in row r of the tile. */
static const float *elem_operand(const fold_context *ctx, const nnk_fold_step *step, unsigned i, size_t r) {
    const nnk_run *run = ctx->run;
    unsigned index = step->index[i];
    if (step->from[i] == NNK_FROM_ELEM) return ctx->elem[index] + r * BLOCK;
    if (step->from[i] == NNK_FROM_SCORE) return ctx->score + r * BLOCK;
    if (step->from[i] == NNK_FROM_COL_NUMBER) return ctx->col_number;
    const nnk_raw_view *view = &run->plan->spec.views[index];
    uint64_t row = ctx->r0 + r;
    if (view->kind == NNK_VIEW_ROW_MOD) row %= run->words[view->word];
    uint64_t first = view->kind == NNK_VIEW_BATCH_COL ? ctx->batch * run->words[view->word] : row * run->cols;
    int64_t at = (int64_t)(first + ctx->k0), apart = 1;
    if (view->kind == NNK_VIEW_STRIDED) {
        const nnk_strided *s = &run->strided[index];
        apart = s->col_stride;
        at = ctx->first[index] + (int64_t)(ctx->i0 + r) * row_stride(s) + (int64_t)ctx->k0 * apart;
    }
    if (apart == 1 && nnk_is_word(run->in_type[index])) return nnk_in(run, index) + at;
    load_line(run, index, at, apart, ctx->line[i], ctx->width);
    return ctx->line[i];
}

/* ---- the body ---- */

static void run_row_step(fold_context *ctx, const nnk_fold_step *step) {
    const float *p[3] = {NULL, NULL, NULL};
    float *o = ctx->row[step->dst];
    unsigned variant = 0;
    for (unsigned i = 0; i < step->arity; i++) {
        bool single;
        p[i] = row_operand(ctx, step, i, &single);
        if (single) variant |= 1u << i;
        else p[i] += ctx->lo;
    }
    bool single = variant == (1u << step->arity) - 1;
    ctx->run->isa->loops[step->op][single ? 0 : variant](p[0], p[1], p[2], o + ctx->lo, single ? 1 : ctx->n - ctx->lo);
    if (single) fill(o + ctx->lo, o[ctx->lo], ctx->n - ctx->lo);
}

static void run_elem_step(fold_context *ctx, const nnk_fold_step *step) {
    const float *p[3] = {NULL, NULL, NULL}, *rows[3] = {NULL, NULL, NULL};
    bool single[3] = {false, false, false}, is_row[3] = {false, false, false};
    unsigned variant = 0;
    bool whole = ctx->width == BLOCK; /* the tile is one run of values, and so are all operands */
    for (unsigned i = 0; i < step->arity; i++) {
        is_row[i] = is_row_operand(ctx, step, i);
        if (is_row[i]) {
            variant |= 1u << i;
            rows[i] = row_operand(ctx, step, i, &single[i]);
            whole = whole && single[i];
        } else {
            whole = whole && (step->from[i] == NNK_FROM_ELEM || step->from[i] == NNK_FROM_SCORE);
        }
    }
    const nnk_loop loop = ctx->run->isa->loops[step->op][variant];
    for (size_t r = ctx->lo; r < ctx->n; r++) {
        for (unsigned i = 0; i < step->arity; i++)
            p[i] = is_row[i] ? rows[i] + (single[i] ? 0 : r) : elem_operand(ctx, step, i, r);
        loop(p[0], p[1], p[2], ctx->elem[step->dst] + r * BLOCK, whole ? (ctx->n - r) * BLOCK : ctx->width);
        if (whole) return;
    }
}

/* F3: the row reduction of the contract over the items of the block; a maximum starts from the lowest finite float. */
static void run_reduce_step(fold_context *ctx, const nnk_fold_step *step) {
    const nnk_isa *isa = ctx->run->isa;
    float *o = ctx->row[step->dst];
    bool single = false, is_row = is_row_operand(ctx, step, 0);
    const float *rows = is_row ? row_operand(ctx, step, 0, &single) : NULL;
    for (size_t r = ctx->lo; r < ctx->n; r++) {
        const float *x = ctx->splat;
        if (is_row) fill(ctx->splat, rows[single ? 0 : r], ctx->valid[r]);
        else x = elem_operand(ctx, step, 0, r);
        if (step->op == NNK_OP_ROW_SUM) {
            o[r] = isa->row_sum(x, ctx->valid[r]);
        } else {
            o[r] = isa->row_max(x, ctx->valid[r]);
            if (o[r] == float_of(NNK_MAX_IDENTITY_BITS)) o[r] = float_of(NNK_FOLD_MAX_IDENTITY_BITS);
        }
    }
}

/* ---- the matmul and the vectors ---- */

/* o[j] += sum over t < kc of a[t] * b[t * step + j], t ascending; first: o starts from the identity. */
static void thin_product(const nnk_isa *isa, const float *a, const float *b, int64_t step, size_t kc, float *o, size_t n,
                         bool first) {
    for (size_t t = 0; t < kc; t += NNK_THIN_K) {
        const float *rows[NNK_THIN_K];
        size_t count = (size_t)min64(NNK_THIN_K, kc - t);
        for (size_t i = 0; i < count; i++) rows[i] = b + (int64_t)(t + i) * step;
        isa->thin(a + t, rows, count, o, n, first && t == 0);
    }
}

/* F4: the scores of the block, d ascending. Rows of a were packed when the tile began. */
static void pack_queries(fold_context *ctx) {
    const nnk_run *run = ctx->run;
    const fold_words a = read_rows(ctx, &ctx->query, ctx->i0, ctx->n, run->k, false);
    if (ctx->n <= THIN_ROWS) {
        for (size_t r = 0; r < ctx->n; r++)
            for (uint64_t d = 0; d < run->k; d++)
                ctx->packed_a[r * run->k + d] = a.p[(int64_t)r * a.row + (int64_t)d * a.col];
        return;
    }
    int64_t off[TILE_ROWS];
    for (size_t i = 0; i < ctx->n; i += run->isa->mr) {
        size_t rows = (size_t)min64(run->isa->mr, ctx->n - i);
        for (size_t r = 0; r < rows; r++) off[r] = (int64_t)(i + r) * a.row;
        run->isa->pack_a(a.p, off, rows, a.col, (size_t)run->k, ctx->packed_a + i * run->k);
    }
}

static void make_scores(fold_context *ctx) {
    const nnk_run *run = ctx->run;
    if (run->k == 0) {
        fill(ctx->score, 0.0f, ctx->n * BLOCK);
        return;
    }
    const fold_words b = read_rows(ctx, &ctx->key, ctx->k0, ctx->width, run->k, false);
    int64_t off[NNK_MAX_FOLD_MATMUL_K];
    for (uint64_t d = 0; d < run->k; d++) off[d] = (int64_t)d * b.col;
    for (size_t j = 0; j < ctx->width; j += run->isa->nr) {
        size_t cols = (size_t)min64(run->isa->nr, ctx->width - j);
        run->isa->pack_b(b.p + (int64_t)j * b.row, off, (size_t)run->k, b.row, cols, ctx->packed_b + j * run->k);
        for (size_t r = 0; r < ctx->n && ctx->n <= THIN_ROWS; r++)
            thin_product(run->isa, ctx->packed_a + r * run->k, ctx->packed_b + j * run->k, run->isa->nr, (size_t)run->k,
                         ctx->score + r * BLOCK + j, cols, true);
    }
    if (ctx->n <= THIN_ROWS) return;
    run->isa->gemm(ctx->packed_a, ctx->packed_b, ctx->score, BLOCK, ctx->n, ctx->width, (size_t)run->k, true);
}

/* F5: scale, then weighted vectors for j ascending. The rows of a tile with tri_skip end one item after the other. */
static void accumulate(fold_context *ctx) {
    const nnk_run *run = ctx->run;
    const nnk_isa *isa = run->isa;
    const nnk_fold *f = &run->plan->spec.fold;
    size_t dv = (size_t)run->out_cols, rows = ctx->n - ctx->lo, common = ctx->valid[ctx->lo];
    float *weight = ctx->splat;
    if (run->plan->fold.weight_cls == NNK_ELEM) weight = ctx->elem[f->weight_reg];
    else
        for (size_t r = ctx->lo; r < ctx->n; r++) fill(weight + r * BLOCK, ctx->row[f->weight_reg][r], ctx->width);
    for (size_t r = ctx->lo; f->has_scale && r < ctx->n; r++)
        isa->loops[NNK_OP_MUL][2](ctx->vector + r * dv, ctx->row[f->scale_reg] + r, NULL, ctx->vector + r * dv, dv);
    const fold_words v = read_rows(ctx, &ctx->value, ctx->k0, ctx->width, dv, true);
    if (rows <= THIN_ROWS) {
        for (size_t r = ctx->lo; r < ctx->n; r++)
            thin_product(isa, weight + r * BLOCK, v.p, v.row, ctx->valid[r], ctx->vector + r * dv, dv, false);
        return;
    }
    int64_t off[BLOCK];
    for (size_t j = 0; j < BLOCK; j++) off[j] = (int64_t)j * v.row;
    for (size_t i = 0; i < rows; i += isa->mr) {
        int64_t at[TILE_ROWS];
        size_t count = (size_t)min64(isa->mr, rows - i);
        for (size_t r = 0; r < count; r++) at[r] = (int64_t)((ctx->lo + i + r) * BLOCK);
        isa->pack_a(weight, at, count, 1, common, ctx->packed_w + i * common);
    }
    for (size_t d = 0; d < dv; d += isa->nr)
        isa->pack_b(v.p + d, off, common, 1, (size_t)min64(isa->nr, dv - d), ctx->packed_b + d * common);
    isa->gemm(ctx->packed_w, ctx->packed_b, ctx->vector + ctx->lo * dv, dv, rows, dv, common, false);
    for (size_t r = ctx->lo; r < ctx->n; r++)
        thin_product(isa, weight + r * BLOCK + common, v.p + (int64_t)common * v.row, v.row, ctx->valid[r] - common,
                     ctx->vector + r * dv, dv, false);
}

/* ---- finalize ---- */

static const float *final_operand(const fold_context *ctx, const nnk_fold_step *step, unsigned i, size_t r, bool *single) {
    unsigned index = step->index[i];
    *single = false;
    switch (step->from[i]) {
    case NNK_FROM_VECTOR: return ctx->vector + r * ctx->run->out_cols;
    case NNK_FROM_COL_NUMBER: return ctx->out_number;
    case NNK_FROM_ELEM: return ctx->final[index];
    case NNK_FROM_ROW:
        *single = true;
        return index < NNK_MAX_REGS ? ctx->final[index] : ctx->row[index - NNK_MAX_REGS] + r;
    default: {
        const float *p = row_operand(ctx, step, i, single);
        if (!*single) p += r;
        *single = true;
        return p;
    }
    }
}

static void finalize_row(fold_context *ctx, size_t r) {
    const nnk_run *run = ctx->run;
    const nnk_fold *f = &run->plan->spec.fold;
    size_t dv = (size_t)run->out_cols;
    for (unsigned n = 0; n < f->n_finalize; n++) {
        const nnk_fold_step *step = &run->plan->fold.finalize[n];
        const float *p[3] = {NULL, NULL, NULL};
        unsigned variant = 0;
        for (unsigned i = 0; i < step->arity; i++) {
            bool single;
            p[i] = final_operand(ctx, step, i, r, &single);
            if (single) variant |= 1u << i;
        }
        bool is_row = variant == (1u << step->arity) - 1;
        float *o = ctx->final[step->dst];
        run->isa->loops[step->op][is_row ? 0 : variant](p[0], p[1], p[2], o, is_row ? 1 : dv);
        if (n + 1 < f->n_finalize) continue;
        if (is_row) fill(o + 1, o[0], dv - 1);
        nnk_store(run, 0, (ctx->r0 + r) * dv, o, dv);
    }
}

/* ---- a tile ---- */

static void begin_tile(fold_context *ctx, const fold_work *work, uint64_t item) {
    const nnk_run *run = ctx->run;
    const nnk_fold *f = &run->plan->spec.fold;
    ctx->batch = item / work->tiles_per_batch;
    ctx->i0 = item % work->tiles_per_batch * work->tile_rows;
    ctx->r0 = ctx->batch * run->m + ctx->i0;
    ctx->n = (size_t)min64(work->tile_rows, run->m - ctx->i0);
    ctx->lo = 0;
    ctx->batch_number = (float)(run->first_batch + ctx->batch);
    for (size_t r = 0; r < ctx->n; r++) ctx->row_number[r] = (float)(run->first_row + ctx->i0 + r);
    for (unsigned i = 0; i < f->n_states; i++) fill(ctx->row[i], float_of(f->inits[i]), ctx->n);
    if (f->has_vecacc) fill(ctx->vector, float_of(NNK_SUM_IDENTITY_BITS), ctx->n * run->out_cols);
    find_operands(ctx, ctx->batch);
    if (f->has_matmul) pack_queries(ctx);
}

static void run_block(fold_context *ctx, uint64_t k0) {
    const nnk_run *run = ctx->run;
    const nnk_fold *f = &run->plan->spec.fold;
    ctx->k0 = k0;
    ctx->width = (size_t)min64(BLOCK, run->cols - k0);
    ctx->lo = 0;
    for (size_t r = 0; r < ctx->n; r++) {
        uint64_t end = f->tri_skip ? run->first_row + ctx->i0 + r + 1 : run->cols; /* F7 */
        ctx->valid[r] = end <= k0 ? 0 : (size_t)min64(ctx->width, end - k0);
        if (ctx->valid[r] == 0) ctx->lo = r + 1;
    }
    for (size_t j = 0; j < ctx->width; j++) ctx->col_number[j] = (float)(k0 + j);
    if (f->has_matmul) make_scores(ctx);
    for (unsigned n = 0; n < f->n_body; n++) {
        const nnk_fold_step *step = &run->plan->fold.body[n];
        if (step->is_reduce) run_reduce_step(ctx, step);
        else if (step->cls == NNK_ELEM) run_elem_step(ctx, step);
        else run_row_step(ctx, step);
    }
    if (f->has_vecacc) accumulate(ctx);
}

static void work_tiles(void *arg, nnk_job *job) {
    fold_work *work = arg;
    const nnk_run *run = work->run;
    fold_context ctx;
    if (!context_init(&ctx, run, (size_t)work->tile_rows)) return;
    atomic_store_explicit(&work->started, true, memory_order_relaxed);
    for (uint64_t item; nnk_job_next(job, &item);) {
        begin_tile(&ctx, work, item);
        uint64_t rows_end = run->first_row + ctx.i0 + ctx.n;
        uint64_t end = run->plan->spec.fold.tri_skip ? min64(run->cols, rows_end) : run->cols;
        for (uint64_t k0 = 0; k0 < end; k0 += BLOCK) run_block(&ctx, k0);
        for (size_t r = 0; r < ctx.n; r++) finalize_row(&ctx, r);
    }
    free(ctx.memory);
}

int nnk_run_fold(nnk_run *run) {
    if (run->rows == 0) return NNK_OK;
    fold_work work = {.run = run, .tile_rows = TILE_ROWS / run->isa->mr * run->isa->mr};
    double depth = (double)run->k + (run->plan->spec.fold.has_vecacc ? (double)run->out_cols : 0.0);
    double ns = (double)run->rows * (double)run->cols * (run->plan->fold.cost + 2.0 * depth / FLOPS_PER_NS);
    unsigned threads = ns < PARALLEL_NS ? 1 : run->threads;
    /* Short batches, and few rows, are cut finer so that each thread finds work. */
    while (threads > 1 && work.tile_rows > 2 * run->isa->mr && run->rows / work.tile_rows < 2 * threads)
        work.tile_rows -= run->isa->mr;
    if (work.tile_rows > run->m) work.tile_rows = run->m;
    work.tiles_per_batch = (run->m + work.tile_rows - 1) / work.tile_rows;
    nnk_job_run(work_tiles, &work, work.tiles_per_batch * run->batch, threads);
    if (!atomic_load(&work.started)) return nnk_fail(run->fault, NNK_NO_MEMORY, "Out of memory for the blocks of a fold");
    return NNK_OK;
}
