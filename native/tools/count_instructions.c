/* A QEMU plugin that counts guest instructions by block and CPU: `qemu-arm -plugin count.so,out=FILE`.
 *
 * At the end FILE has a line a block and CPU: address, instructions of the block, CPU, times executed. The few
 * declarations of QEMU's plugin interface (version 1) that it uses stand here, since distributions ship no header. */
#include <inttypes.h>
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

typedef struct block {
    struct block *next;
    uint64_t address;
    uint64_t instructions;
    uint64_t times[CPUS]; /* each written by its own CPU's thread only */
} block;

OPEN int qemu_plugin_version = 1;
static block *blocks; /* QEMU translates under a lock of its own */
static char path[4096];

static void executed(unsigned cpu, void *data) { ((block *)data)->times[cpu % CPUS]++; }

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb) {
    (void)id;
    block *b = calloc(1, sizeof *b);
    if (!b) abort();
    b->address = qemu_plugin_tb_vaddr(tb);
    b->instructions = qemu_plugin_tb_n_insns(tb);
    b->next = blocks;
    blocks = b;
    qemu_plugin_register_vcpu_tb_exec_cb(tb, executed, NO_REGISTERS, b);
}

static void ended(qemu_plugin_id_t id, void *data) {
    (void)id, (void)data;
    FILE *out = fopen(path, "w");
    if (!out) return;
    for (const block *b = blocks; b; b = b->next)
        for (int cpu = 0; cpu < CPUS; cpu++)
            if (b->times[cpu])
                fprintf(out, "%" PRIx64 " %" PRIu64 " %d %" PRIu64 "\n", b->address, b->instructions, cpu, b->times[cpu]);
    fclose(out);
}

OPEN int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int count, char **arguments) {
    (void)info;
    for (int i = 0; i < count; i++)
        if (strncmp(arguments[i], "out=", 4) == 0) snprintf(path, sizeof path, "%s", arguments[i] + 4);
    if (!path[0]) return -1;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, ended, NULL);
    return 0;
}
