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

static inline int16x4_t round4(float32x4_t x, float32x4_t inverse_scale) {
    float32x4_t scaled = vmulq_f32(x, inverse_scale);
    scaled = vminq_f32(vmaxq_f32(scaled, vdupq_n_f32(-128.0f)), vdupq_n_f32(127.0f));
    int32x4_t bits = vreinterpretq_s32_f32(vaddq_f32(scaled, vdupq_n_f32(TF_ROUND_MAGIC)));
    return vmovn_s32(vsubq_s32(bits, vreinterpretq_s32_f32(vdupq_n_f32(TF_ROUND_MAGIC))));
}

void tf_quantise_neon(const float *x, float inverse_scale, size_t count, int8_t *codes) {
    float32x4_t scale = vdupq_n_f32(inverse_scale);
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        int16x8_t eight = vcombine_s16(round4(vld1q_f32(x + i), scale), round4(vld1q_f32(x + i + 4), scale));
        vst1_s8(codes + i, vmovn_s16(eight));
    }
    tf_quantise_plain(x + i, inverse_scale, count - i, codes + i);
}
#endif
