"""``nightly``: the pipeline's stages, each as a task of its own, those that don't need each other at once.

What was built is cached by the stage engine. What was asked of a board is kept in ``.tritforge/results`` with what it
depended on, so that an interrupted night goes on where it stood; after ``fresh_hours`` a board is asked again.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipelines.base import command, errors
from pipelines.base.command import run_tool
from pipelines.base.console import seconds
from pipelines.base.deadline import Deadline
from pipelines.base.errors import Interrupted, ToolFailed, TritforgeError, UsageError, worst_status
from pipelines.base.files import read_json, write_json
from pipelines.base.lock import held
from pipelines.commands import builds
from pipelines.commands.context import Context
from pipelines.commands.lock import nightly_lock
from pipelines.config.pipeline import CHOSEN, TAKES, Pipeline, PipelineStage
from pipelines.config.settings import Choice
from pipelines.engine.provenance import commit_of
from pipelines.engine.schedule import run_all
from pipelines.engine.stage import Inputs, difference, flat
from pipelines.engine.store import Artefact

BUILDS = ("build-bitstream", "build-runtime", "convert-weights", "release")
"""Tasks whose results are artefacts: the engine knows whether they would run."""

ON_BOARD = ("deploy", "generate", "verify")
CODE = (".py", ".c", ".j2", ".yaml")  # of pipelines/: what a kept result was computed or written with


@dataclass
class Step:
    """One stage of the night and what became of it."""

    stage: PipelineStage
    cached: bool = False
    reason: str = ""
    status: str = ""  # passed, failed, error, offline, skipped; empty while it has not ended
    exit_status: int = 0
    elapsed_s: float = 0.0
    document: dict[str, Any] = field(default_factory=dict)

    def json(self) -> dict[str, Any]:
        return {
            "name": self.stage.name,
            "status": self.status,
            "cached": self.cached,
            "reason": self.reason,
            "elapsed_s": round(self.elapsed_s, 3),
        }


def run(context: Context, board: str = "", model: str = "", pipeline: str = "") -> dict[str, Any]:
    """Keys: ``board``, ``model``, ``release``, ``stages``, ``texts``, ``optional`` (stages that decide nothing),
    and ``results``: each stage's own JSON.
    """
    with held(nightly_lock(context), "nightly"):
        night = Night(context, board, model, pipeline)
        result = night.run()
        if night.worked:
            night.keep(result)
    night.raise_worst(result)
    return result


def plan(context: Context, board: str = "", model: str = "", pipeline: str = "") -> dict[str, Any]:
    night = Night(context, board, model, pipeline)
    night.look()
    return {"stages": [step.json() for step in night.steps.values()], "details": night.details}


def show(result: dict[str, Any]) -> None:
    for stage in result["stages"]:
        if stage["cached"]:
            took = "cached"
        else:
            took = seconds(stage["elapsed_s"]) if stage["elapsed_s"] else "not run"
        because = f", because {stage['reason']}" if stage["reason"] else ""
        optional = " (optional)" if stage["name"] in result.get("optional", []) else ""
        print(f"{stage['name']:<16} {stage['status']:<8} {took}{optional}{because}")
    for text in result.get("texts", []):
        print(f"\n{text['prompt']}{text['text']}")
    if result.get("release"):
        print(f"\nrelease {result['release'][:16]} for {result['board']}, model {result['model']}")
    for document in result.get("results", {}).values():
        if document.get("task") == "report" and document.get("html"):
            print(f"report, {document['verdict']}: {document['html']}")


class Night:
    """One run of a pipeline for one board and one model."""

    def __init__(self, context: Context, board: str, model: str, pipeline: str) -> None:
        self.context = context
        self.pipeline: Pipeline = context.settings.pipeline(pipeline or None)
        self.choice: Choice = context.settings.choose(board or None, model or None)
        self.steps = {stage.name: Step(stage) for stage in self.pipeline.stages}
        self.details: list[dict[str, Any]] = []  # of the engine's stages, for the plan
        self.worked = False  # whether any stage ran: a night that found everything done is no new record
        self._record = f"{datetime.now(UTC).strftime('%Y%m%dT%H%M%SZ')}-{self.pipeline.name}.json"
        self.release_stage = builds.release(context, self.choice.board.name, self.choice.model.name)
        self._code = {
            path.relative_to(context.root).as_posix(): context.hashes.sha256(path)
            for path in sorted((context.root / "pipelines").rglob("*.*"))
            if path.suffix in CODE
        }

    # ----------------------------------------------------------------------------------------------- what to do

    def look(self) -> None:
        """Marks every step that need not run, and says of the others why they would."""
        from pipelines.engine import graph

        # Parts that don't fit are the release's failure in a night, beside the other results; a plan says so at once.
        planned = graph.plan([self.release_stage], self.context.store, check=self.context.plan)
        outcomes = {outcome.name: outcome for outcome in planned}
        self.details = [outcome.json() for outcome in outcomes.values()]
        for step in self.steps.values():
            task = step.stage.task
            if task in BUILDS:
                outcome = outcomes[self._engine_stage(task)]
                step.cached, step.reason = outcome.cached, outcome.reason
                continue
            again = [name for name in self._stands_on(step) if not self.steps[name].cached]
            subject = outcomes[self._subject(step)]
            if again:
                step.reason = "it stands on " + " and ".join(f"'{name}'" for name in again) + ", which would run"
            elif subject.artefact is None:
                step.reason = f"'{subject.name}' would be built"
            else:
                step.reason = self._stale(step, subject.artefact)
                step.cached = not step.reason
        self._deploy_before_work()
        for step in self.steps.values():
            step.status = "passed" if step.cached else "would run"

    def _deploy_before_work(self) -> None:
        """A board that is going to be asked anything is first given the release, which costs nothing if it has it."""
        working = [step for step in self.steps.values() if step.stage.task in ON_BOARD and not step.cached]
        for step in self.steps.values():
            if step.stage.task == "deploy" and step.cached and working:
                step.cached = False
                step.reason = f"'{working[0].stage.name}' would run on the board"

    def _engine_stage(self, task: str) -> str:
        below = {stage.name.split("-")[0]: stage.name for stage in self.release_stage.upstream}
        kinds = {"build-bitstream": "bitstream", "build-runtime": "runtime", "convert-weights": "weights"}
        return below[kinds[task]] if task in kinds else self.release_stage.name

    def _below(self, step: Step) -> list[str]:
        """What must have ended before it starts."""
        return [*step.stage.needs, *step.stage.after]

    def _stands_on(self, step: Step) -> list[str]:
        """What makes its result another one. ``after`` is an order only, but a report tells of all before it."""
        return self._below(step) if step.stage.task == "report" else step.stage.needs

    def _subject(self, step: Step) -> str:
        """The engine's stage that a step's result is about: what takes no board asks the weights alone."""
        takes = TAKES[step.stage.task]
        return self._engine_stage("convert-weights" if "model" in takes and "board" not in takes else "release")

    def _stale(self, step: Step, subject: Artefact) -> str:
        """Why the kept result of a step does not count any more; empty when it does."""
        kept = self._kept(step)
        if kept is None:
            return "it never passed here"
        if changed := difference(kept["depends_on"], self._depends_on(step, subject)):
            return changed
        hours = (time.time() - float(kept["finished"])) / 3600
        if not 0 <= hours < self.pipeline.fresh_hours:
            return f"its last result is {hours:.1f} hours old"
        step.document, step.elapsed_s = kept["document"], 0.0
        return ""

    def _depends_on(self, step: Step, subject: Artefact) -> Inputs:
        """All that can change a step's result, apart from the board itself."""
        task = step.stage.task
        values: dict[str, Any] = {"task": task, **{f"options.{name}": v for name, v in step.stage.options.items()}}
        if "board" in TAKES[task]:
            values["board"] = self.choice.board.model_dump(mode="json")
        if task == "generate":
            values |= {"prompts": self.pipeline.prompts, "tokens": self.pipeline.tokens}
        if task == "report":
            values["results"] = {name: self.steps[name].document.get("finished") for name in self._below(step)}
        return {
            f"artefact {subject.name}": subject.digest,
            **{f"value {name}": value for name, value in flat(values).items()},
            **{f"file {name}": digest for name, digest in self._code.items()},
        }

    # --------------------------------------------------------------------------------------------------- doing it

    def run(self) -> dict[str, Any]:
        """Runs what must run and returns the night's JSON keys. Raises Interrupted."""
        self.look()
        for step in self.steps.values():
            step.status = "passed" if step.cached else ""
        try:
            run_all(
                list(self.steps),
                {name: self._below(step) for name, step in self.steps.items()},
                self._may_run,
                self._work,
                jobs=self.pipeline.jobs,
            )
        except KeyboardInterrupt:
            command.stop_all_tools()
            raise Interrupted(
                "the night was interrupted",
                hint="what was finished is kept; the same command goes on from there",
                result=self._result(),
            ) from None
        return self._result()

    def _may_run(self, name: str) -> bool:
        step = self.steps[name]
        if step.cached:
            return False
        failed = [other for other in step.stage.needs if self.steps[other].status != "passed"]
        if failed:
            step.status = "skipped"
            step.reason = f"'{failed[0]}' did not pass"
            # An offline board is one thing that went wrong, not four.
            if self.steps[failed[0]].status == "offline" or self.steps[failed[0]].document.get("status") == "offline":
                step.document = {"status": "offline"}
            return False
        return True

    def _work(self, name: str) -> None:
        """In a thread of its own, so nothing may be raised."""
        step = self.steps[name]
        self.worked = True
        started = time.monotonic()
        try:
            if step.stage.task == "report":
                self.keep(self._result())  # what a report is about; written again with its own line at the end
            for i, prompt in enumerate(self.pipeline.prompts if step.stage.task == "generate" else [None]):
                self._run_task(step, prompt, first=i == 0)
                if step.status != "passed":
                    break
        except TritforgeError as error:
            step.status, step.exit_status = "error", error.status
            step.document = {"status": "error", "error": _error_json(error)}
        except BaseException as error:
            fault = ToolFailed(f"a fault in tritforge itself: {type(error).__name__}: {error}")
            step.status, step.exit_status = "error", fault.status
            step.document = {"status": "error", "error": _error_json(fault)}
        step.elapsed_s = time.monotonic() - started
        step.reason = step.reason.replace("would run", "had to run").replace("would be built", "was built")
        if step.status == "passed" and step.stage.task not in BUILDS:
            self._remember(step)

    def _run_task(self, step: Step, prompt: str | None, *, first: bool) -> None:
        """One task as a process of its own: it has a deadline, and nothing that it does can take the night with it."""
        folder = self.context.state / "nightly"
        folder.mkdir(parents=True, exist_ok=True)
        answer = folder / f"{step.stage.name}.json"
        answer.unlink(missing_ok=True)
        log = self.context.state / "logs" / f"nightly-{step.stage.name}.log"
        if first:
            log.unlink(missing_ok=True)
        result = run_tool(
            [sys.executable, self.context.root / "tasks.py", step.stage.task, *self._flags(step, prompt, answer)],
            deadline=Deadline.after(step.stage.deadline_minutes * 60),
            cwd=self.context.root,
            env={"TRITFORGE_PARENT": str(os.getpid()), "PYTHONUTF8": "1"},
            log=log,
            check=False,
            on_line=lambda line: self.context.console.say(f"{step.stage.name}: {line}" if line else ""),
        )
        try:
            document = read_json(answer)
        except (OSError, ValueError):
            kind = UsageError if result.status == UsageError.status else ToolFailed  # a value that is no number
            raise kind(
                f"the task ended with status {result.status} and no result", hint="its log has all it said", log=log
            ) from None
        document["finished"] = datetime.now(UTC).isoformat()
        step.exit_status = result.status
        step.status = str(document["status"])
        if step.stage.task == "generate":
            texts = step.document.get("texts", [])
            drawn = {"options": dict(step.stage.options)} if step.stage.options else {}
            document["texts"] = [*texts, {"prompt": prompt, "text": document.get("text", ""), **drawn}]
        step.document = document

    def _flags(self, step: Step, prompt: str | None, answer: Path) -> list[str]:
        flags = [f"--json={answer}"]
        chosen = {"board": self.choice.board.name, "model": self.choice.model.name}
        flags += [f"--{name}={chosen[name]}" for name in CHOSEN if name in TAKES[step.stage.task]]
        options = dict(step.stage.options)
        if prompt is not None:
            options = {"prompt": prompt, "tokens": self.pipeline.tokens, **options}
        for name, value in options.items():
            if value is True:
                flags.append(f"--{name}")
            elif value is not False:
                flags.append(f"--{name}={value}")
        return flags + [f"--set={text}" for text in self.context.overrides]

    # ------------------------------------------------------------------------------------------- results and verdict

    def _result(self) -> dict[str, Any]:
        release = ""
        texts: list[dict[str, str]] = []
        for step in self.steps.values():
            release = str(step.document.get("release", release)) if step.stage.task == "release" else release
            texts += step.document.get("texts", []) if step.stage.task == "generate" else []
        if not release:
            release = self._cached_release()
        commit = commit_of(self.context.root)
        # A machine that is a new one every night, as in a container, says by what name its figures are compared.
        machine = os.environ.get("TRITFORGE_MACHINE") or platform.node()
        return {
            "pipeline": self.pipeline.name,
            "board": self.choice.board.name,
            "model": self.choice.model.name,
            "commit": f"{commit.name}{'+' if commit.dirty else ''}" if commit is not None else "",
            "machine": f"{machine} ({platform.machine()}, {os.cpu_count()} cores)",
            "release": release,
            "stages": [step.json() for step in self.steps.values()],
            "optional": [name for name, step in self.steps.items() if step.stage.optional],
            "texts": texts,
            "results": {name: step.document for name, step in self.steps.items()},
        }

    def _cached_release(self) -> str:
        from pipelines.engine import graph

        outcome = graph.plan([self.release_stage], self.context.store)[-1]
        return builds.Release.of(outcome.artefact).id if outcome.artefact is not None else ""

    def keep(self, result: Mapping[str, Any]) -> None:
        """The night's own record, which report and history read."""
        write_json(self.context.state / "nights" / self._record, result)

    def raise_worst(self, result: dict[str, Any]) -> None:
        """Raises the error of the stage that decides the exit status, if any that is not optional went wrong."""
        wrong = [s for s in self.steps.values() if s.exit_status != 0 and not s.stage.optional]
        if not wrong:
            return
        status = worst_status([step.exit_status for step in wrong])
        step = next(step for step in wrong if step.exit_status == status)
        story = step.document.get("error", {})
        kind = getattr(errors, str(story.get("class")), ToolFailed)
        others = [other.stage.name for other in wrong if other is not step]
        log = story.get("log") or str(self.context.state / "logs" / f"nightly-{step.stage.name}.log")
        raise kind(
            f"stage '{step.stage.name}': {story.get('message', 'no message')}"
            + (f"\nwent wrong as well: {', '.join(others)}" if others else ""),
            hint=str(story.get("hint", "")),
            log=Path(log),
            result=result,
        )

    def _path(self, step: Step) -> Path:
        chosen = f"{self.pipeline.name}-{self.choice.board.name}-{self.choice.model.name}"
        return self.context.state / "results" / chosen / f"{step.stage.name}.json"

    def _kept(self, step: Step) -> dict[str, Any] | None:
        try:
            kept = read_json(self._path(step))
            whole = {"depends_on", "finished", "document"} <= set(kept) and isinstance(kept["depends_on"], dict)
            return kept if whole else None
        except (OSError, ValueError, TypeError):
            return None

    def _remember(self, step: Step) -> None:
        from pipelines.engine import graph

        planned = {outcome.name: outcome for outcome in graph.plan([self.release_stage], self.context.store)}
        subject = planned[self._subject(step)].artefact
        if subject is None:  # its sources were changed while the night went on: this result is of no release that is
            return
        write_json(
            self._path(step),
            {
                "depends_on": self._depends_on(step, subject),
                "finished": time.time(),
                "document": step.document,
            },
        )


def _error_json(error: TritforgeError) -> dict[str, Any]:
    return {
        "class": type(error).__name__,
        "message": error.message,
        "hint": error.hint,
        "log": str(error.log) if error.log else None,
    }
