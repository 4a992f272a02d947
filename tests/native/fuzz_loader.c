/* Fuzzes tf_open: the input is params.tfp, then weights.tfs, cut where params.tfp says it ends.
 *
 * With libFuzzer (clang -fsanitize=fuzzer) this is a fuzz target. Otherwise main() mutates a whole image from a seed:
 *   fuzz_loader FOLDER SEED RUNS
 * Checksums are put right after each mutation, or nothing behind them would ever be reached. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "crc32.h"
#include "image.h"
#include "tritforge.h"

#define LARGEST (1u << 20)

static char params_path[64], stream_path[64], embedding_path[4096];
static int params_fd, stream_fd;
static unsigned opened, refused;

static void fill(int fd, const uint8_t *data, size_t bytes) {
    if (ftruncate(fd, 0) != 0 || pwrite(fd, data, bytes, 0) != (ssize_t)bytes) abort();
}

static void seal(uint8_t *params, size_t params_bytes, const uint8_t *stream, size_t stream_bytes) {
    tf_params_header header;
    if (params_bytes < sizeof header) return;
    memcpy(&header, params, sizeof header);
    for (uint32_t i = 0; i < header.transfers; i++) {
        size_t at = sizeof header + (size_t)i * sizeof(tf_transfer);
        tf_transfer t;
        if (at + sizeof t > params_bytes) break;
        memcpy(&t, params + at, sizeof t);
        if (t.offset > stream_bytes || t.size_bytes > stream_bytes - t.offset) continue;
        t.crc32 = tf_crc32(0, stream + t.offset, (size_t)t.size_bytes);
        memcpy(params + at, &t, sizeof t);
    }
    size_t at = offsetof(tf_params_header, crc32);
    memset(params + at, 0, 4);
    uint32_t crc = tf_crc32(0, params, params_bytes);
    memcpy(params + at, &crc, 4);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void prepare(void) {
    params_fd = memfd_create("params", 0);
    stream_fd = memfd_create("stream", 0);
    snprintf(params_path, sizeof params_path, "/proc/self/fd/%d", params_fd);
    snprintf(stream_path, sizeof stream_path, "/proc/self/fd/%d", stream_fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static uint8_t params[LARGEST];
    uint64_t file_bytes = 0;
    if (!params_fd) {
        prepare();
        const char *given = getenv("FUZZ_EMBEDDING");
        if (given) snprintf(embedding_path, sizeof embedding_path, "%s", given);
    }
    if (bytes > LARGEST) return 0;
    if (bytes >= 24) memcpy(&file_bytes, data + 16, 8);
    size_t split = file_bytes < bytes ? (size_t)file_bytes : bytes;
    memcpy(params, data, split);
    seal(params, split, data + split, bytes - split);
    fill(params_fd, params, split);
    fill(stream_fd, data + split, bytes - split);
    tf_options options = {
        .struct_bytes = sizeof options, .api_version = TF_API_VERSION, .params_path = params_path,
        .stream_path = stream_path, .embedding_path = embedding_path, .backend = "host", .threads = 1,
    };
    tf_runtime *runtime;
    const float *logits;
    if (tf_open(&options, &runtime) != TF_OK) {
        refused++;
        return 0;
    }
    opened++;
    if (tf_forward(runtime, 1, &logits) != TF_OK || tf_forward(runtime, 2, &logits) != TF_OK) abort();
    tf_close(runtime);
    return 0;
}

#ifndef FUZZ_ENGINE
static uint64_t state;

static uint32_t draw(uint32_t below) { /* xorshift64* */
    state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
    return (uint32_t)((state * 2685821657736338717u >> 32) % below);
}

static size_t load(const char *folder, const char *name, uint8_t *data, size_t room) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    if (!file) exit(2);
    size_t bytes = fread(data, 1, room, file);
    fclose(file);
    return bytes;
}

int main(int count, char **arguments) {
    static uint8_t whole[LARGEST], changed[LARGEST];
    if (count != 4) return 2;
    snprintf(embedding_path, sizeof embedding_path, "%s/embedding.f16", arguments[1]);
    size_t params_bytes = load(arguments[1], "params.tfp", whole, LARGEST);
    size_t bytes = params_bytes + load(arguments[1], "weights.tfs", whole + params_bytes, LARGEST - params_bytes);
    state = strtoull(arguments[2], NULL, 10) * 2 + 1;
    uint32_t tables = TF_PARAMS_HEADER_BYTES;
    for (long run = strtol(arguments[3], NULL, 10); run > 0; run--) {
        memcpy(changed, whole, bytes);
        size_t length = draw(8) ? bytes : draw((uint32_t)bytes + 1);
        for (uint32_t edits = 1 + draw(4); edits; edits--) {
            uint32_t where = draw(4); /* header, table, anything, nothing more */
            size_t at = where == 0 ? draw(tables) : where == 1 ? tables + draw(20 * TF_TRANSFER_ENTRY_BYTES)
                                                               : draw((uint32_t)bytes);
            static const uint8_t values[] = {0, 1, 0x7F, 0x80, 0xFF, 243, 121};
            changed[at] = draw(2) ? values[draw(sizeof values)] : (uint8_t)draw(256);
        }
        LLVMFuzzerTestOneInput(changed, length);
    }
    printf("opened %u refused %u\n", opened, refused);
    return 0;
}
#endif
