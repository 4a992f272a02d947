/* The two circuits as the forward pass sees them: something that multiplies a group of matrices by an int8 vector, and
 * something that attends. Behind it is either the DMA driver (driver.c) or this machine (host.c).
 *
 * A group's rows are divided over two ports, port 0 first. `start` returns at once where it can; `wait` returns when
 * the first `rows` results of each port's share are there (a port with fewer has all of its own there).
 */
#ifndef TF_CIRCUITS_H
#define TF_CIRCUITS_H

#include "image.h"
#include "pool.h"
#include "profile.h"

#define TF_ALL_ROWS UINT32_MAX

typedef struct {
    void *self;
    /* Where x of the group is to be written (row length bytes) before matvec_start; ordinary memory. */
    int8_t *(*x)(void *self, uint32_t layer, uint32_t group);
    tf_status (*matvec_start)(void *self, uint32_t layer, uint32_t group);
    tf_status (*matvec_wait)(void *self, uint32_t rows);
    /* Results from row `first` of the port's share of the started group on; *count is how many lie there in a row. */
    const int32_t *(*matvec_rows)(void *self, uint32_t port, uint32_t first, uint32_t *count);

    /* Where q of a head, and K and V of a head at a position, are to be written (head_dim bytes each). */
    int8_t *(*q)(void *self, uint32_t head);
    int8_t *(*key)(void *self, uint32_t layer, uint32_t head, uint32_t position);
    int8_t *(*value)(void *self, uint32_t layer, uint32_t head, uint32_t position);
    /* Attend over `positions` positions of all heads with multipliers m[head]. */
    tf_status (*attention_start)(void *self, uint32_t layer, uint32_t positions, const int32_t *m);
    tf_status (*attention_wait)(void *self);
    /* head_dim numerators and then the denominator. */
    const int32_t *(*attention_sums)(void *self, uint32_t head);

    /* Back to the state after opening (after a failure). */
    tf_status (*reset)(void *self);
    void (*close)(void *self);
} tf_circuits;

/* Rows of each port's share that are worth waiting for on their own: about 0.3 ms of stream at 39 words a row. */
#define TF_CHUNK_ROWS 1024

/* The circuits' results computed by this machine. `stream` is the whole of weights.tfs, mapped; it is unmapped by close. */
tf_status tf_host_open(tf_circuits *circuits, const tf_image *image, const uint8_t *stream, uint32_t context,
                       tf_pool *pool, tf_profiler *profiler, bool plain);

static inline tf_part tf_wait_part(uint32_t group) { return (tf_part)(TF_PART_WAIT_QKV + group); }

#endif
