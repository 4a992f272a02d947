"""``report_power``: an estimate, and how much Vivado trusts it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pipelines.vivado.parsers.tables import ReportError, number


@dataclass(frozen=True)
class Power:
    """Watts and degrees Celsius, estimated by the tool without switching activity of ours."""

    total_w: float
    dynamic_w: float
    static_w: float
    junction_c: float
    confidence: str


def parse(text: str) -> Power:
    """The summary::

    | Total On-Chip Power (W)  | 1.945        |
    | Dynamic (W)              | 1.827        |
    | Device Static (W)        | 0.118        |
    | Junction Temperature (C) | 33.9         |
    | Confidence Level         | Low          |
    """
    rows = dict(re.findall(r"^\| ([A-Z][\w ()/-]*?)\s*\| (\S+)\s*\|$", text, re.M))

    def value(name: str) -> float:
        found = number(rows.get(name, ""))
        if found is None:
            raise ReportError(f"the power report has no '{name}'")
        return found

    if "Confidence Level" not in rows:
        raise ReportError("the power report has no 'Confidence Level'")
    return Power(
        total_w=value("Total On-Chip Power (W)"),
        dynamic_w=value("Dynamic (W)"),
        static_w=value("Device Static (W)"),
        junction_c=value("Junction Temperature (C)"),
        confidence=rows["Confidence Level"],
    )
