#include "image.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "crc32.h"
#include "error.h"
#include "tf_bounds.h"

/* Bounds of this implementation, far above any model of the family; they keep sizes below 2^32. */
#define LARGEST_LAYERS 256
#define LARGEST_VOCAB (1u << 20)
#define LARGEST_PLANES 4

static const char *const group_names[TF_GROUPS] = {"qkv", "o", "gate_up", "down", "head"};

uint32_t tf_group_rows(const tf_params_header *shape, uint32_t group) {
    switch (group) {
    case TF_GROUP_QKV: return 3 * shape->hidden;
    case TF_GROUP_GATE_UP: return 2 * shape->ffn;
    case TF_GROUP_HEAD: return shape->head_planes * shape->vocab;
    default: return shape->hidden;
    }
}

uint32_t tf_group_row_length(const tf_params_header *shape, uint32_t group) {
    return group == TF_GROUP_DOWN ? shape->ffn : shape->hidden;
}

uint32_t tf_port_rows(uint32_t rows, uint32_t port) { return port == 0 ? (rows + 1) / 2 : rows / 2; }

uint64_t tf_with_check(uint64_t word) {
    uint64_t check = 0;
    for (int byte = 0; byte < 7; byte++) check ^= word >> 8 * byte & 255;
    return (word & 0x00FFFFFFFFFFFFFFu) | check << 56;
}

/* Opens a regular file that must have `expected` bytes (0: any size that fits memory). Returns its descriptor or -1. */
static int open_sized(const char *path, uint64_t expected, uint64_t *size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat status;
    if (fd < 0) {
        tf_fail(TF_STATUS_FILE, "%s: cannot be opened: %s", path, strerror(errno));
        return -1;
    }
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
        tf_fail(TF_STATUS_FILE, "%s: is not a regular file", path);
        close(fd);
        return -1;
    }
    *size = (uint64_t)status.st_size;
    if (expected && *size != expected) {
        tf_fail(TF_STATUS_FORMAT, "%s: has %llu bytes, params.tfp says %llu", path, (unsigned long long)*size,
                (unsigned long long)expected);
        close(fd);
        return -1;
    }
    return fd;
}

static tf_status read_all(int fd, const char *path, uint8_t *data, uint64_t bytes) {
    const uint64_t largest_read = 1u << 20; /* keeps the page cache of a small board from growing ahead of us */
    for (uint64_t done = 0; done < bytes;) {
        uint64_t left = bytes - done;
        ssize_t got = read(fd, data + done, (size_t)(left < largest_read ? left : largest_read));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return tf_fail(TF_STATUS_FILE, "%s: cannot be read: %s", path, strerror(errno));
        if (got == 0) return tf_fail(TF_STATUS_FILE, "%s: became shorter while it was read", path);
        done += (uint64_t)got;
    }
    return TF_OK;
}

/* Floating point fields are checked by their bits: comparisons with NaN mislead, and denormals must not be loaded. */
static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* The magnitude is finite and in smallest..largest, or it is zero where that is allowed. */
static bool in_range(float value, float smallest, float largest, bool zero_allowed) {
    uint32_t magnitude = bits_of(value) & 0x7FFFFFFFu;
    if (magnitude == 0) return zero_allowed;
    return magnitude >= bits_of(smallest) && magnitude <= bits_of(largest);
}

static tf_status check_header(const tf_params_header *h, const char *path, uint64_t file_bytes) {
#define FIELD(condition, name, value)                                                                              \
    if (!(condition))                                                                                              \
    return tf_fail(TF_STATUS_FORMAT, "%s: header field '%s' is %llu: must be %s", path, name,                \
                   (unsigned long long)(value), #condition)
    if (memcmp(h->magic, TF_PARAMS_MAGIC, sizeof h->magic) != 0)
        return tf_fail(TF_STATUS_FORMAT, "%s: does not start with " TF_PARAMS_MAGIC, path);
    FIELD(h->version == TF_FORMATS_VERSION, "version", h->version);
    FIELD(h->header_bytes == TF_PARAMS_HEADER_BYTES, "header_bytes", h->header_bytes);
    FIELD(h->file_bytes == file_bytes, "file_bytes", h->file_bytes);
    FIELD(h->hidden >= 16 && h->hidden <= TF_MAX_ROW_LENGTH && h->hidden % 16 == 0, "hidden", h->hidden);
    FIELD(h->ffn >= 16 && h->ffn <= TF_MAX_ROW_LENGTH && h->ffn % 16 == 0, "ffn", h->ffn);
    FIELD(h->layers >= 1 && h->layers <= LARGEST_LAYERS, "layers", h->layers);
    FIELD(h->head_dim >= 8 && h->head_dim <= 504 && h->head_dim % 8 == 0, "head_dim", h->head_dim);
    FIELD(h->heads >= 1 && (uint64_t)h->heads * h->head_dim == h->hidden, "heads", h->heads);
    FIELD(h->vocab >= 2 && h->vocab <= LARGEST_VOCAB, "vocab", h->vocab);
    FIELD(h->context >= 1 && h->context <= TF_MAX_CONTEXT, "context", h->context);
    FIELD(h->head_planes >= 1 && h->head_planes <= LARGEST_PLANES, "head_planes", h->head_planes);
    FIELD(h->ports == TF_PORTS, "ports", h->ports);
    FIELD(in_range(h->rms_eps, 1e-12f, 1.0f, false) && bits_of(h->rms_eps) >> 31 == 0, "rms_eps", 0);
    FIELD(h->bos < h->vocab, "bos", h->bos);
    FIELD(h->eos < h->vocab, "eos", h->eos);
    FIELD(h->tau == TF_TAU, "tau", h->tau);
    FIELD(h->score_shift == TF_SCORE_SHIFT, "score_shift", h->score_shift);
    FIELD(h->embedding_bytes == (uint64_t)h->vocab * h->hidden * 2, "embedding_bytes", h->embedding_bytes);
    FIELD(h->flags == 0, "flags", h->flags);
    FIELD(h->zero == 0, "reserved word", h->zero);
    FIELD(h->transfers >= 1 && h->transfers <= 1u << 20, "transfers", h->transfers);
    FIELD(h->max_transfer_bytes >= 4096 && h->max_transfer_bytes < 1u << 26, "max_transfer_bytes",
          h->max_transfer_bytes);
    FIELD(h->stream_bytes >= 1 && h->stream_bytes <= UINT32_MAX, "stream_bytes", h->stream_bytes);
#undef FIELD
    for (size_t i = 0; i < sizeof h->reserved; i++)
        if (h->reserved[i]) return tf_fail(TF_STATUS_FORMAT, "%s: reserved bytes of the header are not zero", path);
    for (size_t i = 0; i < sizeof h->padding; i++)
        if (h->padding[i]) return tf_fail(TF_STATUS_FORMAT, "%s: padding of the header is not zero", path);
    return TF_OK;
}

/* The table must be exactly what the order layer, group, port, piece and the limit of a transfer allow. */
static tf_status check_transfers(tf_image *image, const char *path) {
    const tf_params_header *h = &image->header;
    uint32_t index = 0;
    uint64_t end = 0;
    for (uint32_t layer = 0; layer <= h->layers; layer++) {
        uint32_t first_group = layer < h->layers ? TF_GROUP_QKV : TF_GROUP_HEAD;
        uint32_t last_group = layer < h->layers ? TF_GROUP_DOWN : TF_GROUP_HEAD;
        for (uint32_t group = first_group; group <= last_group; group++) {
            uint32_t length = tf_group_row_length(h, group);
            uint32_t first_row = 0;
            for (uint32_t port = 0; port < TF_PORTS; port++) {
                uint32_t share = tf_port_rows(tf_group_rows(h, group), port);
                image->group_transfers[(layer * TF_GROUPS + group) * TF_PORTS + port] =
                    share ? image->transfers + index : NULL;
                uint32_t done = 0;
                for (uint32_t piece = 0; done < share; piece++, index++) {
                    if (index == h->transfers)
                        return tf_fail(TF_STATUS_FORMAT, "%s: transfer table ends before layer %u, group %s, port %u",
                                       path, layer, group_names[group], port);
                    const tf_transfer *t = image->transfers + index;
#define ENTRY(condition, name, value)                                                                              \
    if (!(condition))                                                                                              \
    return tf_fail(TF_STATUS_FORMAT, "%s: transfer %u (layer %u, group %s, port %u, piece %u), field '%s' is "     \
                   "%llu: must be %s", path, index, layer, group_names[group], port, piece, name,                  \
                   (unsigned long long)(value), #condition)
                    bool loads_x = piece == 0;
                    uint64_t fixed = TF_WORD_BYTES + (loads_x ? tf_x_bytes(length) : 0);
                    uint64_t aligned = (end + TF_TRANSFER_ALIGN_BYTES - 1) & ~(uint64_t)(TF_TRANSFER_ALIGN_BYTES - 1);
                    ENTRY(t->layer == layer, "layer", t->layer);
                    ENTRY(t->group == group, "group", t->group);
                    ENTRY(t->port == port, "port", t->port);
                    ENTRY(t->piece == piece, "piece", t->piece);
                    ENTRY(t->first_row == first_row + done, "first_row", t->first_row);
                    ENTRY(t->rows >= 1 && t->rows <= share - done, "rows", t->rows);
                    ENTRY(t->row_length == length, "row_length", t->row_length);
                    ENTRY(t->flags == (loads_x ? TF_TRANSFER_LOADS_X : 0u), "flags", t->flags);
                    ENTRY(t->x_offset == (loads_x ? TF_WORD_BYTES : 0u), "x_offset", t->x_offset);
                    ENTRY(t->offset == aligned, "offset", t->offset);
                    ENTRY(t->size_bytes == fixed + (uint64_t)t->rows * tf_row_bytes(length), "size_bytes",
                          t->size_bytes);
                    ENTRY(t->size_bytes <= h->max_transfer_bytes, "size_bytes", t->size_bytes);
                    ENTRY(t->size_bytes <= h->stream_bytes && t->offset <= h->stream_bytes - t->size_bytes, "offset",
                          t->offset);
#undef ENTRY
                    end = t->offset + t->size_bytes;
                    done += t->rows;
                }
                first_row += share;
            }
        }
    }
    if (index != h->transfers)
        return tf_fail(TF_STATUS_FORMAT, "%s: transfer table has %u entries, the shape needs %u", path, h->transfers,
                       index);
    if (h->stream_bytes - end >= TF_TRANSFER_ALIGN_BYTES)
        return tf_fail(TF_STATUS_FORMAT, "%s: weights.tfs has %llu bytes, its last transfer ends at %llu", path,
                       (unsigned long long)h->stream_bytes, (unsigned long long)end);
    return TF_OK;
}

/* Where each float table lies; the running position in floats. */
typedef struct {
    const float *next;
    const char *path;
    tf_status status;
} table_reader;

static const float *take(table_reader *reader, const char *name, int layer, size_t count, float smallest, float largest,
                         bool zero_allowed, bool negative_allowed) {
    const float *table = reader->next;
    for (size_t i = 0; i < count && reader->status == TF_OK; i++) {
        bool good = in_range(table[i], smallest, largest, zero_allowed) &&
                    (negative_allowed || bits_of(table[i]) >> 31 == 0);
        if (!good)
            reader->status = tf_fail(TF_STATUS_FORMAT,
                                     "%s: %s[%zu] of layer %d has the bits 0x%08x: NaN, infinite or outside its range",
                                     reader->path, name, i, layer, bits_of(table[i]));
    }
    reader->next += count;
    return table;
}

static tf_status check_tables(tf_image *image, const char *path, const float *start) {
    const tf_params_header *h = &image->header;
    table_reader reader = {start, path, TF_OK};
#define BOUNDED(name, layer, count, bound, signed_or_zero) \
    take(&reader, name, layer, count, bound##_MIN, bound##_MAX, signed_or_zero, signed_or_zero)
#define NORM(name, layer, count) BOUNDED(name, layer, count, TF_NORM_WEIGHT, true)
#define SCALE(name, layer, count) BOUNDED(name, layer, count, TF_MATRIX_SCALE, false)
#define KV_SCALE(name, layer) BOUNDED(name, layer, h->heads, TF_KV_SCALE, false)
#define TURN(name) \
    take(&reader, name, -1, (size_t)h->context * (h->head_dim / 2), TF_TINY, 1.0f, true, true)
    for (uint32_t number = 0; number < h->layers; number++) {
        tf_layer *layer = image->layers + number;
        int n = (int)number;
        layer->input_norm = NORM("input_norm", n, h->hidden);
        layer->post_norm = NORM("post_norm", n, h->hidden);
        layer->inner_attn_norm = NORM("inner_attn_norm", n, h->hidden);
        layer->ffn_norm = NORM("ffn_norm", n, h->ffn);
        layer->scales = (const tf_scales *)SCALE("scales", n, 7);
        take(&reader, "scales' zero", n, 1, 0.0f, 0.0f, true, false);
        layer->k_inverse_scale = KV_SCALE("k_inverse_scale", n);
        layer->v_inverse_scale = KV_SCALE("v_inverse_scale", n);
        layer->v_scale = KV_SCALE("v_scale", n);
        layer->score_coefficient = BOUNDED("score_coefficient", n, h->heads, TF_SCORE_COEFFICIENT, false);
    }
    image->final_norm = NORM("final_norm", -1, h->hidden);
    image->head_scales = SCALE("head_scales", -1, h->head_planes);
    take(&reader, "unused head_scales", -1, LARGEST_PLANES - h->head_planes, 0.0f, 0.0f, true, false);
    image->rope_cos = TURN("rope_cos");
    image->rope_sin = TURN("rope_sin");
#undef BOUNDED
#undef NORM
#undef SCALE
#undef KV_SCALE
#undef TURN
    return reader.status;
}

/* Bytes of all float tables, from the shape. */
static uint64_t table_bytes(const tf_params_header *h) {
    uint64_t layer = 3ull * h->hidden + h->ffn + 8 + 4ull * h->heads;
    return 4 * (h->layers * layer + h->hidden + LARGEST_PLANES + (uint64_t)h->context * h->head_dim);
}

tf_status tf_image_read_params(tf_image *image, const char *path) {
    uint64_t size;
    int fd = open_sized(path, 0, &size);
    if (fd < 0) return tf_last_status();
    if (size < TF_PARAMS_HEADER_BYTES || size > 1u << 30) {
        close(fd);
        return tf_fail(TF_STATUS_FORMAT, "%s: has %llu bytes; a params file has %d to 2^30", path,
                       (unsigned long long)size, TF_PARAMS_HEADER_BYTES);
    }
    image->params = malloc(size);
    if (!image->params) {
        close(fd);
        return tf_fail(TF_STATUS_MEMORY, "no memory for the %llu bytes of %s", (unsigned long long)size, path);
    }
    tf_status status = read_all(fd, path, image->params, size);
    close(fd);
    if (status != TF_OK) return status;
    tf_params_header *h = &image->header;
    memcpy(h, image->params, sizeof *h);
    if ((status = check_header(h, path, size)) != TF_OK) return status;
    uint64_t expected = TF_PARAMS_HEADER_BYTES + (uint64_t)h->transfers * TF_TRANSFER_ENTRY_BYTES + table_bytes(h);
    if (size != expected)
        return tf_fail(TF_STATUS_FORMAT, "%s: has %llu bytes, its header makes %llu", path, (unsigned long long)size,
                       (unsigned long long)expected);
    const uint8_t *bytes = image->params;
    size_t at = offsetof(tf_params_header, crc32);
    uint32_t crc = tf_crc32_zeros(tf_crc32(0, bytes, at), 4);
    crc = tf_crc32(crc, bytes + at + 4, size - at - 4);
    if (crc != h->crc32)
        return tf_fail(TF_STATUS_FORMAT, "%s: crc32 is %08x, the header says %08x", path, crc, h->crc32);
    image->transfers = (const tf_transfer *)(bytes + TF_PARAMS_HEADER_BYTES);
    image->layers = calloc(h->layers, sizeof *image->layers);
    image->group_transfers =
        calloc((size_t)(h->layers + 1) * TF_GROUPS * TF_PORTS, sizeof *image->group_transfers);
    if (!image->layers || !image->group_transfers) return tf_fail(TF_STATUS_MEMORY, "no memory for %u layers", h->layers);
    if ((status = check_transfers(image, path)) != TF_OK) return status;
    return check_tables(image, path, (const float *)(image->transfers + h->transfers));
}

/* One row: no byte above 242, and zero trits behind `length`. Returns the index of the first bad byte, or -1. */
static int bad_byte(const uint8_t *row, uint32_t row_bytes, uint32_t length) {
    uint8_t largest = 0;
    for (uint32_t i = 0; i < row_bytes; i++) largest = row[i] > largest ? row[i] : largest;
    if (largest >= TF_TRIT_CODES) {
        for (uint32_t i = 0; i < row_bytes; i++)
            if (row[i] >= TF_TRIT_CODES) return (int)i;
    }
    uint32_t whole = length / TF_TRITS_PER_BYTE, i = whole;
    uint32_t in_last = length % TF_TRITS_PER_BYTE;
    if (in_last) { /* trits in_last..4 of the byte must be zero, that is digits 1 */
        uint32_t power = 1, ones = 0;
        for (uint32_t digit = 0; digit < TF_TRITS_PER_BYTE; digit++, power *= 3)
            if (digit >= in_last) ones += power;
        uint32_t low_end = 1;
        for (uint32_t digit = 0; digit < in_last; digit++) low_end *= 3;
        if (row[i] - row[i] % low_end != ones) return (int)i;
        i++;
    }
    for (; i < row_bytes; i++)
        if (row[i] != TF_ZERO_TRITS_CODE) return (int)i;
    return -1;
}

tf_status tf_image_check_stream(const tf_image *image, const char *path, const uint8_t *stream) {
    const tf_params_header *h = &image->header;
    uint64_t end = 0;
    for (uint32_t index = 0; index <= h->transfers; index++) {
        const tf_transfer *t = image->transfers + index;
        uint64_t next = index < h->transfers ? t->offset : h->stream_bytes;
        for (uint64_t i = end; i < next; i++)
            if (stream[i])
                return tf_fail(TF_STATUS_FORMAT, "%s: byte %llu between transfers is not zero", path,
                               (unsigned long long)i);
        if (index == h->transfers) break;
        end = t->offset + t->size_bytes;
        const uint8_t *data = stream + t->offset;
        uint32_t crc = tf_crc32(0, data, t->size_bytes);
        if (crc != t->crc32)
            return tf_fail(TF_STATUS_FORMAT, "%s: transfer %u at byte %llu: crc32 is %08x, params.tfp says %08x", path,
                           index, (unsigned long long)t->offset, crc, t->crc32);
        uint64_t word, wanted = tf_with_check(TF_MATVEC_MAGIC | TF_HEADER_VERSION << 8 |
                                              (uint64_t)(t->flags & TF_TRANSFER_LOADS_X) << 12 |
                                              (uint64_t)t->row_length << 16 | (uint64_t)t->rows << 32);
        memcpy(&word, data, sizeof word);
        if (word != wanted)
            return tf_fail(TF_STATUS_FORMAT, "%s: transfer %u at byte %llu: header is %016llx, must be %016llx", path,
                           index, (unsigned long long)t->offset, (unsigned long long)word, (unsigned long long)wanted);
        uint32_t x_bytes = t->flags & TF_TRANSFER_LOADS_X ? tf_x_bytes(t->row_length) : 0;
        for (uint32_t i = 0; i < x_bytes; i++)
            if (data[TF_WORD_BYTES + i])
                return tf_fail(TF_STATUS_FORMAT, "%s: byte %llu of an x slot is not zero", path,
                               (unsigned long long)(t->offset + TF_WORD_BYTES + i));
        const uint8_t *row = data + TF_WORD_BYTES + x_bytes;
        uint32_t row_bytes = tf_row_bytes(t->row_length);
        for (uint32_t r = 0; r < t->rows; r++, row += row_bytes) {
            int bad = bad_byte(row, row_bytes, t->row_length);
            if (bad >= 0)
                return tf_fail(TF_STATUS_FORMAT, "%s: byte %llu (row %u of transfer %u) is %u: %s", path,
                               (unsigned long long)(row - stream + bad), r, index, row[bad],
                               row[bad] >= TF_TRIT_CODES ? "not a code of five trits"
                                                         : "a trit behind the row's end is not zero");
        }
    }
    return TF_OK;
}

static tf_status map_file(const char *path, uint64_t bytes, const uint8_t **data) {
    uint64_t size;
    int fd = open_sized(path, bytes, &size);
    if (fd < 0) return tf_last_status();
    void *mapped = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    int reason = errno;
    close(fd);
    if (mapped == MAP_FAILED) return tf_fail(TF_STATUS_FILE, "%s: cannot be mapped: %s", path, strerror(reason));
    *data = mapped;
    return TF_OK;
}

tf_status tf_image_map_embedding(tf_image *image, const char *path) {
    const tf_params_header *h = &image->header;
    const uint8_t *data;
    tf_status status = map_file(path, h->embedding_bytes, &data);
    if (status != TF_OK) return status;
    image->embedding = (const uint16_t *)data;
    image->embedding_mapped = h->embedding_bytes;
    size_t count = (size_t)h->vocab * h->hidden;
    for (size_t row = 0; row < count; row += h->hidden) {
        uint32_t largest = 0;
        for (size_t i = row; i < row + h->hidden; i++) {
            uint32_t magnitude = image->embedding[i] & 0x7FFFu;
            largest = magnitude > largest ? magnitude : largest;
        }
        if (largest >= 0x7C00u)
            return tf_fail(TF_STATUS_FORMAT, "%s: row %zu has a NaN or an infinite entry", path, row / h->hidden);
    }
    return TF_OK;
}

tf_status tf_image_map_stream(const tf_image *image, const char *path, const uint8_t **stream) {
    return map_file(path, image->header.stream_bytes, stream);
}

void tf_image_unmap_stream(const tf_image *image, const uint8_t *stream) {
    if (stream) munmap((void *)(uintptr_t)stream, image->header.stream_bytes);
}

void tf_image_close(tf_image *image) {
    if (image->embedding) munmap((void *)(uintptr_t)image->embedding, image->embedding_mapped);
    free(image->params);
    free(image->layers);
    free((void *)image->group_transfers);
    memset(image, 0, sizeof *image);
}
