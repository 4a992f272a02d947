"""What a token costs the board's processor: instructions counted under QEMU, cycles of each kernel by llvm-mca.

Both are computed, not measured on silicon (evidence ``model``): QEMU counts instructions and knows no cycles; llvm-mca
knows the Cortex-A9's pipelines and no caches. They rank and they catch regressions. The earlier work's 26.7 ms of
processor time a token (evidence ``reference``) is at 650 MHz at most 17.4 million cycles.
"""

from __future__ import annotations

import bisect
import re
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pipelines.base.command import find_tool, run_tool
from pipelines.base.deadline import Deadline
from pipelines.base.errors import ToolFailed
from pipelines.base.figure import Figure
from pipelines.runtime.build import NATIVE, compile_c, runtime_sources

TARGET = "armv7-linux"
CPU = "cortex-a9"
CLOCK_MHZ = 650  # of the board's processor
SYSROOT = "/usr/arm-linux-gnueabihf"
TOOLS = NATIVE / "tools"

# The program is linked at a low address; everything that is loaded (libc, the circuits' library) lies above this.
LOADED_FROM = 0x2000_0000

# Waiting for the other thread or for the circuits is not work; nor is what only a simulation needs.
LINKAGE = "(linkage)"  # stubs behind the functions: calls of libc, most of them sched_yield while waiting
WAITING = frozenset({LINKAGE, "tf_pool_run", "help", "relax", "wait_rows", "take_arrived", "read_register"})
SIMULATION = re.compile(
    r"^simulated_|^marked_|^stream_|^token_|^main$|^_|^\$|^call_weak_fn|^deregister|^register_tm|^frame_dummy"
)

# Functions of say_tokens.c whose call begins a phase: no token, it waits for the processor, a stream runs.
PHASES = ("token_ended", "stream_ended", "stream_runs")

KERNELS = {
    "tf_widen_neon": ("kernel_widen.c", 4),
    "tf_add_squares_neon": ("kernel_norm.c", 16),
    "tf_normalise_neon": ("kernel_norm.c", 16),
    "tf_largest_neon": ("kernel_quantise.c", 4),
    "tf_quantise_neon": ("kernel_quantise.c", 16),
    "tf_dequantise_neon": ("kernel_dequantise.c", 16),
    "tf_dequantise_add_neon": ("kernel_dequantise.c", 16),
    "tf_rotate_neon": ("kernel_rotate.c", 4),
    "tf_exp_neon": ("kernel_gate.c", 8),
    "tf_gate_neon": ("kernel_gate.c", 8),
}
"""Kernel → its file and the entries that one turn of its loop handles."""

MCA_TURNS = 200


@dataclass(frozen=True)
class TokenCost:
    """Instructions of one token, by function, for each thread; without waiting and without what simulates the board.

    ``alone`` are those during which no stream runs, ``behind`` those that are done while one does.
    """

    alone: tuple[dict[str, int], ...]
    behind: tuple[dict[str, int], ...]

    @property
    def total(self) -> int:
        return sum(sum(functions.values()) for functions in self.alone + self.behind)

    @property
    def busiest(self) -> int:
        """Of the thread that has most to do."""
        return max(
            sum(alone.values()) + sum(behind.values())
            for alone, behind in zip(self.alone, self.behind, strict=True)
        )  # fmt: skip

    @property
    def critical(self) -> int:
        """What a token waits for when each thread has a core and streams are longer than the work behind them.

        Of the busiest thread, while no stream runs.
        """
        return max(sum(functions.values()) for functions in self.alone)

    def by_function(self) -> dict[str, int]:
        """Over all threads, the largest first."""
        return _together(self.alone + self.behind)

    def critical_by_function(self) -> dict[str, int]:
        """Of the busiest thread while no stream runs, the largest first."""
        return _together(max(([functions] for functions in self.alone), key=lambda one: sum(one[0].values())))


def _together(counts: Sequence[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for functions in counts:
        total.update(functions)
    return dict(total.most_common())


def token_cost(
    image: Path, pl_library: Path, *, threads: int, deadline: Deadline, log: Path, neon: bool = True, tokens: int = 1
) -> TokenCost:
    """Counts the processor's instructions of a token of the image, with the functional circuits for ARM in their place.

    ``pl_library`` is ``libtritforge_model.so`` for armv7-linux. ``neon=False`` builds the plain-C twins only.
    """
    with tempfile.TemporaryDirectory(prefix="tritforge-cost-") as scratch:
        work = Path(scratch)
        flags = ["-fno-pie", "-no-pie", "-g0", *([] if neon else ["-DTF_NO_NEON"])]
        program = compile_c(
            TARGET, [TOOLS / "say_tokens.c", *runtime_sources()], work / "say", deadline=deadline, log=log, flags=flags
        )
        plugin = compile_c(
            "x86_64-linux", [TOOLS / "count_instructions.c"], work / "count.so", deadline=deadline, log=log,
            compiler="gcc", flags=["-shared"],
        )  # fmt: skip
        symbols = _symbols(program, deadline)
        starts = {name: start for start, _, name in symbols}
        marks = ",".join(f"phase{number}={starts[name]:x}" for number, name in enumerate(PHASES))
        counts = work / "counts"
        run_tool(
            [find_tool("qemu-arm"), "-L", SYSROOT, "-plugin", f"{plugin},out={counts},{marks}", program, image, "model",
             pl_library, str(threads), str(tokens)],
            deadline=deadline, log=log, env={"QEMU_CPU": CPU},
        )  # fmt: skip
        counted = _by_function(counts, symbols)
    _, alone, behind = (
        tuple(
            {
                name: round(count / tokens)
                for name, count in of_thread.items()
                if name not in WAITING and not SIMULATION.match(name)
            }
            for of_thread in of_phase[:threads]
        )
        for of_phase in counted
    )
    return TokenCost(alone, behind)


def _symbols(program: Path, deadline: Deadline) -> list[tuple[int, int, str]]:
    """Start, end and name of the program's functions, rising."""
    listed = run_tool([find_tool("arm-linux-gnueabihf-nm"), "-nS", program], deadline=deadline).stdout
    found = []
    for start, size, name in re.findall(r"^([0-9a-f]+) ([0-9a-f]+) [tT] (\S+)$", listed, re.M):
        first = int(start, 16) & ~1  # bit 0 says Thumb
        found.append((first, first + int(size, 16), name))
    if not found:
        raise ToolFailed(f"{program.name} has no symbols")
    return found


def _by_function(counts: Path, symbols: list[tuple[int, int, str]]) -> list[list[Counter[str]]]:
    """Instructions by function, for each phase and CPU."""
    starts = [start for start, _, _ in symbols]
    found: list[list[Counter[str]]] = [[Counter() for _ in range(8)] for _ in PHASES]
    for line in counts.read_text().splitlines():
        address, instructions, cpu, phase, times = line.split()
        at = int(address, 16)
        if at < LOADED_FROM:
            _, end, name = symbols[max(0, bisect.bisect_right(starts, at) - 1)]
            found[int(phase)][int(cpu)][name if at < end else LINKAGE] += int(instructions) * int(times)
    return found


def kernel_cycles(*, deadline: Deadline, log: Path) -> dict[str, Figure]:
    """Cycles an entry of each kernel's loop on a Cortex-A9, a lower bound by llvm-mca."""
    found = {}
    with tempfile.TemporaryDirectory(prefix="tritforge-mca-") as scratch:
        work = Path(scratch)
        texts: dict[str, str] = {}
        for kernel, (file, entries) in KERNELS.items():
            if file not in texts:
                out = compile_c(
                    TARGET, [NATIVE / "src" / file], work / f"{file}.s", deadline=deadline, log=log,
                    flags=["-S", "-g0", "-Wno-unused-command-line-argument"],
                )  # fmt: skip
                texts[file] = out.read_text()
            loop = work / f"{kernel}.loop.s"
            loop.write_text(".syntax unified\n.fpu neon\n" + innermost_loop(texts[file], kernel))
            printed = run_tool(
                [find_tool("llvm-mca", hint="apt-get install llvm"), "-mtriple=armv7-linux-gnueabihf", f"-mcpu={CPU}",
                 f"-iterations={MCA_TURNS}", loop],
                deadline=deadline, log=log,
            )  # fmt: skip
            cycles = re.search(r"^Total Cycles:\s+(\d+)$", printed.stdout, re.M)
            # it leaves out what it cannot read, and ends with 0
            if cycles is None or "error:" in printed.stderr:
                raise ToolFailed(f"llvm-mca did not read the loop of {kernel}: {printed.stderr[:200]}", log=log)
            found[kernel] = Figure(int(cycles[1]) / MCA_TURNS / entries, "cycles/entry", "model")
    return found


def innermost_loop(assembly: str, function: str) -> str:
    """The instructions of the longest loop without a loop in it, from the compiler's assembly of a function."""
    body = re.search(rf"^{re.escape(function)}:[^\n]*\n(.*?)^\.Lfunc_end", assembly, re.M | re.S)
    if body is None:
        raise ToolFailed(f"the assembly has no function {function}")
    lines = [line.split("@")[0].rstrip() for line in body[1].splitlines()]
    labels = {line[:-1]: number for number, line in enumerate(lines) if re.fullmatch(r"\.L\w+:", line)}
    loops = []
    for number, line in enumerate(lines):
        branch = re.fullmatch(r"\s+b\w*\s+(\.L\w+)", line)
        if branch and labels.get(branch[1], number) < number:
            loops.append((labels[branch[1]], number))
    inner = [a for a in loops if not any(b != a and a[0] <= b[0] and b[1] <= a[1] for b in loops)]
    if not inner:
        raise ToolFailed(f"{function} has no loop")
    first, last = max(inner, key=lambda loop: loop[1] - loop[0])
    kept = [line for line in lines[first + 1 : last] if line.strip() and not re.match(r"\s*\.|\.L", line)]
    return "\n".join(kept) + "\n"
