#include "kernels.h"

float tf_largest_plain(const float *x, size_t count) {
    uint32_t largest = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t magnitude = tf_bits(x[i]) & 0x7FFFFFFFu;
        largest = magnitude > largest ? magnitude : largest;
    }
    return tf_float(largest);
}

void tf_quantise_plain(const float *x, float inverse_scale, size_t count, int8_t *codes) {
    for (size_t i = 0; i < count; i++)
        codes[i] = (int8_t)tf_round_to_int(tf_clamp(x[i] * inverse_scale, -128.0f, 127.0f));
}

#if TF_NEON
float tf_largest_neon(const float *x, size_t count) {
    uint32x4_t largest = vdupq_n_u32(0);
    size_t i = 0;
    for (; i + 4 <= count; i += 4)
        largest = vmaxq_u32(largest, vandq_u32(vreinterpretq_u32_f32(vld1q_f32(x + i)), vdupq_n_u32(0x7FFFFFFF)));
    uint32x2_t half = vmax_u32(vget_low_u32(largest), vget_high_u32(largest));
    uint32_t vector = vget_lane_u32(vpmax_u32(half, half), 0);
    uint32_t rest = tf_bits(tf_largest_plain(x + i, count - i));
    return tf_float(vector > rest ? vector : rest);
}

/* Four vectors in step: each operation waits for the one before it, up to six cycles on a Cortex-A9. */
void tf_quantise_neon(const float *x, float inverse_scale, size_t count, int8_t *codes) {
    const float32x4_t scale = vdupq_n_f32(inverse_scale), magic = vdupq_n_f32(TF_ROUND_MAGIC);
    size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        float32x4_t v[4];
        int16x4_t n[4];
        for (int k = 0; k < 4; k++) v[k] = vmulq_f32(vld1q_f32(x + i + 4 * k), scale);
        for (int k = 0; k < 4; k++) v[k] = vmaxq_f32(v[k], vdupq_n_f32(-128.0f));
        for (int k = 0; k < 4; k++) v[k] = vminq_f32(v[k], vdupq_n_f32(127.0f));
        for (int k = 0; k < 4; k++) v[k] = vaddq_f32(v[k], magic);
        /* the low 16 bits of the sum are the integer: the magic number's own are zero */
        for (int k = 0; k < 4; k++) n[k] = vmovn_s32(vreinterpretq_s32_f32(v[k]));
        vst1q_s8(codes + i, vcombine_s8(vmovn_s16(vcombine_s16(n[0], n[1])), vmovn_s16(vcombine_s16(n[2], n[3]))));
    }
    tf_quantise_plain(x + i, inverse_scale, count - i, codes + i);
}
#endif
