/* Backends `rtl` and `model`: a library with the interface native/include/tritforge_rtl.h in the place of the board. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "error.h"
#include "tritforge_rtl.h"

/* Between two polls a simulation may run this long; it comes back when a status register changes. */
#define WAIT_CYCLES 4096

typedef struct {
    void *library;
    tritforge_rtl *pl;
    uint8_t *memory;
    uint32_t clock_khz;
    const char *(*kind)(void);
    void (*default_options)(tritforge_rtl_options *);
    tritforge_rtl *(*create)(const tritforge_rtl_options *, char *, size_t);
    void (*destroy)(tritforge_rtl *);
    uint32_t (*read32)(tritforge_rtl *, uint32_t);
    void (*write32)(tritforge_rtl *, uint32_t, uint32_t);
    void *(*get_memory)(tritforge_rtl *);
    void (*clean)(tritforge_rtl *, uint64_t, uint64_t);
    void (*invalidate)(tritforge_rtl *, uint64_t, uint64_t);
    void (*barrier)(tritforge_rtl *);
    uint64_t (*wait)(tritforge_rtl *, uint64_t);
    void (*advance)(tritforge_rtl *, uint64_t);
    uint64_t (*time_ns)(const tritforge_rtl *);
    const char *(*complaint)(tritforge_rtl *);
} simulated;

static uint32_t simulated_read32(void *self, uint64_t physical) {
    simulated *s = self;
    return s->read32(s->pl, (uint32_t)physical);
}

static void simulated_write32(void *self, uint64_t physical, uint32_t value) {
    simulated *s = self;
    s->write32(s->pl, (uint32_t)physical, value);
}

static int simulated_clean(void *self, const void *data, size_t bytes) {
    simulated *s = self;
    s->clean(s->pl, (uint64_t)((const uint8_t *)data - s->memory), bytes);
    return 0;
}

static int simulated_invalidate(void *self, const void *data, size_t bytes) {
    simulated *s = self;
    s->invalidate(s->pl, (uint64_t)((const uint8_t *)data - s->memory), bytes);
    return 0;
}

static void simulated_barrier(void *self) {
    simulated *s = self;
    s->barrier(s->pl);
}

static void simulated_wait(void *self, uint32_t polls) {
    simulated *s = self;
    (void)polls;
    s->wait(s->pl, WAIT_CYCLES);
}

static void simulated_pass_time(void *self, uint32_t microseconds) {
    simulated *s = self;
    s->advance(s->pl, (uint64_t)microseconds * s->clock_khz / 1000);
}

static uint64_t simulated_time_ns(void *self) {
    simulated *s = self;
    return s->time_ns(s->pl);
}

static const char *simulated_complaint(void *self) {
    simulated *s = self;
    return s->complaint(s->pl);
}

static void simulated_close(void *self) {
    simulated *s = self;
    if (s->pl) s->destroy(s->pl);
    if (s->library) dlclose(s->library);
    free(s);
}

static tf_status find_functions(simulated *s, const char *path) {
#define FIND(member, name)                                                                                  \
    *(void **)(void *)&s->member = dlsym(s->library, "tritforge_rtl_" name);                                \
    if (!s->member) return tf_fail(TF_STATUS_PL_UNFIT, "%s has no function tritforge_rtl_%s", path, name)
    FIND(kind, "kind");
    FIND(default_options, "default_options");
    FIND(create, "create");
    FIND(destroy, "destroy");
    FIND(read32, "read32");
    FIND(write32, "write32");
    FIND(get_memory, "memory");
    FIND(clean, "clean");
    FIND(invalidate, "invalidate");
    FIND(barrier, "barrier");
    FIND(wait, "wait");
    FIND(advance, "advance");
    FIND(time_ns, "time_ns");
    FIND(complaint, "complaint");
#undef FIND
    return TF_OK;
}

static tf_status open_library(simulated *s, tf_pl *pl, const char *kind, const char *path, const tf_memory_plan *plan,
                              const tf_params_header *shape, bool simple_dma) {
    char reason[512] = "";
    /* Never unloaded. zig links shared libraries without crtbeginS.o, so they have no DT_FINI_ARRAY and nothing calls
     * __cxa_finalize for them at dlclose(): the static destructors of its C++ library stay registered with exit(), which
     * then calls into pages that are gone. (Seen with a plain dlopen, dlclose, exit of the x86-64 library.) */
    s->library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!s->library) return tf_fail(TF_STATUS_PL_UNFIT, "the circuits' library cannot be loaded: %s", dlerror());
    tf_status status = find_functions(s, path);
    if (status != TF_OK) return status;
    if (strcmp(s->kind(), kind) != 0)
        return tf_fail(TF_STATUS_PL_UNFIT, "%s is a '%s', wanted is '%s'", path, s->kind(), kind);
    tritforge_rtl_options options;
    s->default_options(&options);
    options.interface = TRITFORGE_RTL_INTERFACE;
    options.memory_bytes = plan->total;
    options.scatter_gather = !simple_dma;
    options.attention_positions = shape->context <= TF_MAX_CONTEXT_BOARD ? TF_MAX_CONTEXT_BOARD : TF_MAX_CONTEXT;
    options.attention_head_dim = shape->head_dim;
    s->clock_khz = options.clock_khz;
    s->pl = s->create(&options, reason, sizeof reason);
    if (!s->pl) return tf_fail(TF_STATUS_PL_UNFIT, "%s: %s", path, reason);
    s->memory = s->get_memory(s->pl);
    pl->streams = (tf_pl_buffer){s->memory, options.physical_base, plan->streams};
    pl->results = (tf_pl_buffer){s->memory + plan->streams, options.physical_base + plan->streams, plan->results};
    return TF_OK;
}

tf_status tf_pl_open_library(tf_pl *pl, const char *kind, const char *path, const tf_memory_plan *plan,
                             const tf_params_header *shape, bool simple_dma) {
    if (!path) return tf_fail(TF_STATUS_USAGE, "backend %s needs the path of the circuits' library", kind);
    simulated *s = calloc(1, sizeof *s);
    if (!s) return tf_fail(TF_STATUS_MEMORY, "no memory for the backend");
    tf_status status = open_library(s, pl, kind, path, plan, shape, simple_dma);
    if (status != TF_OK) {
        simulated_close(s);
        return status;
    }
    pl->self = s;
    pl->name = s->kind();
    pl->read32 = simulated_read32;
    pl->write32 = simulated_write32;
    pl->clean = simulated_clean;
    pl->invalidate = simulated_invalidate;
    pl->barrier = simulated_barrier;
    pl->wait = simulated_wait;
    pl->time_ns = simulated_time_ns;
    pl->pass_time = simulated_pass_time;
    pl->complaint = simulated_complaint;
    pl->close = simulated_close;
    pl->default_deadline_ms = 120000; /* a group of the 0.7 B model takes seconds when the RTL runs in an emulated board */
    return TF_OK;
}
