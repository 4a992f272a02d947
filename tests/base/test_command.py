"""The one way to run a program: what it returns, and what its errors say."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from pipelines.base import command
from pipelines.base.command import run_tool, tool_name
from pipelines.base.deadline import Deadline
from pipelines.base.errors import DiskFull, Interrupted, OutOfMemory, ToolFailed, ToolMissing, ToolTimeout


def soon(seconds: float = 20.0) -> Deadline:
    return Deadline.after(seconds)


def test_both_streams_and_the_log(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "tool.log"
    lines: list[str] = []
    result = run_tool(
        ["sh", "-c", "cat; echo problem >&2; pwd"],
        deadline=soon(),
        cwd=tmp_path,
        log=log,
        stdin="input\n",
        on_line=lines.append,
    )
    assert (result.status, result.stdout, result.stderr) == (0, f"input\n{tmp_path}\n", "problem\n")
    assert sorted(lines) == sorted(["input", "problem", str(tmp_path)])
    text = log.read_text()
    assert text.startswith("$ sh -c ") and "problem" in text and "input" in text


def test_the_log_is_live(tmp_path: Path) -> None:
    log = tmp_path / "tool.log"
    thread = threading.Thread(
        target=run_tool, args=(["sh", "-c", "echo early; sleep 2"],), kwargs={"deadline": soon(), "log": log}
    )
    thread.start()
    end = time.monotonic() + 1.5
    while time.monotonic() < end and not (log.exists() and "early\n" in log.read_text()):
        time.sleep(0.02)
    assert "early\n" in log.read_text() and thread.is_alive()
    thread.join()


def test_arguments_reach_the_program_as_they_are() -> None:
    hostile = ["a b", "$(touch x)", "; rm -rf", "'\"", "new\nline", "ü", "*"]
    code = "import json, sys; print(json.dumps(sys.argv[1:]))"
    result = run_tool([sys.executable, "-c", code, *hostile], deadline=soon())
    import json

    assert json.loads(result.stdout) == hostile


def test_no_shell_string() -> None:
    with pytest.raises(TypeError, match="list of arguments"):
        run_tool("echo hello", deadline=soon())


def test_first_error_and_last_lines(tmp_path: Path) -> None:
    script = "echo start; echo 'a.c:3:1: error: the first'; for i in $(seq 40); do echo line $i; done; exit 4"
    with pytest.raises(ToolFailed) as caught:
        run_tool(["sh", "-c", script], deadline=soon(), log=tmp_path / "log")
    message = caught.value.message
    assert message.startswith("'sh' ended with status 4\n  first error: a.c:3:1: error: the first\n  last lines:\n")
    assert message.count("    line ") == command.LAST_LINES and "line 40" in message and "line 2\n" not in message
    assert caught.value.log == tmp_path / "log"
    assert caught.value.status == 3


@pytest.mark.parametrize(
    "line",
    [
        "%Error: top.sv:3:5: syntax error",
        "ERROR: [Synth 8-439] module 'x' not found",
        "main.c:1:10: fatal error: x.h: No such file or directory",
        "ld: undefined reference to `f'",
        "ValueError: wrong",
    ],
)
def test_what_counts_as_an_error_line(line: str) -> None:
    with pytest.raises(ToolFailed) as caught:
        run_tool(["sh", "-c", 'echo "0 errors so far"; echo "$1"; echo after; exit 1', "sh", line], deadline=soon())
    assert f"first error: {line}" in caught.value.message


def test_without_check_the_status_is_returned() -> None:
    assert run_tool(["sh", "-c", "exit 7"], deadline=soon(), check=False).status == 7


def test_missing_program_names_its_package() -> None:
    with pytest.raises(ToolMissing, match="'no-such-program'"):
        run_tool(["no-such-program"], deadline=soon())
    assert command._hint_for("/usr/bin/verilator") == "apt-get install verilator"


def test_missing_folder_is_not_a_missing_program(tmp_path: Path) -> None:
    with pytest.raises(ToolFailed, match="the folder .* does not exist") as caught:
        run_tool(["true"], deadline=soon(), cwd=tmp_path / "nowhere")
    assert not isinstance(caught.value, ToolMissing)


@pytest.mark.parametrize(
    "script", ["kill -9 $$", "echo 'g++: fatal error: Killed signal terminated program cc1plus'; exit 1"]
)
def test_killed_is_out_of_memory(script: str) -> None:
    with pytest.raises(OutOfMemory, match="out of memory"):
        run_tool(["sh", "-c", script], deadline=soon())


def test_a_full_disk_is_recognised() -> None:
    with pytest.raises(DiskFull):
        run_tool(["sh", "-c", "echo 'write: No space left on device' >&2; exit 1"], deadline=soon())


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_dead(pid: int) -> None:
    end = time.monotonic() + 5
    while time.monotonic() < end and alive(pid):
        time.sleep(0.02)
    assert not alive(pid)


def test_the_deadline_ends_the_whole_group(tmp_path: Path) -> None:
    """Also a grandchild that ignores SIGTERM."""
    note = tmp_path / "pid"
    script = f"sh -c 'trap \"\" TERM; echo $$ > {note}; while :; do sleep 0.2; done' & sleep 60"
    started = time.monotonic()
    with pytest.raises(ToolTimeout, match="did not end within 1 s"):
        run_tool(["sh", "-c", script], deadline=Deadline.after(1.0))
    assert time.monotonic() - started < 10
    wait_dead(int(note.read_text()))


def test_what_a_program_leaves_running_is_ended(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    run_tool(["sh", "-c", f"sleep 60 & echo $! > {note}"], deadline=soon())
    wait_dead(int(note.read_text()))


def test_interrupt_ends_the_group_and_raises(tmp_path: Path) -> None:
    """Ctrl-C in a process of its own, as a person presses it."""
    note = tmp_path / "pid"
    code = (
        "from pipelines.base.command import run_tool\n"
        "from pipelines.base.deadline import Deadline\n"
        f"run_tool(['sh', '-c', 'echo $$ > {note}; sleep 60'], deadline=Deadline.after(50))\n"
    )
    child = os.spawnve(
        os.P_NOWAIT, sys.executable, [sys.executable, "-c", code], {**os.environ, "PYTHONPATH": str(ROOT)}
    )
    end = time.monotonic() + 10
    while time.monotonic() < end and not (note.exists() and note.read_text()):
        time.sleep(0.02)
    os.kill(child, signal.SIGINT)
    os.waitpid(child, 0)
    wait_dead(int(note.read_text()))


def test_an_interrupt_during_the_start_leaves_nothing_running(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C after the program began to run and before anybody could note that it does."""
    started: list[int] = []
    start = command.subprocess.Popen

    def interrupted(*arguments: object, **options: object) -> object:
        process = start(*arguments, **options)  # type: ignore[call-overload]
        started.append(process.pid)
        signal.raise_signal(signal.SIGINT)
        return process

    monkeypatch.setattr(command.subprocess, "Popen", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_tool(["sleep", "60"], deadline=soon(50))
    wait_dead(started[0])


def test_stopping_all_tools_ends_them_and_starts_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_stopping", threading.Event())
    errors: list[BaseException] = []

    def work() -> None:
        try:
            run_tool(["sleep", "60"], deadline=soon(50))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(0.3)
    command.stop_all_tools()
    thread.join(10)
    assert [type(error) for error in errors] == [Interrupted]
    with pytest.raises(Interrupted):
        run_tool(["true"], deadline=soon())


def test_names_for_people() -> None:
    assert tool_name(["/usr/bin/gcc", "-c"]) == "gcc"
    assert tool_name(["/venv/bin/python", "-m", "ziglang", "c++", "-O2"]) == "ziglang c++"
    assert tool_name(["/venv/bin/python3.11", "-m", "mypy", "x"]) == "mypy"


ROOT = Path(__file__).resolve().parents[2]
