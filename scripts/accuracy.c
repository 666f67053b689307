/* The reference of scripts/accuracy.py: C's double functions, and the error of float results against them.
 *
 * An error of a double function, in glibc's vector form too, is below 2^-49 of the result; that is below 2^-25 units in
 * the last place of a float. The loops are written for the vectoriser.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

/* What math.h declares only under -ffast-math, which would change more than the calls. */
#ifdef VECTOR_LIBRARY
#define VECTOR __attribute__((__simd__("notinbranch")))
VECTOR double exp(double);
VECTOR double log(double);
VECTOR double sin(double);
VECTOR double cos(double);
VECTOR double tanh(double);
VECTOR double erf(double);
VECTOR double erfc(double);
VECTOR double exp2(double);
VECTOR double log2(double);
VECTOR double log1p(double);
VECTOR double expm1(double);
VECTOR double pow(double, double);
VECTOR double atan2(double, double);
#endif

enum { BLOCK = 256 };

typedef struct {
    double largest, largest_above; /* in units in the last place; the second where |exact| > floor */
    uint32_t at[2], above_at[2];   /* the operands' bits */
    uint64_t count, rounded_wrongly, wrong_kind; /* wrong_kind: NaN for a number, a number for NaN, another sign */
} state;

static inline double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static inline double silu(double x) {
    double y = x / (1 + exp(-x));
    return x < -700 ? -0.0 : y;
}
static inline double gelu(double x) {
    double y = x * (0.5 * erfc(x * -0.70710678118654752440));
    return x < -50 ? -0.0 : y;
}
static inline double gelu_tanh(double x) {
    double y = x / (1 + exp(-1.5957691216057307117598 * (x + 0.044715 * x * x * x)));
    return x < -50 ? -0.0 : x > 50 ? x : y;
}
static inline double rsqrt(double x) { return 1 / sqrt(x); }
static inline double floor_mod(double a, double b) {
    double r = fmod(a, b);
    if (r == 0) return copysign(0.0, b);
    return signbit(r) == signbit(b) ? r : r + b;
}

#define ONE(name) {#name, block_##name},
#define TWO(name, function) {#name, block_##name},
#define LIST(ONE, TWO)                                                                                            \
    ONE(exp) ONE(log) ONE(sqrt) ONE(rsqrt) ONE(tanh) ONE(erf) ONE(sigmoid) ONE(silu) ONE(gelu) ONE(gelu_tanh)     \
    ONE(sin) ONE(cos) ONE(exp2) ONE(log2) ONE(log1p) ONE(expm1) TWO(pow, pow) TWO(atan2, atan2) TWO(fmod, fmod)   \
    TWO(remainder, floor_mod)
#define LOOP(name, call)                                                                                          \
    static void block_##name(const float *restrict a, const float *restrict b, double *restrict y, long n) {      \
        (void)b;                                                                                                  \
        for (long i = 0; i < n; i++) y[i] = call;                                                                 \
    }
#define LOOP1(name) LOOP(name, name((double)a[i]))
#define LOOP2(name, function) LOOP(name, function((double)a[i], (double)b[i]))
LIST(LOOP1, LOOP2)

static const struct {
    const char *name;
    void (*block)(const float *restrict, const float *restrict, double *restrict, long);
} functions[] = {LIST(ONE, TWO)};

static inline double ulp_of(double exact) {
    int64_t e;
    memcpy(&e, &exact, 8);
    e = (e & 0x7ff0000000000000) - ((int64_t)23 << 52);
    const int64_t least = (int64_t)(1023 - 149) << 52, most = (int64_t)(1023 + 104) << 52;
    e = e < least ? least : e > most ? most : e;
    memcpy(&exact, &e, 8);
    return exact;
}

static inline double error_of(double exact, float found) {
    const float rounded = (float)exact;
    if (isnan(exact) || isnan(found) || (isinf(rounded) && rounded == found)) return 0;
    /* An infinity stands for the first power of two that overflows. */
    const double value = isinf(found) ? copysign(0x1p128, found) : found;
    return fabs(value - exact) / ulp_of(exact);
}

/* Counts what is no nearest float (differs says where), and what is of another kind. */
static uint32_t count_block(const double *restrict exact, const float *restrict found, long n, uint32_t *restrict differs,
                        state *s) {
    uint32_t wrongly = 0, kind = 0;
    for (long i = 0; i < n; i++) {
        const float rounded = (float)exact[i];
        uint32_t r, f;
        memcpy(&r, &rounded, 4);
        memcpy(&f, found + i, 4);
        const uint32_t exact_nan = (r & 0x7fffffff) > 0x7f800000, found_nan = (f & 0x7fffffff) > 0x7f800000;
        const uint32_t any = exact_nan | found_nan;
        kind += any ? exact_nan ^ found_nan : (r ^ f) >> 31;
        differs[i] = any ? 0 : r != f;
        wrongly += differs[i];
    }
    s->count += (uint64_t)n;
    s->rounded_wrongly += wrongly;
    s->wrong_kind += kind;
    return wrongly;
}

static void keep(double *largest, uint32_t *at, double error, const float *a, const float *b) {
    if (error <= *largest) return;
    *largest = error;
    memcpy(&at[0], a, 4);
    memcpy(&at[1], b, 4);
}

/* Adds n results of a function to the state. Returns 0 if there is no such function. */
int accuracy_add(const char *name, const float *a, const float *b, const float *found, long n, double above, state *s) {
    for (unsigned f = 0; f < sizeof functions / sizeof *functions; f++) {
        if (strcmp(functions[f].name, name)) continue;
        double exact[BLOCK];
        uint32_t differs[BLOCK];
        for (long at = 0; at < n; at += BLOCK) {
            const long m = n - at < BLOCK ? n - at : BLOCK;
            functions[f].block(a + at, b + at, exact, m);
            const uint32_t wrongly = count_block(exact, found + at, m, differs, s);
            /* A nearest float is at most half a unit off: beyond that only the others count. */
            const uint32_t all = s->largest < 0.5 || s->largest_above < 0.5;
            for (long i = 0; i < m && (wrongly | all); i++) {
                if (!(differs[i] | all)) continue;
                const double error = error_of(exact[i], found[at + i]);
                keep(&s->largest, s->at, error, a + at + i, b + at + i);
                if (fabs(exact[i]) > above) keep(&s->largest_above, s->above_at, error, a + at + i, b + at + i);
            }
        }
        return 1;
    }
    return 0;
}
