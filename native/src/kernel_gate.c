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
static inline float32x4_t exp_four(float32x4_t x) {
    const float32x4_t magic = vdupq_n_f32(TF_ROUND_MAGIC);
    x = vminq_f32(vmaxq_f32(x, vdupq_n_f32(-TF_EXP_CLAMP)), vdupq_n_f32(TF_EXP_CLAMP));
    float32x4_t shifted = vaddq_f32(vmulq_f32(x, vdupq_n_f32(TF_LOG2_E)), magic);
    float32x4_t n = vsubq_f32(shifted, magic);
    float32x4_t r = vsubq_f32(x, vmulq_f32(n, vdupq_n_f32(TF_LN2_HIGH)));
    r = vsubq_f32(r, vmulq_f32(n, vdupq_n_f32(TF_LN2_LOW)));
    float32x4_t p = vdupq_n_f32(TF_EXP_TERM_6);
    p = vaddq_f32(vmulq_f32(p, r), vdupq_n_f32(TF_EXP_TERM_5));
    p = vaddq_f32(vmulq_f32(p, r), vdupq_n_f32(TF_EXP_TERM_4));
    p = vaddq_f32(vmulq_f32(p, r), vdupq_n_f32(TF_EXP_TERM_3));
    p = vaddq_f32(vmulq_f32(p, r), vdupq_n_f32(TF_EXP_TERM_2));
    p = vaddq_f32(vmulq_f32(p, r), vdupq_n_f32(TF_EXP_TERM_1));
    p = vaddq_f32(vmulq_f32(p, r), vdupq_n_f32(TF_EXP_TERM_0));
    /* the low bits of `shifted` are n: shifting them to the exponent field drops the rest of magic's bits but its own
     * 2^22, which is shifted out */
    int32x4_t exponent = vshlq_n_s32(vreinterpretq_s32_f32(shifted), 23);
    return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(p), exponent));
}

static inline float32x4_t reciprocal_four(float32x4_t d) {
    int32x4_t guess = vsubq_s32(vdupq_n_s32(TF_RECIPROCAL_MAGIC), vreinterpretq_s32_f32(d));
    float32x4_t r = vreinterpretq_f32_s32(guess);
    for (int step = 0; step < TF_RECIPROCAL_STEPS; step++)
        r = vmulq_f32(r, vsubq_f32(vdupq_n_f32(2.0f), vmulq_f32(d, r)));
    return r;
}

void tf_exp_neon(const float *x, size_t count, float *out) {
    size_t i = 0;
    for (; i + 4 <= count; i += 4) vst1q_f32(out + i, exp_four(vld1q_f32(x + i)));
    tf_exp_plain(x + i, count - i, out + i);
}

static inline float32x4_t gate_four(int32x4_t gate, float32x4_t gate_scale, int32x4_t up, float32x4_t up_scale) {
    float32x4_t g = vmulq_f32(vcvtq_f32_s32(gate), gate_scale);
    float32x4_t u = vmulq_f32(vcvtq_f32_s32(up), up_scale);
    float32x4_t sigmoid = reciprocal_four(vaddq_f32(vdupq_n_f32(1.0f), exp_four(vnegq_f32(g))));
    return vmulq_f32(vmulq_f32(g, sigmoid), u);
}

void tf_gate_neon(const int32_t *gate, float gate_scale, const int32_t *up, float up_scale, size_t count, float *out) {
    const float32x4_t gs = vdupq_n_f32(gate_scale), us = vdupq_n_f32(up_scale);
    size_t i = 0;
    for (; i + 4 <= count; i += 4)
        vst1q_f32(out + i, gate_four(vld1q_s32(gate + i), gs, vld1q_s32(up + i), us));
    tf_gate_plain(gate + i, gate_scale, up + i, up_scale, count - i, out + i);
}
#endif
