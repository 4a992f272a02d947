"""A second simulator, Icarus Verilog through cocotb, agrees on a small set."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from pipelines.base.command import find_tool, run_tool
from pipelines.base.deadline import Deadline
from pipelines.hardware.verilate import RTL, RTL_SOURCES

SECOND = Path(__file__).parent / "icarus"
MAKE_S = 300.0


@pytest.mark.parametrize("top", ["tritforge_matvec", "tritforge_attention", "tritforge_shell"])
def test_agrees(top: str, tmp_path: Path) -> None:
    vvp = tmp_path / "design.vvp"
    # Icarus 11 reads no concurrent assertions; TRITFORGE_SVA is left undefined.
    run_tool(
        [find_tool("iverilog"), "-g2012", "-s", top, "-o", vvp, *(RTL / name for name in RTL_SOURCES)],
        deadline=Deadline.after(MAKE_S),
    )
    config = [sys.executable, "-m", "cocotb.config"]
    library = run_tool([*config, "--lib-name-path", "vpi", "icarus"], deadline=Deadline.after(30)).stdout.strip()
    results = tmp_path / "results.xml"
    root = Path(__file__).resolve().parents[2]
    run_tool(
        [find_tool("vvp"), "-M", Path(library).parent, "-m", Path(library).stem, vvp],
        cwd=tmp_path,
        deadline=Deadline.after(MAKE_S),
        env={
            "MODULE": f"icarus_{top.removeprefix('tritforge_')}",
            "TOPLEVEL": top,
            "TOPLEVEL_LANG": "verilog",
            "COCOTB_RESULTS_FILE": str(results),
            "PYTHONPATH": os.pathsep.join([str(root), str(SECOND), *filter(None, sys.path)]),
            "LIBPYTHON_LOC": run_tool([*config, "--libpython"], deadline=Deadline.after(30)).stdout.strip(),
            "COCOTB_LOG_LEVEL": "ERROR",
        },
    )
    text = results.read_text()
    assert "<testcase" in text and "<failure" not in text and "<error" not in text, text
