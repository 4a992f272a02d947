#include "kernels.h"

/* Moving exponent and mantissa up by 13 bits leaves an exponent that is 112 too small; a denormal half is an integer
 * times 2^-24. Neither way makes a denormal float32 on the way. */
static float widen(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16, magnitude = half & 0x7FFFu;
    float value = magnitude < 0x0400u ? (float)(int32_t)magnitude * 0x1p-24f
                                      : tf_float((magnitude << 13) + (112u << 23));
    return tf_float(tf_bits(value) | sign);
}

void tf_widen_plain(const uint16_t *half, size_t count, float *out) {
    for (size_t i = 0; i < count; i++) out[i] = widen(half[i]);
}

#if TF_NEON
void tf_widen_neon(const uint16_t *half, size_t count, float *out) {
    size_t i = 0;
    for (; i + 4 <= count; i += 4) {
        uint32x4_t h = vmovl_u16(vld1_u16(half + i));
        uint32x4_t magnitude = vandq_u32(h, vdupq_n_u32(0x7FFF));
        uint32x4_t sign = vshlq_n_u32(vandq_u32(h, vdupq_n_u32(0x8000)), 16);
        float32x4_t small = vmulq_f32(vcvtq_f32_u32(magnitude), vdupq_n_f32(0x1p-24f));
        uint32x4_t normal = vaddq_u32(vshlq_n_u32(magnitude, 13), vdupq_n_u32(112u << 23));
        uint32x4_t is_small = vcltq_u32(magnitude, vdupq_n_u32(0x0400));
        uint32x4_t value = vbslq_u32(is_small, vreinterpretq_u32_f32(small), normal);
        vst1q_f32(out + i, vreinterpretq_f32_u32(vorrq_u32(value, sign)));
    }
    tf_widen_plain(half + i, count - i, out + i);
}
#endif
