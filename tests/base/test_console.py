"""Progress as plain lines where nobody watches, with what is done and what is left."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.base import console as console_module
from pipelines.base.console import Activity, Console, amount, seconds
from pipelines.base.errors import Interrupted

ROOT = Path(__file__).resolve().parents[2]


def test_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(console_module, "PLAIN_EVERY_S", 0.5)
    with Console(stream).activity("pack") as activity:
        activity.update(1 << 20, 4 << 20, "bytes")
    assert stream.getvalue().splitlines()[0].startswith("pack: 0.0")
    assert "1.0 MiB of 4.0 MiB" in stream.getvalue()
    assert stream.getvalue().splitlines()[-1].startswith("pack: done in ")


def test_a_failure_is_said() -> None:
    stream = io.StringIO()
    with pytest.raises(RuntimeError), Console(stream).activity("pack"):
        raise RuntimeError
    assert stream.getvalue().startswith("pack: failed in ")


def test_what_an_interrupt_ended_has_not_failed() -> None:
    stream = io.StringIO()
    with pytest.raises(Interrupted), Console(stream).activity("pack"):
        raise Interrupted("'zig' was stopped")
    assert stream.getvalue().startswith("pack: interrupted in ")


def test_what_is_left() -> None:
    activity = Activity(Console(io.StringIO()), "x", expected_s=100)
    activity.started -= 25
    assert 74 < (activity.remaining_s() or 0) <= 75
    activity.done, activity.total = 1, 4
    assert 74 < (activity.remaining_s() or 0) < 76
    assert Activity(Console(io.StringIO()), "x", None).remaining_s() is None


def test_words() -> None:
    assert [seconds(value) for value in (0.42, 12.34, 245, 3725)] == ["0.42 s", "12.3 s", "4 min 05 s", "1 h 02 min"]
    assert amount(3, "tokens") == "3 tokens"
    activity = Activity(Console(io.StringIO()), "x", None)
    activity.done, activity.total, activity.unit = 40, 100, "tokens"
    assert activity.state().split(", ")[1] == "40 of 100 tokens"


def test_rich_is_not_loaded_before_it_is_needed() -> None:
    code = "import sys; import pipelines.base.console; sys.exit('rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
