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
/* Four vectors in step: each operation waits for the one before it, up to six cycles on a Cortex-A9. */
void tf_dequantise_neon(const int32_t *acc, float scale, size_t count, float *out) {
    float32x4_t s = vdupq_n_f32(scale);
    size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        float32x4_t v[4];
        for (int k = 0; k < 4; k++) v[k] = vcvtq_f32_s32(vld1q_s32(acc + i + 4 * k));
        for (int k = 0; k < 4; k++) v[k] = vmulq_f32(v[k], s);
        for (int k = 0; k < 4; k++) vst1q_f32(out + i + 4 * k, v[k]);
    }
    tf_dequantise_plain(acc + i, scale, count - i, out + i);
}

void tf_dequantise_add_neon(const int32_t *acc, float scale, size_t count, float *x) {
    float32x4_t s = vdupq_n_f32(scale);
    size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        float32x4_t v[4];
        for (int k = 0; k < 4; k++) v[k] = vcvtq_f32_s32(vld1q_s32(acc + i + 4 * k));
        for (int k = 0; k < 4; k++) v[k] = vmulq_f32(v[k], s);
        for (int k = 0; k < 4; k++) v[k] = vaddq_f32(vld1q_f32(x + i + 4 * k), v[k]);
        for (int k = 0; k < 4; k++) vst1q_f32(x + i + 4 * k, v[k]);
    }
    tf_dequantise_add_plain(acc + i, scale, count - i, x + i);
}
#endif
