"""An emulated Zynq-7000: QEMU's xilinx-zynq-a9 with a kernel of its own and the RTL as its fabric, in another process.

It has the disk image, the ssh server and the life of any emulated board. What it adds: contiguous memory (``cma=``)
with physical addresses, ``/dev/mem``, fpga_manager and the allocator of a PYNQ-Z1's kernel, and DMAs that read the
machine's physical memory, so that the board's code for a real fabric runs unchanged.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pipelines.base.deadline import Deadline
from pipelines.base.files import sha256_bytes
from pipelines.boards import initrd
from pipelines.boards.emulator import Emulator, Endpoint
from pipelines.boards.zynq import kernel
from pipelines.hardware.fabric import MEMORY_BYTES

HERE = Path(__file__).parent
MACHINE = "xilinx-zynq-a9"
CARD_JOB = HERE.parent / "card" / "tritforge-job"


def hardware(memory: Path) -> list[str]:
    """QEMU's arguments for the machine with the file ``memory`` as what lies at physical address 0 and up."""
    return [
        "-M", f"{MACHINE},memory-backend=ram", "-m", str(MEMORY_BYTES >> 20),
        "-object", f"memory-backend-file,id=ram,size={MEMORY_BYTES},mem-path={memory},share=on",
    ]  # fmt: skip


@dataclass(frozen=True)
class ZynqEmulator(Emulator):
    """``circuits`` is the folder below which the compiled circuits lie that a bitstream may name."""

    circuits: Path = field(default=Path())

    def _wanted(self) -> str:
        return sha256_bytes(f"{super()._wanted()} {kernel.recipe_key()}".encode())[:16]

    def _initrd(self, image: Path) -> bytes:
        """The shared one, with our init and no modules laid over it, and what the card's owner would add."""
        entries = {
            "init": initrd.file((HERE / "init").read_bytes(), 0o755),
            "modules/order": initrd.file(b""),
            "card": initrd.folder(),
            "card/tritforge-job": initrd.file(CARD_JOB.read_bytes(), 0o755),
        }
        return super()._initrd(image) + initrd.archive(entries)

    def image(self, *, deadline: Deadline | None = None, on_build: Callable[[str], None] | None = None) -> Path:
        """The shared image's folder, and the kernel built when it is not there, which has a deadline of its own."""
        kernel.cached(self.images, say=on_build or (lambda _: None))
        return super().image(deadline=deadline, on_build=on_build)

    def _launch(self, image: Path) -> Endpoint:
        endpoint = super()._launch(image)
        with (self.folder / "fabric.log").open("wb") as output:
            # In a session of its own, as the emulator: it ends when that does.
            subprocess.Popen(
                [sys.executable, "-m", "pipelines.hardware.fabric", str(self._memory()), str(endpoint.pid),
                 str(self.circuits.resolve()), str(self.memory_mib << 20)],
                cwd=HERE.parents[2], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
        return endpoint

    def _memory(self) -> Path:
        return (self.folder / "memory").resolve()

    def _machine_words(self) -> str:
        return f"console=ttyPS0 root=/dev/mmcblk0 mem={self.memory_mib}M"

    def _qemu(self, qemu: Path, image: Path, initrd: Path, port: int) -> subprocess.Popen[bytes]:
        built = kernel.cached(self.images)
        self._memory().unlink(missing_ok=True)  # what the last run left in it
        with self._memory().open("wb") as stream:  # sparse; the fabric must find it however slow QEMU is
            stream.truncate(MEMORY_BYTES)
        argv = [
            str(qemu), *hardware(self._memory()), "-no-reboot",
            "-kernel", str(built / "vmlinuz"), "-dtb", str(built / "board.dtb"), "-initrd", str(initrd),
            "-append", self._kernel_line(),
            "-display", "none", "-monitor", "none", "-serial", "null", "-serial", f"file:{self.console}",
            "-drive", f"if=sd,format=qcow2,file={self._disk()}",
            "-nic", f"user,restrict=on,hostfwd=tcp:127.0.0.1:{port}-:22",
            "-name", self.name,
        ]  # fmt: skip
        with (self.folder / "qemu.log").open("wb") as output:
            return subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
