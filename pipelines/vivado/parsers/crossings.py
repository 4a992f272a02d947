"""``report_cdc``: how signals cross from one clock to another."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.vivado.parsers.tables import ReportError, dashed_table, number


@dataclass(frozen=True)
class Cdc:
    """One pair of clocks."""

    severity: str  # Info, Warning, Critical
    source: str
    destination: str
    unsafe: int
    unknown: int


def parse(text: str) -> list[Cdc]:
    """The summary; a design with one clock and no asynchronous input has none, and says so::

    Severity  Source Clock  Destination Clock  CDC Type                 …  Endpoints  Safe  Unsafe  Unknown  …
    --------  ------------  -----------------  -----------------------  …  ---------  ----  ------  -------  …
    Critical  clk_fpga_0    clk_fpga_1         No Common Primary Clock  …  12         0     12      0        …
    """
    if "CDC Report" not in text:
        raise ReportError("this is not a CDC report")
    if "Severity" not in text:
        return []
    return [
        Cdc(
            row["Severity"],
            row["Source Clock"],
            row["Destination Clock"],
            int(number(row["Unsafe"]) or 0),
            int(number(row["Unknown"]) or 0),
        )
        for row in dashed_table(text, "Severity")
    ]
