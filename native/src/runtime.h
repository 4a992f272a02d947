/* The state of one conversation. */
#ifndef TF_RUNTIME_H
#define TF_RUNTIME_H

#include "circuits.h"
#include "image.h"
#include "pool.h"
#include "profile.h"
#include "tf_pl.h"
#include "tritforge.h"

typedef struct {
    uint64_t *bits;        /* [vocab / 64]: tokens seen */
    float *logits;         /* [vocab] */
    float *weights;        /* [vocab]: exponentials of the candidates */
    uint32_t *order[2];    /* [vocab]: candidates, and room to sort them */
} tf_sampler;

struct tf_runtime {
    tf_image image;
    tf_circuits circuits;
    tf_pl pl; /* unused by backend host */
    tf_pool *pool;
    tf_profiler profiler;
    tf_sampler sampler;
    uint32_t context;  /* largest number of positions */
    uint32_t position; /* tokens said so far */
    bool failed;       /* the last token failed half-way; only reset helps */
    tf_trace_fn trace;
    void *trace_user;
    /* one token's vectors */
    float *x;          /* [hidden]: the residual stream */
    float *h;          /* [max(hidden, ffn)]: normalised, or the gate's output */
    float *q, *k, *v;  /* [hidden]: dequantised and rotated */
    int32_t *m;        /* [heads] */
    uint32_t *saturated; /* [heads]: 1 if m was cut */
    float *logits;     /* [vocab] */
    int32_t *trace_acc; /* [rows of the largest group]: results in one piece, for the trace only */
    int8_t *trace_code; /* [hidden]: codes of all heads in one piece, likewise */
};

tf_status tf_sampler_open(tf_sampler *sampler, uint32_t vocab);
void tf_sampler_close(tf_sampler *sampler);

#endif
