"""Do the checks notice a broken circuit? Mutants are made by yosys, not by hand, and switched in one at a time.

``python -m pipelines.hardware.mutate [--count N] [--seed S] [--engine matvec|attention]`` prints the survivors.
``yosys mutate`` inverts or ties one bit of one cell port at a time; all mutants of a campaign are in one
netlist behind an input ``mutant_i``, so that it is compiled once.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pipelines.base.command import find_tool, run_tool
from pipelines.base.deadline import Deadline
from pipelines.base.errors import MismatchError, ToolFailed
from pipelines.hardware.bench import Bench, build_bench
from pipelines.hardware.checks import AttentionBuild, Check, checks_of
from pipelines.hardware.verilate import RTL, RTL_SOURCES

ENGINES = ("matvec", "attention")
CTRL_BITS = 12
KILLED_SHARE = 0.95
"""Of the mutants that can show at the pins at all; the others have a reason (``Mutant.equivalent``)."""

PARAMETERS: dict[str, dict[str, int]] = {"matvec": {}, "attention": {"HeadDim": 16, "MaxPositions": 512}}
"""Of the engine under mutation. Rows of two words make every guard of the attention engine reachable: at 96 entries the
waits for scores and for the delay line never come to pass, so a fault in them could not show."""
BUILDS: dict[str, AttentionBuild | None] = {"matvec": None, "attention": AttentionBuild(16, 512)}

EQUIVALENT: dict[str, str] = {
    r"-mode const1 .*-wire mul_valid_q": "an enable that only saves power: what it holds back is not read",
    r"-mode (const0|inv|cnot\d) .*-wire stall_turn_o": "tied to zero in the matrix engine",
    r"-mode inv .*-portbit 1 -wire v_age_q": "11, seen as 9, counts the same eleven cycles down to 0 in another order; "
    "the three that it takes after reset are over before a K word can come",
    r"-mode const0 .*attention\.sv:306\S* -port A -portbit [01] ": "a header comes at least two V words after the last "
    "K word, so these two stages are empty then; with rows of one word, which the other tests have, bit 1 may not be",
}
"""Pattern of a mutation → why no stream could show it. Found by reading the survivors, each proved by its reason."""


@dataclass(frozen=True)
class Mutant:
    """One change: ``mode`` at bit ``bit`` of a cell's port; ``source`` is the line of RTL the cell came from."""

    number: int
    options: str
    source: str
    proof: str = ""

    def equivalent(self) -> str:
        """Why no stream can show it, or ''."""
        if self.proof:
            return self.proof
        for pattern, reason in EQUIVALENT.items():
            if re.search(pattern, f"{self.options} {self.source}"):
                return reason
        return ""


@dataclass(frozen=True)
class Verdict:
    """A mutant and the check that noticed it ("" if none did)."""

    mutant: Mutant
    killer: str


def make_mutants(
    engine: str, count: int, seed: int, netlist: Path, *, deadline: Deadline, log: Path, rtl: Path = RTL
) -> list[Mutant]:
    """Writes a netlist of ``tritforge_<engine>`` with ``count`` mutants in it and returns them, numbered from 1."""
    if not 0 < count < 1 << CTRL_BITS:
        raise ValueError(f"{count} mutants do not fit {CTRL_BITS} bits")
    yosys = find_tool("yosys")
    with tempfile.TemporaryDirectory(prefix="tritforge-mutate-") as scratch:
        work = Path(scratch)
        # Cells are named by their source file: copies, so that no folder of this machine is in a mutant's name.
        for name in RTL_SOURCES[:-1]:
            shutil.copyfile(rtl / name, work / name)
        sources = " ".join(RTL_SOURCES[:-1])
        top = f"tritforge_{engine}"
        parameters = "".join(f" -chparam {name} {value}" for name, value in PARAMETERS[engine].items())
        run_tool(
            [yosys, "-q", "-p",
             f"read_verilog -sv {sources}; hierarchy -top {top}{parameters}; prep -flatten; wreduce; opt -full;"
             f" rename -top {top}; write_ilang design.il"],
            cwd=work, deadline=deadline, log=log,
        )  # fmt: skip
        # Some change nothing: a constant bit tied to what it is. So more are made than are wanted.
        made = count * 3 // 2 + 10
        run_tool(
            [yosys, "-q", "-p", f"read_ilang design.il; mutate -list {made} -seed {seed} -o mutants.txt"],
            cwd=work, deadline=deadline, log=log,
        )  # fmt: skip
        lines = (work / "mutants.txt").read_text().splitlines()
        lines = [line for line in lines if not _changes_nothing(line, work / "design.il")][:count]
        cells = _cells(work / "design.il")
        mutants = []
        script = ["read_ilang design.il"]
        for number, line in enumerate(lines, 1):
            options = line.removeprefix("mutate ")
            source = " ".join(re.findall(r"-src (\S+)", options))
            mutants.append(
                Mutant(number, re.sub(r"-src \S+\s*", "", options).strip(), _place(source), _proof(line, cells))
            )
            script.append(f"mutate -ctrl mutant_i {CTRL_BITS} {number} {options}")
        script.append(f"opt_clean; write_verilog -noattr {netlist.resolve()}")
        (work / "apply.ys").write_text("\n".join(script) + "\n")
        run_tool([yosys, "-q", "apply.ys"], cwd=work, deadline=deadline, log=log)
    if len(mutants) < count:
        raise ToolFailed(f"yosys made {len(mutants)} of {count} mutants that change something", log=log)
    return mutants


def _cells(design: Path) -> dict[str, dict[str, str]]:
    """Cell name → its type (key "type") and the signal at each port, as ilang text."""
    cells: dict[str, dict[str, str]] = {}
    name = ""
    for line in design.read_text().splitlines():
        if found := re.match(r"  cell (\S+) (\S+)", line):
            name = found.group(2)
            cells[name] = {"type": found.group(1)}
        elif name and (found := re.match(r"    connect \\(\S+) (.*)", line)):
            cells[name][found.group(1)] = found.group(2)
        elif name and (found := re.match(r"    parameter \\A_(SIGNED \d)", line)):
            cells[name]["parameters"] = found.group(1)
        elif line.startswith("  end"):
            name = ""
    return cells


def _field(line: str, name: str) -> str:
    found = re.search(rf"-{name} (\S+)", line)
    return found.group(1) if found else ""


def _constant(signal: str) -> str:
    """The bits of a constant, lowest first; '' for anything else."""
    found = re.fullmatch(r"\d+'([01x]+)", signal)
    return found.group(1)[::-1] if found else ""


def _tied(line: str, cells: Mapping[str, Mapping[str, str]]) -> bool:
    cell = cells.get(_field(line, "cell"), {})
    bits = _constant(cell.get(_field(line, "port"), ""))
    at = int(_field(line, "portbit") or 0)
    if at >= len(bits):
        return False
    mode = _field(line, "mode")
    if mode.startswith("const"):
        return bits[at] == mode[-1]
    control = _field(line, "ctrlbit")
    return mode.startswith("cnot") and bits[int(control)] != mode[-1]


def _changes_nothing(line: str, design: Path) -> bool:
    """A constant bit tied to its own value, or inverted under a constant condition that never holds.

    Resets that a memory does not have count too: yosys cannot even write such a netlist. So do clocks, which a
    simulation in cycles does not gate.
    """
    cells = _cells_of(design)
    if _field(line, "port") in ("RD_ARST", "RD_SRST", "RD_CLK", "WR_CLK", "CLK") or _tied(line, cells):
        return True
    return _unused(line, cells, design.read_text())


def _unused(line: str, cells: Mapping[str, Mapping[str, str]], design: str) -> bool:
    """An output bit that nothing reads: yosys made a reset of a multiplexer with zeros and left its output there."""
    port = _field(line, "port")
    wire = cells.get(_field(line, "cell"), {}).get(port, "")
    if port not in ("Y", "Q") or not wire.startswith("$"):
        return False
    at = int(_field(line, "portbit") or 0)
    uses = re.findall(rf"(?<!\S){re.escape(wire)}(?: \[(\d+)(?::(\d+))?\])?(?!\S)", design)
    # The declaration and the output itself name it whole, once each; a use of the whole wire is a third.
    if sum(1 for high, _ in uses if not high) > 2:
        return False
    return not any(int(low or high) <= at <= int(high) for high, low in uses if high)


@cache
def _cells_of(design: Path) -> dict[str, dict[str, str]]:
    return _cells(design)


def _proof(line: str, cells: Mapping[str, Mapping[str, str]]) -> str:
    """Why a conditional inversion inside a comparison is equivalent, or ''.

    ``cnot1`` inverts a bit of an operand where another bit of it is 1. If that other bit must be 0 for the comparison
    to hold, it does not hold in any case in which the inversion acts. So with ``cnot0`` and 1.
    """
    mode = _field(line, "mode")
    cell = cells.get(_field(line, "cell"), {})
    if not mode.startswith("cnot") or _field(line, "port") != "A":
        return ""
    control = int(_field(line, "ctrlbit"))
    wanted = ""
    if cell.get("type") in ("$eq", "$ne"):
        bits = _constant(cell.get("B", ""))
        # yosys leaves the upper zeros of a constant away
        wanted = bits[control] if control < len(bits) else "0" if bits else ""
    elif cell.get("type") in ("$logic_not", "$reduce_or", "$reduce_bool"):
        wanted = "0"
    elif cell.get("type") in ("$gt", "$ge", "$lt", "$le") and "SIGNED 1" not in cell.get("parameters", ""):
        # A bit that is worth more than the constant decides alone.
        bits = _constant(cell.get("B", ""))
        if bits and "x" not in bits and 1 << control > int(bits[::-1], 2):
            wanted = "0"
    if wanted and wanted != mode[-1]:
        return "inverts a bit of a comparison only where another bit already decides it"
    return ""


def _place(source: str) -> str:
    return " ".join(sorted(set(re.findall(r"tritforge_\w+\.sv:\d+", source))))


def judge(
    mutants: Sequence[Mutant], library: Path, checks: dict[str, Check], on_verdict: Callable[[Verdict], None]
) -> list[Verdict]:
    """Runs the checks against each mutant until one notices; the unchanged design must pass them all first."""
    verdicts = []
    with Bench(library) as bench:
        for check in checks.values():
            check(bench)
        for mutant in mutants:
            bench.mutant(mutant.number)
            killer = ""
            for name, check in checks.items():
                try:
                    check(bench)
                except MismatchError:
                    killer = name
                    break
            verdicts.append(Verdict(mutant, killer))
            on_verdict(verdicts[-1])
    return verdicts


def campaign(
    engine: str,
    count: int,
    seed: int,
    *,
    deadline: Deadline,
    log: Path,
    on_verdict: Callable[[Verdict], None] = lambda verdict: None,
) -> list[Verdict]:
    """Makes, compiles and judges mutants of one engine."""
    with tempfile.TemporaryDirectory(prefix="tritforge-campaign-") as scratch:
        netlist, library = Path(scratch) / "mutants.v", Path(scratch) / "mutants.so"
        mutants = make_mutants(engine, count, seed, netlist, deadline=deadline, log=log)
        build_bench(engine, library, netlist=netlist, deadline=deadline, log=log)
        return judge(mutants, library, checks_of(engine, BUILDS[engine]), on_verdict)


def summary(verdicts: Sequence[Verdict]) -> tuple[int, int, list[Verdict]]:
    """(killed, able to show, survivors without a reason)."""
    able = [verdict for verdict in verdicts if verdict.killer or not verdict.mutant.equivalent()]
    survivors = [verdict for verdict in able if not verdict.killer]
    return len(able) - len(survivors), len(able), survivors


def main(arguments: Sequence[str] | None = None) -> int:
    """A campaign from the command line; status 1 when too many survive."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--engine", choices=ENGINES, action="append")
    parser.add_argument("--count", type=int, default=100, help="mutants of each engine")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log", type=Path, default=Path(tempfile.gettempdir()) / "tritforge-mutate.log")
    parser.add_argument("--minutes", type=float, default=60)
    options = parser.parse_args(arguments)
    failed = False
    for engine in options.engine or ENGINES:
        verdicts = campaign(
            engine, options.count, options.seed, deadline=Deadline.after(60 * options.minutes), log=options.log
        )
        killed, able, survivors = summary(verdicts)
        killers: dict[str, int] = {}
        for verdict in verdicts:
            killers[verdict.killer or "none"] = killers.get(verdict.killer or "none", 0) + 1
        print(f"{engine}: {killed} of {able} mutants killed ({killed / max(1, able):.1%}); by check: {killers}")
        for verdict in verdicts:
            if not verdict.killer:
                reason = verdict.mutant.equivalent() or "NO REASON KNOWN"
                print(f"  survived: {verdict.mutant.options} [{verdict.mutant.source}]: {reason}")
        failed = failed or killed < KILLED_SHARE * able
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
