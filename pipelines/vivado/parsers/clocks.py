"""``report_clocks`` and ``report_clock_interaction``: which clocks there are, and how they meet."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.vivado.parsers.tables import ReportError, dashed_table, number


@dataclass(frozen=True)
class Clock:
    """A clock of the design."""

    name: str
    period_ns: float

    @property
    def mhz(self) -> float:
        return 1000 / self.period_ns


@dataclass(frozen=True)
class Crossing:
    """Paths from one clock to another."""

    source: str
    destination: str
    endpoints: int
    constraints: str  # Timed, Timed (unsafe), False Path …

    @property
    def unsafe(self) -> bool:
        return "unsafe" in self.constraints.lower()


def parse(text: str) -> list[Clock]:
    """All clocks::

        Clock       Period(ns)  Waveform(ns)   Attributes  Sources
        clk_fpga_0  8.000       {0.000 4.000}  P           {tritforge_system_i/ps7/inst/PS7_i/FCLKCLK[0]}

    The heading has a line of dashes only from 2020 on; a row is a name and a number in any case.
    """
    clocks = []
    inside = False
    for line in text.splitlines():
        if line.startswith("Clock") and "Period(ns)" in line:
            inside = True
            continue
        if not inside:
            continue
        words = line.split()
        if not words:
            break
        if set(line.strip()) <= {"-", " "}:
            continue
        try:
            clocks.append(Clock(words[0], float(words[1])))
        except (IndexError, ValueError):
            raise ReportError(f"a line of the clock report cannot be read: {line!r}") from None
    if not clocks:
        raise ReportError("the clock report names no clock")
    return clocks


def parse_interaction(text: str) -> list[Crossing]:
    """Pairs of clocks; the last column says whether the paths between them can be trusted::

    From Clock  To Clock    …  TNS Total Endpoints  …  Common Primary Clock  Inter-Clock Constraints
    ----------  ----------  …  -------------------  …  --------------------  -----------------------
    clk_fpga_0  clk_fpga_1  …  12                   …  No                    Timed (unsafe)
    """
    rows = dashed_table(text, "From Clock")
    crossings = []
    for row in rows:
        constraints = next((value for name, value in row.items() if name.startswith("Inter-Clock")), None)
        if constraints is None:
            raise ReportError("the clock interaction report has no column of constraints")
        total = next((value for name, value in row.items() if "Total Endpoints" in name), "")
        crossings.append(Crossing(row["From Clock"], row["To Clock"], int(number(total) or 0), constraints))
    return crossings
