"""A board without pynq: fpga_manager loads the bitstream, zocl allocates, /dev/mem has the registers."""

import ctypes
import fcntl
import mmap
import os
import shutil
import struct
import time

from board_rt.faults import Fault
from board_rt.runtime import Buffer

MANAGER = "/sys/class/fpga_manager/fpga0"
FIRMWARE = "/lib/firmware"
RENDER_NODE = "/dev/dri/renderD128"
LOAD_S = 20.0

# System level control registers of the Zynq-7000 (UG585, appendix B.28)
SLCR = 0xF8000000
SLCR_UNLOCK, UNLOCK_KEY = 0x008, 0xDF0D
PLL_CTRL = {0: 0x108, 1: 0x108, 2: 0x100, 3: 0x104}  # by SRCSEL: IO, IO, ARM, DDR
FPGA0_CLK_CTRL = 0x170
PS_CLOCK_MHZ = 50.0  # crystal of the PYNQ-Z1
DIVISOR_BITS = 6


def _iowr(number, size):
    """Request code of a DRM driver's ioctl: type 'd', read and write, from DRM_COMMAND_BASE."""
    return 3 << 30 | size << 16 | ord("d") << 8 | 0x40 + number


# zocl: CREATE_BO {u64 size, u32 handle, u32 flags}, MAP_BO {u32 handle, u32 pad, u64 offset},
# INFO_BO {u32 handle, u32 flags, u64 size, u64 physical address}
CREATE_BO, MAP_BO, INFO_BO = _iowr(0, 16), _iowr(3, 16), _iowr(5, 24)
FLAG_COHERENT, FLAG_CMA = 1 << 27, 1 << 28


def clock_divisors(source_mhz, wanted_mhz):
    """The two divisors (1..63) that come nearest, the smaller first divisor where several do."""
    largest = (1 << DIVISOR_BITS) - 1
    pairs = ((first, second) for first in range(1, largest + 1) for second in range(1, largest + 1))
    return min(pairs, key=lambda pair: (abs(source_mhz / (pair[0] * pair[1]) - wanted_mhz), pair[0]))


class KernelSide:
    """Loads a byte-swapped ``.bin`` and gives access to what is in it."""

    def __init__(self, binfile, manager=MANAGER, firmware=FIRMWARE, memory="/dev/mem", render=RENDER_NODE):
        self._maps, self._memory, self._drm = [], memory, -1
        name = "tritforge-" + os.path.basename(binfile)
        try:
            shutil.copyfile(binfile, os.path.join(firmware, name))
            with open(os.path.join(manager, "flags"), "w") as stream:
                stream.write("0")
            with open(os.path.join(manager, "firmware"), "w") as stream:
                stream.write(name)
        except OSError as error:
            raise Fault("BoardUnfit", "the bitstream was not loaded: {}".format(error), "it needs root") from error
        end = time.monotonic() + LOAD_S
        while self._state(manager) != "operating":
            if time.monotonic() > end:
                raise Fault("BoardUnfit", "fpga_manager is in state '{}'".format(self._state(manager)), "see dmesg")
            time.sleep(0.05)
        try:
            self._drm = os.open(render, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise Fault("BoardUnfit", "no zocl driver: {}".format(error), "use the board's image") from error

    @staticmethod
    def _state(manager):
        with open(os.path.join(manager, "state")) as stream:
            return stream.read().strip()

    def _map(self, descriptor, size, offset):
        mapped = mmap.mmap(descriptor, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE, offset=offset)
        self._maps.append(mapped)
        return ctypes.addressof(ctypes.c_char.from_buffer(mapped))

    def registers(self, physical, size):
        descriptor = os.open(self._memory, os.O_RDWR | os.O_SYNC | os.O_CLOEXEC)
        try:
            return self._map(descriptor, size, physical)
        except OSError as error:
            raise Fault("BoardUnfit", "0x{:x} cannot be mapped: {}".format(physical, error), "it needs root") from error
        finally:
            os.close(descriptor)

    def set_clock(self, megahertz):
        """Sets FCLK0's divisors and returns what its registers say then, in MHz."""
        base = self.registers(SLCR, mmap.PAGESIZE)

        def word(offset):
            return ctypes.c_uint32.from_address(base + offset)

        control = word(FPGA0_CLK_CTRL)
        source = PS_CLOCK_MHZ * (word(PLL_CTRL[control.value >> 4 & 3]).value >> 12 & 127)
        first, second = clock_divisors(source, megahertz)
        word(SLCR_UNLOCK).value = UNLOCK_KEY
        control.value = control.value & ~(63 << 20 | 63 << 8) | second << 20 | first << 8
        return source / ((control.value >> 8 & 63) * (control.value >> 20 & 63))

    def allocate(self, size, cached):
        size = (size + mmap.PAGESIZE - 1) // mmap.PAGESIZE * mmap.PAGESIZE
        try:
            flags = FLAG_CMA | (0 if cached else FLAG_COHERENT)
            _, handle, _ = struct.unpack("=QII", fcntl.ioctl(self._drm, CREATE_BO, struct.pack("=QII", size, 0, flags)))
            _, _, offset = struct.unpack("=IIQ", fcntl.ioctl(self._drm, MAP_BO, struct.pack("=IIQ", handle, 0, 0)))
            info = fcntl.ioctl(self._drm, INFO_BO, struct.pack("=IIQQ", handle, 0, 0, 0))
            cpu = self._map(self._drm, size, offset)
        except OSError as error:
            raise Fault(
                "BoardUnfit",
                "no {:.1f} MiB of contiguous memory: {}".format(size / 1048576, error),
                "raise cma= on the kernel command line, and restart the board",
            ) from error
        physical = struct.unpack("=IIQQ", info)[3]
        return Buffer(cpu=cpu, physical=physical, bytes=size, cached=int(cached), bo_handle=handle)

    def maintain(self, mmio):
        mmio.drm_fd = self._drm

    def close(self):
        """The kernel frees the buffers with the descriptor; mappings last as long as the process."""
        if self._drm >= 0:
            os.close(self._drm)
        self._drm = -1
