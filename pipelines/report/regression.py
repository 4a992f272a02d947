"""Whether a figure became worse: against the median of its last comparable runs, with a threshold for each in YAML.

A figure is worse when it leaves the median by more than its threshold *and*, if it varies at all from run to run, by
more than five times its scatter: noise then needs no threshold of its own. Scatter is the median absolute deviation of
those runs times 1.4826, which for normal noise is one standard deviation; a few runs that happened to be alike say too
little, so it is taken as 2 % at least. What does not vary, and what is counted and so varies with the code alone, is
held to its threshold.
"""

from __future__ import annotations

import fnmatch
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pipelines.config.pipeline import Regression
from pipelines.report.figures import COUNTED, more_is_better
from pipelines.report.history import Point

MAD_TO_SIGMA = 1.4826
SCATTERS = 5.0
LEAST_SCATTER = 0.02  # of the median
FEWEST_RUNS = 5
"""With fewer runs before it a figure is not judged: their scatter is not known."""

Verdict = Literal["new", "steady", "worse", "better"]


@dataclass(frozen=True)
class Judgement:
    """A figure of one night beside its past. ``change_percent`` has the sign of the change, not of its meaning."""

    point: Point
    verdict: Verdict
    median: float | None = None
    change_percent: float | None = None
    threshold_percent: float | None = None
    since: str = ""  # the first of the nights in a row that are worse
    commits: tuple[str, str] | None = None  # (last commit that was well, first that was not)


def threshold_of(name: str, rules: Regression) -> float:
    """The exact name's, else the first pattern's that matches (``stage.*``), else the default. In percent."""
    if name in rules.percent:
        return rules.percent[name]
    return next((value for key, value in rules.percent.items() if fnmatch.fnmatch(name, key)), rules.default_percent)


def judge(name: str, points: Sequence[Point], rules: Regression) -> list[Judgement]:
    """A judgement for each point of a figure, oldest first."""
    judged: list[Judgement] = []
    past: dict[tuple[str, ...], list[Judgement]] = {}
    for point in points:
        before = past.setdefault(point.kind, [])
        made = _judge_one(name, point, before, rules)
        before.append(made)
        judged.append(made)
    return judged


def _judge_one(name: str, point: Point, before: Sequence[Judgement], rules: Regression) -> Judgement:
    window = [earlier.point.figure.value for earlier in before[-rules.runs :]]
    exact = point.figure.unit == "mismatches"
    if exact and point.figure.value == 0:
        return Judgement(point, "steady", median=0.0)
    if exact:  # a mismatch is no matter of percent, nor of what was before
        return _worse(Judgement(point, "worse", median=0.0), before)
    if len(window) < min(FEWEST_RUNS, rules.runs):
        return Judgement(point, "new")
    median = statistics.median(window)
    scatter = MAD_TO_SIGMA * statistics.median(abs(value - median) for value in window)
    allowed = abs(median) * threshold_of(name, rules) / 100
    if scatter > 0 and point.figure.unit not in COUNTED:
        allowed = max(allowed, SCATTERS * scatter, SCATTERS * LEAST_SCATTER * abs(median))
    change = point.figure.value - median
    found = Judgement(
        point, "steady", median, round(100 * change / median, 3) if median else None,
        round(100 * allowed / abs(median), 3) if median else None,
    )  # fmt: skip
    if abs(change) <= allowed:
        return found
    if (change > 0) == more_is_better(point.figure.unit):
        return Judgement(point, "better", found.median, found.change_percent, found.threshold_percent)
    return _worse(found, before)


def _worse(found: Judgement, before: Sequence[Judgement]) -> Judgement:
    """With the night and the commits between which it moved."""
    first, well = found.point, None
    for earlier in reversed(before):
        if earlier.verdict != "worse":
            well = earlier.point
            break
        first = earlier.point
    commits = (well.commit, first.commit) if well is not None else None
    return Judgement(
        found.point, "worse", found.median, found.change_percent, found.threshold_percent, first.night, commits
    )


def range_text(judgement: Judgement) -> str:
    """``3fa2c1d9e0b7..91b0aa77c2f1`` as git takes it; says so when a commit is not known or the tree had changes."""
    if judgement.commits is None:
        return "no night before it was well"
    names = []
    for commit in judgement.commits:
        names.append(commit.rstrip("+")[:12] or "unknown")
    text = "..".join(names)
    dirty = [c for c in judgement.commits if c.endswith("+")]
    return text + (" (with local changes)" if dirty else "")
