"""A lock between processes that says who holds it and is free when its holder is dead."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipelines.base.deadline import Deadline
from pipelines.base.errors import LockHeld
from pipelines.base.lock import held

ROOT = Path(__file__).resolve().parents[2]
HOLD = """
import sys, time
from pathlib import Path
from pipelines.base.lock import held
with held(Path(sys.argv[1]), "a long build"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_the_holder_is_named_and_its_death_frees(tmp_path: Path) -> None:
    path = tmp_path / "locks" / "x.lock"
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(LockHeld) as caught, held(path, "another build"):
        pass
    assert f"process {holder.pid} (a long build, since " in caught.value.message
    assert caught.value.status == 4
    told: list[str] = []
    with pytest.raises(LockHeld), held(path, "another", deadline=Deadline.after(0.3), on_wait=told.append):
        pass
    assert len(told) == 1 and "a long build" in told[0]
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    started = time.monotonic()
    with held(path, "another build", deadline=Deadline.after(5)):
        assert time.monotonic() - started < 2
