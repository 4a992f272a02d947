"""``report_drc`` and ``report_methodology``: rules and how often they are violated."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pipelines.vivado.parsers.tables import ReportError, box_table


@dataclass(frozen=True)
class Violation:
    """One rule, with its number of violations."""

    rule: str
    severity: str  # Advisory, Warning, Critical Warning, Error
    description: str
    count: int

    @property
    def serious(self) -> bool:
        return self.severity in ("Error", "Critical Warning", "Fatal")


def parse(text: str) -> list[Violation]:
    """The summary table, held against the number above it::

                 Violations found: 1
    +-----------+----------+-------------------+------------+
    | Rule      | Severity | Description       | Violations |
    +-----------+----------+-------------------+------------+
    | RTSTAT-10 | Warning  | No routable loads | 1          |
    """
    stated = re.search(r"^\s*(?:Violations|Checks) found: (\d+)\s*$", text, re.M)
    if stated is None:
        raise ReportError("the report does not say how many violations it found")
    if int(stated[1]) == 0:
        return []
    violations = [
        Violation(row["Rule"], row["Severity"], row["Description"], int(row.get("Violations", row.get("Checks", ""))))
        for row in box_table(text, "Rule")
    ]
    if sum(v.count for v in violations) != int(stated[1]):
        raise ReportError(f"the report says {stated[1]} violations, its table has {sum(v.count for v in violations)}")
    return violations
