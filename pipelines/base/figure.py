"""A number with its unit and with how it was obtained. Nothing is printed as a result without the last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypedDict, get_args

Evidence = Literal["silicon", "rtl", "model", "reference"]
"""``silicon`` read from a board, ``rtl`` counted in simulation, ``model`` computed, ``reference`` the earlier work."""


class FigureJson(TypedDict):
    value: float | int
    unit: str
    evidence: Evidence


@dataclass(frozen=True)
class Figure:
    """``Figure(7.35, "tok/s", "reference")``; ``str()`` shows all three."""

    value: float | int
    unit: str
    evidence: Evidence

    def __post_init__(self) -> None:
        if self.evidence not in get_args(Evidence):
            raise ValueError(f"evidence '{self.evidence}' is not one of {', '.join(get_args(Evidence))}")
        if isinstance(self.value, bool) or not isinstance(self.value, (int, float)):
            raise TypeError(f"a figure's value is a number, not {type(self.value).__name__}")

    def json(self) -> FigureJson:
        return {"value": self.value, "unit": self.unit, "evidence": self.evidence}

    def __str__(self) -> str:
        number = f"{self.value:,}" if isinstance(self.value, int) else f"{self.value:,.4g}"
        return f"{number} {self.unit} [{self.evidence}]".replace("  ", " ")
