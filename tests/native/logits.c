/* Runs a built libtritforge on any machine: logits of given tokens, as raw float32 on stdout.
 *
 *   logits LIBRARY FOLDER BACKEND PL_LIBRARY THREADS FLUSH PLAIN SIMPLE TOKEN...
 *
 * PL_LIBRARY is "-" for backend host. Statuses: 0, or 10 + tf_status with the text on stderr. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tritforge.h"

static void *library;

static void *find(const char *name) {
    void *function = dlsym(library, name);
    if (!function) {
        fprintf(stderr, "no %s: %s\n", name, dlerror());
        exit(2);
    }
    return function;
}

int main(int count, char **arguments) {
    if (count < 10) return 2;
    library = dlopen(arguments[1], RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    tf_status (*open_runtime)(const tf_options *, tf_runtime **);
    tf_status (*forward)(tf_runtime *, uint32_t, const float **);
    void (*get_shape)(const tf_runtime *, tf_shape *);
    void (*close_runtime)(tf_runtime *);
    const char *(*last_error)(void);
    const char *(*complaint)(tf_runtime *);
    int (*flush)(int);
    *(void **)&open_runtime = find("tf_open");
    *(void **)&forward = find("tf_forward");
    *(void **)&get_shape = find("tf_get_shape");
    *(void **)&close_runtime = find("tf_close");
    *(void **)&last_error = find("tf_last_error");
    *(void **)&complaint = find("tf_complaint");
    *(void **)&flush = find("tf_flush_to_zero");

    char paths[3][4096];
    static const char *const names[3] = {"params.tfp", "weights.tfs", "embedding.f16"};
    for (int i = 0; i < 3; i++) snprintf(paths[i], sizeof paths[i], "%s/%s", arguments[2], names[i]);
    tf_options options = {
        .struct_bytes = sizeof options,
        .api_version = TF_API_VERSION,
        .params_path = paths[0],
        .stream_path = paths[1],
        .embedding_path = paths[2],
        .backend = arguments[3],
        .pl_library = strcmp(arguments[4], "-") ? arguments[4] : NULL,
        .threads = (uint32_t)atoi(arguments[5]),
        .plain = (uint32_t)atoi(arguments[7]),
        .simple_dma = (uint32_t)atoi(arguments[8]),
    };
    flush(atoi(arguments[6]));
    tf_runtime *runtime;
    tf_shape shape;
    tf_status status = open_runtime(&options, &runtime);
    if (status == TF_OK) get_shape(runtime, &shape);
    for (int i = 9; i < count && status == TF_OK; i++) {
        const float *logits;
        status = forward(runtime, (uint32_t)atoi(arguments[i]), &logits);
        if (status == TF_OK) fwrite(logits, sizeof *logits, shape.vocab, stdout);
        if (status == TF_OK && complaint(runtime)[0]) fprintf(stderr, "complaint: %s\n", complaint(runtime));
    }
    if (status != TF_OK) {
        fprintf(stderr, "%s\n", last_error());
        return 10 + (int)status;
    }
    close_runtime(runtime);
    return fflush(stdout) ? 2 : 0;
}
