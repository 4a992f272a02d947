/* Says tokens with a backend; what is counted when instructions are counted.
 *   say_tokens FOLDER BACKEND PL_LIBRARY THREADS TOKENS */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tritforge.h"

int main(int count, char **arguments) {
    if (count != 6) return 2;
    char paths[3][4096];
    static const char *const names[3] = {"params.tfp", "weights.tfs", "embedding.f16"};
    for (int i = 0; i < 3; i++) snprintf(paths[i], sizeof paths[i], "%s/%s", arguments[1], names[i]);
    tf_options options = {
        .struct_bytes = sizeof options,
        .api_version = TF_API_VERSION,
        .params_path = paths[0],
        .stream_path = paths[1],
        .embedding_path = paths[2],
        .backend = arguments[2],
        .pl_library = strcmp(arguments[3], "-") ? arguments[3] : NULL,
        .threads = (uint32_t)atoi(arguments[4]),
    };
    tf_runtime *runtime;
    const float *logits;
    tf_status status = tf_open(&options, &runtime);
    for (int i = 0; i < atoi(arguments[5]) && status == TF_OK; i++)
        status = tf_forward(runtime, (uint32_t)i + 1, &logits);
    if (status != TF_OK) {
        fprintf(stderr, "%s\n", tf_last_error());
        return 1;
    }
    tf_close(runtime);
    return 0;
}
