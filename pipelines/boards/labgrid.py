"""A place of a labgrid farm: acquired, asked for its network address, given back."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from pipelines.base.command import find_tool, run_tool
from pipelines.base.deadline import Deadline
from pipelines.base.errors import BoardBusy, BoardOffline, ToolFailed

CLIENT_S = 60.0


@contextlib.contextmanager
def acquired(coordinator: str, place: str) -> Iterator[tuple[str, int]]:
    """Holds the place for the body; yields host and port of its NetworkService.

    Raises BoardBusy when somebody else holds it, BoardOffline when coordinator or resource is not there.
    """
    client = find_tool("labgrid-client", hint="pip install labgrid (the farm's own client), on this machine")

    def run(*arguments: str) -> str:
        result = run_tool(
            [client, "-x", coordinator, "-p", place, *arguments], deadline=Deadline.after(CLIENT_S), check=False
        )
        output = result.stdout + result.stderr
        if result.status == 0:
            return output
        if "already acquired" in output:
            raise BoardBusy(f"the labgrid place '{place}' is acquired by somebody else: {output.strip()}")
        if "not found" in output.lower() or "no connection" in output.lower() or "connect" in output.lower():
            raise BoardOffline(
                f"labgrid has no usable place '{place}' at {coordinator}: {output.strip()}",
                hint="labgrid-client places lists what the coordinator knows",
            )
        raise ToolFailed(f"labgrid-client {arguments[0]} failed: {output.strip()}")

    run("acquire")
    try:
        yield _address(run("show"), place)
    finally:
        # Given back also when the body failed; a failure here must not hide the body's.
        with contextlib.suppress(ToolFailed, BoardOffline, BoardBusy):
            run("release")


def _address(shown: str, place: str) -> tuple[str, int]:
    """Host and port from ``labgrid-client show``: ``'params': {'address': '127.0.0.1', … 'port': 2222}``."""
    address = re.search(r"'address':\s*'([^']+)'", shown)
    port = re.search(r"'port':\s*(\d+)", shown)
    if address is None:
        raise BoardOffline(
            f"the labgrid place '{place}' has no NetworkService", hint="export one with the board's address"
        )
    return address.group(1), int(port.group(1)) if port else 22
