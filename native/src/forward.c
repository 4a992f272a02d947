/* A token, from embedding row to logits: pipelines/golden/forward.py, top to bottom in the same order. */
#include <string.h>

#include "error.h"
#include "kernels.h"
#include "runtime.h"

/* Work on fewer entries is done by one thread: handing it over costs about 2 microseconds on a Cortex-A9. */
#define WORTH_SHARING 2048

static void share(const tf_runtime *rt, uint32_t entries, tf_task task, void *work) {
    if (entries >= WORTH_SHARING)
        tf_pool_run(rt->pool, task, work);
    else
        task(work, 0, 1);
}

#define NO_LAYER UINT32_MAX

static void report(const tf_runtime *rt, uint32_t point, uint32_t layer, char type, const void *data, size_t count) {
    if (rt->trace) rt->trace(rt->trace_user, point, layer == NO_LAYER ? -1 : (int32_t)layer, type, data, count);
}


/* ------------------------------------------------------------------ results of a group */

typedef void (*use_rows)(void *argument, const int32_t *acc, uint32_t first, uint32_t count);

/* Calls `use` for rows first .. first + count - 1 of the started group, in as many pieces as they lie in. */
static void each_piece(const tf_runtime *rt, uint32_t group, uint32_t first, uint32_t count, use_rows use, void *argument) {
    const tf_circuits *c = &rt->circuits;
    uint32_t boundary = tf_port_rows(tf_group_rows(&rt->image.header, group), 0);
    while (count) {
        uint32_t port = first >= boundary, here;
        const int32_t *acc = c->matvec_rows(c->self, port, port ? first - boundary : first, &here);
        if (here > count) here = count;
        use(argument, acc, first, here);
        first += here;
        count -= here;
    }
}

typedef struct {
    float *out;
    float scale;
    uint32_t base;
} dequantise_to;

static void dequantise_piece(void *argument, const int32_t *acc, uint32_t first, uint32_t count) {
    const dequantise_to *to = argument;
    tf_dequantise(acc, to->scale, count, to->out + (first - to->base));
}

static void dequantise_rows(const tf_runtime *rt, uint32_t group, uint32_t first, uint32_t count, float scale, float *out) {
    dequantise_to to = {out, scale, first};
    each_piece(rt, group, first, count, dequantise_piece, &to);
}

static void add_piece(void *argument, const int32_t *acc, uint32_t first, uint32_t count) {
    const dequantise_to *to = argument;
    tf_dequantise_add(acc, to->scale, count, to->out + (first - to->base));
}

static void copy_piece(void *argument, const int32_t *acc, uint32_t first, uint32_t count) {
    memcpy((int32_t *)argument + first, acc, count * sizeof *acc);
}

static void report_acc(const tf_runtime *rt, uint32_t point, uint32_t layer, uint32_t group) {
    if (!rt->trace) return;
    uint32_t rows = tf_group_rows(&rt->image.header, group);
    each_piece(rt, group, 0, rows, copy_piece, rt->trace_acc);
    report(rt, point, layer, 'i', rt->trace_acc, rows);
}

/* ------------------------------------------------------------------ normalise, quantise, start a group */

typedef struct {
    const float *x, *weight;
    float *out;
    float r, inverse;
    int8_t *codes;
    uint32_t count;
    float largest[TF_LARGEST_POOL];
} norm_work;

static void normalise_share(void *argument, unsigned index, unsigned count) {
    norm_work *work = argument;
    uint32_t from, to;
    tf_share(work->count, 8, index, count, &from, &to);
    work->largest[index] =
        tf_normalise(work->x + from, work->r, work->weight + from, to - from, work->out + from);
}

static void quantise_share(void *argument, unsigned index, unsigned count) {
    norm_work *work = argument;
    uint32_t from, to;
    tf_share(work->count, 8, index, count, &from, &to);
    tf_quantise(work->out + from, work->inverse, to - from, work->codes + from);
}

static void clear_sum(float *lanes) { memset(lanes, 0, TF_SUM_LANES * sizeof *lanes); }

static void sum_squares(const float *x, size_t count, float *lanes) {
    clear_sum(lanes);
    tf_add_squares(x, count, lanes);
}

/* x, the lanes of its squares' sum -> RMSNorm -> int8 codes in the group's x slot; returns the scale that takes them
 * back. */
static float norm_to_codes(tf_runtime *rt, const float *x, const float *lanes, const float *weight, uint32_t layer,
                           uint32_t group) {
    const tf_circuits *c = &rt->circuits;
    uint32_t count = tf_group_row_length(&rt->image.header, group);
    float mean = tf_sum_lanes(lanes) / (float)count;
    norm_work work = {.x = x, .weight = weight, .out = rt->h, .count = count, .codes = c->x(c->self, layer, group)};
    work.r = 1.0f / tf_sqrt(mean + rt->image.header.rms_eps);
    share(rt, count, normalise_share, &work);
    float largest = TF_QUANT_FLOOR;
    for (int i = 0; i < TF_LARGEST_POOL; i++) largest = work.largest[i] > largest ? work.largest[i] : largest;
    work.inverse = TF_QUANT_MAX / largest;
    share(rt, count, quantise_share, &work);
    return largest / TF_QUANT_MAX;
}

/* The whole of a group but its results: norm, codes, start. */
static tf_status start_group(tf_runtime *rt, const float *x, const float *lanes, const float *weight, uint32_t layer,
                             uint32_t group, uint32_t code_point, float *scale) {
    const tf_circuits *c = &rt->circuits;
    uint32_t traced = layer < rt->image.header.layers ? layer : NO_LAYER;
    *scale = norm_to_codes(rt, x, lanes, weight, layer, group);
    report(rt, code_point, traced, 'b', c->x(c->self, layer, group), tf_group_row_length(&rt->image.header, group));
    report(rt, code_point + 1, traced, 'f', scale, 1);
    tf_mark(&rt->profiler, TF_PART_NORM);
    return c->matvec_start(c->self, layer, group);
}

/* ------------------------------------------------------------------ q, k and v of each head */

/* A part is one head of one of the three matrices; the group's rows are the parts of q, then of k, then of v. */
typedef struct {
    tf_runtime *rt;
    const tf_layer *layer;
    uint32_t number;
    float scale;
    uint32_t from[TF_PORTS], to[TF_PORTS]; /* parts to work on, of each port */
} qkv_work;

static void take_q(const qkv_work *work, uint32_t head, float *q, const float *cosine, const float *sine) {
    tf_runtime *rt = work->rt;
    const tf_circuits *c = &rt->circuits;
    uint32_t dim = rt->image.header.head_dim;
    tf_rotate(q, cosine, sine, dim / 2);
    float largest = tf_largest(q, dim);
    largest = largest > TF_QUANT_FLOOR ? largest : TF_QUANT_FLOOR;
    tf_quantise(q, TF_QUANT_MAX / largest, dim, c->q(c->self, head));
    float wanted = (largest / TF_QUANT_MAX) * work->layer->score_coefficient[head];
    rt->saturated[head] = wanted > (float)TF_M_MAX;
    rt->m[head] = tf_round_to_int(rt->saturated[head] ? (float)TF_M_MAX : wanted);
}

static void take_part(const qkv_work *work, uint32_t part) {
    tf_runtime *rt = work->rt;
    const tf_params_header *shape = &rt->image.header;
    const tf_circuits *c = &rt->circuits;
    const tf_layer *layer = work->layer;
    uint32_t dim = shape->head_dim, position = rt->position, matrix = part / shape->heads, head = part % shape->heads;
    const float *cosine = rt->image.rope_cos + (size_t)position * (dim / 2);
    const float *sine = rt->image.rope_sin + (size_t)position * (dim / 2);
    float *x = (matrix == 0 ? rt->q : matrix == 1 ? rt->k : rt->v) + head * dim;
    float scale = matrix == 0 ? layer->scales->q : matrix == 1 ? layer->scales->k : layer->scales->v;
    dequantise_rows(rt, TF_GROUP_QKV, part * dim, dim, work->scale * scale, x);
    if (matrix == 0) {
        take_q(work, head, x, cosine, sine);
    } else if (matrix == 1) {
        tf_rotate(x, cosine, sine, dim / 2);
        tf_quantise(x, layer->k_inverse_scale[head], dim, c->key(c->self, work->number, head, position));
    } else {
        tf_quantise(x, layer->v_inverse_scale[head], dim, c->value(c->self, work->number, head, position));
    }
}

static void qkv_share(void *argument, unsigned index, unsigned count) {
    const qkv_work *work = argument;
    uint32_t first = work->to[0] - work->from[0], from, to;
    tf_share(first + work->to[1] - work->from[1], 1, index, count, &from, &to);
    for (uint32_t i = from; i < to; i++) take_part(work, i < first ? work->from[0] + i : work->from[1] + i - first);
}

/* Behind the stream: the parts of a chunk while the next one comes. */
static tf_status take_qkv(tf_runtime *rt, uint32_t number, float scale) {
    const tf_params_header *shape = &rt->image.header;
    const tf_circuits *c = &rt->circuits;
    uint32_t dim = shape->head_dim, parts = 3 * shape->heads, rows = parts * dim;
    uint32_t half = tf_port_rows(rows, 0), second = (half + dim - 1) / dim; /* port 1's first part of its own */
    qkv_work work = {rt, rt->image.layers + number, number, scale, {0, second}, {0, second}};
    for (uint32_t there = 0; there < half;) {
        there = half - there > TF_CHUNK_ROWS ? there + TF_CHUNK_ROWS : half;
        tf_status status = c->matvec_wait(c->self, there);
        if (status != TF_OK) return status;
        bool last = there == half; /* a part that lies on both ports is then there, too */
        if (last) report_acc(rt, TF_TRACE_QKV_ACC, number, TF_GROUP_QKV);
        work.to[0] = last ? second : there / dim;
        work.to[1] = last ? parts : half + there < second * dim ? second : (half + there) / dim;
        share(rt, dim * (work.to[0] - work.from[0] + work.to[1] - work.from[1]), qkv_share, &work);
        for (uint32_t port = 0; port < TF_PORTS; port++) work.from[port] = work.to[port];
        tf_mark(&rt->profiler, TF_PART_QKV_RESULTS);
    }
    for (uint32_t head = 0; head < shape->heads; head++) rt->profiler.sums.score_saturations += rt->saturated[head];
    return TF_OK;
}

static void report_qkv(const tf_runtime *rt, uint32_t layer) {
    const tf_params_header *shape = &rt->image.header;
    const tf_circuits *c = &rt->circuits;
    uint32_t dim = shape->head_dim;
    if (!rt->trace) return;
    report(rt, TF_TRACE_Q_ROT, layer, 'f', rt->q, shape->hidden);
    report(rt, TF_TRACE_K_ROT, layer, 'f', rt->k, shape->hidden);
    for (uint32_t head = 0; head < shape->heads; head++) memcpy(rt->trace_code + head * dim, c->q(c->self, head), dim);
    report(rt, TF_TRACE_Q_CODE, layer, 'b', rt->trace_code, shape->hidden);
    report(rt, TF_TRACE_SCORE_M, layer, 'i', rt->m, shape->heads);
    for (uint32_t head = 0; head < shape->heads; head++)
        memcpy(rt->trace_code + head * dim, c->key(c->self, layer, head, rt->position), dim);
    report(rt, TF_TRACE_K_CODE, layer, 'b', rt->trace_code, shape->hidden);
    for (uint32_t head = 0; head < shape->heads; head++)
        memcpy(rt->trace_code + head * dim, c->value(c->self, layer, head, rt->position), dim);
    report(rt, TF_TRACE_V_CODE, layer, 'b', rt->trace_code, shape->hidden);
}

static void report_attention(const tf_runtime *rt, uint32_t layer) {
    const tf_params_header *shape = &rt->image.header;
    const tf_circuits *c = &rt->circuits;
    uint32_t entries = shape->head_dim + 1;
    if (!rt->trace) return;
    for (uint32_t head = 0; head < shape->heads; head++)
        memcpy(rt->trace_acc + head * entries, c->attention_sums(c->self, head), entries * sizeof(int32_t));
    report(rt, TF_TRACE_ATTN_ACC, layer, 'i', rt->trace_acc, (size_t)shape->heads * entries);
}

/* ------------------------------------------------------------------ a layer */

/* The group's results are added to x, and the squares of the sum to the lanes of the next norm. */
static tf_status add_to_residual(tf_runtime *rt, uint32_t number, uint32_t group, float scale, float *lanes) {
    const tf_circuits *c = &rt->circuits;
    tf_status status = c->matvec_wait(c->self, TF_ALL_ROWS);
    if (status != TF_OK) return status;
    report_acc(rt, group == TF_GROUP_O ? TF_TRACE_O_ACC : TF_TRACE_DOWN_ACC, number, group);
    dequantise_to residual = {rt->x, scale, 0};
    each_piece(rt, group, 0, rt->image.header.hidden, add_piece, &residual);
    sum_squares(rt->x, rt->image.header.hidden, lanes);
    report(rt, group == TF_GROUP_O ? TF_TRACE_ATTN_RESIDUAL : TF_TRACE_FFN_RESIDUAL, number, 'f', rt->x,
           rt->image.header.hidden);
    tf_mark(&rt->profiler, TF_PART_RESIDUAL);
    return TF_OK;
}

/* `lanes`: of the squares of x, when called and when it returns. */
static tf_status attention_block(tf_runtime *rt, uint32_t number, float *lanes) {
    const tf_params_header *shape = &rt->image.header;
    const tf_circuits *c = &rt->circuits;
    const tf_layer *layer = rt->image.layers + number;
    tf_status status;
    float scale;

    status = start_group(rt, rt->x, lanes, layer->input_norm, number, TF_GROUP_QKV, TF_TRACE_ATTN_IN_CODE, &scale);
    if (status != TF_OK || (status = take_qkv(rt, number, scale)) != TF_OK) return status;
    report_qkv(rt, number);

    status = c->attention_start(c->self, number, rt->position + 1, rt->m);
    if (status != TF_OK || (status = c->attention_wait(c->self)) != TF_OK) return status;
    report_attention(rt, number);
    float *out = rt->q; /* q is done with */
    for (uint32_t head = 0; head < shape->heads; head++) {
        const int32_t *sums = c->attention_sums(c->self, head);
        float ratio = layer->v_scale[head] / (float)sums[shape->head_dim];
        tf_dequantise(sums, ratio, shape->head_dim, out + head * shape->head_dim);
    }
    sum_squares(out, shape->hidden, lanes);
    report(rt, TF_TRACE_ATTN_OUT, number, 'f', out, shape->hidden);
    tf_mark(&rt->profiler, TF_PART_ATTENTION_RESULTS);

    status = start_group(rt, out, lanes, layer->inner_attn_norm, number, TF_GROUP_O, TF_TRACE_O_IN_CODE, &scale);
    if (status != TF_OK) return status;
    return add_to_residual(rt, number, TF_GROUP_O, scale * layer->scales->o, lanes);
}

typedef struct {
    tf_runtime *rt;
    float gate_scale, up_scale;
    uint32_t from, to;
} gate_work;

/* Gate rows are exactly port 0's share and up rows port 1's, since both matrices have ffn rows. */
static void gate_share(void *argument, unsigned index, unsigned count) {
    const gate_work *work = argument;
    const tf_circuits *c = &work->rt->circuits;
    uint32_t from, to;
    tf_share(work->to - work->from, 8, index, count, &from, &to);
    from += work->from;
    to += work->from;
    while (from < to) {
        uint32_t gates, ups;
        const int32_t *gate = c->matvec_rows(c->self, 0, from, &gates);
        const int32_t *up = c->matvec_rows(c->self, 1, from, &ups);
        uint32_t here = gates < ups ? gates : ups;
        if (here > to - from) here = to - from;
        tf_gate(gate, work->gate_scale, up, work->up_scale, here, work->rt->h + from);
        from += here;
    }
}

static tf_status ffn_block(tf_runtime *rt, uint32_t number, float *lanes) {
    const tf_params_header *shape = &rt->image.header;
    const tf_circuits *c = &rt->circuits;
    const tf_layer *layer = rt->image.layers + number;
    tf_status status;
    float scale;

    status = start_group(rt, rt->x, lanes, layer->post_norm, number, TF_GROUP_GATE_UP, TF_TRACE_FFN_IN_CODE, &scale);
    if (status != TF_OK) return status;
    gate_work work = {rt, scale * layer->scales->gate, scale * layer->scales->up, 0, 0};
    clear_sum(lanes);
    for (; work.from < shape->ffn; work.from = work.to) { /* behind the stream: a chunk while the next one comes */
        work.to = shape->ffn - work.from > TF_CHUNK_ROWS ? work.from + TF_CHUNK_ROWS : shape->ffn;
        if ((status = c->matvec_wait(c->self, work.to)) != TF_OK) return status;
        if (work.to == shape->ffn) report_acc(rt, TF_TRACE_GATE_UP_ACC, number, TF_GROUP_GATE_UP);
        share(rt, 8 * (work.to - work.from), gate_share, &work); /* an entry takes some 40 operations */
        tf_add_squares(rt->h + work.from, work.to - work.from, lanes);
        tf_mark(&rt->profiler, TF_PART_GATE);
    }
    report(rt, TF_TRACE_FFN_HIDDEN, number, 'f', rt->h, shape->ffn);

    status = start_group(rt, rt->h, lanes, layer->ffn_norm, number, TF_GROUP_DOWN, TF_TRACE_DOWN_IN_CODE, &scale);
    if (status != TF_OK) return status;
    return add_to_residual(rt, number, TF_GROUP_DOWN, scale * layer->scales->down, lanes);
}

/* ------------------------------------------------------------------ the head */

typedef struct {
    tf_runtime *rt;
    float scale;
    uint32_t first, count; /* rows of one plane */
} logits_work;

static void logits_share(void *argument, unsigned index, unsigned count) {
    const logits_work *work = argument;
    tf_runtime *rt = work->rt;
    uint32_t vocab = rt->image.header.vocab, from, to;
    tf_share(work->count, 8, index, count, &from, &to);
    uint32_t first = work->first + from, plane = first / vocab;
    dequantise_to result = {rt->logits + first % vocab, work->scale * rt->image.head_scales[plane], first};
    if (to > from) each_piece(rt, TF_GROUP_HEAD, first, to - from, plane ? add_piece : dequantise_piece, &result);
}

/* Rows *done..to - 1 go into the logits, a plane after the other. */
static void take_logits(tf_runtime *rt, float scale, uint32_t *done, uint32_t to) {
    uint32_t vocab = rt->image.header.vocab;
    while (*done < to) {
        uint32_t end = (*done / vocab + 1) * vocab;
        logits_work work = {rt, scale, *done, (end < to ? end : to) - *done};
        share(rt, work.count, logits_share, &work);
        *done += work.count;
    }
}

/* Behind the stream, too. Planes are added in their order: a row of port 1 waits for the same token's row before it. */
static tf_status head(tf_runtime *rt, const float *lanes) {
    const tf_params_header *shape = &rt->image.header;
    const tf_circuits *c = &rt->circuits;
    uint32_t rows = tf_group_rows(shape, TF_GROUP_HEAD), half = tf_port_rows(rows, 0), done[TF_PORTS] = {0, half};
    float scale;
    tf_status status = start_group(rt, rt->x, lanes, rt->image.final_norm, shape->layers, TF_GROUP_HEAD,
                                   TF_TRACE_HEAD_IN_CODE, &scale);
    if (status != TF_OK) return status;
    for (uint32_t there = 0; there < half;) {
        there = half - there > TF_CHUNK_ROWS ? there + TF_CHUNK_ROWS : half;
        if ((status = c->matvec_wait(c->self, there)) != TF_OK) return status;
        take_logits(rt, scale, done, there);
        uint32_t end = half + there < rows ? half + there : rows, ready = there < half ? there + shape->vocab : rows;
        take_logits(rt, scale, done + 1, end < ready ? end : ready);
        tf_mark(&rt->profiler, TF_PART_LOGITS);
    }
    report_acc(rt, TF_TRACE_HEAD_ACC, NO_LAYER, TF_GROUP_HEAD);
    report(rt, TF_TRACE_LOGITS, NO_LAYER, 'f', rt->logits, shape->vocab);
    return TF_OK;
}

tf_status tf_forward(tf_runtime *rt, uint32_t token, const float **logits) {
    const tf_params_header *shape = &rt->image.header;
    if (rt->failed) return tf_fail(TF_STATUS_USAGE, "an earlier token failed; the runtime has to be reset first");
    if (token >= shape->vocab)
        return tf_fail(TF_STATUS_USAGE, "token %u is outside 0 to %u", token, shape->vocab - 1);
    if (rt->position >= rt->context)
        return tf_fail(TF_STATUS_CONTEXT_FULL, "the context of %u positions is full", rt->context);
    tf_profile_start(&rt->profiler);
    tf_widen(rt->image.embedding + (size_t)token * shape->hidden, shape->hidden, rt->x);
    report(rt, TF_TRACE_EMBEDDING, NO_LAYER, 'f', rt->x, shape->hidden);
    tf_status status = TF_OK;
    float lanes[TF_SUM_LANES];
    sum_squares(rt->x, shape->hidden, lanes);
    tf_mark(&rt->profiler, TF_PART_EMBEDDING);
    for (uint32_t layer = 0; layer < shape->layers && status == TF_OK; layer++) {
        status = attention_block(rt, layer, lanes);
        if (status == TF_OK) status = ffn_block(rt, layer, lanes);
    }
    if (status == TF_OK) status = head(rt, lanes);
    if (status != TF_OK) {
        rt->failed = true;
        return status;
    }
    rt->position++;
    rt->profiler.sums.tokens++;
    *logits = rt->logits;
    return TF_OK;
}
