#include "ternary.h"

#include <stdlib.h>
#include <string.h>

#include "image.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

/* Bytes of a row that the vector version takes at once. */
#define BLOCK 32
#define LARGEST_ROW_BYTES ((TF_MAX_ROW_LENGTH + TF_TRITS_PER_WORD - 1) / TF_TRITS_PER_WORD * TF_WORD_BYTES)
#define PADDED_ROW_BYTES ((LARGEST_ROW_BYTES + BLOCK - 1) / BLOCK * BLOCK)

struct tf_ternary {
    uint32_t row_length, row_bytes;
    int vector;
    const int8_t *x;                                    /* while tables are made */
    int16_t (*sums)[256];                               /* plain: sums[b][code] = five trits of byte b times their x */
    int8_t plane[TF_TRITS_PER_BYTE][PADDED_ROW_BYTES];  /* vector: plane[i][b] = x[5b + i] */
    int32_t sum_x;
};

static int has_avx2(void) {
#if defined(__x86_64__)
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return 0;
    unsigned low, high; /* does the operating system keep the ymm registers? */
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & 6) == 6 && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_AVX2);
#else
    return 0;
#endif
}

tf_ternary *tf_ternary_open(uint32_t largest_row_length, int plain) {
    tf_ternary *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    t->vector = !plain && has_avx2();
    if (!t->vector) {
        t->sums = calloc(tf_row_bytes(largest_row_length), sizeof *t->sums);
        if (!t->sums) {
            free(t);
            return NULL;
        }
    }
    return t;
}

void tf_ternary_close(tf_ternary *ternary) {
    if (ternary) free(ternary->sums);
    free(ternary);
}

/* Entry `code` for each code of byte b: the codes of k trits are those of k - 1 trits, once for each further digit. */
static void make_sums(void *argument, unsigned index, unsigned count) {
    tf_ternary *t = argument;
    uint32_t from, to;
    tf_share(t->row_bytes, 1, index, count, &from, &to);
    for (uint32_t b = from; b < to; b++) {
        int16_t *sums = t->sums[b];
        sums[0] = 0;
        uint32_t codes = 1;
        for (uint32_t i = 0; i < TF_TRITS_PER_BYTE; i++) {
            uint32_t at = b * TF_TRITS_PER_BYTE + i;
            int x = at < t->row_length ? t->x[at] : 0;
            for (uint32_t code = 0; code < codes; code++) {
                int rest = sums[code];
                sums[code] = (int16_t)(rest - x);
                sums[code + codes] = (int16_t)rest;
                sums[code + 2 * codes] = (int16_t)(rest + x);
            }
            codes *= 3;
        }
    }
}

void tf_ternary_set_x(tf_ternary *t, const int8_t *x, uint32_t row_length, tf_pool *pool) {
    t->row_length = row_length;
    t->row_bytes = tf_row_bytes(row_length);
    t->x = x;
    if (!t->vector) {
        if (pool)
            tf_pool_run(pool, make_sums, t);
        else
            make_sums(t, 0, 1);
        return;
    }
    memset(t->plane, 0, sizeof t->plane);
    t->sum_x = 0;
    for (uint32_t i = 0; i < row_length; i++) {
        t->plane[i % TF_TRITS_PER_BYTE][i / TF_TRITS_PER_BYTE] = x[i];
        t->sum_x += x[i];
    }
}

static int32_t row_plain(const tf_ternary *t, const uint8_t *row) {
    int32_t acc = 0;
    for (uint32_t b = 0; b < t->row_bytes; b++) acc += t->sums[b][row[b]];
    return acc;
}

#if defined(__x86_64__)
/* Digits from the top without a division: with q = floor(256 c / 243) + 1, q/256 has the five base-3 digits of c/243, and
 * each multiplication by 3 pushes the next one over the byte's end. What is kept is r = q - 1 (q is never 0), since the
 * two averages give floor(3 q / 256) from it exactly. 243..255 never occur (checked when loaded); bytes read behind the
 * row meet an x of zero. Digits are trits + 1, so sum_x is taken off at the end. */
__attribute__((target("avx2"))) static int32_t row_avx2(const tf_ternary *t, const uint8_t *row) {
    const __m256i zero = _mm256_setzero_si256(), two = _mm256_set1_epi8(2), three = _mm256_set1_epi8(3);
    const __m256i ratio = _mm256_set1_epi16(3507); /* floor(c * 3507 / 65536) = floor(13 c / 243) for c < 243 */
    __m256i sum32 = zero;
    uint32_t blocks = (t->row_bytes + BLOCK - 1) / BLOCK;
    for (uint32_t first = 0; first < blocks;) {
        /* 12 blocks of 5 digits add at most 12 * 5 * 2 * 2 * 128 = 30,720 to a 16-bit lane */
        uint32_t last = blocks - first > 12 ? first + 12 : blocks;
        __m256i sum16 = zero;
        for (; first < last; first++) {
            __m256i c = _mm256_loadu_si256((const __m256i *)(const void *)(row + first * BLOCK));
            __m256i low = _mm256_mulhi_epu16(_mm256_unpacklo_epi8(c, zero), ratio);
            __m256i high = _mm256_mulhi_epu16(_mm256_unpackhi_epi8(c, zero), ratio);
            __m256i r = _mm256_add_epi8(c, _mm256_packus_epi16(low, high));
            for (int digit = TF_TRITS_PER_BYTE - 1; digit >= 0; digit--) {
                __m256i top = _mm256_avg_epu8(r, _mm256_avg_epu8(r, zero));
                top = _mm256_and_si256(_mm256_srli_epi16(top, 6), three);
                __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)(t->plane[digit] + first * BLOCK));
                sum16 = _mm256_add_epi16(sum16, _mm256_maddubs_epi16(top, x));
                r = _mm256_add_epi8(_mm256_add_epi8(r, two), _mm256_add_epi8(r, r)); /* 3 q - 1 */
            }
        }
        sum32 = _mm256_add_epi32(sum32, _mm256_madd_epi16(sum16, _mm256_set1_epi16(1)));
    }
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(sum32), _mm256_extracti128_si256(sum32, 1));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4E));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0xB1));
    return _mm_cvtsi128_si32(four) - t->sum_x;
}
#endif

void tf_ternary_rows(const tf_ternary *t, const uint8_t *rows, uint32_t count, size_t readable, int32_t *acc) {
#if defined(__x86_64__)
    if (t->vector) {
        size_t whole = (t->row_bytes + BLOCK - 1) / BLOCK * BLOCK;
        for (uint32_t r = 0; r < count; r++) {
            size_t at = (size_t)r * t->row_bytes;
            uint8_t copy[PADDED_ROW_BYTES];
            const uint8_t *row = rows + at;
            if (whole > readable - at) { /* a row at the very end of the file */
                memset(copy, 0, sizeof copy);
                memcpy(copy, row, t->row_bytes);
                row = copy;
            }
            acc[r] = row_avx2(t, row);
        }
        return;
    }
#endif
    (void)readable;
    for (uint32_t r = 0; r < count; r++) acc[r] = row_plain(t, rows + (size_t)r * t->row_bytes);
}
