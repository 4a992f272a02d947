#include "pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

/* A token has several hundred pieces of work, microseconds apart: helpers look for the next one for a while before they
 * sleep. About 50 microseconds; on a machine whose cores are taken, spinning longer only takes time from others. */
#define SPINS 2000

struct tf_pool {
    unsigned count;
    pthread_t threads[TF_LARGEST_POOL];
    tf_task task;
    void *argument;
    atomic_uint generation; /* raised for each piece of work; the release makes task and argument visible */
    atomic_uint pending;    /* helpers that have not finished it */
    atomic_bool closing;
    pthread_mutex_t lock; /* guards sleeping only */
    pthread_cond_t wake;
    struct member {
        tf_pool *pool;
        unsigned index;
    } members[TF_LARGEST_POOL];
};

static inline void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__) || defined(__arm__)
    __asm__ volatile("yield");
#endif
}

static void *help(void *argument) {
    struct member *me = argument;
    tf_pool *pool = me->pool;
    unsigned seen = 0;
    for (;;) {
        unsigned now = seen;
        for (int spin = 0; spin < SPINS; spin++) {
            now = atomic_load_explicit(&pool->generation, memory_order_acquire);
            if (now != seen) break;
            relax();
        }
        if (now == seen) {
            pthread_mutex_lock(&pool->lock);
            while ((now = atomic_load_explicit(&pool->generation, memory_order_acquire)) == seen)
                pthread_cond_wait(&pool->wake, &pool->lock);
            pthread_mutex_unlock(&pool->lock);
        }
        seen = now;
        if (atomic_load_explicit(&pool->closing, memory_order_relaxed)) return NULL;
        pool->task(pool->argument, me->index, pool->count);
        atomic_fetch_sub_explicit(&pool->pending, 1, memory_order_release);
    }
}

static void announce(tf_pool *pool) {
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add_explicit(&pool->generation, 1, memory_order_release);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
}

void tf_pool_run(tf_pool *pool, tf_task task, void *argument) {
    if (pool->count > 1) {
        pool->task = task;
        pool->argument = argument;
        atomic_store_explicit(&pool->pending, pool->count - 1, memory_order_relaxed);
        announce(pool);
    }
    task(argument, 0, pool->count);
    for (int spin = 0; pool->count > 1 && atomic_load_explicit(&pool->pending, memory_order_acquire); spin++) {
        if (spin < SPINS)
            relax();
        else
            sched_yield(); /* the helper may be waiting for this very core */
    }
}

tf_pool *tf_pool_open(unsigned threads) {
    tf_pool *pool = calloc(1, sizeof *pool);
    if (!pool) return NULL;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pool->count = 1;
    while (pool->count < threads) {
        struct member *member = pool->members + pool->count;
        *member = (struct member){pool, pool->count};
        if (pthread_create(pool->threads + pool->count, NULL, help, member) != 0) {
            tf_pool_close(pool);
            return NULL;
        }
        pool->count++;
    }
    return pool;
}

void tf_pool_close(tf_pool *pool) {
    if (!pool) return;
    atomic_store_explicit(&pool->closing, true, memory_order_relaxed);
    announce(pool);
    for (unsigned i = 1; i < pool->count; i++) pthread_join(pool->threads[i], NULL);
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}
