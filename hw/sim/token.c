/* One token late in a conversation, for the simulation: the runtime as it is, with K and V laid down for the positions
 * before instead of computed. Linked with native/src; nothing of the product uses it. */
#include <string.h>

#include "runtime.h"

#define TOKEN_API __attribute__((visibility("default")))

/* keys and values: int8[layers][heads][positions][head_dim]. Afterwards `positions` tokens have been said. */
TOKEN_API int token_fill(tf_runtime *runtime, uint32_t positions, const int8_t *keys, const int8_t *values) {
    const tf_params_header *shape = &runtime->image.header;
    const tf_circuits *circuits = &runtime->circuits;
    if (positions >= runtime->context || runtime->position != 0) return 1;
    for (uint32_t layer = 0; layer < shape->layers; layer++) {
        for (uint32_t head = 0; head < shape->heads; head++) {
            size_t bytes = (size_t)positions * shape->head_dim;
            size_t from = ((size_t)layer * shape->heads + head) * bytes;
            int8_t *sides[2] = {circuits->key(circuits->self, layer, head, 0),
                                circuits->value(circuits->self, layer, head, 0)};
            for (int side = 0; side < 2; side++) {
                memcpy(sides[side], (side ? values : keys) + from, bytes);
                /* The driver cleans only the row that a token appends. */
                if (runtime->pl.clean && runtime->pl.clean(runtime->pl.self, sides[side], bytes) != 0) return 2;
            }
        }
    }
    runtime->position = positions;
    return 0;
}
