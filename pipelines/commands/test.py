"""``test``: lint, format, types, then every test; at the end the time each part took beside its budget."""

from __future__ import annotations

import os
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pipelines.base.command import run_tool
from pipelines.base.deadline import Deadline
from pipelines.base.errors import CheckFailed, TritforgeError, UsageError
from pipelines.commands.context import Context

PROCESSES = 2
WHOLE_S = 75 * 60.0
CAMPAIGN_S = 12 * 3600.0

# Minutes of processor time on two cores; together the 45 that a whole run may take.
BUDGET_MINUTES = {
    "system packages": 4,
    "emulated board": 4,
    "RTL": 10,
    "runtime": 8,
    "Vivado stand-in": 4,
    "boards": 8,
    "rest": 7,
}
PART_OF = {
    "tests/hardware": "RTL",
    "tests/native": "runtime",
    "tests/vivado": "Vivado stand-in",
    "tests/boards": "boards",
    "tests/boards/test_emulator": "emulated board",
    "tests/thread": "emulated board",
}
"""Which budget a folder or a file of tests draws on; what stands here in no line draws on ``rest``."""


def run(context: Context, path: Sequence[str] = (), match: str = "", campaign: bool = False) -> dict[str, Any]:
    """Keys: ``checks``: {name: passed}, ``passed``, ``failed``, ``skipped``, ``parts``: {name: {seconds, budget_s}}."""
    for name in path:
        if not (context.root / name.split("::")[0]).exists():
            raise UsageError(f"--path {name}: no such file or folder in {context.root}")
    deadline = Deadline.after(CAMPAIGN_S if campaign else WHOLE_S)
    log = context.log("test")
    log.unlink(missing_ok=True)
    whole = not path and not match
    started = time.monotonic()
    checks = {name: _check(context, name, argv, deadline, log) for name, argv in (CHECKS if whole else {}).items()}
    check_s = time.monotonic() - started
    junit = context.state / "logs" / "junit-tests.xml"
    junit.unlink(missing_ok=True)
    argv = [sys.executable, "-m", "pytest", "-q", f"--junitxml={junit}", *(path or ["tests"])]
    argv += ["-n", str(PROCESSES), "--dist", "loadfile"] if whole else []
    argv += ["-k", match] if match else []
    argv += ["--campaign"] if campaign else []
    shown = partial(print, flush=True)  # a page of CI should show how far it is
    status = run_tool(argv, cwd=context.root, deadline=deadline, log=log, check=False, on_line=shown).status
    result = _counts(junit)
    times = _times(junit)
    times["rest"] = times.get("rest", 0.0) + check_s
    if os.environ.get("TRITFORGE_PREPARED_S", "").isdecimal():
        times["system packages"] = float(os.environ["TRITFORGE_PREPARED_S"])
    result["checks"] = checks
    result["parts"] = {
        name: {"seconds": round(times.get(name, 0.0), 1), "budget_s": minutes * 60}
        for name, minutes in BUDGET_MINUTES.items()
    }
    whole_s = time.monotonic() - started + times.get("system packages", 0.0)
    result["parts"]["whole"] = {"seconds": round(whole_s, 1), "budget_s": 60 * sum(BUDGET_MINUTES.values())}
    wrong = [name for name, passed in checks.items() if not passed]
    if status == 5 or (status == 0 and result["passed"] == 0):
        raise UsageError("no test was run", hint="--path and --match select nothing", result=result)
    if status != 0 or wrong:
        what = [f"{result['failed']} tests failed"] if status != 0 else []
        raise CheckFailed("; ".join([*what, *(f"{name} failed" for name in wrong)]), log=log, result=result)
    return result


def plan(context: Context, path: Sequence[str] = (), match: str = "", campaign: bool = False) -> dict[str, Any]:
    steps = [] if path or match else [f"run {name}" for name in CHECKS]
    return {"stages": [], "steps": [*steps, f"run the tests in {', '.join(path) or 'tests'}"]}


def show(result: dict[str, Any]) -> None:
    print()
    for name, part in result["parts"].items():
        if part["seconds"] or result["checks"]:  # all of them for the whole suite
            over = "  over its budget" if part["seconds"] > part["budget_s"] else ""
            print(f"{name:<16} {part['seconds'] / 60:5.1f} of {part['budget_s'] / 60:2.0f} min{over}")
    for name, passed in result["checks"].items():
        print(f"{name:<16} {'passed' if passed else 'failed'}")
    # Last and alone on its line: this is what continuous integration reads.
    print(f"{result['passed']} passed, {result['failed']} failed, {result['skipped']} skipped", flush=True)


CHECKS = {
    "lint": ["ruff", "check", "."],
    "format": ["ruff", "format", "--check", "."],
    "types": ["mypy"],
}


def _check(context: Context, name: str, argv: Sequence[str], deadline: Deadline, log: Path) -> bool:
    with context.console.activity(name):
        try:
            result = run_tool([sys.executable, "-m", *argv], cwd=context.root, deadline=deadline, log=log, check=False)
        except TritforgeError as error:
            print(error.message)
            return False
    if result.status != 0:
        print(result.stdout + result.stderr)
    return result.status == 0


def _counts(junit: Path) -> dict[str, Any]:
    """Tests by outcome; all zero when pytest did not get as far as writing its result."""
    totals = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    for suite in _suites(junit):
        for key in totals:
            totals[key] += int(suite.get(key, "0"))
    failed = totals["failures"] + totals["errors"]
    return {
        "passed": totals["tests"] - failed - totals["skipped"],
        "failed": failed,
        "skipped": totals["skipped"],
    }


def _times(junit: Path) -> dict[str, float]:
    """Seconds of tests by part, added over both processes and halved: what they took of the run."""
    times: dict[str, float] = {}
    for suite in _suites(junit):
        for case in suite.iter("testcase"):
            part = part_of(case.get("classname", ""))
            times[part] = times.get(part, 0.0) + float(case.get("time", "0")) / PROCESSES
    return times


def part_of(classname: str) -> str:
    """The budget of a test by what JUnit calls its class, such as ``tests.boards.test_emulator``."""
    names = classname.split(".")
    file, folder = "/".join(names[:3]), "/".join(names[:2])
    return PART_OF.get(file) or PART_OF.get(folder, "rest")


def _suites(junit: Path) -> list[ElementTree.Element]:
    try:
        return list(ElementTree.parse(junit).getroot().iter("testsuite"))
    except (OSError, ElementTree.ParseError):
        return []
