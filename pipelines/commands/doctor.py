"""``doctor``: everything that can be wrong before it goes wrong, on this machine and on a board. Changes nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pipelines.base.errors import BoardOffline, ToolMissing, TritforgeError
from pipelines.boards.access import emulator_of
from pipelines.boards.doctor import board_checks, host_checks
from pipelines.boards.preflight import Check
from pipelines.boards.site import Site
from pipelines.commands.context import Context
from pipelines.config.board import Board


def run(context: Context, board: str = "") -> dict[str, Any]:
    """Key ``checks``: list of {name, status, found, expected, hint}; status passed, failed, warning or skipped.

    An emulated board that does not run is not started: nothing about it is wrong. Raises the worst of what failed:
    ConfigError (2), ToolMissing (3) for something of this machine, BoardUnfit or BoardOffline (4) of the board.
    """
    chosen = context.settings.board(board or None)
    site = Site(context.settings, context.state, context.console.say)
    host = host_checks(chosen, context.settings.bitstream_of(chosen), context.state)
    checks = [replace(check, kind=ToolMissing) for check in host]
    offline: TritforgeError | None = None
    try:
        context.settings.check()
        checks.append(Check("configuration", "passed", "config/ is consistent", "consistent"))
    except TritforgeError as error:
        checks.append(Check("configuration", "failed", error.message, "consistent", error.hint, type(error)))
    try:
        with site.session(chosen, start=False) as session:
            at = session.connection.address
            checks.append(Check("board", "passed", f"{chosen.name} answers on {at.host}:{at.port}", "answers"))
            checks.extend(board_checks(session, chosen))  # one by one, up to where the connection is lost
    except BoardOffline as error:
        if chosen.emulator is not None and not runs(context, site, chosen):
            checks.append(Check("board", "skipped", error.message, "answers", error.hint))
        else:
            checks.append(Check("board", "failed", error.message, "answers", error.hint, type(error)))
            offline = error
    except TritforgeError as error:
        checks.append(Check("board", "failed", error.message, "answers", error.hint, type(error)))
        offline = error
    result = {"board": chosen.name, "checks": [check.json() for check in checks]}
    failed = [check for check in checks if check.status == "failed"]
    if offline is not None:
        raise type(offline)(offline.message, hint=offline.hint, result=result)
    if failed:
        worst = max(failed, key=lambda check: check.kind.status)
        names = ", ".join(check.name for check in failed)
        raise worst.kind(f"{len(failed)} of {len(checks)} checks failed: {names}", hint=worst.hint, result=result)
    return result


def runs(context: Context, site: Site, board: Board) -> bool:
    """Whether an emulated board of this machine is switched on."""
    return emulator_of(board, context.state, site.allowed_signers()).running() is not None


def plan(context: Context, board: str = "") -> dict[str, Any]:
    name = context.settings.board(board or None).name
    return {"stages": [], "steps": [f"look at this machine and at {name}; nothing is changed"]}


def show(result: dict[str, Any]) -> None:
    for check in result["checks"]:
        line = f"{check['status']:<8} {check['name']}: {check['found']}"
        if check["status"] != "passed":
            line += f" (expected: {check['expected']})" + (f"; {check['hint']}" if check["hint"] else "")
        print(line)
