"""The boards of a checkout: which there are, how each is reached, and a session on one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pipelines.base.deadline import Deadline
from pipelines.boards.access import Address, reachable
from pipelines.boards.connection import Connection
from pipelines.boards.session import Session, exclusive, session
from pipelines.config.board import Board
from pipelines.config.settings import Settings
from pipelines.engine.signing import signer

CONNECT_S = 60.0


@dataclass(frozen=True)
class Site:
    """``state`` is the checkout's ``.tritforge``; ``say`` is told what takes long."""

    settings: Settings
    state: Path
    say: Callable[[str], None] = lambda _: None

    @property
    def known_hosts(self) -> Path:
        """Host keys that were accepted explicitly, by board name."""
        return self.state / "known_hosts"

    def allowed_signers(self) -> str:
        """What an emulated board is started with, as a real one has it from its card."""
        return signer(self.settings, self.state).allowed_signers.read_text(encoding="utf-8")

    @contextlib.contextmanager
    def address(self, board: Board, *, start: bool = True) -> Iterator[Address]:
        """Where the board answers, for the body; an emulated one is started unless ``start`` is false."""
        signers = self.allowed_signers() if board.emulator is not None else ""
        with reachable(
            board, self.state, signers=signers, start=start, path=self.settings.path, say=self.say
        ) as address:
            yield address

    @contextlib.contextmanager
    def session(self, board: Board, *, what: str = "", start: bool = True) -> Iterator[Session]:
        """A session on the board: with ``what``, holding its lease for that work; without, for reading only."""
        with self.address(board, start=start) as address:
            deadline = Deadline.after(CONNECT_S)
            with contextlib.closing(Connection(address, self.known_hosts, deadline)) as connection:
                if what:
                    with exclusive(connection, board.root, what, board.lease_s, deadline) as opened:
                        yield opened
                else:
                    with session(connection, board.root, deadline) as opened:
                        yield opened
