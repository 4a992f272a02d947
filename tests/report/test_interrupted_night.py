"""A night killed anywhere: the next one completes, history has no broken row, no lock and no process is left."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipelines.base.files import read_json
from pipelines.report.history import History
from pipelines.report.night import nights, read
from tests.checkout import Copy

ROOT = Path(__file__).resolve().parents[2]
KILLS, SAMPLE, WHOLE_KILLS = 20, 2, 4
NIGHT_S = 1800.0
# Stages that need neither board nor circuits, so that a night is short; every run has new work for each of them.
PIPELINE = """\
prompts: ["x"]
fresh_hours: 0.000001
stages:
  - {name: convert-weights, task: convert-weights}
  - {name: report, task: report, after: [convert-weights]}
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this checkout's files with a state of its own."""
    copy = tmp_path_factory.mktemp("night") / "checkout"
    for name in ("board_rt", "config", "hw", "models", "native", "pipelines", "tasks.py", "inv", "pyproject.toml"):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            copy.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy / name)
    (copy / "config" / "pipelines" / "short.yaml").write_text(PIPELINE)
    return copy


def start(checkout: Path, tokens: int, pipeline: str = "short") -> subprocess.Popen[bytes]:
    """A night whose weights are calibrated on this many tokens, which no night before was."""
    return subprocess.Popen(
        [sys.executable, "tasks.py", "nightly", f"--pipeline={pipeline}", "--json=night.json",
         f"--set=models.tiny.calibration.tokens={tokens}"],
        cwd=checkout, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def running_in(checkout: Path) -> list[int]:
    """Processes whose working folder is the copy, without its board, which outlives a night."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            here = entry.name.isdigit() and (entry / "cwd").readlink() == checkout.resolve()
            if here and b"qemu-system" not in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def test_killed_at_random_points(checkout: Path, full_campaigns: bool) -> None:
    kill_and_go_on(checkout, KILLS if full_campaigns else SAMPLE, "short")


@pytest.mark.campaign
@pytest.mark.emulator
def test_the_whole_night_killed_at_random_points(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The real pipeline, with the board: deploy, text, verify and figures are cut as well."""
    copy = Copy.make(tmp_path_factory.mktemp("whole") / "checkout")
    try:
        kill_and_go_on(copy.root, WHOLE_KILLS, "nightly")
    finally:
        copy.type_it("boards", "--stop=emu1")


def kill_and_go_on(checkout: Path, wanted: int, pipeline: str) -> None:
    first = start(checkout, 100, pipeline)
    began = time.monotonic()
    said, _ = first.communicate(timeout=NIGHT_S)
    assert first.returncode == 0, said.decode()
    whole_s = time.monotonic() - began
    draw = random.Random(8)
    killed = number = 0
    while killed < wanted and number < 3 * wanted:  # a night may be over before its moment comes
        number += 1
        tokens = 40 + number
        victim = start(checkout, tokens, pipeline)
        time.sleep(draw.uniform(0.05, 0.9) * whole_s)
        if victim.poll() is None:
            os.kill(victim.pid, signal.SIGKILL)
            killed += 1
        victim.communicate(timeout=NIGHT_S)
        limit = time.monotonic() + 10
        while running_in(checkout) and time.monotonic() < limit:
            time.sleep(0.05)
        assert running_in(checkout) == [], "a task outlived the night that started it"

        following = start(checkout, tokens, pipeline)
        said, _ = following.communicate(timeout=NIGHT_S)
        assert following.returncode == 0, f"kill {number}: {said.decode()[-3000:]}"
        assert read_json(checkout / "night.json")["status"] == "passed"
        _check_history(checkout)
    assert killed == wanted, "the nights ended before they could be killed"


def _check_history(checkout: Path) -> None:
    kept = checkout / ".tritforge" / "nights"
    with History(checkout / ".tritforge" / "history.sqlite") as history:
        assert history.take_in(kept) == [], "a record was half written"
        history.check()
        assert history.nights() == [path.stem for path in nights(kept)]
    for path in nights(kept):
        night = read(path)
        json.dumps(night.document, allow_nan=False)
        assert night.stages
