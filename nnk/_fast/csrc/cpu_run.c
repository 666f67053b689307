/* One run: picks tiles and schedule, cuts the grid into units of work, hands them to the threads. */
#include <stdatomic.h>
#include <stdlib.h>

#include "cpu.h"

enum {
    TILE_MIN = 256,             /* one row of lanes */
    TILE_MAX = 2048,
    TILE_BYTES = 24 << 10,      /* all tile buffers together: they share the first-level cache with the inputs */
    SAVED_BYTES = 1 << 20,      /* whole-row buffers of a thread: beyond that values are computed again */
    COLUMN_TILE = 256,          /* tile of inputs with a large column stride: its lines stay cached for the next row */
};

/* Nanoseconds of work below which waking a thread does not pay, and of one item of work. */
static const double PARALLEL_NS = 40000.0, ITEM_NS = 20000.0;

static bool has_column_stride(const nnk_run *run) {
    const nnk_plan *p = run->plan;
    for (unsigned v = 0; v < p->n_nodes; v++) {
        const nnk_node *node = &p->nodes[v];
        if (!node->is_live || node->kind != NNK_NODE_INPUT || p->spec.views[node->index].kind != NNK_VIEW_STRIDED)
            continue;
        int64_t stride = run->strided[node->index].col_stride;
        if (stride > 1 || stride < -1) return true;
    }
    return false;
}

void nnk_choose_tiles(nnk_run *run) {
    const nnk_plan *p = run->plan;
    run->work_rows = p->is_flat ? (run->rows && run->cols) : run->rows;
    run->work_cols = p->is_flat ? run->rows * run->cols : run->cols;
    run->tile = TILE_MAX;
    while (run->tile > TILE_MIN && p->saved.n_tile_bufs * run->tile * sizeof(float) > TILE_BYTES) run->tile /= 2;
    run->by_column = run->work_rows > 1 && run->work_cols > COLUMN_TILE && has_column_stride(run);
    if (run->by_column) run->tile = COLUMN_TILE;
    while (run->tile > TILE_MIN && run->tile / 2 >= run->work_rows * run->work_cols) run->tile /= 2;
    run->block_rows = run->work_cols == 0 ? run->tile : run->work_cols >= run->tile ? 1 : run->tile / run->work_cols;
    if (run->block_rows > run->work_rows) run->block_rows = run->work_rows ? run->work_rows : 1;
    run->saved_cols = run->work_cols > run->tile ? run->work_cols : run->tile;
    run->schedule = &p->saved;
    if (run->saved_cols > SAVED_BYTES / sizeof(float) / (p->saved.n_saved_bufs + 1)) {
        run->schedule = &p->recompute;
        run->saved_cols = 0;
    }
}

static bool is_reduce(const nnk_run *run) { return run->plan->spec.form == NNK_FORM_REDUCE; }

static void run_unit(nnk_context *ctx, const nnk_run *run, uint64_t unit) {
    if (run->chunks > 1) {
        uint64_t first = unit % run->chunks * NNK_REDUCE_CHUNK, rest = run->work_cols - first;
        nnk_context_block(ctx, unit / run->chunks, 1, first, rest < NNK_REDUCE_CHUNK ? rest : NNK_REDUCE_CHUNK);
        return;
    }
    uint64_t blocks = (run->work_rows + run->block_rows - 1) / run->block_rows;
    uint64_t block = run->by_column ? unit % blocks : unit / run->segments;
    uint64_t segment = run->by_column ? unit / blocks : unit % run->segments;
    uint64_t r0 = block * run->block_rows, left = run->work_rows - r0;
    size_t nr = left < run->block_rows ? (size_t)left : run->block_rows;
    uint64_t c0 = segment * run->tile;
    uint64_t nc = run->segments == 1 || run->work_cols - c0 < run->tile ? run->work_cols - c0 : run->tile;
    nnk_context_block(ctx, r0, nr, c0, nc);
}

typedef struct {
    const nnk_run *run;
    atomic_bool started; /* some thread had the memory to work */
} tile_work;

static void work_tiles(void *arg, nnk_job *job) {
    tile_work *work = arg;
    const nnk_run *run = work->run;
    nnk_context ctx;
    if (!nnk_context_init(&ctx, run)) return;
    atomic_store_explicit(&work->started, true, memory_order_relaxed);
    for (uint64_t item; nnk_job_next(job, &item);) {
        uint64_t end = (item + 1) * run->grain;
        if (end > run->units) end = run->units;
        for (uint64_t unit = item * run->grain; unit < end; unit++) run_unit(&ctx, run, unit);
    }
    nnk_context_free(&ctx);
}

static int run_tiles(nnk_run *run) {
    nnk_choose_tiles(run);
    uint64_t blocks = (run->work_rows + run->block_rows - 1) / run->block_rows;
    run->segments = is_reduce(run) || run->work_cols <= run->tile ? 1 : (run->work_cols + run->tile - 1) / run->tile;
    run->units = run->chunks > 1 ? run->work_rows * run->chunks : blocks * run->segments;
    if (run->units == 0) return NNK_OK;
    double total = run->plan->cost * (double)run->work_rows * (double)run->work_cols + 50.0 * (double)run->units;
    unsigned threads = total < PARALLEL_NS ? 1 : run->threads;
    double items = total / ITEM_NS;
    if (threads == 1 || items < 1.0) items = 1.0;
    if (items > 64.0 * threads) items = 64.0 * threads;
    run->grain = (uint64_t)((double)run->units / items);
    if (run->grain == 0) run->grain = 1;
    tile_work work = {.run = run};
    nnk_job_run(work_tiles, &work, (run->units + run->grain - 1) / run->grain, threads);
    if (!atomic_load(&work.started)) return nnk_fail(run->fault, NNK_NO_MEMORY, "Out of memory for tile buffers");
    return NNK_OK;
}

/* A reduction over a matmul: the segment's values first, then the reduction reads them. */
static int run_product(nnk_run *run) {
    uint64_t count = run->rows * run->cols;
    float *values = malloc((count ? count : 1) * sizeof *values);
    if (!values) return nnk_fail(run->fault, NNK_NO_MEMORY, "Out of memory for the values of a matmul");
    nnk_run inner = *run;
    inner.is_product = true;
    inner.out_type[0] = NNK_TYPE_FLOAT;
    inner.out[0] = (nnk_buffer){values, count * sizeof *values};
    run->product = values;
    return nnk_run_matmul(&inner);
}

static int run_reduce(nnk_run *run) {
    int failed = run->plan->spec.has_matmul ? run_product(run) : NNK_OK;
    if (!failed) failed = run->plan->spec.column ? nnk_run_columns(run) : run_tiles(run);
    free((void *)run->product);
    run->product = NULL;
    return failed;
}

int nnk_run_execute(nnk_run *run) {
    run->isa = nnk_isa_current();
    run->product = NULL;
    run->is_product = false;
    if (nnk_run_check(run)) return run->fault->kind;
    if (run->threads == 0) run->threads = nnk_cpu_count();
    switch (run->plan->spec.form) {
    case NNK_FORM_MATMUL: return nnk_run_matmul(run);
    case NNK_FORM_REDUCE: return run_reduce(run);
    case NNK_FORM_FOLD: return nnk_run_fold(run);
    default: return run_tiles(run);
    }
}
