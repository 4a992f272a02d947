"""Regressions: found on the right night with the right commits, and silence under noise."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from pipelines.base.figure import Figure
from pipelines.config.pipeline import Regression
from pipelines.report.history import History, Point
from pipelines.report.regression import judge, range_text, threshold_of
from tests.report.nights import commit, synthetic

RULES = Regression()
MOVED = {"tokens_per_s": (17, 0.80), "perplexity": (21, 1.25), "pack_s": (25, 1.40)}
FIGURE = {
    "tokens_per_s": "generate.tokens_per_s",
    "perplexity": "evaluate.ternary, head 1 plane",
    "pack_s": "convert-weights.pack_s",
}


def judged(folder: Path, moved: dict[str, tuple[int, float]], seed: int, noise: float = 0.02) -> dict[str, list]:
    nights = folder / f"nights-{seed}"
    synthetic(nights, noise=noise, seed=seed, moved=moved)
    with History(folder / f"{seed}.sqlite") as history:
        assert history.take_in(nights) == []
        return {name: judge(name, history.points(name), RULES) for name in history.names()}


@pytest.mark.parametrize("seed", range(5))
def test_three_seeded_regressions_are_found_on_their_night_with_their_commits(tmp_path: Path, seed: int) -> None:
    found = judged(tmp_path, MOVED, seed)
    for short, (night, _) in MOVED.items():
        judgements = found.pop(FIGURE[short])
        worse = [number for number, judgement in enumerate(judgements) if judgement.verdict == "worse"]
        assert worse and worse[0] == night, f"{short}: {worse}"
        assert range_text(judgements[night]) == f"{commit(night - 1)[:12]}..{commit(night)[:12]}"
    assert [name for name, judgements in found.items() if any(j.verdict == "worse" for j in judgements)] == []


def test_the_next_nights_name_the_first_one(tmp_path: Path) -> None:
    judgements = judged(tmp_path, {"tokens_per_s": (17, 0.80)}, 1)["generate.tokens_per_s"]
    assert judgements[19].verdict == "worse"
    assert range_text(judgements[19]) == f"{commit(16)[:12]}..{commit(17)[:12]}"
    assert judgements[19].since == judgements[17].point.night


def test_no_false_alarm_under_two_percent_of_noise(tmp_path: Path, full_campaigns: bool) -> None:
    for seed in range(100, 150 if full_campaigns else 112):
        for name, judgements in judged(tmp_path, {}, seed).items():
            assert not [j for j in judgements if j.verdict == "worse"], f"seed {seed}: {name}"


def test_three_figures_that_move_on_any_nights(tmp_path: Path, full_campaigns: bool) -> None:
    """Each seed draws the nights, from the ninth on, and the sizes, from 20 to 60 %."""
    for seed in range(200, 250 if full_campaigns else 204):
        draw = random.Random(seed)
        moved = {
            name: (draw.randrange(8, 29), 1 + (-1 if name == "tokens_per_s" else 1) * draw.uniform(0.2, 0.6))
            for name in MOVED
        }
        found = judged(tmp_path, moved, seed)
        for short, (night, factor) in moved.items():
            judgements = found.pop(FIGURE[short])
            worse = [number for number, judgement in enumerate(judgements) if judgement.verdict == "worse"]
            assert worse and worse[0] == night, f"seed {seed}, {short} × {factor:.2f} in night {night}: {worse}"
            assert range_text(judgements[night]) == f"{commit(night - 1)[:12]}..{commit(night)[:12]}"
        assert [name for name, every in found.items() if any(j.verdict == "worse" for j in every)] == [], seed


def points(values: list[float], unit: str = "ms", **changes: str) -> list[Point]:
    kind = {"board": "b", "model": "m", "machine": "x", **changes}
    return [
        Point(f"night{i:02d}", Figure(value, unit, "rtl"), commit=commit(i), release="", **kind)
        for i, value in enumerate(values)
    ]


def test_direction_comes_from_the_unit() -> None:
    up = [10.0] * 6 + [12.0]
    assert judge("f", points(up, "ms"), RULES)[-1].verdict == "worse"
    assert judge("f", points(up, "tok/s"), RULES)[-1].verdict == "better"


def test_one_mismatch_is_worse_whatever_was_before() -> None:
    assert [j.verdict for j in judge("f", points([0, 1], "mismatches"), RULES)] == ["steady", "worse"]
    assert judge("f", points([3] * 9, "mismatches"), RULES)[-1].verdict == "worse"


def test_other_boards_and_machines_are_not_comparable() -> None:
    mixed = points([10.0] * 8) + [
        Point("night90", Figure(30.0, "ms", "rtl"), "other", "m", "x", commit(90), ""),
        Point("night91", Figure(30.0, "ms", "silicon"), "b", "m", "x", commit(91), ""),
    ]
    assert [j.verdict for j in judge("f", mixed, RULES)][-2:] == ["new", "new"]


def test_thresholds_by_name_then_pattern_then_default() -> None:
    rules = Regression(default_percent=5, percent={"stage.*": 50, "stage.build_s": 80})
    assert [threshold_of(name, rules) for name in ("stage.build_s", "stage.other_s", "x")] == [80, 50, 5]


def test_unknown_and_changed_commits_are_said_so() -> None:
    values = points([10.0] * 6 + [20.0])
    values[-1] = Point("night99", Figure(20.0, "ms", "rtl"), "b", "m", "x", commit(6) + "+", "")
    values[-2] = Point("night98", Figure(10.0, "ms", "rtl"), "b", "m", "x", "", "")
    assert range_text(judge("f", values, RULES)[-1]) == f"unknown..{commit(6)[:12]} (with local changes)"


def test_what_does_not_vary_is_held_to_its_threshold_alone() -> None:
    assert judge("f", points([10.0] * 8 + [10.6], "ms"), RULES)[-1].verdict == "worse"
    assert judge("f", points([10.0] * 8 + [10.4], "ms"), RULES)[-1].verdict == "steady"
    noisy = [10.0, 10.1, 9.9, 10.05, 9.95, 10.1, 9.9, 10.0]
    assert judge("f", points([*noisy, 10.6], "ms"), RULES)[-1].verdict == "steady"
    assert judge("f", points([*noisy, 11.2], "ms"), RULES)[-1].verdict == "worse"
