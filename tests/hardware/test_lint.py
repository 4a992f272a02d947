"""Verilator, slang and yosys read the same sources and have nothing to say."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from pyslang.driver import Driver

from pipelines.base.command import find_tool, run_tool
from pipelines.base.deadline import Deadline
from pipelines.golden.codegen import GENERATED
from pipelines.hardware.verilate import RTL, RTL_SOURCES, TOP

SOURCES = [str(RTL / name) for name in RTL_SOURCES]


@pytest.mark.parametrize("defines", [[], ["-DTRITFORGE_SVA", "--assert"]], ids=["design", "assertions"])
@pytest.mark.parametrize("parameters", [{}, {"HEAD_DIM": 8, "MAX_POSITIONS": 2048}, {"MAX_POSITIONS": 1}])
def test_verilator(defines: list[str], parameters: dict[str, int]) -> None:
    chosen = [f"-G{name}={value}" for name, value in parameters.items()]
    run_tool(
        [find_tool("verilator"), "--lint-only", "-Wall", *defines, *chosen, "--top-module", TOP,
         str(RTL / "waivers.vlt"), *SOURCES],
        deadline=Deadline.after(120),
    )  # fmt: skip


@pytest.mark.parametrize("parameters", [{"HEAD_DIM": 12}, {"MAX_POSITIONS": 4096}, {"HEAD_DIM": 512}])
def test_wrong_parameters_end_at_elaboration(parameters: dict[str, int]) -> None:
    chosen = [f"-G{name}={value}" for name, value in parameters.items()]
    result = run_tool(
        [find_tool("verilator"), "--lint-only", *chosen, "--top-module", TOP, *SOURCES],
        deadline=Deadline.after(120),
        check=False,
    )
    assert result.status != 0
    assert "_must_be_" in result.stderr


def test_every_waiver_has_its_reason() -> None:
    lines = (RTL / "waivers.vlt").read_text().splitlines()
    for number, line in enumerate(lines):
        if line.startswith("lint_off"):
            assert lines[number - 1].startswith("//"), line
    for name in RTL_SOURCES:
        assert "lint_off" not in (RTL / name).read_text(), f"{name} silences a warning where it stands"


def test_slang() -> None:
    driver = Driver()
    driver.addStandardArgs()
    arguments = f"slang -Wextra -Werror --single-unit --top {TOP} {' '.join(SOURCES)}"
    assert driver.parseCommandLine(arguments)
    assert driver.processOptions()
    assert driver.parseAllSources()
    assert driver.runFullCompilation()


def test_yosys_reads_the_sources_and_finds_no_latch_and_no_loop() -> None:
    script = f"read_verilog -sv {' '.join(SOURCES)}; hierarchy -check -top {TOP}; proc; flatten; opt; check -assert"
    result = run_tool([find_tool("yosys"), "-p", script], deadline=Deadline.after(180))
    assert "Latch inferred" not in result.stdout
    assert "Found and reported 0 problems" in result.stdout


def test_lines_fit_and_no_tabs() -> None:
    for name in RTL_SOURCES:
        if name == "tritforge_pkg.sv":
            continue
        for number, line in enumerate((RTL / name).read_text().splitlines(), 1):
            assert "\t" not in line and line == line.rstrip(), f"{name}:{number}"
            assert len(line) <= 120 or "X_INTERFACE" in line, f"{name}:{number} has {len(line)} columns"


def test_the_package_is_what_the_golden_formats_define() -> None:
    assert (RTL / "tritforge_pkg.sv").read_text() == GENERATED["hw/rtl/tritforge_pkg.sv"]()


def test_no_vendor_primitive() -> None:
    primitive = re.compile(r"\b(RAMB\w+|DSP48\w*|BUFG\w*|FDRE|LUT[1-6]|SRL\w+|IBUF\w*)\b")
    for name in RTL_SOURCES:
        code = re.sub(r"//.*", "", (RTL / name).read_text())
        assert not primitive.search(code), name


def test_the_shell_is_plain_verilog(tmp_path: Path) -> None:
    """Icarus in its Verilog-2001 mode takes it; Vivado refuses SystemVerilog in a module reference."""
    stub = tmp_path / "stub.v"
    ports = re.findall(r"\.(\w+)\s*\(", (RTL / "tritforge_shell.v").read_text().split("u_top (")[1])
    parameters = re.findall(r"\.(\w+)\s*\(", (RTL / "tritforge_shell.v").read_text().split("#(")[2].split("u_top")[0])
    stub.write_text(
        "module tritforge_top #("
        + ", ".join(f"parameter {name} = 0" for name in parameters)
        + ") ("
        + ", ".join(f"inout [255:0] {name}" for name in ports)
        + "); endmodule\n"
    )
    result = subprocess.run(
        [find_tool("iverilog"), "-g2001", "-o", tmp_path / "shell", str(RTL / "tritforge_shell.v"), stub],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "error" not in result.stderr.lower(), result.stderr
