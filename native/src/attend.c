#include "attend.h"

#include <string.h>

#include "tf_formats.h"

void tf_attend(const int8_t *q, const int8_t *keys, const int8_t *values, uint32_t dim, uint32_t positions, int32_t m,
               int bits, int32_t *scores, int32_t *sums) {
    const uint16_t *table = bits == 15 ? tf_exp_table_15 : tf_exp_table_13;
    int32_t largest = INT32_MIN;
    for (uint32_t t = 0; t < positions; t++) {
        const int8_t *key = keys + (size_t)t * dim;
        int32_t dot = 0;
        for (uint32_t i = 0; i < dim; i++) dot += q[i] * key[i];
        scores[t] = (int32_t)((int64_t)dot * m >> TF_SCORE_SHIFT);
        if (scores[t] > largest) largest = scores[t];
    }
    memset(sums, 0, (dim + 1) * sizeof *sums);
    for (uint32_t t = 0; t < positions; t++) {
        int32_t distance = largest - scores[t];
        if (distance >= TF_EXP_TABLE_ENTRIES || table[distance] == 0) continue;
        int32_t p = table[distance];
        const int8_t *value = values + (size_t)t * dim;
        for (uint32_t i = 0; i < dim; i++) sums[i] += p * value[i];
        sums[dim] += p;
    }
}
