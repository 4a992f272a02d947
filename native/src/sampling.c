/* The next token from logits: pipelines/golden/sampling.py. */
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "kernels.h"
#include "runtime.h"

#define WEIGHT_ONE 0x1p24f
#define TOP_P_ONE 65536u
/* A logit that is further below the best has the integer weight 0: exp(-17) * 2^24 = 0.69. It cannot be drawn and adds
 * nothing to any sum, so only the others are sorted. */
#define FURTHEST 17.0f

tf_status tf_sampler_open(tf_sampler *s, uint32_t vocab) {
    s->bits = calloc(vocab / 64 + 1, sizeof *s->bits);
    s->logits = calloc(vocab, sizeof *s->logits);
    s->weights = calloc(vocab, sizeof *s->weights);
    s->order[0] = calloc(vocab, sizeof *s->order[0]);
    s->order[1] = calloc(vocab, sizeof *s->order[1]);
    if (s->bits && s->logits && s->weights && s->order[0] && s->order[1]) return TF_OK;
    return tf_fail(TF_STATUS_MEMORY, "no memory to sample from %u tokens", vocab);
}

void tf_sampler_close(tf_sampler *s) {
    free(s->bits), free(s->logits), free(s->weights), free(s->order[0]), free(s->order[1]);
    memset(s, 0, sizeof *s);
}

/* splitmix64 (Steele, Lea and Flood): the upper half of the next output. */
static uint32_t next_u32(uint64_t *state) {
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (uint32_t)((z ^ z >> 31) >> 32);
}

/* An integer that rises as the logit falls; both zeros are equal. */
static uint32_t falling(float logit) {
    uint32_t bits = tf_bits(logit == 0.0f ? 0.0f : logit);
    return bits >> 31 ? bits : ~bits & 0x7FFFFFFFu;
}

/* Sorts ids in order[0] by falling logit; equal logits keep their order (rising id). Four passes over bytes. */
static void sort(tf_sampler *s, uint32_t count) {
    for (int shift = 0; shift < 32; shift += 8) {
        uint32_t start[257] = {0};
        const uint32_t *from = s->order[0];
        uint32_t *to = s->order[1];
        for (uint32_t i = 0; i < count; i++) start[(falling(s->logits[from[i]]) >> shift & 255) + 1]++;
        for (int i = 0; i < 256; i++) start[i + 1] += start[i];
        for (uint32_t i = 0; i < count; i++) to[start[falling(s->logits[from[i]]) >> shift & 255]++] = from[i];
        s->order[0] = to;
        s->order[1] = (uint32_t *)(uintptr_t)from;
    }
}

tf_status tf_sample(tf_runtime *rt, const float *logits, const uint32_t *seen, size_t seen_count,
                    const tf_sampling *options, uint64_t *random_state, uint32_t *token) {
    tf_sampler *s = &rt->sampler;
    uint32_t vocab = rt->image.header.vocab;
    float temperature = options->temperature, penalty = options->repetition_penalty;
    if (!(temperature == 0.0f || (temperature >= 0.001f && temperature <= 1000.0f)))
        return tf_fail(TF_STATUS_USAGE, "temperature is %g; it must be 0 or 0.001 to 1000", (double)temperature);
    if (!(penalty >= 0.001f && penalty <= 1000.0f))
        return tf_fail(TF_STATUS_USAGE, "repetition penalty is %g; it must be 0.001 to 1000", (double)penalty);
    if (options->top_p_65536 > TOP_P_ONE) return tf_fail(TF_STATUS_USAGE, "top_p is above 1");
    memcpy(s->logits, logits, vocab * sizeof *logits);
    if (penalty != 1.0f) {
        memset(s->bits, 0, (vocab / 64 + 1) * sizeof *s->bits);
        for (size_t i = 0; i < seen_count; i++) {
            uint32_t id = seen[i];
            if (id >= vocab) return tf_fail(TF_STATUS_USAGE, "token %u is outside 0 to %u", id, vocab - 1);
            if (s->bits[id / 64] >> id % 64 & 1) continue; /* each token counts once */
            s->bits[id / 64] |= 1ull << id % 64;
            s->logits[id] = s->logits[id] > 0 ? s->logits[id] / penalty : s->logits[id] * penalty;
        }
    }
    if (temperature == 0.0f) {
        *token = (uint32_t)tf_argmax(s->logits, vocab);
        return TF_OK;
    }
    for (uint32_t i = 0; i < vocab; i++) s->logits[i] = s->logits[i] / temperature;
    float best = s->logits[tf_argmax(s->logits, vocab)];
    uint32_t count = 0;
    for (uint32_t i = 0; i < vocab; i++)
        if (s->logits[i] - best >= -FURTHEST) s->order[0][count++] = i;
    if (count == 0) return tf_fail(TF_STATUS_USAGE, "the logits have no largest entry: NaN or infinite");
    sort(s, count);
    if (options->top_k && options->top_k < count) count = options->top_k;
    for (uint32_t i = 0; i < count; i++) s->weights[i] = s->logits[s->order[0][i]] - best;
    tf_exp(s->weights, count, s->weights);
    uint64_t total = 0;
    for (uint32_t i = 0; i < count; i++) {
        s->weights[i] = s->weights[i] * WEIGHT_ONE;
        total += (uint32_t)s->weights[i];
    }
    if (options->top_p_65536 < TOP_P_ONE) { /* the shortest prefix that has the share */
        uint64_t needed = total * options->top_p_65536, cumulated = 0;
        uint32_t keep = 0;
        do cumulated += (uint32_t)s->weights[keep++];
        while (keep < count && cumulated * TOP_P_ONE < needed);
        count = keep;
        total = cumulated;
    }
    uint64_t u = next_u32(random_state);
    uint64_t threshold = u * (total >> 32) + (u * (total & UINT32_MAX) >> 32); /* u * total >> 32 without overflow */
    uint64_t cumulated = 0;
    uint32_t i = 0;
    while ((cumulated += (uint32_t)s->weights[i]) <= threshold && i + 1 < count) i++;
    *token = s->order[0][i];
    return TF_OK;
}
