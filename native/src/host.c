/* The circuits computed by this machine: the reference that boards are compared with, and the fast way on a host. */
#include <stdlib.h>

#include "attend.h"
#include "circuits.h"
#include "error.h"
#include "ternary.h"

/* Packed bytes, or bytes of K, below which one thread does the work alone: about 10 microseconds' worth. */
#define WORTH_SHARING 32768

typedef struct {
    const tf_image *image;
    const uint8_t *stream;
    tf_pool *pool;
    tf_profiler *profiler;
    uint32_t context;
    tf_ternary *ternary;
    int8_t *x;
    int32_t *acc;    /* [rows of the largest group] */
    int8_t *q;       /* [heads][head_dim] */
    int8_t *keys;    /* [layers][heads][context][head_dim] */
    int8_t *values;  /* the same */
    int32_t *scores; /* [heads][context] */
    int32_t *sums;   /* [heads][head_dim + 1] */
    /* the work under way */
    uint32_t layer, group, positions;
    const int32_t *m;
} host;

static void share(host *h, bool shared, tf_task task) {
    if (shared)
        tf_pool_run(h->pool, task, h);
    else
        task(h, 0, 1);
}

static int8_t *host_x(void *self, uint32_t layer, uint32_t group) {
    (void)layer, (void)group;
    return ((host *)self)->x;
}

static void multiply_share(void *argument, unsigned index, unsigned count) {
    host *h = argument;
    for (uint32_t port = 0; port < TF_PORTS; port++) {
        const tf_transfer *t = tf_first_piece(h->image, h->layer, h->group, port);
        const tf_transfer *end = h->image->transfers + h->image->header.transfers;
        for (; t && t < end && t->layer == h->layer && t->group == h->group && t->port == port; t++) {
            uint32_t from, to, row_bytes = tf_row_bytes(t->row_length);
            tf_share(t->rows, 1, index, count, &from, &to);
            uint64_t at = t->offset + t->size_bytes - (uint64_t)(t->rows - from) * row_bytes;
            tf_ternary_rows(h->ternary, h->stream + at, to - from, (size_t)(h->image->header.stream_bytes - at),
                            h->acc + t->first_row + from);
        }
    }
}

static tf_status host_matvec_start(void *self, uint32_t layer, uint32_t group) {
    host *h = self;
    h->layer = layer;
    h->group = group;
    uint32_t length = tf_group_row_length(&h->image->header, group);
    bool shared = tf_group_rows(&h->image->header, group) * tf_row_bytes(length) >= WORTH_SHARING;
    tf_ternary_set_x(h->ternary, h->x, length, shared ? h->pool : NULL);
    share(h, shared, multiply_share);
    tf_mark(h->profiler, tf_wait_part(group));
    return TF_OK;
}

static tf_status host_matvec_wait(void *self, uint32_t rows) {
    (void)self, (void)rows;
    return TF_OK;
}

static const int32_t *host_matvec_rows(void *self, uint32_t port, uint32_t first, uint32_t *count) {
    host *h = self;
    uint32_t rows = tf_group_rows(&h->image->header, h->group);
    *count = tf_port_rows(rows, port) - first;
    return h->acc + (port ? tf_port_rows(rows, 0) : 0) + first;
}

static int8_t *host_q(void *self, uint32_t head) {
    host *h = self;
    return h->q + (size_t)head * h->image->header.head_dim;
}

static size_t row_of(const host *h, uint32_t layer, uint32_t head, uint32_t position) {
    return (((size_t)layer * h->image->header.heads + head) * h->context + position) * h->image->header.head_dim;
}

static int8_t *host_key(void *self, uint32_t layer, uint32_t head, uint32_t position) {
    return ((host *)self)->keys + row_of(self, layer, head, position);
}

static int8_t *host_value(void *self, uint32_t layer, uint32_t head, uint32_t position) {
    return ((host *)self)->values + row_of(self, layer, head, position);
}

static void attend_share(void *argument, unsigned index, unsigned count) {
    host *h = argument;
    const tf_params_header *shape = &h->image->header;
    uint32_t from, to;
    tf_share(shape->heads, 1, index, count, &from, &to);
    for (uint32_t head = from; head < to; head++) {
        size_t row = row_of(h, h->layer, head, 0);
        tf_attend(host_q(h, head), h->keys + row, h->values + row, shape->head_dim, h->positions, h->m[head],
                  shape->context <= TF_MAX_CONTEXT_BOARD ? 15 : 13, h->scores + (size_t)head * h->context,
                  h->sums + (size_t)head * (shape->head_dim + 1));
    }
}

static tf_status host_attention_start(void *self, uint32_t layer, uint32_t positions, const int32_t *m) {
    host *h = self;
    h->layer = layer;
    h->positions = positions;
    h->m = m;
    share(h, positions * h->image->header.hidden >= WORTH_SHARING, attend_share);
    tf_mark(h->profiler, TF_PART_WAIT_ATTENTION);
    return TF_OK;
}

static tf_status host_attention_wait(void *self) {
    (void)self;
    return TF_OK;
}

static const int32_t *host_attention_sums(void *self, uint32_t head) {
    host *h = self;
    return h->sums + (size_t)head * (h->image->header.head_dim + 1);
}

static tf_status host_reset(void *self) {
    (void)self;
    return TF_OK;
}

static void host_close(void *self) {
    host *h = self;
    tf_image_unmap_stream(h->image, h->stream);
    tf_ternary_close(h->ternary);
    free(h->x), free(h->acc), free(h->q), free(h->keys), free(h->values), free(h->scores), free(h->sums);
    free(h);
}

tf_status tf_host_open(tf_circuits *circuits, const tf_image *image, const uint8_t *stream, uint32_t context,
                       tf_pool *pool, tf_profiler *profiler, bool plain) {
    const tf_params_header *shape = &image->header;
    host *h = calloc(1, sizeof *h);
    if (!h) {
        tf_image_unmap_stream(image, stream);
        return tf_fail(TF_STATUS_MEMORY, "no memory for the host backend");
    }
    h->image = image;
    h->stream = stream;
    h->context = context;
    h->pool = pool;
    h->profiler = profiler;
    uint32_t largest_length = shape->hidden > shape->ffn ? shape->hidden : shape->ffn, largest_rows = 0;
    for (uint32_t group = 0; group < TF_GROUPS; group++) {
        uint32_t rows = tf_group_rows(shape, group);
        largest_rows = rows > largest_rows ? rows : largest_rows;
    }
    size_t cache = (size_t)shape->layers * shape->hidden * context;
    h->ternary = tf_ternary_open(largest_length, plain);
    h->x = calloc(largest_length, 1);
    h->acc = calloc(largest_rows, sizeof *h->acc);
    h->q = calloc(shape->hidden, 1);
    h->keys = calloc(cache, 1);
    h->values = calloc(cache, 1);
    h->scores = calloc((size_t)shape->heads * context, sizeof *h->scores);
    h->sums = calloc((size_t)shape->heads * (shape->head_dim + 1), sizeof *h->sums);
    *circuits = (tf_circuits){
        .self = h,
        .x = host_x,
        .matvec_start = host_matvec_start,
        .matvec_wait = host_matvec_wait,
        .matvec_rows = host_matvec_rows,
        .q = host_q,
        .key = host_key,
        .value = host_value,
        .attention_start = host_attention_start,
        .attention_wait = host_attention_wait,
        .attention_sums = host_attention_sums,
        .reset = host_reset,
        .close = host_close,
    };
    if (!h->ternary || !h->x || !h->acc || !h->q || !h->keys || !h->values || !h->scores || !h->sums) {
        host_close(h);
        circuits->self = NULL;
        return tf_fail(TF_STATUS_MEMORY, "no memory for the host backend: K and V take %zu bytes", 2 * cache);
    }
    return TF_OK;
}
