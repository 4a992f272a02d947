"""An ssh connection to a board, by Fabric: known host keys only, keys only, every command a list."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import logging
import shlex
import socket
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path

import fabric
import paramiko
from paramiko.config import SSHConfig
from paramiko.pkey import UnknownKeyType

from pipelines.base.deadline import Deadline
from pipelines.base.errors import BoardOffline, ConfigError, HostKeyChanged, TransferError, TritforgeError
from pipelines.base.files import write_text
from pipelines.base.lock import held
from pipelines.boards.access import Address

CONNECT_S = 30.0
KEEPALIVE_S = 5
SILENT_S = 60.0  # the board is asked every few seconds: one that is not heard for so long is gone
LOST = (paramiko.SSHException, EOFError, OSError)
"""What a connection that ended throws, whichever call noticed."""


# What it says of a connection that is lost while it is made is a traceback, beside the error that we raise.
logging.getLogger("paramiko").addHandler(logging.NullHandler())

_open: weakref.WeakSet[Connection] = weakref.WeakSet()


def close_all() -> None:
    """Closes every connection of this process: whatever waits on one, in any thread, raises that it was lost."""
    for connection in list(_open):
        connection.close()


class Connection:
    """One connection. ``run`` is for short commands; :meth:`channel` for a session that talks both ways."""

    def __init__(self, address: Address, known_hosts: Path, deadline: Deadline) -> None:
        """Connects. Raises HostKeyChanged, BoardOffline when nobody answers or our key is refused, or ConfigError."""
        self.address = address
        key = address.host_key or known_key(known_hosts, address)
        pinned = parsed_key(key, address.board) if key is not None else None
        self.fabric = fabric.Connection(
            address.host,
            user=address.user,
            port=address.port,
            config=fabric.Config(ssh_config=SSHConfig()),  # the user's ~/.ssh/config must not change what is pinned
            connect_timeout=max(1, round(deadline.at_most(CONNECT_S).remaining())),
            connect_kwargs={
                # Left out, not None, without a key file: Fabric joins it with its own list.
                **({"key_filename": str(address.key_file)} if address.key_file else {}),
                "allow_agent": address.key_file is None,
                "look_for_keys": False,
                "banner_timeout": deadline.at_most(CONNECT_S).remaining(),
                "auth_timeout": deadline.at_most(CONNECT_S).remaining(),
            },
        )
        client = self.fabric.client
        # Fabric's own default adds any key it meets.
        client.set_missing_host_key_policy(_Refuse())
        if pinned is not None:
            client.get_host_keys().add(host_label(address), pinned.get_name(), pinned)
        where = f"{address.board} ({address.host}:{address.port})"
        try:
            self.fabric.open()
        except _Unknown as error:
            raise HostKeyChanged(
                f"the host key of {where} is not known: it shows {error.shown}",
                hint=f"compare it with the board's, then: ./inv boards --accept {address.board}",
            ) from None
        except paramiko.BadHostKeyException as error:
            raise HostKeyChanged(
                f"the host key of {where} is not the pinned one: it shows {error.key.get_name()} "
                f"{error.key.get_base64()}",
                hint="somebody else answers there, or the card was made anew; if so: "
                + (
                    f"change host_key in config/boards/{address.board}.yaml"
                    if address.host_key
                    else f"./inv boards --accept {address.board}"
                ),
            ) from None
        except paramiko.AuthenticationException:
            check_key_file(address)
            raise BoardOffline(
                f"{where} refuses our key as user '{address.user}'",
                hint=f"is {address.key_file or 'a key of the agent'} in its authorized_keys?",
            ) from None
        except (*LOST, UnicodeError) as error:  # the latter: a host name that none can have
            check_key_file(address)
            raise BoardOffline(
                f"{where} does not answer: {str(error) or type(error).__name__}",
                hint="is it switched on, in this network, and is the address in its YAML right?",
            ) from error
        _open.add(self)
        transport = client.get_transport()
        assert transport is not None
        self.transport = transport
        transport.set_keepalive(KEEPALIVE_S)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux; else a pulled cable shows after a quarter of an hour
            transport.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(SILENT_S * 1000))

    def close(self) -> None:
        with contextlib.suppress(*LOST):
            self.fabric.close()

    def channel(self, argv: Sequence[str], deadline: Deadline) -> paramiko.Channel:
        """Starts a command and returns its channel."""
        with lost_as(BoardOffline, f"the connection to {self.address.board} was lost"):
            channel = self.transport.open_session(timeout=deadline.remaining())
            for name, value in self.address.environment:
                channel.set_environment_variable(name, value)
            channel.exec_command(shlex.join(argv))
        return channel

    def run(self, argv: Sequence[str], deadline: Deadline, stdin: bytes = b"") -> tuple[int, bytes, bytes]:
        """Runs a command to its end: status, stdout, stderr. No shell sees the arguments as anything but words."""
        channel = self.channel(argv, deadline)
        with lost_as(BoardOffline, f"the connection to {self.address.board} was lost"), channel:
            channel.settimeout(deadline.remaining())
            channel.sendall(stdin)
            channel.shutdown_write()
            out = _drained(channel)
            err = b"".join(iter(lambda: channel.recv_stderr(1 << 16), b""))
            if not channel.status_event.wait(deadline.remaining()):
                raise TimeoutError("no exit status came")
            return channel.recv_exit_status(), out, err


def host_label(address: Address) -> str:
    """The name a key is filed under, as in OpenSSH's known_hosts."""
    return address.host if address.port == 22 else f"[{address.host}]:{address.port}"


def parsed_key(key: str, board: str) -> paramiko.PKey:
    """A host key of "ssh-ed25519 AAAA…". Raises ConfigError when it is none."""
    try:
        name, data = key.split()[:2]
        return paramiko.PKey.from_type_string(name, base64.b64decode(data))
    except (*LOST, ValueError, IndexError, UnknownKeyType) as error:
        raise ConfigError(
            f"the host key of {board} is no ssh key: '{key[:40]}…'",
            hint=f"host_key in config/boards/{board}.yaml, or the line in .tritforge/known_hosts: take it out, and "
            f"'./inv boards --accept {board}' shows the key",
        ) from error


def check_key_file(address: Address) -> None:
    """Raises ConfigError for a key file that cannot be used: ssh would only say that the board refuses us."""
    file = address.key_file
    if file is None:
        return
    where, hint = f"key_file of {address.board}, {file}", ""
    try:
        paramiko.PKey.from_path(file)
        return
    except FileNotFoundError:
        reason = "is not there"
    except TypeError:  # what cryptography says of a key that needs a passphrase
        reason = "has a passphrase"
        hint = f"add it to the agent (ssh-add {file}) and leave key_file out"
    except (*LOST, ValueError, UnknownKeyType) as error:
        reason = f"is no private key: {error}"
    raise ConfigError(f"{where}, {reason}", hint=hint or f"key_file in config/boards/{address.board}.yaml")


def known_key(known_hosts: Path, address: Address) -> str | None:
    """The key that was accepted for this board, or None."""
    if not known_hosts.exists():
        return None
    for line in known_hosts.read_text(encoding="utf-8").splitlines():
        words = line.split()
        if len(words) >= 3 and words[0] == address.board:
            return f"{words[1]} {words[2]}"
    return None


def shown_key(address: Address, deadline: Deadline) -> str:
    """The key that answers now, unauthenticated: for showing it to a person before it is accepted."""
    with lost_as(BoardOffline, f"{address.board} does not answer"):
        with socket.create_connection((address.host, address.port), timeout=max(1.0, deadline.remaining())) as link:
            transport = paramiko.Transport(link)
            try:
                transport.start_client(timeout=max(1.0, deadline.remaining()))
                key = transport.get_remote_server_key()
                return f"{key.get_name()} {key.get_base64()}"
            finally:
                transport.close()


def fingerprint(key: str) -> str:
    """``SHA256:…`` of "ssh-ed25519 AAAA…", as ssh-keygen -l prints it: what a person can compare."""
    digest = hashlib.sha256(base64.b64decode(key.split()[1])).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def accept_key(known_hosts: Path, address: Address, key: str) -> None:
    """Files ``key`` as this board's, in place of an earlier one."""
    with held(known_hosts.with_suffix(".lock"), "accept a host key", deadline=Deadline.after(10)):
        lines = known_hosts.read_text(encoding="utf-8").splitlines() if known_hosts.exists() else []
        kept = [line for line in lines if line.split()[:1] != [address.board]]
        write_text(known_hosts, "".join(f"{line}\n" for line in [*kept, f"{address.board} {key}"]))


@contextlib.contextmanager
def lost_as(kind: type[TritforgeError], message: str) -> Iterator[None]:
    """An ended connection as an error of ours."""
    try:
        yield
    except LOST as error:
        reason = str(error) or ("timed out" if isinstance(error, TimeoutError) else type(error).__name__)
        hint = "run the same command again: it goes on where it stopped" if kind is TransferError else ""
        raise kind(f"{message}: {reason}", hint=hint) from error


class _Unknown(Exception):
    def __init__(self, shown: str) -> None:
        super().__init__(shown)
        self.shown = shown


class _Refuse(paramiko.MissingHostKeyPolicy):  # type: ignore[misc]  # paramiko has no types
    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        raise _Unknown(f"{key.get_name()} {key.get_base64()}")


def _drained(channel: paramiko.Channel) -> bytes:
    return b"".join(iter(lambda: channel.recv(1 << 16), b""))
