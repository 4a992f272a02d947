/* A QEMU plugin that counts guest instructions by block, CPU and phase:
 *   qemu-arm -plugin count.so,out=FILE,phase0=ADDRESS,phase1=ADDRESS,phase2=ADDRESS
 *
 * The program begins in phase 0; a CPU that comes to a block at one of the addresses (hexadecimal, functions) begins that
 * phase for all. At the end FILE has a line for each block, CPU and phase: address, instructions of the block, CPU, phase,
 * times executed. The few
 * declarations of QEMU's plugin interface (version 1) that it uses stand here, since distributions ship no header. */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
typedef struct qemu_info_t qemu_info_t;
enum { NO_REGISTERS = 0 };

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id, void (*cb)(qemu_plugin_id_t, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *tb, void (*cb)(unsigned, void *), int flags, void *data);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t id, void (*cb)(qemu_plugin_id_t, void *), void *data);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *tb);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);

#define OPEN __attribute__((visibility("default")))
#define CPUS 8
#define PHASES 3

typedef struct block {
    struct block *next;
    uint64_t address;
    uint64_t instructions;
    uint64_t times[PHASES][CPUS]; /* each written by its own CPU's thread only */
} block;

OPEN int qemu_plugin_version = 1;
static block *blocks; /* QEMU translates under a lock of its own */
static char path[4096];
static uint64_t begins[PHASES];
static atomic_uint phase;

static void executed(unsigned cpu, void *data) {
    ((block *)data)->times[atomic_load_explicit(&phase, memory_order_relaxed)][cpu % CPUS]++;
}

static void begun(unsigned cpu, void *data) {
    (void)cpu;
    atomic_store_explicit(&phase, (unsigned)(uintptr_t)data, memory_order_relaxed);
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb) {
    (void)id;
    block *b = calloc(1, sizeof *b);
    if (!b) abort();
    b->address = qemu_plugin_tb_vaddr(tb);
    b->instructions = qemu_plugin_tb_n_insns(tb);
    b->next = blocks;
    blocks = b;
    for (unsigned p = 0; p < PHASES; p++)
        if (b->address == begins[p])
            qemu_plugin_register_vcpu_tb_exec_cb(tb, begun, NO_REGISTERS, (void *)(uintptr_t)p);
    qemu_plugin_register_vcpu_tb_exec_cb(tb, executed, NO_REGISTERS, b);
}

static void ended(qemu_plugin_id_t id, void *data) {
    (void)id, (void)data;
    FILE *out = fopen(path, "w");
    if (!out) return;
    for (const block *b = blocks; b; b = b->next)
        for (int p = 0; p < PHASES; p++)
            for (int cpu = 0; cpu < CPUS; cpu++)
                if (b->times[p][cpu])
                    fprintf(out, "%" PRIx64 " %" PRIu64 " %d %d %" PRIu64 "\n", b->address, b->instructions, cpu, p,
                            b->times[p][cpu]);
    fclose(out);
}

OPEN int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int count, char **arguments) {
    (void)info;
    for (int i = 0; i < count; i++)
        if (strncmp(arguments[i], "out=", 4) == 0)
            snprintf(path, sizeof path, "%s", arguments[i] + 4);
        else if (strncmp(arguments[i], "phase", 5) == 0 && arguments[i][5] - '0' < PHASES && arguments[i][6] == '=')
            begins[arguments[i][5] - '0'] = strtoull(arguments[i] + 7, NULL, 16);
    if (!path[0]) return -1;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, ended, NULL);
    return 0;
}
