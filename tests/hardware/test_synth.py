"""Resources and logic delay of the circuits, held to their budgets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pipelines.base.deadline import Deadline
from pipelines.base.errors import GateError, ToolFailed
from pipelines.hardware import synth
from pipelines.hardware.synth import BUDGETS, Usage


@pytest.fixture(scope="module")
def usages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Usage]:
    work: Path = tmp_path_factory.mktemp("synth")
    return {
        module: synth.synthesise(module, work, deadline=Deadline.after(400), log=work / "log") for module in BUDGETS
    }


def test_within_the_budgets(usages: dict[str, Usage], capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print()
        for name, figure in synth.figures(usages).items():
            print(f"  {name}: {figure}")
    synth.check_budgets(usages)


def test_multipliers_and_memories_are_where_they_belong(usages: dict[str, Usage]) -> None:
    assert usages["tritforge_attention"].dsps == 9, "eight products and m"
    assert usages["tritforge_matvec"].dsps == 0
    assert usages["tritforge_matvec"].bram36 == 5, "a bank a trit of a byte"


def test_each_budget_can_fail(usages: dict[str, Usage]) -> None:
    module = "tritforge_attention"
    for change in ({"luts": 2501}, {"dsps": 10}, {"bram36": 2.0}, {"delay_ns": 4.01}):
        with pytest.raises(GateError, match=module):
            synth.check_budgets({**usages, module: replace(usages[module], **change)})
    large = {name: replace(usage, luts=BUDGETS[name].luts) for name, usage in usages.items()}
    with pytest.raises(GateError, match="together"):
        synth.check_budgets(large)


def test_empty_reports_are_refused() -> None:
    with pytest.raises(ToolFailed):
        synth.usage_of("", "Latest arrival time in 'x' is 1:")
    with pytest.raises(ToolFailed):
        synth.usage_of("     LUT2   5\n", "")
