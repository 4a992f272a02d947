"""``rollback``: the release that was current before, after the same smoke run that a deploy makes."""

from __future__ import annotations

from typing import Any

from pipelines.boards.damage import told_apart
from pipelines.boards.deploy import SMOKE_S, needs_root
from pipelines.boards.site import Site
from pipelines.commands.context import Context


def run(context: Context, board: str = "") -> dict[str, Any]:
    """Keys: ``board``, ``release``, ``previous``."""
    chosen = context.settings.board(board or None)
    site = Site(context.settings, context.state, context.console.say)
    with site.session(chosen, what="rollback") as session:
        before = session.request("before")
        target = before["release"]
        session.request("check", {"release": target, "staged": False})
        identity = str(before["manifest"]["predicate"]["signed_by"])
        session.request("signature", {"release": target, "identity": identity, "staged": False})
        with told_apart(session, target):
            session.job("smoke", {}, seconds=SMOKE_S, release=target, sudo=needs_root(chosen))
        done = session.request("rollback", {"release": target})
    return {"board": chosen.name, "release": done["release"], "previous": done["previous"]}


def plan(context: Context, board: str = "") -> dict[str, Any]:
    name = context.settings.board(board or None).name
    return {"stages": [], "steps": [f"check and smoke-run the release before the current one on {name}", "switch"]}


def show(result: dict[str, Any]) -> None:
    before = f", {result['previous'][:16]} is not" if result["previous"] else ""
    print(f"{result['board']}: release {result['release'][:16]} is current again{before}")
