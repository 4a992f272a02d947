"""The host's end of a session with the board's agent (``board_rt/agent.py``): requests, events, uploads, heartbeat."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import socket
import tarfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pipelines.base import errors
from pipelines.base.deadline import Deadline
from pipelines.base.errors import BoardOffline, BoardUnfit, TransferError, TritforgeError
from pipelines.base.files import sha256_bytes
from pipelines.base.user import user
from pipelines.boards.connection import LOST, SILENT_S, Connection

AGENT_PACKAGE = Path(__file__).parents[2] / "board_rt"
AGENT_MODULES = (
    "__init__", "__main__", "agent", "agents", "facts", "faults", "files", "lease", "objects", "releases", "values",
)  # fmt: skip
"""What a session itself needs; jobs run with the code of their release."""

NO_AGENT = 97  # exit status of the start command when the agent is not on the board yet
START = (
    "import os, sys; sys.path[0] = sys.argv.pop(1); "
    f"os.path.isdir(sys.path[0]) or sys.exit({NO_AGENT}); "
    "from board_rt.__main__ import main; sys.exit(main(sys.argv[1:]))"
)
"""Starts the agent in the folder that is the first argument. Not ``-m``: what that imports costs as much time as Python
itself."""
CHUNK_BYTES = 1 << 18
REQUEST_S = 120.0
PING_EVERY_S = 4.0
Event = Callable[[dict[str, Any]], None]


class Session:
    """One agent on one board. Not for two threads at once, besides the heartbeat."""

    def __init__(self, connection: Connection, root: str, deadline: Deadline) -> None:
        """Starts the agent, which is sent first when this board does not have it yet."""
        self.connection = connection
        self.board = connection.address.board
        self.root = root
        self._numbers = itertools.count(1)
        self._buffer = bytearray()
        self._writing = threading.Lock()
        self._closed = threading.Event()
        self.bytes_sent = 0
        self._patience = float("inf")  # nobody answers pings before the agent has started
        archive = agent_archive()
        home = f"{root}/agent/{sha256_bytes(archive)[:16]}"
        try:
            self._start(home, archive, deadline)
        except BoardUnfit:
            # Perhaps a card that lost some of the agent's files: sent again, it works or says the same once more.
            connection.run(["rm", "-rf", home], deadline)
            self._start(home, archive, deadline)
        self._patience = SILENT_S
        threading.Thread(target=self._ping, daemon=True).start()

    def _start(self, home: str, archive: bytes, deadline: Deadline) -> None:
        address = self.connection.address
        # -E -s -S: nothing but the standard library, and none of the user's settings; also half the start time.
        command = [address.python, "-E", "-s", "-S", "-c", START, home, "serve", self.root, address.signers]
        for sent in (False, True):
            self._channel = self.connection.channel(command, deadline)
            try:
                hello = self._receive(deadline.at_most(REQUEST_S))
            except BoardOffline:
                status = self._channel.recv_exit_status() if self._channel.exit_status_ready() else None
                if status == NO_AGENT and not sent:
                    self._send_agent(home, archive, deadline)
                    continue
                words = b""
                with contextlib.suppress(*LOST):
                    words = self._channel.recv_stderr(4000)
                if status is None:
                    raise
                said = words.decode("utf-8", "replace").strip().splitlines()
                raise BoardUnfit(
                    f"the agent on {self.board} ended with status {status}: {said[-1] if said else 'no message'}",
                    hint=f"it needs {self.connection.address.python} 3.8 or newer and a folder {self.root} "
                    "that its user may write to",
                ) from None
            if hello.get("hello") != 1:
                raise BoardUnfit(f"the agent on {self.board} speaks another protocol: {hello}")
            return

    def _send_agent(self, home: str, archive: bytes, deadline: Deadline) -> None:
        """Unpacks the agent beside its place and renames it there, so that half an agent is never started.

        Synced in between: after a power cut there would be a folder of empty files, and nothing would send it again.
        """
        script = (
            'set -e; trap \'rm -rf "$1.$$"\' EXIT; rm -rf "$1.$$"; mkdir -p "$1.$$"; tar -x -f - -C "$1.$$"; sync; '
            'if [ -d "$1" ]; then rm -rf "$1.$$"; else mv "$1.$$" "$1"; fi'
        )
        status, _, words = self.connection.run(["sh", "-c", script, "sh", home], deadline, archive)
        if status != 0:
            message = words.decode("utf-8", "replace").strip()
            said = f"the agent cannot be put on {self.board}: {message}"
            if "no space" in message.lower():
                raise errors.BoardDiskFull(said, hint=f"free space on its card: the agent takes 200 KB in {self.root}")
            owner = self.connection.address.user
            raise BoardUnfit(said, hint=f"the folder {self.root} must exist and belong to user {owner}")

    # ------------------------------------------------------------------------------------------------- requests

    def request(
        self,
        command: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        deadline: Deadline | None = None,
        on_event: Event = lambda _: None,
        phase: str = "",
    ) -> dict[str, Any]:
        """Sends one request and returns its result; raises the error that the agent answered with."""
        number = next(self._numbers)
        self._send({"id": number, "do": command, "with": dict(arguments or {})})
        return self._result(number, deadline or Deadline.after(REQUEST_S), on_event, phase or command)

    def job(
        self, job: str, options: Mapping[str, Any], *, seconds: float, on_event: Event = lambda _: None, **where: Any
    ) -> dict[str, Any]:
        """Runs a job of a release on the board. On Ctrl-C the board's process is ended before this returns."""
        arguments = {"job": job, "options": dict(options), "seconds": seconds, **where}
        number = next(self._numbers)
        self._send({"id": number, "do": "job", "with": arguments})
        deadline = Deadline.after(seconds + REQUEST_S)
        try:
            return self._result(number, deadline, on_event, job)
        except KeyboardInterrupt:
            with contextlib.suppress(TritforgeError):
                self._send({"do": "stop"})
                self._result(number, Deadline.after(10), lambda _: None, job)
            raise

    def upload(self, digest: str, path: Path, offset: int, deadline: Deadline, on_bytes: Callable[[int], None]) -> None:
        """Sends a file from ``offset`` on; the board checks its hash. ``on_bytes`` is told each chunk's size."""
        number = next(self._numbers)
        total = path.stat().st_size
        options = {"digest": digest, "bytes": total, "offset": offset}
        with path.open("rb") as stream:
            stream.seek(offset)
            left = total - offset
            frame: dict[str, Any] = {"id": number, "do": "upload", "with": options}
            while True:
                chunk = stream.read(min(CHUNK_BYTES, left))
                if left and not chunk:
                    raise TransferError(f"{path} became shorter while it was sent")
                left -= len(chunk)
                if deadline.expired():
                    raise TransferError(
                        f"sending {path.name} to {self.board} did not end within {deadline.seconds:.0f} s",
                        hint="run the same command again: it goes on where it stopped",
                    )
                try:
                    self._send(dict(frame, payload=len(chunk)), chunk, deadline)
                except BoardOffline as error:
                    raise TransferError(error.message, hint=error.hint) from error
                self.bytes_sent += len(chunk)
                on_bytes(len(chunk))
                if left <= 0:
                    break
                frame = {"do": "more"}
        self._result(number, deadline, lambda _: None, "upload")

    def close(self) -> None:
        self._closed.set()
        with contextlib.suppress(*LOST):
            self._channel.shutdown_write()
            # The agent frees the lease when it sees the end; waiting for it lets the next command find it free.
            self._channel.settimeout(5)
            while self._channel.recv(1 << 16):
                pass
        with contextlib.suppress(*LOST):
            self._channel.close()

    # ------------------------------------------------------------------------------------------------ transport

    def _ping(self) -> None:
        while not self._closed.wait(PING_EVERY_S):
            with contextlib.suppress(TritforgeError):
                self._send({"do": "ping"})

    def _send(self, frame: Mapping[str, Any], payload: bytes = b"", deadline: Deadline | None = None) -> None:
        line = json.dumps(frame, ensure_ascii=False, separators=(",", ":")).encode("utf-8") + b"\n"
        with self._writing:
            try:
                self._channel.settimeout((deadline or Deadline.after(REQUEST_S)).at_most(SILENT_S).remaining())
                self._channel.sendall(line + payload)
            except TimeoutError as error:
                raise self._lost(TimeoutError("nothing was taken any more"), "sending") from error
            except LOST as error:
                raise self._lost(error, "sending") from error

    def _receive(self, deadline: Deadline) -> dict[str, Any]:
        while b"\n" not in self._buffer:
            try:
                # A board that computes for an hour still answers pings; one whose cable was pulled tells no end.
                self._channel.settimeout(max(0.01, min(deadline.remaining(), self._patience)))
                block = self._channel.recv(1 << 16)
            except TimeoutError as error:
                if not deadline.expired():
                    silence = TimeoutError(f"nothing was heard for {self._patience:.0f} s")
                    raise self._lost(silence, "waiting") from error
                raise BoardOffline(
                    f"{self.board} did not answer within {deadline.seconds:.0f} s",
                    hint="is it overloaded? './inv doctor' shows its load",
                ) from error
            except LOST as error:
                raise self._lost(error, "waiting") from error
            if not block:
                # The status comes a moment after the end of the stream.
                end = time.monotonic() + 2
                while (
                    not self._channel.exit_status_ready()
                    and time.monotonic() < end
                    and self.connection.transport.is_active()
                ):
                    time.sleep(0.02)
                raise self._lost(EOFError("the session ended"), "waiting")
            self._buffer += block
        line, _, rest = bytes(self._buffer).partition(b"\n")
        self._buffer = bytearray(rest)
        try:
            value = json.loads(line)
        except ValueError:
            value = None
        if not isinstance(value, dict):  # a login script that prints, say
            raise BoardUnfit(
                f"{self.board} sent no answer of the agent: {line[:200]!r}",
                hint=f"does 'ssh {self.connection.address.user}@{self.connection.address.host} true' print anything?",
            )
        return value

    def _result(self, number: int, deadline: Deadline, on_event: Event, phase: str) -> dict[str, Any]:
        while True:
            try:
                value = self._receive(deadline)
            except BoardOffline as error:
                if phase == "upload":
                    raise TransferError(
                        error.message, hint="run the same command again: it goes on where it stopped"
                    ) from error
                raise BoardOffline(f"{error.message} (during '{phase}')", hint=error.hint) from error
            if value.get("id") != number:
                continue  # the rest of a request that was given up
            if "event" in value:
                on_event(value["event"])
            elif "fault" in value:
                raise as_error(value["fault"], self.board)
            else:
                result = value.get("result")
                return result if isinstance(result, dict) else {}

    def _lost(self, error: BaseException, doing: str) -> BoardOffline:
        return BoardOffline(
            f"the connection to {self.board} was lost while {doing}: {str(error) or type(error).__name__}",
            hint="run the same command again: it goes on where it stopped",
        )


def as_error(fault: Mapping[str, Any], board: str) -> TritforgeError:
    """The error of our tree that the board names."""
    kind = getattr(errors, str(fault.get("class")), BoardUnfit)
    if not (isinstance(kind, type) and issubclass(kind, TritforgeError)):
        kind = BoardUnfit
    return kind(f"{board}: {fault.get('message', 'no message')}", hint=str(fault.get("hint", "")))


def agent_archive() -> bytes:
    """The agent's modules as a tar, the same bytes for the same code."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for module in AGENT_MODULES:
            data = (AGENT_PACKAGE / f"{module}.py").read_bytes()
            info = tarfile.TarInfo(f"board_rt/{module}.py")
            info.size, info.mode = len(data), 0o644
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def owner() -> str:
    """Who holds a lease: user, machine and process, for whoever finds the board busy."""
    return f"{user()}@{socket.gethostname()} process {os.getpid()}"


@contextlib.contextmanager
def session(connection: Connection, root: str, deadline: Deadline) -> Iterator[Session]:
    """A session without the lease: for reading."""
    opened = Session(connection, root, deadline)
    try:
        yield opened
    finally:
        opened.close()


@contextlib.contextmanager
def exclusive(connection: Connection, root: str, what: str, lease_s: int, deadline: Deadline) -> Iterator[Session]:
    """A session that holds the board's lease for the body. Raises BoardBusy, naming the holder."""
    with session(connection, root, deadline) as opened:
        opened.request("acquire", {"owner": owner(), "what": what, "lease_s": lease_s}, phase="lease")
        yield opened
