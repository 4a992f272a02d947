"""The history database: idempotent, atomic under kill -9, versioned, and honest about damage."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipelines.base.errors import FormatError, StoreError
from pipelines.report.history import SCHEMA_VERSION, History
from pipelines.report.night import read
from tests.report.nights import BASE, document, keep, synthetic

ROOT = Path(__file__).resolve().parents[2]
ADDS = """
import sys
from pathlib import Path
from pipelines.report.history import History
from pipelines.report.night import nights, read
print("ready", flush=True)
while True:
    with History(Path(sys.argv[1])) as history:
        for path in nights(Path(sys.argv[2])):
            history.add(read(path))
            history._db.execute("UPDATE night SET status = 'touched'")  # so that the next add writes again
"""


def test_taking_in_twice_changes_nothing(tmp_path: Path) -> None:
    synthetic(tmp_path / "nights", 4)
    with History(tmp_path / "h.sqlite") as history:
        history.take_in(tmp_path / "nights")
        before = [history.points(name) for name in history.names()]
        history.take_in(tmp_path / "nights")
        assert [history.points(name) for name in history.names()] == before
        assert len(history.nights()) == 4
        assert all(len(points) == 4 for points in before)


def test_a_night_written_again_replaces_itself(tmp_path: Path) -> None:
    path = keep(tmp_path / "nights", 0, document(0, BASE))
    with History(tmp_path / "h.sqlite") as history:
        assert history.add(read(path))
        assert not history.add(read(path))
        keep(tmp_path / "nights", 0, document(0, BASE, release="f" * 64))
        history.take_in(tmp_path / "nights")
        assert {point.release for point in history.points("generate.tokens_per_s")} == {"f" * 64}


def counted(database: Path, night: str) -> int:
    with contextlib.closing(sqlite3.connect(database)) as db:
        return int(db.execute("SELECT COUNT(*) FROM figure WHERE night = ?", (night,)).fetchone()[0])


def test_killed_while_adding_leaves_no_broken_row(tmp_path: Path) -> None:
    synthetic(tmp_path / "nights", 3)
    database = tmp_path / "h.sqlite"
    whole = 0
    for i in range(8):
        process = subprocess.Popen(
            [sys.executable, "-c", ADDS, str(database), str(tmp_path / "nights")], cwd=ROOT, stdout=subprocess.PIPE
        )
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        time.sleep(0.01 + 0.013 * i)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        with History(database) as history:
            history.check()
            for night in history.nights():
                count = counted(database, night)
                assert count in (0, whole) or not whole
                whole = whole or count
    assert whole > 10
    with History(database) as history:
        history.take_in(tmp_path / "nights")
        assert len(history.nights()) == 3


def test_newer_schema_is_refused(tmp_path: Path) -> None:
    with History(tmp_path / "h.sqlite"):
        pass
    db = sqlite3.connect(tmp_path / "h.sqlite")
    db.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    db.close()
    with pytest.raises(StoreError, match="schema 2"):
        History(tmp_path / "h.sqlite")


def test_a_damaged_file_is_an_error_with_a_way_out(tmp_path: Path) -> None:
    (tmp_path / "h.sqlite").write_bytes(b"no database" * 100)
    with pytest.raises(StoreError, match="h.sqlite") as caught:
        History(tmp_path / "h.sqlite")
    assert "made again" in caught.value.hint


def test_a_half_record_is_named_and_hides_no_other(tmp_path: Path) -> None:
    synthetic(tmp_path / "nights", 2)
    (tmp_path / "nights" / "20250101T000000Z-nightly.json").write_text('{"board": "emu1", "stages": [')
    (tmp_path / "nights" / "20250102T000000Z-nightly.json").write_text("[]")
    with History(tmp_path / "h.sqlite") as history:
        faults = history.take_in(tmp_path / "nights")
        assert len(faults) == 2 and all(isinstance(fault, FormatError) for fault in faults)
        assert len(history.nights()) == 2
