/* The exponential, the reciprocal, and the gate made of them. */
#include "kernels.h"

static inline float exp_one(float x) {
    x = tf_clamp(x, -TF_EXP_CLAMP, TF_EXP_CLAMP);
    float n = (x * TF_LOG2_E + TF_ROUND_MAGIC) - TF_ROUND_MAGIC;
    float r = (x - n * TF_LN2_HIGH) - n * TF_LN2_LOW;
    float p = TF_EXP_TERM_6;
    p = p * r + TF_EXP_TERM_5;
    p = p * r + TF_EXP_TERM_4;
    p = p * r + TF_EXP_TERM_3;
    p = p * r + TF_EXP_TERM_2;
    p = p * r + TF_EXP_TERM_1;
    p = p * r + TF_EXP_TERM_0;
    return tf_float(tf_bits(p) + ((uint32_t)tf_round_to_int(n) << 23));
}

static inline float reciprocal_one(float d) {
    float r = tf_float((uint32_t)TF_RECIPROCAL_MAGIC - tf_bits(d));
    for (int step = 0; step < TF_RECIPROCAL_STEPS; step++) r = r * (2.0f - d * r);
    return r;
}

void tf_exp_plain(const float *x, size_t count, float *out) {
    for (size_t i = 0; i < count; i++) out[i] = exp_one(x[i]);
}

void tf_gate_plain(const int32_t *gate, float gate_scale, const int32_t *up, float up_scale, size_t count, float *out) {
    for (size_t i = 0; i < count; i++) {
        float g = (float)gate[i] * gate_scale, u = (float)up[i] * up_scale;
        out[i] = (g * reciprocal_one(1.0f + exp_one(-g))) * u;
    }
}

#if TF_NEON
/* Vectors handled in step: an operation takes up to six cycles on a Cortex-A9 and the next one needs its result, so
 * another vector's fills the time. More would not fit the sixteen registers. */
#define WAYS 2
#define STEP 4
#define EACH for (int k = 0; k < WAYS; k++)

static inline __attribute__((always_inline)) void exp_ways(float32x4_t *x) {
    const float32x4_t magic = vdupq_n_f32(TF_ROUND_MAGIC);
    static const float terms[] = {TF_EXP_TERM_5, TF_EXP_TERM_4, TF_EXP_TERM_3,
                                  TF_EXP_TERM_2, TF_EXP_TERM_1, TF_EXP_TERM_0};
    float32x4_t shifted[WAYS], n[WAYS], r[WAYS], p[WAYS];
    EACH x[k] = vminq_f32(vmaxq_f32(x[k], vdupq_n_f32(-TF_EXP_CLAMP)), vdupq_n_f32(TF_EXP_CLAMP));
    EACH shifted[k] = vmulq_f32(x[k], vdupq_n_f32(TF_LOG2_E));
    EACH shifted[k] = vaddq_f32(shifted[k], magic);
    EACH n[k] = vsubq_f32(shifted[k], magic);
    EACH r[k] = vsubq_f32(x[k], vmulq_f32(n[k], vdupq_n_f32(TF_LN2_HIGH)));
    EACH r[k] = vsubq_f32(r[k], vmulq_f32(n[k], vdupq_n_f32(TF_LN2_LOW)));
    EACH p[k] = vdupq_n_f32(TF_EXP_TERM_6);
    for (size_t i = 0; i < sizeof terms / sizeof *terms; i++) {
        EACH p[k] = vmulq_f32(p[k], r[k]);
        EACH p[k] = vaddq_f32(p[k], vdupq_n_f32(terms[i]));
    }
    /* the low bits of `shifted` are n: shifting them to the exponent field drops all other bits of it */
    EACH {
        int32x4_t exponent = vshlq_n_s32(vreinterpretq_s32_f32(shifted[k]), 23);
        x[k] = vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(p[k]), exponent));
    }
}

static inline __attribute__((always_inline)) void reciprocal_ways(float32x4_t *d) {
    float32x4_t r[WAYS], e[WAYS];
    EACH r[k] = vreinterpretq_f32_s32(vsubq_s32(vdupq_n_s32(TF_RECIPROCAL_MAGIC), vreinterpretq_s32_f32(d[k])));
    for (int step = 0; step < TF_RECIPROCAL_STEPS; step++) {
        EACH e[k] = vmulq_f32(d[k], r[k]);
        EACH e[k] = vsubq_f32(vdupq_n_f32(2.0f), e[k]);
        EACH r[k] = vmulq_f32(r[k], e[k]);
    }
    EACH d[k] = r[k];
}

void tf_exp_neon(const float *x, size_t count, float *out) {
    size_t i = 0;
    for (; i + STEP * WAYS <= count; i += STEP * WAYS) {
        float32x4_t v[WAYS];
        EACH v[k] = vld1q_f32(x + i + STEP * k);
        exp_ways(v);
        EACH vst1q_f32(out + i + STEP * k, v[k]);
    }
    tf_exp_plain(x + i, count - i, out + i);
}

void tf_gate_neon(const int32_t *gate, float gate_scale, const int32_t *up, float up_scale, size_t count, float *out) {
    const float32x4_t gs = vdupq_n_f32(gate_scale), us = vdupq_n_f32(up_scale), one = vdupq_n_f32(1.0f);
    size_t i = 0;
    for (; i + STEP * WAYS <= count; i += STEP * WAYS) {
        float32x4_t g[WAYS], s[WAYS];
        EACH g[k] = vmulq_f32(vcvtq_f32_s32(vld1q_s32(gate + i + STEP * k)), gs);
        EACH s[k] = vnegq_f32(g[k]);
        exp_ways(s);
        EACH s[k] = vaddq_f32(one, s[k]);
        reciprocal_ways(s);
        EACH s[k] = vmulq_f32(g[k], s[k]);
        EACH g[k] = vmulq_f32(vcvtq_f32_s32(vld1q_s32(up + i + STEP * k)), us);
        EACH vst1q_f32(out + i + STEP * k, vmulq_f32(s[k], g[k]));
    }
    tf_gate_plain(gate + i, gate_scale, up + i, up_scale, count - i, out + i);
}
#endif
