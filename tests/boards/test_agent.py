"""The board's end of a session, without a board."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from board_rt import values
from board_rt.agent import END, PIPE_BYTES, Session
from pipelines.config.settings import ROOT
from tests.boards.bench import plain_files

F_GETPIPE_SZ = 1032
HEAVY = {"json", "re", "enum", "threading", "queue", "functools", "collections", "subprocess", "hashlib", "runpy"}
"""Modules of which one alone is a tenth of an agent's start in the emulator, or much more."""


def read(session: Session) -> list[dict[str, Any]]:
    """The frames that the reading thread hands over, to the end of the connection."""
    reader = threading.Thread(target=session.read_frames)
    reader.start()
    frames = []
    while (frame := session.frames.get()[0]) is not END:
        frames.append(frame)
    reader.join()
    return frames


def test_an_agent_starts_without_what_takes_long_to_import(tmp_path: Path) -> None:
    program = "import sys; import board_rt.__main__, board_rt.agent; print(*sys.modules)"
    start = subprocess.run(
        [sys.executable, "-E", "-s", "-S", "-c", f"import sys; sys.path[0] = {str(ROOT)!r}; {program}"],
        capture_output=True, text=True, check=True, timeout=60, cwd=tmp_path,
    )  # fmt: skip
    loaded = set(start.stdout.split())
    assert "board_rt.releases" in loaded
    assert loaded & HEAVY == set()


BROKEN = ("", " ", "{", "[1,]", "1 2", "nul", "{'a': 1}", '"\n"', '{"a" 1}', "[" + "1,", "\ufeff1")


def test_what_is_no_json_is_refused_before_the_package_is_loaded(tmp_path: Path) -> None:
    """CPython's scanner takes the class of its error from the package; without it, it fails without an exception."""
    program = """
import sys
sys.path[0], broken = sys.argv[1], sys.argv[2:]
from board_rt.values import loads
for text in broken:
    for name in [name for name in sys.modules if name.partition(".")[0] == "json"]:
        del sys.modules[name]
    try:
        print(loads(text))
    except ValueError:
        print("refused")
"""
    run = subprocess.run(
        [sys.executable, "-E", "-s", "-S", "-c", program, str(ROOT), *BROKEN],
        capture_output=True, text=True, timeout=60, cwd=tmp_path,
    )  # fmt: skip
    assert run.stdout.split() == ["refused"] * len(BROKEN), run.stderr


VALUES: list[Any] = [
    0, -17, 2**70, 0.1, -0.0, 1e-300, True, False, None, "", 'quote " slash / back \\ tab \t null \0 é 日本 \U0001f600',
    float("inf"), -float("inf"), float("nan"), [], {}, [[], {}], {"a": [1, {"b": None}], "": "c"}, {"line": "a\nb"},
]  # fmt: skip


@pytest.mark.parametrize("package", [False, True])
def test_values_are_those_of_the_json_package(package: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if package:
        monkeypatch.setattr(values, "make_scanner", None)  # an interpreter whose C code has other names
    for value in VALUES:
        text = values.dumps(value)
        assert text == json.dumps(value, ensure_ascii=False) and "\n" not in text
        for form in (text, json.dumps(value), f" \r\n{json.dumps(value, indent=2)}\t\n"):
            assert repr(values.loads(form)) == repr(value)
    for text in BROKEN:
        with pytest.raises(ValueError):
            json.loads(text)
        with pytest.raises(ValueError):
            values.loads(text)
    with pytest.raises(TypeError):
        values.dumps({"a": object()})


def test_the_pipe_of_an_upload_is_widened_before_anything_is_read(tmp_path: Path) -> None:
    """sshd's pipe of 64 KiB halved the rate of a push to the emulated board."""
    reading, writing = os.pipe()
    session = Session(str(tmp_path), "", stdin=reading)
    os.write(writing, json.dumps({"id": 1, "do": "hello"}).encode() + b"\n")
    os.close(writing)
    assert read(session) == [{"id": 1, "do": "hello"}]
    assert fcntl.fcntl(reading, F_GETPIPE_SZ) == PIPE_BYTES
    os.close(reading)


def test_what_is_no_pipe_is_read_as_well(tmp_path: Path) -> None:
    (tmp_path / "frames").write_bytes(b'{"id": 2, "do": "hello"}\n')
    with (tmp_path / "frames").open("rb") as stream:
        assert read(Session(str(tmp_path), "", stdin=stream.fileno())) == [{"id": 2, "do": "hello"}]


def test_a_ping_is_answered_but_never_waits_for_a_reader(tmp_path: Path) -> None:
    """Whoever pauses the output of a long text must keep the board: the end of the connection is seen by reading."""
    reading, writing = os.pipe()
    listening, telling = os.pipe()
    session = Session(str(tmp_path), "", stdin=reading, stdout=telling)
    with session.writing:
        session.pong()
    session.pong()
    assert os.read(listening, 100) == b'{"pong": 1}\n'
    os.set_blocking(telling, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(telling, b"x")
    os.set_blocking(telling, True)
    os.write(writing, b'{"do": "ping"}\n{"id": 3, "do": "hello"}\n')
    os.close(writing)
    assert [frame["id"] for frame in read(session)] == [3]
    for end in (reading, listening, telling):
        os.close(end)


def test_a_job_that_is_stopped_before_it_began_ends(tmp_path: Path) -> None:
    """Ctrl-C right behind the request: both are read before the job's process is there."""
    release = "a" * 64
    for name, content in plain_files(1, behaviour="hang").items():
        path = tmp_path / "releases" / release / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.read_bytes())
    reading, writing = os.pipe()
    listening, telling = os.pipe()
    session = Session(str(tmp_path), "", stdin=reading, stdout=telling)
    session.releases.prepare()
    session.releases.activate(release)
    session.lease.acquire("me", "a test", 10)
    job = {"id": 5, "do": "job", "with": {"job": "generate", "options": {}, "seconds": 20}}
    os.write(writing, json.dumps(job).encode() + b"\n" + b'{"do": "stop"}\n')
    os.close(writing)
    began = time.monotonic()
    (frame,) = read(session)  # and with it the stop
    session.answer(frame, [])
    assert json.loads(os.read(listening, 4096))["fault"]["class"] == "Interrupted"
    assert time.monotonic() - began < 10
    session.lease.release()
    for end in (reading, listening, telling):
        os.close(end)
