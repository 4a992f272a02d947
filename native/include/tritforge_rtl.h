/* The programmable logic as a library: four AXI DMAs, the control block and the four engines behind physical register
 * addresses, with the board's contiguous memory.
 *
 * Two libraries have this interface and the same registers:
 *   libtritforge_rtl.so    the engines and the control block are the Verilated RTL, clocked beat by beat;
 *   libtritforge_model.so  the engines are plain C++ that computes a whole transfer at once (fast; stall counters are 0).
 * The DMA model, the memory and the faults are the same code in both.
 *
 * Time. The logic's clock runs only inside these calls: each register access takes `access_cycles`, and
 * tritforge_rtl_advance lets any time pass. A register that is read again with nothing written in between is being
 * polled: the read then runs the clock until that register's value changes, at most `poll_cycles`. A caller's own
 * deadline therefore holds: a read that cannot change returns after a bounded time.
 *
 * Memory. The processor and the logic see two copies of the buffer, as if a cache lay between them (lines of 32 bytes):
 * what the processor wrote reaches the logic by clean() *and then* barrier(); what the logic wrote reaches the processor
 * by invalidate(). A call that is missing, too early or too short is seen as old data. A line that both wrote is
 * overwritten by whoever is copied last, as it would be on the board.
 *
 * One handle belongs to one thread at a time. No function ends the process.
 */
#ifndef TRITFORGE_RTL_H
#define TRITFORGE_RTL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default) /* everything else in the libraries is hidden */

#define TRITFORGE_RTL_INTERFACE 2 /* raised when a struct or a meaning below changes */

typedef struct tritforge_rtl tritforge_rtl;

typedef struct tritforge_rtl_options {
    uint32_t interface;       /* TRITFORGE_RTL_INTERFACE of the caller; another number is refused */
    uint32_t physical_base;   /* bus address of byte 0 of the buffer; a multiple of 4096 */
    uint64_t memory_bytes;    /* size of the buffer */
    uint32_t scatter_gather;  /* 0: simple mode (address + length), 1: descriptors */
    uint32_t length_width;    /* bits of the length fields, 8..26; the design uses 23, Vivado's default is 14 */
    uint32_t clock_khz;       /* clock of the logic */
    uint32_t access_cycles;   /* cycles of one register access over the general-purpose port */
    uint32_t poll_cycles;     /* most cycles that one polling read may run */
    uint32_t shadow;          /* 1: processor and logic see two copies (above); 0: one coherent memory */
    uint32_t content_id;      /* libtritforge_model.so only; the RTL has its own, fixed when it was built */
    uint32_t attention_positions; /* libtritforge_model.so only: largest T of the build, as in CONFIG */
    uint32_t attention_head_dim;  /* libtritforge_model.so only: head_dim of the build */
    /* Memory wall. 0 turns the model off: then every port moves a beat a cycle without latency. */
    uint32_t ddr;
    uint32_t ddr_bytes_per_kilocycle; /* all ports together; 16072 = 2.009 GB/s at 125 MHz */
    uint32_t ddr_burst_beats;         /* beats of a burst (AXI3: 16) */
    uint32_t ddr_burst_gap_cycles;    /* cycles a port is idle between two bursts */
    uint32_t ddr_latency_cycles;      /* from the start of a transfer or descriptor fetch to its first beat */
    uint32_t ddr_pair_bytes_per_kilocycle; /* HP0+HP1 together, and HP2+HP3 together; 0: no limit of their own */
    uint32_t ddr_port_of_engine[4];   /* HP port (0..3) of each engine's DMA, in the order of ENGINES */
    /* libtritforge_model.so only: 1 evaluates every cycle by itself. Otherwise, with ddr 0, a matrix that streams is taken
     * many cycles at once; whatever can be seen is the same, counters and cycles too, but clocked_cycles below. */
    uint32_t single_steps;
} tritforge_rtl_options;

/* Cycles and beats of one channel since it was created; cleared by tritforge_rtl_clear_statistics. */
typedef struct tritforge_rtl_channel_statistics {
    uint64_t transfers;        /* packets finished */
    uint64_t descriptors;      /* scatter-gather descriptors finished */
    uint64_t beats;            /* 64-bit beats moved */
    uint64_t busy_cycles;      /* cycles with a transfer pending */
    uint64_t memory_cycles;    /* of these: cycles the stream waited for memory (latency, gap, budget) */
} tritforge_rtl_channel_statistics;

typedef struct tritforge_rtl_statistics {
    uint64_t cycles;           /* cycles of the logic's clock since creation, clocked or skipped while all was idle */
    uint64_t clocked_cycles;   /* of these: cycles that were really evaluated */
    uint64_t register_reads;
    uint64_t register_writes;
    uint64_t barriers;
    uint64_t cleaned_bytes;
    uint64_t invalidated_bytes;
    tritforge_rtl_channel_statistics mm2s[4];
    tritforge_rtl_channel_statistics s2mm[4];
} tritforge_rtl_statistics;

/* "rtl" or "model". */
const char *tritforge_rtl_kind(void);

/* The board's values: simple mode, length width 23, 125 MHz, shadow memory on, DDR model off, base 0x1000_0000. */
void tritforge_rtl_default_options(tritforge_rtl_options *options);

/* A new board in reset, or NULL with the reason in error[0 .. error_bytes).
 * From the environment: TRITFORGE_RTL_OPTIONS ("name=value;…") overrides options of time (clock_khz, access_cycles,
 * poll_cycles, length_width, ddr, ddr_*, single_steps), TRITFORGE_FAULT arms faults (see tritforge_rtl_fault),
 * TRITFORGE_WAVES names a VCD file (see tritforge_rtl_waves). What is not known there is refused with its reason. */
tritforge_rtl *tritforge_rtl_create(const tritforge_rtl_options *options, char *error, size_t error_bytes);
void tritforge_rtl_destroy(tritforge_rtl *pl);

/* 32-bit registers at their physical addresses (DMA_BASE + i * DMA_STRIDE, CONTROL_BASE). An address that nothing
 * answers at reads as 0xFFFFFFFF and is noted in tritforge_rtl_complaint. */
uint32_t tritforge_rtl_read32(tritforge_rtl *pl, uint32_t address);
void tritforge_rtl_write32(tritforge_rtl *pl, uint32_t address, uint32_t value);

/* The processor's copy of the buffer: memory_bytes bytes, zero at first, 4096-aligned. */
void *tritforge_rtl_memory(tritforge_rtl *pl);

/* Cache maintenance by range; widened to whole lines. */
void tritforge_rtl_clean(tritforge_rtl *pl, uint64_t offset, uint64_t bytes);
void tritforge_rtl_invalidate(tritforge_rtl *pl, uint64_t offset, uint64_t bytes);

/* Data barrier: what was cleaned before it is seen by the logic after it. */
void tritforge_rtl_barrier(tritforge_rtl *pl);

/* Lets time pass (the processor computes). While every channel and engine is idle the clock is skipped, not evaluated;
 * the registers are the same as if it had been. */
void tritforge_rtl_advance(tritforge_rtl *pl, uint64_t cycles);

/* Runs until the status register of any channel changes, at most max_cycles. Returns the cycles that passed. */
uint64_t tritforge_rtl_wait(tritforge_rtl *pl, uint64_t max_cycles);

/* Simulated time since creation. A clock counter read twice, over this, is the clock's rate. */
uint64_t tritforge_rtl_time_ns(const tritforge_rtl *pl);

void tritforge_rtl_read_statistics(const tritforge_rtl *pl, tritforge_rtl_statistics *out);
void tritforge_rtl_clear_statistics(tritforge_rtl *pl);

/* The last thing a driver did that the hardware would not forgive or not notice ("DMA matvec0: CURDESC written while
 * running"), or "" if there was none. Kept until the next call of this function. */
const char *tritforge_rtl_complaint(tritforge_rtl *pl);

/* Arms faults: a list separated by ';' of NAME[@ENGINE][:N[+]], ENGINE one of matvec0 matvec1 attention0 attention1 (the
 * first that gets there when absent), N the transfer of that engine at which it acts, counted from 1 since this call (1
 * when absent). A fault acts once; with '+' at every transfer from N on. "" disarms all. Names:
 *   halt         the MM2S channel halts with an internal error in the middle of a transfer
 *   slave_error  the MM2S channel meets a slave error on the bus
 *   decode_error the MM2S channel meets a decode error on the bus
 *   sg_error     the MM2S descriptor fetch meets an internal error (simple mode: as halt)
 *   short_s2mm   the S2MM channel takes the packet for longer than its buffer
 *   never_idle   the MM2S channel stops moving in the middle of a transfer and reports nothing
 *   wrong_word   bit 0 of the transfer's first result word is flipped
 *   wrong_input  bit 0 of the transfer's second word is flipped on its way in (a wrong result in good form)
 *   bad_header   bit 0 of the transfer's first word is flipped on its way in
 *   stale_content_id   CONTENT_ID reads with all bits inverted (always, no transfer)
 *   wrong_clock        the logic runs at 4/5 of clock_khz (always, no transfer)
 * Returns 0, or -1 with the reason in error. */
int tritforge_rtl_fault(tritforge_rtl *pl, const char *list, char *error, size_t error_bytes);

/* Writes the waveform of what follows to a VCD file; NULL ends it. -1 when the library was built without waveforms. */
int tritforge_rtl_waves(tritforge_rtl *pl, const char *path);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
