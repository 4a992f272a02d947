/* The ioctls of the board kernel's zocl driver (XRT, core/edge/drm/zocl), without a kernel, for C and for Python.
 *
 * The node is a file of twice the contiguous memory: the first half is what the logic sees, the second what lies in the
 * processor's cache of it. A buffer is mapped from the second half if XCL_BO_FLAGS_CACHEABLE was set, and then only
 * SYNC_BO moves ranges between the two; otherwise from the first. Flags that the driver ignores are errors here.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define OPEN __attribute__((visibility("default")))
enum { PAGE = 4096, LINE = 32, BUFFERS = 8, CACHEABLE = 1 << 24, MEMORY_INDEX = 0xFFFF };
enum { CREATE_BO = 0x40, MAP_BO = 0x43, SYNC_BO = 0x44, INFO_BO = 0x45 };

static struct buffer {
    uint64_t at, bytes;
    uint32_t flags;
    unsigned cleans;
} buffers[BUFFERS];
static uint32_t count;
static uint64_t used;

static int create(uint64_t *bytes, uint32_t *handle, uint32_t flags, uint64_t half) {
    uint64_t size = (*bytes + PAGE - 1) / PAGE * PAGE;
    if (!size || flags & ~(uint32_t)(CACHEABLE | MEMORY_INDEX)) return EINVAL;
    if (used + size > half || count == BUFFERS) return ENOMEM;
    buffers[count] = (struct buffer){used, size, flags, 0};
    used += size;
    *handle = ++count;
    return 0;
}

static int sync(int fd, const struct buffer *b, uint32_t direction, uint64_t offset, uint64_t bytes, uint64_t half) {
    if (direction > 1 || offset % LINE || bytes % LINE || offset + bytes > b->bytes) return EINVAL;
    if (!(b->flags & CACHEABLE)) return 0;
    uint8_t *all = mmap(NULL, 2 * half, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (all == MAP_FAILED) return errno;
    uint8_t *memory = all + b->at + offset, *cache = memory + half;
    memcpy(direction ? cache : memory, direction ? memory : cache, bytes);
    munmap(all, 2 * half);
    return 0;
}

static int answer(int fd, unsigned long request, uint8_t *data) {
    static const struct { uint32_t number, bytes; } known[] = {{CREATE_BO, 16}, {MAP_BO, 16}, {SYNC_BO, 24}, {INFO_BO, 24}};
    uint32_t number = request & 255, words[6];
    struct stat file;
    if (fstat(fd, &file) != 0) return errno;
    uint64_t half = (uint64_t)file.st_size / 2, wide[3];
    for (unsigned i = 0;; i++) {
        if (i == sizeof known / sizeof *known) return ENOTTY;
        if (request == (3ul << 30 | (unsigned long)known[i].bytes << 16 | (unsigned long)'d' << 8 | known[i].number)) break;
    }
    memcpy(words, data, 16), memcpy(wide, data, 16);
    if (number == CREATE_BO) {
        int error = create(wide, words + 2, words[3], half);
        memcpy(data + 8, words + 2, 4);
        return error;
    }
    if (words[0] < 1 || words[0] > count) return EINVAL;
    struct buffer *b = buffers + words[0] - 1;
    if (number == MAP_BO) {
        wide[1] = b->at + (b->flags & CACHEABLE ? half : 0);
        memcpy(data + 8, wide + 1, 8);
    } else if (number == INFO_BO) {
        wide[1] = b->bytes, wide[2] = strtoull(getenv("FAKE_ZOCL_BASE"), NULL, 0) + b->at;
        memcpy(data + 4, &b->flags, 4), memcpy(data + 8, wide + 1, 16);
    } else {
        memcpy(wide, data, 24);
        b->cleans += words[1] == 0;
        return sync(fd, b, words[1], wide[1], wide[2], half);
    }
    return 0;
}

/* 0 or an errno; `data` is what the request reads and writes. */
OPEN int fake_zocl(int fd, unsigned long request, void *data) { return answer(fd, request, data); }

OPEN unsigned fake_cleans(unsigned handle) { return buffers[handle - 1].cleans; }

/* In the place of libc's for the runtime that this is linked into. */
int ioctl(int fd, unsigned long request, ...) {
    va_list rest;
    va_start(rest, request);
    int error = answer(fd, request, va_arg(rest, void *));
    va_end(rest);
    errno = error;
    return error ? -1 : 0;
}
