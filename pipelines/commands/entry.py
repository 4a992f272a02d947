"""From a task's name and flags to its exit status: runs it, prints, writes the JSON, maps errors."""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from pipelines.base import command
from pipelines.base.errors import BoardOffline, CheckFailed, Interrupted, TritforgeError, UsageError
from pipelines.base.files import write_json
from pipelines.commands.context import Context

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def execute(
    task: str,
    options: Mapping[str, Any],
    *,
    plan: bool = False,
    json_file: str = "",
    overrides: Sequence[str] = (),
    debug: bool = False,
    context: Context | None = None,
) -> int:
    """Runs one task and returns its exit status. Nothing is raised, and nothing of ours exits elsewhere."""
    started = time.monotonic()
    signal.signal(signal.SIGTERM, _interrupt)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup asked for going on without a terminal
        signal.signal(signal.SIGHUP, _interrupt)
    _end_with_parent()
    result: dict[str, Any] = {}
    failure: TritforgeError | None = None
    trace = ""
    try:
        context = context or Context(overrides=overrides, plan=plan)
        module = importlib.import_module(f"pipelines.commands.{task.replace('-', '_')}")
        if plan:
            result = module.plan(context, **options)
            show_plan(task, result)
        else:
            result = module.run(context, **options)
            _show(module, result)
    except TritforgeError as error:
        failure, trace = error, traceback.format_exc()
    except KeyboardInterrupt:
        command.stop_all_tools()
        failure = Interrupted("interrupted", hint="what was finished is kept; the same command goes on from there")
    except BrokenPipeError:  # whoever read our output has seen enough
        sys.stdout = None
        return 0
    except Exception as error:  # a fault of ours, not the user's: say so, and keep the story
        trace = traceback.format_exc()
        failure = _internal(task, error, trace, context)
    if failure is not None:
        result = {**result, **failure.result}
        if not plan and failure.result and "module" in locals():
            _show(module, failure.result)
        print_error(failure, trace if debug else "")
    elapsed = time.monotonic() - started
    if json_file:
        status = _write_json(json_file, task, result, failure, elapsed)
        if status:
            return status
    return failure.status if failure is not None else 0


def document(task: str, result: Mapping[str, Any], failure: TritforgeError | None, elapsed_s: float) -> dict[str, Any]:
    """What ``--json`` writes."""
    value: dict[str, Any] = {"task": task, "status": status_of(failure), "elapsed_s": round(elapsed_s, 3)}
    if failure is not None:
        value["error"] = error_json(failure)
    for key, entry in result.items():
        value.setdefault(key, entry)
    return value


def status_of(failure: TritforgeError | None) -> str:
    """``passed``, ``failed`` (a check said no), ``offline``, or ``error`` (everything else)."""
    if failure is None:
        return "passed"
    if isinstance(failure, CheckFailed):
        return "failed"
    return "offline" if isinstance(failure, BoardOffline) else "error"


def error_json(failure: TritforgeError) -> dict[str, str | None]:
    return {
        "class": type(failure).__name__,
        "message": failure.message,
        "hint": failure.hint,
        "log": str(failure.log) if failure.log is not None else None,
    }


def print_error(failure: TritforgeError, trace: str = "") -> None:
    """Message, hint and log on stderr; the traceback only when it was asked for."""
    sys.stdout.flush()
    if trace:
        print(trace, file=sys.stderr, end="")
    kind = "failed" if isinstance(failure, CheckFailed) else "error"
    print(f"{kind}: {failure.message}", file=sys.stderr)
    if failure.hint:
        print(f"  hint: {failure.hint}", file=sys.stderr)
    if failure.log is not None:
        print(f"  log: {failure.log}", file=sys.stderr)


def show_plan(task: str, result: Mapping[str, Any]) -> None:
    for stage in result["stages"]:
        print(f"{stage['name']}: {'cached' if stage['cached'] else 'would run'}{_because(stage)}")
    for stage in result.get("details", []):
        if not stage["cached"]:
            print(f"  stage {stage['name']}: would run{_because(stage)}")
    for step in result.get("steps", []):
        print(f"would {step}")
    if not result["stages"] and not result.get("steps"):
        print(f"{task}: nothing to do")


def _because(stage: Mapping[str, Any]) -> str:
    return f", because {stage['reason']}" if stage.get("reason") else ""


def _show(module: ModuleType, result: Mapping[str, Any]) -> None:
    show = getattr(module, "show", None)
    if show is not None:
        show(result)


def _write_json(
    json_file: str, task: str, result: Mapping[str, Any], failure: TritforgeError | None, elapsed_s: float
) -> int:
    """0, or the exit status of not being able to write."""
    value, path = document(task, result, failure, elapsed_s), Path(json_file)
    try:
        if path.is_relative_to("/dev") or (path.exists() and not path.is_file()):
            # A pipe or a terminal is written into: renaming a file to its name would put it in the device's place.
            with path.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
        else:
            write_json(path, value)
    except TritforgeError as error:
        print_error(error)
        return error.status
    except OSError as error:
        unwritable = UsageError(f"--json {json_file}: {error.strerror}")
        print_error(unwritable)
        return failure.status if failure is not None else unwritable.status
    return 0


def _internal(task: str, error: Exception, trace: str, context: Context | None) -> TritforgeError:
    log = None
    if context is not None:
        try:
            log = context.log(f"crash-{task}")
            log.write_text(trace, encoding="utf-8")
        except OSError:
            log = None
    return TritforgeError(
        f"a fault in tritforge itself: {type(error).__name__}: {error}",
        hint="please report it with the traceback" + (" in the log" if log else " that --debug shows"),
        log=log,
    )


def _end_with_parent() -> None:
    """A task that a nightly started ends when that nightly is killed, instead of holding the board without a reader."""
    parent = os.environ.pop("TRITFORGE_PARENT", "")
    if not parent or not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if str(os.getppid()) != parent:  # it was faster than this call
        raise SystemExit(Interrupted.status)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
