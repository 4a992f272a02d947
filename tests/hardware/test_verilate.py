"""The simulated logic as a build: the same bytes from any folder, and its content id in it."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import numpy as np
import pytest

from pipelines.base.deadline import Deadline
from pipelines.base.errors import ConfigError
from pipelines.engine.compare import compare_folders
from pipelines.hardware import verilate
from pipelines.hardware.checks import random_groups
from pipelines.hardware.library import Pl
from pipelines.hardware.streams import matvec_transfer
from pipelines.runtime.build import host_target

BUILD_S = 600.0


def built(folder: Path, content_id: int, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Both libraries of this machine; every scratch folder of the build lies below ``folder`` too."""
    scratch = folder / "scratch"
    scratch.mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    out = folder / "out"
    verilate.build_library(
        host_target(), out, content_id=content_id, deadline=Deadline.after(BUILD_S), log=folder / "log"
    )
    return out


def test_two_builds_in_different_folders_are_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders of different lengths: a path in an output would move everything behind it."""
    first = built(tmp_path / "a", 0xC0FFEE, monkeypatch)
    second = built(tmp_path / "a" / "much" / "deeper" / "folder", 0xC0FFEE, monkeypatch)
    compared = compare_folders(first, second)
    assert {entry.name for entry in compared} == {verilate.RTL_LIBRARY, verilate.MODEL_LIBRARY, "bitstream.json"}
    assert [entry.name for entry in compared if not entry.identical] == []
    with Pl(second / verilate.RTL_LIBRARY, memory_bytes=1 << 16) as board:
        assert board.control("CONTENT_ID") == 0xC0FFEE


def test_waveforms_have_the_engines_in_them(tmp_path: Path) -> None:
    """What ``--waves`` builds: a VCD with the signals of both circuits, and changes of those that were at work."""
    library, dump = tmp_path / "waves.so", tmp_path / "run.vcd"
    verilate.build_rtl(
        host_target(), library, content_id=1, deadline=Deadline.after(BUILD_S), log=tmp_path / "log", waves=True
    )
    stream, answer = matvec_transfer(random_groups(np.random.default_rng(51), 2))
    with Pl(library, memory_bytes=1 << 20) as board:
        board.reset(0)
        board.waves(dump)
        assert np.array_equal(board.transfer(0, stream, answer.size), answer)
        board.waves(None)
    text = dump.read_text()
    for signal in ("credit_q", "z_max_q", "cycles_q", "s_axis_mv0_tdata"):
        assert re.search(rf"\$var wire +\d+ \S+ {signal} ", text), signal
    code = re.search(r"\$var wire +\d+ (\S+) s_axis_mv0_tdata ", text)
    assert code is not None
    assert len(re.findall(rf"^b[01]+ {re.escape(code.group(1))}$", text, re.MULTILINE)) > stream.size // 2


def test_a_content_id_of_more_than_32_bits(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="32-bit"):
        verilate.build_library(
            host_target(), tmp_path, content_id=1 << 32, deadline=Deadline.after(BUILD_S), log=tmp_path / "log"
        )


def test_a_machine_without_simulated_logic(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="aarch64-macos"):
        verilate.build_model("aarch64-macos", tmp_path / "x.so", deadline=Deadline.after(60), log=tmp_path / "log")
