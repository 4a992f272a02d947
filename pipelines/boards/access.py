"""From a board of the configuration to where it answers: an emulated one is started, a farm's place is acquired."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pipelines.base.deadline import Deadline
from pipelines.base.errors import BoardOffline, ConfigError
from pipelines.boards.emulator import Emulator
from pipelines.boards.labgrid import Place
from pipelines.boards.zynq import machine as zynq
from pipelines.config.board import Board

SIGNERS_ON_BOARD = "/etc/tritforge/allowed_signers"


@dataclass(frozen=True)
class Address:
    """Where a board's ssh server is and how both sides prove who they are.

    ``host_key`` is "ssh-ed25519 AAAA…", pinned, or None when only an explicit acceptance can make it known.
    ``environment`` is sent along to an emulated board's session.
    """

    board: str
    host: str
    port: int
    user: str
    key_file: Path | None
    host_key: str | None
    python: str = "python3"
    signers: str = SIGNERS_ON_BOARD
    environment: tuple[tuple[str, str], ...] = ()


def emulator_of(board: Board, state: Path, signers: str) -> Emulator:
    """The emulator behind a board of kind ``emulated``. ``state`` is the checkout's ``.tritforge``."""
    settings = board.emulator
    if settings is None:
        raise ConfigError(f"board '{board.name}' has no emulator on this machine")
    kind: Callable[..., Emulator] = Emulator
    if settings.machine == zynq.MACHINE:
        # The circuits that its fabric may be loaded with are those of this checkout's store.
        kind = partial(zynq.ZynqEmulator, circuits=state / "store")
    return kind(
        name=board.name,
        folder=state / "boards" / board.name,
        images=state / "images",
        signers=signers,
        cma_mib=board.cma_mib,
        memory_mib=board.memory_mib,
        idle_minutes=settings.idle_minutes,
        disk_gib=settings.disk_gib,
    )


def place_of(board: Board, state: Path) -> Place:
    """The labgrid place behind a board that names one."""
    if board.labgrid is None:
        raise ConfigError(f"board '{board.name}' names no labgrid place")
    return Place(board.labgrid.coordinator, board.labgrid.place, state / "labgrid")


@contextlib.contextmanager
def reachable(
    board: Board,
    state: Path,
    *,
    signers: str = "",
    start: bool = True,
    path: Callable[[str], Path] = Path,
    say: Callable[[str], None] = lambda _: None,
    deadline: Deadline | None = None,
) -> Iterator[Address]:
    """The board's address for as long as the body runs.

    An emulated board is started when it is not running (unless ``start`` is false: then BoardOffline) and stays up. A
    labgrid place is acquired and given back. ``path`` makes a path of the configuration absolute.
    """
    if board.emulator is not None:
        emulator = emulator_of(board, state, signers)
        endpoint = emulator.start(say=say, deadline=deadline) if start else emulator.running()
        if endpoint is None:
            raise BoardOffline(f"{board.name} is not running", hint="any task that needs it starts it")
        # Faults of the simulated circuits, for showing what verify does with a broken board.
        names = ("TRITFORGE_FAULT",)
        yield Address(
            board.name, endpoint.host, endpoint.port, endpoint.user, endpoint.key_file, endpoint.host_key,
            environment=tuple((name, os.environ[name]) for name in names if os.environ.get(name)),
        )  # fmt: skip
    elif board.labgrid is not None:
        settings = board.labgrid
        with place_of(board, state).acquired() as (host, port):
            key_file = path(settings.key_file) if settings.key_file else None
            yield Address(board.name, host, port, settings.user, key_file, settings.host_key)
    else:
        assert board.ssh is not None  # the configuration gives exactly one way in
        key_file = path(board.ssh.key_file) if board.ssh.key_file else None
        yield Address(board.name, board.ssh.host, board.ssh.port, board.ssh.user, key_file, board.ssh.host_key)
