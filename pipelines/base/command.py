"""The one way to run a program: a list of arguments, a deadline, a live log, and an error that says what broke.

There is no shell in between, so nothing that comes from data (a path, a prompt, a host name) can become a command.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO

from pipelines.base.deadline import Deadline
from pipelines.base.errors import DiskFull, Interrupted, OutOfMemory, ToolFailed, ToolMissing, ToolTimeout

LAST_LINES = 12
"""How many of a failed tool's last lines its exception carries."""

CAPTURE_CHARACTERS = 16 * 1024 * 1024
"""Output kept in memory a stream; what is older is dropped (the log has it all)."""

GRACE_S = 3.0
"""Between SIGTERM and SIGKILL: long enough for Vivado and QEMU to close their files."""

DRAIN_S = 2.0
"""How long output may still arrive after the program itself ended (a child that kept the pipe open)."""

# What compilers, Verilator ("%Error"), yosys, Vivado ("ERROR: [Synth 8-1]"), linkers, ssh and Python print first.
_ERROR_LINE = re.compile(
    r"(?:^|[\s:%\[(])(?:fatal error|fatal|critical|error|errors)\b\s*[:\[-]"
    r"|^%?error\b"
    r"|undefined reference to|multiple definition of|no such file or directory|no space left on device|cannot find -l"
    r"|permission denied|command not found|assertion .*failed"
    r"|^[A-Za-z_][\w.]*(?:Error|Exception|Interrupt)\b(?::|$)",
    re.IGNORECASE,
)
_OUT_OF_MEMORY = re.compile(
    r"^Killed$|Killed signal terminated program|\bout of memory\b|virtual memory exhausted|std::bad_alloc"
    r"|cannot allocate memory|^MemoryError\b",
    re.IGNORECASE | re.MULTILINE,
)
_DISK_FULL = re.compile(r"no space left on device|disk quota exceeded", re.IGNORECASE)

# Packages that bring the programs we run on a Debian machine; the hint of ToolMissing names them.
PACKAGE_OF = {
    "aarch64-linux-gnu-gcc": "gcc-aarch64-linux-gnu",
    "arm-linux-gnueabihf-gcc": "gcc-arm-linux-gnueabihf",
    "arm-linux-gnueabihf-objdump": "binutils-arm-linux-gnueabihf",
    "cpio": "cpio",
    "g++": "g++",
    "gcc": "gcc",
    "git": "git",
    "iverilog": "iverilog",
    "llvm-mca": "llvm",
    "make": "make",
    "mke2fs": "e2fsprogs",
    "mmdebstrap": "mmdebstrap",
    "qemu-arm": "qemu-user",
    "qemu-aarch64": "qemu-user",
    "qemu-system-arm": "qemu-system-arm",
    "newuidmap": "uidmap",
    "qemu-img": "qemu-utils",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "tclsh": "tcl",
    "verilator": "verilator",
    "vvp": "iverilog",
    "yosys": "yosys",
}


@dataclass(frozen=True)
class ToolResult:
    """What a finished program left. ``stdout`` and ``stderr`` hold at most ``CAPTURE_CHARACTERS`` from the end."""

    argv: tuple[str, ...]
    status: int
    stdout: str
    stderr: str
    elapsed_s: float
    log: Path | None


_running: set[subprocess.Popen[str]] = set()
_running_lock = threading.Lock()
_stopping = threading.Event()


def stop_all_tools() -> None:
    """Ends every program this process started and lets no further one start: for Ctrl-C with stages in threads."""
    _stopping.set()
    with _running_lock:
        processes = list(_running)
    for process in processes:
        _signal_group(process, signal.SIGTERM)
    end = time.monotonic() + GRACE_S
    while time.monotonic() < end and any(process.poll() is None for process in processes):
        time.sleep(0.02)
    for process in processes:
        _signal_group(process, signal.SIGKILL)


def quoted(argv: Sequence[str]) -> str:
    """The command as a person would type it; for logs and messages only, never to be run."""
    return " ".join(shlex.quote(argument) for argument in argv)


def tool_name(argv: Sequence[str]) -> str:
    """What a person calls the program: its own name, or the module that a Python was told to run."""
    name = Path(argv[0]).name
    if name.startswith("python") and len(argv) > 2 and argv[1] == "-m":
        return " ".join(argv[2:4]) if argv[2] == "ziglang" else argv[2]
    return name


def find_tool(name: str, *, hint: str = "") -> Path:
    """The path of a program on the PATH. Raises ToolMissing with the Debian package that has it."""
    found = shutil.which(name)
    if found is None:
        raise ToolMissing(f"the program '{name}' is not on the PATH", hint=hint or _hint_for(name))
    return Path(found)


def run_tool(
    argv: Sequence[str | os.PathLike[str]],
    *,
    deadline: Deadline,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    log: Path | None = None,
    stdin: str | None = None,
    check: bool = True,
    on_line: Callable[[str], None] | None = None,
    hint: str = "",
) -> ToolResult:
    """Runs a program to its end and returns what it printed.

    ``argv`` is a list, never a shell string. ``env`` is added to this process' environment (messages are asked for in
    English so that they can be recognised). Both streams go line by line to ``log``, appended, as they come, and to
    ``on_line``. ``stdin`` is the text given to the program; without it, it reads end-of-file at once.
    The program leads a process group of its own, which is ended as a whole at the deadline and on interrupt.

    With ``check`` (the default) a non-zero status raises ToolFailed, or OutOfMemory / DiskFull when the output says so;
    without it the status is in the result. ToolMissing and ToolTimeout are raised in both cases.
    """
    if isinstance(argv, (str, bytes)):
        raise TypeError("run_tool takes a list of arguments, not a command line")
    arguments = [os.fspath(argument) for argument in argv]
    if not arguments:
        raise ValueError("run_tool was called without a program")
    if _stopping.is_set():
        raise Interrupted(f"'{arguments[0]}' was not started: the run was interrupted")
    environment = {**os.environ, "LC_ALL": "C.UTF-8", **(env or {})}
    sink = _Sink(log, on_line)
    sink.note(f"$ {quoted(arguments)}" + (f"    # in {cwd}" if cwd else ""))
    started = time.monotonic()
    stdout, stderr = _Tail(), _Tail()
    timed_out = False
    process: subprocess.Popen[str] | None = None
    try:
        try:
            # Ctrl-C between the start of the program and the line that notes it would leave it running for ever.
            with _interrupts_deferred():
                process = subprocess.Popen(
                    arguments,
                    cwd=cwd,
                    env=environment,
                    stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    encoding="utf-8",
                    errors="replace",
                    start_new_session=True,
                )
                with _running_lock:
                    _running.add(process)
        except OSError as error:
            raise _start_error(arguments[0], cwd, error, hint, log) from error
        threads = [
            threading.Thread(target=_pump, args=(process.stdout, stdout, sink), daemon=True),
            threading.Thread(target=_pump, args=(process.stderr, stderr, sink), daemon=True),
        ]
        if stdin is not None:
            threads.append(threading.Thread(target=_feed, args=(process, stdin), daemon=True))
        for thread in threads:
            thread.start()
        try:
            process.wait(timeout=deadline.remaining())
        except subprocess.TimeoutExpired:
            timed_out = True
            _end_group(process)
        end = time.monotonic() + DRAIN_S
        for thread in threads:
            thread.join(timeout=max(0.0, end - time.monotonic()))
    finally:
        # Also on KeyboardInterrupt: nothing of the group survives, whether the program itself ended or not.
        if process is not None:
            _end_group(process)
            with _running_lock:
                _running.discard(process)
        sink.close()
    result = ToolResult(
        tuple(arguments), process.returncode, stdout.text(), stderr.text(), time.monotonic() - started, log
    )
    if _stopping.is_set():
        raise Interrupted(f"'{arguments[0]}' was stopped: the run was interrupted")
    if timed_out:
        raise ToolTimeout(
            f"'{tool_name(arguments)}' did not end within {deadline.seconds:.0f} s" + _story(sink),
            hint=hint or "the log shows how far it came; a loaded machine may need a longer deadline",
            log=log,
        )
    if check and result.status != 0:
        raise _failure(result, sink, hint)
    return result


@contextlib.contextmanager
def _interrupts_deferred() -> Iterator[None]:
    """SIGINT and SIGTERM take effect at the end of the body. Only the main thread is ever interrupted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    came: list[tuple[int, FrameType | None]] = []
    handlers = {number: signal.signal(number, lambda n, frame: came.append((n, frame))) for number in numbers}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    for n, frame in came[:1]:
        handler = handlers[signal.Signals(n)]
        if callable(handler):
            handler(n, frame)
        elif handler == signal.SIG_DFL:
            signal.raise_signal(n)


class _Tail:
    """Lines of one stream, the oldest dropped beyond ``CAPTURE_CHARACTERS``."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque()
        self._size = 0
        self._lock = threading.Lock()

    def add(self, line: str) -> None:
        with self._lock:
            self._lines.append(line)
            self._size += len(line)
            while self._size > CAPTURE_CHARACTERS and len(self._lines) > 1:
                self._size -= len(self._lines.popleft())

    def text(self) -> str:
        with self._lock:
            return "".join(self._lines)


class _Sink:
    """Where both streams meet: the log file, the caller's callback, the first error and the last lines."""

    def __init__(self, log: Path | None, on_line: Callable[[str], None] | None) -> None:
        self._lock = threading.Lock()
        self._on_line = on_line
        self._file: IO[str] | None = None
        self.first_error = ""
        self.last: deque[str] = deque(maxlen=LAST_LINES)
        if log is not None:
            log.parent.mkdir(parents=True, exist_ok=True)
            self._file = log.open("a", encoding="utf-8", errors="replace", buffering=1)

    def note(self, line: str) -> None:
        """A line of ours in the log, not of the program."""
        if self._file is not None:
            self._file.write(line + "\n")

    def line(self, text: str) -> None:
        plain = text.rstrip("\r\n")
        with self._lock:
            if self._file is not None:
                try:
                    self._file.write(plain + "\n")
                except OSError:  # a full disk must not hide the program's own words
                    self._file = None
            if plain.strip():
                self.last.append(plain)
            if not self.first_error and _ERROR_LINE.search(plain):
                self.first_error = plain.strip()
            if self._on_line is not None:
                self._on_line(plain)

    def close(self) -> None:
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None


def _pump(stream: IO[str] | None, tail: _Tail, sink: _Sink) -> None:
    assert stream is not None
    with stream:
        for line in stream:
            tail.add(line)
            sink.line(line)


def _feed(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdin is not None
    try:
        with process.stdin as stream:
            stream.write(text)
    except BrokenPipeError:
        pass  # the program ended without reading all of it; its status says whether that was a fault


def _signal_group(process: subprocess.Popen[str], number: signal.Signals) -> None:
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def _end_group(process: subprocess.Popen[str]) -> None:
    """SIGTERM to the whole group, then SIGKILL to what is left of it."""
    if process.poll() is None:
        _signal_group(process, signal.SIGTERM)
        try:
            process.wait(timeout=GRACE_S)
        except subprocess.TimeoutExpired:
            pass
    _signal_group(process, signal.SIGKILL)
    process.wait()


def _story(sink: _Sink) -> str:
    """First error and last lines, each once, indented below the message."""
    last = list(sink.last)
    parts = ""
    if sink.first_error and sink.first_error not in (line.strip() for line in last):
        parts += f"\n  first error: {sink.first_error}"
    elif sink.first_error:
        parts += f"\n  first error: {sink.first_error}" if len(last) > 1 else ""
    if last:
        parts += "\n  last lines:" + "".join(f"\n    {line}" for line in last)
    return parts


def _failure(result: ToolResult, sink: _Sink, hint: str) -> ToolFailed:
    name = tool_name(result.argv)
    output = result.stderr + "\n" + result.stdout
    story = _story(sink)
    if result.status in (-signal.SIGKILL, 128 + signal.SIGKILL) or _OUT_OF_MEMORY.search(output):
        return OutOfMemory(
            f"'{name}' was killed: out of memory{story}",
            hint=hint or "free memory or run fewer jobs at once, then run the same command again",
            log=result.log,
        )
    if _DISK_FULL.search(output):
        return DiskFull(
            f"'{name}' failed: no space left on this machine{story}",
            hint=hint or "'./inv clean' removes artefacts that no release needs",
            log=result.log,
        )
    if result.status < 0:
        how = f"was ended by signal {signal.Signals(-result.status).name}"
    else:
        how = f"ended with status {result.status}"
    return ToolFailed(f"'{name}' {how}{story}", hint=hint or "the log has the whole output", log=result.log)


def _hint_for(name: str) -> str:
    package = PACKAGE_OF.get(Path(name).name)
    return f"apt-get install {package}" if package else "install it, or put its folder on the PATH"


def _start_error(name: str, cwd: Path | None, error: OSError, hint: str, log: Path | None) -> ToolFailed | ToolMissing:
    if cwd is not None and not cwd.is_dir():
        return ToolFailed(f"'{name}' was not started: the folder {cwd} does not exist", hint=hint, log=log)
    if error.errno in (errno.ENOENT, errno.EACCES, errno.ENOEXEC):
        return ToolMissing(
            f"the program '{name}' cannot be run: {error.strerror}", hint=hint or _hint_for(name), log=log
        )
    return ToolFailed(f"'{name}' was not started: {error.strerror}", hint=hint, log=log)
