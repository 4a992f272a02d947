"""One engine alone at its pins (``hw/sim/bench.cpp``): from RTL or from a netlist, run with gaps on both sides."""

from __future__ import annotations

import ctypes
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt

from pipelines.base.command import find_tool, run_tool
from pipelines.base.deadline import Deadline
from pipelines.base.errors import ToolFailed
from pipelines.golden.formats import ERROR_BITS
from pipelines.hardware.verilate import RTL, RTL_SOURCES, SIM, Unit, compile_verilated
from pipelines.runtime.build import host_target

U64 = npt.NDArray[np.uint64]

QUIET_CYCLES = 200
"""Longer than either engine takes from its last input beat to its next output beat, times four."""


class _Drive(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_uint32) for name in ("valid_of_256", "ready_of_256", "burst_cycles", "reset_first")),
        *((name, ctypes.c_uint64) for name in ("seed", "quiet_cycles", "stop_after_words", "most_cycles")),
    ]


_COUNTS = (
    "cycles", "words_in", "words_out", "violations", "event_in", "event_out", "stall_in", "stall_out", "stall_turn",
    "transfers", "overrun",
)  # fmt: skip


class _Outcome(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_uint64) for name in _COUNTS),
        ("errors", ctypes.c_uint32),
        ("error_word", ctypes.c_uint32),
    ]


@dataclass(frozen=True)
class Drive:
    """How the bench drives the pins: chances of 256 per draw, and for how many cycles a draw holds."""

    valid: int = 256
    ready: int = 256
    burst: int = 1
    seed: int = 1


FULL_SPEED = Drive()


@dataclass(frozen=True)
class Outcome:
    """What came back: beats uint64[n] with their TLAST bool[n], the event outputs summed, the sticky error."""

    words: U64
    last: npt.NDArray[np.bool_]
    counts: Mapping[str, int]
    errors: tuple[str, ...]
    error_word: int


class Bench:
    """An engine in a library made by ``build_bench``. Use as a context manager."""

    def __init__(self, library: Path) -> None:
        try:
            self._lib = ctypes.CDLL(str(library.resolve()))
        except OSError as error:
            raise ToolFailed(f"{library} cannot be loaded: {error}") from error
        self._lib.bench_create.restype = ctypes.c_void_p
        self._lib.bench_destroy.argtypes = [ctypes.c_void_p]
        self._lib.bench_mutant.argtypes = [ctypes.c_void_p, ctypes.c_uint32]
        pointer, u64 = ctypes.c_void_p, ctypes.c_uint64
        self._lib.bench_run.argtypes = [pointer, pointer, pointer, u64, pointer, pointer, pointer, u64, pointer]
        self._lib.bench_run.restype = None
        self._handle = self._lib.bench_create()

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._handle:
            self._lib.bench_destroy(self._handle)
            self._handle = None

    def mutant(self, number: int) -> None:
        """Switches a mutant of a netlist with mutants in; 0 is the design as it was."""
        self._lib.bench_mutant(self._handle, number)

    def run(
        self,
        transfers: Sequence[U64],
        drive: Drive = FULL_SPEED,
        *,
        reset: bool = True,
        last: npt.NDArray[np.bool_] | None = None,
        stop_after: int = 0,
        capacity: int | None = None,
    ) -> Outcome:
        """Sends transfers uint64[…], TLAST on the last word of each, or as ``last`` says for all words together.

        ``reset`` first; else the engine goes on from where the last run left it. ``stop_after`` input words the run
        breaks off in the middle of everything.
        """
        words = np.ascontiguousarray(np.concatenate(transfers), dtype=np.uint64)
        if last is None:
            last = np.zeros(words.size, dtype=np.bool_)
            last[np.cumsum([transfer.size for transfer in transfers]) - 1] = True
        marks = np.ascontiguousarray(last, dtype=np.uint8)
        room = words.size * 4 + 1024 if capacity is None else capacity
        out = np.zeros(room, dtype=np.uint64)
        out_last = np.zeros(room, dtype=np.uint8)
        gap = drive.burst * 256 // max(1, min(drive.valid, drive.ready))
        settings = _Drive(
            drive.valid, drive.ready, drive.burst, 4 if reset else 0, drive.seed,
            QUIET_CYCLES + 20 * gap, stop_after, 1000 + (words.size + room) * (gap + 2) * 4,
        )  # fmt: skip
        outcome = _Outcome()
        self._lib.bench_run(
            self._handle, words.ctypes.data, marks.ctypes.data, words.size, ctypes.byref(settings), out.ctypes.data,
            out_last.ctypes.data, room, ctypes.byref(outcome),
        )  # fmt: skip
        count = min(int(outcome.words_out), room)
        return Outcome(
            words=out[:count].copy(),
            last=out_last[:count].astype(np.bool_),
            counts={name: int(getattr(outcome, name)) for name in _COUNTS},
            errors=tuple(name for name, bit in ERROR_BITS.items() if outcome.errors >> bit & 1),
            error_word=int(outcome.error_word),
        )


def build_bench(
    engine: str,
    library: Path,
    *,
    deadline: Deadline,
    log: Path,
    parameters: Mapping[str, int] | None = None,
    netlist: Path | None = None,
    assertions: bool = True,
    rtl: Path = RTL,
) -> None:
    """Builds the bench around ``tritforge_<engine>``, from the RTL or from a ``netlist`` that yosys wrote.

    A netlist has an input ``mutant_i``; parameters are already in it.
    """
    with tempfile.TemporaryDirectory(prefix="tritforge-bench-") as scratch:
        work = Path(scratch)
        if netlist is None:
            names = [*RTL_SOURCES[:-1], "waivers.vlt"]
            for name in names:
                shutil.copyfile(rtl / name, work / name)
            sources = ["waivers.vlt", *RTL_SOURCES[:-1]]
            options = ["-Wall", *(f"-G{name}={value}" for name, value in (parameters or {}).items())]
            options += ["--assert", "-DTRITFORGE_SVA"] if assertions else ["--noassert"]
        else:
            shutil.copyfile(netlist, work / "netlist.v")
            sources, options = ["netlist.v"], ["-Wno-fatal", "-Wno-lint", "--noassert"]
        run_tool(
            [find_tool("verilator"), "--cc", "-O3", "--x-initial", "unique", "--x-assign", "unique", *options,
             "--top-module", f"tritforge_{engine}", "--prefix", "Vengine", "--Mdir", "verilated", *sources],
            cwd=work, deadline=deadline, log=log,
        )  # fmt: skip
        shutil.copyfile(SIM / "bench.cpp", work / "bench.cpp")
        compile_verilated(
            host_target(),
            work,
            [Unit("bench", ("bench.cpp",), ("-O1", *(("-DBENCH_MUTANTS",) if netlist else ())))],
            library,
            deadline=deadline,
            log=log,
            optimise="-O1",
        )
