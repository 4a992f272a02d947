/* The packed image: params.tfp, weights.tfs and embedding.f16, checked in every byte that matters. */
#ifndef TF_IMAGE_H
#define TF_IMAGE_H

#include <stdbool.h>

#include "tf_formats.h"
#include "tritforge.h"

/* As in the file (docs/formats.md, ParamsHeader). */
typedef struct {
    char magic[8];
    uint32_t version, header_bytes;
    uint64_t file_bytes, stream_bytes;
    uint32_t hidden, ffn, layers, heads, head_dim, vocab, context, head_planes;
    uint32_t transfers, ports;
    float rms_eps;
    uint32_t bos, eos, max_transfer_bytes, tau, score_shift;
    uint64_t embedding_bytes;
    uint32_t flags, zero;
    char reserved[8];
    uint32_t crc32;
    char padding[4];
} tf_params_header;

_Static_assert(sizeof(tf_params_header) == TF_PARAMS_HEADER_BYTES, "as pipelines/golden/formats.py packs it");

typedef struct {
    uint32_t layer, group, port, piece;
    uint64_t offset, size_bytes;
    uint32_t first_row, rows, row_length, flags, x_offset, crc32;
} tf_transfer;

_Static_assert(sizeof(tf_transfer) == TF_TRANSFER_ENTRY_BYTES, "as pipelines/golden/formats.py packs it");

/* Scales of a layer, in the file's order. */
typedef struct {
    float q, k, v, o, gate, up, down, zero;
} tf_scales;

typedef struct {
    const float *input_norm, *post_norm, *inner_attn_norm; /* [hidden] */
    const float *ffn_norm;                                 /* [ffn] */
    const tf_scales *scales;
    const float *k_inverse_scale, *v_inverse_scale, *v_scale, *score_coefficient; /* [heads] */
} tf_layer;

typedef struct {
    tf_params_header header;
    void *params; /* the whole file */
    const tf_transfer *transfers;
    const tf_transfer **group_transfers; /* [(layers + 1) * TF_GROUPS * TF_PORTS]: first piece, NULL if there is none */
    tf_layer *layers;
    const float *final_norm, *head_scales, *rope_cos, *rope_sin;
    const uint16_t *embedding; /* float16[vocab][hidden], mapped */
    size_t embedding_mapped;
} tf_image;

uint32_t tf_group_rows(const tf_params_header *shape, uint32_t group);
uint32_t tf_group_row_length(const tf_params_header *shape, uint32_t group);
/* Rows of a group that a port takes: port 0 the first half and the odd one. */
uint32_t tf_port_rows(uint32_t rows, uint32_t port);
/* Bytes of one packed row. */
static inline uint32_t tf_row_bytes(uint32_t row_length) {
    return (row_length + TF_TRITS_PER_WORD - 1) / TF_TRITS_PER_WORD * TF_WORD_BYTES;
}
/* Bytes of an x slot. */
static inline uint32_t tf_x_bytes(uint32_t row_length) {
    return (row_length + TF_WORD_BYTES - 1) / TF_WORD_BYTES * TF_WORD_BYTES;
}
/* A header word of either circuit, its check byte set. */
uint64_t tf_with_check(uint64_t word);

/* First piece of a group's share of a port; the other pieces follow it in the table. NULL: the port has no row. */
static inline const tf_transfer *tf_first_piece(const tf_image *image, uint32_t layer, uint32_t group, uint32_t port) {
    return image->group_transfers[(layer * TF_GROUPS + group) * TF_PORTS + port];
}

/* Reads and checks params.tfp. */
tf_status tf_image_read_params(tf_image *image, const char *path);
/* Checks the whole of weights.tfs, which lies in memory at `stream`. */
tf_status tf_image_check_stream(const tf_image *image, const char *path, const uint8_t *stream);
/* Maps and checks embedding.f16. */
tf_status tf_image_map_embedding(tf_image *image, const char *path);
/* Maps weights.tfs read-only. */
tf_status tf_image_map_stream(const tf_image *image, const char *path, const uint8_t **stream);
void tf_image_unmap_stream(const tf_image *image, const uint8_t *stream);
void tf_image_close(tf_image *image);

#endif
