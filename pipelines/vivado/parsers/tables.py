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
    """Rows of the first table whose columns are marked by dashes; a cell lies under its column's name and dashes::

        Clock       Waveform(ns)         Period(ns)      Frequency(MHz)
        -----       ------------         ----------      --------------
        clk_fpga_0  {0.000 4.000}        8.000           125.000

    Column names are single-spaced; a row ends the table when it is empty.
    """
    lines = text.splitlines()
    for i, line in enumerate(lines[:-1]):
        if not line.strip().startswith(first_column) or not re.fullmatch(r"[\s-]*--[\s-]*", lines[i + 1]):
            continue
        starts = [match.start() for match in re.finditer(r"-+", lines[i + 1])]
        rows = []
        for row in lines[i + 2 :]:
            if not row.strip():
                break
            rows.append(_cells(line, starts, row))
        return rows
    raise ReportError(f"a table with the column '{first_column}' is not in the report")


def _cells(header: str, starts: list[int], row: str) -> dict[str, str]:
    spans = list(zip(starts, [*starts[1:], max(len(header), len(row)) + 1], strict=True))
    return {header[a:b].strip(): row[a:b].strip() for a, b in spans}


def number(text: str) -> float | None:
    """``3.785``, ``<0.001`` (counted as its bound), None for ``NA`` and nothing."""
    text = text.strip().lstrip("<")
    if text in ("", "NA", "---", "inf"):
        return None
    try:
        return float(text)
    except ValueError:
        raise ReportError(f"a number was expected in a report, found {text!r}") from None
