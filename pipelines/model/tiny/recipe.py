"""How ``tiny`` is trained: every number of it, and when a run that was interrupted may go on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pipelines.base.errors import UsageError

OF_THE_MACHINE = ("threads", "save_every_s")
"""Settings that a run may change on the way."""


@dataclass(frozen=True)
class Settings:
    """The recipe. Learning rates are peaks; ``window`` and ``batch`` are in tokens and windows a step."""

    ternary: bool = True
    steps: int = 2400
    batch: int = 8
    window: int = 512
    warmup: int = 60
    plateau: float = 0.4  # fraction of the steps before the decay begins
    matrix_rate: float = 0.02
    matrix_decay: float = 0.01
    vector_rate: float = 3e-3
    vector_decay: float = 0.01
    dropout: float = 0.0
    seed: int = 1
    threads: int = 1
    save_every_s: float = 120.0
    validate_every: int = 50

    def rate(self, step: int) -> float:
        """Learning rate of ``step`` (0-based) as a fraction of the peak."""
        if step < self.warmup:
            return (step + 1) / self.warmup
        begin = self.decay_begins
        return 1.0 if step < begin else max(0.0, (self.steps - step) / (self.steps - begin))

    @property
    def decay_begins(self) -> int:
        return round(self.steps * self.plateau)

    def check_resumed(self, saved: Mapping[str, Any], step: int, folder: Path) -> None:
        """UsageError if a run that has come to ``step`` with settings ``saved`` cannot go on with these.

        While the plateau lasts the number of steps may be changed: the rate of a step on it does not depend on it.
        """
        before = Settings(**saved)
        differ = [n for n, v in asdict(self).items() if v != getattr(before, n) and n not in OF_THE_MACHINE]
        both_on_plateau = step <= min(self.decay_begins, before.decay_begins)
        if not differ or (differ == ["steps"] and both_on_plateau):
            return
        raise UsageError(
            f"{folder} holds a run that stands at step {step} with another recipe ({', '.join(differ)})",
            hint=f"give another folder, or go on with --steps {before.steps}",
        )
