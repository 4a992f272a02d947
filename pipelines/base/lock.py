"""A lock between processes of this machine that says who holds it. The kernel frees it when the holder dies."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pipelines.base.deadline import Deadline
from pipelines.base.errors import LockHeld

POLL_S = 0.05


@contextlib.contextmanager
def held(
    path: Path,
    what: str,
    *,
    deadline: Deadline | None = None,
    on_wait: Callable[[str], None] | None = None,
) -> Iterator[None]:
    """Holds the lock at ``path`` for the body.

    Waits until ``deadline``; without one it does not wait. ``what`` names the work, for whoever finds the lock taken
    (``on_wait`` is told once, before waiting). Raises LockHeld with the holder's process, work and start.
    """
    from filelock import FileLock, Timeout  # with asyncio behind it: a tenth of a second that a plan does not need

    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path, thread_local=False)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        if deadline is None:
            raise _held_error(path, what) from None
        if on_wait is not None:
            on_wait(holder(path))
        try:
            lock.acquire(timeout=deadline.remaining(), poll_interval=POLL_S)
        except Timeout:
            raise _held_error(path, what) from None
    try:
        # Not atomic on purpose: it is only read to say who waits for whom, and the lock itself is the kernel's.
        _note_path(path).write_text(json.dumps({"pid": os.getpid(), "what": what, "since": time.time()}))
        yield
    finally:
        lock.release()


def holder(path: Path) -> str:
    """Who took the lock last, in words."""
    try:
        note = json.loads(_note_path(path).read_text())
        since = time.strftime("%H:%M:%S", time.localtime(float(note["since"])))
        return f"process {int(note['pid'])} ({note['what']}, since {since})"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"


def _note_path(path: Path) -> Path:
    return path.with_name(path.name + ".holder")


def _held_error(path: Path, what: str) -> LockHeld:
    return LockHeld(
        f"cannot start '{what}': the lock is held by {holder(path)}",
        hint="wait until it has ended, or end that process",
    )
