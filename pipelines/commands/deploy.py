"""``deploy``: a release onto one board or several, as one transaction each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipelines.base import errors
from pipelines.base.errors import (
    BoardError,
    CheckFailed,
    ConfigError,
    Interrupted,
    ToolFailed,
    TransferError,
    TritforgeError,
)
from pipelines.boards import deploy as boards_deploy
from pipelines.boards.release import LocalRelease
from pipelines.boards.site import Site
from pipelines.commands import builds
from pipelines.commands.context import Context

KINDS = {
    kind.status: kind for kind in (CheckFailed, ConfigError, ToolFailed, BoardError, TransferError, Interrupted)
}  # fmt: skip


def run(context: Context, board: str | Sequence[str] = "", model: str = "") -> dict[str, Any]:
    """Keys: ``release``, ``previous``, ``bytes_sent``, ``bytes_total``, ``seconds``, ``warning`` (empty, or why
    this model will not write sense); with several boards ``boards``.

    ``unshippable`` is there, and true, when a stand-in tool made a part of the release.

    ``board`` is a name, a group, or several of either: then the first is the canary for the rest.
    """
    chosen = [board] if isinstance(board, str) else list(board)
    names = context.settings.board_names([name for name in chosen if name])
    if len(names) == 1:
        return one(context, names[0], model)
    results = boards_deploy.many(names, lambda name: one(context, name, model))
    result = {"boards": results, **{key: results[0].get(key) for key in ("release", "previous")}}
    result |= {key: sum(entry.get(key) or 0 for entry in results) for key in ("bytes_sent", "bytes_total")}
    result["seconds"] = max(entry.get("seconds") or 0 for entry in results)
    status = boards_deploy.worst(results)
    if status:
        failed = [entry for entry in results if entry["status"] == "failed"]
        decisive = next(entry for entry in failed if entry["exit_status"] == status)
        raise kind_of(decisive["error"]["class"], status)(
            f"{len(failed)} of {len(names)} boards failed: "
            + "; ".join(f"{entry['board']}: {entry['error']['message']}" for entry in failed),
            hint=decisive["error"]["hint"],
            result=result,
        )
    return result


def kind_of(name: str, status: int) -> type[TritforgeError]:
    """The error of this name; for one that only a builder knows, such as Vivado's, any of the same exit status."""
    kind: type[TritforgeError] = getattr(errors, name, TritforgeError)
    return kind if kind.status == status and name in vars(errors) else KINDS[status]


def one(context: Context, name: str, model: str) -> dict[str, Any]:
    """Builds what is not cached of the release, and deploys it to one board."""
    made, outcomes = builds.made_release(context, name, model)
    warning = builds.warning(outcomes)
    if warning:
        context.console.say(f"warning: {warning}")
    release = LocalRelease.read(made.artefact.folder)
    board = context.settings.board(name)
    site = Site(context.settings, context.state, context.console.say)
    with site.address(board) as address, context.console.activity(f"deploy to {name}") as activity:
        done = boards_deploy.deploy(
            board,
            address,
            release,
            site.known_hosts,
            on_bytes=lambda sent, total: activity.update(sent, total, "bytes"),
        )
    return {**done.json(), "warning": warning}


def plan(context: Context, board: str | Sequence[str] = "", model: str = "") -> dict[str, Any]:
    chosen = [board] if isinstance(board, str) else list(board)
    names = context.settings.board_names([name for name in chosen if name])
    stages = {stage.name: stage for stage in (builds.release(context, name, model) for name in names)}
    return builds.plan(context, list(stages.values()), *(f"deploy to {name}" for name in names))


def show(result: dict[str, Any]) -> None:
    for entry in result.get("boards", [result]):
        name = entry.get("board", "")
        if entry.get("status", "passed") != "passed":
            print(f"{name}: {entry['status']}: {entry.get('error', {}).get('message', 'behind a failed canary')}")
        elif entry.get("bytes_sent") is not None:
            print(
                f"{name}: release {entry['release'][:16]} is current,"
                f" {entry['bytes_sent']:,} of {entry['bytes_total']:,} bytes sent in {entry['seconds']:.1f} s"
            )
