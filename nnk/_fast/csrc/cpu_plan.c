/* From a spec to a plan: nodes in static single assignment form, their classes, passes, and buffer numbers.
 *
 * Everything that the spec says is checked here, so that the other files may trust the plan.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu.h"

int nnk_fail(nnk_fault *fault, int kind, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(fault->text, sizeof fault->text, format, args);
    va_end(args);
    return fault->kind = kind;
}

static bool is_reduce_op(unsigned op) { return op >= NNK_OP_COL_SUM && op <= NNK_OP_ROW_MAX; }

static bool is_column_op(unsigned op) { return op == NNK_OP_COL_SUM || op == NNK_OP_COL_MAX; }

/* -1 for a view that this form of kernel cannot read. */
static int class_of_view(const nnk_spec *s, unsigned kind) {
    bool is_reduce = s->form == NNK_FORM_REDUCE;
    switch (kind) {
    case NNK_VIEW_ROW_REDUCE_SUM:
    case NNK_VIEW_ROW_REDUCE_MAX: return is_reduce && !s->column ? NNK_ROW : -1;
    case NNK_VIEW_COL_REDUCE_SUM:
    case NNK_VIEW_COL_REDUCE_MAX: return is_reduce && s->column ? NNK_ROW : -1;
    case NNK_VIEW_ROW_BROADCAST:
    case NNK_VIEW_BATCH_MOD: return s->column ? NNK_ELEM : NNK_ROW;
    case NNK_VIEW_COL_BROADCAST:
    case NNK_VIEW_ROW_GATHER: return s->column ? NNK_ROW : NNK_ELEM;
    case NNK_VIEW_LINEAR:
    case NNK_VIEW_HEAD_GROUP:
    case NNK_VIEW_ROTATE_HALF:
    case NNK_VIEW_ROW_MOD:
    case NNK_VIEW_BATCH_COL:
    case NNK_VIEW_ROW_ACCESS:
    case NNK_VIEW_GROUPED_REDUCE_SUM:
    case NNK_VIEW_GROUPED_REDUCE_MAX:
    case NNK_VIEW_STRIDED:
    case NNK_VIEW_TAKE: return NNK_ELEM;
    default: return -1;
    }
}

uint32_t nnk_words_of_view(const nnk_raw_view *view) {
    switch (view->kind) {
    case NNK_VIEW_ROTATE_HALF:
    case NNK_VIEW_ROW_MOD:
    case NNK_VIEW_BATCH_MOD:
    case NNK_VIEW_BATCH_COL:
    case NNK_VIEW_GROUPED_REDUCE_SUM:
    case NNK_VIEW_GROUPED_REDUCE_MAX:
    case NNK_VIEW_HEAD_GROUP: return 1;
    case NNK_VIEW_ROW_ACCESS: return 2;
    case NNK_VIEW_STRIDED: return 2 * view->param + 1;
    default: return 0;
    }
}

/* Whether an input may hold elements that are not words: then it is read through a tile of its own. */
static bool may_convert(const nnk_spec *s, unsigned slot) { return s->half_word || !nnk_is_word(s->in_type[slot]); }

int nnk_layout_check(const nnk_spec *s, nnk_fault *fault) {
    static const uint32_t head[] = {2, 4, 8, 5}, reduce_matmul_head = 7;
    uint32_t head_words = s->form == NNK_FORM_REDUCE && s->has_matmul ? reduce_matmul_head : head[s->form];
    if (s->half_word && (s->half_word < head_words || s->half_word > NNK_MAX_WORDS || s->half_word + 2 > s->n_words))
        return nnk_fail(fault, NNK_INVALID, "The words that say which slots are halves pass the %u parameter words",
                        s->n_words);
    if (s->n_words > NNK_MAX_WORDS)
        return nnk_fail(fault, NNK_INVALID, "Expected at most %d parameter words, got %u", NNK_MAX_WORDS, s->n_words);
    if (s->n_words < head_words || s->n_consts > s->n_words || s->const_word > s->n_words - s->n_consts ||
        s->n_rparams > s->n_words || s->rparam_word > s->n_words - s->n_rparams)
        return nnk_fail(fault, NNK_INVALID, "Parameter offsets of the kernel meta pass its %u words", s->n_words);
    for (uint32_t i = 0; i < s->n_views; i++) {
        const nnk_raw_view *view = &s->views[i];
        if (view->kind == NNK_VIEW_STRIDED && view->param != 3 && view->param != 7)
            return nnk_fail(fault, NNK_UNSUPPORTED, "Expected 3 or 7 row dimensions in the strided view of input %u, "
                            "got %u", i, view->param);
        uint32_t words = nnk_words_of_view(view);
        if (words > s->n_words || view->word > s->n_words - words)
            return nnk_fail(fault, NNK_INVALID, "View parameters of input %u pass the %u parameter words", i,
                            s->n_words);
        bool has_index = view->kind == NNK_VIEW_TAKE || view->kind == NNK_VIEW_ROW_GATHER;
        if (has_index && view->param >= s->n_views)
            return nnk_fail(fault, NNK_INVALID, "Input %u takes its indices from input %u, but there are %u inputs", i,
                            view->param, s->n_views);
    }
    return NNK_OK;
}

/* ---- nodes ---- */

static int leaf(nnk_plan *p, unsigned kind, unsigned index, unsigned cls) {
    for (uint32_t i = 0; i < p->n_nodes; i++)
        if (p->nodes[i].kind == kind && p->nodes[i].index == index) return (int)i;
    nnk_node *node = &p->nodes[p->n_nodes];
    *node = (nnk_node){.kind = (uint8_t)kind, .cls = (uint8_t)cls, .index = (uint16_t)index};
    return (int)p->n_nodes++;
}

/* The node of an operand, or -1 after filling the fault. */
static int operand(nnk_plan *p, unsigned n, unsigned kind, unsigned idx, const int *def, nnk_fault *fault) {
    const nnk_spec *s = &p->spec;
    const char *what = NULL;
    switch (kind) {
    case NNK_OPERAND_REG:
    case NNK_OPERAND_FANOUT:
    case NNK_OPERAND_REDUCE:
        if (idx >= s->n_regs || def[idx] < 0) {
            nnk_fail(fault, NNK_INVALID, "Instruction %u reads register %u before anything is written to it", n, idx);
            return -1;
        }
        if ((kind == NNK_OPERAND_REDUCE) != p->nodes[def[idx]].is_reduce) {
            nnk_fail(fault, NNK_INVALID, "Instruction %u reads register %u as %s, but it holds the other kind", n, idx,
                     kind == NNK_OPERAND_REDUCE ? "a reduction" : "a plain value");
            return -1;
        }
        return def[idx];
    case NNK_OPERAND_INPUT: {
        if (idx >= s->n_views) { what = "input"; break; }
        int cls = class_of_view(s, s->views[idx].kind);
        if (cls < 0) {
            nnk_fail(fault, NNK_INVALID, "Instruction %u reads input %u through view %u, which no kernel of this form "
                     "and reduce axis has", n, idx, s->views[idx].kind);
            return -1;
        }
        return leaf(p, NNK_NODE_INPUT, idx, (unsigned)cls);
    }
    case NNK_OPERAND_CONST:
        if (idx >= s->n_consts) { what = "constant"; break; }
        return leaf(p, NNK_NODE_WORD, s->const_word + idx, NNK_UNIFORM);
    case NNK_OPERAND_RPARAM:
        if (idx >= s->n_rparams) { what = "run-time parameter"; break; }
        return leaf(p, NNK_NODE_WORD, s->rparam_word + idx, NNK_UNIFORM);
    case NNK_OPERAND_MATMUL:
        if (!s->has_matmul) { what = "matmul operand"; break; }
        return leaf(p, NNK_NODE_MATMUL, 0, NNK_ELEM);
    case NNK_OPERAND_ROW: return leaf(p, NNK_NODE_ROW, 0, s->column ? NNK_ELEM : NNK_ROW);
    case NNK_OPERAND_COL: return leaf(p, NNK_NODE_COL, 0, s->column ? NNK_ROW : NNK_ELEM);
    case NNK_OPERAND_BATCH: return leaf(p, NNK_NODE_BATCH, 0, s->column ? NNK_ELEM : NNK_ROW);
    default:
        nnk_fail(fault, NNK_UNSUPPORTED, "The CPU engine does not run operand kind %u (instruction %u)", kind, n);
        return -1;
    }
    nnk_fail(fault, NNK_INVALID, "Instruction %u reads %s %u, which does not exist", n, what, idx);
    return -1;
}

static int add_instr(nnk_plan *p, unsigned n, int *def, nnk_fault *fault) {
    const nnk_raw_instr *raw = &p->spec.instrs[n];
    nnk_node node = {.kind = NNK_NODE_INSTR, .op = raw->op, .cls = NNK_UNIFORM};
    node.is_reduce = is_reduce_op(raw->op);
    node.arity = node.is_reduce ? 1 : raw->op < NNK_OP_CODES ? nnk_isa_base.arity[raw->op] : 0;
    if (node.arity == 0)
        return nnk_fail(fault, NNK_UNSUPPORTED, "The CPU engine does not run op %u (instruction %u)", raw->op, n);
    if (node.is_reduce && p->spec.form != NNK_FORM_REDUCE)
        return nnk_fail(fault, NNK_INVALID, "Instruction %u is a reduction, but the kernel form is not reduce", n);
    if (node.is_reduce && is_column_op(raw->op) != (p->spec.column != 0))
        return nnk_fail(fault, NNK_INVALID, "Instruction %u reduces %s in a kernel that reduces the other axis", n,
                        p->spec.column ? "rows" : "columns");
    if (raw->dst >= p->spec.n_regs)
        return nnk_fail(fault, NNK_INVALID, "Instruction %u writes register %u of %u", n, raw->dst, p->spec.n_regs);
    for (unsigned i = 0; i < node.arity; i++) {
        int src = operand(p, n, raw->kind[i], raw->idx[i], def, fault);
        if (src < 0) return fault->kind;
        const nnk_node *from = &p->nodes[src];
        unsigned level = from->level + from->is_reduce;
        node.src[i] = (uint8_t)src;
        if (level > node.level) node.level = (uint8_t)level;
        if (from->cls > node.cls) node.cls = from->cls;
    }
    if (node.is_reduce) node.cls = NNK_ROW;
    def[raw->dst] = (int)p->n_nodes;
    p->nodes[p->n_nodes++] = node;
    return NNK_OK;
}

static int build_nodes(nnk_plan *p, nnk_fault *fault) {
    const nnk_spec *s = &p->spec;
    int def[NNK_MAX_REGS];
    memset(def, -1, sizeof def);
    int last = -1;
    for (unsigned n = 0; n < s->n_instrs; n++) {
        if (add_instr(p, n, def, fault)) return fault->kind;
        last = (int)p->n_nodes - 1;
    }
    if (last < 0) {
        if (!s->has_matmul)
            return nnk_fail(fault, NNK_INVALID, "A spec without instructions and without a matmul has no result");
        p->is_matmul_only = s->form == NNK_FORM_MATMUL;
        last = leaf(p, NNK_NODE_MATMUL, 0, NNK_ELEM);
    }
    if (s->n_extras && s->form != NNK_FORM_ELEMENTWISE)
        return nnk_fail(fault, NNK_UNSUPPORTED, "Only elementwise kernels have more than one output");
    p->n_outputs = 1 + s->n_extras;
    p->out_node[0] = (uint8_t)last;
    for (unsigned i = 0; i < s->n_extras; i++) {
        unsigned reg = s->extras[i];
        if (reg >= s->n_regs || def[reg] < 0)
            return nnk_fail(fault, NNK_INVALID, "Output %u is register %u, which nothing is written to", i + 1, reg);
        p->out_node[i + 1] = (uint8_t)def[reg];
    }
    for (unsigned i = 0; i < p->n_outputs; i++)
        for (unsigned j = i + 1; j-- > 0;)
            if (p->out_node[j] == p->out_node[i]) p->out_first[i] = (uint8_t)j;
    return NNK_OK;
}

static void mark_live(nnk_plan *p) {
    for (unsigned i = 0; i < p->n_outputs; i++) p->nodes[p->out_node[i]].is_live = 1;
    for (int v = (int)p->n_nodes - 1; v >= 0; v--) {
        const nnk_node *node = &p->nodes[v];
        if (!node->is_live || node->kind != NNK_NODE_INSTR) continue;
        for (unsigned i = 0; i < node->arity; i++) p->nodes[node->src[i]].is_live = 1;
    }
}

/* ---- schedules ---- */

typedef struct {
    bool need[NNK_MAX_INSTRS + 1][NNK_MAX_NODES]; /* [pass][node]: element code computes or reads the node */
    bool cross[NNK_MAX_NODES];                    /* a later pass reads the node */
} nnk_needs;

static void need(const nnk_plan *p, nnk_needs *w, unsigned pass, unsigned v, bool save) {
    const nnk_node *node = &p->nodes[v];
    if (save && node->kind == NNK_NODE_INSTR && node->cls == NNK_ELEM && node->level < pass) {
        w->cross[v] = true;
        w->need[node->level][v] = true;
    } else {
        w->need[pass][v] = true;
    }
}

static void find_needs(const nnk_plan *p, nnk_needs *w, unsigned n_passes, bool save) {
    memset(w, 0, sizeof *w);
    for (unsigned i = 0; i < p->n_outputs; i++) need(p, w, n_passes - 1, p->out_node[i], save);
    for (int pass = (int)n_passes - 1; pass >= 0; pass--) {
        for (unsigned v = 0; v < p->n_nodes; v++)
            if (p->nodes[v].is_live && p->nodes[v].is_reduce && p->nodes[v].level == pass)
                need(p, w, (unsigned)pass, p->nodes[v].src[0], save);
        for (int v = (int)p->n_nodes - 1; v >= 0; v--) {
            const nnk_node *node = &p->nodes[v];
            if (!w->need[pass][v] || node->kind != NNK_NODE_INSTR || node->cls != NNK_ELEM) continue;
            for (unsigned i = 0; i < node->arity; i++) need(p, w, (unsigned)pass, node->src[i], save);
        }
    }
}

static int output_of(const nnk_plan *p, unsigned v) {
    for (unsigned i = 0; i < p->n_outputs; i++)
        if (p->out_node[i] == v) return (int)i;
    return -1;
}

/* Gives each value of a pass that lives in a tile a buffer; a buffer is free again after the value's last use. */
static void assign_tiles(const nnk_plan *p, nnk_pass *pass, uint32_t first, uint32_t *n_bufs) {
    int last_use[NNK_MAX_NODES];
    uint8_t in_use[NNK_MAX_NODES] = {0}, buf_of[NNK_MAX_NODES];
    memset(last_use, -1, sizeof last_use);
    for (int i = 0; i < pass->n_elems; i++)
        for (unsigned j = 0; j < p->nodes[pass->elems[i]].arity; j++) last_use[p->nodes[pass->elems[i]].src[j]] = i;
    for (unsigned i = 0; i < pass->n_reduces; i++) last_use[p->nodes[pass->reduces[i]].src[0]] = NNK_MAX_INSTRS;
    for (int i = 0; i < pass->n_elems; i++) {
        for (int j = 0; j < i; j++)
            if (pass->dst_kind[j] == NNK_DST_TILE && last_use[pass->elems[j]] < i) in_use[buf_of[j]] = 0;
        if (pass->dst_kind[i] != NNK_DST_TILE) continue;
        uint8_t buf = 0;
        while (in_use[buf]) buf++;
        in_use[buf] = 1;
        buf_of[i] = buf;
        pass->dst[i] = (uint8_t)(first + buf);
        if (first + buf + 1 > *n_bufs) *n_bufs = first + buf + 1;
        /* A buffer that was freed and taken again must not be freed by its first owner once more. */
        for (int j = 0; j < i; j++)
            if (pass->dst_kind[j] == NNK_DST_TILE && buf_of[j] == buf) last_use[pass->elems[j]] = NNK_MAX_INSTRS;
    }
}

static void fill_pass(const nnk_plan *p, nnk_pass *pass, const bool *needed, unsigned level, bool save) {
    for (unsigned v = 0; v < p->n_nodes; v++) {
        const nnk_node *node = &p->nodes[v];
        if (!node->is_live) continue;
        bool is_instr = node->kind == NNK_NODE_INSTR;
        if (is_instr && node->cls == NNK_ROW && node->level == level) {
            if (node->is_reduce) pass->reduces[pass->n_reduces++] = (uint8_t)v;
            else pass->rows[pass->n_rows++] = (uint8_t)v;
        }
        if (!needed[v] || node->cls == NNK_UNIFORM) continue;
        if (node->cls == NNK_ROW) pass->expand[pass->n_expand++] = (uint8_t)v;
        else if (!is_instr) pass->leaves[pass->n_leaves++] = (uint8_t)v;
        else {
            unsigned i = pass->n_elems++;
            int out = output_of(p, v);
            pass->elems[i] = (uint8_t)v;
            pass->dst_kind[i] = NNK_DST_TILE;
            if (out >= 0) pass->dst_kind[i] = NNK_DST_OUT, pass->dst[i] = (uint8_t)out;
            else if (save && node->is_saved) pass->dst_kind[i] = NNK_DST_SAVED, pass->dst[i] = node->saved_buf;
        }
    }
}

static int build_schedule(nnk_plan *p, nnk_schedule *schedule, unsigned n_passes, bool save, nnk_fault *fault) {
    nnk_needs *w = malloc(sizeof *w);
    schedule->passes = calloc(n_passes, sizeof *schedule->passes);
    schedule->n_passes = n_passes;
    if (!w || !schedule->passes) {
        free(w);
        return nnk_fail(fault, NNK_NO_MEMORY, "Out of memory while planning a kernel");
    }
    find_needs(p, w, n_passes, save);
    for (unsigned v = 0; save && v < p->n_nodes; v++)
        if (w->cross[v]) p->nodes[v].is_saved = 1, p->nodes[v].saved_buf = (uint8_t)schedule->n_saved_bufs++;
    for (unsigned v = 0; v < p->n_nodes; v++)
        if (p->nodes[v].is_live && p->nodes[v].has_tile_buf) schedule->n_tile_bufs++;
    schedule->n_tile_bufs++; /* the splat buffer */
    for (unsigned i = 0; i < p->n_outputs; i++)
        if (p->out_buf[i] != p->splat_buf) schedule->n_tile_bufs++;
    for (unsigned v = 0; v < p->n_nodes; v++)
        if (p->nodes[v].is_live && p->nodes[v].cls == NNK_ROW) schedule->n_row_bufs++;
    uint32_t first = schedule->n_tile_bufs;
    for (unsigned i = 0; i < n_passes; i++) {
        fill_pass(p, &schedule->passes[i], w->need[i], i, save);
        assign_tiles(p, &schedule->passes[i], first, &schedule->n_tile_bufs);
    }
    free(w);
    return NNK_OK;
}

/* Fixed buffers: one tile for each leaf that may need a copy and each row value that may be spread, one row buffer
 * for each row value, one tile for a single value spread over a row. */
static void number_buffers(nnk_plan *p) {
    unsigned tiles = 0, rows = 0;
    for (unsigned v = 0; v < p->n_nodes; v++) {
        nnk_node *node = &p->nodes[v];
        if (!node->is_live) continue;
        bool in_place = node->kind == NNK_NODE_MATMUL || node->kind == NNK_NODE_INSTR ||
                        (node->kind == NNK_NODE_INPUT && !may_convert(&p->spec, node->index) &&
                         (p->spec.views[node->index].kind == NNK_VIEW_LINEAR ||
                          p->spec.views[node->index].kind == NNK_VIEW_HEAD_GROUP));
        node->has_tile_buf = node->cls == NNK_ROW || (node->cls == NNK_ELEM && !in_place);
        if (node->has_tile_buf) node->tile_buf = (uint8_t)tiles++;
        if (node->cls == NNK_ROW) node->row_buf = (uint8_t)rows++;
    }
    p->splat_buf = (uint8_t)tiles;
    for (unsigned i = 0; i < p->n_outputs; i++) {
        bool is_own = p->spec.half_word || p->spec.out_type[i] != NNK_TYPE_FLOAT;
        p->out_buf[i] = is_own ? (uint8_t)++tiles : p->splat_buf;
    }
}

static void summarise(nnk_plan *p) {
    p->is_flat = p->spec.form == NNK_FORM_ELEMENTWISE;
    p->cost = 0.2;
    for (unsigned v = 0; v < p->n_nodes; v++) {
        const nnk_node *node = &p->nodes[v];
        if (!node->is_live) continue;
        bool is_linear = node->kind == NNK_NODE_INPUT && p->spec.views[node->index].kind == NNK_VIEW_LINEAR;
        if (node->cls == NNK_ROW || (node->cls == NNK_ELEM && node->kind != NNK_NODE_INSTR && !is_linear))
            p->is_flat = false;
        if (node->cls == NNK_ELEM) p->cost += node->kind == NNK_NODE_INSTR && node->arity == 1 ? 1.5 : 0.2;
        if (node->kind == NNK_NODE_INSTR && node->cls == NNK_UNIFORM) p->uniform[p->n_uniform++] = (uint8_t)v;
        if (node->kind != NNK_NODE_INSTR && node->cls == NNK_ROW) p->row_leaves[p->n_row_leaves++] = (uint8_t)v;
    }
}

int nnk_plan_build(nnk_plan *p, nnk_fault *fault) {
    if (nnk_layout_check(&p->spec, fault)) return fault->kind;
    if (p->spec.form == NNK_FORM_FOLD) return nnk_fold_plan_build(p, fault);
    if (build_nodes(p, fault)) return fault->kind;
    mark_live(p);
    number_buffers(p);
    summarise(p);
    unsigned n_passes = 1;
    for (unsigned i = 0; i < p->n_outputs; i++) {
        const nnk_node *out = &p->nodes[p->out_node[i]];
        if (out->level + out->is_reduce + 1u > n_passes) n_passes = out->level + out->is_reduce + 1u;
    }
    if (build_schedule(p, &p->saved, n_passes, true, fault)) return fault->kind;
    return build_schedule(p, &p->recompute, n_passes, false, fault);
}

void nnk_plan_free(nnk_plan *p) {
    free(p->saved.passes);
    free(p->recompute.passes);
}
