/* Helper threads that share one piece of work at a time. */
#ifndef TF_POOL_H
#define TF_POOL_H

#include "tritforge.h"

#define TF_LARGEST_POOL 16

typedef struct tf_pool tf_pool;

/* Part `index` of `count` of some work. */
typedef void (*tf_task)(void *argument, unsigned index, unsigned count);

/* A pool of `threads` threads, the caller's among them; NULL if they cannot be had. */
tf_pool *tf_pool_open(unsigned threads);
void tf_pool_close(tf_pool *pool);

/* Runs all parts, part 0 in the calling thread, and returns when all are done. */
void tf_pool_run(tf_pool *pool, tf_task task, void *argument);

/* The half-open range of part `index` when `total` things in units of `unit` are divided; the last takes the rest. */
static inline void tf_share(uint32_t total, uint32_t unit, unsigned index, unsigned count, uint32_t *from, uint32_t *to) {
    uint64_t units = total / unit;
    *from = (uint32_t)(units * index / count) * unit;
    *to = index + 1 == count ? total : (uint32_t)(units * (index + 1) / count) * unit;
}

#endif
