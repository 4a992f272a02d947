"""Runs named work in threads, each piece once all that it waits for has ended."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence


def run_all(
    names: Sequence[str],
    waits_for: Mapping[str, Sequence[str]],
    may_run: Callable[[str], bool],
    work: Callable[[str], None],
    *,
    jobs: int,
) -> None:
    """Calls ``work(name)`` for every name, at most ``jobs`` at once, in the given order where there is a choice.

    ``may_run`` is asked, in the calling thread, when all that a name waits for has ended; False leaves it out. ``work``
    must not raise. KeyboardInterrupt comes through at once; threads that still run are left to end with the process,
    so the caller stops what they wait for.
    """
    waiting = list(names)
    ended: set[str] = set()
    running: set[str] = set()
    finished: queue.SimpleQueue[str] = queue.SimpleQueue()

    def body(name: str) -> None:
        try:
            work(name)
        finally:
            finished.put(name)

    while len(ended) < len(names):
        for name in list(waiting):
            if any(other not in ended for other in waits_for[name]):
                continue
            if len(running) >= jobs:
                break
            waiting.remove(name)
            if may_run(name):
                running.add(name)
                # Daemons: Ctrl-C must not wait for Python code that takes long.
                threading.Thread(target=body, args=(name,), name=name, daemon=True).start()
            else:
                ended.add(name)
        if running:
            name = finished.get()
            running.discard(name)
            ended.add(name)
