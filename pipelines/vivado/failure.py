"""Why a build failed: every log read, the first error found, well-known causes told apart.

Runs of Vivado are processes of their own with a ``runme.log`` each; the parent's log and its exit status know little of
what happened in them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from pipelines.base.errors import LicenceError, OutOfMemory, ToolFailed, ToolTimeout
from pipelines.vivado.facts import Facts
from pipelines.vivado.parsers import messages


class RunCancelled(ToolFailed):
    """Somebody cancelled a run."""


class RunKilled(ToolFailed):
    """A run was ended by a signal."""


class RunIncomplete(ToolFailed):
    """A run stopped half-way without saying why."""


class IpMissing(ToolFailed):
    """An IP core of the design is not in this installation of Vivado."""


class VersionMismatch(ToolFailed):
    """The Vivado that is there is not one that may build this design."""


class ToolCrashed(ToolFailed):
    """Vivado itself ended abnormally."""


@dataclass(frozen=True)
class Cause:
    """A pattern in a log, and the error it stands for."""

    pattern: re.Pattern[str]
    error: type[ToolFailed]
    what: str
    hint: str


CAUSES = (
    Cause(
        re.compile(
            r"\[Common 17-345\]|valid license was not found|could not obtain a license|License checkout .*failed", re.I
        ),
        LicenceError,
        "Vivado got no licence",
        "xc7z020 needs no paid licence: run the installer's licence manager, or set XILINXD_LICENSE_FILE; "
        "vivado.licence_wait_s is how long a build waits",
    ),
    Cause(
        re.compile(
            r"^.*\bKilled\b.*$|out of memory|std::bad_alloc|unable to allocate memory|\[Common 17-179\]|cannot fork",
            re.M | re.I,
        ),
        OutOfMemory,
        "Vivado was ended for want of memory",
        "xc7z020 wants about 4 GiB a run: lower vivado.jobs, or free memory, and build again",
    ),
    Cause(
        re.compile(
            r"\[BD 5-390\]|IP definition not found|\[IP_Flow 19-\d+\].*is locked|\[Common 17-69\].*IP .*not found", re.I
        ),
        IpMissing,
        "an IP core of the design is not in this Vivado",
        "the design names exact versions of the cores; install Vivado with Zynq-7000 support in an allowed version",
    ),
    Cause(
        re.compile(r"Vivado is version \S+, but version \S+ was found before the build"),
        VersionMismatch,
        "another Vivado built than the one that was asked for its version",
        "two installations are mixed: check the PATH and settings64.sh",
    ),
    Cause(
        re.compile(r"Abnormal program termination|Segmentation fault|hs_err_pid", re.I),
        ToolCrashed,
        "Vivado crashed",
        "build again; if it crashes in the same place, try another directive or version",
    ),
    Cause(
        re.compile(r"\bwas cancelled\b|\[Common 17-344\]|Cancelled", re.I),
        RunCancelled,
        "a run was cancelled",
        "build again",
    ),
    Cause(
        re.compile(r"line \d+:\s+\d+ Terminated|Terminated\b.*loader", re.I),
        RunKilled,
        "a run was ended from outside",
        "somebody or something ended it; build again",
    ),
)


ONLY_REPEATS = ("Common 17-69", "Common 17-39", "tritforge")
"""Errors that say that something failed, not what; ``tritforge`` is our own script's."""


def logs_of(attempt: Path) -> list[Path]:
    """All logs, those of the runs first: the cause of a failure lies in the first of them that has one."""
    return sorted(attempt.rglob("runme.log"), key=lambda p: (p.parent.name != "synth_1", str(p))) + [
        path for path in (attempt / "vivado.log",) if path.exists()
    ]


def diagnose(attempt: Path, *, status: int, log: Path | None) -> ToolFailed:
    """The error that a failed attempt ends in. ``status`` is the exit status of the tool, negative for a signal."""
    facts = Facts.read(attempt / "facts.tsv")
    found: tuple[Cause, str, Path] | None = None
    first: messages.Message | None = None
    for path in (*logs_of(attempt), attempt / "facts.tsv"):
        if not path.exists():
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        errors = [m for m in messages.parse(text, str(path.relative_to(attempt))) if m.severity == "ERROR"]
        telling = [m for m in errors if m.id not in ONLY_REPEATS]
        first = first or (telling[0] if telling else None)
        if found is None:
            for cause in CAUSES:
                match = cause.pattern.search(text)
                if match:
                    found = (cause, _line_of(text, match.start()), path)
                    break
    story = _story(facts, first)
    if found:
        cause, line, path = found
        return cause.error(f"{cause.what}: {path.relative_to(attempt)}: {line}{story}", hint=cause.hint, log=path)
    if status < 0 or status in (134, 139):
        return ToolCrashed(
            f"Vivado ended abnormally (status {status}){story}", hint="the log shows how far it came", log=log
        )
    if first is not None:
        return ToolFailed(
            f"Vivado failed: {first.log}: {first}{story}", hint="that log has the whole story", log=attempt / first.log
        )
    reason = facts.get("failed")
    if "was still running after" in reason:
        return ToolTimeout(
            f"Vivado did not finish: {reason}{story}", hint="vivado.run_minutes is how long a run may take", log=log
        )
    if "stopped at" in reason:
        return RunIncomplete(
            f"Vivado did not finish: {reason}{story}", hint="that run's runme.log ends where it stopped", log=log
        )
    if reason:
        return ToolFailed(f"Vivado failed: {reason}{story}", log=log)
    return ToolFailed(
        f"Vivado ended with status {status} before its script came to an end, and no log names a cause{story}",
        hint="the log shows the last thing it did",
        log=log,
    )


def _story(facts: Facts, first: messages.Message | None) -> str:
    """How far each run came, and the first error with its file."""
    parts = ""
    if first is not None:
        parts += f"\n  first error: {first.log}: {first}"
    for run in ("synth_1", "impl_1"):
        if facts.get(f"{run}.status"):
            parts += f"\n  {run}: {facts.get(f'{run}.status')} at {facts.get(f'{run}.progress')}"
    return parts


def _line_of(text: str, at: int) -> str:
    start = text.rfind("\n", 0, at) + 1
    end = text.find("\n", at)
    return text[start : end if end >= 0 else None].strip()[:300]
