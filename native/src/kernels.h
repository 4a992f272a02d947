/* Element-wise arithmetic of a token: pipelines/golden/float32.py, one IEEE single operation at a time.
 *
 * Every kernel `f` has a plain-C twin `f_plain`, always built, and where there is NEON a version `f_neon` with the same
 * bits; `f` names the better one. Rules that keep them equal (and equal to numpy): no fused multiply-add, no estimate
 * instructions, comparisons and maxima of magnitudes on integers, conversions to integer through an addition that
 * cannot overflow. Loops over `count` take any count unless a multiple is named.
 */
#ifndef TF_KERNELS_H
#define TF_KERNELS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "tf_formats.h"

#if defined(__ARM_NEON) && !defined(TF_NO_NEON)
#define TF_NEON 1
#include <arm_neon.h>
#define TF_KERNEL(result, name, parameters) result name##_plain parameters; result name##_neon parameters
#define TF_BEST(name) name##_neon
#else
#define TF_NEON 0
#define TF_KERNEL(result, name, parameters) result name##_plain parameters
#define TF_BEST(name) name##_plain
#endif

/* out[i] = float32(half[i]), exactly, denormals included. No infinite or NaN halves (refused when the file is read). */
TF_KERNEL(void, tf_widen, (const uint16_t *half, size_t count, float *out));
#define tf_widen TF_BEST(tf_widen)

/* Adds the squares of x to the lanes of a sum16, magnitudes below TF_TINY counting as zero. count is a multiple of 16, so
 * that a vector may come in parts. */
TF_KERNEL(void, tf_add_squares, (const float *x, size_t count, float lanes[TF_SUM_LANES]));
#define tf_add_squares TF_BEST(tf_add_squares)

/* out[i] = (kept(x[i]) * r) * weight[i]; returns the largest |out[i]|. count is a multiple of 4. out may be x. */
TF_KERNEL(float, tf_normalise, (const float *x, float r, const float *weight, size_t count, float *out));
#define tf_normalise TF_BEST(tf_normalise)

/* Largest |x[i]|, at least +0. */
TF_KERNEL(float, tf_largest, (const float *x, size_t count));
#define tf_largest TF_BEST(tf_largest)

/* codes[i] = round(clamp(x[i] * inverse_scale, -128, 127)), ties to even. */
TF_KERNEL(void, tf_quantise, (const float *x, float inverse_scale, size_t count, int8_t *codes));
#define tf_quantise TF_BEST(tf_quantise)

/* out[i] = float32(acc[i]) * scale. */
TF_KERNEL(void, tf_dequantise, (const int32_t *acc, float scale, size_t count, float *out));
#define tf_dequantise TF_BEST(tf_dequantise)

/* x[i] = x[i] + float32(acc[i]) * scale. */
TF_KERNEL(void, tf_dequantise_add, (const int32_t *acc, float scale, size_t count, float *x));
#define tf_dequantise_add TF_BEST(tf_dequantise_add)

/* Half-split rotation of a head in place: (low, high) -> (low cos - high sin, high cos + low sin); half entries each. */
TF_KERNEL(void, tf_rotate, (float *x, const float *cosine, const float *sine, size_t half));
#define tf_rotate TF_BEST(tf_rotate)

/* out[i] = e**clamp(x[i], -40, 40). */
TF_KERNEL(void, tf_exp, (const float *x, size_t count, float *out));
#define tf_exp TF_BEST(tf_exp)

/* out[i] = (g * sigmoid(g)) * u with g = float32(gate[i]) * gate_scale, u = float32(up[i]) * up_scale. */
TF_KERNEL(void, tf_gate, (const int32_t *gate, float gate_scale, const int32_t *up, float up_scale, size_t count,
                          float *out));
#define tf_gate TF_BEST(tf_gate)

/* The sum of the lanes of a sum16. */
float tf_sum_lanes(const float lanes[TF_SUM_LANES]);

/* Index of the largest x[i], the lowest among equals; count >= 1. */
size_t tf_argmax(const float *x, size_t count);

static inline float tf_sqrt(float x) { return __builtin_sqrtf(x); } /* one instruction with -fno-math-errno */

static inline uint32_t tf_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float tf_float(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Nearest integer of |x| < 2^22, ties to even, without a conversion that could be undefined. */
static inline int32_t tf_round_to_int(float x) {
    return (int32_t)(tf_bits(x + TF_ROUND_MAGIC) - tf_bits(TF_ROUND_MAGIC));
}

/* Zero where |x| < TF_TINY. */
static inline float tf_kept(float x) { return (tf_bits(x) & 0x7FFFFFFFu) < tf_bits(TF_TINY) ? 0.0f : x; }

static inline float tf_clamp(float x, float low, float high) {
    x = x < low ? low : x;
    return x > high ? high : x;
}

#endif
