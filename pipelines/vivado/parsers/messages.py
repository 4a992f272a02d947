"""Messages in logs of the tool and of its runs."""

from __future__ import annotations

import re
from dataclasses import dataclass

MESSAGE_ID = r"[A-Za-z_][\w.:]*(?:-\d+|(?: [\w.:-]+)+)?"
"""``Timing 38-282``, ``xilinx.com:ip:axi_dma:7.1-1`` of a core's own scripts, ``PSU-1`` of the processing system's."""

_MESSAGE = re.compile(rf"^(ERROR|CRITICAL WARNING): (?:\[({MESSAGE_ID})\] )?(.*)$")


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
