/* A small pool of threads, made at the first parallel run and kept.
 *
 * One run at a time has the pool; a run that finds it taken goes on alone, so calls from several Python threads never
 * wait for each other. After a fork the child has no workers and makes its own.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "cpu.h"

#if NNK_X86
#include <immintrin.h>
#endif

enum { MAX_WORKERS = 255, SPINS = 2000 };

struct nnk_job {
    atomic_uint_least64_t next;
    uint64_t items;
    nnk_work work;
    void *arg;
};

static struct {
    pthread_mutex_t owner; /* held by the run that has the pool */
    pthread_mutex_t lock;  /* the fields below */
    pthread_cond_t wake, idle;
    unsigned workers;
    atomic_uint tickets;   /* workers that the job still wants */
    atomic_uint active;    /* workers inside the job */
    nnk_job *job;
} pool = {.owner = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER,
          .idle = PTHREAD_COND_INITIALIZER};

static inline void pause_cpu(void) {
#if NNK_X86
    _mm_pause();
#endif
}

bool nnk_job_next(nnk_job *job, uint64_t *item) {
    if (job->items == 1) { /* the common case of a small run: no atomic read-modify-write */
        uint64_t taken = atomic_load_explicit(&job->next, memory_order_relaxed);
        atomic_store_explicit(&job->next, 1, memory_order_relaxed);
        *item = 0;
        return taken == 0;
    }
    *item = atomic_fetch_add_explicit(&job->next, 1, memory_order_relaxed);
    return *item < job->items;
}

/* The contract needs round-to-nearest and subnormals, whatever the host process has set for its own use. */
static void work_exactly(nnk_job *job) {
#if NNK_X86 && defined(__SSE__)
    enum { DEFAULT_CONTROL = 0x1f80 };
    unsigned before = _mm_getcsr();
    _mm_setcsr(DEFAULT_CONTROL);
    job->work(job->arg, job);
    _mm_setcsr(before);
#elif defined(__aarch64__)
    uint64_t before, exact = 0;
    __asm__ volatile("mrs %0, fpcr" : "=r"(before));
    __asm__ volatile("msr fpcr, %0" : : "r"(exact));
    job->work(job->arg, job);
    __asm__ volatile("msr fpcr, %0" : : "r"(before));
#else
    job->work(job->arg, job);
#endif
}

static void *worker(void *unused) {
    (void)unused;
    pthread_mutex_lock(&pool.lock);
    for (;;) {
        while (atomic_load(&pool.tickets) == 0) {
            pthread_mutex_unlock(&pool.lock);
            for (int i = 0; i < SPINS && atomic_load_explicit(&pool.tickets, memory_order_relaxed) == 0; i++) pause_cpu();
            pthread_mutex_lock(&pool.lock);
            if (atomic_load(&pool.tickets) == 0) pthread_cond_wait(&pool.wake, &pool.lock);
        }
        atomic_fetch_sub(&pool.tickets, 1);
        atomic_fetch_add(&pool.active, 1);
        nnk_job *job = pool.job;
        pthread_mutex_unlock(&pool.lock);
        work_exactly(job);
        pthread_mutex_lock(&pool.lock);
        if (atomic_fetch_sub(&pool.active, 1) == 1) pthread_cond_signal(&pool.idle);
    }
    return NULL;
}

static void after_fork(void) {
    pthread_mutex_init(&pool.owner, NULL);
    pthread_mutex_init(&pool.lock, NULL);
    pthread_cond_init(&pool.wake, NULL);
    pthread_cond_init(&pool.idle, NULL);
    pool.workers = 0;
    atomic_store(&pool.tickets, 0);
    atomic_store(&pool.active, 0);
}

static void register_fork(void) { pthread_atfork(NULL, NULL, after_fork); }

/* Makes workers until there are `wanted`; fewer are no error. Signals stay with the threads of the host process. */
static void grow(unsigned wanted) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, register_fork);
    if (wanted > MAX_WORKERS) wanted = MAX_WORKERS;
    if (pool.workers >= wanted) return;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    for (pthread_t thread; pool.workers < wanted; pool.workers++)
        if (pthread_create(&thread, &attr, worker, NULL)) break;
    pthread_attr_destroy(&attr);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void nnk_job_run(nnk_work work, void *arg, uint64_t items, unsigned threads) {
    nnk_job job = {.items = items, .work = work, .arg = arg};
    if (items < threads) threads = (unsigned)items;
    if (threads <= 1 || pthread_mutex_trylock(&pool.owner)) {
        work_exactly(&job);
        return;
    }
    grow(threads - 1);
    pthread_mutex_lock(&pool.lock);
    pool.job = &job;
    unsigned helpers = threads - 1 < pool.workers ? threads - 1 : pool.workers;
    atomic_store(&pool.tickets, helpers);
    for (unsigned i = 0; i < helpers; i++) pthread_cond_signal(&pool.wake);
    pthread_mutex_unlock(&pool.lock);
    work_exactly(&job);
    pthread_mutex_lock(&pool.lock);
    atomic_store(&pool.tickets, 0); /* nobody may join any more: the job leaves with this frame */
    if (atomic_load(&pool.active)) {
        pthread_mutex_unlock(&pool.lock);
        for (int i = 0; i < SPINS && atomic_load(&pool.active); i++) pause_cpu();
        pthread_mutex_lock(&pool.lock);
        while (atomic_load(&pool.active)) pthread_cond_wait(&pool.idle, &pool.lock);
    }
    pool.job = NULL;
    pthread_mutex_unlock(&pool.lock);
    pthread_mutex_unlock(&pool.owner);
}

unsigned nnk_cpu_count(void) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        int count = CPU_COUNT(&set);
        if (count > 0) return (unsigned)count;
    }
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (unsigned)online : 1;
}

/* ---- instruction sets ---- */

size_t nnk_isa_list(const nnk_isa *list[3]) {
    size_t n = 0;
    list[n++] = &nnk_isa_base;
#if NNK_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2")) list[n++] = &nnk_isa_avx2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        list[n++] = &nnk_isa_avx512;
#endif
    return n;
}

static _Atomic(const nnk_isa *) current;

const nnk_isa *nnk_isa_current(void) {
    const nnk_isa *isa = atomic_load_explicit(&current, memory_order_relaxed);
    if (!isa) {
        const nnk_isa *list[3];
        isa = list[nnk_isa_list(list) - 1];
        atomic_store(&current, isa);
    }
    return isa;
}

bool nnk_isa_select(const char *name) {
    const nnk_isa *list[3];
    size_t n = nnk_isa_list(list);
    for (size_t i = 0; i < n; i++) {
        if (__builtin_strcmp(list[i]->name, name)) continue;
        atomic_store(&current, list[i]);
        return true;
    }
    return false;
}
