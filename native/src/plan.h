/* Where everything lies in contiguous memory, computed from params.tfp alone. */
#ifndef TF_PLAN_H
#define TF_PLAN_H

#include "image.h"

/* Bytes of a scatter-gather descriptor, and their alignment (PG021). */
#define TF_DESCRIPTOR_BYTES 64
/* What the board's allocator gives is page-aligned, and so are the two buffers. */
#define TF_PAGE_BYTES 4096

typedef struct {
    tf_memory_plan plan;
    /* offsets in the buffer `streams`; weights lie at 0 */
    uint64_t keys, values; /* [layers][heads] slots of kv_stride bytes */
    uint64_t head_slots;   /* [heads] slots of head_stride bytes: header word and q */
    uint64_t descriptors;
    uint64_t staging;      /* [TF_PORTS] slots of staging_stride bytes */
    uint32_t kv_stride, head_stride, staging_stride;
    /* offsets in the buffer `results`; matrix results lie at 0 */
    uint64_t attention_results[TF_PORTS];
    uint32_t sums_bytes; /* of a head: numerators, denominator and padding */
    /* descriptors of a token, by engine */
    uint32_t mm2s_descriptors[TF_ENGINES], s2mm_descriptors[TF_ENGINES];
} tf_layout;

static inline uint64_t tf_align(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

/* Result bytes of a transfer of `rows` rows: int32, an odd count padded to a whole word. */
static inline uint32_t tf_result_bytes(uint32_t rows) { return (rows + 1) / 2 * TF_WORD_BYTES; }

/* Heads of a layer that a port takes: port 0 the first half and the odd one. */
static inline uint32_t tf_port_heads(uint32_t heads, uint32_t port) { return port == 0 ? (heads + 1) / 2 : heads / 2; }

tf_status tf_layout_make(tf_layout *layout, const tf_image *image, uint32_t context);

#endif
