"""Gates and the list of allowed messages, on the files of a finished attempt that are changed one by one."""

from __future__ import annotations

import datetime
import re
import shutil
from pathlib import Path

import pytest

from pipelines.base.errors import ConfigError
from pipelines.vivado import allowed
from pipelines.vivado.design import BitstreamDesign
from pipelines.vivado.gates import REPORTS, Verdict, measure
from tests.vivado.conftest import CONTENT_ID, design_with

TODAY = datetime.date(2027, 1, 1)
SHIPPED = allowed.read(Path(__file__).parents[2] / "hw" / "vivado" / "allowed_messages.yaml")
ALLOWED = allowed.Allowed(id="Opt 1-2", text="of no use", reason="it is about pins of the package", expires=TODAY)


@pytest.fixture
def attempt(finished: Path, tmp_path: Path) -> Path:
    target = tmp_path / "attempt"
    shutil.copytree(finished.parent / "work" / "combined-0001", target)
    return target


def judged(attempt: Path, design: BitstreamDesign, *entries: allowed.Allowed, today: datetime.date = TODAY) -> Verdict:
    return measure(attempt, design, content_id=CONTENT_ID, allowed=[*SHIPPED, *entries], today=today)


def failed(verdict: Verdict) -> list[str]:
    return [gate.name for gate in verdict.failed]


def test_an_unchanged_attempt_passes(attempt: Path, design: BitstreamDesign) -> None:
    verdict = judged(attempt, design)
    assert verdict.passed and len(verdict.gates) == 21


@pytest.mark.parametrize("report", REPORTS)
def test_each_report_is_missed(report: str, attempt: Path, design: BitstreamDesign) -> None:
    (attempt / "reports" / f"{report}.rpt").unlink()
    verdict = judged(attempt, design)
    assert "reports_are_of_this_build" in failed(verdict) and f"{report}: missing" in str(verdict.failed[0])


@pytest.mark.parametrize("report", REPORTS)
def test_each_report_cut_in_half_is_seen(report: str, attempt: Path, design: BitstreamDesign) -> None:
    path = attempt / "reports" / f"{report}.rpt"
    text = path.read_text()
    path.write_text(text[: len(text) // 3])
    assert not judged(attempt, design).passed


@pytest.mark.parametrize(
    ("override", "gate"),
    [
        ("limits.lut=1000", "lut"), ("limits.ff=1000", "ff"), ("limits.bram36=2.5", "bram36"), ("limits.dsp=3", "dsp"),
        ("limits.setup_slack_ns=3.0", "setup_slack"), ("limits.hold_slack_ns=1.0", "hold_slack"),
        ("limits.pulse_width_slack_ns=4.0", "pulse_width_slack"),
    ],
)  # fmt: skip
def test_each_limit_holds(override: str, gate: str, attempt: Path) -> None:
    verdict = judged(attempt, design_with(override))
    assert failed(verdict) == [gate]
    margin = verdict.failed[0].margin
    assert margin is not None and margin < 0


@pytest.mark.parametrize("report", [r for r in REPORTS if r != "route_status"])
def test_report_of_an_earlier_day(report: str, attempt: Path, design: BitstreamDesign) -> None:
    path = attempt / "reports" / f"{report}.rpt"
    path.write_text(re.sub(r"(\| Date\s*: ).*", r"\1Tue Mar  5 08:09:10 2019", path.read_text()))
    assert f"{report}: stale" in str(judged(attempt, design).failed[0])


def test_report_of_another_version(attempt: Path, design: BitstreamDesign) -> None:
    path = attempt / "reports" / "power.rpt"
    path.write_text(path.read_text().replace("Vivado v.2024.1", "Vivado v.2023.2"))
    assert "power: made by Vivado 2023.2" in str(judged(attempt, design).failed[0])


def test_critical_warnings_and_their_list(attempt: Path, design: BitstreamDesign) -> None:
    log = next(attempt.rglob("impl_1/runme.log"))
    log.write_text(log.read_text() + "CRITICAL WARNING: [Opt 1-2] something of no use\n")
    assert failed(judged(attempt, design)) == ["critical_warnings"]
    verdict = judged(attempt, design, ALLOWED)
    assert verdict.passed and verdict.figures["allowed_critical_warnings"][0]["reason"] == ALLOWED.reason
    other = ALLOWED.model_copy(update={"text": "something else"})
    assert failed(judged(attempt, design, other)) == ["critical_warnings"]
    late = judged(attempt, design, ALLOWED, today=TODAY + datetime.timedelta(days=1))
    assert failed(late) == ["critical_warnings"] and "was allowed until 2027-01-01" in str(late.failed[0])


def test_no_log_at_all(attempt: Path, design: BitstreamDesign) -> None:
    for path in [*attempt.rglob("runme.log"), attempt / "vivado.log"]:
        path.unlink()
    assert failed(judged(attempt, design)) == ["critical_warnings"]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("axi_dma:7.1", "axi_dma:7.0", "must be xilinx.com:ip:axi_dma:7.1"),
        ('"c_sg_length_width" VALUE="23"', '"c_sg_length_width" VALUE="14"', "c_sg_length_width of dma_matvec0 is 14"),
        ("MT41J256M16 RE-125", "MT41J128M16 HA-125", "PCW_UIPARAM_DDR_PARTNO is MT41J128M16 HA-125"),
        ('BASEVALUE="0x43C00000"', 'BASEVALUE="0x43D00000"', "shell/s_axi"),
        ('CLKFREQUENCY="125000000"', 'CLKFREQUENCY="142857132"', "is 142.857 MHz, must be 125"),
        ('VALUE="0xCAFE1234"', 'VALUE="0xCAFE1235"', "CONTENT_ID of the shell is 0xcafe1235"),
        ('BUSNAME="dma_matvec1_M_AXIS_MM2S"', 'BUSNAME="dma_matvec9_M_AXIS_MM2S"', "dma_matvec1/M_AXIS_MM2S"),
        ('PACKAGE="clg400"', 'PACKAGE="clg484"', "the device is 7z020clg4841"),
        ('NAME="PCW_USE_S_AXI_HP3" VALUE="1"', 'NAME="PCW_USE_S_AXI_HP3" VALUE="0"', "PCW_USE_S_AXI_HP3 is 0"),
        ("</EDKSYSTEM>", "", "not XML"),
    ],
)  # fmt: skip
def test_handoff_that_is_not_the_design(old: str, new: str, words: str, attempt: Path, design: BitstreamDesign) -> None:
    path = attempt / "out" / "tritforge.hwh"
    text = path.read_text()
    assert old in text
    one_side_only = old.startswith("BUSNAME")
    path.write_text(text.replace(old, new, 1 if one_side_only else -1))
    verdict = judged(attempt, design)
    assert failed(verdict) == ["handoff_is_the_design"]
    assert words in str(verdict.failed[0])


def test_the_shipped_list_has_what_ps7_says_of_this_board_and_no_more(attempt: Path, design: BitstreamDesign) -> None:
    """Two byte lanes that a 16-bit bus has not got; the same words about a lane that is used are refused."""
    found = judged(attempt, design).figures["allowed_critical_warnings"]
    assert [entry["id"] for entry in found] == ["PSU-1", "PSU-2"] == [entry.id for entry in SHIPPED]
    assert all("negative value" in entry["text"] for entry in found)
    log = attempt / "vivado.log"
    log.write_text(log.read_text().replace("DQS_TO_CLK_DELAY_2 has", "DQS_TO_CLK_DELAY_0 has"))
    assert failed(judged(attempt, design)) == ["critical_warnings"]


@pytest.mark.parametrize(
    "text",
    [
        "messages: [{id: Opt 1-2, expires: 2027-01-01}]",  # no reason
        "messages: [{id: Opt 1-2, reason: because of it all}]",  # no end
        "messages: [{id: Opt 1-2, reason: short, expires: 2027-01-01}]",
        "messages: [{id: Opt 1-2, reason: because of it all, expires: 2027-01-01, text: '['}]",
        "messages: [{id: Opt 1-2, reason: because of it all, expires: never}]",
        "silenced: []",
        "- a",
    ],
)
def test_lists_that_are_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "allowed.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError):
        allowed.read(path)
