/* The tritforge runtime: a token in, logits out, the same bits on every machine.
 *
 * One runtime holds one conversation. It is not re-entrant: one thread at a time may call it; it uses helper threads of
 * its own. Every function that can fail returns a tf_status; the sentence that goes with it is tf_last_error() of the
 * same thread. Nothing allocates between tf_open and tf_close.
 *
 * What is computed is defined by pipelines/golden; files and registers by docs/formats.md.
 */
#ifndef TRITFORGE_H
#define TRITFORGE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TF_API_VERSION 2

#if defined(__GNUC__)
#define TF_API __attribute__((visibility("default")))
#else
#define TF_API
#endif

typedef enum {
    TF_OK = 0,
    TF_STATUS_USAGE = 1,        /* an argument that cannot be */
    TF_STATUS_FILE = 2,         /* a file cannot be opened, read or mapped */
    TF_STATUS_FORMAT = 3,       /* a file is not in the format; the text names offset and field */
    TF_STATUS_MEMORY = 4,       /* ordinary or contiguous memory does not suffice */
    TF_STATUS_PL_UNFIT = 5,     /* the programmable logic is not the one this release needs */
    TF_STATUS_PL_TIMEOUT = 6,   /* it did not finish within the deadline; DMASR, CURDESC and counters are in the text */
    TF_STATUS_PL_FAULT = 7,     /* a DMA stopped with an error */
    TF_STATUS_CONTEXT_FULL = 8, /* the largest number of positions is reached */
} tf_status;

typedef struct tf_runtime tf_runtime;

/* A buffer that both CPU and PL see, as the board's allocator gave it. */
typedef struct {
    void *cpu;
    uint64_t physical;
    uint64_t bytes;
    uint32_t cached;     /* 1: the CPU caches it and the PL does not snoop, so ranges are cleaned and invalidated */
    uint32_t bo_handle;  /* the buffer's handle, for cache maintenance by range */
} tf_buffer;

/* xclSyncBO of XRT's libxrt_core: cache maintenance of a range; direction 0 to the device, 1 from it; 0 is success. */
typedef int (*tf_sync_bo)(void *device, unsigned bo_handle, int direction, size_t bytes, size_t offset);

/* What the `mmio` backend is given. Register windows with cpu == NULL are mapped from /dev/mem. */
typedef struct {
    void *control;            /* the control block at TF_CONTROL_BASE */
    void *dma[4];             /* the DMAs at TF_DMA_BASE + i * TF_DMA_STRIDE */
    tf_buffer streams;        /* weights, K, V, headers, descriptors: written by the CPU, read by the PL */
    tf_buffer results;        /* written by the PL, read by the CPU */
    tf_sync_bo sync;          /* how cached ranges are maintained; NULL: by the zocl driver through drm_fd */
    void *sync_device;
    int32_t drm_fd;           /* of /dev/dri/renderD128; -1 when there is none */
    uint32_t results_padded_bytes; /* what the bitstream fills each transfer's results to: 8, or 32; 0 means 8 */
    uint32_t descriptors_coherent; /* 1: the DMAs reach their descriptors through the port that snoops */
    uint32_t zero;
} tf_mmio_options;

typedef struct {
    uint32_t struct_bytes;    /* sizeof(tf_options): a caller built against another header is refused */
    uint32_t api_version;     /* TF_API_VERSION */
    const char *params_path;
    const char *stream_path;
    const char *embedding_path;
    const char *backend;      /* "host": computed here; "rtl", "model": pl_library; "mmio": a board */
    const char *pl_library;   /* for "rtl" and "model": the library with the circuits (native/include/tritforge_rtl.h) */
    const tf_mmio_options *mmio;
    uint32_t context;         /* largest number of positions; 0: that of the params file */
    uint32_t threads;         /* 1 or more; the result does not depend on it */
    uint32_t deadline_ms;     /* for one group of transfers; 0: 2000 (rtl and model: 120000) */
    uint32_t simple_dma;      /* 1: simple transfers even where the DMAs have scatter-gather */
    uint32_t plain;           /* 1: backend host keeps to plain C where it has vector instructions */
} tf_options;

/* Contiguous memory that a release needs on a board, computed from params.tfp alone. All in bytes. */
typedef struct {
    uint64_t total;           /* streams + results, what must be allocated */
    uint64_t streams;         /* the buffer that the CPU writes and the PL reads */
    uint64_t results;         /* the buffer that the PL writes and the CPU reads */
    uint64_t weights;         /* parts of streams: the packed matrices, */
    uint64_t keys_values;     /* K and V of all layers and heads, */
    uint64_t head_slots;      /* header and q of each head, */
    uint64_t descriptors;     /* scatter-gather descriptors, */
    uint64_t staging;         /* attention streams copied together, for DMAs without scatter-gather */
    uint64_t embedding;       /* ordinary memory: mapped file */
    uint32_t context;
    uint32_t transfers_per_token; /* DMA transfers (both directions counted once) of one token, scatter-gather */
} tf_memory_plan;

typedef struct {
    uint32_t hidden, ffn, layers, heads, head_dim, vocab, context, head_planes;
    uint32_t bos, eos;
    uint64_t stream_bytes;
} tf_shape;

typedef struct {
    float temperature;        /* 0: greedy; else 0.001 to 1000 */
    uint32_t top_k;           /* 0: all */
    uint32_t top_p_65536;     /* round(top_p * 65536), half to even; 65536: all */
    float repetition_penalty; /* 1: none; 0.001 to 1000 */
} tf_sampling;

/* Parts of a token's time. Each nanosecond between the start and the end of tf_forward belongs to exactly one. */
typedef enum {
    TF_PART_EMBEDDING,
    TF_PART_NORM,          /* RMSNorm and int8 quantisation, x into the slots */
    TF_PART_QKV_RESULTS,   /* dequantise, rotate, quantise, append */
    TF_PART_ATTENTION_RESULTS,
    TF_PART_RESIDUAL,      /* dequantise and add, after o and down */
    TF_PART_GATE,
    TF_PART_LOGITS,
    TF_PART_DRIVER,        /* descriptors, cache maintenance, register writes */
    TF_PART_WAIT_QKV,      /* waiting for the circuits (backend host: computing in their stead) */
    TF_PART_WAIT_O,
    TF_PART_WAIT_GATE_UP,
    TF_PART_WAIT_DOWN,
    TF_PART_WAIT_HEAD,
    TF_PART_WAIT_ATTENTION,
    TF_PARTS
} tf_part;

typedef struct {
    uint64_t tokens;                   /* since tf_open */
    uint64_t nanoseconds[TF_PARTS];    /* sums over these tokens */
    uint64_t register_reads;
    uint64_t register_writes;
    uint64_t cleaned_bytes;
    uint64_t invalidated_bytes;
    uint64_t cache_calls;
    uint64_t score_saturations;        /* heads whose m was cut at M_MAX */
} tf_profile;

/* Called for each trace point of a token (TF_TRACE_*, layer or -1). `type` is 'f' float32, 'i' int32, 'b' int8. */
typedef void (*tf_trace_fn)(void *user, uint32_t point, int32_t layer, char type, const void *data, size_t count);

TF_API uint32_t tf_api_version(void);
TF_API uint32_t tf_formats_version(void);

/* Text and class of this thread's last failure. */
TF_API const char *tf_last_error(void);
TF_API tf_status tf_last_status(void);

/* Open checks everything in the files: sizes, checksums, every header, code, scale and norm weight. */
TF_API tf_status tf_open(const tf_options *options, tf_runtime **runtime);
TF_API void tf_close(tf_runtime *runtime);

TF_API tf_status tf_plan(const char *params_path, uint32_t context, tf_memory_plan *plan);
TF_API void tf_get_shape(const tf_runtime *runtime, tf_shape *shape);

/* Forget the conversation. After a PL failure this also resets the DMAs and circuits. */
TF_API tf_status tf_reset(tf_runtime *runtime);
TF_API uint32_t tf_position(const tf_runtime *runtime);

/* One more token. *logits (float[vocab]) stays valid until the next call with this runtime. */
TF_API tf_status tf_forward(tf_runtime *runtime, uint32_t token, const float **logits);

/* The next token from logits (pipelines/golden/sampling.py). `seen` are token ids, in any order, repeats allowed.
 * `random_state` starts as the seed and is advanced once unless greedy. */
TF_API tf_status tf_sample(tf_runtime *runtime, const float *logits, const uint32_t *seen, size_t seen_count,
                           const tf_sampling *options, uint64_t *random_state, uint32_t *token);

TF_API void tf_set_trace(tf_runtime *runtime, tf_trace_fn trace, void *user);
TF_API void tf_get_profile(const tf_runtime *runtime, tf_profile *profile);

/* Content id, clock counter and other words of the control block, for doctor and benchmark (not backend host). */
TF_API tf_status tf_read_control(tf_runtime *runtime, uint32_t offset, uint32_t *value);

/* The PL's clock: its cycle counter over at least `milliseconds` of the backend's time. */
TF_API tf_status tf_measure_clock(tf_runtime *runtime, uint32_t milliseconds, double *hertz);

/* What the driver did wrong in the eyes of the simulated DMAs; "" if nothing, and always on a board. */
TF_API const char *tf_complaint(tf_runtime *runtime);

/* Flush-to-zero and default-NaN of the calling thread: 1 on, 0 off, -1 leave. Returns the former state (0 or 1).
 * The result of tf_forward does not depend on it; tests show that. */
TF_API int tf_flush_to_zero(int on);

#ifdef __cplusplus
}
#endif

#endif
