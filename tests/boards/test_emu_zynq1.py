"""The emulated Zynq: its fabric alone against the runtime's driver for a board; as a campaign, the whole machine."""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from board_rt.runtime import Buffer, MmioOptions, PlTimeout, Runtime, memory_plan
from pipelines.base.errors import BoardOffline, ToolFailed
from pipelines.base.files import read_json, sha256_file
from pipelines.boards import emulator
from pipelines.boards.zynq import kernel
from pipelines.boards.zynq.machine import ZynqEmulator, hardware
from pipelines.config.settings import ROOT
from pipelines.golden import formats
from pipelines.hardware import fabric
from pipelines.hardware.library import CURDESC, DMACR, DMASR, HALTED, Pl
from tests.boards.conftest import Built
from tests.checkout import Copy

RAM_BYTES = 64 << 20
STREAMS_AT = 0x10_0000
RESULTS_AT = 0x300_0000
TOKENS = (1, 17, 300)
ANSWER_S = 60.0


class Machine:
    """The memory of a machine and the process that plays its fabric; this process is in the place of the processor."""

    def __init__(self, folder: Path, circuits: Path) -> None:
        with (folder / "memory").open("wb") as stream:
            stream.truncate(fabric.MEMORY_BYTES)
        self.descriptor = os.open(folder / "memory", os.O_RDWR)
        self.memory = mmap.mmap(self.descriptor, fabric.MEMORY_BYTES)
        self.first_byte = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.log = folder / "fabric.log"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pipelines.hardware.fabric", str(folder / "memory"), str(os.getpid()), str(circuits),
             str(RAM_BYTES)],
            cwd=ROOT, stdout=self.log.open("wb"), stderr=subprocess.STDOUT,
        )  # fmt: skip

    def word(self, physical: int) -> ctypes.c_uint32:
        return ctypes.c_uint32.from_address(self.first_byte + physical)

    def load(self, bitstream: bytes) -> int:
        """What the kernel does with a bitstream; the fabric's answer."""
        at = fabric.WINDOW + fabric.DATA
        self.memory[at : at + len(bitstream)] = bitstream
        self.word(fabric.WINDOW + fabric.ANSWER).value = 0
        self.word(fabric.WINDOW + fabric.LENGTH).value = len(bitstream)
        end = time.monotonic() + ANSWER_S
        while not self.word(fabric.WINDOW + fabric.ANSWER).value:
            assert time.monotonic() < end and self.process.poll() is None, self.log.read_text()
            time.sleep(0.01)
        return self.word(fabric.WINDOW + fabric.ANSWER).value

    def options(self, streams_bytes: int, results_bytes: int) -> MmioOptions:
        """Registers and buffers at their physical addresses, as ``board_rt/pl.py`` makes them on a board."""
        options = MmioOptions(drm_fd=-1)
        options.control = self.first_byte + formats.CONTROL_BASE
        for engine in range(4):
            options.dma[engine] = self.first_byte + formats.DMA_BASE + engine * formats.DMA_STRIDE
        assert STREAMS_AT + streams_bytes <= RESULTS_AT and RESULTS_AT + results_bytes <= RAM_BYTES
        options.streams = Buffer(cpu=self.first_byte + STREAMS_AT, physical=STREAMS_AT, bytes=streams_bytes)
        options.results = Buffer(cpu=self.first_byte + RESULTS_AT, physical=RESULTS_AT, bytes=results_bytes)
        return options

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.descriptor)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path, ROOT / ".tritforge" / "store")
    yield made
    made.stop()


def bitstream_of(built: Built) -> bytes:
    return fabric.bitstream(sha256_file(built.rtl), read_json(built.bitstream / "bitstream.json")["content_id"])


def test_the_drivers_words_come_from_the_fabric_beside_it(machine: Machine, built: Built) -> None:
    """Registers and results through memory alone, bit for bit what this machine's processor computes."""
    assert machine.load(bitstream_of(built)) == fabric.CONFIGURED
    plan = memory_plan(built.runtime, built.weights / "params.tfp")
    with Runtime(built.runtime, built.weights, "host") as host:
        wanted = [bytes(host.forward(token)) for token in TOKENS]
    options = machine.options(plan.streams, plan.results)
    with Runtime(built.runtime, built.weights, "mmio", mmio=options, deadline_ms=60_000) as runtime:
        facts = read_json(built.bitstream / "bitstream.json")
        assert runtime.read_control(formats.REGISTERS["CONTENT_ID"]) == int(facts["content_id"], 0)
        assert [bytes(runtime.forward(token)) for token in TOKENS] == wanted
        transfers = formats.ENGINE_BASE + formats.ENGINE_REGISTERS["TRANSFERS"]
        assert runtime.read_control(transfers) > 0
    # A second load is a new fabric: its counters stand at zero.
    assert machine.load(bitstream_of(built)) == fabric.CONFIGURED
    assert machine.word(formats.CONTROL_BASE + transfers).value == 0


def test_a_fabric_that_is_gone_is_a_timeout(machine: Machine, built: Built) -> None:
    assert machine.load(bitstream_of(built)) == fabric.CONFIGURED
    plan = memory_plan(built.runtime, built.weights / "params.tfp")
    options = machine.options(plan.streams, plan.results)
    with Runtime(built.runtime, built.weights, "mmio", mmio=options, deadline_ms=500) as runtime:
        machine.process.kill()
        with pytest.raises(PlTimeout):
            runtime.forward(TOKENS[0])


class Interleaved:
    """Registers in place of the circuits', and a guest that writes RUN while the fabric publishes what it answers."""

    dma = staticmethod(Pl.dma)

    def __init__(self, memory: mmap.mmap) -> None:
        self.words = np.frombuffer(memory, dtype=np.uint32)
        self.values: dict[int, int] = {}
        self.engaged = False

    def read32(self, address: int) -> int:
        if self.engaged and address >= formats.CONTROL_BASE + formats.ENGINE_BASE:  # a counter: in the middle of it
            self.words[self.dma(0, DMACR) // 4] = 1
        return self.values.get(address, 0)

    def write32(self, address: int, value: int) -> None:
        self.values[address] = value

    def advance(self, cycles: int) -> None: ...


def test_what_the_guest_writes_meanwhile_is_not_overwritten() -> None:
    """A guest sees a reset's end while the fabric is still publishing, and goes on at once."""
    memory = mmap.mmap(-1, fabric.MEMORY_BYTES)
    pl = Interleaved(memory)
    pl.values |= {pl.dma(engine, DMASR, to_memory=side): HALTED for engine in range(4) for side in (False, True)}
    registers = fabric.Registers(memory, pl)  # type: ignore[arg-type]  # all of it that is used
    pl.words[pl.dma(0, CURDESC) // 4] = 0x1000
    pl.engaged = True
    assert registers.serve()
    assert pl.words[pl.dma(0, DMACR) // 4] == 1, "the guest's write was overwritten with the old value"
    registers.serve()
    assert pl.values[pl.dma(0, DMACR)] == 1 and pl.values[pl.dma(0, CURDESC)] == 0x1000


def test_only_circuits_of_this_machine_are_loaded(machine: Machine, built: Built) -> None:
    assert machine.load(b"no sync word") == fabric.REFUSED
    assert machine.load(fabric.bitstream("0" * 64, "0x00000000")) == fabric.REFUSED
    assert machine.load(fabric.SYNC + b"not JSON") == fabric.REFUSED
    assert machine.load(bitstream_of(built)) == fabric.CONFIGURED  # what came before did no harm
    text = machine.log.read_text()
    assert "no sync word" in text and f"no circuits {'0' * 64}" in text


def test_options_that_kconfig_drops_are_named() -> None:
    wanted = "# a comment\nCONFIG_MMU=y\nCONFIG_HZ_250=y\nCONFIG_IPV6=n\n"
    kernel.refuse_lost_options(wanted, "CONFIG_MMU=y\nCONFIG_HZ_250=y\n# CONFIG_IPV6 is not set\n")
    with pytest.raises(ToolFailed, match="CONFIG_HZ_250=y, CONFIG_IPV6=n"):
        kernel.refuse_lost_options(wanted, "CONFIG_MMU=y\nCONFIG_IPV6=y\n")


BARE = r"""
    .arm
    .global _start
_start:                         @ a program without a kernel: the processor's view of the fabric
    ldr r0, =0x43C00000         @ the control block
    ldr r1, =0x00200000         @ where the answers go
    ldr r2, [r0, #0x00]         @ ID
    str r2, [r1, #0]
    ldr r2, [r0, #0x08]         @ CONTENT_ID
    str r2, [r1, #4]
    ldr r3, =0x40400030         @ S2MM control of the first DMA: run
    mov r2, #1
    str r2, [r3]
wait:
    ldr r2, [r3, #4]            @ its status, until it is no longer halted
    tst r2, #1
    bne wait
    str r2, [r1, #8]
    mov r2, #1
    str r2, [r1, #12]
end:
    b end
"""
ANSWERS_AT = 0x20_0000


def test_a_processor_sees_the_fabric_at_the_addresses_of_a_board(
    machine: Machine, built: Built, tmp_path: Path
) -> None:
    """QEMU's own Cortex-A9, without any kernel: registers are where a Zynq has them, and answer."""
    (tmp_path / "bare.s").write_text(BARE)
    subprocess.run(
        ["arm-linux-gnueabihf-gcc", "-mcpu=cortex-a9", "-nostdlib", "-static", "-Wl,-Ttext=0x100000,--build-id=none",
         "-o", str(tmp_path / "bare.elf"), str(tmp_path / "bare.s")],
        check=True, timeout=60,
    )  # fmt: skip
    assert machine.load(bitstream_of(built)) == fabric.CONFIGURED
    qemu = subprocess.Popen(
        ["qemu-system-arm", *hardware(tmp_path / "memory"), "-kernel", str(tmp_path / "bare.elf"), "-display", "none",
         "-monitor", "none", "-serial", "null", "-nic", "none"],
    )  # fmt: skip
    try:
        end = time.monotonic() + ANSWER_S
        while not machine.word(ANSWERS_AT + 12).value:
            assert time.monotonic() < end and qemu.poll() is None
            time.sleep(0.02)
        facts = read_json(built.bitstream / "bitstream.json")
        assert machine.word(ANSWERS_AT).value == 0x54495254  # "TRIT"
        assert machine.word(ANSWERS_AT + 4).value == int(facts["content_id"], 0)
        assert not machine.word(ANSWERS_AT + 8).value & 1
    finally:
        qemu.kill()
        qemu.wait()


NAME = "emu-zynq1"


@pytest.mark.campaign
def test_the_whole_machine_deploys_writes_and_verifies(tmp_path: Path) -> None:
    """Bitstream through fpga_manager, buffers at physical addresses, registers through /dev/mem, jobs through sudo."""
    checkout = Copy.make(tmp_path / "checkout")
    try:
        release = checkout.typed("deploy", f"--board={NAME}")["release"]
        again = checkout.typed("deploy", f"--board={NAME}")
        assert (again["release"], again["bytes_sent"]) == (release, 0)
        written = checkout.typed("generate", f"--board={NAME}", "--prompt=Once upon a time", "--tokens=8")
        assert written["tokens"] == 8 and written["backend"] == "mmio"
        verified = checkout.typed("verify", f"--board={NAME}")
        assert verified["circuits"]["matvec_words"] > 0 and verified["circuits"]["attention_words"] > 0
        assert verified["circuits"]["mismatches"] == verified["logits"]["mismatches"] == 0
        assert verified["logits"]["steps"] >= 64
        assert checkout.typed("boards", f"--stop={NAME}")["stopped"] == NAME
    finally:
        checkout.typed("boards", f"--stop={NAME}", status=None)


@pytest.mark.campaign
def test_a_boot_that_hangs_ends_with_the_console(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = ROOT / ".tritforge" / "images"
    kernel.cached(images)
    monkeypatch.setattr(emulator, "BOOT_DEADLINE_S", 15.0)
    broken = ZynqEmulator("emu-broken", tmp_path, images, kernel_arguments="rdinit=/nothing panic=0")
    try:
        with pytest.raises(BoardOffline, match="did not answer on ssh within 15 s") as caught:
            broken.start()
        assert caught.value.log == broken.console
        assert "Kernel panic" in caught.value.message  # the console's tail
    finally:
        broken.stop()
