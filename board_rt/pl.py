"""The logic of a real board: bitstream loaded, clock set and read back, registers and buffers handed to C."""

import os

from board_rt.faults import Fault
from board_rt.files import read_json
from board_rt.runtime import MmioOptions, memory_plan

CONTROL_BASE = 0x43C00000  # pipelines/golden/formats.py: addresses on the general-purpose port
DMA_BASE, DMA_STRIDE, SEGMENT_BYTES = 0x40400000, 0x10000, 0x10000
CLOCK_TOLERANCE = 0.01


def bitstream_file(folder, ending):
    """The one file with this ending in the release's ``bitstream`` folder."""
    place = os.path.join(folder, "bitstream")
    found = sorted(name for name in os.listdir(place) if name.endswith(ending))
    if len(found) != 1:
        raise Fault("BoardUnfit", "{} has {} files *{}, not one".format(place, len(found), ending), "deploy again")
    return os.path.join(place, found[0])


def coherent(facts, what):
    """Whether all DMAs write ``what`` ("results" or "descriptors") through the coherent port."""
    return bool(facts.get("dmas")) and all(dma.get(what + "_coherent") for dma in facts["dmas"])


class Pl:
    """Loads the bitstream of the release in ``folder`` and holds its registers and buffers until close().

    ``mmio`` is what :class:`board_rt.runtime.Runtime` takes. With pynq where it is installed, else through the kernel's
    fpga_manager and zocl drivers. Raises Fault BoardUnfit.
    """

    def __init__(self, folder, context=None):
        facts = read_json(os.path.join(folder, "bitstream", "bitstream.json")) or {}
        try:
            clock = float(facts["clock_mhz"])
        except (KeyError, TypeError, ValueError):
            raise Fault("BoardUnfit", "the release's bitstream.json says no clock_mhz", "build it again") from None
        library = os.path.join(folder, "runtime", "libtritforge.so")
        plan = memory_plan(library, os.path.join(folder, "weights", "params.tfp"), context)
        self._side = self._open_side(folder)
        try:
            self._set_clock(clock)
            self.mmio = MmioOptions(drm_fd=-1)
            self.mmio.control = self._side.registers(CONTROL_BASE, SEGMENT_BYTES)
            for i in range(4):
                self.mmio.dma[i] = self._side.registers(DMA_BASE + i * DMA_STRIDE, SEGMENT_BYTES)
            # The CPU only writes streams (uncached) and only reads results (cached). The coherent port sees caches, and
            # not what goes past them: with descriptors behind it streams are cached, too.
            self.mmio.descriptors_coherent = int(coherent(facts, "descriptors"))
            self.mmio.streams = self._side.allocate(plan.streams, cached=bool(self.mmio.descriptors_coherent))
            self.mmio.results = self._side.allocate(plan.results, cached=True)
            self.mmio.results_padded_bytes = int(facts.get("results_padded_to_bytes") or 0)
            if coherent(facts, "results"):
                self.mmio.results.cached = 0  # the port snoops: nothing to invalidate
            self._side.maintain(self.mmio)
        except BaseException:
            self.close()
            raise

    @staticmethod
    def _open_side(folder):
        try:
            import pynq  # noqa: F401
        except ImportError:
            from board_rt.pl_kernel import KernelSide

            return KernelSide(bitstream_file(folder, ".bin"))
        from board_rt.pl_pynq import PynqSide

        return PynqSide(bitstream_file(folder, ".bit"))

    def _set_clock(self, wanted):
        found = self._side.set_clock(wanted)
        if abs(found - wanted) > CLOCK_TOLERANCE * wanted:
            raise Fault(
                "BoardUnfit",
                "the PL's clock reads back as {:.3f} MHz after {:.3f} MHz was set".format(found, wanted),
                "the PLLs are not those of the board's image: restart the board",
            )

    def close(self):
        """Gives the buffers back; the runtime that uses them must be closed before."""
        side, self._side = self._side, None
        if side is not None:
            side.close()
