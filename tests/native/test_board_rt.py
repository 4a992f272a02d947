"""``board_rt`` runs on a board without the definitions: what it repeats of them is the same."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from board_rt import machine, pl, runtime
from pipelines.golden import formats
from tests.native.conftest import ROOT, test_program

STRUCTURES = {
    "tf_buffer": runtime.Buffer,
    "tf_mmio_options": runtime.MmioOptions,
    "tf_options": runtime._Options,
    "tf_memory_plan": runtime.MemoryPlan,
    "tf_shape": runtime.Shape,
    "tf_sampling": runtime._Sampling,
    "tf_profile": runtime._Profile,
}


def test_structures_are_laid_out_as_in_the_header(tmp_path: Path) -> None:
    lines = []
    wanted = ""
    for name, structure in STRUCTURES.items():
        for field, kind in structure._fields_:
            lines.append(
                f'printf("{name} {field} %zu %zu\\n", offsetof({name}, {field}), sizeof(({name} *)0)->{field});'
            )
            wanted += f"{name} {field} {getattr(structure, field).offset} {ctypes.sizeof(kind)}\n"
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        wanted += f"{name} {ctypes.sizeof(structure)}\n"
    source = tmp_path / "layout.c"
    source.write_text("#include <stdio.h>\n#include <tritforge.h>\nint main(void) {\n" + "\n".join(lines) + "\n}\n")
    program = test_program("layout", "x86_64-linux", "gcc", [source])
    assert subprocess.run([program], capture_output=True, text=True, check=True).stdout == wanted


def test_a_machine_of_many_cores_plays_a_board_of_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bitstream").mkdir()
    (tmp_path / "bitstream" / "libtritforge_rtl.so").touch()
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(machine, "Runtime", lambda *_, **options: options)
    opened: Any = machine.Machine(str(tmp_path)).runtime
    assert opened["threads"] == 2


def test_numbers_and_names_are_those_of_the_definitions() -> None:
    assert (pl.CONTROL_BASE, pl.DMA_BASE, pl.DMA_STRIDE, pl.SEGMENT_BYTES) == (
        formats.CONTROL_BASE, formats.DMA_BASE, formats.DMA_STRIDE, formats.SEGMENT_BYTES
    )  # fmt: skip
    assert (machine.CONTROL_ID, machine.ID, machine.CONTENT_ID, machine.CYCLES_LO) == (
        formats.CONTROL_ID, *(formats.REGISTERS[name] for name in ("ID", "CONTENT_ID", "CYCLES_LO"))
    )  # fmt: skip
    assert runtime.TRACE_POINTS == tuple(name for name, _ in formats.TRACE_POINTS)
    header = (ROOT / "native" / "include" / "tritforge.h").read_text()
    parts = re.findall(r"^    TF_PART_(\w+),", header, re.MULTILINE)
    assert runtime.PARTS == tuple(part.lower() for part in parts)
    statuses = dict(re.findall(r"^    TF_STATUS_(\w+) = (\d+),", header, re.MULTILINE))
    assert sorted(runtime.FAILURES) == sorted(int(number) for number in statuses.values())
