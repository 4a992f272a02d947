"""The recipe of ``tiny``, and what ``train-tiny`` says where it cannot train; training itself needs torch."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from pipelines.base.errors import ToolMissing, UsageError
from pipelines.commands import train_tiny
from pipelines.model.tiny.recipe import OF_THE_MACHINE, Settings

TINY = Path(__file__).parents[2] / "models" / "tiny"


def test_the_rate_warms_up_stays_and_falls_to_zero() -> None:
    recipe = Settings(steps=100, warmup=10, plateau=0.4)
    rates = [recipe.rate(step) for step in range(100)]
    assert rates[0] == 0.1 and rates[9:40] == [1.0] * 31
    assert all(a > b for a, b in zip(rates[40:], rates[41:], strict=False))
    assert 0 < rates[-1] < 0.02


def test_the_shipped_model_has_this_recipe() -> None:
    stored = json.loads((TINY / "curve.json").read_text())["settings"]
    ours = asdict(Settings())
    for name in OF_THE_MACHINE:
        del stored[name], ours[name]
    assert stored == ours


@pytest.mark.parametrize(
    ("step", "change", "goes_on"),
    [
        (900, {}, True),
        (2400, {}, True),
        (900, {"threads": 4, "save_every_s": 1.0}, True),
        (900, {"steps": 4000}, True),  # on the plateau of both
        (900, {"steps": 2000}, False),  # the new one's decay began at 800
        (1000, {"steps": 4000}, False),  # the old one's has begun
        (900, {"seed": 2}, False),
        (900, {"ternary": False}, False),
    ],
)
def test_when_a_run_goes_on(step: int, change: dict[str, Any], goes_on: bool) -> None:
    recipe = replace(Settings(), **change)
    saved = asdict(Settings())
    if goes_on:
        recipe.check_resumed(saved, step, Path("out"))
    else:
        with pytest.raises(UsageError, match=f"out holds a run that stands at step {step} .*{next(iter(change))}"):
            recipe.check_resumed(saved, step, Path("out"))


def test_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    context: Any = None  # not looked at
    with pytest.raises(ToolMissing, match="training needs torch") as raised:
        train_tiny.run(context)
    assert raised.value.status == 3
    assert "pip install torch==2.13.0" in raised.value.hint
    with pytest.raises(UsageError, match="steps is -1"):
        train_tiny.run(context, steps=-1)
