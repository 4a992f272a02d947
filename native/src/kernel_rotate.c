#include "kernels.h"

void tf_rotate_plain(float *x, const float *cosine, const float *sine, size_t half) {
    for (size_t i = 0; i < half; i++) {
        float low = x[i], high = x[half + i];
        x[i] = low * cosine[i] - high * sine[i];
        x[half + i] = high * cosine[i] + low * sine[i];
    }
}

#if TF_NEON
void tf_rotate_neon(float *x, const float *cosine, const float *sine, size_t half) {
    size_t i = 0;
    for (; i + 4 <= half; i += 4) {
        float32x4_t low = vld1q_f32(x + i), high = vld1q_f32(x + half + i);
        float32x4_t c = vld1q_f32(cosine + i), s = vld1q_f32(sine + i);
        vst1q_f32(x + i, vsubq_f32(vmulq_f32(low, c), vmulq_f32(high, s)));
        vst1q_f32(x + half + i, vaddq_f32(vmulq_f32(high, c), vmulq_f32(low, s)));
    }
    for (; i < half; i++) {
        float low = x[i], high = x[half + i];
        x[i] = low * cosine[i] - high * sine[i];
        x[half + i] = high * cosine[i] + low * sine[i];
    }
}
#endif
