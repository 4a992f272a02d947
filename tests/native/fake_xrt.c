/* xclSyncBO of a libxrt_core that has no board: moves a range between the processor's and the logic's view. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define OPEN __attribute__((visibility("default")))

static struct {
    uint8_t *cpu, *pl;
    size_t bytes;
} buffers[8];

OPEN void fake_register(unsigned bo, void *cpu, void *pl, size_t bytes) {
    buffers[bo].cpu = cpu;
    buffers[bo].pl = pl;
    buffers[bo].bytes = bytes;
}

OPEN int xclSyncBO(void *device, unsigned bo, int direction, size_t bytes, size_t offset) {
    if ((uintptr_t)device != 0x71170 || bo == 0 || bo >= 8 || !buffers[bo].cpu) return -1;
    if (offset % 32 || bytes % 32 || offset + bytes > buffers[bo].bytes) return -1;
    if (direction == 0)
        memcpy(buffers[bo].pl + offset, buffers[bo].cpu + offset, bytes);
    else if (direction == 1)
        memcpy(buffers[bo].cpu + offset, buffers[bo].pl + offset, bytes);
    else
        return -1;
    return 0;
}
