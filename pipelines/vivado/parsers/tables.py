"""The two kinds of tables in Vivado's reports, and the heading above them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from pipelines.base.errors import ToolFailed


class ReportError(ToolFailed):
    """A report is empty, cut off, or not the one it should be."""


@dataclass(frozen=True)
class Heading:
    """Who made a report, when (the clock of the machine it was made on), of what."""

    version: str
    date: datetime
    command: str
    design: str


def heading(text: str) -> Heading:
    """The block on top of a report::

    | Tool Version : Vivado v.2020.2 (lin64) Build 3064766 Wed Nov 18 09:12:47 MST 2020
    | Date         : Mon Oct 25 11:41:45 2021
    | Command      : report_utilization -file utilization.rpt
    | Design       : tritforge_system_wrapper
    """
    fields = dict(re.findall(r"^\| (Tool Version|Date|Command|Design)\s*: (.*?)\s*$", text, re.M))
    version = re.search(r"Vivado v\.?(\d{4}\.\d(?:\.\d)?)", fields.get("Tool Version", ""))
    if version is None or "Date" not in fields:
        raise ReportError(f"not a report of Vivado: it begins with {text[:60]!r}")
    try:
        date = datetime.strptime(" ".join(fields["Date"].split()), "%a %b %d %H:%M:%S %Y")
    except ValueError:
        raise ReportError(f"a report's date cannot be read: {fields['Date']!r}") from None
    return Heading(version[1], date, fields.get("Command", ""), fields.get("Design", ""))


def box_table(text: str, first_column: str) -> list[dict[str, str]]:
    """Rows of the first table in boxes whose first column has this name; names are kept with their indentation::

    +-------------+-------+-------+-----------+-------+
    |  Site Type  |  Used | Fixed | Available | Util% |
    +-------------+-------+-------+-----------+-------+
    | Slice LUTs  | 27172 |     0 |     63400 | 42.86 |
    +-------------+-------+-------+-----------+-------+
    """
    columns: list[str] = []
    rows: list[dict[str, str]] = []
    for line in text.splitlines():
        if not line.startswith("|"):
            if columns and not line.startswith("+"):
                break
            continue
        cells = line.rstrip().strip("|").split("|")
        if not columns:
            if cells[0].strip() == first_column:
                columns = [cell.strip() for cell in cells]
            continue
        if len(cells) == len(columns):
            rows.append(
                {columns[0]: cells[0][1:].rstrip()}
                | {c: v.strip() for c, v in zip(columns[1:], cells[1:], strict=True)}
            )
    if not columns:
        raise ReportError(f"a table with the column '{first_column}' is not in the report")
    return rows


def dashed_table(text: str, first_column: str) -> list[dict[str, str]]:
    """Rows of the first table whose columns are marked by dashes; a cell lies under its column's dashes. The names may
    take several lines, read from top to bottom::

                                TNS Total  Inter-Clock
        From Clock  To Clock    Endpoints  Constraints
        ----------  ----------  ---------  --------------
        clk_fpga_0  clk_fpga_0       9122  Timed
        clk_fpga_0  sensor_clk         17  Timed (unsafe)

    An empty line ends the table.
    """
    lines = text.splitlines()
    for i, line in enumerate(lines):
        if i == 0 or not re.fullmatch(r"\s*-+(\s+-+)*\s*", line) or not lines[i - 1].strip().startswith(first_column):
            continue
        top = i
        while top > 0 and lines[top - 1].strip():
            top -= 1
        starts = [match.start() for match in re.finditer(r"-+", line)]
        names = [
            " ".join(part for part in parts if part)
            for parts in zip(*(_cells(h, starts) for h in lines[top:i]), strict=True)
        ]
        rows = []
        for row in lines[i + 1 :]:
            if not row.strip():
                break
            rows.append(dict(zip(names, _cells(row, starts), strict=True)))
        return rows
    raise ReportError(f"a table with the column '{first_column}' is not in the report")


def _cells(line: str, starts: list[int]) -> list[str]:
    return [line[a:b].strip() for a, b in zip(starts, [*starts[1:], max(len(line), starts[-1]) + 1], strict=True)]


def number(text: str) -> float | None:
    """``3.785``, ``<0.001`` (counted as its bound), None for ``NA`` and nothing."""
    text = text.strip().lstrip("<")
    if text in ("", "NA", "---", "inf"):
        return None
    try:
        return float(text)
    except ValueError:
        raise ReportError(f"a number was expected in a report, found {text!r}") from None
