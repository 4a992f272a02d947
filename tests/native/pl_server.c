/* Serves registers and memory of the programmable logic to another process, through two files that both map.
 *
 *     pl_server FOLDER LIBRARY BASE BYTES CONTENT_ID
 *
 * LIBRARY is libtritforge_rtl.so or libtritforge_model.so. FOLDER/registers holds five windows of 64 KiB (four DMAs, the
 * control block), FOLDER/memory is the contiguous memory itself: it is mapped where the library keeps its own. A
 * register that differs from what was last published here was written by the other side and is passed on. CONTENT_ID is
 * what the loaded bitstream says, as on a board. Ends with its standard input.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "tf_formats.h"
#include "tritforge_rtl.h"

enum { WINDOW = 0x10000, CONTROL_WINDOW = TF_ENGINES, WINDOWS = TF_ENGINES + 1 };
enum { S2MM = 0x30, DMACR = 0x00, DMASR = 0x04, CURDESC = 0x08, TAILDESC = 0x10 }; /* AXI DMA, PG021 */
enum { SIDES = 2 * TF_ENGINES };
static const uint32_t AT_REST = 1u | 2u | 0x770u; /* halted, idle, or stopped by an error */
static const uint64_t CLOCK_HZ = 125000000;
static const uint64_t QUANTUM_CYCLES = 2000; /* of work between two looks at the registers */
static const long NAP_NS = 100000;

static struct {
    uint32_t (*read32)(tritforge_rtl *, uint32_t);
    void (*write32)(tritforge_rtl *, uint32_t, uint32_t);
    uint64_t (*wait)(tritforge_rtl *, uint64_t);
    void (*advance)(tritforge_rtl *, uint64_t);
} call;
static tritforge_rtl *pl;
static volatile uint32_t *registers;

typedef struct {
    uint32_t physical;
    uint32_t index; /* word in FOLDER/registers */
    uint32_t published;
} shared;

enum { ENGINE_REGISTERS = TF_ENGINE_REG_ERROR_WORD / 4 + 1 };
static shared fixed[3], written[2 + 3 * SIDES], status[SIDES], counters[ENGINE_REGISTERS * TF_ENGINES];

static shared dma(int engine, uint32_t offset) {
    return (shared){TF_DMA_BASE + (uint32_t)engine * TF_DMA_STRIDE + offset,
                    ((uint32_t)engine * WINDOW + offset) / 4, 0};
}

static shared control(uint32_t offset) {
    return (shared){TF_CONTROL_BASE + offset, (CONTROL_WINDOW * WINDOW + offset) / 4, 0};
}

static void publish(shared *list, int count) {
    for (int i = 0; i < count; i++)
        registers[list[i].index] = list[i].published = call.read32(pl, list[i].physical);
}
#define PUBLISH(list) publish(list, sizeof(list) / sizeof *(list))

static void list_registers(void) {
    fixed[0] = control(TF_REG_ID), fixed[1] = control(TF_REG_VERSION), fixed[2] = control(TF_REG_CONFIG);
    shared *next = written, *counter = counters;
    *next++ = control(TF_REG_SCRATCH);
    *next++ = control(TF_REG_CONTROL);
    for (int engine = 0; engine < TF_ENGINES; engine++) {
        for (int side = 0; side < 2; side++) {
            uint32_t at = side ? 0 : S2MM; /* results are armed before the stream starts */
            status[2 * engine + side] = dma(engine, at + DMASR);
            /* the order in which a driver may write them */
            *next++ = dma(engine, at + CURDESC);
            *next++ = dma(engine, at + DMACR);
            *next++ = dma(engine, at + TAILDESC);
        }
        for (uint32_t i = 0; i < ENGINE_REGISTERS; i++)
            *counter++ = control(TF_ENGINE_BASE + (uint32_t)engine * TF_ENGINE_STRIDE + 4 * i);
    }
}

static void tick(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t cycles = (uint64_t)now.tv_sec * CLOCK_HZ + (uint64_t)now.tv_nsec / (1000000000u / CLOCK_HZ);
    registers[(CONTROL_WINDOW * WINDOW + TF_REG_CYCLES_HI) / 4] = (uint32_t)(cycles >> 32);
    registers[(CONTROL_WINDOW * WINDOW + TF_REG_CYCLES_LO) / 4] = (uint32_t)cycles;
}

static int stop(const char *what) {
    perror(what);
    return 1;
}

static void *map(const char *folder, const char *name, size_t bytes, void *where) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return MAP_FAILED;
    void *mapped = mmap(where, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | (where ? MAP_FIXED : 0), fd, 0);
    close(fd);
    return mapped;
}

static void *function(void *library, const char *name) {
    void *found = dlsym(library, name);
    if (found) return found;
    fprintf(stderr, "pl_server: no %s\n", name);
    exit(1);
}

static int open_logic(const char *folder, const char *path, uint32_t base, uint64_t bytes, uint32_t content_id) {
    void *library = dlopen(path, RTLD_NOW);
    if (!library) return fprintf(stderr, "pl_server: %s\n", dlerror()), 1;
    void (*defaults)(tritforge_rtl_options *);
    tritforge_rtl *(*create)(const tritforge_rtl_options *, char *, size_t);
    void *(*memory)(tritforge_rtl *);
    *(void **)(void *)&defaults = function(library, "tritforge_rtl_default_options");
    *(void **)(void *)&create = function(library, "tritforge_rtl_create");
    *(void **)(void *)&memory = function(library, "tritforge_rtl_memory");
    *(void **)(void *)&call.read32 = function(library, "tritforge_rtl_read32");
    *(void **)(void *)&call.write32 = function(library, "tritforge_rtl_write32");
    *(void **)(void *)&call.wait = function(library, "tritforge_rtl_wait");
    *(void **)(void *)&call.advance = function(library, "tritforge_rtl_advance");
    tritforge_rtl_options options;
    defaults(&options);
    options.interface = TRITFORGE_RTL_INTERFACE;
    options.physical_base = base;
    options.memory_bytes = bytes;
    options.scatter_gather = 1;
    options.poll_cycles = 1; /* looking costs nothing here: time passes in serve() */
    options.shadow = 0; /* the processor's view is the other process's, moved by its cache maintenance */
    options.content_id = content_id;
    options.attention_positions = TF_MAX_CONTEXT_BOARD;
    options.attention_head_dim = 96;
    char reason[512] = "";
    pl = create(&options, reason, sizeof reason);
    if (!pl) return fprintf(stderr, "pl_server: %s\n", reason), 1;
    /* The library's memory is 4096-aligned and so can be the shared file itself. */
    return map(folder, "memory", bytes, memory(pl)) == MAP_FAILED ? stop("memory") : 0;
}

static int serve(void) {
    struct pollfd end = {.fd = 0, .events = POLLIN};
    for (;;) {
        if (poll(&end, 1, 0) > 0) return 0;
        tick();
        int passed_on = 0;
        for (unsigned i = 0; i < sizeof written / sizeof *written; i++) {
            uint32_t value = registers[written[i].index];
            if (value == written[i].published) continue;
            __sync_synchronize(); /* what the other side wrote before this register is read after it */
            written[i].published = value;
            call.write32(pl, written[i].physical, value);
            passed_on = 1;
            /* bits that clear themselves, as a reset does */
            if (written[i].physical % WINDOW % S2MM != TAILDESC) call.advance(pl, 100), publish(written + i, 1);
        }
        int working = 0;
        for (int i = 0; i < SIDES; i++) working |= !(call.read32(pl, status[i].physical) & AT_REST);
        if (working) call.wait(pl, QUANTUM_CYCLES);
        if (working || passed_on) {
            PUBLISH(counters);
            __sync_synchronize(); /* results are in memory before the status says so */
            PUBLISH(status);
        } else {
            nanosleep(&(struct timespec){0, NAP_NS}, NULL);
        }
    }
}

int main(int argc, char **argv) {
    if (argc != 6) return fprintf(stderr, "usage: pl_server FOLDER LIBRARY BASE BYTES CONTENT_ID\n"), 2;
    uint32_t content_id = (uint32_t)strtoul(argv[5], NULL, 0);
    registers = map(argv[1], "registers", WINDOWS * WINDOW, NULL);
    if (registers == MAP_FAILED) return stop("registers");
    if (open_logic(argv[1], argv[2], (uint32_t)strtoul(argv[3], NULL, 0), strtoull(argv[4], NULL, 0), content_id))
        return 1;
    list_registers();
    PUBLISH(fixed);
    registers[control(TF_REG_CONTENT_ID).index] = content_id;
    PUBLISH(written);
    PUBLISH(counters);
    PUBLISH(status);
    tick();
    puts("ready");
    fflush(stdout);
    return serve();
}
