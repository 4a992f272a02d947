"""Texts of reports and logs, in the layout of the version that is played.

ASSUMPTION A09: the layouts follow reports of 2018.3 to 2024.2 as published; only the parts that are parsed are filled.
"""

# ruff: noqa: E501  lines are as long as the tool prints them

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Figures:
    """What the stand-in "measured". Slack in ns, ``None`` where no path exists."""

    wns: float | None
    whs: float | None
    wpws: float | None
    clock: str
    period_ns: float
    no_clock: int = 0
    unsafe: bool = False
    unrouted: int = 0
    drc: list[tuple[str, str, str, int]] = field(default_factory=list)  # rule, severity, description, count
    hierarchy: list[tuple[int, str, str, dict[str, float]]] = field(
        default_factory=list
    )  # depth, instance, module, used
    watts: dict[str, float] = field(default_factory=dict)


@dataclass
class Heading:
    version: str
    date: str
    host: str
    design: str
    device: str
    top: str

    def year(self) -> int:
        return int(self.version[:4])


BUILDS = {
    "2018.3": "Build 2405991 Thu Dec  6 23:36:41 MST 2018",
    "2020.2": "Build 3064766 Wed Nov 18 09:12:47 MST 2020",
    "2022.1": "Build 3526262 Mon Apr 18 15:47:01 MDT 2022",
    "2023.2": "Build 4029153 Fri Oct 13 20:13:54 MDT 2023",
    "2024.1": "Build 5076996 Wed May 22 18:36:09 MDT 2024",
    "2024.2": "Build 5239630 Fri Nov 08 22:34:34 MST 2024",
}


def build_of(version: str) -> str:
    return BUILDS.get(version, "Build 1 Thu Jan  1 00:00:00 MST 1970")


def copyright_lines(version: str) -> list[str]:
    year = int(version[:4])
    if year < 2023:
        return [f"Copyright 1986-{year} Xilinx, Inc. All Rights Reserved."]
    return [
        f"Copyright 1986-2022 Xilinx, Inc. All Rights Reserved. Copyright 2022-{year} Advanced Micro Devices, Inc. "
        "All Rights Reserved."
    ]


def _head(heading: Heading, command: str, extra: list[tuple[str, str]]) -> str:
    device = heading.device if heading.year() >= 2021 else heading.device.removeprefix("xc")
    rows = [
        ("Tool Version", f"Vivado v.{heading.version} (lin64) {build_of(heading.version)}"),
        ("Date", heading.date),
        ("Host", f"{heading.host} running 64-bit Ubuntu 22.04.4 LTS"),
        ("Command", command),
        ("Design", heading.top),
        ("Device", device),
        *extra,
    ]
    width = max(len(name) for name, _ in rows)
    lines = [f"| {name:<{width}} : {value}" for name, value in rows]
    rule = "-" * max(len(line) for line in lines)
    return "\n".join([*copyright_lines(heading.version), rule, *lines, rule]) + "\n"


def _section(title: str) -> str:
    rule = "-" * 96
    return f"\n{rule}\n| {title}\n| {'-' * len(title)}\n{rule}\n"


def _slack(value: float | None, width: int) -> str:
    return f"{value:>{width}.3f}" if value is not None else f"{'NA':>{width}}"


CHECKS = [
    ("no_clock", "register/latch pins with no clock."),
    ("constant_clock", "register/latch pins with constant_clock."),
    ("pulse_width_clock", "register/latch pins which need pulse_width check"),
    ("unconstrained_internal_endpoints", "pins that are not constrained for maximum delay."),
    ("no_input_delay", "input ports with no input delay specified."),
    ("no_output_delay", "ports with no output delay specified."),
    ("multiple_clock", "register/latch pins with multiple clocks."),
    ("generated_clocks", "generated clocks that are not connected to a clock source."),
    ("loops", "combinational loops in the design."),
    ("partial_input_delay", "input ports with partial input delay specified."),
    ("partial_output_delay", "ports with partial output delay specified."),
    ("latch_loops", "combinational latch loops in the design through latch input"),
]

_COLUMNS = (
    "    WNS(ns)      TNS(ns)  TNS Failing Endpoints  TNS Total Endpoints      WHS(ns)      THS(ns)  THS Failing Endpoints"
    "  THS Total Endpoints     WPWS(ns)     TPWS(ns)  TPWS Failing Endpoints  TPWS Total Endpoints  "
)
_RULES = (
    "    -------      -------  ---------------------  -------------------      -------      -------  ---------------------"
    "  -------------------     --------     --------  ----------------------  --------------------  "
)


def _row(f: Figures) -> str:
    def three(slack: float | None, a: int, b: int, c: int, d: int, total: int) -> str:
        bad = slack is not None and slack < 0
        total_slack = (slack or 0) * 3 if bad else 0.0
        return (
            _slack(slack, a) + (f"{total_slack:>{b}.3f}" if slack is not None else f"{'NA':>{b}}")
            + f"{(3 if bad else 0):>{c}}" + f"{(total if slack is not None else 0):>{d}}"
        )  # fmt: skip

    return (
        three(f.wns, 11, 13, 23, 21, 48_211)
        + three(f.whs, 13, 13, 23, 21, 48_211)
        + three(f.wpws, 13, 13, 24, 22, 19_874)
        + "  "
    )


def timing_summary(h: Heading, f: Figures, command: str) -> str:
    counted = h.year() >= 2020
    counts = {"no_clock": f.no_clock}
    text = _head(h, command, [("Speed File", "-1  PRODUCTION 1.12 2019-11-22")]) + "\nTiming Summary Report\n"
    text += _section("Timer Settings")
    text += (
        "\n  Enable Multi Corner Analysis               :  Yes\n  Enable Pessimism Removal                   :  Yes\n"
    )
    if h.year() >= 2020:
        text += _section("Report Methodology")
        text += "\nNo report available as report_methodology has not been run prior.\n"
    text += "\n\ncheck_timing report\n\nTable of Contents\n-----------------\n"
    titles = [
        f"{i}. checking {name}" + (f" ({counts.get(name, 0)})" if counted else "")
        for i, (name, _) in enumerate(CHECKS, 1)
    ]
    text += "\n".join(titles) + "\n"
    for title, (name, sentence) in zip(titles, CHECKS, strict=True):
        n = counts.get(name, 0)
        verb, noun = ("is", sentence.replace("pins", "pin", 1)) if n == 1 else ("are", sentence)
        text += f"\n{title}\n{'-' * len(title)}\n There {verb} {n} {noun}{' (HIGH)' if n else ''}\n\n"
    text += _section("Design Timing Summary") + f"\n{_COLUMNS}\n{_RULES}\n{_row(f)}\n\n\n"
    met = all(s is not None and s >= 0 for s in (f.wns, f.whs, f.wpws))
    text += "All user specified timing constraints are met.\n" if met else "Timing constraints are not met.\n"
    text += _section("Clock Summary")
    text += "\nClock       Waveform(ns)         Period(ns)      Frequency(MHz)\n-----       ------------         ----------      --------------\n"
    text += (
        f"{f.clock:<10}  {{0.000 {f.period_ns / 2:.3f}}}        {f.period_ns:<14.3f}  {1000 / f.period_ns:<14.3f}  \n\n"
    )
    text += _section("Intra Clock Table")
    text += f"\nClock       {_COLUMNS}\n-----       {_RULES}\n{f.clock:<10}  {_row(f)}\n\n"
    text += _section("Timing Details")
    if f.wns is not None:
        text += (
            f"\n\nMax Delay Paths\n{'-' * 86}\n"
            f"Slack ({'MET' if f.wns >= 0 else 'VIOLATED'}) :        {f.wns:.3f}ns  (required time - arrival time)\n"
            "  Source:                 tritforge_system_i/dma_matvec0/U0/GEN_MM2S/length_counter_reg[3]/C\n"
            f"                            (rising edge-triggered cell FDRE clocked by {f.clock}  "
            f"{{rise@0.000ns fall@{f.period_ns / 2:.3f}ns period={f.period_ns:.3f}ns}})\n"
            "  Destination:            tritforge_system_i/dma_matvec0/U0/GEN_MM2S/length_counter_reg[22]/D\n"
            f"                            (rising edge-triggered cell FDRE clocked by {f.clock}  "
            f"{{rise@0.000ns fall@{f.period_ns / 2:.3f}ns period={f.period_ns:.3f}ns}})\n"
            f"  Path Group:             {f.clock}\n  Path Type:              Setup (Max at Slow Process Corner)\n"
            f"  Requirement:            {f.period_ns:.3f}ns  ({f.clock} rise@{f.period_ns:.3f}ns - {f.clock} rise@0.000ns)\n"
            f"  Data Path Delay:        {f.period_ns - f.wns - 0.2:.3f}ns  (logic 3.125ns (42.000%)  route 4.315ns (58.000%))\n"
            "  Logic Levels:           9  (CARRY4=6 LUT3=1 LUT6=2)\n"
        )
    if f.whs is not None:
        text += (
            f"\n\nMin Delay Paths\n{'-' * 86}\n"
            f"Slack ({'MET' if f.whs >= 0 else 'VIOLATED'}) :        {f.whs:.3f}ns  (arrival time - required time)\n"
            "  Source:                 tritforge_system_i/shell/inst/result_q_reg[7]/C\n"
            "  Destination:            tritforge_system_i/dma_attention1/U0/fifo_reg/DIA0\n"
        )
    return text


def clocks(h: Heading, f: Figures, command: str) -> str:
    return (
        _head(h, command, [])
        + "\nClock Report\n\n\nAttributes\n  P: Propagated\n  G: Generated\n  A: Auto-derived\n  R: Renamed\n\n"
        + "Clock       Period(ns)  Waveform(ns)         Attributes  Sources\n"
        + f"{f.clock:<10}  {f.period_ns:<10.3f}  {{0.000 {f.period_ns / 2:.3f}}}        P           "
        + "{tritforge_system_i/ps7/inst/PS7_i/FCLKCLK[0]}\n\n"
        + "====================================================\nGenerated Clocks\n"
        + "====================================================\n\n\n"
        + "====================================================\nUser Uncertainty\n"
        + "====================================================\n"
    )


def _dashed(columns: list[tuple[str, int]], rows: list[list[str]]) -> str:
    head = "  ".join(f"{name:<{width}}" for name, width in columns)
    rule = "  ".join("-" * width for _, width in columns)
    body = "\n".join(
        "  ".join(f"{cell:<{width}}" for cell, (_, width) in zip(row, columns, strict=True)) for row in rows
    )
    return f"{head}\n{rule}\n{body}\n"


def clock_interaction(h: Heading, f: Figures, command: str) -> str:
    columns = [
        ("From Clock", 10), ("To Clock", 10), ("WNS Clock Edges", 15), ("WNS(ns)", 7), ("TNS(ns)", 7),
        ("TNS Failing Endpoints", 21), ("TNS Total Endpoints", 19), ("WNS Path Requirement(ns)", 24),
        ("Common Primary Clock", 20), ("Inter-Clock Constraints", 23),
    ]  # fmt: skip
    rows = [
        [
            f.clock, f.clock, "rise - rise", "" if f.wns is None else f"{f.wns:.2f}", "0.00", "0", "48211",
            f"{f.period_ns:.2f}", "Yes", "Timed",
        ]
    ]  # fmt: skip
    if f.unsafe:
        rows.append([f.clock, "clk_fpga_1", "rise - rise", "0.91", "0.00", "0", "12", "0.00", "No", "Timed (unsafe)"])
    return (
        _head(h, command, [("Temperature Grade", "C")] if h.year() >= 2020 else [])
        + "\nClock Interaction Report\n\nClock Interaction Table\n-----------------------\n\n"
        + _dashed(columns, rows)
    )


def cdc(h: Heading, f: Figures, command: str) -> str:
    text = _head(h, command, [("Speed File", "-1  PRODUCTION 1.12 2019-11-22")]) + "\nCDC Report\n\n"
    columns = [
        ("Severity", 8), ("Source Clock", 12), ("Destination Clock", 17), ("CDC Type", 20), ("Exceptions", 10),
        ("Endpoints", 9), ("Safe", 4), ("Unsafe", 6), ("Unknown", 7), ("No ASYNC_REG", 12),
    ]  # fmt: skip
    rows = [["Info", "input port clock", f.clock, "No Common Clock", "False Path", "1", "1", "0", "0", "0"]]
    if f.unsafe:
        rows.append(["Critical", f.clock, "clk_fpga_1", "No Common Primary Clock", "None", "12", "0", "12", "0", "12"])
    widths = [max(len(name), width, *(len(row[i]) for row in rows)) for i, (name, width) in enumerate(columns)]
    return text + _dashed([(name, w) for (name, _), w in zip(columns, widths, strict=True)], rows)


def _box(header: list[str], rows: list[list[str]], left: int = 1) -> str:
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    rule = "+" + "+".join("-" * (w + 2) for w in widths) + "+"

    def line(cells: list[str], center: bool = False) -> str:
        parts = []
        for i, (cell, width) in enumerate(zip(cells, widths, strict=True)):
            parts.append(f" {cell:^{width}} " if center else f" {cell:<{width}} " if i < left else f" {cell:>{width}} ")
        return "|" + "|".join(parts) + "|"

    return "\n".join([rule, line(header, center=True), rule, *(line(row) for row in rows), rule]) + "\n"


def _total(f: Figures, key: str) -> float:
    return sum(used[key] for depth, _, _, used in f.hierarchy if depth == 0)


AVAILABLE = {"lut": 53_200, "ff": 106_400, "bram36": 140, "dsp": 220}


def utilization(h: Heading, f: Figures, command: str) -> str:
    prohibited = h.year() >= 2021
    header = ["Site Type", "Used", "Fixed", *(["Prohibited"] if prohibited else []), "Available", "Util%"]

    def row(name: str, used: float, available: int | None) -> list[str]:
        shown = f"{used:g}"
        if available is None:
            return [name, shown, "", *([""] if prohibited else []), "", ""]
        return [name, shown, "0", *(["0"] if prohibited else []), str(available), f"{100 * used / available:.2f}"]

    lut, ff = _total(f, "lut"), _total(f, "ff")
    bram, dsp = _total(f, "bram36"), _total(f, "dsp")
    whole = int(bram) - 2
    text = _head(h, command, [*([("Speed File", "-1")] if h.year() >= 2021 else []), ("Design State", "Routed")])
    text += (
        "\nUtilization Design Information\n\nTable of Contents\n-----------------\n1. Slice Logic\n2. Memory\n3. DSP\n"
    )
    text += "\n1. Slice Logic\n--------------\n\n"
    text += _box(header, [
        row("Slice LUTs", lut, AVAILABLE["lut"]), row("  LUT as Logic", lut - 900, AVAILABLE["lut"]),
        row("  LUT as Memory", 900, 17_400), row("Slice Registers", ff, AVAILABLE["ff"]),
        row("  Register as Flip Flop", ff, AVAILABLE["ff"]), row("  Register as Latch", 0, AVAILABLE["ff"]),
    ])  # fmt: skip
    text += "\n\n2. Memory\n---------\n\n"
    text += _box(header, [
        row("Block RAM Tile", bram, AVAILABLE["bram36"]), row("  RAMB36/FIFO*", whole, AVAILABLE["bram36"]),
        row("    RAMB36E1 only", whole, None), row("  RAMB18", 2 * (bram - whole), 280),
    ])  # fmt: skip
    text += "* Note: Each Block RAM Tile only has one FIFO logic available.\n"
    text += "\n\n3. DSP\n------\n\n" + _box(
        header, [row("DSPs", dsp, AVAILABLE["dsp"]), row("  DSP48E1 only", dsp, None)]
    )
    return text


def utilization_hierarchical(h: Heading, f: Figures, command: str) -> str:
    dsp = "DSP Blocks" if h.year() >= 2020 else "DSP48 Blocks"
    header = ["Instance", "Module", "Total LUTs", "Logic LUTs", "LUTRAMs", "SRLs", "FFs", "RAMB36", "RAMB18", dsp]
    rows = []
    for depth, instance, module, used in f.hierarchy:
        whole, halves = int(used["bram36"]), int(2 * (used["bram36"] - int(used["bram36"])))
        numbers = [used["lut"], used["lut"] * 0.95 // 1, used["lut"] * 0.03 // 1, used["lut"] * 0.02 // 1, used["ff"]]
        rows.append(
            [
                "  " * depth + instance,
                module,
                *(f"{int(n)}" for n in numbers),
                str(whole),
                str(halves),
                f"{int(used['dsp'])}",
            ]
        )
    return (
        _head(h, command, [("Design State", "Routed")])
        + "\nUtilization Design Information\n\nTable of Contents\n-----------------\n1. Utilization by Hierarchy\n"
        + "\n1. Utilization by Hierarchy\n---------------------------\n\n"
        + _box(header, rows, left=2)
        + "* Note: The sum of lower-level cells may be larger than their parent cells total, due to cross-hierarchy LUT combining\n"
    )


def power(h: Heading, f: Figures, command: str) -> str:
    total = f.watts["dynamic"] + f.watts["static"]

    def two(rows: list[tuple[str, str]]) -> str:
        widths = [max(len(r[i]) for r in rows) for i in (0, 1)]
        rule = "+" + "+".join("-" * (w + 2) for w in widths) + "+"
        return "\n".join([rule, *(f"| {a:<{widths[0]}} | {b:<{widths[1]}} |" for a, b in rows), rule]) + "\n"

    text = _head(h, command, [("Design State", "routed"), ("Grade", "commercial"), ("Process", "typical")])
    text += "\nPower Report\n\n1. Summary\n----------\n\n"
    text += two([
        ("Total On-Chip Power (W)", f"{total:.3f}"), ("Design Power Budget (W)", "Unspecified*"),
        ("Power Budget Margin (W)", "NA"), ("Dynamic (W)", f"{f.watts['dynamic']:.3f}"),
        ("Device Static (W)", f"{f.watts['static']:.3f}"), ("Effective TJA (C/W)", "11.5"),
        ("Max Ambient (C)", f"{85 - 11.5 * total:.1f}"), ("Junction Temperature (C)", f"{25 + 11.5 * total:.1f}"),
        ("Confidence Level", "Low"),
    ])  # fmt: skip
    text += "\n\n1.1 On-Chip Components\n----------------------\n\n"
    text += _box(["On-Chip", "Power (W)", "Used", "Available", "Utilization (%)"], [
        ["Clocks", "0.080", "3", "---", "---"], ["Slice Logic", "<0.001", "61234", "---", "---"],
        ["PS7", "1.256", "1", "---", "---"], ["Static Power", f"{f.watts['static']:.3f}", "", "", ""],
        ["Total", f"{total:.3f}", "", "", ""],
    ])  # fmt: skip
    return text


def drc(h: Heading, f: Figures, command: str, title: str = "Report DRC") -> str:
    text = _head(h, command, [("Speed File", "-1"), ("Design State", "Fully Routed")])
    text += f"\n{title}\n\nTable of Contents\n-----------------\n1. REPORT SUMMARY\n2. REPORT DETAILS\n\n1. REPORT SUMMARY\n-----------------\n"
    text += (
        "            Netlist: netlist\n          Floorplan: design_1\n      Design limits: <entire design considered>\n"
    )
    text += f"           Ruledeck: default\n             Max violations: <unlimited>\n             Violations found: {sum(r[3] for r in f.drc)}\n"
    if f.drc:
        text += _box(
            ["Rule", "Severity", "Description", "Violations"], [[a, b, c, str(d)] for a, b, c, d in f.drc], left=4
        )
    text += "\n2. REPORT DETAILS\n-----------------\n"
    for rule, severity, description, count in f.drc:
        for i in range(count):
            text += (
                f"{rule}#{i + 1} {severity}\n{description}  \nSomething about {rule}.\nRelated violations: <none>\n\n"
            )
    return text


def route_status(h: Heading, f: Figures, command: str) -> str:
    return (
        "Design Route Status\n"
        "                                               :      # nets :\n"
        "   ------------------------------------------- : ----------- :\n"
        "   # of logical nets.......................... :       52311 :\n"
        "       # of nets not needing routing.......... :       14023 :\n"
        "       # of routable nets..................... :       38288 :\n"
        f"           # of fully routed nets............. :       {38288 - f.unrouted} :\n"
        + (f"           # of unrouted nets................. :       {f.unrouted} :\n" if f.unrouted else "")
        + f"       # of nets with routing errors.......... :       {f.unrouted:>5} :\n"
        "   ------------------------------------------- : ----------- :\n"
    )


# Steps and phases of an implementation run, as its log names them.
PHASES = {
    "opt_design": ["1 Retarget", "2 Constant propagation", "3 Sweep", "4 BUFG optimization", "5 Shift Register Optimization"],
    "place_design": [
        "1.1 Placer Initialization Netlist Sorting", "1.2 IO Placement/ Clock Placement/ Build Placer Device",
        "1.3 Build Placer Netlist Model", "2.1 Floorplanning", "2.2 Global Placement Core", "3.1 Commit Multi Column Macros",
        "3.2 Detail Placement", "4.1 Post Commit Optimization",
    ],
    "phys_opt_design": ["1 Physical Synthesis Initialization", "2 DSP Register Optimization", "3 Critical Path Optimization"],
    "route_design": [
        "1 Build RT Design", "2.1 Fix Topology Constraints", "2.2 Pre Route Cleanup", "2.3 Update Timing",
        "3 Initial Routing", "4.1 Global Iteration 0", "5.1 Delay CleanUp", "6.1 Hold Fix Iter", "7 Route finalize",
        "8 Verifying routed nets", "9 Depositing Routes", "10 Post Router Timing",
    ],
}  # fmt: skip
TASKS = {
    "opt_design": "Logic Optimization",
    "place_design": "Placer",
    "phys_opt_design": "Physical Synthesis",
    "route_design": "Routing",
}


def run_banner(version: str, run: str, top: str) -> str:
    return (
        f"\n*** Running vivado\n    with args -log {top}.vdi -applog -m64 -product Vivado -messageDb vivado.pb -mode batch "
        f"-source {top}.tcl -notrace\n\n\n****** Vivado v{version} (64-bit)\n  **** SW {build_of(version)}\n"
        + "".join(f"    ** {line}\n" for line in copyright_lines(version))
        + f"\nsource {top}.tcl -notrace\n"
    )
