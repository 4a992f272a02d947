/* Runs every kernel on vectors from a file, each in all its versions, and prints the results of the first.
 *
 *   kernels FLUSH < input > output
 *
 * Input: n (uint32, a multiple of 16), then n float32 x, n float32 y, n int32 a, n int32 b, n uint16 half.
 * Output: the arrays in the order of the calls below. Status 1 when two versions differ, with the kernel's name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"
#include "tritforge.h"

static uint32_t n;
static int different;

static void *take(size_t bytes) {
    void *data = calloc(1, bytes);
    if (fread(data, 1, bytes, stdin) != bytes) exit(2);
    return data;
}

static void give(const char *name, const void *plain, const void *best, size_t bytes) {
    if (memcmp(plain, best, bytes) != 0) {
        size_t at = 0;
        while (((const uint8_t *)plain)[at] == ((const uint8_t *)best)[at]) at++;
        fprintf(stderr, "%s: versions differ at byte %zu\n", name, at);
        different = 1;
    }
    fwrite(plain, 1, bytes, stdout);
}

#define BOTH(name, type, count, ...)                                 \
    do {                                                             \
        type *out = memcpy(results[0], start, n * sizeof(float));    \
        name##_plain(__VA_ARGS__);                                   \
        out = memcpy(results[1], start, n * sizeof(float));          \
        name(__VA_ARGS__);                                           \
        give(#name, results[0], results[1], (count) * sizeof(type)); \
    } while (0)

int main(int count, char **arguments) {
    if (count != 2 || fread(&n, sizeof n, 1, stdin) != 1 || n % 16) return 2;
    float *x = take(n * sizeof *x), *y = take(n * sizeof *y);
    int32_t *a = take(n * sizeof *a), *b = take(n * sizeof *b);
    uint16_t *half = take(n * sizeof *half);
    void *results[2] = {malloc(n * sizeof(float)), malloc(n * sizeof(float))};
    const float *start = x;
    tf_flush_to_zero(atoi(arguments[1]));
    uint32_t odd = n - 3; /* kernels that take any count also get one that is no multiple of anything */

    BOTH(tf_widen, float, odd, half, odd, out);
    float sums[2];
    for (int version = 0; version < 2; version++) { /* in two parts, as a vector comes behind a stream */
        float lanes[TF_SUM_LANES] = {0};
        uint32_t first = n / TF_SUM_LANES / 3 * TF_SUM_LANES;
        (version ? tf_add_squares : tf_add_squares_plain)(x, first, lanes);
        (version ? tf_add_squares : tf_add_squares_plain)(x + first, n - first, lanes);
        sums[version] = tf_sum_lanes(lanes);
    }
    give("tf_add_squares", sums, sums + 1, sizeof(float));
    float largest[2];
    BOTH(tf_normalise, float, n, x, 0.37f, y, n, out);
    largest[0] = tf_normalise_plain(x, 0.37f, y, n, results[0]);
    largest[1] = tf_normalise(x, 0.37f, y, n, results[0]);
    give("tf_normalise's largest", largest, largest + 1, sizeof(float));
    largest[0] = tf_largest_plain(x, odd);
    largest[1] = tf_largest(x, odd);
    give("tf_largest", largest, largest + 1, sizeof(float));
    BOTH(tf_quantise, int8_t, odd, x, 41.25f, odd, out);
    BOTH(tf_dequantise, float, odd, a, 0.0123f, odd, out);
    BOTH(tf_dequantise_add, float, odd, a, 0.0123f, odd, out); /* on top of x */
    BOTH(tf_rotate, float, n, out, y, y + n / 2, n / 2);
    BOTH(tf_exp, float, odd, x, odd, out);
    BOTH(tf_gate, float, odd, a, 0.0017f, b, 0.0213f, odd, out);
    fflush(stdout);
    return different;
}
