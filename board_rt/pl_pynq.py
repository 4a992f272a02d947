"""pynq 3.x: overlay, clock, registers and contiguous memory. Everything in the token loop is C's.

pynq is used for set-up only: its flush() and invalidate() sync whole buffers (from 3.1) and its DMA channels wait
without a deadline. C syncs ranges itself: with pynq 3.0 through XRT's xclSyncBO, by the handles that pynq holds. In
their place pynq 3.1 holds objects of pyxrt, which only Python can sync; there the buffers are zocl's, as without pynq.
"""

import contextlib
import ctypes
import os
import tempfile

from board_rt.faults import Fault
from board_rt.runtime import Buffer
from board_rt.zocl import Zocl


def xrt_library():
    """XRT's core library, from where the image installed it."""
    path = os.path.join(os.environ["XILINX_XRT"], "lib", "libxrt_core.so")
    try:
        return ctypes.CDLL(path if os.path.exists(path) else "libxrt_core.so")
    except OSError as error:
        raise Fault(
            "BoardUnfit", "XRT's library cannot be loaded: {}".format(error), "use the board's image"
        ) from error


def raw_handle(handle):
    """A handle of XRT's C interface as an integer, or None for an object of pyxrt."""
    try:
        return ctypes.cast(handle, ctypes.c_void_p).value
    except ctypes.ArgumentError:
        return None


@contextlib.contextmanager
def litter_elsewhere():
    """Another current folder for a moment: pynq 3.1 writes ``loaded.xclbin`` there, in a job into the release."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory(prefix="tritforge-pynq-") as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


class PynqSide:
    """Loads a ``.bit`` (its ``.hwh`` beside it) and gives access to what is in it."""

    def __init__(self, bitfile):
        self._buffers, self._windows, self._zocl = [], [], None
        if not os.environ.get("XILINX_XRT"):
            raise Fault(
                "BoardUnfit",
                "XILINX_XRT is not set, so pynq finds no device",
                "set it in /etc/environment (/usr on the image)",
            )
        import pynq

        if not os.path.exists(os.path.splitext(bitfile)[0] + ".hwh"):
            raise Fault("BoardUnfit", "{} has no .hwh beside it".format(bitfile), "deploy the release again")
        self._pynq = pynq
        try:
            with litter_elsewhere():
                self._overlay = pynq.Overlay(os.path.abspath(bitfile))
        except (RuntimeError, OSError, ValueError) as error:
            raise Fault(
                "BoardUnfit",
                "pynq did not load {}: {}".format(os.path.basename(bitfile), error),
                "it needs root and XRT",
            ) from error
        self._device = raw_handle(self._overlay.device.handle)
        if self._device is None:
            self._zocl = Zocl()
        else:
            self._xrt = xrt_library()

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
        """Contiguous memory, cached as asked: pynq passes it on, and its buffers' ``coherent`` is always False."""
        if self._zocl:
            return self._zocl.allocate(size, cached)
        try:
            array = self._pynq.allocate(shape=(size,), dtype="u1", cacheable=int(cached))
        except (RuntimeError, MemoryError, OSError) as error:
            raise Fault(
                "BoardUnfit",
                "no {:.1f} MiB of contiguous memory: {}".format(size / 1048576, error),
                "raise cma= on the kernel command line, and restart the board",
            ) from error
        self._buffers.append(array)  # the memory lives as long as the object
        return Buffer(
            cpu=address_of(array),
            physical=int(array.physical_address),
            bytes=size,
            cached=int(cached),
            bo_handle=array.bo,
        )

    def maintain(self, mmio):
        """Tells C how to sync ranges of cached buffers."""
        if self._zocl:
            self._zocl.maintain(mmio)
        else:
            mmio.sync = ctypes.cast(self._xrt.xclSyncBO, ctypes.c_void_p).value
            mmio.sync_device = self._device

    def close(self):
        for array in self._buffers:
            array.freebuffer()
        self._buffers, self._windows = [], []
        if self._zocl:
            self._zocl.close()


def address_of(array):
    """Address of the first byte of a numpy array."""
    return array.__array_interface__["data"][0]
