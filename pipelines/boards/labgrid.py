"""A place of a labgrid farm: acquired, asked for its network address, given back.

labgrid remembers who acquired a place, as ``host/user``, until that name releases it; it notices no dead process. So
this program acquires under a name of its own, one a checkout (``alice.tritforge-1f2e3d``), and a lock of the kernel
says whether a process of this checkout still uses the place. A place that stands under our name while the lock is free
was left by a process that was killed, and is taken over. Whoever else has it, this user at a prompt included, keeps it.
"""

from __future__ import annotations

import ast
import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.base.command import find_tool, run_tool
from pipelines.base.deadline import Deadline
from pipelines.base.errors import BoardBusy, BoardOffline, BoardUnfit, ToolFailed, ToolTimeout, TritforgeError
from pipelines.base.files import sha256_bytes
from pipelines.base.lock import held
from pipelines.base.user import user

CLIENT = "labgrid-client"
CLIENT_S = 60.0

_HOLDER = re.compile(r"^  acquired: (?P<holder>\S+)$", re.MULTILINE)
# "Acquired resource 'NetworkService' (farm/emu1/NetworkService/NetworkService):" and the indented dict under it
_RESOURCE = re.compile(
    r"^(?:Acquired|Matching) resource '[^']*' \([^/]+/[^/]+/NetworkService/[^)]*\):\n(?P<facts>(?:  .*\n?)+)",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Place:
    """One place of one farm. ``coordinator`` is ``host:port``; ``folder`` holds the locks of this checkout's places."""

    coordinator: str
    name: str
    folder: Path

    @property
    def user(self) -> str:
        """Under whose name this checkout acquires; labgrid puts the machine's name before it."""
        base = os.environ.get("LG_USERNAME") or user()
        return f"{base}.tritforge-{sha256_bytes(str(self.folder.resolve()).encode())[:6]}"

    @contextlib.contextmanager
    def acquired(self) -> Iterator[tuple[str, int]]:
        """Holds the place for the body; yields host and port of its NetworkService.

        Raises BoardBusy when somebody else holds it, BoardOffline when coordinator, place or exporter is not there,
        BoardUnfit when nothing of the place says where the board answers.
        """
        key = sha256_bytes(f"{self.coordinator} {self.name}".encode())[:16]  # two boards' YAML may name one place
        with held(self.folder / f"{key}.lock", f"use the labgrid place '{self.name}'"):
            self._acquire()
            try:
                yield address(self._client("show"), self.name)
            finally:
                # Given back also when the body failed; a failure here must not hide the body's. What is left acquired
                # is taken over by the next command.
                with contextlib.suppress(TritforgeError):
                    self._client("release")

    def holder(self) -> str | None:
        """Who has it (``host/user``), or None; changes nothing. Raises BoardOffline."""
        found = _HOLDER.search(self._client("show"))
        return found["holder"] if found and found["holder"] != "None" else None

    def _acquire(self) -> None:
        try:
            self._client("acquire")
        except BoardBusy:
            if not (self.holder() or "").endswith(f"/{self.user}"):
                raise

    def _client(self, *arguments: str) -> str:
        client = find_tool(CLIENT, hint="pip install labgrid, as docs/boards.md says, and put its programs on the PATH")
        try:
            result = run_tool(
                [client, "-x", self.coordinator, "-p", self.name, *arguments],
                deadline=Deadline.after(CLIENT_S), env={"LG_USERNAME": self.user}, check=False,
            )  # fmt: skip
        except ToolTimeout:
            raise _silent(self.coordinator) from None
        if result.status == 0:
            return result.stdout
        raise failure(result.stdout + result.stderr, self)


def _silent(coordinator: str) -> BoardOffline:
    return BoardOffline(
        f"the labgrid coordinator at {coordinator} does not answer",
        hint="is it running, and is 'coordinator' in the board's YAML right?",
    )


def failure(said: str, place: Place) -> TritforgeError:
    """The error behind what labgrid-client printed when it failed."""
    lines = [line.partition("Error: ")[2] or line for line in said.splitlines() if line.strip()]
    reason = lines[-1].strip() if lines else "no message"
    where = f"labgrid at {place.coordinator}"
    if "already acquired" in said:
        return BoardBusy(
            f"{where}: {reason}",
            hint=f"wait until it is released; 'labgrid-client -x {place.coordinator} who' lists who has what",
        )
    if "Could not connect to coordinator" in said or "coordinator is unavailable" in said:
        return _silent(place.coordinator)
    if "matches nothing" in said:
        return BoardOffline(
            f"{where} has no place '{place.name}'",
            hint=f"'labgrid-client -x {place.coordinator} places' lists those it has",
        )
    if "no matching remote resource" in said:
        return BoardOffline(
            f"{where}: nobody exports what the place '{place.name}' is made of: {reason}",
            hint="is the exporter of that board running? 'labgrid-client resources' lists what is there",
        )
    return ToolFailed(f"{CLIENT} failed for the place '{place.name}': {reason}")


def address(shown: str, place: str) -> tuple[str, int]:
    """Host and port of the NetworkService in what ``labgrid-client show`` printed of an acquired place.

    Raises BoardUnfit when there is none, or when it is reached through a proxy only.
    """
    found = _RESOURCE.search(shown)
    if found is None:
        raise BoardUnfit(
            f"the labgrid place '{place}' has no NetworkService, so nothing says where the board answers",
            hint="export one with the board's address and port, and match it: "
            f"labgrid-client -p {place} add-match 'EXPORTER/GROUP/NetworkService'",
        )
    try:
        facts: Any = ast.literal_eval(found["facts"].strip())
        parameters = dict(facts["params"])
        extra = dict(parameters.get("extra") or {})
        where = str(parameters["address"]), int(parameters.get("port") or 22)
    except (ValueError, SyntaxError, KeyError, TypeError) as error:
        raise BoardUnfit(
            f"the NetworkService of the labgrid place '{place}' does not say where the board answers: {error}",
            hint="its exporter gives an address, and a port unless it is 22; tested is labgrid 26.0.1",
        ) from None
    if extra.get("proxy_required"):
        raise BoardUnfit(
            f"the labgrid place '{place}' is reached through the proxy {extra.get('proxy')} only",
            hint="run this on a machine in the farm's network",
        )
    return where
