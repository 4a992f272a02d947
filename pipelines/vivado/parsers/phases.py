"""Checksums that an implementation run logs after each phase."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Phase:
    """``Phase 2.1 Fix Topology Constraints | Checksum: 1f0c9a3b`` of ``route_design``."""

    step: str
    name: str
    checksum: str

    def __str__(self) -> str:
        return f"{self.step}: {self.name}"


def parse(log: str) -> list[Phase]:
    """All phases of a ``runme.log`` in order. The step is the command the phase belongs to::

    Command: route_design -directive Explore
    Starting Routing Task
    Phase 1 Build RT Design
    Phase 1 Build RT Design | Checksum: 8b0f1e2d
    Ending Routing Task | Checksum: 8b0f1e2d
    """
    phases = []
    step = ""
    for line in log.splitlines():
        command = re.match(r"Command: (\w+)", line)
        if command:
            step = command[1]
            continue
        match = re.match(r"(?:Phase|Ending) (.*?)\s*\| Checksum: ([0-9A-Fa-f]+)\s*$", line)
        if match:
            name = re.sub(r"^[\d.]+ ", "", match[1])
            phases.append(Phase(step, f"end of {name}" if line.startswith("Ending") else name, match[2].lower()))
    return phases
