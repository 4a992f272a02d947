"""The benchmark's arithmetic, on cycles that are made up: which figures there are, their limits, what adds up."""

from __future__ import annotations

import pytest

from pipelines.base.figure import Figure
from pipelines.commands import benchmark as benchmark_command
from pipelines.report import benchmark
from pipelines.report.circuits import STALLS, Cycles, Run
from pipelines.report.reference import reference
from pipelines.report.timemodel import POSITIONS

GIVEN = reference()
WALL = GIVEN.ddr_gb_per_s * 1e3 / 8 / GIVEN.clock_mhz  # words a cycle of both ports together
START = 60  # cycles that each transfer takes beyond its words
CPU = Figure(26.7, "ms", "reference")


def run(words: int) -> Run:
    return Run("made up", round(words / WALL) + START, words, (words + 1) // 2, dict.fromkeys(STALLS, 7))


@pytest.fixture(scope="module")
def cycles() -> Cycles:
    """Words as the model's shapes give them: rows, and a header and x on each port."""
    shape = GIVEN.model
    rows = {1536: 39, 4096: 103}
    groups = [(3 * shape.hidden, 1536), (shape.hidden, 1536), (2 * shape.ffn, 1536), (shape.hidden, 4096)]
    matrices = [run(count * rows[length] + 2 * (1 + length // 8)) for count, length in [*groups, (shape.vocab, 1536)]]
    attention = {t: run(shape.heads * (1 + (1 + 2 * t) * shape.head_dim // 8)) for t in POSITIONS}
    return Cycles(tuple(matrices[:4]), matrices[4], attention)


def test_the_packed_bytes_are_the_reference_s(cycles: Cycles) -> None:
    own = benchmark.own_parameters(cycles, CPU, GIVEN)
    assert own.packed_bytes / (1 << 20) == pytest.approx(GIVEN.packed_mib, abs=0.005)
    assert own.group_ms == pytest.approx(START / 125e3, rel=0.02) and own.cpu_ms == 26.7


def test_parts_stand_beside_their_bytes_and_the_reference(cycles: Cycles) -> None:
    entries = {entry.name: entry for entry in benchmark.time_entries(cycles, CPU, GIVEN)}
    for t in POSITIONS:
        part, total = entries[f"part_ms.attention.t{t}"], entries[f"token_ms.t{t}"]
        assert part.limit and part.reference and total.limit and total.reference
        assert part.limit.value <= part.figure.value and total.limit.value <= total.figure.value
        assert total.reference.value == GIVEN.row(t).total
        added = entries["part_ms.matrices"].figure.value + part.figure.value + 26.7
        assert total.figure.value == pytest.approx(added, abs=0.02)
        assert 0 < entries[f"floor_share.t{t}"].figure.value <= 100
        assert entries[f"token_ms_with_hand_over.t{t}"].figure.value > total.figure.value
    assert (
        entries["part_ms.matrices"].figure.evidence == "rtl" and entries["part_ms.cpu"].figure.evidence == "reference"
    )


def test_the_waterfall_adds_up_to_the_token(cycles: Cycles) -> None:
    steps = benchmark.waterfall(cycles, CPU, GIVEN)
    entries = {entry.name: entry for entry in benchmark.time_entries(cycles, CPU, GIVEN)}
    assert sum(step["ms"] for step in steps) == pytest.approx(
        entries["token_ms_with_hand_over.t512"].figure.value, abs=0.05
    )


def test_the_model_with_own_parameters_meets_the_counted_totals(cycles: Cycles) -> None:
    own = benchmark.model_against_rtl(cycles, CPU, GIVEN)
    assert [row["t"] for row in own["rows"]] == list(POSITIONS)
    assert own["largest_error_percent"] < 1


def test_stalls_of_each_cause_are_counted(cycles: Cycles) -> None:
    entries = {entry.name: entry for entry in benchmark.circuit_entries(cycles, GIVEN)}
    for cause in STALLS:
        assert entries[f"matvec.{cause}"].figure.value == 7 * (24 * 4 + 1)
        assert entries[f"attention.{cause}"].figure.value == 7 * 24


def test_packing_is_a_ratio_of_pairs() -> None:
    entry = benchmark.packing_entry("what was packed", [(1.0, 2.0), (0.5, 2.0), (2.0, 6.0)])
    assert entry.figure.value == 3.0 and entry.limit is not None and entry.limit.value == 4
    assert entry.how == "what was packed; median of 3 pairs in turn, 2.00 to 4.00"


def test_the_terminal_shows_models_with_their_parameters_and_the_budget_with_its_rest(
    cycles: Cycles, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = benchmark.time_entries(cycles, CPU, GIVEN)
    benchmark_command.show(
        {
            "figures": [entry.json() for entry in entries],
            "table": benchmark.table(cycles, CPU, GIVEN),
            "waterfall": benchmark.waterfall(cycles, CPU, GIVEN),
            "time_model": benchmark.model_against_reference(GIVEN),
            "own_model": benchmark.model_against_rtl(cycles, CPU, GIVEN),
        }
    )
    shown = capsys.readouterr().out
    assert shown.count("wall_gb_per_s 2.009") == 2 and shown.count("[model]\n  packed_bytes") == 2
    for line in ("reference, forecast     109.20 ms [reference]", "reference, the rest      26.80 ms [reference]"):
        assert line in shown
