"""Two builds compared: equal with other clocks, hosts and folders; a seeded difference is named by its phase."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pipelines.vivado import repro
from tests.vivado.conftest import Builder, design_with
from tests.vivado.standin.reports import PHASES


def test_other_clock_host_and_folder_give_the_same(
    finished: Path, run_build: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STANDIN_VIVADO_CLOCK", "1893456000")  # a day in 2030
    monkeypatch.setenv("STANDIN_VIVADO_HOST", "elsewhere")
    other = run_build("a folder with another name")
    compared = repro.compare(finished, other)
    assert [c.name for c in compared] == [
        "tritforge.bit", "tritforge.bin", "tritforge.hwh", "tritforge.xsa", "bitstream.json",
    ]  # fmt: skip
    assert all(c.identical and not c.first_difference for c in compared)
    # The files themselves do differ, so the comparison had something to look past.
    for name in ("tritforge.bit", "tritforge.hwh", "tritforge.xsa"):
        assert (finished / name).read_bytes() != (other / name).read_bytes()
    assert (finished / "reports" / "power.rpt").read_text() != (other / "reports" / "power.rpt").read_text()


EVERY_PHASE = [(step, name.partition(" ")[2]) for step, names in PHASES.items() for name in names]


@pytest.mark.parametrize(("step", "phase"), EVERY_PHASE[::5] + EVERY_PHASE[-1:])
def test_a_difference_is_named_by_its_phase(
    step: str, phase: str, finished: Path, run_build: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STANDIN_VIVADO_FAULT", f"phase_differs:{phase}")
    compared = {c.name: c for c in repro.compare(finished, run_build())}
    assert not compared["tritforge.bit"].identical and not compared["tritforge.xsa"].identical
    assert compared["tritforge.bit"].first_difference.startswith(f"implementation phase {step}: {phase} (")
    assert compared["tritforge.hwh"].identical


def test_another_strategy_is_seen(finished: Path, run_build: Builder) -> None:
    compared = {
        c.name: c for c in repro.compare(finished, run_build(chosen=design_with("strategy.place=ExtraTimingOpt")))
    }
    assert compared["bitstream.json"].first_difference == "bin_sha256, payload_sha256, strategy"
    assert "opt_design: Retarget" in compared["tritforge.bit"].first_difference


def test_what_the_handoff_says_counts(finished: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(finished, other)
    path = other / "tritforge.hwh"
    path.write_text(path.read_text().replace("0x40410000", "0x40450000"))
    compared = {c.name: c for c in repro.compare(finished, other)}
    assert compared["tritforge.bit"].identical
    assert not compared["tritforge.hwh"].identical and "0x40450000" in compared["tritforge.hwh"].first_difference


def test_one_bit_of_the_payload(finished: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(finished, other)
    data = bytearray((other / "tritforge.bit").read_bytes())
    data[2_000_000] ^= 1
    (other / "tritforge.bit").write_bytes(data)
    found = repro.compare(finished, other)[0]
    assert not found.identical and "all logged phases are equal" in found.first_difference


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("", "", ""),
        ("Command: a\nPhase 1 X | Checksum: 1\n", "Command: a\nPhase 1 X | Checksum: 1\n", ""),
        ("Command: a\nPhase 1 X | Checksum: 1\n", "Command: a\nPhase 1 X | Checksum: 2\n", "a: X (1, 2)"),
        ("Command: a\nPhase 1 X | Checksum: 1\n", "", "a: X is in only one of the logs"),
        (
            "Command: a\nPhase 1 X | Checksum: 1\n", "Command: a\nPhase 1 Y | Checksum: 1\n",
            "a: X in one log where the other has a: Y",
        ),
    ],
)  # fmt: skip
def test_first_differing_phase(one: str, other: str, expected: str) -> None:
    assert repro.first_differing_phase(one, other) == expected
