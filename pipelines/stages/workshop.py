"""What stages are made from: the checkout, its configuration, and the versions of its tools."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pipelines.config.settings import Settings
from pipelines.stages.versions import Versions


@dataclass(frozen=True)
class Workshop:
    """``state`` is the folder of all that is made (``.tritforge``)."""

    root: Path
    settings: Settings
    state: Path
    versions: Versions
