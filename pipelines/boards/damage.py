"""Whether it is the files on a board that are wrong, when a job of its release cannot go on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from pipelines.base.deadline import Deadline
from pipelines.base.errors import BoardUnfit, FormatError, MismatchError, ToolFailed, TransferError
from pipelines.boards.session import Session

READ_S = 600.0


def damaged_part(session: Session, release: str) -> str:
    """The part of the release that is not what the manifest says, read again on the board; empty when all is right."""
    try:
        session.request(
            "check", {"release": release, "staged": False, "again": True}, deadline=Deadline.after(READ_S),
            phase="hashes",
        )  # fmt: skip
    except TransferError as error:  # and no other: a board that went away says nothing about its weights
        return error.message
    return ""


@contextlib.contextmanager
def told_apart(session: Session, release: str) -> Iterator[None]:
    """What stops a job in the body is a MismatchError when a file on the board is damaged.

    The runtime believes no file: a flipped byte may stop it before a word is wrong.
    """
    try:
        yield
    except (FormatError, BoardUnfit, ToolFailed) as error:
        damaged = damaged_part(session, release)
        if damaged:
            raise MismatchError(
                f"the weights on {session.board} differ from the release: {damaged}",
                hint="./inv deploy sends what is damaged again",
            ) from error
        raise
