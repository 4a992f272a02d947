"""A whole build with the stand-in, and each injected fault."""

from __future__ import annotations

import json
import os
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from pipelines.base.deadline import Deadline
from pipelines.base.errors import (
    ConfigError,
    GateError,
    LicenceError,
    OutOfMemory,
    ToolFailed,
    ToolMissing,
    ToolTimeout,
)
from pipelines.vivado import bitfile, handoff, leftovers
from pipelines.vivado.failure import IpMissing, RunCancelled, RunIncomplete, RunKilled, ToolCrashed, VersionMismatch
from pipelines.vivado.toolchain import VARIABLE
from tests.vivado.conftest import CONTENT_ID, RTL, STANDIN, Builder, design_with
from tests.vivado.standin.faults import KNOWN

SVG = "{http://www.w3.org/2000/svg}"


def test_outputs(finished: Path) -> None:
    names = {path.name for path in finished.iterdir()}
    assert names == {
        "tritforge.bit", "tritforge.bin", "tritforge.hwh", "tritforge.xsa", "bitstream.json", "gates.json",
        "figures.json", "block_design.svg", "reports", "logs",
    }  # fmt: skip
    about = json.loads((finished / "bitstream.json").read_text())
    assert about["toolchain"] == "stand-in" and about["toolchain_version"] == "2024.1"
    assert about["content_id"] == "0xCAFE1234" and about["clock_mhz"] == 125
    assert [d["base"] for d in about["dmas"]] == ["0x40400000", "0x40410000", "0x40420000", "0x40430000"]
    assert all(d["length_width"] == 23 and d["scatter_gather"] for d in about["dmas"])
    assert [d["hp_port"] for d in about["dmas"]] == ["HP0", "HP2", "HP1", "HP3"]
    gates = json.loads((finished / "gates.json").read_text())
    assert gates["passed"] and all(gate["passed"] for gate in gates["gates"])
    slack = next(gate for gate in gates["gates"] if gate["name"] == "setup_slack")
    assert slack["margin"] == slack["value"] > 0
    figures = json.loads((finished / "figures.json").read_text())
    assert figures["clocks"] == [{"name": "clk_fpga_0", "period_ns": 8.0, "mhz": 125.0}]
    assert figures["hierarchy"][0]["instance"] == "tritforge_system_wrapper"
    assert figures["power"]["total_w"] == pytest.approx(1.563)


def test_picture_of_the_block_design(finished: Path) -> None:
    """Every cell and every connection of the handoff, in one file that needs nothing else."""
    text = (finished / "block_design.svg").read_text()
    root = ElementTree.fromstring(text)
    design = handoff.parse((finished / "tritforge.hwh").read_text())
    labels = {element.text for element in root.iter(f"{SVG}text")}
    assert set(design.modules) <= labels and "axi_dma at 0x40400000" in labels
    titles = {element.text for element in root.iter(f"{SVG}title")}
    assert titles == {f"{master} to {slave}" for master, slave in design.buses} and len(titles) > 20
    assert "href" not in text and "url(" not in text and "<script" not in text


def test_bin_is_the_payload_with_each_word_turned_round(finished: Path) -> None:
    bit = bitfile.parse((finished / "tritforge.bit").read_bytes())
    swapped = (finished / "tritforge.bin").read_bytes()
    assert len(swapped) == len(bit.payload) == 4_045_564
    at = bit.payload.index(bitfile.SYNC_WORD)
    assert swapped[at : at + 4] == b"\x66\x55\x99\xaa"
    assert bytes(b for i in range(0, 400, 4) for b in reversed(swapped[i : i + 4])) == bit.payload[:400]


def test_content_id_is_in_the_bitstream(finished: Path) -> None:
    bit = bitfile.parse((finished / "tritforge.bit").read_bytes())
    assert bit.usr_access == CONTENT_ID
    assert bitfile.check(bit, part="xc7z020clg400-1", content_id=CONTENT_ID) == []
    assert bitfile.check(bit, part="xc7z020clg400-1", content_id=1) == [
        "its USR_ACCESS is 0xCAFE1234, not the content id 0x00000001"
    ]


@pytest.mark.parametrize(
    "overrides",
    [
        ["dma.results_port=acp"],
        ["dma.descriptors_port=acp"],
        ["dma.results_port=acp", "dma.descriptors_port=acp"],
        ["dma.interrupts=true"],
        ["dma.engines.matvec0.scatter_gather=false", "dma.engines.matvec1.scatter_gather=false"],
        ["clock_mhz=100"],
        ["dma.max_transfer_bytes=16376"],
    ],
    ids="_".join,
)
def test_options_of_the_design_build_and_pass(overrides: list[str], run_build: Builder) -> None:
    out = run_build(chosen=design_with(*overrides))
    about = json.loads((out / "bitstream.json").read_text())
    assert about["results_padded_to_bytes"] == (32 if "dma.results_port=acp" in overrides else 8)


@pytest.mark.parametrize("version", ["2022.1", "2022.2", "2023.2", "2024.1", "2024.2"])
def test_every_allowed_version_passes(version: str, run_build: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STANDIN_VIVADO_VERSION", version)
    out = run_build()
    assert json.loads((out / "bitstream.json").read_text())["toolchain_version"] == version


def test_release_wants_exactly_its_version(run_build: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_build("right", release=True).exists()
    monkeypatch.setenv("STANDIN_VIVADO_VERSION", "2024.2")
    with pytest.raises(VersionMismatch, match=r"wanted version 2024\.1, but .*vivado is 2024\.2"):
        run_build("newer", release=True)


# Fault -> error class, exit status, words that have to be in the message.
FAULTS: dict[str, tuple[type[Exception], int, str]] = {
    "exit_0_after_failure": (ToolFailed, 3, r"synth_1/runme\.log: ERROR: \[Synth 8-439\] module 'attention_core' not"),
    "run_not_complete": (RunIncomplete, 3, "impl_1 stopped at 50%"),
    "run_overtime": (ToolTimeout, 3, "run impl_1 was still running after 180 minutes, at 80%"),
    "stale_report": (GateError, 1, "timing_summary: stale: made"),
    "negative_slack": (GateError, 1, r"setup_slack: -0\.\d+ ns, limit 0\.0 ns \(.*length_counter_reg\[3\]/C -> "),
    "hold_violation": (GateError, 1, r"hold_slack: -0\.031 ns.*result_q_reg\[7\]/C"),
    "pulse_width_violation": (GateError, 1, r"pulse_width_slack: -0\.667 ns"),
    "empty_slack": (GateError, 1, r"setup_slack: nothing.*no path was timed"),
    "critical_warning": (GateError, 1, r"impl_1/runme\.log: \[Timing 38-282\]"),
    "critical_warning_synthesis": (GateError, 1, r"synth_1/runme\.log: \[Synth 8-3352\]"),
    "unclocked_registers": (GateError, 1, "unclocked_registers: 12 registers"),
    "unsafe_crossing": (GateError, 1, r"clk_fpga_0 -> clk_fpga_1 \(12 endpoints\)"),
    "too_many_luts": (GateError, 1, r"lut: \d+ LUT, limit 31920 LUT"),
    "drc_error": (GateError, 1, r"UCIO-1 \(Error, 2\)"),
    "unrouted": (GateError, 1, "routed: 7 nets"),
    "killed_run": (RunKilled, 3, r"impl_1/runme\.log: .*Terminated"),
    "out_of_memory": (OutOfMemory, 3, r"impl_1/runme\.log: .*Killed"),
    "licence_missing": (LicenceError, 3, r"no licence: .*synth_1/runme\.log: ERROR: \[Common 17-345\]"),
    "missing_ip": (IpMissing, 3, r"xilinx\.com:ip:axi_dma:7\.1"),
    "wrong_version": (VersionMismatch, 3, r"from 2022\.1 to 2024\.2, but .*vivado is 2019\.2"),
    "version_changes": (VersionMismatch, 3, r"version 2022\.2, but version 2024\.1 was found before"),
    "cancelled_run": (RunCancelled, 3, r"synth_1/runme\.log: .*was cancelled"),
    "truncated_bit": (GateError, 1, "the bitstream is cut off: 1348521 of 4045564 bytes"),
    "wrong_content_id": (GateError, 1, "its USR_ACCESS is 0xCAFE1235, not the content id 0xCAFE1234"),
    "wrong_handoff": (GateError, 1, "FCLK_CLK0 is 100 MHz, must be 125"),
    "missing_report": (GateError, 1, "timing_summary: missing"),
    "report_disagrees": (GateError, 1, r"impl_1\.WNS is 0\.\d+, the report says 0\.\d+"),
    "crash": (ToolCrashed, 3, r"ended abnormally \(status -11\)"),
    "hang": (ToolTimeout, 3, r"did not end within 4 s"),
}
HARMLESS = {"phase_differs", "slow"}


def test_every_fault_is_in_the_table() -> None:
    assert set(KNOWN) == set(FAULTS) | HARMLESS


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_ends_in_its_own_error(fault: str, run_build: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    error, status, words = FAULTS[fault]
    monkeypatch.setenv("STANDIN_VIVADO_FAULT", fault)
    chosen = design_with("vivado.licence_wait_s=0")
    deadline = Deadline.after(4 if fault == "hang" else 60)
    with pytest.raises(error, match=words) as caught:
        run_build(chosen=chosen, deadline=deadline)
    assert type(caught.value) is error
    assert getattr(caught.value, "status", None) == status


def test_nothing_goes_on_after_a_build(run_build: Builder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The run that Vivado gave up waiting for has a session of its own: only its folder says whose it is."""
    other = subprocess.Popen(["sleep", "60"], cwd=tmp_path)
    monkeypatch.setenv("STANDIN_VIVADO_FAULT", "run_overtime")
    ended: list[int] = []
    end = leftovers.end_processes_in
    monkeypatch.setattr(leftovers, "end_processes_in", lambda folder: ended.append(end(folder)))
    with pytest.raises(ToolTimeout):
        run_build()
    assert ended == [1]
    assert leftovers.working_in(tmp_path / "one" / "work") == []
    assert leftovers.working_in(tmp_path) == [other.pid] and other.poll() is None
    other.kill()
    other.wait()


@pytest.mark.parametrize("fault", ["negative_slack", "truncated_bit"])
def test_rejected_bitstream_has_no_usable_name(
    fault: str, run_build: Builder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("STANDIN_VIVADO_FAULT", fault)
    with pytest.raises(GateError):
        run_build()
    assert not any((tmp_path / "one" / "out").iterdir())
    attempt = tmp_path / "one" / "work" / "combined-0001"
    assert [p.name for p in (attempt / "out").glob("*.bit*")] == ["tritforge.bit.rejected"]
    assert json.loads((attempt / "gates.json").read_text())["passed"] is False


def test_licence_that_comes_late_is_waited_for(
    run_build: Builder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("STANDIN_VIVADO_FAULT", "licence_missing:2")
    monkeypatch.setenv("STANDIN_VIVADO_STATE", str(tmp_path / "tries"))
    said: list[str] = []
    out = run_build(chosen=design_with("vivado.licence_wait_s=20"), say=said.append)
    assert (out / "bitstream.json").exists()
    assert len(said) == 2 and all("no licence yet" in text for text in said)


def test_each_attempt_has_a_folder_of_its_own(
    run_build: Builder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    run_build("one", work=work)
    monkeypatch.setenv("STANDIN_VIVADO_FAULT", "hold_violation")
    before = {path: path.stat().st_mtime_ns for path in work.rglob("*")}
    with pytest.raises(GateError):
        run_build("two", work=work)
    assert sorted(path.name for path in work.iterdir()) == ["combined-0001", "combined-0002"]
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_no_vivado_at_all(run_build: Builder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr("pipelines.vivado.toolchain.USUAL_PLACES", (str(tmp_path / "opt"),))
    with pytest.raises(
        ToolMissing, match=r"looked for a version from 2022\.1 to 2024\.2: 'vivado' on the PATH"
    ) as caught:
        run_build()
    assert caught.value.status == 3 and "install AMD Vivado" in caught.value.hint


def test_settings64_that_is_not_there(run_build: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "/nowhere/settings64.sh")
    with pytest.raises(ToolMissing, match="TRITFORGE_VIVADO=/nowhere/settings64.sh, which does not exist"):
        run_build()


def test_vivado_named_by_its_folder(run_build: Builder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "Vivado" / "2024.1"
    folder.mkdir(parents=True)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv(VARIABLE, str(folder))
    with pytest.raises(ToolMissing, match=r"Vivado/2024\.1, which holds no settings64\.sh"):
        run_build()
    (folder / "settings64.sh").write_text(f'export PATH="{STANDIN}:$PATH"\n')
    assert (run_build("two") / "bitstream.json").exists()


def test_something_else_named_as_vivado(run_build: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "/bin/echo")
    with pytest.raises(ToolFailed, match="does not answer like Vivado: '-version"):
        run_build()


def test_vivado_through_its_settings_file(run_build: Builder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also with a hostile name: the path is an argument of the shell, never part of its program."""
    folder = tmp_path / "a $(touch pwned) 'b\" c"
    folder.mkdir()
    (folder / "settings64.sh").write_text(f'export PATH="{STANDIN}:$PATH"\n')
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv(VARIABLE, str(folder / "settings64.sh"))
    assert (run_build() / "bitstream.json").exists()
    assert not list(tmp_path.rglob("pwned"))


def test_source_with_a_hostile_name(run_build: Builder, tmp_path: Path) -> None:
    sources = tmp_path / "rtl"
    sources.mkdir()
    for path in RTL.iterdir():
        (sources / path.name).write_bytes(path.read_bytes())
    (sources / "a [exit 7] $b {c.v").write_text("module spare; endmodule\n")
    assert (run_build(sources=sources) / "bitstream.json").exists()


def test_parameters_of_the_shell_reach_the_design(run_build: Builder) -> None:
    out = run_build(chosen=design_with("shell.parameters.MAX_POSITIONS=1024"))
    hwh = (out / "tritforge.hwh").read_text()
    assert '<PARAMETER NAME="MAX_POSITIONS" VALUE="1024"' in hwh and '<PARAMETER NAME="CONTENT_ID"' in hwh


def test_parameters_that_the_shell_has_not_got(run_build: Builder, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="tritforge_shell has no parameter 'MAX_CONTEXT'") as caught:
        run_build(chosen=design_with("shell.parameters.MAX_CONTEXT=1024"))
    assert caught.value.hint == "it has CONTENT_ID, HEAD_DIM, MAX_POSITIONS"
    with pytest.raises(ConfigError, match="has the module 'tritforge_shelf'"):
        run_build("two", chosen=design_with("shell.module=tritforge_shelf"))


def test_attempt_does_not_see_the_outside(finished: Path) -> None:
    """Only relative paths reach the settings, so the folder cannot reach the result."""
    settings = (finished.parent / "work" / "combined-0001" / "settings.tcl").read_text()
    assert str(finished.parent) not in settings and os.path.expanduser("~") not in settings
