/* Where a token's time goes: every nanosecond of tf_forward is added to one part. */
#ifndef TF_PROFILER_H
#define TF_PROFILER_H

#include <time.h>

#include "tritforge.h"

typedef struct {
    uint64_t last;
    tf_profile sums;
} tf_profiler;

/* The kernel maps this clock into the process on every machine we run on but the Cortex-A9, where it is a call of
 * about a microsecond: a token has some 20 marks a layer, so half a millisecond of a token of 120. */
static inline uint64_t tf_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline void tf_profile_start(tf_profiler *profiler) { profiler->last = tf_now_ns(); }

/* What passed since the last mark belongs to `part`. */
static inline void tf_mark(tf_profiler *profiler, tf_part part) {
    uint64_t now = tf_now_ns();
    profiler->sums.nanoseconds[part] += now - profiler->last;
    profiler->last = now;
}

#endif
