"""How fast files go to a board, beside what OpenSSH's scp reaches with the same file over the same network, in turn.

Both sides are timed from a connection that stands to the last byte on the board; ours also hashes every byte there.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pipelines.base.command import run_tool
from pipelines.base.deadline import Deadline
from pipelines.base.errors import ConfigError
from pipelines.base.files import sha256_file
from pipelines.boards.access import Address
from pipelines.boards.connection import Connection, host_label, known_key
from pipelines.boards.session import exclusive

FILE_BYTES = 148_127_744  # 141.27 MiB: the packed full-size model
PAIRS = 5
BLOCK_BYTES = 1 << 20
SCP_S = 1200.0


@dataclass(frozen=True)
class Pair:
    """Seconds for the same file, one after the other; ``scp_first`` says in which order."""

    ours_s: float
    scp_s: float
    scp_first: bool


def against_scp(
    address: Address,
    root: str,
    known_hosts: Path,
    scratch: Path,
    *,
    lease_s: int,
    size: int = FILE_BYTES,
    pairs: int = PAIRS,
    say: Callable[[str], None] = lambda _: None,
) -> list[Pair]:
    """Pushes random bytes ``pairs`` times by each way, the order changing, and removes them from the board again.

    ``scratch`` is an empty folder of this machine. Raises what a deploy raises, and ToolFailed for scp.
    """
    key = address.host_key or known_key(known_hosts, address)
    if key is None:
        raise ConfigError(f"the host key of {address.board} is not known", hint="./inv boards --accept")
    (scratch / "hosts").write_text(f"{host_label(address)} {key}\n", encoding="utf-8")
    file = scratch / "push"
    found = []
    for number in range(pairs):
        with file.open("wb") as stream:  # new bytes each time: what is on the board already would not be sent
            for start in range(0, size, BLOCK_BYTES):
                stream.write(os.urandom(min(BLOCK_BYTES, size - start)))
        scp_first = number % 2 == 1
        taken = {}
        for way in ("scp", "ours") if scp_first else ("ours", "scp"):
            say(f"push {number + 1} of {pairs}: {way}")
            taken[way] = (_scp if way == "scp" else _ours)(address, root, known_hosts, scratch, file, lease_s)
        found.append(Pair(taken["ours"], taken["scp"], scp_first))
    return found


def _ours(address: Address, root: str, known_hosts: Path, scratch: Path, file: Path, lease_s: int) -> float:
    digest = sha256_file(file)
    deadline = Deadline.after(SCP_S)
    with contextlib.closing(Connection(address, known_hosts, deadline)) as connection:
        with exclusive(connection, root, "benchmark", lease_s, deadline) as session:
            started = time.monotonic()
            session.upload(digest, file, 0, deadline, lambda _: None)
            took = time.monotonic() - started
            connection.run(["rm", "-f", f"{root}/objects/{digest}"], deadline)
    return took


def _scp(address: Address, root: str, known_hosts: Path, scratch: Path, file: Path, lease_s: int) -> float:
    deadline = Deadline.after(SCP_S)
    who = f"{address.user}@{address.host}"
    options = [
        "-F", "none", "-o", "BatchMode=yes", "-o", f"UserKnownHostsFile={scratch / 'hosts'}",
        "-o", "StrictHostKeyChecking=yes", "-o", f"ControlPath={scratch / 'link'}",
        *(["-i", str(address.key_file)] if address.key_file else []),
    ]  # fmt: skip
    port = str(address.port)
    # A connection that stands, as ours does when its clock starts.
    run_tool(["ssh", *options, "-o", "ControlMaster=yes", "-f", "-N", "-p", port, who], deadline=deadline)
    target = f"{root}/staging/push.part"
    try:
        started = time.monotonic()
        run_tool(["scp", "-q", *options, "-P", port, file, f"{who}:{target}"], deadline=deadline)
        took = time.monotonic() - started
        run_tool(["ssh", *options, "-p", port, who, f"rm -f {target}"], deadline=deadline)
    finally:
        run_tool(["ssh", *options, "-O", "exit", "-p", port, who], deadline=deadline, check=False)
    return took
