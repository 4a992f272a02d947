"""The board's end of a session, without a board."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from pathlib import Path

from board_rt.agent import PIPE_BYTES, Session
from tests.boards.bench import plain_files

F_GETPIPE_SZ = 1032


def test_the_pipe_of_an_upload_is_widened_before_anything_is_read(tmp_path: Path) -> None:
    """sshd's pipe of 64 KiB halved the rate of a push to the emulated board."""
    reading, writing = os.pipe()
    session = Session(str(tmp_path), "", stdin=reading)
    os.write(writing, json.dumps({"id": 1, "do": "hello"}).encode() + b"\n")
    os.close(writing)
    session.read_frames()
    assert fcntl.fcntl(reading, F_GETPIPE_SZ) == PIPE_BYTES
    assert session.frames.get_nowait()[0] == {"id": 1, "do": "hello"}
    os.close(reading)


def test_what_is_no_pipe_is_read_as_well(tmp_path: Path) -> None:
    (tmp_path / "frames").write_bytes(b'{"id": 2, "do": "hello"}\n')
    with (tmp_path / "frames").open("rb") as stream:
        session = Session(str(tmp_path), "", stdin=stream.fileno())
        session.read_frames()
    assert session.frames.get_nowait()[0]["id"] == 2


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
    session.read_frames()
    assert session.frames.get_nowait()[0]["id"] == 3
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
    session.read_frames()
    began = time.monotonic()
    session.answer(*session.frames.get_nowait())
    assert json.loads(os.read(listening, 4096))["fault"]["class"] == "Interrupted"
    assert time.monotonic() - began < 10
    session.lease.release()
    for end in (reading, listening, telling):
        os.close(end)
