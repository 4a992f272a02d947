"""A short, seeded sample of the mutation campaign; the whole one is ``python -m pipelines.hardware.mutate``."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.base.deadline import Deadline
from pipelines.hardware import mutate
from pipelines.hardware.mutate import Mutant, Verdict

SAMPLE, WHOLE = 40, 100
SEED = 1


@pytest.mark.parametrize("engine", mutate.ENGINES)
def test_the_checks_notice_broken_circuits(engine: str, full_campaigns: bool, tmp_path: Path) -> None:
    count = WHOLE if full_campaigns else SAMPLE
    # The unchanged design has to pass every check first, or this raises.
    verdicts = mutate.campaign(engine, count, SEED, deadline=Deadline.after(1200), log=tmp_path / "log")
    killed, able, survivors = mutate.summary(verdicts)
    assert len(verdicts) == count and able >= 0.9 * count, "few may have an excuse"
    assert killed >= mutate.KILLED_SHARE * able, survivors
    assert len({verdict.killer for verdict in verdicts if verdict.killer}) >= 3, "more than one check is at work"


def test_a_counter_in_another_order_counts_as_long() -> None:
    """The reason given for the inverted bit 1 of v_age_q: from 11, seen with the bit inverted, eleven steps to 0."""
    age, steps = 11, 0
    while age ^ 2:
        age, steps = (age ^ 2) - 1, steps + 1
    assert steps == 11


@pytest.mark.parametrize(
    "kind, control, mode, known",
    [("$gt", 12, "cnot1", True), ("$gt", 8, "cnot1", False), ("$gt", 12, "cnot0", False), ("$eq", 3, "cnot1", True)],
)
def test_what_counts_as_a_proof(kind: str, control: int, mode: str, known: bool) -> None:
    """``length > 512``, ``length == 512``: bit 12 alone decides the first where it is 1, bit 3 the second."""
    cells = {"c": {"type": kind, "A": "\\length", "B": "16'0000001000000000"}}
    line = f"mutate -mode {mode} -module m -cell c -port A -portbit 13 -ctrlbit {control}"
    assert bool(mutate._proof(line, cells)) == known


def test_a_survivor_without_a_reason_counts() -> None:
    free = Mutant(1, "-mode inv -cell x -port A", "")
    proved = Mutant(2, "-mode cnot1 -cell x -port A", "", proof="because")
    assert mutate.summary([Verdict(free, ""), Verdict(proved, ""), Verdict(free, "codes")]) == (
        1, 2, [Verdict(free, "")]
    )  # fmt: skip
