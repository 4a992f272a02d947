/* One head's attention on this machine (pipelines/golden/attention.py: attend), for backend `host`. */
#ifndef TF_ATTEND_H
#define TF_ATTEND_H

#include <stdint.h>

/* q int8[dim]; keys, values int8[positions][dim]; scores is room for int32[positions].
 * sums int32[dim + 1]: the numerators, then the denominator. Probabilities have 15 bits, or 13. */
void tf_attend(const int8_t *q, const int8_t *keys, const int8_t *values, uint32_t dim, uint32_t positions, int32_t m,
               int bits, int32_t *scores, int32_t *sums);

#endif
