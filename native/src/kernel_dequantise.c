#include "kernels.h"

void tf_dequantise_plain(const int32_t *acc, float scale, size_t count, float *out) {
    for (size_t i = 0; i < count; i++) out[i] = (float)acc[i] * scale;
}

void tf_dequantise_add_plain(const int32_t *acc, float scale, size_t count, float *x) {
    for (size_t i = 0; i < count; i++) {
        float term = (float)acc[i] * scale;
        x[i] = x[i] + term;
    }
}

#if TF_NEON
void tf_dequantise_neon(const int32_t *acc, float scale, size_t count, float *out) {
    float32x4_t s = vdupq_n_f32(scale);
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        vst1q_f32(out + i, vmulq_f32(vcvtq_f32_s32(vld1q_s32(acc + i)), s));
        vst1q_f32(out + i + 4, vmulq_f32(vcvtq_f32_s32(vld1q_s32(acc + i + 4)), s));
    }
    tf_dequantise_plain(acc + i, scale, count - i, out + i);
}

void tf_dequantise_add_neon(const int32_t *acc, float scale, size_t count, float *x) {
    float32x4_t s = vdupq_n_f32(scale);
    size_t i = 0;
    for (; i + 4 <= count; i += 4)
        vst1q_f32(x + i, vaddq_f32(vld1q_f32(x + i), vmulq_f32(vcvtq_f32_s32(vld1q_s32(acc + i)), s)));
    tf_dequantise_add_plain(acc + i, scale, count - i, x + i);
}
#endif
