#include "kernels.h"

size_t tf_argmax(const float *x, size_t count) {
    size_t best = 0;
    for (size_t i = 1; i < count; i++)
        if (x[i] > x[best]) best = i;
    return best;
}
