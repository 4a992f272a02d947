"""``report_timing_summary``: slack of setup, hold and pulse width, the worst path, and what has no clock."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pipelines.vivado.parsers.tables import ReportError, number


@dataclass(frozen=True)
class Path:
    """One timing path, as far as a person needs it to start looking."""

    kind: str  # setup | hold
    slack_ns: float
    source: str
    destination: str
    logic_levels: str

    def __str__(self) -> str:
        levels = f", {self.logic_levels} levels of logic" if self.logic_levels else ""
        return f"{self.source} -> {self.destination}{levels}"


@dataclass(frozen=True)
class Timing:
    """Slack in ns; None where the report says there is no path."""

    setup_slack_ns: float | None
    hold_slack_ns: float | None
    pulse_width_slack_ns: float | None
    failing_endpoints: int
    endpoints: int
    unclocked_registers: int
    unconstrained_endpoints: int
    combinational_loops: int
    paths: tuple[Path, ...]

    def worst(self, kind: str) -> Path | None:
        return min((p for p in self.paths if p.kind == kind), key=lambda p: p.slack_ns, default=None)


def parse(text: str) -> Timing:
    """The whole report. The row it stands on::

    WNS(ns)      TNS(ns)  TNS Failing Endpoints  TNS Total Endpoints      WHS(ns) …     WPWS(ns) …
    -------      -------  ---------------------  -------------------      ------- …     -------- …
     -2.935    -3810.337                   6353                26138        0.056 …       -0.667 …
    """
    summary = re.search(r"^\| Design Timing Summary.*?^\s*WNS\(ns\)[^\n]*\n[\s-]+\n([^\n]*)$", text, re.M | re.S)
    if summary is None:
        raise ReportError("the report has no Design Timing Summary")
    # An empty cell of a column cannot be told from a narrow one, so the row must have all twelve, NA included.
    cells = summary[1].split()
    if len(cells) != 12:
        raise ReportError(f"the Design Timing Summary has {len(cells)} values instead of 12: {summary[1].strip()!r}")
    values = [number(cell) for cell in cells]
    failing = sum(int(values[i] or 0) for i in (2, 6, 10))
    return Timing(
        setup_slack_ns=values[0],
        hold_slack_ns=values[4],
        pulse_width_slack_ns=values[8],
        failing_endpoints=failing,
        endpoints=int(values[3] or 0),
        unclocked_registers=_check(text, "no_clock"),
        unconstrained_endpoints=_check(text, "unconstrained_internal_endpoints"),
        combinational_loops=_check(text, "loops"),
        paths=tuple(_paths(text)),
    )


def _check(text: str, name: str) -> int:
    """Sum of the numbers below a heading of ``check_timing``; 2020 and later repeat it in the heading::

    1. checking no_clock (12)
    -------------------------
     There are 12 register/latch pins with no clock driven by root clock pin: ps7/FCLK_CLK1 (HIGH)
    """
    section = re.search(
        rf"^\d+\. checking {name}(?: \(\d+\))?\n-+\n(.*?)(?=^\d+\. checking |^-{{90,}}|\Z)", text, re.M | re.S
    )
    if section is None:
        raise ReportError(f"check_timing did not look at {name}")
    first = section[1].split("\n\n", 1)[0] if name == "unconstrained_internal_endpoints" else section[1]
    counts = [int(count) for count in re.findall(r"^ There (?:are|is) (\d+) ", first, re.M)]
    if not counts:
        raise ReportError(f"check_timing has no count for {name}")
    return sum(counts)


def _paths(text: str) -> list[Path]:
    """Paths of the detail section::

    Slack (VIOLATED) :        -0.214ns  (required time - arrival time)
      Source:                 a/counter_reg[3]/C
      Destination:            a/counter_reg[22]/D
      Logic Levels:           9  (CARRY4=6 LUT3=1 LUT6=2)
    """
    found = []
    pattern = re.compile(
        r"^Slack(?: \((?:MET|VIOLATED)\))? ?:\s+(-?[\d.]+)ns  "
        r"\((required time - arrival time|arrival time - required time)\)\n"
        r"  Source:\s+(\S+)\n(?:\s+\(.*\n)?  Destination:\s+(\S+)\n((?:  .*\n)*)",
        re.M,
    )
    for match in pattern.finditer(text):
        levels = re.search(r"^  Logic Levels:\s+(\S+)", match[5], re.M)
        kind = "setup" if match[2].startswith("required") else "hold"
        found.append(Path(kind, float(match[1]), match[3], match[4], levels[1] if levels else ""))
    return found
