"""The block diagram in the docs is that of the RTL."""

from __future__ import annotations

import shutil
from pathlib import Path
from xml.etree import ElementTree

from pipelines.base.deadline import Deadline
from pipelines.hardware import diagram
from pipelines.hardware.verilate import RTL


def test_the_picture_is_up_to_date() -> None:
    drawn = diagram.picture(deadline=Deadline.after(300))
    ElementTree.fromstring(drawn)
    assert diagram.PICTURE.read_text() == drawn, "python -m pipelines.hardware.diagram"


def test_a_change_of_the_rtl_shows(tmp_path: Path) -> None:
    rtl = shutil.copytree(RTL, tmp_path / "rtl")
    fifo = rtl / "tritforge_matvec.sv"
    fifo.write_text(fifo.read_text().replace("FifoDepth    = 32", "FifoDepth    = 64"))
    drawn = diagram.picture(deadline=Deadline.after(300), rtl=rtl)
    assert "memory mem: 64 × 65 bit" in drawn
    assert "memory mem: 64 × 65 bit" not in diagram.PICTURE.read_text()
