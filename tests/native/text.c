/* Runs a built libtritforge on any machine: continues tokens with seeded sampling, one id a line on stdout.
 *
 *   text LIBRARY FOLDER COUNT SEED TEMPERATURE TOP_K TOP_P_65536 REPETITION_PENALTY TOKEN...
 *
 * Statuses: 0, or 10 + tf_status with the text on stderr. */
#include <stdio.h>
#include <stdlib.h>

#include "../../native/tools/image_options.h"
#include "loaded.h"

enum { MOST = 4096 };

int main(int count, char **arguments) {
    if (count < 10) return 2;
    load(arguments[1]);
    tf_status (*open_runtime)(const tf_options *, tf_runtime **);
    tf_status (*forward)(tf_runtime *, uint32_t, const float **);
    tf_status (*sample)(tf_runtime *, const float *, const uint32_t *, size_t, const tf_sampling *, uint64_t *,
                        uint32_t *);
    void (*close_runtime)(tf_runtime *);
    const char *(*last_error)(void);
    *(void **)&open_runtime = find("tf_open");
    *(void **)&forward = find("tf_forward");
    *(void **)&sample = find("tf_sample");
    *(void **)&close_runtime = find("tf_close");
    *(void **)&last_error = find("tf_last_error");

    tf_options options = image_options(arguments[2], "host", "-");
    options.threads = 1;
    int wanted = atoi(arguments[3]);
    uint64_t state = strtoull(arguments[4], NULL, 10);
    tf_sampling sampling = {
        .temperature = strtof(arguments[5], NULL),
        .top_k = (uint32_t)atoi(arguments[6]),
        .top_p_65536 = (uint32_t)atoi(arguments[7]),
        .repetition_penalty = strtof(arguments[8], NULL),
    };
    tf_runtime *runtime;
    const float *logits = NULL;
    static uint32_t said[MOST];
    size_t length = 0;
    tf_status status = open_runtime(&options, &runtime);
    for (int i = 9; i < count && length < MOST && status == TF_OK; i++) {
        said[length] = (uint32_t)atoi(arguments[i]);
        status = forward(runtime, said[length++], &logits);
    }
    for (int i = 0; i < wanted && length < MOST && status == TF_OK; i++) {
        status = sample(runtime, logits, said, length, &sampling, &state, &said[length]);
        if (status != TF_OK) break;
        printf("%u\n", said[length]);
        status = forward(runtime, said[length++], &logits);
    }
    if (status != TF_OK) {
        fprintf(stderr, "%s\n", last_error());
        return 10 + (int)status;
    }
    close_runtime(runtime);
    return fflush(stdout) ? 2 : 0;
}
