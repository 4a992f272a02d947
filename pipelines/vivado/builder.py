"""A build's attempts: one Vivado, one folder a run, each judged by the gates.

``build`` makes one, and another when ``sweep`` tries several strategies at once.
"""

from __future__ import annotations

import contextlib
import datetime
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pipelines.base.command import run_tool
from pipelines.base.deadline import Deadline
from pipelines.base.errors import LicenceError, ToolTimeout
from pipelines.vivado import allowed as allow_list
from pipelines.vivado import attempt as attempts
from pipelines.vivado import bitfile, leftovers, toolchain
from pipelines.vivado.design import BitstreamDesign
from pipelines.vivado.facts import Facts
from pipelines.vivado.failure import diagnose
from pipelines.vivado.gates import Verdict, measure
from pipelines.vivado.settings import PROJECT

KEEP_ATTEMPTS = 6
KEEP_S = 48 * 3600.0
"""Longer than the longest run (vivado.run_minutes is at most a day)."""
LICENCE_POLL_S = 30.0


class Vivado(Protocol):
    """A Vivado that can run attempts: on this machine, or on a build host (``remote.RemoteVivado``)."""

    @property
    def version(self) -> str: ...

    @property
    def name(self) -> str:
        """``vivado`` or ``stand-in``."""
        ...

    @property
    def place(self) -> str:
        """Where it is, for people."""
        ...

    def run(self, attempt: attempts.Attempt, *, deadline: Deadline, log: Path) -> int:
        """Runs it to its end in its folder; returns the exit status of the tool (negative for a signal)."""
        ...

    def for_task(self) -> Vivado:
        """The same, to be used beside this one by another thread or process."""
        ...


@dataclass(frozen=True)
class LocalVivado:
    """Vivado on this machine."""

    tool: toolchain.Toolchain

    @property
    def version(self) -> str:
        return self.tool.version

    @property
    def name(self) -> str:
        return self.tool.name

    @property
    def place(self) -> str:
        return self.tool.place

    def for_task(self) -> LocalVivado:
        return self

    def run(self, attempt: attempts.Attempt, *, deadline: Deadline, log: Path) -> int:
        try:
            return run_tool(
                [*self.tool.argv, *attempts.ARGUMENTS], cwd=attempt.folder, deadline=deadline, log=log, check=False
            ).status
        except ToolTimeout as error:
            facts = Facts.read(attempt.folder / "facts.tsv")
            at = next(
                (
                    f"{run} was {facts.get(run + '.status')}"
                    for run in ("impl_1", "synth_1")
                    if facts.get(run + ".status")
                ),
                "synthesis had not ended",
            )
            raise ToolTimeout(f"{error.message}\n  {at}", hint=error.hint, log=log) from None
        finally:
            # Nothing is left after a build that came to its end, by its own word or by ours.
            leftovers.end_processes_in(attempt.folder)


@dataclass(frozen=True)
class Built:
    """A finished attempt and its verdict."""

    attempt: attempts.Attempt
    verdict: Verdict
    payload_sha256: str


@dataclass
class Builder:
    """What all attempts of one build have in common."""

    design: BitstreamDesign
    content_id: int
    sources: Path
    scripts: Path
    allowed: list[allow_list.Allowed]
    today: datetime.date
    vivado: Vivado
    work: Path
    deadline: Deadline
    log: Path
    say: Callable[[str], None]

    def attempt(self, design: BitstreamDesign, *, log: Path | None = None) -> Built:
        """One attempt, or several when there is no licence yet; judged but not enforced."""
        until = time.monotonic() + design.vivado.licence_wait_s
        while True:
            try:
                return self._once(design, log or self.log)
            except LicenceError as error:
                left = min(until - time.monotonic(), self.deadline.remaining())
                if left <= 0:
                    raise LicenceError(
                        f"{error.message}\n  waited {design.vivado.licence_wait_s:g} s", hint=error.hint, log=error.log
                    ) from None
                self.say(f"no licence yet; trying again, at most {left:.0f} s longer")
                time.sleep(min(LICENCE_POLL_S, left, max(0.05, design.vivado.licence_wait_s / 8)))

    def _once(self, design: BitstreamDesign, log: Path) -> Built:
        folder = new_folder(self.work, design.name)
        attempt = attempts.prepare(
            folder,
            design,
            sources=self.sources,
            content_id=self.content_id,
            vivado_version=self.vivado.version,
            scripts=self.scripts,
        )
        status = self.vivado.run(attempt, deadline=self.deadline, log=log)
        if status != 0 or not Facts.read(folder / "facts.tsv").finished:
            raise diagnose(folder, status=status, log=log)
        verdict = measure(folder, design, content_id=self.content_id, allowed=self.allowed, today=self.today)
        verdict.write(folder)
        bit = folder / "out" / f"{PROJECT}.bit"
        digest = ""
        with contextlib.suppress(bitfile.BitfileError, OSError):
            digest = bitfile.parse(bit.read_bytes()).payload_sha256
        if not verdict.passed and bit.exists():
            # Nobody shall find a bitstream that failed under a name that looks like one.
            bit.rename(bit.with_name(f"{PROJECT}.bit.rejected"))
        return Built(attempt, verdict, digest)


def new_folder(work: Path, name: str) -> Path:
    """A folder nobody used before."""
    work.mkdir(parents=True, exist_ok=True)
    number = max((n for n, _ in _attempts(work, name)), default=0) + 1
    while True:
        folder = work / f"{name}-{number:04d}"
        try:
            folder.mkdir()
            return folder
        except FileExistsError:  # another process, or another strategy of a sweep, was faster
            number += 1


def remove_old(work: Path, name: str) -> None:
    """Removes attempts that are neither among the newest nor young enough to be still running."""
    known = sorted(_attempts(work, name))
    for _, folder in known[: max(0, len(known) - KEEP_ATTEMPTS)]:
        with contextlib.suppress(OSError):
            if time.time() - max(p.stat().st_mtime for p in (folder, *folder.iterdir())) > KEEP_S:
                shutil.rmtree(folder, ignore_errors=True)


def _attempts(work: Path, name: str) -> list[tuple[int, Path]]:
    return [(int(p.name.rpartition("-")[2]), p) for p in work.glob(f"{name}-*") if p.name.rpartition("-")[2].isdigit()]
