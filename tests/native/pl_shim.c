/* The interface of native/include/tritforge_rtl.h passed on to another library, with what went through written to a file.
 *
 * PL_SHIM_LIBRARY is the library behind, PL_SHIM_LOG the file (absent: none): "W address value" for each register
 * write, "R address value" for reads of the control block, "C" and "B" for clean and barrier. Reads of
 * the DMAs are polls, whose number depends on the engines' speed, so they are not written. PL_SHIM_OPTIONS, one
 * NAME=VALUE, changes options with which the logic is created. PL_SHIM_CORRUPT is the offset of a byte in the buffer that
 * the logic shall see inverted, as long as it is set. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tf_formats.h"
#include "tritforge_rtl.h"

static void *behind;
static FILE *record;

static void *find(const char *name) {
    if (!behind) {
        const char *path = getenv("PL_SHIM_LIBRARY"), *log = getenv("PL_SHIM_LOG");
        behind = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE) : NULL;
        if (!behind) {
            fprintf(stderr, "pl_shim: %s\n", path ? dlerror() : "PL_SHIM_LIBRARY is not set");
            abort();
        }
        if (log) record = fopen(log, "w");
    }
    return dlsym(behind, name);
}

#define NOTE(...) \
    if (record) fprintf(record, __VA_ARGS__)
#define PASS(result, name, types) result(*pass) types = (result(*) types)find("tritforge_rtl_" #name)
#define OPEN __attribute__((visibility("default")))

OPEN const char *tritforge_rtl_kind(void) {
    PASS(const char *, kind, (void));
    return pass();
}

OPEN void tritforge_rtl_default_options(tritforge_rtl_options *options) {
    PASS(void, default_options, (tritforge_rtl_options *));
    pass(options);
}

OPEN tritforge_rtl *tritforge_rtl_create(const tritforge_rtl_options *wanted, char *error, size_t error_bytes) {
    PASS(tritforge_rtl *, create, (const tritforge_rtl_options *, char *, size_t));
    tritforge_rtl_options options = *wanted;
    const char *list = getenv("PL_SHIM_OPTIONS");
    unsigned value;
    if (list && sscanf(list, "length_width=%u", &value) == 1) options.length_width = value;
    if (list && sscanf(list, "attention_head_dim=%u", &value) == 1) options.attention_head_dim = value;
    return pass(&options, error, error_bytes);
}

OPEN void tritforge_rtl_destroy(tritforge_rtl *pl) {
    PASS(void, destroy, (tritforge_rtl *));
    pass(pl);
    if (record) fclose(record);
    record = NULL;
}

OPEN uint32_t tritforge_rtl_read32(tritforge_rtl *pl, uint32_t address) {
    PASS(uint32_t, read32, (tritforge_rtl *, uint32_t));
    uint32_t value = pass(pl, address);
    if (address >= TF_CONTROL_BASE) NOTE("R %08x %08x\n", address, value);
    return value;
}

OPEN void tritforge_rtl_write32(tritforge_rtl *pl, uint32_t address, uint32_t value) {
    PASS(void, write32, (tritforge_rtl *, uint32_t, uint32_t));
    NOTE("W %08x %08x\n", address, value);
    pass(pl, address, value);
}

OPEN void *tritforge_rtl_memory(tritforge_rtl *pl) {
    PASS(void *, memory, (tritforge_rtl *));
    return pass(pl);
}

OPEN void tritforge_rtl_clean(tritforge_rtl *pl, uint64_t offset, uint64_t bytes) {
    PASS(void, clean, (tritforge_rtl *, uint64_t, uint64_t));
    NOTE("C %08llx %llx\n", (unsigned long long)offset, (unsigned long long)bytes);
    const char *at = getenv("PL_SHIM_CORRUPT");
    uint8_t *byte = at ? (uint8_t *)tritforge_rtl_memory(pl) + strtoul(at, NULL, 0) : NULL;
    if (byte) *byte ^= 0xFF; /* the logic gets to see another byte than the processor wrote */
    pass(pl, offset, bytes);
    if (byte) {
        tritforge_rtl_barrier(pl);
        *byte ^= 0xFF;
    }
}

OPEN void tritforge_rtl_invalidate(tritforge_rtl *pl, uint64_t offset, uint64_t bytes) {
    PASS(void, invalidate, (tritforge_rtl *, uint64_t, uint64_t));
    pass(pl, offset, bytes);
}

OPEN void tritforge_rtl_barrier(tritforge_rtl *pl) {
    PASS(void, barrier, (tritforge_rtl *));
    NOTE("B\n");
    pass(pl);
}

OPEN void tritforge_rtl_advance(tritforge_rtl *pl, uint64_t cycles) {
    PASS(void, advance, (tritforge_rtl *, uint64_t));
    pass(pl, cycles);
}

OPEN uint64_t tritforge_rtl_wait(tritforge_rtl *pl, uint64_t most_cycles) {
    PASS(uint64_t, wait, (tritforge_rtl *, uint64_t));
    return pass(pl, most_cycles);
}

OPEN uint64_t tritforge_rtl_time_ns(const tritforge_rtl *pl) {
    PASS(uint64_t, time_ns, (const tritforge_rtl *));
    return pass(pl);
}

OPEN const char *tritforge_rtl_complaint(tritforge_rtl *pl) {
    PASS(const char *, complaint, (tritforge_rtl *));
    return pass(pl);
}
