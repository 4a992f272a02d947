/* xclSyncBO of a libxrt_core that has no board: moves a range between the processor's and the logic's view. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define OPEN __attribute__((visibility("default")))

static struct {
    uint8_t *cpu, *pl; /* the same where the processor's mapping is uncached */
    size_t bytes;
    unsigned cleans;
    int coherent; /* what the logic wrote lies in the cache, and would be lost */
} buffers[8];

OPEN void fake_register(unsigned bo, void *cpu, void *pl, size_t bytes, int coherent) {
    buffers[bo].cpu = cpu;
    buffers[bo].pl = pl;
    buffers[bo].bytes = bytes;
    buffers[bo].cleans = 0;
    buffers[bo].coherent = coherent;
}

OPEN unsigned fake_cleans(unsigned bo) { return buffers[bo].cleans; }

OPEN int xclSyncBO(void *device, unsigned bo, int direction, size_t bytes, size_t offset) {
    if ((uintptr_t)device != 0x71170 || bo == 0 || bo >= 8 || !buffers[bo].cpu) return -1;
    if (offset % 32 || bytes % 32 || offset + bytes > buffers[bo].bytes) return -1;
    if (buffers[bo].coherent && direction == 1) return -1;
    buffers[bo].cleans += direction == 0;
    if (direction == 0)
        memmove(buffers[bo].pl + offset, buffers[bo].cpu + offset, bytes);
    else if (direction == 1)
        memmove(buffers[bo].cpu + offset, buffers[bo].pl + offset, bytes);
    else
        return -1;
    return 0;
}
