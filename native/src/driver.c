/* One driver for the circuits, whatever is behind the seam.
 *
 * Scatter-gather: each engine has one ring of descriptors for each direction, in the order of a token, made when the
 * model is opened. Starting a group is: clear the status words of its descriptors, clean, one barrier, and one tail
 * write a channel. Nothing else is built, and the channels never stop between groups.
 * Simple mode (DMAs without scatter-gather): one transfer at a time and port; the streams of attention, whose parts lie
 * apart, are copied together first.
 *
 * What is cleaned and invalidated, and why, is said at each call. A build with -DTF_OMIT=n leaves out the n-th of these
 * calls; a test does so for each n and must see wrong results or a failure.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "axi_dma.h"
#include "driver.h"
#include "error.h"

#ifndef TF_OMIT
#define TF_OMIT -1
#endif

enum {
    CALL_CLEAN_WEIGHTS,
    CALL_CLEAN_X,
    CALL_CLEAN_MATVEC_MM2S,
    CALL_CLEAN_MATVEC_S2MM,
    CALL_BARRIER_MATVEC,
    CALL_INVALIDATE_STATUS,
    CALL_INVALIDATE_RESULTS,
    CALL_CLEAN_KEY,
    CALL_CLEAN_VALUE,
    CALL_CLEAN_HEADS,
    CALL_CLEAN_ATTENTION_MM2S,
    CALL_CLEAN_ATTENTION_S2MM,
    CALL_BARRIER_ATTENTION,
    CALL_INVALIDATE_SUMS,
    CALL_INVALIDATE_SIMPLE_RESULTS,
    CALL_CLEAN_STAGING,
    CALL_BARRIER_STAGING,
    CALLS
};

#define POLLS_BETWEEN_CLOCKS 64      /* the clock is a system call on the board */
#define POLLS_BETWEEN_SOURCE_CHECKS 16
#define SCRATCH_PATTERN 0x5AC3A53Cu

/* A run of results that becomes readable at once: one S2MM descriptor, or one simple transfer. */
typedef struct {
    uint32_t offset, bytes; /* in the results buffer */
    uint32_t rows_end;      /* rows of the port's share that are there when it is */
} chunk;

typedef struct {
    uint32_t mm2s_first, mm2s_count; /* descriptors in the ring */
    uint32_t s2mm_first, s2mm_count;
} span;

typedef struct {
    const char *name;
    uint64_t dma;               /* physical address of its DMA */
    uint64_t mm2s, s2mm;        /* rings: offsets in the streams buffer */
    uint32_t mm2s_count, s2mm_count;
    chunk *chunks;              /* [s2mm_count], one a descriptor of the s2mm ring */
    /* The work under way, as indices: chunks with scatter-gather, transfers or heads in simple mode. */
    uint32_t first, done, end;
} engine;

typedef struct {
    const tf_image *image;
    tf_layout layout;
    tf_pl *pl;
    tf_profiler *profiler;
    uint64_t deadline_ns;
    bool scatter_gather, started;
    engine engines[TF_ENGINES];
    span *spans[TF_PORTS];      /* [(layers + 1) * TF_GROUPS]: a group's descriptors on a port */
    uint32_t *result_offsets;   /* [transfers] */
    int8_t *x;                  /* of the group being made, in ordinary memory: both ports get a copy */
    /* the work under way */
    uint32_t layer, group, positions, first_engine;
} driver;

/* ------------------------------------------------------------------ the seam, counted */

static uint32_t read_register(driver *d, uint64_t address) {
    d->profiler->sums.register_reads++;
    return d->pl->read32(d->pl->self, address);
}

static void write_register(driver *d, uint64_t address, uint32_t value) {
    d->profiler->sums.register_writes++;
    d->pl->write32(d->pl->self, address, value);
}

static tf_status maintained(int error, const char *what) {
    return error ? tf_fail(TF_STATUS_PL_UNFIT, "%s of the cache failed: %s", what, strerror(error)) : TF_OK;
}

/* Whole lines around [offset, offset + bytes) of a buffer. */
static tf_status clean(driver *d, int call, uint64_t offset, uint64_t bytes) {
    uint64_t from = offset / TF_CACHE_LINE_BYTES * TF_CACHE_LINE_BYTES;
    uint64_t to = tf_align(offset + bytes, TF_CACHE_LINE_BYTES);
    if (call == TF_OMIT) return TF_OK;
    d->profiler->sums.cache_calls++;
    d->profiler->sums.cleaned_bytes += to - from;
    return maintained(d->pl->clean(d->pl->self, d->pl->streams.cpu + from, (size_t)(to - from)), "cleaning");
}

static tf_status invalidate(driver *d, int call, const tf_pl_buffer *buffer, uint64_t offset, uint64_t bytes) {
    uint64_t from = offset / TF_CACHE_LINE_BYTES * TF_CACHE_LINE_BYTES;
    uint64_t to = tf_align(offset + bytes, TF_CACHE_LINE_BYTES);
    if (call == TF_OMIT) return TF_OK;
    d->profiler->sums.cache_calls++;
    d->profiler->sums.invalidated_bytes += to - from;
    return maintained(d->pl->invalidate(d->pl->self, buffer->cpu + from, (size_t)(to - from)), "invalidation");
}

static void barrier(driver *d, int call) {
    if (call != TF_OMIT) d->pl->barrier(d->pl->self);
}

#define TRY(call)                                 \
    do {                                          \
        tf_status tried = (call);                 \
        if (tried != TF_OK) return tried;         \
    } while (0)

/* ------------------------------------------------------------------ descriptors */

static uint32_t *descriptor(const driver *d, uint64_t ring, uint32_t index) {
    return (uint32_t *)(void *)(d->pl->streams.cpu + ring + (uint64_t)index * TF_DESCRIPTOR_BYTES);
}

static uint32_t descriptor_address(const driver *d, uint64_t ring, uint32_t index) {
    return (uint32_t)(d->pl->streams.physical + ring + (uint64_t)index * TF_DESCRIPTOR_BYTES);
}

static void make_descriptor(driver *d, uint64_t ring, uint32_t index, uint32_t count, uint64_t buffer, uint32_t control) {
    uint32_t *words = descriptor(d, ring, index);
    memset(words, 0, TF_DESCRIPTOR_BYTES);
    words[DESCRIPTOR_NEXT] = descriptor_address(d, ring, (index + 1) % count);
    words[DESCRIPTOR_BUFFER] = (uint32_t)buffer;
    words[DESCRIPTOR_CONTROL] = control;
}

/* Before descriptors are used again their status must read zero: the engine takes a set Cmplt bit for an error. */
static tf_status renew(driver *d, int call, uint64_t ring, uint32_t first, uint32_t count) {
    for (uint32_t i = first; i < first + count; i++) descriptor(d, ring, i)[DESCRIPTOR_STATUS] = 0;
    if (d->pl->descriptors_coherent) return TF_OK;
    return clean(d, call, ring + (uint64_t)first * TF_DESCRIPTOR_BYTES, (uint64_t)count * TF_DESCRIPTOR_BYTES);
}

/* Room for a transfer's results, with what the PL fills them up to. Offsets are multiples of TF_TRANSFER_ALIGN_BYTES and
 * chunks but the last of whole lines, so a filled end never reaches into what follows. */
static uint32_t result_room(const driver *d, uint32_t bytes) {
    uint32_t unit = d->pl->results_padded_bytes;
    return unit ? (uint32_t)tf_align(bytes, unit) : bytes;
}

static void make_matvec_rings(driver *d) {
    const tf_params_header *shape = &d->image->header;
    uint32_t mm2s[TF_PORTS] = {0}, s2mm[TF_PORTS] = {0}, share_rows = 0;
    uint64_t result = 0;
    for (uint32_t i = 0; i < shape->transfers; i++) {
        const tf_transfer *t = d->image->transfers + i;
        engine *e = d->engines + t->port;
        span *s = d->spans[t->port] + t->layer * TF_GROUPS + t->group;
        if (t->piece == 0) {
            *s = (span){mm2s[t->port], 0, s2mm[t->port], 0};
            share_rows = 0;
            if (t->port == 0) result = 0;
        }
        make_descriptor(d, e->mm2s, mm2s[t->port]++, e->mm2s_count, d->pl->streams.physical + t->offset,
                        (uint32_t)t->size_bytes | DESCRIPTOR_SOF | DESCRIPTOR_EOF);
        s->mm2s_count++;
        d->result_offsets[i] = (uint32_t)result;
        for (uint32_t row = 0; row < t->rows; row += TF_CHUNK_ROWS) {
            uint32_t rows = t->rows - row < TF_CHUNK_ROWS ? t->rows - row : TF_CHUNK_ROWS;
            chunk *c = e->chunks + s2mm[t->port];
            *c = (chunk){(uint32_t)result + row * 4, result_room(d, tf_result_bytes(rows)), share_rows + row + rows};
            make_descriptor(d, e->s2mm, s2mm[t->port]++, e->s2mm_count, d->pl->results.physical + c->offset, c->bytes);
            s->s2mm_count++;
        }
        share_rows += t->rows;
        result += tf_align(tf_result_bytes(t->rows), TF_TRANSFER_ALIGN_BYTES);
    }
}

static uint64_t head_slot(const driver *d, uint32_t head) {
    return d->layout.head_slots + (uint64_t)head * d->layout.head_stride;
}

static uint64_t kv_slot(const driver *d, uint64_t side, uint32_t layer, uint32_t head) {
    return side + ((uint64_t)layer * d->image->header.heads + head) * d->layout.kv_stride;
}

static uint32_t first_head(const driver *d, uint32_t port) {
    return port ? tf_port_heads(d->image->header.heads, 0) : 0;
}

static void make_attention_rings(driver *d) {
    const tf_params_header *shape = &d->image->header;
    uint64_t base = d->pl->streams.physical;
    for (uint32_t port = 0; port < TF_PORTS; port++) {
        engine *e = d->engines + TF_ENGINE_ATTENTION0 + port;
        uint32_t heads = tf_port_heads(shape->heads, port), index = 0;
        for (uint32_t layer = 0; layer < shape->layers && heads; layer++) {
            for (uint32_t i = 0; i < heads; i++) {
                uint32_t head = first_head(d, port) + i;
                make_descriptor(d, e->mm2s, index++, e->mm2s_count, base + head_slot(d, head),
                                (TF_WORD_BYTES + shape->head_dim) | (i == 0 ? DESCRIPTOR_SOF : 0));
                make_descriptor(d, e->mm2s, index++, e->mm2s_count, base + kv_slot(d, d->layout.keys, layer, head), 0);
                make_descriptor(d, e->mm2s, index++, e->mm2s_count, base + kv_slot(d, d->layout.values, layer, head),
                                i + 1 == heads ? DESCRIPTOR_EOF : 0);
            }
            chunk *c = e->chunks + layer;
            *c = (chunk){(uint32_t)d->layout.attention_results[port], result_room(d, heads * d->layout.sums_bytes), heads};
            make_descriptor(d, e->s2mm, layer, e->s2mm_count, d->pl->results.physical + c->offset, c->bytes);
        }
    }
}

/* ------------------------------------------------------------------ what went wrong */

static const char *error_names(uint32_t errors, char *text, size_t room) {
    static const char *const names[] = {"bad_magic",    "bad_version", "bad_check", "bad_field",
                                        "illegal_code", "early_tlast", "x_missing"};
    size_t used = 0;
    text[0] = 0;
    for (uint32_t bit = 0; bit < sizeof names / sizeof *names; bit++)
        if (errors >> bit & 1 && used < room)
            used += (size_t)snprintf(text + used, room - used, "%s%s", used ? "+" : "", names[bit]);
    return text[0] ? text : "none";
}

static const char *dma_errors(uint32_t status, char *text, size_t room) {
    static const struct {
        uint32_t bit;
        const char *name;
    } names[] = {{4, "internal"}, {5, "slave"}, {6, "decode"}, {8, "SG internal"}, {9, "SG slave"}, {10, "SG decode"}};
    size_t used = 0;
    text[0] = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (status >> names[i].bit & 1 && used < room)
            used += (size_t)snprintf(text + used, room - used, "%s%s", used ? "+" : "", names[i].name);
    return text[0] ? text : "none";
}

/* Everything a person needs who was not there, one line an engine. */
static tf_status failure(driver *d, tf_status status, const char *what) {
    char text[3072], names[96], dma[2][64];
    size_t used = 0;
    text[0] = 0;
    for (uint32_t i = 0; i < TF_ENGINES && used < sizeof text; i++) {
        const engine *e = d->engines + i;
        uint64_t registers = TF_CONTROL_BASE + TF_ENGINE_BASE + (uint64_t)i * TF_ENGINE_STRIDE;
        uint32_t errors = read_register(d, registers + TF_ENGINE_REG_ERRORS);
        if (!errors && (i < d->first_engine || i >= d->first_engine + TF_PORTS)) continue;
        uint32_t mm2s = read_register(d, e->dma + DMA_MM2S + DMA_STATUS);
        uint32_t s2mm = read_register(d, e->dma + DMA_S2MM + DMA_STATUS);
        used += (size_t)snprintf(
            text + used, sizeof text - used,
            "\n  %s: errors %s (word %u); words in %u, out %u; stalls in %u, out %u, turn %u; "
            "MM2S DMASR %08x (errors %s) CURDESC %08x; S2MM DMASR %08x (errors %s) CURDESC %08x; results %u of %u",
            e->name, error_names(errors, names, sizeof names),
            read_register(d, registers + TF_ENGINE_REG_ERROR_WORD), read_register(d, registers + TF_ENGINE_REG_WORDS_IN),
            read_register(d, registers + TF_ENGINE_REG_WORDS_OUT), read_register(d, registers + TF_ENGINE_REG_STALL_IN),
            read_register(d, registers + TF_ENGINE_REG_STALL_OUT),
            read_register(d, registers + TF_ENGINE_REG_STALL_TURN), mm2s, dma_errors(mm2s, dma[0], sizeof dma[0]),
            read_register(d, e->dma + DMA_MM2S + DMA_CURRENT), s2mm, dma_errors(s2mm, dma[1], sizeof dma[1]),
            read_register(d, e->dma + DMA_S2MM + DMA_CURRENT), e->done - e->first, e->end - e->first);
    }
    static const char *const groups[TF_GROUPS] = {"qkv", "o", "gate_up", "down", "head"};
    return tf_fail(status, "%s %s, layer %u, in %s: %s%s", d->first_engine < TF_ENGINE_ATTENTION0 ? "group" : "attention",
                   d->first_engine < TF_ENGINE_ATTENTION0 ? groups[d->group] : "", d->layer, d->pl->name, what, text);
}

static tf_status check_status(driver *d, uint32_t status) {
    if (status & DMA_STATUS_ERRORS) return failure(d, TF_STATUS_PL_FAULT, "a DMA stopped with an error");
    if (status & DMA_STATUS_HALTED) return failure(d, TF_STATUS_PL_FAULT, "a DMA is halted");
    return TF_OK;
}

/* ------------------------------------------------------------------ starting */

/* One write a channel; results first, so that they always have a place to go. */
static void start_span(driver *d, const engine *e, const span *s) {
    write_register(d, e->dma + DMA_S2MM + DMA_TAIL, descriptor_address(d, e->s2mm, s->s2mm_first + s->s2mm_count - 1));
    write_register(d, e->dma + DMA_MM2S + DMA_TAIL, descriptor_address(d, e->mm2s, s->mm2s_first + s->mm2s_count - 1));
}

static tf_status start_simple(driver *d, engine *e, uint64_t source, uint32_t bytes, uint32_t result,
                              uint32_t result_bytes) {
    write_register(d, e->dma + DMA_S2MM + DMA_ADDRESS, (uint32_t)(d->pl->results.physical + result));
    write_register(d, e->dma + DMA_S2MM + DMA_LENGTH, result_bytes);
    write_register(d, e->dma + DMA_MM2S + DMA_ADDRESS, (uint32_t)(d->pl->streams.physical + source));
    write_register(d, e->dma + DMA_MM2S + DMA_LENGTH, bytes);
    uint32_t kept = read_register(d, e->dma + DMA_MM2S + DMA_LENGTH);
    if (kept != bytes) {
        char what[160];
        snprintf(what, sizeof what, "the DMA keeps a length of %u as %u: its length register is too narrow", bytes, kept);
        return failure(d, TF_STATUS_PL_UNFIT, what);
    }
    return TF_OK;
}

/* Starts transfer or head `done` of a port. */
static tf_status start_piece(driver *d, uint32_t port) {
    engine *e = d->engines + d->first_engine + port;
    uint32_t piece = e->done;
    if (d->first_engine == TF_ENGINE_MATVEC0) {
        const tf_transfer *t = d->image->transfers + piece;
        return start_simple(d, e, t->offset, (uint32_t)t->size_bytes, d->result_offsets[piece], tf_result_bytes(t->rows));
    }
    uint32_t dim = d->image->header.head_dim, bytes = d->positions * dim;
    uint64_t staging = d->layout.staging + (uint64_t)port * d->layout.staging_stride;
    uint8_t *cpu = d->pl->streams.cpu, *at = cpu + staging;
    memcpy(at, cpu + head_slot(d, piece), TF_WORD_BYTES + dim);
    at += TF_WORD_BYTES + dim;
    memcpy(at, cpu + kv_slot(d, d->layout.keys, d->layer, piece), bytes);
    memcpy(at + bytes, cpu + kv_slot(d, d->layout.values, d->layer, piece), bytes);
    uint32_t length = TF_WORD_BYTES + dim + 2 * bytes;
    TRY(clean(d, CALL_CLEAN_STAGING, staging, length)); /* the PL reads what was just copied, */
    barrier(d, CALL_BARRIER_STAGING);                   /* and not before it is there */
    uint32_t sums = (uint32_t)d->layout.attention_results[port] + (piece - first_head(d, port)) * d->layout.sums_bytes;
    return start_simple(d, e, staging, length, sums, d->layout.sums_bytes);
}

/* ------------------------------------------------------------------ waiting */

static bool more_wanted(const engine *e, uint32_t rows) {
    return e->done < e->end && (rows == TF_ALL_ROWS || e->done == e->first || e->chunks[e->done - 1].rows_end < rows);
}

/* Has chunk, transfer or head `done` of this engine arrived? Then it is made readable and `done` moves on. */
static tf_status take_arrived(driver *d, uint32_t port, bool *yes) {
    engine *e = d->engines + d->first_engine + port;
    *yes = false;
    uint32_t status = read_register(d, e->dma + DMA_S2MM + DMA_STATUS);
    TRY(check_status(d, status));
    if (!d->scatter_gather) {
        if (!(status & DMA_STATUS_IDLE)) return TF_OK;
        status = read_register(d, e->dma + DMA_MM2S + DMA_STATUS);
        TRY(check_status(d, status));
        if (!(status & DMA_STATUS_IDLE)) return TF_OK;
        *yes = true;
        uint32_t offset = d->first_engine == TF_ENGINE_MATVEC0
                              ? d->result_offsets[e->done]
                              : (uint32_t)d->layout.attention_results[port] +
                                    (e->done - first_head(d, port)) * d->layout.sums_bytes;
        uint32_t bytes = d->first_engine == TF_ENGINE_MATVEC0 ? tf_result_bytes(d->image->transfers[e->done].rows)
                                                              : d->layout.sums_bytes;
        e->done++;
        TRY(invalidate(d, CALL_INVALIDATE_SIMPLE_RESULTS, &d->pl->results, offset, bytes));
        return e->done < e->end ? start_piece(d, port) : TF_OK;
    }
    if (e->end - e->done == 1 && !(status & DMA_STATUS_IDLE)) return TF_OK; /* spares looking into memory */
    /* Only the descriptor says that its bytes are in memory: the idle bit may be a moment old after a tail write. */
    uint64_t at = e->s2mm + (uint64_t)e->done * TF_DESCRIPTOR_BYTES;
    if (!d->pl->descriptors_coherent) /* the PL wrote the status */
        TRY(invalidate(d, CALL_INVALIDATE_STATUS, &d->pl->streams, at, TF_CACHE_LINE_BYTES));
    uint32_t words = ((volatile uint32_t *)descriptor(d, e->s2mm, e->done))[DESCRIPTOR_STATUS];
    if (words & DESCRIPTOR_ERRORS) return failure(d, TF_STATUS_PL_FAULT, "a result descriptor ended with an error");
    if (!(words & DESCRIPTOR_COMPLETE)) return TF_OK;
    const chunk *c = e->chunks + e->done++;
    *yes = true;
    /* The PL wrote these results; lines of the group before may still be in the cache. */
    return invalidate(d, d->first_engine == TF_ENGINE_MATVEC0 ? CALL_INVALIDATE_RESULTS : CALL_INVALIDATE_SUMS,
                      &d->pl->results, c->offset, c->bytes);
}

/* Waits until each port of the work under way has its first `rows` rows (or all that it has). */
static tf_status wait_rows(driver *d, uint32_t rows) {
    if (!d->scatter_gather) rows = TF_ALL_ROWS;
    uint64_t begin = tf_now_ns();
    for (uint32_t polls = 0;; polls++) {
        bool all = true;
        for (uint32_t port = 0; port < TF_PORTS; port++) {
            engine *e = d->engines + d->first_engine + port;
            bool yes = true;
            while (yes && more_wanted(e, rows)) TRY(take_arrived(d, port, &yes));
            all = all && yes;
        }
        if (all) return TF_OK;
        if (polls % POLLS_BETWEEN_SOURCE_CHECKS == POLLS_BETWEEN_SOURCE_CHECKS - 1) {
            for (uint32_t port = 0; port < TF_PORTS; port++) {
                const engine *e = d->engines + d->first_engine + port;
                if (e->done < e->end) TRY(check_status(d, read_register(d, e->dma + DMA_MM2S + DMA_STATUS)));
            }
        }
        if (polls % POLLS_BETWEEN_CLOCKS == 0 && tf_now_ns() - begin > d->deadline_ns) {
            char what[64];
            snprintf(what, sizeof what, "not finished within %u ms", (unsigned)(d->deadline_ns / 1000000));
            return failure(d, TF_STATUS_PL_TIMEOUT, what);
        }
        d->pl->wait(d->pl->self, polls);
    }
}

/* ------------------------------------------------------------------ matrices */

static int8_t *driver_x(void *self, uint32_t layer, uint32_t group) {
    (void)layer, (void)group;
    return ((driver *)self)->x;
}

static tf_status begin_matvec(driver *d, uint32_t layer, uint32_t group) {
    uint32_t length = tf_group_row_length(&d->image->header, group);
    d->layer = layer;
    d->group = group;
    d->first_engine = TF_ENGINE_MATVEC0;
    for (uint32_t port = 0; port < TF_PORTS; port++) {
        const tf_transfer *t = tf_first_piece(d->image, layer, group, port);
        const span *s = d->spans[port] + layer * TF_GROUPS + group;
        engine *e = d->engines + port;
        memcpy(d->pl->streams.cpu + t->offset + t->x_offset, d->x, length);
        TRY(clean(d, CALL_CLEAN_X, t->offset + t->x_offset, length)); /* the PL reads x */
        if (d->scatter_gather) {
            TRY(renew(d, CALL_CLEAN_MATVEC_MM2S, e->mm2s, s->mm2s_first, s->mm2s_count)); /* and the descriptors */
            TRY(renew(d, CALL_CLEAN_MATVEC_S2MM, e->s2mm, s->s2mm_first, s->s2mm_count));
            e->first = s->s2mm_first;
            e->end = e->first + s->s2mm_count;
        } else {
            e->first = (uint32_t)(t - d->image->transfers);
            e->end = e->first + s->mm2s_count;
        }
        e->done = e->first;
    }
    barrier(d, CALL_BARRIER_MATVEC); /* all of it before the engines are told */
    for (uint32_t port = 0; port < TF_PORTS; port++) {
        const span *s = d->spans[port] + layer * TF_GROUPS + group;
        if (d->scatter_gather)
            start_span(d, d->engines + port, s);
        else
            TRY(start_piece(d, port));
    }
    return TF_OK;
}

static tf_status driver_matvec_start(void *self, uint32_t layer, uint32_t group) {
    driver *d = self;
    tf_status status = begin_matvec(d, layer, group);
    tf_mark(d->profiler, TF_PART_DRIVER);
    return status;
}

static tf_status driver_matvec_wait(void *self, uint32_t rows) {
    driver *d = self;
    tf_status status = wait_rows(d, rows);
    tf_mark(d->profiler, tf_wait_part(d->group));
    return status;
}

static const int32_t *driver_matvec_rows(void *self, uint32_t port, uint32_t first, uint32_t *count) {
    driver *d = self;
    const tf_transfer *t = tf_first_piece(d->image, d->layer, d->group, port);
    while (first >= t->rows) first -= t++->rows;
    *count = t->rows - first;
    const uint8_t *results = d->pl->results.cpu + d->result_offsets[t - d->image->transfers];
    return (const int32_t *)(const void *)results + first;
}

/* ------------------------------------------------------------------ attention */

static int8_t *driver_q(void *self, uint32_t head) {
    driver *d = self;
    return (int8_t *)(d->pl->streams.cpu + head_slot(d, head) + TF_WORD_BYTES);
}

static uint64_t kv_row(const driver *d, uint64_t side, uint32_t layer, uint32_t head, uint32_t position) {
    return kv_slot(d, side, layer, head) + (uint64_t)position * d->image->header.head_dim;
}

static int8_t *driver_key(void *self, uint32_t layer, uint32_t head, uint32_t position) {
    driver *d = self;
    return (int8_t *)(d->pl->streams.cpu + kv_row(d, d->layout.keys, layer, head, position));
}

static int8_t *driver_value(void *self, uint32_t layer, uint32_t head, uint32_t position) {
    driver *d = self;
    return (int8_t *)(d->pl->streams.cpu + kv_row(d, d->layout.values, layer, head, position));
}

/* Lengths of K and V grow with every token; header, q and descriptors stay where they are. */
static void patch_attention(driver *d, uint32_t layer, const int32_t *m) {
    const tf_params_header *shape = &d->image->header;
    uint32_t bytes = d->positions * shape->head_dim;
    for (uint32_t port = 0; port < TF_PORTS; port++) {
        const engine *e = d->engines + TF_ENGINE_ATTENTION0 + port;
        uint32_t heads = tf_port_heads(shape->heads, port);
        for (uint32_t i = 0; i < heads; i++) {
            uint32_t head = first_head(d, port) + i, index = (layer * heads + i) * 3;
            uint64_t word = tf_with_check(TF_ATTENTION_MAGIC | TF_HEADER_VERSION << 8 | (uint64_t)d->positions << 16 |
                                          (uint64_t)((uint32_t)m[head] & TF_M_MAX) << 32 |
                                          (uint64_t)(shape->head_dim / 8) << 50);
            memcpy(d->pl->streams.cpu + head_slot(d, head), &word, sizeof word);
            if (!d->scatter_gather) continue;
            descriptor(d, e->mm2s, index + 1)[DESCRIPTOR_CONTROL] = bytes;
            descriptor(d, e->mm2s, index + 2)[DESCRIPTOR_CONTROL] = bytes | (i + 1 == heads ? DESCRIPTOR_EOF : 0);
        }
    }
}

static tf_status begin_attention(driver *d, uint32_t layer, uint32_t positions, const int32_t *m) {
    const tf_params_header *shape = &d->image->header;
    d->layer = layer;
    d->positions = positions;
    d->first_engine = TF_ENGINE_ATTENTION0;
    patch_attention(d, layer, m);
    for (uint32_t head = 0; head < shape->heads; head++) { /* this token's rows; the others are there already */
        TRY(clean(d, CALL_CLEAN_KEY, kv_row(d, d->layout.keys, layer, head, positions - 1), shape->head_dim));
        TRY(clean(d, CALL_CLEAN_VALUE, kv_row(d, d->layout.values, layer, head, positions - 1), shape->head_dim));
    }
    TRY(clean(d, CALL_CLEAN_HEADS, d->layout.head_slots, d->layout.plan.head_slots)); /* headers and q */
    span spans[TF_PORTS];
    for (uint32_t port = 0; port < TF_PORTS; port++) {
        engine *e = d->engines + TF_ENGINE_ATTENTION0 + port;
        uint32_t heads = tf_port_heads(shape->heads, port);
        spans[port] = (span){layer * heads * 3, heads * 3, layer, heads ? 1 : 0};
        if (d->scatter_gather) {
            TRY(renew(d, CALL_CLEAN_ATTENTION_MM2S, e->mm2s, spans[port].mm2s_first, spans[port].mm2s_count));
            TRY(renew(d, CALL_CLEAN_ATTENTION_S2MM, e->s2mm, spans[port].s2mm_first, spans[port].s2mm_count));
            e->first = layer;
            e->end = layer + spans[port].s2mm_count;
        } else {
            e->first = first_head(d, port);
            e->end = e->first + heads;
        }
        e->done = e->first;
    }
    barrier(d, CALL_BARRIER_ATTENTION); /* all of it before the engines are told */
    for (uint32_t port = 0; port < TF_PORTS; port++) {
        if (spans[port].mm2s_count == 0) continue;
        if (d->scatter_gather)
            start_span(d, d->engines + TF_ENGINE_ATTENTION0 + port, &spans[port]);
        else
            TRY(start_piece(d, port));
    }
    return TF_OK;
}

static tf_status driver_attention_start(void *self, uint32_t layer, uint32_t positions, const int32_t *m) {
    driver *d = self;
    tf_status status = begin_attention(d, layer, positions, m);
    tf_mark(d->profiler, TF_PART_DRIVER);
    return status;
}

static tf_status driver_attention_wait(void *self) {
    driver *d = self;
    tf_status status = wait_rows(d, TF_ALL_ROWS);
    tf_mark(d->profiler, TF_PART_WAIT_ATTENTION);
    return status;
}

static const int32_t *driver_attention_sums(void *self, uint32_t head) {
    driver *d = self;
    uint32_t port = head >= first_head(d, 1);
    uint64_t at = d->layout.attention_results[port] + (uint64_t)(head - first_head(d, port)) * d->layout.sums_bytes;
    return (const int32_t *)(const void *)(d->pl->results.cpu + at);
}

/* ------------------------------------------------------------------ opening */

static tf_status check_control(driver *d) {
    const tf_params_header *shape = &d->image->header;
    const uint64_t base = TF_CONTROL_BASE;
    uint32_t id = read_register(d, base + TF_REG_ID), version = read_register(d, base + TF_REG_VERSION);
    if (id != TF_CONTROL_ID)
        return tf_fail(TF_STATUS_PL_UNFIT, "the control block at 0x%08x reads %08x, must be %08x: another bitstream is "
                       "loaded, or none", TF_CONTROL_BASE, id, TF_CONTROL_ID);
    if (version != TF_FORMATS_VERSION)
        return tf_fail(TF_STATUS_PL_UNFIT, "the bitstream is for formats version %u, this runtime for %d", version,
                       TF_FORMATS_VERSION);
    write_register(d, base + TF_REG_SCRATCH, SCRATCH_PATTERN);
    uint32_t scratch = read_register(d, base + TF_REG_SCRATCH);
    if (scratch != SCRATCH_PATTERN)
        return tf_fail(TF_STATUS_PL_UNFIT, "the scratch register reads %08x after %08x was written", scratch,
                       SCRATCH_PATTERN);
    uint32_t config = read_register(d, base + TF_REG_CONFIG);
    uint32_t engines = config & 255, dim = (config >> 8 & 255) * 8, positions = config >> 16;
    if (engines != TF_ENGINES)
        return tf_fail(TF_STATUS_PL_UNFIT, "the bitstream has %u engines, needed are %d", engines, TF_ENGINES);
    if (dim != shape->head_dim)
        return tf_fail(TF_STATUS_PL_UNFIT, "the bitstream is for heads of %u, the model has %u", dim, shape->head_dim);
    if ((positions <= TF_MAX_CONTEXT_BOARD) != (shape->context <= TF_MAX_CONTEXT_BOARD) ||
        positions < d->layout.plan.context)
        return tf_fail(TF_STATUS_PL_UNFIT, "the bitstream attends over %u positions, the release needs %u (of %u)",
                       positions, d->layout.plan.context, shape->context);
    return TF_OK;
}

/* Polls a register until the bits of `mask` are clear; PG021 gives no bound, a reset takes microseconds. */
static tf_status wait_clear(driver *d, const engine *e, uint64_t address, uint32_t mask, const char *what) {
    uint64_t begin = tf_now_ns();
    for (uint32_t polls = 0; read_register(d, address) & mask; polls++) {
        if (polls % POLLS_BETWEEN_CLOCKS == 0 && tf_now_ns() - begin > d->deadline_ns)
            return tf_fail(TF_STATUS_PL_UNFIT, "DMA of %s at 0x%08llx %s", e->name, (unsigned long long)e->dma, what);
        d->pl->wait(d->pl->self, polls);
    }
    return TF_OK;
}

/* DMAs and engines as after power-up, rings at their start. */
static tf_status start_all(driver *d) {
    d->started = true;
    write_register(d, TF_CONTROL_BASE + TF_REG_CONTROL, (1u << TF_ENGINES) - 1);
    for (uint32_t i = 0; i < TF_ENGINES; i++) {
        engine *e = d->engines + i;
        write_register(d, e->dma + DMA_MM2S + DMA_CONTROL, DMA_CONTROL_RESET); /* hits both channels */
        TRY(wait_clear(d, e, e->dma + DMA_MM2S + DMA_CONTROL, DMA_CONTROL_RESET, "does not leave its reset"));
        bool sg = (read_register(d, e->dma + DMA_MM2S + DMA_STATUS) & DMA_STATUS_SG) != 0;
        if (i == 0) d->scatter_gather = sg;
        if (sg != d->scatter_gather)
            return tf_fail(TF_STATUS_PL_UNFIT, "some DMAs have scatter-gather, some have not");
        if (!sg && result_room(d, TF_WORD_BYTES) != TF_WORD_BYTES) /* a head's sums would lie across lines */
            return tf_fail(TF_STATUS_PL_UNFIT, "a bitstream that fills results up needs DMAs with scatter-gather");
        for (uint32_t channel = DMA_MM2S; channel <= DMA_S2MM; channel += DMA_S2MM - DMA_MM2S) {
            uint64_t ring = channel == DMA_MM2S ? e->mm2s : e->s2mm;
            if (sg) write_register(d, e->dma + channel + DMA_CURRENT, descriptor_address(d, ring, 0));
            write_register(d, e->dma + channel + DMA_CONTROL, DMA_CONTROL_RUN);
            TRY(wait_clear(d, e, e->dma + channel + DMA_STATUS, DMA_STATUS_HALTED, "stays halted"));
        }
    }
    return TF_OK;
}

static tf_status driver_reset(void *self) { return start_all(self); }

/* The buffers are about to be given back: the DMAs are stopped, and have stopped once their reset is over, since before
 * that they finish what is under way on the bus. DMAs that were never started may not even be there. */
static void driver_close(void *self) {
    driver *d = self;
    for (uint32_t i = 0; i < TF_ENGINES; i++) {
        engine *e = d->engines + i;
        if (d->started) {
            write_register(d, e->dma + DMA_MM2S + DMA_CONTROL, DMA_CONTROL_RESET);
            (void)wait_clear(d, e, e->dma + DMA_MM2S + DMA_CONTROL, DMA_CONTROL_RESET, "does not leave its reset");
        }
        free(e->chunks);
    }
    for (uint32_t port = 0; port < TF_PORTS; port++) free(d->spans[port]);
    free(d->result_offsets);
    free(d->x);
    free(d);
}

static tf_status open_tables(driver *d) {
    static const char *const names[TF_ENGINES] = {"matvec0", "matvec1", "attention0", "attention1"};
    const tf_params_header *shape = &d->image->header;
    uint64_t at = d->layout.descriptors;
    for (uint32_t i = 0; i < TF_ENGINES; i++) {
        engine *e = d->engines + i;
        e->name = names[i];
        e->dma = TF_DMA_BASE + (uint64_t)i * TF_DMA_STRIDE;
        e->mm2s = at;
        e->mm2s_count = d->layout.mm2s_descriptors[i];
        at += (uint64_t)e->mm2s_count * TF_DESCRIPTOR_BYTES;
        e->s2mm = at;
        e->s2mm_count = d->layout.s2mm_descriptors[i];
        at += (uint64_t)e->s2mm_count * TF_DESCRIPTOR_BYTES;
        e->chunks = calloc(e->s2mm_count + 1, sizeof *e->chunks);
        if (!e->chunks) return tf_fail(TF_STATUS_MEMORY, "no memory for the driver's tables");
    }
    d->result_offsets = calloc(shape->transfers, sizeof *d->result_offsets);
    for (uint32_t port = 0; port < TF_PORTS; port++)
        d->spans[port] = calloc((size_t)(shape->layers + 1) * TF_GROUPS, sizeof *d->spans[port]);
    d->x = calloc(shape->hidden > shape->ffn ? shape->hidden : shape->ffn, 1);
    if (!d->result_offsets || !d->x || !d->spans[0] || !d->spans[1])
        return tf_fail(TF_STATUS_MEMORY, "no memory for the driver's tables");
    return TF_OK;
}

/* The file is checked where it can be read fast; contiguous memory may be uncached. */
static tf_status load_weights(driver *d, const char *path) {
    const uint8_t *stream;
    TRY(tf_image_map_stream(d->image, path, &stream));
    tf_status status = tf_image_check_stream(d->image, path, stream);
    if (status == TF_OK) memcpy(d->pl->streams.cpu, stream, (size_t)d->image->header.stream_bytes);
    tf_image_unmap_stream(d->image, stream);
    return status;
}

static tf_status open_driver(driver *d, const tf_options *options) {
    TRY(open_tables(d));
    TRY(check_control(d));
    TRY(load_weights(d, options->stream_path));
    make_matvec_rings(d);
    make_attention_rings(d);
    /* The PL reads these for good. Descriptors are cleaned whenever they are used, and the barrier of the first group
     * orders all of it: nothing is fetched before a tail is written. */
    TRY(clean(d, CALL_CLEAN_WEIGHTS, 0, d->layout.plan.weights));
    return start_all(d);
}

tf_status tf_driver_open(tf_circuits *circuits, const tf_image *image, const tf_layout *layout, tf_pl *pl,
                         tf_profiler *profiler, const tf_options *options) {
    driver *d = calloc(1, sizeof *d);
    if (!d) return tf_fail(TF_STATUS_MEMORY, "no memory for the driver");
    *d = (driver){.image = image, .layout = *layout, .pl = pl, .profiler = profiler};
    d->deadline_ns = (uint64_t)(options->deadline_ms ? options->deadline_ms : pl->default_deadline_ms) * 1000000u;
    tf_status status = open_driver(d, options);
    if (status != TF_OK) {
        driver_close(d);
        return status;
    }
    *circuits = (tf_circuits){
        .self = d,
        .x = driver_x,
        .matvec_start = driver_matvec_start,
        .matvec_wait = driver_matvec_wait,
        .matvec_rows = driver_matvec_rows,
        .q = driver_q,
        .key = driver_key,
        .value = driver_value,
        .attention_start = driver_attention_start,
        .attention_wait = driver_attention_wait,
        .attention_sums = driver_attention_sums,
        .reset = driver_reset,
        .close = driver_close,
    };
    return TF_OK;
}
