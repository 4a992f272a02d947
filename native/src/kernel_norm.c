#include "kernels.h"

float tf_sum_lanes(const float lanes[TF_SUM_LANES]) {
    float v[4];
    for (size_t j = 0; j < 4; j++) v[j] = (lanes[j] + lanes[j + 4]) + (lanes[j + 8] + lanes[j + 12]);
    return (v[0] + v[1]) + (v[2] + v[3]);
}

void tf_add_squares_plain(const float *x, size_t count, float lanes[TF_SUM_LANES]) {
    for (size_t i = 0; i < count; i += TF_SUM_LANES) {
        for (size_t j = 0; j < TF_SUM_LANES; j++) {
            float kept = tf_kept(x[i + j]);
            lanes[j] += kept * kept;
        }
    }
}

float tf_normalise_plain(const float *x, float r, const float *weight, size_t count, float *out) {
    uint32_t largest = 0;
    for (size_t i = 0; i < count; i++) {
        out[i] = (tf_kept(x[i]) * r) * weight[i];
        uint32_t magnitude = tf_bits(out[i]) & 0x7FFFFFFFu;
        largest = magnitude > largest ? magnitude : largest;
    }
    return tf_float(largest);
}

#if TF_NEON
static inline float32x4_t kept(float32x4_t x) {
    uint32x4_t bits = vreinterpretq_u32_f32(x);
    uint32x4_t large = vcgeq_u32(vandq_u32(bits, vdupq_n_u32(0x7FFFFFFF)), vdupq_n_u32(97u << 23)); /* 2^-30 */
    return vreinterpretq_f32_u32(vandq_u32(bits, large));
}

static inline float32x4_t square(float32x4_t x) {
    float32x4_t k = kept(x);
    return vmulq_f32(k, k);
}

void tf_add_squares_neon(const float *x, size_t count, float lanes[TF_SUM_LANES]) {
    float32x4_t a0 = vld1q_f32(lanes), a1 = vld1q_f32(lanes + 4), a2 = vld1q_f32(lanes + 8), a3 = vld1q_f32(lanes + 12);
    for (size_t i = 0; i < count; i += TF_SUM_LANES) {
        a0 = vaddq_f32(a0, square(vld1q_f32(x + i)));
        a1 = vaddq_f32(a1, square(vld1q_f32(x + i + 4)));
        a2 = vaddq_f32(a2, square(vld1q_f32(x + i + 8)));
        a3 = vaddq_f32(a3, square(vld1q_f32(x + i + 12)));
    }
    vst1q_f32(lanes, a0), vst1q_f32(lanes + 4, a1), vst1q_f32(lanes + 8, a2), vst1q_f32(lanes + 12, a3);
}

/* Four vectors in step: each operation waits for the one before it, up to six cycles on a Cortex-A9. */
float tf_normalise_neon(const float *x, float r, const float *weight, size_t count, float *out) {
    uint32x4_t largest = vdupq_n_u32(0);
    float32x4_t rr = vdupq_n_f32(r);
    size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        float32x4_t y[4];
        uint32x4_t m[4];
        for (int k = 0; k < 4; k++) y[k] = kept(vld1q_f32(x + i + 4 * k));
        for (int k = 0; k < 4; k++) y[k] = vmulq_f32(y[k], rr);
        for (int k = 0; k < 4; k++) y[k] = vmulq_f32(y[k], vld1q_f32(weight + i + 4 * k));
        for (int k = 0; k < 4; k++) m[k] = vandq_u32(vreinterpretq_u32_f32(y[k]), vdupq_n_u32(0x7FFFFFFF));
        for (int k = 0; k < 4; k++) vst1q_f32(out + i + 4 * k, y[k]);
        largest = vmaxq_u32(largest, vmaxq_u32(vmaxq_u32(m[0], m[1]), vmaxq_u32(m[2], m[3])));
    }
    uint32x2_t half = vmax_u32(vget_low_u32(largest), vget_high_u32(largest));
    uint32_t vector = vget_lane_u32(vpmax_u32(half, half), 0);
    uint32_t rest = tf_bits(tf_normalise_plain(x + i, r, weight + i, count - i, out + i));
    return tf_float(vector > rest ? vector : rest);
}
#endif
