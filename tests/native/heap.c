/* How often the heap is used while a conversation runs: linked with --wrap for each function below.
 *   heap FOLDER BACKEND PL_LIBRARY
 * Prints the count of some tokens with a sample each, then that of one deliberate allocation. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "../../native/tools/image_options.h"

static atomic_int counting, calls;

#define WRAPPED(result, name, parameters, ...)                                \
    result __real_##name parameters;                                          \
    result __wrap_##name parameters;                                          \
    result __wrap_##name parameters {                                         \
        if (atomic_load(&counting)) atomic_fetch_add(&calls, 1);              \
        return __real_##name(__VA_ARGS__);                                    \
    }

WRAPPED(void *, malloc, (size_t bytes), bytes)
WRAPPED(void *, calloc, (size_t count, size_t bytes), count, bytes)
WRAPPED(void *, realloc, (void *old, size_t bytes), old, bytes)
WRAPPED(void *, aligned_alloc, (size_t alignment, size_t bytes), alignment, bytes)
WRAPPED(int, posix_memalign, (void **where, size_t alignment, size_t bytes), where, alignment, bytes)
WRAPPED(void, free, (void *old), old)

static int taken(void) {
    atomic_store(&counting, 0);
    return atomic_exchange(&calls, 0);
}

int main(int count, char **arguments) {
    if (count != 4) return 2;
    tf_options options = image_options(arguments[1], arguments[2], arguments[3]);
    options.threads = 2;
    tf_runtime *runtime;
    if (tf_open(&options, &runtime) != TF_OK) {
        fprintf(stderr, "%s\n", tf_last_error());
        return 1;
    }
    const tf_sampling sampling = {.temperature = 0.8f, .top_k = 40, .top_p_65536 = 60000, .repetition_penalty = 1.1f};
    uint32_t said[8] = {1};
    uint64_t state = 5;
    const float *logits;
    atomic_store(&counting, 1);
    for (uint32_t i = 0; i + 1 < 8; i++)
        if (tf_forward(runtime, said[i], &logits) != TF_OK ||
            tf_sample(runtime, logits, said, i + 1, &sampling, &state, said + i + 1) != TF_OK)
            return 1;
    int tokens = taken();
    atomic_store(&counting, 1);
    free(malloc(1));
    printf("%d %d\n", tokens, taken());
    tf_close(runtime);
    return 0;
}
