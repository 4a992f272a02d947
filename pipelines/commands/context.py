"""What a task is given besides its flags: configuration, console, store, and whether it may change things."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from pipelines.base.console import Console
from pipelines.base.files import HashCache
from pipelines.config.settings import ROOT, Settings
from pipelines.engine.store import Store
from pipelines.stages.versions import Versions
from pipelines.stages.workshop import Workshop


class Context:
    """Everything is read on first use: a task that needs no configuration does not fail on a wrong one."""

    def __init__(
        self, *, root: Path = ROOT, overrides: Sequence[str] = (), plan: bool = False, console: Console | None = None
    ) -> None:
        self.root = root
        self.overrides = tuple(overrides)
        self.plan = plan
        self.console = console or Console()

    @property
    def state(self) -> Path:
        """The folder that holds all that tritforge makes and can make again."""
        return self.root / ".tritforge"

    @cached_property
    def settings(self) -> Settings:
        return Settings(self.root, self.overrides)

    @cached_property
    def hashes(self) -> HashCache:
        return HashCache(self.state / "hashes.json")

    @cached_property
    def store(self) -> Store:
        return Store(self.state, self.hashes)

    @cached_property
    def workshop(self) -> Workshop:
        return Workshop(self.root, self.settings, self.state, Versions(self.state / "versions.json"))

    def log(self, task: str) -> Path:
        """Where a task that is no stage writes what its tools say; one file a task, the last run's."""
        path = self.state / "logs" / f"{task}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path
