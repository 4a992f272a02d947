/* Token ids on stdin (uint32, little-endian), logits of each on stdout (float32[vocab]): the runtime without a PL, for
 * holding another instruction set against a board under qemu-user. Arguments: params.tfp weights.tfs embedding.f16. */
#include <stdio.h>

#include "tritforge.h"

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: steps params.tfp weights.tfs embedding.f16\n");
        return 2;
    }
    tf_options options = {0};
    options.struct_bytes = sizeof options;
    options.api_version = TF_API_VERSION;
    options.params_path = argv[1];
    options.stream_path = argv[2];
    options.embedding_path = argv[3];
    options.backend = "host";
    options.threads = 1;
    tf_runtime *runtime = NULL;
    if (tf_open(&options, &runtime) != TF_OK) {
        fprintf(stderr, "%s\n", tf_last_error());
        return 1;
    }
    tf_shape shape;
    tf_get_shape(runtime, &shape);
    uint32_t token;
    while (fread(&token, sizeof token, 1, stdin) == 1) {
        const float *logits;
        if (tf_forward(runtime, token, &logits) != TF_OK) {
            fprintf(stderr, "%s\n", tf_last_error());
            return 1;
        }
        if (fwrite(logits, sizeof *logits, shape.vocab, stdout) != shape.vocab)
            return 1;
    }
    tf_close(runtime);
    return fflush(stdout) == 0 ? 0 : 1;
}
