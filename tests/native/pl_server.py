"""Serves registers and memory of the programmable logic to another process, through two files that both map.

    python pl_server.py FOLDER LIBRARY

``registers`` holds five windows of 64 KiB (four DMAs, the control block), ``memory`` what the DMAs see. A register that
differs from what was last published was written by the other process and is passed on. Ends with its standard input.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from pathlib import Path

import numpy as np

from pipelines.golden import formats
from pipelines.hardware.library import CURDESC, DMACR, DMASR, ERRORS, IDLE, S2MM_BASE, TAILDESC, Pl

CONTROL_WINDOW = 4
WORK_CYCLES = 2_000_000
MOST_WAITS = 1000
SETTLE_CYCLES = 100


def serve(folder: Path, library: Path) -> None:
    facts = json.loads((folder / "facts.json").read_text())
    registers = np.memmap(folder / "registers", dtype=np.uint32, mode="r+")
    memory = np.memmap(folder / "memory", dtype=np.uint8, mode="r+")
    with Pl(library, memory_bytes=memory.size, physical_base=facts["base"], scatter_gather=1, shadow=0) as pl:
        written = [
            (pl.dma(engine, register, to_memory=to_memory), engine * formats.SEGMENT_BYTES + side + register)
            for engine in range(4)
            for to_memory, side in ((True, S2MM_BASE), (False, 0))
            for register in (CURDESC, DMACR, TAILDESC)  # the order in which a driver may write them
        ]
        status = [
            (pl.dma(engine, DMASR, to_memory=to_memory), engine * formats.SEGMENT_BYTES + side + DMASR)
            for engine in range(4)
            for to_memory, side in ((True, S2MM_BASE), (False, 0))
        ]
        control = CONTROL_WINDOW * formats.SEGMENT_BYTES
        for name in ("CONTROL", "SCRATCH"):
            offset = formats.REGISTERS[name]
            written.insert(0, (formats.CONTROL_BASE + offset, control + offset))
        fixed = [(formats.CONTROL_BASE + formats.REGISTERS[n], control + formats.REGISTERS[n])
                 for n in ("ID", "VERSION", "CONTENT_ID", "CONFIG")]  # fmt: skip
        counters = [
            (formats.CONTROL_BASE + at, control + at)
            for engine in range(4)
            for at in (
                formats.ENGINE_BASE + formats.ENGINE_STRIDE * engine + offset
                for offset in formats.ENGINE_REGISTERS.values()
            )
        ]
        published: dict[int, int] = {}

        def publish(pairs: list[tuple[int, int]]) -> None:
            for address, at in pairs:
                published[at] = pl.read32(address)
                registers[at // 4] = published[at]

        publish(fixed + written + status + counters)
        (folder / "ready").touch()
        while not select.select([sys.stdin], [], [], 0.0002)[0]:
            cycles = int(time.monotonic() * 125e6)
            registers[(control + formats.REGISTERS["CYCLES_HI"]) // 4] = cycles >> 32 & 0xFFFFFFFF
            registers[(control + formats.REGISTERS["CYCLES_LO"]) // 4] = cycles & 0xFFFFFFFF
            for address, at in written:
                value = int(registers[at // 4])
                if value == published[at]:
                    continue
                published[at] = value
                seen = np.array(memory)
                pl.memory[:] = seen
                pl.write32(address, value)
                if at % formats.SEGMENT_BYTES == TAILDESC:  # work to do, until both directions have come to rest
                    sides = (address - TAILDESC + DMASR, address - TAILDESC + S2MM_BASE + DMASR)
                    for _ in range(MOST_WAITS):
                        if all(pl.read32(side) & (IDLE | ERRORS) for side in sides):
                            break
                        pl.wait(WORK_CYCLES)
                else:
                    pl.advance(SETTLE_CYCLES)
                changed = np.flatnonzero(pl.memory != seen)
                results = changed[changed >= facts["results_at"]]
                memory[results] = pl.memory[results]
                rest = changed[changed < facts["results_at"]]
                memory[rest] = pl.memory[rest]  # status words: they say that the results are there
                publish([(address, at)] if at % formats.SEGMENT_BYTES in (DMACR, S2MM_BASE + DMACR) else [])
                if at >= control:
                    publish([(address, at)])
                publish(status + counters)


if __name__ == "__main__":
    sys.path.insert(0, os.getcwd())
    serve(Path(sys.argv[1]), Path(sys.argv[2]))
