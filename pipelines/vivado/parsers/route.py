"""``report_route_status``: whether every net is routed."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pipelines.vivado.parsers.tables import ReportError


@dataclass(frozen=True)
class RouteStatus:
    """Counts of nets."""

    routable: int
    routed: int
    with_errors: int

    @property
    def complete(self) -> bool:
        return self.routed == self.routable and self.with_errors == 0


def parse(text: str) -> RouteStatus:
    """The counts::

    # of routable nets..................... :       38288 :
        # of fully routed nets............. :       38288 :
    # of nets with routing errors.......... :           0 :
    """
    counts = {name.strip(): int(count) for name, count in re.findall(r"# of ([a-z ]+?)\.+ :\s+(\d+) :", text)}
    try:
        return RouteStatus(counts["routable nets"], counts["fully routed nets"], counts["nets with routing errors"])
    except KeyError as error:
        raise ReportError(f"the route status has no line {error}") from None
