"""A short, seeded sample of the mutation campaign; the whole one is ``python -m pipelines.hardware.mutate``."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.base.deadline import Deadline
from pipelines.hardware import mutate
from pipelines.hardware.mutate import Mutant, Verdict

SAMPLE, WHOLE = 16, 100


@pytest.mark.campaign
@pytest.mark.parametrize("engine", mutate.ENGINES)
def test_the_checks_notice_broken_circuits(engine: str, full_campaigns: bool, tmp_path: Path) -> None:
    count = WHOLE if full_campaigns else SAMPLE
    verdicts = mutate.campaign(engine, count, 5, deadline=Deadline.after(1200), log=tmp_path / "log")
    killed, able, survivors = mutate.summary(verdicts)
    # One survivor of a short sample is 6 %; the whole campaign is held to its 95 %.
    assert killed >= (mutate.KILLED_SHARE if full_campaigns else 0.9) * able, survivors
    assert able >= count // 2


def test_a_survivor_without_a_reason_counts() -> None:
    free = Mutant(1, "-mode inv -cell x -port A", "")
    proved = Mutant(2, "-mode cnot1 -cell x -port A", "", proof="because")
    assert mutate.summary([Verdict(free, ""), Verdict(proved, ""), Verdict(free, "codes")]) == (
        1, 2, [Verdict(free, "")]
    )  # fmt: skip
