"""Killed at any instant, the store holds whole artefacts or none, and the same build can be run again."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from pipelines.base.files import sha256_file
from tests.engine import workshop

ROOT = Path(__file__).resolve().parents[2]
SEED = 20240611
SHORT_ROUNDS = 12
FULL_ROUNDS = 100
PAUSE_S = 0.012


def start(folder: Path, pause_s: float = PAUSE_S) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.engine.workshop", str(folder), str(pause_s)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def assert_all_recorded_is_whole(folder: Path) -> int:
    """Every record that exists names files that exist with exactly their hashes, read anew."""
    store = workshop.store_in(folder)
    count = 0
    for artefact in store.artefacts():
        for name, (digest, size) in artefact.files.items():
            path = artefact.folder / name
            assert path.stat().st_size == size
            assert sha256_file(path) == digest
        if artefact.name.startswith("expand"):
            assert len(artefact.files) == workshop.PIECES
        count += 1
    return count


def test_killed_at_random(tmp_path: Path, full_campaigns: bool) -> None:
    rounds = FULL_ROUNDS if full_campaigns else SHORT_ROUNDS
    dice = random.Random(SEED)
    (tmp_path / "right.txt").write_text("right")
    (tmp_path / "left.txt").write_text("left")
    started = time.monotonic()
    process = start(tmp_path)
    assert process.wait(60) == 0, process.stderr.read() if process.stderr else ""
    whole_run_s = time.monotonic() - started
    killed = 0
    for turn in range(rounds):
        # A new source, so that there is something to build and to kill.
        (tmp_path / "left.txt").write_text(f"left {turn}")
        process = start(tmp_path)
        time.sleep(dice.uniform(0.25, 1.0) * whole_run_s)
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        killed += process.wait(60) == -signal.SIGKILL
        assert_all_recorded_is_whole(tmp_path)
        if dice.random() < 0.5:  # sometimes the next kill meets the leftovers of this one
            outcomes = workshop.build(tmp_path)
            assert all(outcome.status == "passed" for outcome in outcomes)
            join = outcomes[-1].artefact
            assert join is not None
            assert (join.folder / "sum").read_text() == workshop.expected_sum(tmp_path)
    assert killed >= rounds // 2, "most rounds must have been killed before their end, or this test shows nothing"
    outcomes = workshop.build(tmp_path)
    assert [outcome.status for outcome in outcomes] == ["passed"] * 3
    assert assert_all_recorded_is_whole(tmp_path) >= 3
    store = workshop.store_in(tmp_path)
    store.sweep()
    assert not list((tmp_path / ".tritforge" / "work").iterdir()), "nothing of the dead is left after a clean"
    assert all(outcome.cached for outcome in workshop.build(tmp_path))


def test_interrupted_and_resumed(tmp_path: Path) -> None:
    """Ctrl-C while something is being built: status 130, what was finished is kept, and the same build goes on."""
    (tmp_path / "right.txt").write_text("right")
    (tmp_path / "left.txt").write_text("left")
    process = start(tmp_path, pause_s=0.5)
    end = time.monotonic() + 60
    while time.monotonic() < end and not any((tmp_path / ".tritforge").glob("work/*/out/pieces/*")):
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(60) == 130
    kept = assert_all_recorded_is_whole(tmp_path)
    assert kept < 3, "it was interrupted before its end"
    outcomes = workshop.build(tmp_path)
    assert [outcome.status for outcome in outcomes] == ["passed"] * 3
    assert sum(outcome.cached for outcome in outcomes) == kept
    join = outcomes[-1].artefact
    assert join is not None and (join.folder / "sum").read_text() == workshop.expected_sum(tmp_path)


def test_two_processes_build_once(tmp_path: Path) -> None:
    (tmp_path / "left.txt").write_text("left")
    (tmp_path / "right.txt").write_text("right")
    both = [start(tmp_path), start(tmp_path)]
    said = [process.communicate(timeout=60) for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    words = " ".join(out for out, _ in said).split()
    for name in ("expand-left", "expand-right", "join"):
        assert sorted(word for word in words if word.startswith(name + "=")) == [f"{name}=built", f"{name}=cached"]
