"""What a person sees while work goes on: a live bar on a terminal, plain lines elsewhere.

Progress goes to stderr; stdout is for results (generated text, tables). Only this file knows whether there is a
terminal. ``rich`` is loaded when the first bar is drawn, since importing it costs more than most tasks' start.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

from pipelines.base.errors import Interrupted

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

PLAIN_EVERY_S = 30.0
"""On no terminal, one line this often: enough to see life in a CI log."""


class Activity:
    """One thing that takes time. ``update`` says how far it is; ``say`` prints a line without breaking the bar."""

    def __init__(self, console: Console, name: str, expected_s: float | None) -> None:
        self._console = console
        self.name = name
        self.expected_s = expected_s
        self.started = time.monotonic()
        self.done: float = 0
        self.total: float | None = None
        self.unit = ""
        self._last_line = self.started
        self._task: TaskID | None = None

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.started

    def update(self, done: float, total: float | None = None, unit: str = "") -> None:
        """``done`` of ``total`` ``unit`` (bytes, tokens, files …)."""
        self.done, self.unit = done, unit or self.unit
        if total is not None:
            self.total = total
        self._console._progressed(self)

    def say(self, text: str) -> None:
        self._console.say(text)

    def remaining_s(self) -> float | None:
        """From how far it is, else from how long it took before; None when neither is known."""
        if self.total and self.done > 0:
            return self.elapsed_s * max(0.0, self.total - self.done) / self.done
        if self.expected_s is not None:
            return max(0.0, self.expected_s - self.elapsed_s)
        return None

    def state(self) -> str:
        """``12 s, 40 of 100 tokens, about 18 s left``."""
        parts = [seconds(self.elapsed_s)]
        if self.total:
            done = amount(self.done, self.unit if self.unit == "bytes" else "")  # bytes may turn into MiB halfway
            parts.append(f"{done} of {amount(self.total, self.unit)}")
        elif self.done:
            parts.append(amount(self.done, self.unit))
        left = self.remaining_s()
        if left is not None and left >= 1:
            parts.append(f"about {seconds(left)} left")
        return ", ".join(parts)


class Console:
    """Progress of several activities at once, from several threads."""

    def __init__(self, stream: TextIO | None = None, *, quiet: bool = False) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._quiet = quiet
        self._terminal = bool(getattr(self._stream, "isatty", lambda: False)()) and not quiet
        self._lock = threading.RLock()
        self._progress: Progress | None = None
        self._open = 0

    def say(self, text: str) -> None:
        """One line for the person watching."""
        if self._quiet:
            return
        with self._lock:
            if self._progress is not None:
                self._progress.console.print(text, markup=False, highlight=False)
            else:
                print(text, file=self._stream, flush=True)

    @contextlib.contextmanager
    def activity(self, name: str, *, expected_s: float | None = None) -> Iterator[Activity]:
        """Shows ``name`` with its elapsed time until the body ends. ``expected_s`` is what earlier runs took."""
        activity = Activity(self, name, expected_s)
        ticker = self._start(activity)
        outcome = "failed"
        try:
            yield activity
            outcome = "done"
        except (KeyboardInterrupt, Interrupted):  # the latter in a thread, whose tool was ended
            outcome = "interrupted"
            raise
        finally:
            ticker.set()
            self._finish(activity, outcome)

    def _start(self, activity: Activity) -> threading.Event:
        stop = threading.Event()
        with self._lock:
            self._open += 1
            if self._terminal:
                if self._progress is None:
                    self._progress = _make_progress(self._stream)
                    self._progress.start()
                activity._task = self._progress.add_task(activity.name, total=activity.expected_s, state="")
        period = 0.25 if self._terminal else PLAIN_EVERY_S

        def tick() -> None:
            while not stop.wait(period):
                self._progressed(activity, ticked=True)

        threading.Thread(target=tick, daemon=True).start()
        return stop

    def _progressed(self, activity: Activity, *, ticked: bool = False) -> None:
        with self._lock:
            if self._progress is not None and activity._task is not None:
                if activity.total:
                    self._progress.update(
                        activity._task, completed=activity.done, total=activity.total, state=activity.state()
                    )
                else:
                    self._progress.update(
                        activity._task,
                        completed=min(activity.elapsed_s, activity.expected_s or 0),
                        state=activity.state(),
                    )
            elif not self._quiet and time.monotonic() - activity._last_line >= PLAIN_EVERY_S - 0.5:
                activity._last_line = time.monotonic()
                self.say(f"{activity.name}: {activity.state()}")

    def _finish(self, activity: Activity, outcome: str) -> None:
        with self._lock:
            self._open -= 1
            if self._progress is not None and activity._task is not None:
                self._progress.remove_task(activity._task)
                if self._open == 0:
                    self._progress.stop()
                    self._progress = None
            self.say(f"{activity.name}: {outcome} in {seconds(activity.elapsed_s)}")


def _make_progress(stream: TextIO) -> Progress:
    from rich.console import Console as RichConsole
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[state]}"),
        console=RichConsole(file=stream),
        transient=True,
    )


def seconds(value: float) -> str:
    """``0.42 s``, ``12.3 s``, ``4 min 05 s``, ``1 h 02 min``."""
    if value < 9.995:
        return f"{value:.2f} s"
    if value < 99.95:
        return f"{value:.1f} s"
    if value < 3600:
        return f"{int(value) // 60} min {int(value) % 60:02d} s"
    return f"{int(value) // 3600} h {int(value) % 3600 // 60:02d} min"


def amount(value: float, unit: str) -> str:
    """A count with its unit; bytes in MiB once they are many."""
    if unit == "bytes" and value >= 1 << 20:
        return f"{value / (1 << 20):.1f} MiB"
    return f"{value:,.0f} {unit}".strip()
