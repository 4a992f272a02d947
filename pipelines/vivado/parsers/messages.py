"""Messages in logs of the tool and of its runs."""

from __future__ import annotations

import re
from dataclasses import dataclass

_MESSAGE = re.compile(r"^(ERROR|CRITICAL WARNING): (?:\[([A-Za-z_]+(?: [\w-]+)*)\] )?(.*)$")


@dataclass(frozen=True)
class Message:
    """``CRITICAL WARNING: [Timing 38-282] The design failed to meet …`` of one log."""

    severity: str  # ERROR | CRITICAL WARNING
    id: str  # "Timing 38-282"; empty when the tool gave none
    text: str
    log: str = ""

    def __str__(self) -> str:
        return f"{self.severity}: [{self.id}] {self.text}" if self.id else f"{self.severity}: {self.text}"


def parse(text: str, log: str = "") -> list[Message]:
    """Errors and critical warnings, in order; other messages are of no consequence to a build."""
    return [
        Message(match[1], match[2] or "", match[3].strip(), log)
        for line in text.splitlines()
        if (match := _MESSAGE.match(line))
    ]
