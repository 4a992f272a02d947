"""``facts.tsv``: what the Tcl recorded, one name and value a line (``hw/vivado/facts.tcl``)."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path


class Facts:
    """Values by name; a later line of the same name counts."""

    def __init__(self, text: str) -> None:
        self.values: dict[str, str] = {}
        for line in text.splitlines():
            name, separator, value = line.partition("\t")
            if separator:
                self.values[name] = value

    @classmethod
    def read(cls, path: Path) -> Facts:
        """An attempt that never got as far as writing the file has no facts."""
        return cls(path.read_text(encoding="utf-8", errors="replace") if path.exists() else "")

    def get(self, name: str) -> str:
        return self.values.get(name, "")

    def number(self, name: str) -> float | None:
        """None when the value is missing or empty, which is how the tool says "no path"."""
        try:
            return float(self.get(name))
        except ValueError:
            return None

    @property
    def finished(self) -> bool:
        """The script came to its end. The exit status of the tool alone does not say so."""
        return self.get("finished") == "1"

    def started(self) -> datetime | None:
        """When the build began, by the clock and time zone of the machine it ran on."""
        try:
            return datetime.strptime(self.get("started"), "%Y-%m-%d %H:%M:%S")
        except ValueError:
            return None
