"""A board without pynq: fpga_manager loads the bitstream, zocl allocates, /dev/mem has the registers."""

import ctypes
import mmap
import os
import shutil
import time

from board_rt.faults import Fault
from board_rt.zocl import Zocl

MANAGER = "/sys/class/fpga_manager/fpga0"
FIRMWARE = "/lib/firmware"
LOAD_S = 20.0

# System level control registers of the Zynq-7000 (UG585, appendix B.28)
SLCR = 0xF8000000
SLCR_UNLOCK, UNLOCK_KEY = 0x008, 0xDF0D
PLL_CTRL = {0: 0x108, 1: 0x108, 2: 0x100, 3: 0x104}  # by SRCSEL: IO, IO, ARM, DDR
FPGA0_CLK_CTRL = 0x170
PS_CLOCK_MHZ = 50.0  # crystal of the PYNQ-Z1
DIVISOR_BITS = 6


def clock_divisors(source_mhz, wanted_mhz):
    """The two divisors (1..63) that come nearest, the smaller first divisor where several do."""
    largest = (1 << DIVISOR_BITS) - 1
    pairs = ((first, second) for first in range(1, largest + 1) for second in range(1, largest + 1))
    return min(pairs, key=lambda pair: (abs(source_mhz / (pair[0] * pair[1]) - wanted_mhz), pair[0]))


class KernelSide:
    """Loads a byte-swapped ``.bin`` and gives access to what is in it."""

    def __init__(self, binfile, manager=MANAGER, firmware=FIRMWARE, memory="/dev/mem"):
        self._maps, self._memory = [], memory
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
        self._zocl = Zocl()

    @staticmethod
    def _state(manager):
        with open(os.path.join(manager, "state")) as stream:
            return stream.read().strip()

    def registers(self, physical, size):
        """Address in this process of a register window; the mapping lasts as long as the process."""
        descriptor = os.open(self._memory, os.O_RDWR | os.O_SYNC | os.O_CLOEXEC)
        try:
            mapped = mmap.mmap(descriptor, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE, offset=physical)
        except OSError as error:
            raise Fault("BoardUnfit", "0x{:x} cannot be mapped: {}".format(physical, error), "it needs root") from error
        finally:
            os.close(descriptor)
        self._maps.append(mapped)
        return ctypes.addressof(ctypes.c_char.from_buffer(mapped))

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
        return self._zocl.allocate(size, cached)

    def maintain(self, mmio):
        self._zocl.maintain(mmio)

    def close(self):
        self._zocl.close()
