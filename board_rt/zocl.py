"""Contiguous memory from zocl, the driver in the board's kernel that XRT and pynq allocate from, too."""

import ctypes
import fcntl
import mmap
import os
import struct

from board_rt.faults import Fault
from board_rt.runtime import Buffer

RENDER_NODE = "/dev/dri/renderD128"


def _iowr(number, size):
    """Request code of a DRM driver's ioctl: type 'd', read and write, from DRM_COMMAND_BASE."""
    return 3 << 30 | size << 16 | ord("d") << 8 | 0x40 + number


# CREATE_BO {u64 size, u32 handle, u32 flags}, MAP_BO {u32 handle, u32 pad, u64 offset},
# INFO_BO {u32 handle, u32 flags, u64 size, u64 physical address}
CREATE_BO, MAP_BO, INFO_BO = _iowr(0, 16), _iowr(3, 16), _iowr(5, 24)
# XCL_BO_FLAGS_CACHEABLE of XRT's xrt_mem.h. The driver heeds this flag and EXECBUF; COHERENT and CMA of its own header
# zynq_ioctl.h it drops without a word, and what is not CACHEABLE is mapped uncached. Bits 15:0 are the memory's index.
CACHEABLE = 1 << 24


class Zocl:
    """Buffers of one open render node; they live until close() and their mappings as long as the process."""

    def __init__(self):
        self._maps = []
        try:
            self._node = os.open(RENDER_NODE, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise Fault("BoardUnfit", "no zocl driver: {}".format(error), "use the board's image") from error

    def allocate(self, size, cached):
        """A :class:`Buffer` of at least ``size`` bytes. Raises Fault BoardUnfit when memory does not suffice."""
        size = (size + mmap.PAGESIZE - 1) // mmap.PAGESIZE * mmap.PAGESIZE
        flags = CACHEABLE if cached else 0
        try:
            made = fcntl.ioctl(self._node, CREATE_BO, struct.pack("=QII", size, 0, flags))
            _, handle, _ = struct.unpack("=QII", made)
            _, _, offset = struct.unpack("=IIQ", fcntl.ioctl(self._node, MAP_BO, struct.pack("=IIQ", handle, 0, 0)))
            info = fcntl.ioctl(self._node, INFO_BO, struct.pack("=IIQQ", handle, 0, 0, 0))
            mapped = mmap.mmap(self._node, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE, offset=offset)
        except OSError as error:
            raise Fault(
                "BoardUnfit",
                "no {:.1f} MiB of contiguous memory: {}".format(size / 1048576, error),
                "raise cma= on the kernel command line, and restart the board",
            ) from error
        self._maps.append(mapped)
        return Buffer(
            cpu=ctypes.addressof(ctypes.c_char.from_buffer(mapped)),
            physical=struct.unpack("=IIQQ", info)[3],
            bytes=size,
            cached=int(cached),
            bo_handle=handle,
        )

    def maintain(self, mmio):
        """Tells C how to sync ranges of these buffers."""
        mmio.drm_fd = self._node

    def close(self):
        """The kernel frees the buffers with the descriptor."""
        if self._node >= 0:
            os.close(self._node)
        self._node = -1
