"""How an artefact came to be: an in-toto statement with an SLSA provenance predicate.

https://in-toto.io/Statement/v1 and https://slsa.dev/provenance/v1. The names of our own kinds are URNs: they promise
no page that could be fetched.
"""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PROVENANCE_TYPE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "urn:tritforge:stage:1"
BUILDER_ID = "urn:tritforge:checkout"
GIT_TIMEOUT_S = 10


@dataclass(frozen=True)
class Commit:
    """The commit that a checkout stands at; ``dirty`` when files differ from it."""

    name: str
    dirty: bool


def commit_of(root: Path) -> Commit | None:
    """None outside a git checkout, or without git: provenance then says that it does not know."""
    # Not through run_tool: this must work while a run is being interrupted, and its failure is no error.
    try:
        name = _git(root, "rev-parse", "HEAD")
        return Commit(name.strip(), bool(_git(root, "status", "--porcelain", "--untracked-files=normal").strip()))
    except (OSError, subprocess.SubprocessError):
        return None


def _git(root: Path, *arguments: str) -> str:
    # A checkout of another user's (a container's mount) is only read here.
    argv = ["git", "-c", f"safe.directory={root}", "-C", str(root), *arguments]
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=GIT_TIMEOUT_S).stdout


def statement(
    *,
    stage: str,
    subject: Mapping[str, tuple[str, int]],
    inputs: Mapping[str, str],
    commit: Commit | None,
    command: Sequence[str],
    toolchain: str,
    started: datetime,
    finished: datetime,
    key: str,
    log_sha256: str,
    evidence: Mapping[str, Any],
) -> dict[str, Any]:
    """The record of one build. ``inputs`` are those of the stage's key (see ``stage.Inputs``)."""
    dependencies: list[dict[str, Any]] = []
    for name, value in inputs.items():
        kind, _, what = name.partition(" ")
        if kind in ("file", "artefact"):
            dependencies.append({"name": what, "uri": f"urn:tritforge:{kind}:{what}", "digest": {"sha256": value}})
    if commit is not None:
        dependencies.append(
            {
                "name": "source",
                "uri": "git+file:.",
                "digest": {"gitCommit": commit.name},
                "annotations": {"dirty": commit.dirty},
            }
        )
    byproducts: list[dict[str, Any]] = []
    if log_sha256:
        byproducts.append({"name": "log", "digest": {"sha256": log_sha256}})
    for name, content in evidence.items():
        byproducts.append({"name": name, "annotations": content})
    return {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, (digest, _) in subject.items()],
        "predicateType": PROVENANCE_TYPE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"stage": stage, "values": _of_kind(inputs, "value")},
                "internalParameters": {
                    "tools": _of_kind(inputs, "tool"),
                    "toolchain": toolchain,
                    "command": list(command),
                    "machine": f"{platform.system()} {platform.machine()}",
                },
                "resolvedDependencies": dependencies,
            },
            "runDetails": {
                "builder": {"id": BUILDER_ID, "version": {"python": platform.python_version()}},
                "metadata": {
                    "invocationId": key,
                    "startedOn": _timestamp(started),
                    "finishedOn": _timestamp(finished),
                },
                "byproducts": byproducts,
            },
        },
    }


def _of_kind(inputs: Mapping[str, str], kind: str) -> dict[str, str]:
    return {name.partition(" ")[2]: value for name, value in inputs.items() if name.partition(" ")[0] == kind}


def _timestamp(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
