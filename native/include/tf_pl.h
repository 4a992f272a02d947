/* The seam to the programmable logic: registers, two buffers, cache maintenance, waiting.
 *
 * The driver above it (src/driver.c) is the same for a board and for a simulation; a backend fills in these functions.
 *
 * Memory rules that the driver keeps and a backend may rely on:
 *  - `streams` is written by the CPU and read by the PL. After writing and before telling the PL, the driver cleans the
 *    range and then issues barrier(). It never reads back what the PL may have written there, except descriptors'
 *    status words, which it invalidates first.
 *  - `results` is written by the PL and read by the CPU, which never writes there. After the PL has reported the end,
 *    the driver invalidates the range and only then reads; invalidate() also orders these reads after the report.
 *  - All ranges start and end on TF_CACHE_LINE_BYTES; nothing else lives on their lines.
 */
#ifndef TF_PL_H
#define TF_PL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    uint8_t *cpu;
    uint64_t physical;
    uint64_t bytes;
} tf_pl_buffer;

typedef struct tf_pl {
    void *self;
    const char *name;
    tf_pl_buffer streams;
    tf_pl_buffer results;
    uint32_t (*read32)(void *self, uint64_t physical);
    void (*write32)(void *self, uint64_t physical, uint32_t value);
    /* Write the CPU's lines of [data, data + bytes) back to memory / forget them. Return 0 or an errno. */
    int (*clean)(void *self, const void *data, size_t bytes);
    int (*invalidate)(void *self, const void *data, size_t bytes);
    /* Everything before it is visible to the PL before anything after it, and the other way round. */
    void (*barrier)(void *self);
    /* Called between two polls of a status register: a simulation advances its clock here. `polls` counts from 0. */
    void (*wait)(void *self, uint32_t polls);
    /* Time by the PL's side: simulated time of a simulation, real time of a board; and letting some of it pass. */
    uint64_t (*time_ns)(void *self);
    void (*pass_time)(void *self, uint32_t microseconds);
    /* What the driver did that hardware would not notice or not forgive, "" if nothing (simulations only). */
    const char *(*complaint)(void *self);
    void (*close)(void *self);
    uint32_t default_deadline_ms;
    /* The PL fills each transfer's results to a multiple of this many bytes; 0: to whole words, as the engines do. */
    uint32_t results_padded_bytes;
    /* Descriptors are reached through a port that snoops: nothing of them is cleaned or invalidated. */
    bool descriptors_coherent;
} tf_pl;

#endif
