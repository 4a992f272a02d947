"""Plans and runs stages: what is cached, what would run and why, and then exactly that."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipelines.base import command
from pipelines.base.console import Console
from pipelines.base.deadline import Deadline
from pipelines.base.errors import Interrupted, StoreError, ToolFailed, TritforgeError
from pipelines.base.files import read_json, sha256_file
from pipelines.engine import provenance
from pipelines.engine.schedule import run_all
from pipelines.engine.stage import Build, Inputs, Stage, difference, inputs_of, key_of
from pipelines.engine.store import Artefact, Store, remove_tree

WAIT_S = 4 * 3600.0
"""How long one process waits for another that builds the same thing: the longest Vivado run."""


@dataclass
class Outcome:
    """What became of one stage. ``reason`` says why it ran or would run; ``cached`` that it needed not."""

    name: str
    cached: bool = False
    reason: str = ""
    elapsed_s: float = 0.0
    artefact: Artefact | None = None
    error: TritforgeError | None = None
    skipped: bool = False

    @property
    def status(self) -> str:
        if self.error is not None:
            return "failed"
        return "skipped" if self.skipped else "passed"

    def json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "status": self.status,
            "cached": self.cached,
            "reason": self.reason,
            "elapsed_s": round(self.elapsed_s, 3),
        }


def in_order(stages: Iterable[Stage]) -> list[Stage]:
    """Each stage once, those below before those above."""
    ordered: dict[str, Stage] = {}

    def visit(stage: Stage) -> None:
        if stage.name not in ordered:
            for below in stage.upstream:
                visit(below)
            ordered[stage.name] = stage

    for stage in stages:
        visit(stage)
    return list(ordered.values())


def plan(stages: Iterable[Stage], store: Store, *, check: bool = False) -> list[Outcome]:
    """What :func:`run` would do, without doing it.

    ``check`` raises what a stage's own check finds wrong with the artefacts that it stands on, where all are built.
    """
    outcomes: dict[str, Outcome] = {}
    for stage in in_order(stages):
        outcome = Outcome(stage.name)
        outcomes[stage.name] = outcome
        again = [below.name for below in stage.upstream if not outcomes[below.name].cached]
        if again:
            outcome.reason = "it stands on " + " and ".join(f"'{name}'" for name in again) + ", which would run"
            continue
        digests = {below.name: _digest(outcomes[below.name]) for below in stage.upstream}
        inputs = inputs_of(stage, store.hashes, digests)
        outcome.artefact = store.find(key_of(stage.name, inputs))
        outcome.cached = outcome.artefact is not None
        if not outcome.cached:
            outcome.reason = _reason(stage, inputs, store)
            if check:
                _check(stage, outcomes)
    store.hashes.save()
    return list(outcomes.values())


def run(
    stages: Iterable[Stage],
    store: Store,
    console: Console,
    *,
    root: Path,
    jobs: int = 2,
) -> list[Outcome]:
    """Runs what is not cached, up to ``jobs`` stages at once, and returns every outcome.

    A stage that fails does not keep others from running, only those that stand on it. Raises Interrupted on
    Ctrl-C.
    """
    ordered = in_order(stages)
    by_name = {stage.name: stage for stage in ordered}
    outcomes = {name: Outcome(name) for name in by_name}
    commit = _Once(lambda: provenance.commit_of(root))

    def may_run(name: str) -> bool:
        for below in by_name[name].upstream:
            if outcomes[below.name].artefact is None:
                outcomes[name].skipped = True
                outcomes[name].reason = f"'{below.name}' did not pass"
                return False
        return True

    def work(name: str) -> None:
        outcome = outcomes[name]
        try:
            _run_one(by_name[name], outcome, outcomes, store, console, commit)
        except TritforgeError as error:
            if not error.message.startswith("stage '"):
                error.message = f"stage '{name}': {error.message}"
            outcome.error = error
        except BaseException as error:  # a fault of ours in a builder: reported, not lost with the thread
            outcome.error = ToolFailed(
                f"stage '{name}': a fault in tritforge itself: {type(error).__name__}: {error}",
                hint="please report it, with the traceback of --debug",
            )
            outcome.error.__cause__ = error

    try:
        waits_for = {name: [below.name for below in stage.upstream] for name, stage in by_name.items()}
        run_all(list(by_name), waits_for, may_run, work, jobs=jobs)
    except KeyboardInterrupt:
        command.stop_all_tools()
        raise Interrupted("interrupted", hint="finished stages are kept; the same command goes on from there") from None
    finally:
        store.hashes.save()
    return [outcomes[stage.name] for stage in ordered]


def raise_worst(outcomes: Sequence[Outcome]) -> None:
    """Raises the one error of a run that decides its exit status, naming the others."""
    failed = [outcome.error for outcome in outcomes if outcome.error is not None]
    if not failed:
        return
    worst = max(failed, key=lambda error: (error.status == 130, error.status == 1, error.status))
    others = [outcome.name for outcome in outcomes if outcome.error is not None and outcome.error is not worst]
    if others:
        worst.message += f"\nfailed as well: {', '.join(others)}"
    raise worst


def artefact_of(outcomes: Sequence[Outcome], name: str) -> Artefact:
    """The artefact of a stage that passed."""
    for outcome in outcomes:
        if outcome.name == name and outcome.artefact is not None:
            return outcome.artefact
    raise StoreError(f"stage '{name}' left no artefact")


@dataclass
class _Once:
    """A value that is worked out when the first thread asks for it."""

    make: Callable[[], Any]
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _made: list[Any] = field(default_factory=list)

    def __call__(self) -> Any:
        with self._lock:
            if not self._made:
                self._made.append(self.make())
            return self._made[0]


def _digest(outcome: Outcome) -> str:
    assert outcome.artefact is not None
    return outcome.artefact.digest


def _reason(stage: Stage, inputs: Inputs, store: Store) -> str:
    damage = store.damage_of(key_of(stage.name, inputs))
    if damage is not None:
        return f"its artefact is not whole: {damage}"
    latest = store.latest(stage.name)
    if latest is None:
        return "it was never built here"
    return difference(latest.get("inputs", {}), inputs) or "its artefact was removed"


def _run_one(
    stage: Stage,
    outcome: Outcome,
    outcomes: dict[str, Outcome],
    store: Store,
    console: Console,
    commit: _Once,
) -> None:
    started = datetime.now(UTC)
    below: dict[str, Artefact] = {}
    for other in stage.upstream:
        artefact = outcomes[other.name].artefact
        assert artefact is not None
        below[other.name] = artefact
    inputs = inputs_of(stage, store.hashes, {name: artefact.digest for name, artefact in below.items()})
    key = key_of(stage.name, inputs)
    outcome.artefact = store.find(key)
    if outcome.artefact is not None:
        outcome.cached = True
        store.use(outcome.artefact)
        return
    outcome.reason = _reason(stage, inputs, store)
    # Noted at the start: a build that fails or is killed costs the next plan nothing of its reason.
    expected = (store.latest(stage.name) or {}).get("elapsed_s")
    wait = Deadline.after(WAIT_S)

    def tell(holder: str) -> None:
        console.say(f"{stage.name}: waiting for {holder}")

    with store.building(key, f"build {stage.name}", wait, tell):
        outcome.artefact = store.find(key)  # another process was faster
        if outcome.artefact is not None:
            outcome.cached = True
            outcome.reason = ""
            store.use(outcome.artefact)
            return
        work = store.work_folder(key)
        log = store.state / "logs" / f"{stage.name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("")
        out = work / "out"
        out.mkdir()
        try:
            with console.activity(stage.name, expected_s=expected) as activity:
                measured = stage.build(Build(out, below, Deadline.after(stage.deadline_s), log, activity))
            _unchanged(stage, inputs, store)
            finished = datetime.now(UTC)
            outcome.elapsed_s = (finished - started).total_seconds()
            toolchain = _toolchain(stage, out, below)
            record = {
                "name": stage.name,
                "key": key,
                "inputs": inputs,
                "toolchain": toolchain,
                "elapsed_s": round(outcome.elapsed_s, 3),
                "built_on": finished.timestamp(),
                "measured": dict(measured or {}),
            }
            listing = {
                path.relative_to(out).as_posix(): (sha256_file(path), path.stat().st_size)
                for path in sorted(out.rglob("*"))
                if path.is_file() and not path.is_symlink()
            }
            record["provenance"] = provenance.statement(
                stage=stage.name,
                subject=listing,
                inputs=inputs,
                commit=commit(),
                command=_command_line(),
                toolchain=toolchain,
                started=started,
                finished=finished,
                key=key,
                log_sha256=sha256_file(log),
                evidence={name: read_json(out / name) for name in stage.evidence_files if (out / name).exists()},
            )
            outcome.artefact = store.add(out, record)
        except TritforgeError as error:
            if error.log is None:
                error.log = log
            raise
        except OSError as error:
            raise StoreError(f"stage '{stage.name}' could not be written: {error}", log=log) from error
        finally:
            remove_tree(work)


def _check(stage: Stage, outcomes: Mapping[str, Outcome]) -> None:
    if stage.check is None:
        return
    below = {other.name: outcomes[other.name].artefact for other in stage.upstream}
    try:
        stage.check({name: artefact for name, artefact in below.items() if artefact is not None})
    except TritforgeError as error:
        error.message = f"stage '{stage.name}': {error.message}"
        raise


def _unchanged(stage: Stage, inputs: Inputs, store: Store) -> None:
    """A file edited while it was being built would give an artefact that is not of its key."""
    for name, path in stage.files.items():
        if not path.exists() or store.hashes.sha256(path) != inputs[f"file {name}"]:
            raise ToolFailed(
                f"stage '{stage.name}': {name} was changed while it was being built",
                hint="run the same command again",
            )


def _toolchain(stage: Stage, out: Path, below: dict[str, Artefact]) -> str:
    """What made it; ``stand-in`` is inherited from anything it stands on."""
    own = stage.toolchain
    if stage.toolchain_file and (out / stage.toolchain_file).exists():
        own = str(read_json(out / stage.toolchain_file).get("toolchain", own))
    if any(artefact.toolchain == "stand-in" for artefact in below.values()):
        return "stand-in"
    return own


def _command_line() -> list[str]:
    """How this process was called, without the folder it lies in."""
    return [os.path.basename(sys.argv[0]), *sys.argv[1:]] if sys.argv else []
