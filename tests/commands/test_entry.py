"""From a task to its exit status and its JSON, also when it fails, is interrupted, or has a fault of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pipelines.base import command, errors
from pipelines.base.console import Console
from pipelines.commands import entry
from pipelines.commands.context import Context
from tests.checkout import heed_signals


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, dict[str, Any]]]:
    """Runs a made-up task whose body is given; returns the exit status and what ``--json`` wrote."""

    def run(body: Callable[[], dict[str, Any]], **flags: Any) -> tuple[int, dict[str, Any]]:
        module = ModuleType("pipelines.commands.made_up")
        module.run = lambda context, **options: body()  # type: ignore[attr-defined]
        module.plan = lambda context, **options: {  # type: ignore[attr-defined]
            "stages": [{"name": "s", "cached": False, "reason": "x changed"}],
            "steps": ["say hello"],
        }
        module.show = lambda result: print("shown", sorted(result))  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "pipelines.commands.made_up", module)
        answer = tmp_path / "deep" / "answer.json"
        status = entry.execute(
            "made-up", {}, json_file=str(answer), context=Context(root=tmp_path, console=Console(quiet=True)), **flags
        )
        return status, json.loads(answer.read_text())

    return run


def test_passed(task: Any, capsys: pytest.CaptureFixture[str]) -> None:
    status, document = task(lambda: {"words": 3})
    assert (status, document["task"], document["status"], document["words"]) == (0, "made-up", "passed", 3)
    assert document["elapsed_s"] >= 0 and "error" not in document
    assert capsys.readouterr().out == "shown ['words']\n"


# Every error that a user may meet, with the exit status that the commands promise.
STATUSES = {
    1: ["CheckFailed", "GateError", "MismatchError"],
    2: ["ConfigError", "UsageError", "CheckpointError", "FormatError"],
    3: [
        "TritforgeError", "ToolMissing", "ToolFailed", "ToolTimeout", "OutOfMemory", "DiskFull", "LicenceError",
        "StoreError",
    ],
    4: [
        "BoardError", "BoardOffline", "BoardBusy", "LockHeld", "BoardUnfit", "BoardDiskFull", "HostKeyChanged",
        "SignatureError", "Unshippable", "PlTimeout",
    ],
    5: ["TransferError"],
    130: ["Interrupted"],
}  # fmt: skip


def test_every_error_has_its_place_in_the_table() -> None:
    listed = {name for names in STATUSES.values() for name in names}
    assert listed == {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.TritforgeError)
    }


@pytest.mark.parametrize(("status", "name"), [(status, name) for status, names in STATUSES.items() for name in names])
def test_each_error_ends_in_its_status(task: Any, status: int, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    def body() -> dict[str, Any]:
        raise getattr(errors, name)("it went wrong", hint="do this", log=Path("/some/log"), result={"found": 7})

    got, document = task(body)
    assert got == status
    assert document["error"] == {"class": name, "message": "it went wrong", "hint": "do this", "log": "/some/log"}
    assert document["status"] == {1: "failed"}.get(status, "offline" if name == "BoardOffline" else "error")
    assert document["found"] == 7, "what was found before it failed is in the JSON all the same"
    said = capsys.readouterr().err
    assert "it went wrong\n  hint: do this\n  log: /some/log\n" in said
    assert "Traceback" not in said


def test_the_traceback_is_for_who_asks(task: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def body() -> dict[str, Any]:
        raise errors.UsageError("no")

    task(body, debug=True)
    assert "Traceback" in capsys.readouterr().err


def test_a_fault_of_ours_is_said_and_kept(task: Any, capsys: pytest.CaptureFixture[str]) -> None:
    status, document = task(lambda: {}["missing"])
    assert (status, document["status"]) == (3, "error")
    assert document["error"]["message"] == "a fault in tritforge itself: KeyError: 'missing'"
    assert "KeyError" in Path(document["error"]["log"]).read_text()
    assert "Traceback" not in capsys.readouterr().err


def test_interrupted(task: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[bool] = []
    monkeypatch.setattr(command, "stop_all_tools", lambda: stopped.append(True))

    def body() -> dict[str, Any]:
        raise KeyboardInterrupt

    status, document = task(body)
    assert (status, document["error"]["class"], stopped) == (130, "Interrupted", [True])


def test_a_plan_runs_nothing(task: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def body() -> dict[str, Any]:
        raise AssertionError("a plan must not run the task")

    status, document = task(body, plan=True)
    assert status == 0 and document["stages"][0]["reason"] == "x changed"
    assert capsys.readouterr().out == "s: would run, because x changed\nwould say hello\n"


def test_json_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    context = Context(root=tmp_path, console=Console(quiet=True))
    status = entry.execute("version", {}, json_file=str(tmp_path / "file" / "x.json"), plan=False, context=context)
    assert status in (2, 3) and "file" in capsys.readouterr().err


def test_json_into_a_pipe_is_written_into_it(tmp_path: Path) -> None:
    """And not over it: as root, a rename would take the place of a device such as /dev/stdout."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert entry._write_json(str(pipe), "made-up", {"words": 3}, None, 0.1) == 0
        assert json.loads(os.read(reader, 4096))["words"] == 3
    finally:
        os.close(reader)
    assert pipe.is_fifo()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_lost_terminal_ends_what_was_started(tmp_path: Path, number: signal.Signals) -> None:
    code = (
        "import pathlib, sys, types\n"
        "from pipelines.base.command import run_tool\n"
        "from pipelines.base.deadline import Deadline\n"
        "from pipelines.commands import entry\n"
        "module = types.ModuleType('pipelines.commands.made_up')\n"
        "script = f'echo $$ >{sys.argv[1]}; exec sleep 60'\n"
        "module.run = lambda context: run_tool(['sh', '-c', script], deadline=Deadline.after(60))\n"
        "sys.modules[module.__name__] = module\n"
        "sys.exit(entry.execute('made-up', {}))\n"
    )
    note = tmp_path / "pid"
    process = subprocess.Popen(
        [sys.executable, "-c", code, note], stderr=subprocess.PIPE, text=True, preexec_fn=heed_signals
    )
    end = time.monotonic() + 60
    while not (note.exists() and note.read_text().strip()):
        assert time.monotonic() < end
        time.sleep(0.02)
    process.send_signal(number)
    assert "interrupted" in process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert not Path(f"/proc/{note.read_text().strip()}").exists()
