"""``./inv test``: whose budget a test draws on, and what is printed of it at the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.commands import test as command

ROOT = Path(__file__).resolve().parents[2]


def test_budgets_are_of_what_is_there() -> None:
    assert sum(command.BUDGET_MINUTES.values()) == 45
    for place, part in command.PART_OF.items():
        assert (ROOT / place).is_dir() or (ROOT / f"{place}.py").is_file(), place
        assert part in command.BUDGET_MINUTES


@pytest.mark.parametrize(
    ("classname", "part"),
    [
        ("tests.boards.test_emulator", "emulated board"),
        ("tests.boards.test_deploy", "boards"),
        ("tests.hardware.cocotb.test_matvec.TestX", "RTL"),
        ("tests.engine.test_graph", "rest"),
        ("", "rest"),
    ],
)
def test_part_of(classname: str, part: str) -> None:
    assert command.part_of(classname) == part


def test_times_are_halved_over_two_processes(tmp_path: Path) -> None:
    junit = tmp_path / "junit.xml"
    junit.write_text(
        '<testsuites><testsuite tests="3" failures="1" errors="0" skipped="1">'
        '<testcase classname="tests.native.test_x" time="4.0"/><testcase classname="tests.native.test_y" time="2.0"/>'
        '<testcase classname="tests.base.test_z" time="1.0"/></testsuite></testsuites>'
    )
    assert command._times(junit) == {"runtime": 3.0, "rest": 0.5}
    assert command._counts(junit) == {"passed": 1, "failed": 1, "skipped": 1}
    assert command._counts(tmp_path / "none.xml") == {"passed": 0, "failed": 0, "skipped": 0}


def test_every_budget_is_printed_for_a_whole_run(capsys: pytest.CaptureFixture[str]) -> None:
    parts = {name: {"seconds": 0.0, "budget_s": 60 * minutes} for name, minutes in command.BUDGET_MINUTES.items()}
    parts["RTL"]["seconds"] = 660.0
    result = {"parts": parts, "checks": {"lint": True}, "passed": 2, "failed": 0, "skipped": 1}
    command.show(result)
    said = capsys.readouterr().out.splitlines()
    assert "RTL               11.0 of 10 min  over its budget" in said
    assert "system packages    0.0 of  4 min" in said
    assert said[-1] == "2 passed, 0 failed, 1 skipped"
    command.show({**result, "checks": {}})
    assert "system packages" not in capsys.readouterr().out, "a part of the suite shows what it ran"
