"""pynq 3.x: overlay, clock, registers and contiguous memory. Everything in the token loop is C's.

pynq is used for set-up only: its flush() and invalidate() sync whole buffers and its DMA channels wait without a
deadline. Ranges are synced through XRT's xclSyncBO, whose address is handed to C.
"""

import ctypes
import os

from board_rt.faults import Fault
from board_rt.pl import address_of, as_pointer
from board_rt.runtime import Buffer


def xrt_library():
    """XRT's core library, from where the image installed it."""
    root = os.environ.get("XILINX_XRT")
    if not root:
        raise Fault(
            "BoardUnfit",
            "XILINX_XRT is not set, so pynq finds no device",
            "set it in /etc/environment (/usr on the image)",
        )
    path = os.path.join(root, "lib", "libxrt_core.so")
    try:
        return ctypes.CDLL(path if os.path.exists(path) else "libxrt_core.so")
    except OSError as error:
        raise Fault(
            "BoardUnfit", "XRT's library cannot be loaded: {}".format(error), "use the board's image"
        ) from error


class PynqSide:
    """Loads a ``.bit`` (its ``.hwh`` beside it) and gives access to what is in it."""

    def __init__(self, bitfile):
        self._buffers, self._windows = [], []
        self._xrt = xrt_library()
        import pynq

        if not os.path.exists(os.path.splitext(bitfile)[0] + ".hwh"):
            raise Fault("BoardUnfit", "{} has no .hwh beside it".format(bitfile), "deploy the release again")
        self._pynq = pynq
        try:
            self._overlay = pynq.Overlay(bitfile)
        except (RuntimeError, OSError, ValueError) as error:
            raise Fault(
                "BoardUnfit",
                "pynq did not load {}: {}".format(os.path.basename(bitfile), error),
                "it needs root and XRT",
            ) from error

    def set_clock(self, megahertz):
        """Sets FCLK0 and returns what it reads back as."""
        self._pynq.Clocks.fclk0_mhz = megahertz
        return float(self._pynq.Clocks.fclk0_mhz)

    def registers(self, physical, size):
        """Address in this process of a register window."""
        window = self._pynq.MMIO(physical, size)
        self._windows.append(window)  # the mapping lives as long as the object
        return address_of(window.array)

    def allocate(self, size, cached):
        """Contiguous memory. Not every pynq 3 knows ``cacheable``; what came of it is asked of the buffer."""
        try:
            try:
                array = self._pynq.allocate(shape=(size,), dtype="u1", cacheable=cached)
            except TypeError:
                array = self._pynq.allocate(shape=(size,), dtype="u1")
        except (RuntimeError, MemoryError, OSError) as error:
            raise Fault(
                "BoardUnfit",
                "no {:.1f} MiB of contiguous memory: {}".format(size / 1048576, error),
                "raise cma= on the kernel command line, and restart the board",
            ) from error
        self._buffers.append(array)
        return Buffer(
            cpu=address_of(array),
            physical=int(array.physical_address),
            bytes=size,
            cached=int(not array.coherent),
            bo_handle=as_pointer(array.bo),
        )

    def maintain(self, mmio):
        """Tells C how to sync ranges of cached buffers."""
        mmio.sync = ctypes.cast(self._xrt.xclSyncBO, ctypes.c_void_p).value
        mmio.sync_device = as_pointer(self._buffers[0].device.handle)

    def close(self):
        for array in self._buffers:
            array.freebuffer()
        self._buffers, self._windows = [], []
