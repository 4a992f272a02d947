#include "plan.h"

#include <string.h>

#include "circuits.h"
#include "error.h"

tf_status tf_layout_make(tf_layout *layout, const tf_image *image, uint32_t context) {
    const tf_params_header *shape = &image->header;
    tf_memory_plan *plan = &layout->plan;
    memset(layout, 0, sizeof *layout);
    plan->context = context;
    plan->embedding = shape->embedding_bytes;

    plan->weights = tf_align(shape->stream_bytes, TF_TRANSFER_ALIGN_BYTES);
    layout->kv_stride = (uint32_t)tf_align((uint64_t)context * shape->head_dim, TF_TRANSFER_ALIGN_BYTES);
    layout->head_stride = (uint32_t)tf_align(TF_WORD_BYTES + shape->head_dim, TF_TRANSFER_ALIGN_BYTES);
    layout->staging_stride = (uint32_t)tf_align(
        TF_WORD_BYTES + shape->head_dim + 2ull * context * shape->head_dim, TF_TRANSFER_ALIGN_BYTES);
    uint64_t one_side = (uint64_t)shape->layers * shape->heads * layout->kv_stride;
    plan->keys_values = 2 * one_side;
    plan->head_slots = (uint64_t)shape->heads * layout->head_stride;
    plan->staging = (uint64_t)TF_PORTS * layout->staging_stride;

    /* Results: a group's pieces of both ports one behind the other; a group's space is used again by the next one. */
    uint64_t largest = 0, group_bytes = 0;
    for (uint32_t i = 0; i < shape->transfers; i++) {
        const tf_transfer *t = image->transfers + i;
        if (t->port == 0 && t->piece == 0) group_bytes = 0;
        group_bytes += tf_align(tf_result_bytes(t->rows), TF_TRANSFER_ALIGN_BYTES);
        largest = group_bytes > largest ? group_bytes : largest;
        layout->mm2s_descriptors[t->port]++;
        layout->s2mm_descriptors[t->port] += (t->rows + TF_CHUNK_ROWS - 1) / TF_CHUNK_ROWS;
    }
    layout->sums_bytes = (shape->head_dim / 2 + 1) * TF_WORD_BYTES;
    uint64_t results = largest;
    uint32_t count = 0;
    plan->transfers_per_token = shape->transfers;
    for (uint32_t port = 0; port < TF_PORTS; port++) {
        uint32_t heads = tf_port_heads(shape->heads, port), engine = TF_ENGINE_ATTENTION0 + port;
        layout->attention_results[port] = results;
        results += tf_align((uint64_t)heads * layout->sums_bytes, TF_TRANSFER_ALIGN_BYTES);
        layout->mm2s_descriptors[engine] = heads ? shape->layers * heads * 3 : 0; /* header and q, K, V */
        layout->s2mm_descriptors[engine] = heads ? shape->layers : 0;
        if (heads) plan->transfers_per_token += shape->layers;
    }
    for (uint32_t engine = 0; engine < TF_ENGINES; engine++)
        count += layout->mm2s_descriptors[engine] + layout->s2mm_descriptors[engine];
    plan->descriptors = (uint64_t)count * TF_DESCRIPTOR_BYTES;

    layout->keys = plan->weights;
    layout->values = layout->keys + one_side;
    layout->head_slots = layout->values + one_side;
    layout->descriptors = layout->head_slots + plan->head_slots;
    layout->staging = layout->descriptors + plan->descriptors;
    plan->streams = tf_align(layout->staging + plan->staging, TF_PAGE_BYTES);
    plan->results = tf_align(results, TF_PAGE_BYTES);
    plan->total = plan->streams + plan->results;
    if (plan->total > UINT32_MAX)
        return tf_fail(TF_STATUS_MEMORY, "contiguous memory of %llu bytes is beyond the DMAs' 32-bit addresses",
                       (unsigned long long)plan->total);
    return TF_OK;
}
