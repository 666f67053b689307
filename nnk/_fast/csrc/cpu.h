/* The CPU engine: what its C files share.
 *
 * A spec becomes a plan once (cpu_plan.c): nodes with a class, passes over a row, buffer numbers. A run (cpu_run.c)
 * reads the parameter words, checks every extent (cpu_check.c) and executes the plan tile by tile (cpu_tile.c) or
 * block by block behind a matmul (cpu_matmul.c), on the threads of a small pool (cpu_pool.c). Loops over elements are
 * compiled once for each instruction set (cpu_isa.inc) and give the same bits in each.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nnk_ops.h"

#if defined(__x86_64__) || defined(__i386__)
#define NNK_X86 1
#else
#define NNK_X86 0
#endif

enum { NNK_MAX_NODES = 128, NNK_MAX_WORDS = 320, NNK_MAX_OUTPUTS = NNK_MAX_EXTRAS + 1, NNK_MAX_ROW_DIMS = 7 };
enum { NNK_FORM_ELEMENTWISE, NNK_FORM_REDUCE, NNK_FORM_MATMUL, NNK_FORM_FOLD };

/* How the elements of a buffer are stored. WORD: 32 bits as they are; FLOAT: the same, NaN made canonical by a store.
 * Bytes and bools become integer words, and 1.0 or 0.0. */
enum { NNK_TYPE_WORD, NNK_TYPE_FLOAT, NNK_TYPE_F16, NNK_TYPE_BF16, NNK_TYPE_U8, NNK_TYPE_BOOL, NNK_TYPES };

static inline bool nnk_is_word(unsigned type) { return type <= NNK_TYPE_FLOAT; }
static inline size_t nnk_type_bytes(unsigned type) { return nnk_is_word(type) ? 4 : type <= NNK_TYPE_BF16 ? 2 : 1; }

/* ---- the spec, as the Cython module hands it over (sizes are checked there, contents in cpu_plan.c) ---- */

typedef struct {
    uint8_t op, dst;
    uint8_t kind[3], idx[3];
} nnk_raw_instr;

typedef struct {
    uint8_t kind, negate;
    uint32_t param;
    uint32_t word; /* first run-time parameter word of the slot */
} nnk_raw_view;

typedef struct {
    uint32_t n_states, n_body, n_finalize;
    uint32_t inits[NNK_MAX_FOLD_STATES];
    nnk_raw_instr body[NNK_MAX_FOLD_BODY], finalize[NNK_MAX_FOLD_FINALIZE];
    uint32_t has_matmul, a_input, b_input, trans_a, trans_b, tri_skip;
    uint32_t has_vecacc, weight_reg, v_input, scale_reg, has_scale;
} nnk_fold;

typedef struct {
    uint32_t form, n_instrs, n_views, n_regs, n_extras;
    uint32_t const_word, n_consts, rparam_word, n_rparams, n_words;
    uint32_t column;           /* form reduce: the reductions are those of columns */
    uint32_t has_matmul, a_input, b_input;
    uint32_t half_word;        /* first of the two words that say which slots are halves; 0: none is */
    uint8_t in_type[NNK_MAX_INPUTS], out_type[NNK_MAX_OUTPUTS];
    nnk_raw_instr instrs[NNK_MAX_INSTRS];
    nnk_raw_view views[NNK_MAX_INPUTS];
    uint8_t extras[NNK_MAX_EXTRAS];
    nnk_fold fold; /* form fold */
} nnk_spec;

/* ---- the plan ---- */

/* One value for the whole run, one for each line (a row, or a column of a column reduction), or one for each element. */
enum { NNK_UNIFORM, NNK_ROW, NNK_ELEM };
enum { NNK_NODE_INSTR, NNK_NODE_INPUT, NNK_NODE_WORD, NNK_NODE_MATMUL, NNK_NODE_ROW, NNK_NODE_COL, NNK_NODE_BATCH };

typedef struct {
    uint8_t kind, cls, op, arity;
    uint8_t level;     /* number of reductions that lie before the value */
    uint8_t is_reduce, is_live;
    uint8_t src[3];
    uint16_t index;    /* input slot or parameter word */
    uint8_t tile_buf;  /* scratch tile of a leaf that may need a copy, or of a row value spread over a tile */
    uint8_t row_buf;   /* buffer of a value of class row */
    uint8_t saved_buf; /* whole-row buffer of a value that a later pass reads */
    uint8_t is_saved, has_tile_buf;
} nnk_node;

enum { NNK_DST_TILE, NNK_DST_SAVED, NNK_DST_OUT };

/* What one pass over the columns of a block does, in this order. */
typedef struct {
    uint8_t n_rows, n_expand, n_leaves, n_elems, n_reduces;
    uint8_t rows[NNK_MAX_INSTRS];     /* instructions of class row */
    uint8_t expand[NNK_MAX_NODES];    /* row values that element code reads */
    uint8_t leaves[NNK_MAX_NODES];    /* element leaves to resolve for each tile */
    uint8_t elems[NNK_MAX_INSTRS];    /* instructions of class element */
    uint8_t dst_kind[NNK_MAX_INSTRS], dst[NNK_MAX_INSTRS];
    uint8_t reduces[NNK_MAX_INSTRS];
} nnk_pass;

typedef struct {
    uint32_t n_passes, n_tile_bufs, n_row_bufs, n_saved_bufs;
    nnk_pass *passes;
} nnk_schedule;

/* Where an instruction of a fold finds an operand (cpu_fold_plan.c). */
enum { NNK_FROM_ELEM, NNK_FROM_ROW, NNK_FROM_WORD, NNK_FROM_INPUT, NNK_FROM_SCORE, NNK_FROM_ROW_NUMBER,
       NNK_FROM_COL_NUMBER, NNK_FROM_BATCH, NNK_FROM_VECTOR };

typedef struct {
    uint8_t op, dst, arity, cls, is_reduce;
    uint8_t from[3];
    uint16_t index[3]; /* register, parameter word or input slot */
} nnk_fold_step;

typedef struct {
    nnk_fold_step body[NNK_MAX_FOLD_BODY], finalize[NNK_MAX_FOLD_FINALIZE];
    uint8_t weight_cls;
    double cost; /* rough nanoseconds for an element of a block */
} nnk_fold_plan;

typedef struct {
    nnk_spec spec;
    nnk_fold_plan fold;
    uint32_t n_nodes, n_outputs, n_uniform, n_row_leaves;
    nnk_node nodes[NNK_MAX_NODES];
    uint8_t out_node[NNK_MAX_OUTPUTS];
    uint8_t out_first[NNK_MAX_OUTPUTS]; /* output that holds the same node already */
    uint8_t uniform[NNK_MAX_INSTRS];
    uint8_t row_leaves[NNK_MAX_NODES];
    uint8_t splat_buf;
    uint8_t out_buf[NNK_MAX_OUTPUTS]; /* scratch tile of an output whose elements may not be words */
    bool is_flat;     /* reads linear inputs only: the grid may be taken as one long row */
    bool is_matmul_only;
    double cost;      /* rough nanoseconds for an element */
    nnk_schedule saved, recompute;
} nnk_plan;

typedef struct {
    int kind; /* NNK_OK or another of the codes below */
    char text[240];
} nnk_fault;

enum { NNK_OK, NNK_INVALID, NNK_UNSUPPORTED, NNK_EXTENT, NNK_INDEX, NNK_LIMIT, NNK_NO_MEMORY };

__attribute__((format(printf, 3, 4))) int nnk_fail(nnk_fault *fault, int kind, const char *format, ...);

int nnk_plan_build(nnk_plan *plan, nnk_fault *fault);
void nnk_plan_free(nnk_plan *plan);

/* ---- code for one instruction set ---- */

/* o[i] = op(a[i], b[i], c[i]); the variant says which operands are one value: bit 0 a, bit 1 b, bit 2 c. */
typedef void (*nnk_loop)(const float *a, const float *b, const float *c, float *o, size_t n);

enum { NNK_THIN_K = 8 };
enum { NNK_VARIANTS = 8, NNK_CANONICAL = 8, NNK_OP_CODES = 128 };

typedef struct {
    const char *name;
    const nnk_loop (*loops)[2 * NNK_VARIANTS]; /* [op][variant]; [op][variant + NNK_CANONICAL] makes NaN canonical */
    const uint8_t *arity;                      /* [op], 0: not an elementwise op */
    void (*canon)(float *x, size_t n);
    void (*canon_copy)(const float *x, float *o, size_t n);
    void (*load[NNK_TYPES])(const void *x, float *o, size_t n); /* elements of a type to words */
    void (*store[NNK_TYPES])(const float *x, void *o, size_t n);
    float (*row_sum)(const float *x, uint64_t n);
    float (*row_max)(const float *x, uint64_t n);
    /* Streaming sum: lanes hold NNK_REDUCE_LANES values, n elements start at lane 0. */
    void (*lanes_add)(float *lanes, const float *x, size_t n);
    float (*lanes_tree)(const float *lanes);
    uint32_t mr, nr;
    /* dst[k*mr + r] = src[off[r] + k*step] for r < rows, padding above it. */
    void (*pack_a)(const float *src, const int64_t *off, size_t rows, int64_t step, size_t kc, float *dst);
    /* dst[k*nr + j] = src[off[k] + j*step] for j < cols, padding above it. */
    void (*pack_b)(const float *src, const int64_t *off, size_t kc, int64_t step, size_t cols, float *dst);
    void (*gemm)(const float *ap, const float *bp, float *c, size_t ldc, size_t mc, size_t nc, size_t kc, bool first);
    /* c[j] += a[k] * b[k][j] for k < kc <= NNK_THIN_K ascending, j < n; first: c starts from the identity. */
    void (*thin)(const float *a, const float *const *b, size_t kc, float *c, size_t n, bool first);
} nnk_isa;

extern const nnk_isa nnk_isa_base;
#if NNK_X86
extern const nnk_isa nnk_isa_avx2, nnk_isa_avx512;
#endif

size_t nnk_isa_list(const nnk_isa *list[3]);
const nnk_isa *nnk_isa_current(void);
bool nnk_isa_select(const char *name);

/* ---- threads ---- */

typedef struct nnk_job nnk_job;
typedef void (*nnk_work)(void *arg, nnk_job *job);

bool nnk_job_next(nnk_job *job, uint64_t *item);
/* Calls work on up to `threads` threads, each of which takes items from the job until none is left. */
void nnk_job_run(nnk_work work, void *arg, uint64_t items, unsigned threads);
unsigned nnk_cpu_count(void);

/* ---- a run ---- */

typedef struct {
    int n;               /* row dimensions */
    uint32_t offset;
    uint32_t size[NNK_MAX_ROW_DIMS]; /* size[0] is what the rows leave */
    int64_t stride[NNK_MAX_ROW_DIMS], col_stride;
} nnk_strided;

typedef struct {
    const void *data;
    uint64_t bytes;
} nnk_buffer;

typedef struct {
    const nnk_plan *plan;
    const nnk_schedule *schedule;
    const nnk_isa *isa;
    uint32_t words[NNK_MAX_WORDS];
    nnk_buffer in[NNK_MAX_INPUTS];
    nnk_buffer out[NNK_MAX_OUTPUTS];
    uint64_t rows, cols;      /* the grid */
    uint64_t m, k, batch;     /* matmul: rows of a batch, inner size, batches; fold: k is that of its matmul */
    uint64_t first_row, first_batch; /* fold: the numbers of each batch's first row, and of the first batch */
    uint64_t k_first, k_end;  /* matmul: the part of k that is added; the sums are in the output before and behind it */
    uint64_t out_cols;        /* fold: columns of the output, cols is its length */
    uint32_t trans;
    bool vector_out;
    uint64_t chunks;          /* results of a line: 1, or one for each chunk of it */
    bool is_product;          /* the output takes the bare matmul segment */
    const float *product;     /* where the matmul segment's values lie, instead of in the output */
    uint8_t in_type[NNK_MAX_INPUTS], out_type[NNK_MAX_OUTPUTS];
    float *sums; /* matmul: where sums wait between blocks of k; the output itself where that has words */
    uint64_t work_rows, work_cols; /* the grid as the tiles see it (one long row where is_flat) */
    size_t tile, block_rows, saved_cols;
    nnk_strided strided[NNK_MAX_INPUTS];
    unsigned threads;
    nnk_fault *fault;
    uint64_t units, grain, segments;
    bool by_column;
} nnk_run;

/* The fold form: plan, check and run (cpu_fold_plan.c, cpu_fold.c). */
int nnk_fold_plan_build(nnk_plan *plan, nnk_fault *fault);
int nnk_fold_check(nnk_run *run);
int nnk_run_fold(nnk_run *run);
uint32_t nnk_words_of_view(const nnk_raw_view *view);
int nnk_layout_check(const nnk_spec *spec, nnk_fault *fault);

/* Reads the words of a strided view and checks that it stays inside its buffer on a grid of rows and columns. */
int nnk_check_strided(nnk_run *run, unsigned slot, uint64_t rows, uint64_t cols);
/* Reads the words, checks that every access stays inside its buffer. */
int nnk_run_check(nnk_run *run);
/* The caller fills plan, words, in, out, threads and fault. */
int nnk_run_execute(nnk_run *run);
int nnk_run_matmul(nnk_run *run);
int nnk_run_columns(nnk_run *run);
void nnk_choose_tiles(nnk_run *run);

/* Slots that hold words. */
static inline const float *nnk_in(const nnk_run *run, unsigned slot) { return (const float *)run->in[slot].data; }
static inline float *nnk_out(const nnk_run *run, unsigned slot) { return (float *)run->out[slot].data; }

/* The address of an element of any type. */
static inline const void *nnk_in_at(const nnk_run *run, unsigned slot, int64_t element) {
    return (const char *)run->in[slot].data + element * (int64_t)nnk_type_bytes(run->in_type[slot]);
}
static inline void *nnk_out_at(const nnk_run *run, unsigned slot, uint64_t element) {
    return (char *)(uintptr_t)run->out[slot].data + element * nnk_type_bytes(run->out_type[slot]);
}
static inline void nnk_load(const nnk_run *run, unsigned slot, int64_t element, float *o, size_t n) {
    run->isa->load[run->in_type[slot]](nnk_in_at(run, slot, element), o, n);
}
static inline float nnk_load_one(const nnk_run *run, unsigned slot, int64_t element) {
    float value;
    nnk_load(run, slot, element, &value, 1);
    return value;
}
static inline void nnk_store(const nnk_run *run, unsigned slot, uint64_t element, const float *x, size_t n) {
    run->isa->store[run->out_type[slot]](x, nnk_out_at(run, slot, element), n);
}

/* A position in the rows of a strided view. */
typedef struct {
    uint32_t i[NNK_MAX_ROW_DIMS];
    int64_t base;
} nnk_odometer;

void nnk_odometer_set(nnk_odometer *od, const nnk_strided *view, uint64_t row);
void nnk_odometer_next(nnk_odometer *od, const nnk_strided *view);

/* ---- tiles ---- */

typedef struct {
    float *lanes; /* three levels of NNK_REDUCE_LANES */
    uint64_t seen[3];
    float maximum;
} nnk_accumulator;

typedef struct {
    const nnk_run *run;
    float *memory;
    const float *loc[NNK_MAX_NODES];     /* where element code reads a node */
    const float *row_loc[NNK_MAX_NODES]; /* where row code reads it */
    uint8_t is_scalar[NNK_MAX_NODES];    /* loc points to one value */
    float uniform[NNK_MAX_NODES];
    float *tiles, *row_bufs, *saved;
    nnk_accumulator *acc;
    size_t filled_rows[NNK_MAX_NODES];   /* rows of a leaf's tile that are valid for every block from column 0 */
    size_t row_capacity;
} nnk_context;

bool nnk_context_init(nnk_context *ctx, const nnk_run *run);
void nnk_context_free(nnk_context *ctx);
/* Runs all passes over nr rows from r0 and the columns [c0, c0 + nc); nr > 1 only over whole rows. */
void nnk_context_block(nnk_context *ctx, uint64_t r0, size_t nr, uint64_t c0, uint64_t nc);

typedef struct {
    uint64_t r0, c0;
    size_t nr, nc;
} nnk_window;

/* The steps of a pass over one window. */
void nnk_tile_leaf(nnk_context *ctx, unsigned node, nnk_window w);
void nnk_tile_elem(nnk_context *ctx, const nnk_pass *pass, unsigned i, nnk_window w);
const float *nnk_tile_operand(nnk_context *ctx, unsigned node, size_t n); /* as n values */
void nnk_tile_store(nnk_context *ctx, nnk_window w);
void nnk_row_instr(nnk_context *ctx, unsigned node, size_t n);
uint64_t nnk_index_at(const nnk_run *run, const nnk_raw_view *view, uint64_t i);

/* ---- columns ---- */

/* o[j] = sum (R7) or maximum (R6) over i < n of element first + i * stride + j of an input, for j < width. */
void nnk_column_sum(const nnk_run *run, unsigned slot, uint64_t first, uint64_t stride, uint64_t n, size_t width,
                    float *o);
void nnk_column_max(const nnk_run *run, unsigned slot, uint64_t first, uint64_t stride, uint64_t n, size_t width,
                    float *o);
