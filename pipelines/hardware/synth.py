"""Resources and logic delay of the circuits by yosys, and an estimate of the whole design.

``synth_xilinx -family xc7`` counts cells; a fresh yosys reads the netlist with the cells' delays and ``sta`` finds the
longest path. Routing is not in it: half of the period is left for that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pipelines.base.command import find_tool, run_tool
from pipelines.base.deadline import Deadline
from pipelines.base.errors import GateError, ToolFailed
from pipelines.base.figure import Figure
from pipelines.hardware.verilate import RTL, RTL_SOURCES

DEVICE_LUTS = 53_200  # XC7Z020
LOGIC_DELAY_NS = 4.0  # of a period of 8 ns

# LUTs that a cell of the library takes (UG474: a RAM32M fills the four LUTs of a SLICEM; an SRL is one LUT).
_LUTS_OF = {
    "INV": 1, "RAM32M": 4, "RAM64M": 4, "RAM32X1D": 2, "RAM64X1D": 2, "RAM32X1S": 1, "RAM64X1S": 1, "SRL16E": 1,
    "SRLC16E": 1, "SRLC32E": 1,
}  # fmt: skip
_FFS = ("FDRE", "FDSE", "FDCE", "FDPE")


@dataclass(frozen=True)
class Usage:
    """Cells of one module. ``luts`` counts logic, distributed RAM and shift registers, as Vivado's report does."""

    luts: int
    ffs: int
    bram36: float
    dsps: int
    delay_ns: float


@dataclass(frozen=True)
class Budget:
    """What a module may take at most."""

    luts: int
    dsps: int
    bram36: float


BUDGETS: Mapping[str, Budget] = {
    "tritforge_matvec": Budget(luts=1_700, dsps=0, bram36=5),
    "tritforge_attention": Budget(luts=2_500, dsps=9, bram36=1),
    "tritforge_control": Budget(luts=800, dsps=0, bram36=0),
}
INSTANCES = {"tritforge_matvec": 2, "tritforge_attention": 2, "tritforge_control": 1}
TOGETHER_SHARE = 0.17  # of the device's LUTs, all engines and the control block

# Estimate of the whole design: ours as yosys counts it, and what stands around any such circuits (four AXI DMAs with
# scatter-gather, their interconnects, reset), which no tool here can build. That part is derived, not measured: the
# reference board's 34 % of the LUTs (Vivado, placed) less its circuits. Of those, the matrix engine took about 1,500
# LUTs a port by the same yosys run as ours; the attention engine's size is not known, and is taken to be ours, since it
# had the same port width and number of multipliers. So the estimate says no more than: 34 %, plus what our matrix
# engines and our control block take more. If the reference's attention engine was 500 LUTs larger or smaller than ours,
# the estimate is 1.9 points lower or higher; yosys and Vivado, which count differently, are mixed in it.
REFERENCE_SHARE = 0.34
REFERENCE_MATVEC_LUTS = 1_500


def surrounding_luts(usages: Mapping[str, Usage]) -> int:
    """LUTs of four AXI DMAs and their interconnects, derived from the reference design."""
    reference_circuits = 2 * REFERENCE_MATVEC_LUTS + 2 * usages["tritforge_attention"].luts
    return round(DEVICE_LUTS * REFERENCE_SHARE) - reference_circuits


def synthesise(module: str, work: Path, *, deadline: Deadline, log: Path, rtl: Path = RTL) -> Usage:
    """Synthesises one module and reads its cells and its longest path. ``work`` gets the netlist and the reports."""
    work.mkdir(parents=True, exist_ok=True)
    netlist, cells, timing = (work / f"{module}{end}" for end in (".v", ".stat", ".sta"))
    sources = " ".join(str(rtl / name) for name in RTL_SOURCES[:-1])
    run_tool(
        [find_tool("yosys"), "-q", "-p",
         f"read_verilog -sv {sources}; synth_xilinx -family xc7 -flatten -abc9 -top {module};"
         f" tee -q -o {cells} stat; write_verilog -noattr {netlist}"],
        deadline=deadline, log=log,
    )  # fmt: skip
    run_tool(
        [find_tool("yosys"), "-q", "-p",
         f"read_verilog -lib -specify +/xilinx/cells_sim.v; read_verilog {netlist}; hierarchy -top {module};"
         f" tee -q -o {timing} sta"],
        deadline=deadline, log=log,
    )  # fmt: skip
    return usage_of(cells.read_text(), timing.read_text())


def usage_of(cells: str, timing: str) -> Usage:
    """Reads the reports of ``stat`` and ``sta``.

    >>> usage_of("     LUT2   528\\n     RAM32M   11\\n     FDRE  876\\n", "Latest arrival time in 'm' is 3780:").luts
    572
    """
    counts = {name: int(count) for name, count in re.findall(r"^\s+([A-Z][A-Z0-9_]*)\s+(\d+)$", cells, re.MULTILINE)}
    latest = re.search(r"Latest arrival time in '[^']*' is (\d+)", timing)
    if not counts or latest is None:
        raise ToolFailed("yosys reported no cells or no arrival time")
    luts = sum(
        count * _LUTS_OF.get(name, 1 if re.fullmatch(r"LUT[1-6]", name) else 0) for name, count in counts.items()
    )
    return Usage(
        luts=luts,
        ffs=sum(counts.get(name, 0) for name in _FFS),
        bram36=counts.get("RAMB36E1", 0) + counts.get("RAMB18E1", 0) / 2,
        dsps=counts.get("DSP48E1", 0),
        delay_ns=int(latest.group(1)) / 1000,
    )


def check_budgets(usages: Mapping[str, Usage]) -> None:
    """Raises GateError naming every module and resource that is over its budget."""
    over = []
    for module, usage in usages.items():
        budget = BUDGETS[module]
        for name, found, most in (
            ("LUTs", usage.luts, budget.luts),
            ("DSPs", usage.dsps, budget.dsps),
            ("block RAMs", usage.bram36, budget.bram36),
            ("ns of logic", usage.delay_ns, LOGIC_DELAY_NS),
        ):
            if found > most:
                over.append(f"{module}: {found} {name}, allowed are {most}")
    if set(usages) == set(BUDGETS):
        share = circuits_luts(usages) / DEVICE_LUTS
        if share > TOGETHER_SHARE:
            over.append(f"together {share:.1%} of the LUTs, allowed are {TOGETHER_SHARE:.0%}")
    if over:
        raise GateError("; ".join(over), hint="pipelines/hardware/synth.py holds the budgets and where they come from")


def circuits_luts(usages: Mapping[str, Usage]) -> int:
    """LUTs of all engines and the control block."""
    return sum(usages[module].luts * count for module, count in INSTANCES.items())


def figures(usages: Mapping[str, Usage]) -> dict[str, Figure]:
    """What is printed and kept in the history: measured by yosys on our sources, so evidence ``model``."""
    found: dict[str, Figure] = {}
    for module, usage in usages.items():
        short = module.removeprefix("tritforge_")
        found[f"{short}_luts"] = Figure(usage.luts, "LUT", "model")
        found[f"{short}_ffs"] = Figure(usage.ffs, "FF", "model")
        found[f"{short}_bram36"] = Figure(usage.bram36, "BRAM36", "model")
        found[f"{short}_dsps"] = Figure(usage.dsps, "DSP", "model")
        found[f"{short}_logic_delay"] = Figure(usage.delay_ns, "ns", "model")
    if set(usages) == set(BUDGETS):
        ours = circuits_luts(usages)
        found["circuits_share"] = Figure(round(100 * ours / DEVICE_LUTS, 1), "% of LUTs", "model")
        found["design_share_estimate"] = Figure(
            round(100 * (ours + surrounding_luts(usages)) / DEVICE_LUTS, 1), "% of LUTs", "model"
        )
        found["design_share_reference"] = Figure(100 * REFERENCE_SHARE, "% of LUTs", "reference")
    return found
