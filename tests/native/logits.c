/* Runs a built libtritforge on any machine: logits of given tokens, as raw float32 on stdout.
 *
 *   logits LIBRARY FOLDER BACKEND PL_LIBRARY THREADS FLUSH PLAIN SIMPLE TOKEN...
 *
 * PL_LIBRARY is "-" for backend host. Statuses: 0, or 10 + tf_status with the text on stderr. */
#include <stdio.h>
#include <stdlib.h>

#include "../../native/tools/image_options.h"
#include "loaded.h"

int main(int count, char **arguments) {
    if (count < 10) return 2;
    load(arguments[1]);
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

    tf_options options = image_options(arguments[2], arguments[3], arguments[4]);
    options.threads = (uint32_t)atoi(arguments[5]);
    options.plain = (uint32_t)atoi(arguments[7]);
    options.simple_dma = (uint32_t)atoi(arguments[8]);
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
