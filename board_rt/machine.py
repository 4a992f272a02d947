"""A release's runtime opened on its circuits, after holding them against what the release was built with."""

import os

from board_rt.faults import Fault
from board_rt.files import read_json
from board_rt.runtime import Runtime

CONTROL_ID = 0x54495254  # registers of the control block, pipelines/golden/formats.py
ID, CONTENT_ID, CYCLES_LO = 0x000, 0x008, 0x010
CORES = 2  # of a Zynq-7020; the runtime takes at most 16 threads, and a machine that plays a board may have more
CLOCK_TOLERANCE = 0.01  # of the clock's rate: far above crystals, far below the next divider
CLOCK_MS = (20, 200, 2000, 8000)  # on a machine with a load of 13 an emulated board was 40 ms late


class Machine:
    """``backend`` None is what the release is for: ``rtl`` with its library, ``mmio`` with its bitstream.

    It computes with as many threads as a board has cores. A context manager; ``runtime`` is the open
    :class:`board_rt.runtime.Runtime`.
    """

    def __init__(self, folder, backend=None, context=None, deadline_ms=None):
        self.folder = folder
        self.facts = read_json(os.path.join(folder, "bitstream", "bitstream.json")) or {}
        rtl = os.path.join(folder, "bitstream", "libtritforge_rtl.so")
        model = os.path.join(folder, "bitstream", "libtritforge_model.so")
        self.backend = backend or ("rtl" if os.path.exists(rtl) else "mmio")
        self.pl = None
        options = {"context": context, "threads": min(os.cpu_count() or 1, CORES)}
        if self.backend == "rtl":
            options["pl_library"] = rtl
        elif self.backend == "model":
            if not os.path.exists(model):
                raise Fault("BoardUnfit", "this release has no functional circuits (libtritforge_model.so)")
            options["pl_library"] = model
            # A fault that is tried out is one of the circuits that these replace.
            os.environ.pop("TRITFORGE_FAULT", None)
        elif self.backend == "mmio":
            from board_rt.pl import Pl  # loads the bitstream and allocates: only on a board with a fabric

            self.pl = Pl(folder, context)
            options["mmio"] = self.pl.mmio
        # Tests with circuits that hang need not wait as long as a full-size model in an emulator may take.
        options["deadline_ms"] = deadline_ms or int(os.environ.get("TRITFORGE_PL_DEADLINE_MS", "0")) or None
        library = os.path.join(folder, "runtime", "libtritforge.so")
        try:
            self.runtime = Runtime(library, folder, self.backend, **options)
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        runtime = getattr(self, "runtime", None)
        if runtime is not None:
            runtime.close()
        if self.pl is not None:
            self.pl.close()

    def check_circuits(self):
        """Content id and clock of the circuits against the release. Raises BoardUnfit; returns what was read."""
        if self.backend not in ("rtl", "mmio"):
            return {}
        found = {"content_id": self.runtime.read_control(CONTENT_ID)}
        if self.runtime.read_control(ID) != CONTROL_ID:
            raise Fault(
                "BoardUnfit",
                "the control block reads 0x{:08x}, not 0x{:08x}".format(self.runtime.read_control(ID), CONTROL_ID),
                "is the bitstream loaded?",
            )
        # A release that does not say what its circuits are must not pass for one whose circuits are right.
        expected, clock = self.facts.get("content_id"), self.facts.get("clock_mhz")
        if expected is None or clock is None:
            raise Fault(
                "BoardUnfit",
                "the release's bitstream.json says no {}".format("content_id" if expected is None else "clock_mhz"),
                "build the release again: ./inv deploy",
            )
        if found["content_id"] != int(str(expected), 0):
            raise Fault(
                "BoardUnfit",
                "the circuits have content id 0x{:08x}, the release was built with 0x{:08x}".format(
                    found["content_id"], int(str(expected), 0)
                ),
                "an older bitstream is loaded: deploy again, or restart the board",
            )
        # This process may be set aside between reading the time and reading the counter, which a longer measurement
        # makes small; no length makes a wrong clock right.
        for milliseconds in CLOCK_MS:
            megahertz = self.runtime.measure_clock(milliseconds) / 1e6
            if abs(megahertz - float(clock)) <= CLOCK_TOLERANCE * float(clock):
                break
        else:
            raise Fault(
                "BoardUnfit",
                "the circuits' clock is {:.2f} MHz, the release needs {:.2f}".format(megahertz, float(clock)),
                "another program changed the fabric clocks: restart the board",
            )
        found["clock_mhz"] = megahertz
        return found
