/* The matmul form: blocking, packing and the tail on each finished block.
 *
 * Every element adds its products for k ascending (R8). K is cut into blocks of K_BLOCK; between them the sums wait as
 * float32 in the output buffer, which changes no bit; a run may add a part of K alone, and goes on from the sums there.
 * Two ways to share the work:
 * - few row blocks or several batches: an item is (batch, column chunk) and packs its own part of B;
 * - else B is packed once by all threads, then an item is a block of rows.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "cpu.h"

enum {
    K_BLOCK = 384,
    ROW_SLIVERS = 16,              /* slivers of mr rows in a row block */
    THIN_ROWS = 24,                /* most rows for which packing B costs more than it saves */
    THIN_COLS = 512,               /* columns of one sweep over K: B's rows of a step and C stay in the first cache */
    OWN_COLS = 256,                /* most columns of B that an item packs for itself: they stay in its second cache */
    SHARED_BYTES = 64 << 20,       /* most bytes of B packed at a time */
    MAX_SLIVER = 16,               /* most rows of a sliver of A and columns of a panel of B, on any instruction set */
    MAX_PANEL = 32,
};

static const double FLOPS_PER_NS = 20.0, PARALLEL_FLOPS = 40000.0 * 20.0;

/* Where element (row, column) of an operand's grid lies: off(batch, row) + column * step. */
typedef struct {
    unsigned slot;
    bool is_word;
    const float *data;       /* of words */
    const nnk_strided *view; /* NULL: linear */
    uint64_t rows;           /* grid rows of a batch */
    uint64_t group;          /* batches that share one block of the operand */
    int64_t batch_step, row_step, step;
} operand;

typedef struct {
    nnk_run *run;
    operand a, b;
    uint64_t row_block, col_chunk, n_col_chunks, row_items;
    uint64_t batch, j0, j1, padded; /* the shared part of B: one batch, columns [j0, j1) */
    float *shared;
    bool is_thin;
    atomic_bool started;
} matmul;

static uint64_t ceil_to(uint64_t n, uint64_t step) { return (n + step - 1) / step * step; }
static uint64_t min64(uint64_t a, uint64_t b) { return a < b ? a : b; }

static operand make_operand(const nnk_run *run, unsigned slot, uint64_t rows, uint64_t cols, bool transposed) {
    operand op = {.slot = slot, .is_word = nnk_is_word(run->in_type[slot]), .data = run->in[slot].data, .rows = rows,
                  .group = 1};
    const nnk_raw_view *view = &run->plan->spec.views[slot];
    if (view->kind == NNK_VIEW_HEAD_GROUP) op.group = run->words[view->word];
    if (view->kind == NNK_VIEW_STRIDED) {
        op.view = &run->strided[slot];
        op.step = op.view->col_stride;
        return op;
    }
    op.batch_step = (int64_t)(rows * cols);
    op.row_step = transposed ? 1 : (int64_t)cols;
    op.step = transposed ? (int64_t)rows : 1;
    return op;
}

static void offsets(const operand *op, uint64_t batch, uint64_t row, size_t n, int64_t *off) {
    if (!op->view) {
        for (size_t i = 0; i < n; i++) off[i] = (int64_t)(batch / op->group) * op->batch_step + (int64_t)(row + i) * op->row_step;
        return;
    }
    nnk_odometer od;
    nnk_odometer_set(&od, op->view, batch * op->rows + row);
    for (size_t i = 0; i < n; i++) {
        off[i] = od.base;
        if (i + 1 < n) nnk_odometer_next(&od, op->view);
    }
}

/* Halves: n elements from element `first` on, `step` apart, as words. */
static void load_line(const nnk_run *run, const operand *op, int64_t first, int64_t step, float *o, size_t n) {
    if (step == 1) nnk_load(run, op->slot, first, o, n);
    else
        for (size_t i = 0; i < n; i++) o[i] = nnk_load_one(run, op->slot, first + (int64_t)i * step);
}

static void pack_rows(const matmul *mm, uint64_t batch, uint64_t i0, uint64_t mc, uint64_t k0, size_t kc, float *dst) {
    const nnk_isa *isa = mm->run->isa;
    int64_t off[64];
    for (uint64_t i = 0; i < mc; i += isa->mr) {
        size_t rows = (size_t)min64(isa->mr, mc - i);
        offsets(&mm->a, batch, i0 + i, rows, off);
        if (mm->a.is_word) {
            isa->pack_a(mm->a.data + (int64_t)k0 * mm->a.step, off, rows, mm->a.step, kc, dst + i * kc);
            continue;
        }
        float line[MAX_SLIVER * K_BLOCK];
        for (size_t r = 0; r < rows; r++) {
            load_line(mm->run, &mm->a, off[r] + (int64_t)k0 * mm->a.step, mm->a.step, line + r * kc, kc);
            off[r] = (int64_t)(r * kc);
        }
        isa->pack_a(line, off, rows, 1, kc, dst + i * kc);
    }
}

static void pack_cols(const matmul *mm, uint64_t batch, uint64_t j0, uint64_t nc, uint64_t k0, size_t kc, float *dst) {
    const nnk_isa *isa = mm->run->isa;
    int64_t off[K_BLOCK];
    offsets(&mm->b, batch, k0, kc, off);
    for (uint64_t j = 0; j < nc; j += isa->nr) {
        size_t cols = (size_t)min64(isa->nr, nc - j);
        if (mm->b.is_word) {
            isa->pack_b(mm->b.data + (int64_t)(j0 + j) * mm->b.step, off, kc, mm->b.step, cols, dst + j * kc);
            continue;
        }
        float line[MAX_PANEL * K_BLOCK];
        int64_t line_off[K_BLOCK];
        for (size_t k = 0; k < kc; k++) {
            load_line(mm->run, &mm->b, off[k] + (int64_t)(j0 + j) * mm->b.step, mm->b.step, line + k * cols, cols);
            line_off[k] = (int64_t)(k * cols);
        }
        isa->pack_b(line, line_off, kc, 1, cols, dst + j * kc);
    }
}

/* ---- tail ---- */

/* Runs the instructions behind the matmul on rows [r0, r0 + rows) and columns [c0, c0 + nc) of the output. */
static void tail(nnk_context *ctx, uint64_t r0, uint64_t rows, uint64_t c0, uint64_t nc) {
    const nnk_run *run = ctx->run;
    bool whole = nc == run->cols;
    if (run->plan->is_matmul_only || run->is_product) {
        uint64_t at = r0 * run->cols + c0;
        if (whole) nnk_store(run, 0, at, run->sums + at, rows * nc);
        for (uint64_t r = 0; r < rows && !whole; r++, at += run->cols) nnk_store(run, 0, at, run->sums + at, nc);
        return;
    }
    uint64_t step = whole ? run->block_rows : 1;
    for (uint64_t r = 0; r < rows; r += step) nnk_context_block(ctx, r0 + r, (size_t)min64(step, rows - r), c0, nc);
}

static void zero_block(const nnk_run *run, uint64_t r0, uint64_t rows, uint64_t c0, uint64_t nc) {
    for (uint64_t r = 0; r < rows; r++) memset(run->sums + (r0 + r) * run->cols + c0, 0, nc * sizeof(float));
}

/* ---- items ---- */

typedef struct {
    nnk_context ctx;
    float *a, *b;
} scratch;

static bool scratch_init(scratch *s, matmul *mm, uint64_t b_cols) {
    const nnk_run *run = mm->run;
    size_t kc = (size_t)min64(K_BLOCK, run->k_end - run->k_first);
    size_t rows = (size_t)ceil_to(min64(mm->row_block, run->m), run->isa->mr);
    size_t a = ceil_to(rows * kc, 16), b = (size_t)ceil_to(b_cols, run->isa->nr) * kc;
    s->a = aligned_alloc(64, ceil_to((a + b + 1) * sizeof(float), 64));
    if (!s->a) return false;
    s->b = s->a + a;
    if (nnk_context_init(&s->ctx, run)) {
        atomic_store_explicit(&mm->started, true, memory_order_relaxed);
        return true;
    }
    free(s->a);
    return false;
}

static void scratch_free(scratch *s) {
    nnk_context_free(&s->ctx);
    free(s->a);
}

/* All rows of one batch against one chunk of columns. */
static void own_item(matmul *mm, scratch *s, uint64_t item) {
    const nnk_run *run = mm->run;
    uint64_t batch = item / mm->n_col_chunks, j0 = item % mm->n_col_chunks * mm->col_chunk;
    uint64_t nc = min64(mm->col_chunk, run->cols - j0), r0 = batch * run->m;
    if (run->k == 0) zero_block(run, r0, run->m, j0, nc);
    for (uint64_t k0 = run->k_first; k0 < run->k_end; k0 += K_BLOCK) {
        size_t kc = (size_t)min64(K_BLOCK, run->k_end - k0);
        pack_cols(mm, batch, j0, nc, k0, kc, s->b);
        for (uint64_t i0 = 0; i0 < run->m; i0 += mm->row_block) {
            uint64_t mc = min64(mm->row_block, run->m - i0);
            pack_rows(mm, batch, i0, mc, k0, kc, s->a);
            run->isa->gemm(s->a, s->b, run->sums + (r0 + i0) * run->cols + j0, run->cols, mc, nc, kc, k0 == 0);
            if (k0 + kc == run->k) tail(&s->ctx, r0 + i0, mc, j0, nc);
        }
    }
    if (run->k == 0) tail(&s->ctx, r0, run->m, j0, nc);
}

/* The same for few rows and a B whose rows are contiguous: nothing is packed. */
static void thin_item(matmul *mm, scratch *s, uint64_t item) {
    const nnk_run *run = mm->run;
    uint64_t batch = item / mm->n_col_chunks, first_col = item % mm->n_col_chunks * mm->col_chunk;
    uint64_t end_col = min64(first_col + mm->col_chunk, run->cols), r0 = batch * run->m;
    int64_t a_off[THIN_ROWS], b_off[NNK_THIN_K];
    offsets(&mm->a, batch, 0, (size_t)run->m, a_off);
    for (uint64_t j = first_col; j < end_col; j += THIN_COLS) {
        size_t n = (size_t)min64(THIN_COLS, end_col - j);
        for (uint64_t k0 = run->k_first; k0 < run->k_end; k0 += NNK_THIN_K) {
            size_t kc = (size_t)min64(NNK_THIN_K, run->k_end - k0);
            const float *rows[NNK_THIN_K];
            float lines[NNK_THIN_K * THIN_COLS];
            offsets(&mm->b, batch, k0, kc, b_off);
            for (size_t t = 0; t < kc; t++) {
                rows[t] = mm->b.is_word ? mm->b.data + b_off[t] + (int64_t)j : lines + t * THIN_COLS;
                if (!mm->b.is_word) nnk_load(run, mm->b.slot, b_off[t] + (int64_t)j, lines + t * THIN_COLS, n);
            }
            for (uint64_t r = 0; r < run->m; r++) {
                float a[NNK_THIN_K];
                int64_t first = a_off[r] + (int64_t)k0 * mm->a.step;
                for (size_t t = 0; t < kc; t++)
                    a[t] = mm->a.is_word ? mm->a.data[first + (int64_t)t * mm->a.step]
                                         : nnk_load_one(run, mm->a.slot, first + (int64_t)t * mm->a.step);
                run->isa->thin(a, rows, kc, run->sums + (r0 + r) * run->cols + j, n, k0 == 0);
            }
        }
    }
    if (run->k_end == run->k) tail(&s->ctx, r0, run->m, first_col, end_col - first_col);
}

static void work_own(void *arg, nnk_job *job) {
    matmul *mm = arg;
    scratch s;
    if (!scratch_init(&s, mm, mm->is_thin ? 0 : mm->col_chunk)) return;
    for (uint64_t item; nnk_job_next(job, &item);) {
        if (mm->is_thin) thin_item(mm, &s, item);
        else own_item(mm, &s, item);
    }
    scratch_free(&s);
}

enum { PACK_PANELS = 8 };

/* Packs one block of k and some column panels of B for all threads. */
static void work_pack(void *arg, nnk_job *job) {
    matmul *mm = arg;
    const nnk_run *run = mm->run;
    uint64_t width = (uint64_t)PACK_PANELS * run->isa->nr, groups = (mm->j1 - mm->j0 + width - 1) / width;
    for (uint64_t item; nnk_job_next(job, &item);) {
        uint64_t done = item / groups * K_BLOCK, k0 = run->k_first + done, j = item % groups * width;
        size_t kc = (size_t)min64(K_BLOCK, run->k_end - k0);
        uint64_t nc = min64(width, mm->j1 - mm->j0 - j);
        pack_cols(mm, mm->batch, mm->j0 + j, nc, k0, kc, mm->shared + done * mm->padded + j * kc);
    }
}

static void work_rows(void *arg, nnk_job *job) {
    matmul *mm = arg;
    const nnk_run *run = mm->run;
    scratch s;
    if (!scratch_init(&s, mm, 0)) return;
    uint64_t nc = mm->j1 - mm->j0;
    for (uint64_t item; nnk_job_next(job, &item);) {
        uint64_t i0 = item * mm->row_block, mc = min64(mm->row_block, run->m - i0), r0 = mm->batch * run->m + i0;
        for (uint64_t k0 = run->k_first; k0 < run->k_end; k0 += K_BLOCK) {
            size_t kc = (size_t)min64(K_BLOCK, run->k_end - k0);
            pack_rows(mm, mm->batch, i0, mc, k0, kc, s.a);
            run->isa->gemm(s.a, mm->shared + (k0 - run->k_first) * mm->padded, run->sums + r0 * run->cols + mm->j0, run->cols, mc, nc,
                           kc, k0 == 0);
        }
        if (run->k_end == run->k) tail(&s.ctx, r0, mc, mm->j0, nc);
    }
    scratch_free(&s);
}

/* ---- the run ---- */

static int out_of_memory(nnk_run *run) {
    return nnk_fail(run->fault, NNK_NO_MEMORY, "Out of memory for the packed operands of a matmul");
}

static int run_shared(matmul *mm, unsigned threads) {
    nnk_run *run = mm->run;
    uint64_t nr = run->isa->nr;
    uint64_t depth = run->k_end - run->k_first, chunk = SHARED_BYTES / sizeof(float) / depth / nr * nr;
    if (chunk < 8 * nr) chunk = 8 * nr;
    chunk = min64(chunk, ceil_to(run->cols, nr));
    mm->shared = aligned_alloc(64, ceil_to(chunk * depth * sizeof(float), 64));
    if (!mm->shared) return out_of_memory(run);
    uint64_t k_blocks = (depth + K_BLOCK - 1) / K_BLOCK;
    for (mm->batch = 0; mm->batch < run->batch; mm->batch++) {
        for (mm->j0 = 0; mm->j0 < run->cols; mm->j0 = mm->j1) {
            mm->j1 = min64(mm->j0 + chunk, run->cols);
            mm->padded = ceil_to(mm->j1 - mm->j0, nr);
            uint64_t width = PACK_PANELS * nr, groups = (mm->j1 - mm->j0 + width - 1) / width;
            nnk_job_run(work_pack, mm, k_blocks * groups, threads);
            nnk_job_run(work_rows, mm, mm->row_items, threads);
        }
    }
    free(mm->shared);
    return atomic_load(&mm->started) ? NNK_OK : out_of_memory(run);
}

static int run_own(matmul *mm, unsigned threads) {
    nnk_run *run = mm->run;
    uint64_t nr = run->isa->nr, wanted = threads > 1 ? 3 * threads : 1;
    uint64_t chunk = mm->is_thin ? 8 * THIN_COLS : OWN_COLS;
    if (run->batch < wanted) chunk = min64(chunk, run->cols * run->batch / wanted);
    mm->col_chunk = ceil_to(chunk < 4 * nr ? 4 * nr : chunk, nr);
    mm->n_col_chunks = (run->cols + mm->col_chunk - 1) / mm->col_chunk;
    nnk_job_run(work_own, mm, run->batch * mm->n_col_chunks, threads);
    return atomic_load(&mm->started) ? NNK_OK : out_of_memory(run);
}

int nnk_run_matmul(nnk_run *run) {
    const nnk_spec *s = &run->plan->spec;
    if (run->rows == 0 || run->cols == 0) return NNK_OK;
    nnk_choose_tiles(run);
    matmul mm = {.run = run, .row_block = (uint64_t)run->isa->mr * ROW_SLIVERS};
    mm.a = make_operand(run, s->a_input, run->m, run->k, run->trans & 1);
    mm.b = make_operand(run, s->b_input, run->k, run->cols, run->trans & 2);
    mm.row_items = (run->m + mm.row_block - 1) / mm.row_block;
    mm.is_thin = run->m <= THIN_ROWS && run->k && mm.b.step == 1;
    double flops = 2.0 * (double)run->rows * (double)run->cols * (double)(run->k_end - run->k_first) +
                   FLOPS_PER_NS * run->plan->cost * (double)run->rows * (double)run->cols;
    unsigned threads = flops < PARALLEL_FLOPS ? 1 : run->threads;
    bool own = mm.row_items == 1 || run->k == 0 || run->batch >= 2 * threads;
    bool in_output = nnk_is_word(run->out_type[0]);
    run->sums = in_output ? nnk_out(run, 0) : malloc(run->rows * run->cols * sizeof(float));
    if (!run->sums) return nnk_fail(run->fault, NNK_NO_MEMORY, "Out of memory for the sums of a matmul");
    int failed = own ? run_own(&mm, threads) : run_shared(&mm, threads);
    if (!in_output) free(run->sums);
    return failed;
}
