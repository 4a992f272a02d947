/* Backend `mmio`: a board. Registers at physical addresses, buffers from the board's allocator.
 *
 * The HP ports do not snoop the caches. Where a buffer is mapped cached, ranges are cleaned and invalidated by the
 * kernel (cache maintenance is privileged on ARMv7): through XRT's xclSyncBO when pynq allocated it, or through the
 * zocl driver's ioctl when we did. A buffer that is mapped uncached, or served through the coherent port, needs neither
 * and says so (`cached` is 0). The streams buffer is best mapped uncached: the CPU only writes it, and writes of an
 * uncached (write-combining) mapping need one barrier before the engines are told. The results buffer is best mapped cached: uncached
 * reads were seen at 64 MB/s on a Zynq.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "driver.h"
#include "error.h"
#include "tf_formats.h"

/* DRM_IOCTL_ZOCL_SYNC_BO of the zocl driver in the board's kernel (DRM_COMMAND_BASE 0x40 + 4, type 'd', read/write). */
struct zocl_sync_bo {
    uint32_t handle;
    uint32_t direction;
    uint64_t offset;
    uint64_t bytes;
};
#define ZOCL_SYNC_BO _IOWR('d', 0x44, struct zocl_sync_bo)
#define TO_DEVICE 0u /* the same numbers in XRT's xclBOSyncDirection */
#define FROM_DEVICE 1u

enum { STREAMS, RESULTS, BUFFERS };

typedef struct {
    uint8_t *control;
    uint8_t *dma[TF_ENGINES];
    bool mapped[TF_ENGINES + 1];
    tf_buffer buffers[BUFFERS];
    int drm_fd;
    tf_sync_bo sync;
    void *sync_device;
} board;

static volatile uint32_t *register_at(board *b, uint64_t physical) {
    uint64_t dma = physical - TF_DMA_BASE;
    uint8_t *at = physical >= TF_CONTROL_BASE ? b->control + (physical - TF_CONTROL_BASE)
                                              : b->dma[dma / TF_DMA_STRIDE] + dma % TF_DMA_STRIDE;
    return (volatile uint32_t *)(void *)at;
}

static uint32_t board_read32(void *self, uint64_t physical) { return *register_at(self, physical); }

static void board_write32(void *self, uint64_t physical, uint32_t value) { *register_at(self, physical) = value; }

/* Orders normal memory against device registers, and waits until writes have left the processor. */
static void order(void) {
#if defined(__arm__) || defined(__aarch64__)
    __asm__ volatile("dsb sy" ::: "memory");
#else
    __sync_synchronize();
#endif
}

static int sync_through_kernel(board *b, const tf_buffer *buffer, size_t offset, size_t bytes, uint32_t direction) {
    if (b->sync) return b->sync(b->sync_device, buffer->bo_handle, (int)direction, bytes, offset) ? EIO : 0;
    struct zocl_sync_bo request = {buffer->bo_handle, direction, offset, bytes};
    while (ioctl(b->drm_fd, ZOCL_SYNC_BO, &request) != 0)
        if (errno != EINTR && errno != EAGAIN) return errno;
    return 0;
}

/* What the CPU wrote to streams has left the processor, and then the level 2 cache, too. That one (PL310 on a Zynq)
 * keeps writes of an uncached mapping in a store buffer that dsb does not empty: Linux' wmb() is a dsb and a request to
 * this cache (arm_heavy_mb). Only the kernel can make it, and does so at the end of each sync; so one line is cleaned,
 * of results, since older zocl drivers do nothing for an uncached buffer. The CPU writes none there, so none is dirty. */
static void board_barrier(void *self) {
    board *b = self;
    order();
    if (!b->buffers[STREAMS].cached && (b->sync || b->drm_fd >= 0))
        sync_through_kernel(b, b->buffers + RESULTS, 0, TF_CACHE_LINE_BYTES, TO_DEVICE);
}

static int sync_range(board *b, const void *data, size_t bytes, uint32_t direction) {
    for (int i = 0; i < BUFFERS; i++) {
        const tf_buffer *buffer = b->buffers + i;
        uintptr_t offset = (uintptr_t)data - (uintptr_t)buffer->cpu;
        if (offset < buffer->bytes) return buffer->cached ? sync_through_kernel(b, buffer, offset, bytes, direction) : 0;
    }
    return EFAULT;
}

static int board_clean(void *self, const void *data, size_t bytes) { return sync_range(self, data, bytes, TO_DEVICE); }

static int board_invalidate(void *self, const void *data, size_t bytes) {
    order(); /* the status that said "done" was read before anything that is read from now on */
    return sync_range(self, data, bytes, FROM_DEVICE);
}

static void board_wait(void *self, uint32_t polls) { (void)self, (void)polls; }

static uint64_t board_time_ns(void *self) {
    (void)self;
    return tf_now_ns();
}

static void board_pass_time(void *self, uint32_t microseconds) {
    (void)self;
    struct timespec left = {microseconds / 1000000, (long)(microseconds % 1000000) * 1000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) continue;
}

static const char *board_complaint(void *self) {
    (void)self;
    return "";
}

static void board_close(void *self) {
    board *b = self;
    for (int i = 0; i <= TF_ENGINES; i++)
        if (b->mapped[i]) munmap(i < TF_ENGINES ? b->dma[i] : b->control, TF_SEGMENT_BYTES);
    free(b);
}

static tf_status map_registers(board *b, const tf_mmio_options *mmio) {
    int fd = -1;
    tf_status status = TF_OK;
    for (int i = 0; i <= TF_ENGINES && status == TF_OK; i++) {
        void *given = i < TF_ENGINES ? mmio->dma[i] : mmio->control;
        uint64_t physical = i < TF_ENGINES ? TF_DMA_BASE + (uint64_t)i * TF_DMA_STRIDE : TF_CONTROL_BASE;
        uint8_t **place = i < TF_ENGINES ? &b->dma[i] : &b->control;
        if (given) {
            *place = given;
            continue;
        }
        if (fd < 0) fd = open("/dev/mem", O_RDWR | O_SYNC | O_CLOEXEC);
        void *mapped = fd < 0 ? MAP_FAILED
                              : mmap(NULL, TF_SEGMENT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)physical);
        if (mapped == MAP_FAILED)
            status = tf_fail(TF_STATUS_PL_UNFIT, "/dev/mem at 0x%08llx cannot be mapped: %s",
                             (unsigned long long)physical, strerror(errno));
        else
            b->mapped[i] = true, *place = mapped;
    }
    if (fd >= 0) close(fd);
    return status;
}

static tf_status check_buffer(const board *b, const tf_buffer *buffer, uint64_t wanted, const char *name) {
    if (!buffer->cpu || buffer->bytes < wanted)
        return tf_fail(TF_STATUS_MEMORY, "buffer '%s' has %llu bytes, the release needs %llu", name,
                       (unsigned long long)buffer->bytes, (unsigned long long)wanted);
    if (buffer->physical % TF_TRANSFER_ALIGN_BYTES || buffer->physical + buffer->bytes > 1ull << 32)
        return tf_fail(TF_STATUS_MEMORY, "buffer '%s' lies at 0x%llx: must be 64-aligned and below 4 GiB", name,
                       (unsigned long long)buffer->physical);
    if (buffer->cached && b->drm_fd < 0 && !b->sync)
        return tf_fail(TF_STATUS_USAGE, "buffer '%s' is cached, but no way to maintain the cache was given", name);
    return TF_OK;
}

tf_status tf_pl_open_mmio(tf_pl *pl, const tf_mmio_options *mmio, const tf_memory_plan *plan) {
    if (!mmio) return tf_fail(TF_STATUS_USAGE, "backend mmio needs registers and buffers");
    uint32_t padded = mmio->results_padded_bytes;
    if (padded != 0 && padded != TF_WORD_BYTES && padded != TF_CACHE_LINE_BYTES)
        return tf_fail(TF_STATUS_USAGE, "results filled to %u bytes: must be %d or %d", padded, TF_WORD_BYTES,
                       TF_CACHE_LINE_BYTES);
    board *b = calloc(1, sizeof *b);
    if (!b) return tf_fail(TF_STATUS_MEMORY, "no memory for the backend");
    b->buffers[STREAMS] = mmio->streams;
    b->buffers[RESULTS] = mmio->results;
    b->drm_fd = mmio->drm_fd;
    b->sync = mmio->sync;
    b->sync_device = mmio->sync_device;
    tf_status status = TF_OK;
    if (mmio->descriptors_coherent && !mmio->streams.cached) /* such accesses and that port do not see each other */
        status = tf_fail(TF_STATUS_USAGE, "descriptors behind the coherent port need a cached buffer");
    if (status == TF_OK) status = check_buffer(b, b->buffers + STREAMS, plan->streams, "streams");
    if (status == TF_OK) status = check_buffer(b, b->buffers + RESULTS, plan->results, "results");
    if (status == TF_OK) status = map_registers(b, mmio);
    if (status != TF_OK) {
        board_close(b);
        return status;
    }
    *pl = (tf_pl){
        .self = b,
        .name = "mmio",
        .streams = {mmio->streams.cpu, mmio->streams.physical, mmio->streams.bytes},
        .results = {mmio->results.cpu, mmio->results.physical, mmio->results.bytes},
        .read32 = board_read32,
        .write32 = board_write32,
        .clean = board_clean,
        .invalidate = board_invalidate,
        .barrier = board_barrier,
        .wait = board_wait,
        .time_ns = board_time_ns,
        .pass_time = board_pass_time,
        .complaint = board_complaint,
        .close = board_close,
        .default_deadline_ms = 2000,
        .results_padded_bytes = padded,
        .descriptors_coherent = mmio->descriptors_coherent != 0,
    };
    return TF_OK;
}
