/* Options that open a packed image's folder: what every program that runs the runtime on one begins with. */
#pragma once

#include <stdio.h>
#include <string.h>

#include "tritforge.h"

/* Static, so the paths live as long as the program. `pl_library` is "-" where the backend takes none. */
static inline tf_options image_options(const char *folder, const char *backend, const char *pl_library) {
    static char paths[3][4096];
    static const char *const names[3] = {"params.tfp", "weights.tfs", "embedding.f16"};
    for (int i = 0; i < 3; i++) snprintf(paths[i], sizeof paths[i], "%s/%s", folder, names[i]);
    return (tf_options){
        .struct_bytes = sizeof(tf_options),
        .api_version = TF_API_VERSION,
        .params_path = paths[0],
        .stream_path = paths[1],
        .embedding_path = paths[2],
        .backend = backend,
        .pl_library = strcmp(pl_library, "-") ? pl_library : NULL,
    };
}
