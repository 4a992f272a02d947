/* Opening, closing, resetting; everything a token needs is allocated here. */
#include "runtime.h"

#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "error.h"
#include "plan.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

uint32_t tf_api_version(void) { return TF_API_VERSION; }

uint32_t tf_formats_version(void) { return TF_FORMATS_VERSION; }

static tf_status check_options(const tf_options *options) {
    if (options->struct_bytes != sizeof(tf_options) || options->api_version != TF_API_VERSION)
        return tf_fail(TF_STATUS_USAGE, "the caller was built for version %u of the runtime (%u bytes of options), "
                       "this is version %d (%zu bytes)", options->api_version, options->struct_bytes, TF_API_VERSION,
                       sizeof(tf_options));
    if (!options->params_path || !options->stream_path || !options->embedding_path || !options->backend)
        return tf_fail(TF_STATUS_USAGE, "a path or the backend is missing");
    if (options->threads < 1 || options->threads > TF_LARGEST_POOL)
        return tf_fail(TF_STATUS_USAGE, "threads is %u; it must be 1 to %d", options->threads, TF_LARGEST_POOL);
    return TF_OK;
}

static tf_status open_vectors(tf_runtime *rt) {
    const tf_params_header *shape = &rt->image.header;
    uint32_t longest = shape->hidden > shape->ffn ? shape->hidden : shape->ffn, rows = 0;
    for (uint32_t group = 0; group < TF_GROUPS; group++)
        rows = tf_group_rows(shape, group) > rows ? tf_group_rows(shape, group) : rows;
    uint32_t sums = shape->heads * (shape->head_dim + 1);
    rt->x = calloc(shape->hidden, sizeof(float));
    rt->h = calloc(longest, sizeof(float));
    rt->q = calloc(shape->hidden, sizeof(float));
    rt->k = calloc(shape->hidden, sizeof(float));
    rt->v = calloc(shape->hidden, sizeof(float));
    rt->m = calloc(shape->heads, sizeof(int32_t));
    rt->saturated = calloc(shape->heads, sizeof(uint32_t));
    rt->logits = calloc(shape->vocab, sizeof(float));
    rt->trace_acc = calloc(rows > sums ? rows : sums, sizeof(int32_t));
    rt->trace_code = calloc(shape->hidden, 1);
    if (!rt->x || !rt->h || !rt->q || !rt->k || !rt->v || !rt->m || !rt->saturated || !rt->logits || !rt->trace_acc ||
        !rt->trace_code)
        return tf_fail(TF_STATUS_MEMORY, "no memory for the vectors of a token");
    return tf_sampler_open(&rt->sampler, shape->vocab);
}

static tf_status open_host(tf_runtime *rt, const tf_options *options) {
    const uint8_t *stream;
    tf_status status = tf_image_map_stream(&rt->image, options->stream_path, &stream);
    if (status != TF_OK) return status;
    status = tf_image_check_stream(&rt->image, options->stream_path, stream);
    if (status != TF_OK) {
        tf_image_unmap_stream(&rt->image, stream);
        return status;
    }
    return tf_host_open(&rt->circuits, &rt->image, stream, rt->context, rt->pool, &rt->profiler, options->plain != 0);
}

static tf_status open_pl(tf_runtime *rt, const tf_options *options) {
    tf_layout layout;
    tf_status status = tf_layout_make(&layout, &rt->image, rt->context);
    if (status != TF_OK) return status;
    if (strcmp(options->backend, "mmio") == 0)
        status = tf_pl_open_mmio(&rt->pl, options->mmio, &layout.plan);
    else
        status = tf_pl_open_library(&rt->pl, options->backend, options->pl_library, &layout.plan,
                                    &rt->image.header, options->simple_dma != 0);
    if (status != TF_OK) return status;
    return tf_driver_open(&rt->circuits, &rt->image, &layout, &rt->pl, &rt->profiler, options);
}

static tf_status open_all(tf_runtime *rt, const tf_options *options) {
    tf_status status = tf_image_read_params(&rt->image, options->params_path);
    if (status != TF_OK) return status;
    rt->context = options->context ? options->context : rt->image.header.context;
    if (rt->context > rt->image.header.context)
        return tf_fail(TF_STATUS_USAGE, "context is %u; %s has tables for %u", rt->context, options->params_path,
                       rt->image.header.context);
    if ((status = tf_image_map_embedding(&rt->image, options->embedding_path)) != TF_OK) return status;
    if ((status = open_vectors(rt)) != TF_OK) return status;
    rt->pool = tf_pool_open(options->threads);
    if (!rt->pool) return tf_fail(TF_STATUS_MEMORY, "cannot start %u threads", options->threads);
    if (strcmp(options->backend, "host") == 0) return open_host(rt, options);
    if (strcmp(options->backend, "rtl") == 0 || strcmp(options->backend, "model") == 0 ||
        strcmp(options->backend, "mmio") == 0)
        return open_pl(rt, options);
    return tf_fail(TF_STATUS_USAGE, "backend '%s' is none of host, rtl, model, mmio", options->backend);
}

tf_status tf_open(const tf_options *options, tf_runtime **runtime) {
    *runtime = NULL;
    tf_status status = check_options(options);
    if (status != TF_OK) return status;
    tf_runtime *rt = calloc(1, sizeof *rt);
    if (!rt) return tf_fail(TF_STATUS_MEMORY, "no memory for the runtime");
    status = open_all(rt, options);
    if (status != TF_OK) {
        tf_close(rt);
        return status;
    }
    *runtime = rt;
    return TF_OK;
}

void tf_close(tf_runtime *rt) {
    if (!rt) return;
    if (rt->circuits.self) rt->circuits.close(rt->circuits.self);
    if (rt->pl.close) rt->pl.close(rt->pl.self);
    tf_pool_close(rt->pool);
    tf_sampler_close(&rt->sampler);
    free(rt->x), free(rt->h), free(rt->q), free(rt->k), free(rt->v), free(rt->m), free(rt->saturated);
    free(rt->logits), free(rt->trace_acc), free(rt->trace_code);
    tf_image_close(&rt->image);
    free(rt);
}

tf_status tf_reset(tf_runtime *rt) {
    if (rt->failed) {
        tf_status status = rt->circuits.reset(rt->circuits.self);
        if (status != TF_OK) return status;
    }
    rt->failed = false;
    rt->position = 0;
    return TF_OK;
}

uint32_t tf_position(const tf_runtime *rt) { return rt->position; }

void tf_get_shape(const tf_runtime *rt, tf_shape *shape) {
    const tf_params_header *h = &rt->image.header;
    *shape = (tf_shape){h->hidden, h->ffn,         h->layers, h->heads, h->head_dim,    h->vocab,
                        rt->context, h->head_planes, h->bos,    h->eos,   h->stream_bytes};
}

void tf_set_trace(tf_runtime *rt, tf_trace_fn trace, void *user) {
    rt->trace = trace;
    rt->trace_user = user;
}

void tf_get_profile(const tf_runtime *rt, tf_profile *profile) { *profile = rt->profiler.sums; }

tf_status tf_plan(const char *params_path, uint32_t context, tf_memory_plan *plan) {
    tf_image image = {0};
    tf_layout layout;
    tf_status status = tf_image_read_params(&image, params_path);
    if (status == TF_OK && context > image.header.context)
        status = tf_fail(TF_STATUS_USAGE, "context is %u; %s has tables for %u", context, params_path,
                         image.header.context);
    if (status == TF_OK) status = tf_layout_make(&layout, &image, context ? context : image.header.context);
    if (status == TF_OK) *plan = layout.plan;
    tf_image_close(&image);
    return status;
}

tf_status tf_read_control(tf_runtime *rt, uint32_t offset, uint32_t *value) {
    if (!rt->pl.self) return tf_fail(TF_STATUS_USAGE, "backend host has no control block");
    if (offset % 4 || offset >= TF_PAGE_BYTES) return tf_fail(TF_STATUS_USAGE, "no register at 0x%x", offset);
    *value = rt->pl.read32(rt->pl.self, TF_CONTROL_BASE + offset);
    return TF_OK;
}

static uint64_t read_cycles(tf_pl *pl) {
    uint64_t low = pl->read32(pl->self, TF_CONTROL_BASE + TF_REG_CYCLES_LO); /* latches the high half */
    return (uint64_t)pl->read32(pl->self, TF_CONTROL_BASE + TF_REG_CYCLES_HI) << 32 | low;
}

tf_status tf_measure_clock(tf_runtime *rt, uint32_t milliseconds, double *hertz) {
    tf_pl *pl = &rt->pl;
    if (!pl->self) return tf_fail(TF_STATUS_USAGE, "backend host has no clock");
    if (milliseconds < 1 || milliseconds > 10000)
        return tf_fail(TF_STATUS_USAGE, "a clock is measured over 1 to 10000 ms, not %u", milliseconds);
    uint64_t start = pl->time_ns(pl->self), cycles = read_cycles(pl);
    pl->pass_time(pl->self, milliseconds * 1000);
    cycles = read_cycles(pl) - cycles;
    uint64_t passed = pl->time_ns(pl->self) - start;
    if (passed == 0) return tf_fail(TF_STATUS_PL_UNFIT, "the PL's time stands still");
    *hertz = (double)cycles * 1e9 / (double)passed;
    return TF_OK;
}

const char *tf_complaint(tf_runtime *rt) { return rt->pl.self ? rt->pl.complaint(rt->pl.self) : ""; }

int tf_flush_to_zero(int on) {
#if defined(__x86_64__)
    const unsigned flags = 0x8040; /* MXCSR: flush to zero, denormals are zero */
    unsigned state = _mm_getcsr();
    if (on >= 0) _mm_setcsr(on ? state | flags : state & ~flags);
    return (state & flags) != 0;
#elif defined(__aarch64__)
    const uint64_t flags = 1u << 24 | 1u << 25; /* FPCR: FZ, DN */
    uint64_t state;
    __asm__ volatile("mrs %0, fpcr" : "=r"(state));
    uint64_t wanted = on ? state | flags : state & ~flags;
    if (on >= 0) __asm__ volatile("msr fpcr, %0" : : "r"(wanted));
    return (state & flags) != 0;
#elif defined(__arm__)
    const uint32_t flags = 1u << 24 | 1u << 25; /* FPSCR: FZ, DN */
    uint32_t state;
    __asm__ volatile("vmrs %0, fpscr" : "=r"(state));
    uint32_t wanted = on ? state | flags : state & ~flags;
    if (on >= 0) __asm__ volatile("vmsr fpscr, %0" : : "r"(wanted));
    return (state & flags) != 0;
#else
    (void)on;
    return 0;
#endif
}
