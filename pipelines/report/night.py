"""One night as ``./inv nightly`` kept it under ``.tritforge/nights/``: a file that appears whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipelines.base.errors import FormatError
from pipelines.base.files import read_json

WENT_WRONG = ("failed", "error", "offline")


@dataclass(frozen=True)
class Night:
    """A night's record. ``document`` holds the keys of the task; what an old record lacks is empty here."""

    name: str
    document: Mapping[str, Any]

    @property
    def board(self) -> str:
        return str(self.document.get("board", ""))

    @property
    def model(self) -> str:
        return str(self.document.get("model", ""))

    @property
    def pipeline(self) -> str:
        return str(self.document.get("pipeline") or self.name.partition("-")[2])

    @property
    def release(self) -> str:
        return str(self.document.get("release", ""))

    @property
    def commit(self) -> str:
        """Full commit name, with '+' behind it when files differed from it; empty when it is not known."""
        return str(self.document.get("commit", ""))

    @property
    def machine(self) -> str:
        """The build host: figures of different hosts are not compared."""
        return str(self.document.get("machine", ""))

    @property
    def started(self) -> datetime:
        """When the night began."""
        return datetime.strptime(self.name.partition("-")[0], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)

    @property
    def stages(self) -> list[dict[str, Any]]:
        """Without a report's own line: while it is written nobody knows how it ends."""
        reports = {name for name, result in self.results.items() if result.get("task") == "report"}
        found = [dict(stage) for stage in self.document.get("stages", [])]
        return [stage for stage in found if stage["name"] not in reports and stage["name"] != "report"]

    @property
    def results(self) -> Mapping[str, Mapping[str, Any]]:
        """JSON of each stage's task by the stage's name; empty where it did not run."""
        return dict(self.document.get("results", {}))

    def of_task(self, task: str) -> Mapping[str, Any]:
        """The result of the last stage that ran this task; empty when there is none."""
        found = [result for result in self.results.values() if result.get("task") == task]
        return found[-1] if found else {}

    @property
    def optional(self) -> set[str]:
        """Stages that are reported and do not decide."""
        return set(self.document.get("optional", []))

    @property
    def status(self) -> str:
        """``failed`` before ``error`` before ``offline``; ``passed`` only when every stage that counts did."""
        stages = [stage for stage in self.stages if stage["name"] not in self.optional]
        found = {str(stage["status"]) for stage in stages}
        for status in WENT_WRONG:
            if status in found:
                return status
        return "passed" if stages and found == {"passed"} else "incomplete"


def read(path: Path) -> Night:
    """Raises FormatError for a file that is no night's record."""
    try:
        document = read_json(path)
        night = Night(path.stem, document)
        night.started, night.stages, night.status  # noqa: B018  what cannot be read shows here and not in the middle
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise FormatError(
            f"{path} is not the record of a night: {error}", hint="remove it, or run './inv nightly'"
        ) from error
    return night


def nights(folder: Path) -> list[Path]:
    """All records, oldest first."""
    return sorted(path for path in folder.glob("*Z-*.json"))
