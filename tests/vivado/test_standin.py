"""The stand-in itself: what it must refuse, that its dump is the reviewed one, that its assumptions are listed."""

# ruff: noqa: E501  a case is one line of its table

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.vivado import attempt
from pipelines.vivado.facts import Facts
from tests.vivado import mutants
from tests.vivado.conftest import CONTENT_ID, RTL, STANDIN, design_with
from tests.vivado.standin import tcl as tcl_lists

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", mutants.DESIGNS)
def test_design_is_the_reviewed_one(name: str, tmp_path: Path) -> None:
    """After a wanted change: python -m tests.vivado.mutants --write-golden, and review the difference."""
    design = design_with(*mutants.DESIGNS[name])
    work = attempt.prepare(tmp_path / "a", design, sources=RTL, content_id=CONTENT_ID, vivado_version="2024.1").folder
    subprocess.run([STANDIN / "vivado", *attempt.ARGUMENTS], cwd=work, check=True, capture_output=True, timeout=60)
    assert mutants.golden_difference(name, mutants.dump_of(work, design)) == ""


def test_ps7_is_given_all_the_facts_of_the_board() -> None:
    """275 settings: 261 constant ones of the board, 14 that follow from the design."""
    import json

    built = json.loads((mutants.GOLDEN / "combined.json").read_text())["built"]
    config = built["cells"]["ps7"]["config"]
    assert len(config) == 275
    assert config["PCW_UIPARAM_DDR_PARTNO"] == "MT41J256M16 RE-125"
    assert config["PCW_UIPARAM_DDR_BUS_WIDTH"] == "16 Bit" and config["PCW_FPGA0_PERIPHERAL_FREQMHZ"] == "125"


def test_golden_wiring_read_by_eye() -> None:
    """The connections that the whole project rests on, written down once more by hand."""
    import json

    built = json.loads((mutants.GOLDEN / "combined.json").read_text())["built"]
    for engine, stream, port in (
        ("matvec0", "mv0", "HP0"), ("matvec1", "mv1", "HP2"), ("attention0", "at0", "HP1"), ("attention1", "at1", "HP3"),
    ):  # fmt: skip
        assert f"dma_{engine}/M_AXIS_MM2S -> shell/s_axis_{stream}" in built["interfaces"]
        assert f"shell/m_axis_{stream} -> dma_{engine}/S_AXIS_S2MM" in built["interfaces"]
        assert f"bus_{engine}/M00_AXI -> ps7/S_AXI_{port}" in built["interfaces"]
        assert f"dma_{engine}/Data_MM2S: 0x00000000 0x20000000 ps7/S_AXI_{port}/{port}_DDR_LOWOCM" in built["addresses"]
    assert "ps7/Data: 0x43C00000 0x10000 shell/s_axi/reg0" in built["addresses"]
    assert built["clocks_mhz"] == {"ps7/FCLK_CLK0": 125.0}


Script = Callable[..., str]


@pytest.fixture
def refused(tmp_path: Path) -> Script:
    """Builds with some of the Tcl or of the sources changed; returns why the stand-in refused."""

    def run(changes: dict[str, tuple[str, str]], *overrides: str) -> str:
        scripts = tmp_path / "tcl"
        scripts.mkdir()
        sources = tmp_path / "rtl"
        sources.mkdir()
        for path in [*attempt.SCRIPTS.glob("*"), *RTL.glob("*")]:
            (sources if path.parent == RTL else scripts).joinpath(path.name).write_bytes(path.read_bytes())
        for name, (old, new) in changes.items():
            target = (sources if (sources / name).exists() else scripts) / name
            text = target.read_text()
            assert old in text, f"{name} has no {old!r}"
            target.write_text(text.replace(old, new))
        work = attempt.prepare(
            tmp_path / "a", design_with(*overrides), sources=sources, content_id=CONTENT_ID, vivado_version="2024.1",
            scripts=scripts,
        ).folder  # fmt: skip
        done = subprocess.run(
            [STANDIN / "vivado", *attempt.ARGUMENTS], cwd=work, capture_output=True, text=True, timeout=60
        )
        assert done.returncode != 0 and not Facts.read(work / "facts.tsv").finished
        return Facts.read(work / "facts.tsv").get("failed") + done.stdout

    return run


BD = "block_design.tcl"
SHELL = "tritforge_shell.v"
ACP = ("dma.results_port=acp",)
CASES: dict[str, tuple[dict[str, tuple[str, str]], tuple[str, ...], str]] = {
    "unknown command": ({BD: ("save_bd_design", "save_bd_dsign")}, (), "invalid command name"),
    "unknown option": ({BD: ("assign_bd_address -offset", "assign_bd_address -base")}, (), "Unknown option '-base'"),
    "abbreviated option": ({BD: ("-range $bytes", "-ran $bytes")}, (), "Unknown option '-ran'"),
    "unknown IP version": ({BD: ("axi_dma:7.1", "axi_dma:7.2")}, (), "IP definition not found"),
    "unknown CONFIG name": ({BD: ("c_include_sg", "c_incl_sg")}, (), r"'CONFIG\.c_incl_sg' does not exist"),
    "value out of range": ({BD: ("c_addr_width 32", "c_addr_width 31")}, (), "out of the range for parameter 'c_addr_w"),
    "stream width": ({BD: ("c_m_axis_mm2s_tdata_width 64", "c_m_axis_mm2s_tdata_width 32")}, (), "TDATA_NUM_BYTES"),
    "memory width": ({BD: ("c_m_axi_mm2s_data_width 64", "c_m_axi_mm2s_data_width 128")}, (), "128 bits wide"),
    "burst too long": ({BD: ("c_mm2s_burst_size $tf(burst_beats)", "c_mm2s_burst_size 32")}, (), "bursts of 32"),
    "realignment": ({BD: ("c_include_mm2s_dre 0", "c_include_mm2s_dre 1")}, (), "realignment"),
    "default length": ({BD: ("c_sg_length_width $tf(length_width)", "c_micro_dma 0")}, (), "set twice|default of 14 bits"),
    "clock missing": ({BD: ("clocked_by_fabric shell/aclk", "")}, (), "not connected to a valid clock source: /shell/aclk"),
    "reset missing": ({BD: ("reset_by_fabric $cell/axi_resetn", "")}, (), "reset pin /dma_matvec0/axi_resetn"),
    "reset polarity": (
        {BD: ("[bd_pin reset/peripheral_aresetn]", "[bd_pin reset/peripheral_reset]")}, (), "opposite polarities",
    ),
    "clock as reset": ({BD: ("[bd_pin reset/peripheral_aresetn]", "[bd_pin ps7/FCLK_CLK0]")}, (), "which is no reset"),
    "string for object": ({BD: ("return [get_bd_pins /$path]", "return /$path")}, (), "an object is needed"),
    "two masters": ({BD: ("shell/s_axis_$stream", "$cell/S_AXIS_S2MM")}, (), "already connected"),
    "swapped engines": (
        {BD: ("connect_interface $cell/M_AXIS_MM2S shell/s_axis_$stream",
              "connect_interface $cell/M_AXIS_MM2S shell/s_axis_[string map {0 1 1 0} $stream]")},
        (), "feeds mv1 but takes the results of mv0",
    ),
    "address not assigned": ({BD: ("assign_segment ps7/Data shell/s_axi/reg0", "list")}, (), "shell/s_axi/reg0> is not assign"),
    "address overlap": (
        {BD: ("$tf(dma.$dma.base) $tf(dma.$dma.bytes)", "0x40400000 $tf(dma.$dma.bytes)")}, (), "overlaps",
    ),
    "address outside": ({BD: ("$tf(control.base)", "0x83C00000")}, (), "outside the address space"),
    "wrong space": ({BD: ("set space dma_$dma/Data_[string range $master 6 end]", "set space ps7/Data")}, (), "outside the address space"),
    "another port's memory": ({BD: ("set port $tf(dma.$dma.port)", "set port HP3")}, (), "cannot be reached"),
    "DDR part": ({"ps7_pynq_z1.tcl": ("MT41J256M16 RE-125", "MT41J128M16 HA-125")}, (), "the DDR chips hold"),
    "clock not exact": ({BD: ("PCW_FPGA0_PERIPHERAL_FREQMHZ $tf(clock_mhz)", "PCW_FPGA0_PERIPHERAL_FREQMHZ 130")}, (), "cannot be 130 MHz"),
    "bank voltage": ({"ps7_pynq_z1.tcl": ("PCW_MIO_9_IOTYPE  {LVCMOS 3.3V}", "PCW_MIO_9_IOTYPE {LVCMOS 1.8V}")}, (), "MIO 9 is"),
    "not validated": ({BD: ("    validate_bd_design\n", "")}, (), "save after validate_bd_design"),
    "not saved": ({BD: ("    save_bd_design\n", "")}, (), "not saved"),
    "threads": ({"project.tcl": ("set_param general.maxThreads $tf(threads)", "")}, (), "maxThreads is not fixed"),
    "IP cache": ({"project.tcl": ("config_ip_cache -disable_cache", "")}, (), "cache of synthesised IP"),
    "WNS before open_run": ({"reports.tcl": ("open_run impl_1 -name impl_1", "")}, (), "No open design"),
    "implementation before synthesis": ({"build.tcl": ("    run_synthesis\n", "")}, (), "synth_1 has not completed"),
    "status not waited for": ({"project.tcl": ("wait_on_run -timeout $minutes $name", "")}, (), "still running after .* at 5%"),
    "content id in one place only": ({"project.tcl": ("$tf(content_id) \\", "0x00000001 \\")}, (), "one and the same"),
    "shell port width": ({SHELL: ("input  wire [63:0] s_axis_mv1_tdata", "input  wire [31:0]  s_axis_mv1_tdata")}, (), "TDATA_NUM_BYTES"),
    "shell without tlast": ({SHELL: ("m_axis_at0_tlast", "m_axis_at0_tlst")}, (), "needs TLAST"),
    "shell stream turned round": ({SHELL: ("output wire [63:0] m_axis_mv0_tdata", "input  wire [63:0] m_axis_mv0_tdata")}, (), "wrong direction"),
    "shell renamed": ({BD: ("-reference $tf(shell)", "-reference $tf(shell)f")}, (), "was not found among the sources"),
    "shell answer turned round": ({SHELL: ("output wire        s_axi_rvalid", "input  wire        s_axi_rvalid")}, (), "port s_axi_rvalid of tritforge_shell has the wrong direction"),
    "source missing": ({"tritforge_result_fifo.sv": ("module tritforge_result_fifo", "module tritforge_fifo")}, (), "module 'tritforge_result_fifo' not found"),
    "package missing": ({"tritforge_pkg.sv": ("package tritforge_pkg", "package tritforge_package")}, (), "'tritforge_pkg' not found"),
    "content id too narrow": ({SHELL: ("parameter [31:0] CONTENT_ID", "parameter [15:0] CONTENT_ID")}, (), "does not fit 16 bits"),
    "ACP not enabled": ({BD: ("PCW_USE_S_AXI_ACP 1", "PCW_USE_S_AXI_ACP 0")}, ACP, "No pins matched|object is needed"),
    "ACP without shim": (
        {BD: ("connect_interface bus_acp/M00_AXI acp_port/s_axi\n    connect_interface acp_port/m_axi ps7/S_AXI_ACP",
              "connect_interface bus_acp/M00_AXI ps7/S_AXI_ACP")},
        ACP, "sets neither AxCACHE nor AxUSER|cannot be reached",
    ),
    "ACP not cacheable": ({"acp_port.v": ("COHERENT_CACHE = 4'b1111", "COHERENT_CACHE = 4'b0011")}, ACP, "does not drive AWCACHE with 1111"),
    "ACP not shared": ({"acp_port.v": ("COHERENT_USER  = 5'b11111", "COHERENT_USER  = 5'b11110")}, ACP, r"does not drive AWUSER\[0\]"),
    "ACP user tied off": ({BD: ("PCW_USE_DEFAULT_ACP_USER_VAL 0", "PCW_USE_DEFAULT_ACP_USER_VAL 1")}, ACP, "ties AxUSER"),
    "ACP without filling": (
        {BD: ("connect_interface shell/m_axis_$stream pad_$dma/s_axis\n        connect_interface pad_$dma/m_axis $cell/S_AXIS_S2MM",
              "connect_interface shell/m_axis_$stream $cell/S_AXIS_S2MM")},
        ACP, "without being filled to 32 bytes",
    ),
    "ACP reaches too far": ({BD: ("exclude_segment acp_port/m_axi", "list")}, ACP, "ACP_IOP> is not assigned"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_refuses(case: str, refused: Script) -> None:
    changes, overrides, words = CASES[case]
    assert re.search(words, refused(changes, *overrides)), words


def test_every_assumption_is_on_the_checklist() -> None:
    """What the stand-in assumes is marked in its source; docs/vivado.md lists each with the way to check it."""
    source = "\n".join(path.read_text() for path in (Path(__file__).parent / "standin").glob("*.py"))
    made = re.findall(r"ASSUMPTION (A\d\d):", source)
    listed = re.findall(r"^\| (A\d\d) \|", (ROOT / "docs" / "vivado.md").read_text(), re.M)
    assert len(set(made)) == len(made) and sorted(made) == sorted(listed)


@pytest.mark.parametrize("items", [[], ["a"], ["a b", "{", "x}y", "$z [exit]", 'say "hi"', "", "back\\slash", "#no"]])
def test_lists_survive_tcl(items: list[str]) -> None:
    """Our lists are Tcl's, both ways."""
    text = tcl_lists.join(items)
    assert tcl_lists.split(text) == items
    script = "foreach item [lindex $argv 0] { puts -nonewline $item\\u0001 }"
    done = subprocess.run(
        ["tclsh", "/dev/stdin", text], input=script, capture_output=True, text=True, check=True, timeout=20
    )
    assert done.stdout.split("\x01")[:-1] == items


@pytest.mark.parametrize(
    "arguments",
    [
        ["-mode", "gui"],
        ["-mode", "batch", "-source", "x.tcl"],
        ["-mode", "batch", "-nojournal", "-notrace", "-fast"],
        ["-mode"],
    ],
)
def test_command_line_it_does_not_know(arguments: list[str]) -> None:
    done = subprocess.run([STANDIN / "vivado", *arguments], capture_output=True, text=True, timeout=20)
    assert done.returncode == 1 and "ERROR" in done.stdout
