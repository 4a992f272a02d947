"""Plays the fabric of an emulated Zynq: ``python -m pipelines.hardware.fabric MEMORY PID CIRCUITS BYTES``.

The emulator's physical memory is a file, which this process maps. The machine is given 2 GiB, of which its kernel uses
the lower part; the rest lies where a Zynq has its fabric's slaves. There, at the addresses that the circuits have on a
board, this process serves their registers: what differs from what was last published was written by the guest, and is
passed on to the Verilated RTL. The RTL's DMAs read and write the guest's memory itself, by physical address.

A bitstream is loaded through the guest's fpga_manager (``pipelines/boards/zynq/fabric.c``), which copies it to a
window. It names the compiled circuits by their SHA-256; only libraries below CIRCUITS, on this machine, are loaded.

What a register cannot do in memory: a write of the value that is already there is seen only where the published value
is never one that a driver writes (TAILDESC, self-clearing bits), and the clock counter moves in steps of this process'
loop.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import mmap
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.base.files import sha256_file
from pipelines.golden import formats
from pipelines.hardware.library import CURDESC, DMACR, DMASR, ERRORS, HALTED, IDLE, TAILDESC, Pl
from pipelines.hardware.verilate import CLOCK_MHZ, RTL_LIBRARY

MEMORY_BYTES = 2 << 30  # what the machine is given: as much as QEMU's Zynq takes
WINDOW, WINDOW_BYTES = 0x4000_0000, 0x20_0000  # these and the next four in fabric.c too
LENGTH, ANSWER, POWER, DATA = 0x0, 0x4, 0x8, 0x1000
CONFIGURED, REFUSED = 1, 2
SYNC = bytes.fromhex("665599aa")

ACTIVE_S, IDLE_S = 0.0001, 0.002  # between two looks
ACTIVE_FOR_S = 0.5
WORK_CYCLES = 50_000
SETTLE_CYCLES = 100
CONSUMED = 1  # bit 0 of TAILDESC, which a driver never writes


def bitstream(circuits: str, content_id: str) -> bytes:
    """A ``.bin`` for this fabric: a sync word as a byte-swapped bitstream has it, then which circuits it stands for."""
    return bytes(32) + SYNC + json.dumps({"circuits": circuits, "content_id": content_id}).encode() + b"\n"


def circuits_of(data: bytes, folder: Path) -> Path:
    """The library below ``folder`` that a bitstream names. Raises ValueError."""
    _, sync, text = data.partition(SYNC)
    if not sync:
        raise ValueError("no sync word")
    wanted = json.loads(text)["circuits"]
    for path in sorted(folder.glob(f"*/*/{RTL_LIBRARY}")):
        if sha256_file(path) == wanted:
            return path
    raise ValueError(f"no circuits {wanted} below {folder}: they are built with the release")


class Registers:
    """Published registers of the circuits, and what the guest has written over them."""

    def __init__(self, memory: mmap.mmap, pl: Pl) -> None:
        self.pl = pl
        self.words = np.frombuffer(memory, dtype=np.uint32)
        sides = [(engine, to_memory) for engine in range(len(formats.ENGINES)) for to_memory in (True, False)]
        control = [formats.CONTROL_BASE + formats.REGISTERS[name] for name in ("CONTROL", "SCRATCH")]
        # In the order in which a driver writes them, for what is found written at one look.
        writable = control + [
            pl.dma(engine, register, to_memory=to_memory)
            for register in (DMASR, CURDESC, DMACR, TAILDESC)
            for engine, to_memory in sides
        ]
        self.tails = {pl.dma(engine, TAILDESC, to_memory=to_memory) for engine, to_memory in sides}
        self.status = [pl.dma(engine, DMASR, to_memory=to_memory) for engine, to_memory in sides]
        self.fixed = [formats.CONTROL_BASE + formats.REGISTERS[n] for n in ("ID", "VERSION", "CONTENT_ID", "CONFIG")]
        self.counters = [
            formats.CONTROL_BASE + formats.ENGINE_BASE + formats.ENGINE_STRIDE * engine + offset
            for engine in range(len(formats.ENGINES))
            for offset in formats.ENGINE_REGISTERS.values()
        ]
        self.writable = writable
        self.indices = np.array(writable) // 4
        self.published = np.zeros(len(writable), dtype=np.uint32)
        self.position = {address: number for number, address in enumerate(writable)}
        self.words[self.indices] = 0  # what the guest wrote before there was a fabric
        self.publish(self.fixed + self.counters + writable)

    def publish(self, addresses: list[int]) -> None:
        """Writes what is new. A word that is as it was is left alone: the guest may have written over it by now."""
        for address in addresses:
            value = self.pl.read32(address) | (CONSUMED if address in self.tails else 0)
            number = self.position.get(address)
            if number is not None:
                if self.published[number] == value:
                    continue
                self.published[number] = value
            self.words[address // 4] = value

    def serve(self) -> bool:
        """One look; whether there was anything to do."""
        found = self.words[self.indices]
        changed = np.flatnonzero(found != self.published)
        for number in changed:
            address, value = self.writable[number], int(found[number])
            if address in self.tails:
                self.published[number] = self.words[address // 4] = value | CONSUMED
            self.pl.write32(address, value)
            if address not in self.tails:
                self.published[number] = value  # the guest's; ours is published where it differs
                self.pl.advance(SETTLE_CYCLES)
                self.publish([address])
        states = [self.pl.read32(address) for address in self.status]
        busy = any(not state & (HALTED | IDLE | ERRORS) for state in states)
        if busy:
            self.pl.wait(WORK_CYCLES)
        if busy or len(changed):
            # Counters and current descriptors before the status that says "done".
            others = [address for address in self.writable if address not in self.tails and address not in self.status]
            unwritten = self.words[self.indices] == self.published
            self.publish(self.counters)
            self.publish([address for address in others if unwritten[self.position[address]]])
            self.publish(self.status)
        return busy or bool(len(changed))

    def clock(self) -> None:
        cycles = int(time.monotonic() * CLOCK_MHZ * 1e6)
        base = formats.CONTROL_BASE
        self.words[(base + formats.REGISTERS["CYCLES_HI"]) // 4] = cycles >> 32 & 0xFFFF_FFFF
        self.words[(base + formats.REGISTERS["CYCLES_LO"]) // 4] = cycles & 0xFFFF_FFFF


class Fabric:
    """The fabric of one machine. ``ram_bytes`` is what its kernel uses of the memory, from address 0 on."""

    def __init__(self, memory: Path, circuits: Path, ram_bytes: int) -> None:
        self.circuits, self.ram_bytes = circuits, ram_bytes
        self.descriptor = os.open(memory, os.O_RDWR | os.O_CLOEXEC)
        self.memory = mmap.mmap(self.descriptor, MEMORY_BYTES)
        self.window = np.frombuffer(self.memory, dtype=np.uint32, count=WINDOW_BYTES // 4, offset=WINDOW)
        self.pl: Pl | None = None
        self.registers: Registers | None = None

    def look(self) -> bool:
        """Serves what the guest wants now; whether it wanted anything."""
        length = int(self.window[LENGTH // 4])
        if length:
            self.window[LENGTH // 4] = 0
            self.window[ANSWER // 4] = self._configure(length)
            return True
        if self.registers is None:
            return False
        self.registers.clock()
        return self.registers.serve()

    def wants_off(self) -> bool:
        return bool(self.window[POWER // 4])

    def _configure(self, length: int) -> int:
        if self.pl is not None:
            self.registers = None
            self.pl.close()
            self.pl = None
        try:
            if length > WINDOW_BYTES - DATA:
                raise ValueError(f"{length} bytes do not fit")
            data = self.memory[WINDOW + DATA : WINDOW + DATA + length]
            library = circuits_of(data, self.circuits)
            pl = Pl(library, memory_bytes=self.ram_bytes, physical_base=0, scatter_gather=1, shadow=0)
        except Exception as error:  # whatever the guest loads must not end the process that answers it
            print(f"refused: {error}", flush=True)
            return REFUSED
        map_over(pl.memory.ctypes.data, self.descriptor, self.ram_bytes)
        self.pl, self.registers = pl, Registers(self.memory, pl)
        self.registers.clock()
        print(f"configured: {library}", flush=True)
        return CONFIGURED


def map_over(address: int, descriptor: int, size: int) -> None:
    """Lays the first ``size`` bytes of a file over memory that this process has at ``address`` (page-aligned)."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    map_fixed = 0x10  # Linux; Python's mmap has no name for it
    found = libc.mmap(address, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | map_fixed, descriptor, 0)
    if found != address:
        raise OSError(ctypes.get_errno(), "the machine's memory cannot be mapped over the circuits'")


def serve(memory: Path, pid: int, circuits: Path, ram_bytes: int) -> None:
    """Until the emulator with process id ``pid`` has ended; ends it when the guest switches off."""
    fabric = Fabric(memory, circuits, ram_bytes)
    active = 0.0
    while Path(f"/proc/{pid}").exists() and not _is_zombie(pid):
        until = time.monotonic() + 1.0
        while (now := time.monotonic()) < until:
            if fabric.look():
                active = now
            time.sleep(ACTIVE_S if now - active < ACTIVE_FOR_S else IDLE_S)
        if fabric.wants_off():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)


def _is_zombie(pid: int) -> bool:
    """An emulator that ended while its starter has not looked yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def main(arguments: Any) -> None:
    memory, pid, circuits, ram_bytes = arguments
    serve(Path(memory), int(pid), Path(circuits), int(ram_bytes))


if __name__ == "__main__":
    main(sys.argv[1:])
