"""A release onto a board as one transaction: either it is current at the end, or nothing changed.

The phases, in their order, are in ``PHASES``. Until ``activate`` everything happens in the board's staging folder and
among its content-addressed objects, which no release refers to yet; ``activate`` is one rename. A cut at any point
leaves the old release current, and the same command goes on from what has arrived.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.base.command import stop_all_tools
from pipelines.base.deadline import Deadline
from pipelines.base.errors import MismatchError, TransferError, TritforgeError, Unshippable, worst_status
from pipelines.base.files import sha256_file
from pipelines.boards import preflight
from pipelines.boards.access import Address
from pipelines.boards.connection import Connection, close_all
from pipelines.boards.release import LocalRelease, Part
from pipelines.boards.session import exclusive
from pipelines.config.board import Board
from pipelines.vivado.shipping import require_shippable

PHASES = (
    "connect", "lease", "compare", "preflight", "missing", "upload", "assemble", "hashes", "signature", "smoke",
    "activate", "done",
)  # fmt: skip
SLOWEST_BYTES_PER_S = 100_000  # an upload slower than this is taken for a broken connection
DEPLOY_S = 600.0
SMOKE_S = 300.0
GIVE_BACK_S = 20.0
Phase = Callable[[str], None]


@dataclass(frozen=True)
class Deployed:
    """What a deploy did. ``seconds`` counts from when the connection stood."""

    board: str
    release: str
    previous: str | None
    bytes_sent: int
    bytes_total: int
    seconds: float
    smoke: dict[str, Any]
    unshippable: bool = False
    """A stand-in tool made a part of it."""

    def json(self) -> dict[str, Any]:
        return {
            "board": self.board,
            "release": self.release,
            "previous": self.previous,
            "bytes_sent": self.bytes_sent,
            "bytes_total": self.bytes_total,
            "seconds": round(self.seconds, 3),
            "smoke": self.smoke,
            **({"unshippable": True} if self.unshippable else {}),
        }


def deploy(
    board: Board,
    address: Address,
    release: LocalRelease,
    known_hosts: Path,
    *,
    deadline: Deadline | None = None,
    on_phase: Phase = lambda _: None,
    on_bytes: Callable[[int, int], None] = lambda done, total: None,
    repair: bool = True,
) -> Deployed:
    """Brings ``release`` onto the board and makes it current.

    Without ``repair`` a board that is not as the last deploy left it (a link made by hand, a damaged file of this very
    release) is a MismatchError: whoever asks what runs there must not have it put right unseen.
    ``on_phase`` is called as each phase begins, ``on_bytes`` with bytes sent and bytes to send. Raises the error of the
    phase that failed: HostKeyChanged, BoardOffline, BoardBusy, BoardUnfit, BoardDiskFull, SignatureError, PlTimeout,
    Unshippable (status 4), TransferError (5), MismatchError, GateError (1).
    """
    refuse_wrong_kind(board, release)
    deadline = deadline or Deadline.after(DEPLOY_S + release.bytes / SLOWEST_BYTES_PER_S)
    on_phase("connect")
    connection = Connection(address, known_hosts, deadline)
    with contextlib.closing(connection):
        started = time.monotonic()
        on_phase("lease")
        with exclusive(connection, board.root, f"deploy {release.id[:12]}", board.lease_s, deadline) as session:
            on_phase("compare")
            same = session.request("unchanged", {"release": release.id, "signature": release.signature})
            if same.get("unchanged"):
                on_phase("done")
                return Deployed(
                    board.name, release.id, release.id, 0, release.bytes, time.monotonic() - started, {"cached": True},
                    release.stand_in,
                )  # fmt: skip
            if same.get("wrong") and not repair:
                raise MismatchError(f"{board.name}: {same['wrong']}", hint="./inv deploy puts it right")
            on_phase("preflight")
            facts = session.request("facts")
            preflight.refuse(
                [
                    *preflight.system_checks(board, facts),
                    *preflight.memory_checks(board, facts, release.contiguous_bytes),
                ],
                board.name,
            )
            on_phase("missing")
            files = {part.sha256: part for part in release.parts}
            found = session.request("missing", {"digests": sorted(files)}, deadline=deadline)
            # More than the whole file is no beginning of it.
            missing = {digest: have if have <= files[digest].bytes else 0 for digest, have in found["missing"].items()}
            to_send = sum(files[digest].bytes - have for digest, have in missing.items())
            # With the copy that root's job runs from, which no user may write to.
            needed = to_send + (release.bytes if needs_root(board) else 0)
            check = preflight.disk_check(found, needed)
            if check.status == "failed":  # failed deploys leave objects, and fewer releases may be kept than there are
                options = {"digests": sorted(files), "keep": board.keep_releases}
                check = preflight.disk_check(session.request("make_room", options, deadline=deadline), needed)
            preflight.refuse([check], board.name)
            on_phase("upload")
            sent = 0
            for digest in sorted(missing, key=lambda digest: files[digest].bytes):

                def count(chunk: int) -> None:
                    nonlocal sent
                    sent += chunk
                    on_bytes(sent, to_send)

                _check_source(release, files[digest])
                try:
                    session.upload(digest, release.folder / files[digest].name, missing[digest], deadline, count)
                except TransferError:
                    _blame_source(release, files[digest])
                    raise
            on_phase("assemble")
            session.request(
                "assemble", {"release": release.id, "manifest": release.manifest, "signature": release.signature},
                deadline=deadline,  # it waits until all is on the card
            )  # fmt: skip
            on_phase("hashes")
            session.request("check", {"release": release.id}, deadline=deadline)
            on_phase("signature")
            session.request("signature", {"release": release.id, "identity": release.identity})
            on_phase("smoke")
            smoke = session.job("smoke", {}, seconds=SMOKE_S, release=release.id, staged=True, sudo=needs_root(board))
            on_phase("activate")
            done = session.request("activate", {"release": release.id, "keep": board.keep_releases})
        on_phase("done")
        return Deployed(
            board.name, release.id, done["previous"], sent, release.bytes, time.monotonic() - started, smoke,
            release.stand_in,
        )  # fmt: skip


def needs_root(board: Board) -> bool:
    """Whether jobs go through the board's one sudo rule: loading a bitstream and mapping its registers need root."""
    return board.pl != "rtl-library"


def refuse_wrong_kind(board: Board, release: LocalRelease) -> None:
    """Raises Unshippable, GateError or TransferError for a release that may not go to this board."""
    if release.stand_in and not board.takes_stand_ins:
        raise Unshippable(
            f"release {release.id[:12]} was made with a stand-in tool and may not go to {board.name}",
            hint="build it with the real tool",
        )
    if not board.emulated:
        require_shippable(release.folder / "bitstream", stand_ins=board.takes_stand_ins)
    if release.board_kind and release.board_kind != board.kind:
        raise TransferError(f"release {release.id[:12]} is for a board of kind {release.board_kind}, not {board.kind}")


def _check_source(release: LocalRelease, part: Part) -> None:
    path = release.folder / part.name
    if not path.exists() or path.stat().st_size != part.bytes:
        raise TransferError(
            f"'{part.name}' of release {release.id[:12]} is not on this machine as the manifest says",
            hint="./inv release builds it again",
        )


def _blame_source(release: LocalRelease, part: Part) -> None:
    """Raises TransferError when it is this machine's file that is not what the manifest says, not what arrived."""
    path = release.folder / part.name
    if sha256_file(path) != part.sha256:
        with contextlib.suppress(OSError):
            os.utime(path)  # what rots keeps its times, by which it is known: now the store reads it again
        raise TransferError(
            f"'{part.name}' of release {release.id[:12]} is damaged on this machine: {path}",
            hint="run the same command again: it is built again; if it comes back, this machine's disk is failing",
        )


def many(names: Sequence[str], one: Callable[[str], dict[str, Any]]) -> list[dict[str, Any]]:
    """``one`` for each board: the first as a canary, then, if that passed, the rest at once.

    Each result has ``board`` and ``status``; a failed one ``error`` and ``exit_status``. Boards behind a failed canary
    are ``skipped``, since what broke one would break them all. On Ctrl-C all connections are closed, and with them what
    runs on the boards.
    """

    def guarded(name: str) -> dict[str, Any]:
        try:
            return {"board": name, "status": "passed", "exit_status": 0, **one(name)}
        except TritforgeError as error:
            failure = error
        except Exception as error:  # a fault of ours must not hide what became of the other boards
            failure = TritforgeError(f"a fault in tritforge itself: {type(error).__name__}: {error}")
        return {
            "board": name,
            "status": "failed",
            "exit_status": failure.status,
            "error": {"class": type(failure).__name__, "message": failure.message, "hint": failure.hint},
        }

    canary = guarded(names[0])
    if canary["status"] != "passed":
        skipped = [{"board": name, "status": "skipped", "exit_status": canary["exit_status"]} for name in names[1:]]
        return [canary, *skipped]
    with ThreadPoolExecutor(max_workers=8) as pool:
        rest = [pool.submit(guarded, name) for name in names[1:]]
        try:
            return [canary, *(future.result() for future in rest)]
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            close_all()
            wait(rest, timeout=GIVE_BACK_S)  # a farm's place is given back by a program, and then none may start
            stop_all_tools()
            raise


def worst(results: Sequence[dict[str, Any]]) -> int:
    return worst_status([int(result["exit_status"]) for result in results])
