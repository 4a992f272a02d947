"""Vivado on a build host, over ssh: the build runs detached there, this side only watches.

An attempt is packed, sent, and started in a session of its own (``remote_job.sh``). From then on the connection is only
for looking: when it drops, it is opened again, and the log goes on at the byte where it stopped. A build that was begun
earlier, by this process or by one that died, is found by its key and attached to instead of being begun again.
"""

from __future__ import annotations

import io
import shlex
import tarfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field

from pipelines.base.deadline import Deadline
from pipelines.base.errors import ConfigError, HostKeyChanged, ToolFailed, ToolMissing, ToolTimeout, TransferError
from pipelines.base.user import user
from pipelines.vivado.attempt import ARGUMENTS, Attempt
from pipelines.vivado.failure import VersionMismatch
from pipelines.vivado.toolchain import INSTALL_HINT, name_in, version_in

if TYPE_CHECKING:
    from fabric import Connection

JOB_SCRIPT = Path(__file__).with_name("remote_job.sh")
POLL_S = 2.0
COMMAND_S = 60.0
"""For a small command on the host; starting Vivado to ask for its version takes longest."""

RECONNECT_S = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Waits between attempts to connect again; the last one repeats until the deadline."""

NO_STATUS = -1
"""What paramiko says for a command whose channel closed without an exit status: the connection dropped."""

MAX_RETURN_BYTES = 2 << 30
"""More than all reports, logs and bitstreams of an attempt together."""

RETURNED = ("facts.tsv", "vivado.log", "reports", "out", "content_id.xdc")

T = TypeVar("T")


class BuildHost(BaseModel):
    """A machine with Vivado. Authentication is by key: an agent, or ``key_file``; the host's key must be known."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.:-]*$")]
    user: Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_-]*$")]
    port: Annotated[int, Field(ge=1, le=65_535)] = 22
    key_file: str | None = None
    host_key: str | None = None  # "ssh-ed25519 AAAA…"; without it, the key must stand in the user's known_hosts
    folder: Annotated[str, Field(pattern=r"^[A-Za-z0-9._/-]+$")] = "tritforge-builds"  # relative to the home
    settings64: Annotated[str, Field(pattern=r"^/[A-Za-z0-9._/-]+\.sh$")] | None = (
        None  # without it, vivado is on the PATH
    )


def host_of(url: str) -> BuildHost:
    """The build host of ``ssh://user@host[:port][/path/of/settings64.sh]``. Raises ConfigError.

    The key comes from the agent or the usual files, the host's key from known_hosts.
    """
    parts = urlsplit(url)
    try:
        return BuildHost.model_validate(
            {
                "host": parts.hostname or "",
                "user": parts.username or user(),
                "port": parts.port or 22,
                "settings64": parts.path or None,
            }
        )
    except ValueError as error:  # also pydantic's ValidationError
        raise ConfigError(
            f"'{url}' names no build host: {error}",
            hint="write it as ssh://user@host:22/opt/Xilinx/Vivado/2024.1/settings64.sh",
        ) from None


def _unpack(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """A plain file of an archive into ``folder``. Raises TransferError for a path that leads out of it.

    By hand, since the extraction filters of ``tarfile`` came with Python 3.11.4, and Debian 12 has 3.11.2.
    """
    target = folder / member.name
    if not target.resolve().is_relative_to(folder.resolve()):
        raise TransferError(f"the result's '{member.name}' would be written outside of {folder}")
    content = tar.extractfile(member) if member.isreg() else None
    if content is None:  # a folder comes with its files; the results have no links and no devices
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content.read())


def _silent(text: str) -> None:
    pass


@dataclass
class RemoteVivado:
    """Vivado on ``site``. ``version`` and ``name`` are asked for once, by ``connect``."""

    site: BuildHost
    version: str = ""
    name: str = ""
    say: Callable[[str], None] = _silent
    _connection: Connection | None = field(default=None, repr=False)
    _home: str = ""

    @classmethod
    def connect(
        cls, site: BuildHost, *, deadline: Deadline, say: Callable[[str], None] = lambda text: None
    ) -> RemoteVivado:
        """Reaches the host and asks its Vivado who it is. Raises ToolMissing when there is none, ToolFailed when the
        host does not answer, HostKeyChanged when it is another host."""
        remote = cls(site, say=say)
        remote._home = remote._persistently(lambda c: remote._command(c, ["pwd"]), deadline).strip()
        remote._persistently(remote._install, deadline)
        script = (
            'if [ "$1" != - ]; then . "$1" >/dev/null; fi; '
            "command -v vivado >/dev/null || exit 127; exec vivado -version"
        )
        status, banner = remote._persistently(
            lambda c: remote._status(c, ["sh", "-c", script, "version", site.settings64 or "-"]), deadline
        )
        if status == 127:
            raise ToolMissing(
                f"there is no Vivado on the build host {site.host}",
                hint=f"set settings64 of the build host; {INSTALL_HINT}",
            )
        remote.version = version_in(banner)
        if status != 0 or not remote.version:
            raise VersionMismatch(f"'vivado -version' on {site.host} does not answer like Vivado: {banner[:200]!r}")
        remote.name = name_in(banner)
        return remote

    @property
    def place(self) -> str:
        return f"{self.site.settings64 or 'vivado'} on {self.site.host}"

    def for_task(self) -> RemoteVivado:
        """The same host with a connection of its own, for another thread, process or machine; it says nothing."""
        return replace(self, _connection=None, say=_silent)

    # ------------------------------------------------------------------------------------------------ one build

    def run(self, attempt: Attempt, *, deadline: Deadline, log: Path) -> int:
        """Runs the attempt on the host; its results come back into the attempt's folder. See ``build.Vivado``."""
        folder = self._job_folder(attempt, deadline)
        offset = 0
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as sink:
            while True:
                where = offset

                def look(c: Connection, where: int = where) -> tuple[str, bytes]:
                    return self._poll(c, folder, where)

                state, new = self._persistently(look, deadline)
                sink.write(new)
                sink.flush()
                offset += len(new)
                if state == "lost":
                    raise ToolFailed(
                        f"the build on {self.site.host} vanished without an exit status (was the host restarted?)",
                        log=log,
                    )
                if state.startswith("ended "):
                    break
                if deadline.expired():
                    with suppress(ToolFailed, TransferError):
                        self._persistently(lambda c: self._job(c, "stop", folder), Deadline.after(COMMAND_S))
                    raise ToolTimeout(
                        f"Vivado on {self.site.host} did not end within {deadline.seconds:.0f} s; it was stopped",
                        log=log,
                    )
                time.sleep(min(POLL_S, max(0.05, deadline.remaining())))
        # What the build left running there would go on for hours.
        self._persistently(lambda c: self._job(c, "stop", folder), deadline)
        self._persistently(lambda c: self._fetch(c, folder, attempt.folder), deadline)
        self._persistently(lambda c: self._command(c, ["touch", f"{folder}/collected"]), deadline)
        return int(state.split()[1])

    def _job_folder(self, attempt: Attempt, deadline: Deadline) -> str:
        """Where this attempt runs on the host: a build of the same key that nobody collected yet, or a new one."""
        base = f"{self._home}/{self.site.folder}"
        listing = self._persistently(
            lambda c: self._command(c, ["sh", "-c", 'cd "$1" 2>/dev/null && ls -1 || true', "ls", base]), deadline
        )
        mine = sorted(name for name in listing.split() if name.startswith(attempt.key[:24] + "-"))
        if mine:
            newest = f"{base}/{mine[-1]}"
            state, _ = self._persistently(lambda c: self._poll(c, newest, 0), deadline)
            collected = (
                self._persistently(lambda c: self._status(c, ["test", "-e", f"{newest}/collected"]), deadline)[0] == 0
            )
            if not collected and (state in ("running", "starting") or state.startswith("ended ")):
                self.say(f"attaching to the build that was begun on {self.site.host} before ({mine[-1]})")
                return newest
        number = int(mine[-1].rpartition("-")[2]) + 1 if mine else 1
        folder = f"{base}/{attempt.key[:24]}-{number:04d}"
        # Both are safe to repeat when the connection drops in between: the folder is only filled until it is started.
        self._persistently(lambda c: self._send(c, attempt.folder, folder), deadline)
        settings = self.site.settings64 or "-"
        self._persistently(lambda c: self._job(c, "start", folder, settings, *ARGUMENTS), deadline)
        return folder

    # ------------------------------------------------------------------------------------------------ small steps

    def _install(self, connection: Connection) -> None:
        self._command(connection, ["mkdir", "-p", f"{self._home}/{self.site.folder}"])
        target = f"{self._home}/{self.site.folder}/remote_job.sh"
        connection.put(io.BytesIO(JOB_SCRIPT.read_bytes()), target + ".new")
        self._command(connection, ["mv", target + ".new", target])

    def _job(self, connection: Connection, *arguments: str) -> str:
        return self._command(connection, ["sh", f"{self._home}/{self.site.folder}/remote_job.sh", *arguments])

    def _poll(self, connection: Connection, folder: str, offset: int) -> tuple[str, bytes]:
        output = self._bytes(
            connection, ["sh", f"{self._home}/{self.site.folder}/remote_job.sh", "poll", folder, str(offset)]
        )
        state, _, new = output.partition(b"\n")
        return state.decode(), new

    def _send(self, connection: Connection, local: Path, remote: str) -> None:
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w:gz") as tar:
            for path in sorted(local.iterdir()):
                tar.add(path, arcname=path.name)
        archive.seek(0)
        self._command(connection, ["mkdir", "-p", remote])
        connection.put(archive, f"{remote}/attempt.tar.gz")
        self._command(connection, ["tar", "-xzf", f"{remote}/attempt.tar.gz", "-C", remote])

    def _fetch(self, connection: Connection, remote: str, local: Path) -> None:
        """Results only: not the project, which is large and of no use here; the logs of its runs are taken along."""
        script = (
            'cd "$1" && shift && for f in "$@"; do [ -e "$f" ] && echo "$f"; done >list; '
            "find . -path ./out -prune -o -name runme.log -print >>list; tar -czf result.tar.gz -T list"
        )
        self._command(connection, ["sh", "-c", script, "fetch", remote, *RETURNED])
        archive = io.BytesIO()
        connection.get(f"{remote}/result.tar.gz", archive)
        archive.seek(0)
        with tarfile.open(fileobj=archive, mode="r:gz") as tar:
            size = 0
            for member in tar:
                size += member.size
                if size > MAX_RETURN_BYTES:
                    raise TransferError(f"the result on {self.site.host} is larger than {MAX_RETURN_BYTES >> 20} MiB")
                _unpack(tar, member, local)

    def _command(self, connection: Connection, argv: Sequence[str]) -> str:
        status, output = self._status(connection, argv)
        if status != 0:
            raise ToolFailed(f"'{argv[0]}' on {self.site.host} ended with status {status}: {output.strip()[-300:]}")
        return output

    def _status(self, connection: Connection, argv: Sequence[str]) -> tuple[int, str]:
        result = connection.run(self._line(argv), hide=True, warn=True, in_stream=False, timeout=COMMAND_S)
        if result.exited == NO_STATUS:
            raise ConnectionError(f"the connection closed before '{argv[0]}' ended")
        return result.exited, result.stdout + (result.stderr if result.exited else "")

    def _bytes(self, connection: Connection, argv: Sequence[str]) -> bytes:
        """Output as bytes: a log need not be text, and offsets count bytes."""
        connection.open()
        transport: Any = connection.transport
        channel = transport.open_session(timeout=COMMAND_S)
        try:
            channel.settimeout(COMMAND_S)
            channel.exec_command(self._line(argv))
            output = channel.makefile("rb").read()
            status = channel.recv_exit_status()
            if status == NO_STATUS:
                raise ConnectionError(f"the connection closed before '{argv[0]}' ended")
            if status != 0:
                raise ToolFailed(f"'{argv[0]}' on {self.site.host} failed")
            return bytes(output)
        finally:
            channel.close()

    @staticmethod
    def _line(argv: Sequence[str]) -> str:
        """ssh takes one string, which a shell there splits: so every word is quoted."""
        return " ".join(shlex.quote(word) for word in argv)

    # ------------------------------------------------------------------------------------------------ connection

    def _persistently(self, action: Callable[[Connection], T], deadline: Deadline) -> T:
        """Does something over the connection, and again over a new one when it drops, until the deadline."""
        import paramiko

        attempt = 0
        while True:
            try:
                if self._connection is None:
                    self._connection = self._open()
                return action(self._connection)
            except paramiko.BadHostKeyException as error:
                raise HostKeyChanged(f"the host key of {self.site.host} is not the known one: {error}") from None
            except (OSError, EOFError, paramiko.SSHException) as error:
                # A wire that is cut while the key is being shown is a refusal to paramiko, too.
                if isinstance(error, paramiko.AuthenticationException) and "transport shut down" not in str(error):
                    raise ToolFailed(
                        f"{self.site.user}@{self.site.host} does not let us in: {error}",
                        hint="check the key of the build host",
                    ) from None
                if isinstance(error, paramiko.SSHException) and "not found in known_hosts" in str(error):
                    raise HostKeyChanged(
                        f"the host key of {self.site.host} is not known: {error}",
                        hint="put it into known_hosts, or name it as host_key",
                    ) from None
                self.close()
                wait = RECONNECT_S[min(attempt, len(RECONNECT_S) - 1)]
                attempt += 1
                if deadline.remaining() <= wait:
                    raise ToolTimeout(
                        f"the build host {self.site.host} does not answer: {error or type(error).__name__}"
                    ) from None
                self.say(
                    f"connection to {self.site.host} lost ({error or type(error).__name__}); trying again in {wait:g} s"
                )
                time.sleep(wait)

    def _open(self) -> Connection:
        import fabric
        import paramiko

        connect: dict[str, Any] = {"banner_timeout": 20, "auth_timeout": 20}
        if self.site.key_file:
            connect |= {"key_filename": str(Path(self.site.key_file).expanduser()), "look_for_keys": False}
        config = fabric.Config(overrides={"load_ssh_configs": False})
        connection = fabric.Connection(
            self.site.host,
            user=self.site.user,
            port=self.site.port,
            connect_timeout=20,
            connect_kwargs=connect,
            config=config,
        )
        # Fabric would accept any host; here an unknown key is an error.
        connection.client.set_missing_host_key_policy(paramiko.RejectPolicy())
        if self.site.host_key:
            kind, _, data = self.site.host_key.partition(" ")
            name = self.site.host if self.site.port == 22 else f"[{self.site.host}]:{self.site.port}"
            entry = paramiko.hostkeys.HostKeyEntry.from_line(f"{name} {kind} {data}")
            if entry is None or entry.key is None:
                raise ToolFailed(f"host_key of {self.site.host} is not a key: {self.site.host_key[:40]}…")
            connection.client.get_host_keys().add(name, kind, entry.key)
        else:
            connection.client.load_system_host_keys()
        connection.open()
        return connection

    def close(self) -> None:
        if self._connection is not None:
            with suppress(Exception):  # closing what is broken may fail in any way, and nothing depends on it
                self._connection.close()
            self._connection = None
