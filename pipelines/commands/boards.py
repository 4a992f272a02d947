"""``boards``: which there are, how they stand, who holds them; stops an emulated one, accepts a host key."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pipelines.base.deadline import Deadline
from pipelines.base.errors import TritforgeError, UsageError
from pipelines.boards.access import emulator_of, place_of
from pipelines.boards.connection import accept_key, fingerprint, shown_key
from pipelines.boards.site import Site
from pipelines.commands.context import Context

ACCEPT_S = 20.0


def run(
    context: Context, stop: str = "", start: str = "", fresh: bool = False, accept: str = "", host_key: str = ""
) -> dict[str, Any]:
    """Key ``boards``: list of {name, kind, reachable, current, lease, …}; or what was stopped, started, accepted.

    ``accept`` shows the key that a board answers with, and files it once it is given as ``host_key`` ("yes" takes it as
    it is).
    """
    _check(stop, start, fresh, accept, host_key)
    site = Site(context.settings, context.state, context.console.say)
    if stop:
        board = context.settings.board(stop)
        stopped = emulator_of(board, context.state, site.allowed_signers()).stop()
        return {"stopped": stop if stopped else None, "board": stop}
    if start:
        board = context.settings.board(start)
        endpoint = emulator_of(board, context.state, site.allowed_signers()).start(fresh=fresh, say=context.console.say)
        return {"started": start, "port": endpoint.port, "key_file": str(endpoint.key_file)}
    if accept:
        return _accept(context, site, accept, host_key)
    names = sorted(context.settings.boards)
    with ThreadPoolExecutor(max_workers=8) as pool:
        return {"boards": list(pool.map(lambda name: look(context, site, name), names))}


def _check(stop: str, start: str, fresh: bool, accept: str, host_key: str) -> None:
    given = [flag for flag, value in (("--stop", stop), ("--start", start), ("--accept", accept)) if value]
    if len(given) > 1:
        raise UsageError(f"one at a time, not {' and '.join(given)}")
    if (fresh and not start) or (host_key and not accept):
        raise UsageError("--fresh goes with --start, --host-key with --accept")


def look(context: Context, site: Site, name: str) -> dict[str, Any]:
    """One board as it stands, without starting or changing anything."""
    board = context.settings.board(name)
    entry: dict[str, Any] = {
        "name": name, "kind": board.kind, "description": board.description, "groups": board.groups,
        "reachable": False, "current": None, "lease": None, "reason": "",
    }  # fmt: skip
    if board.labgrid is not None:
        # Looking must not acquire a place that somebody may want, so the board itself is not asked.
        entry["reason"] = f"labgrid place {board.labgrid.place} at {board.labgrid.coordinator}: "
        try:
            holder = place_of(board, context.state).holder()
            entry["reason"] += f"acquired by {holder}" if holder else "free"
        except TritforgeError as error:
            entry["reason"] += error.message
        return entry
    try:
        with site.session(board, start=False) as session:
            facts = session.request("facts")
    except TritforgeError as error:
        entry["reason"] = error.message
        return entry
    entry |= {
        "reachable": True, "current": facts["current"], "lease": facts["lease"], "releases": facts["releases"],
        "uptime_s": round(facts["uptime_s"], 1), "current_by_hand": facts["current_by_hand"],
    }  # fmt: skip
    return entry


def _accept(context: Context, site: Site, name: str, host_key: str) -> dict[str, Any]:
    board = context.settings.board(name)
    if board.emulator is not None:
        raise UsageError(f"{name} is emulated: its key is known from when it was made")
    if (board.ssh or board.labgrid).host_key:  # type: ignore[union-attr]  # the configuration gives exactly one way in
        raise UsageError(
            f"the key of {name} is pinned in its YAML", hint=f"change host_key in config/boards/{name}.yaml"
        )
    with contextlib.ExitStack() as stack:
        address = stack.enter_context(site.address(board))
        shown = shown_key(address, Deadline.after(ACCEPT_S))
    if not host_key:
        return {"board": name, "shown": shown, "fingerprint": fingerprint(shown), "accepted": False}
    if host_key not in ("yes", shown):
        raise UsageError(f"{name} shows another key: {shown}")
    accept_key(site.known_hosts, address, shown)
    return {"board": name, "shown": shown, "fingerprint": fingerprint(shown), "accepted": True}


def plan(
    context: Context, stop: str = "", start: str = "", fresh: bool = False, accept: str = "", host_key: str = ""
) -> dict[str, Any]:
    _check(stop, start, fresh, accept, host_key)
    step = "look at the boards"
    if name := stop or start or accept:
        board = context.settings.board(name).name
        step = f"stop {board}" if stop else f"start {board}" if start else f"ask {board} for its host key"
        step += " with an empty disk" if start and fresh else ", and accept it" if accept and host_key else ""
    return {"stages": [], "steps": [step]}


def show(result: dict[str, Any]) -> None:
    if "shown" in result:
        print(f"{result['board']} shows: {result['shown']}")
        print(f"fingerprint: {result['fingerprint']}")
        if not result["accepted"]:
            print(f"if that is its key: ./inv boards --accept {result['board']} --host-key '{result['shown']}'")
        return
    if "started" in result:
        print(f"{result['started']} answers on 127.0.0.1:{result['port']}")
        return
    if "stopped" in result:
        print(f"{result['board']} {'stopped' if result['stopped'] else 'was not running'}")
        return
    for entry in result["boards"]:
        lease = entry["lease"]
        held = f"held by {lease['owner']} ({lease['what']})" if lease else "free"
        state = f"release {(entry['current'] or 'none')[:16]}, {held}" if entry["reachable"] else entry["reason"]
        print(f"{entry['name']:<12} {entry['kind']:<10} {'up' if entry['reachable'] else 'off':<4} {state}")
