"""``build-runtime``: the C runtime, for the board's ABI and for this machine."""

from __future__ import annotations

from typing import Any

from pipelines.commands import builds
from pipelines.commands.context import Context
from pipelines.engine import graph


def run(context: Context, board: str = "") -> dict[str, Any]:
    """Keys: ``stages``, ``runtime`` (folder), ``digest``, ``files``: list of {name, sha256, bytes}."""
    context.settings.board(board or None)  # a name that does not exist is said, though all boards share one build
    stage = builds.runtime(context)
    outcomes = builds.make(context, [stage])
    artefact = graph.artefact_of(outcomes, stage.name)
    return {
        "stages": [outcome.json() for outcome in outcomes],
        "runtime": str(artefact.folder),
        "digest": artefact.digest,
        "files": [{"name": name, "sha256": sha, "bytes": size} for name, (sha, size) in sorted(artefact.files.items())],
    }


def plan(context: Context, board: str = "") -> dict[str, Any]:
    context.settings.board(board or None)
    return builds.plan(context, [builds.runtime(context)])


def show(result: dict[str, Any]) -> None:
    builds.show(result["stages"])
    for entry in result.get("files", []):
        print(f"  {entry['name']}: {entry['bytes']:,} bytes")
