"""What a build leaves running: runs of Vivado are processes of their own, in sessions of their own.

They outlive the Vivado that launched them, when that is killed or gives up waiting for them, and hold their memory for
hours. They are known by their working folder, which lies in the attempt's and is nobody else's.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

GRACE_S = 5.0
POLL_S = 0.05


def end_processes_in(folder: Path) -> int:
    """Ends every process that works in ``folder`` or below, politely first; returns how many there were.

    Linux only: without ``/proc`` nothing is found, and nothing is done.
    """
    found = working_in(folder)
    for kind, patience in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, GRACE_S)):
        for pid in working_in(folder):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, kind)
        end = time.monotonic() + patience
        while working_in(folder) and time.monotonic() < end:
            time.sleep(POLL_S)
    return len(found)


def working_in(folder: Path) -> list[int]:
    """Process ids whose working folder is ``folder`` or below; never this process."""
    base = os.path.realpath(folder)
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # gone meanwhile, or somebody else's
            place = os.readlink(entry / "cwd")
            pid = int(entry.name)
            dead = (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
            if (place == base or place.startswith(base + os.sep)) and pid != os.getpid() and not dead:
                found.append(pid)
    return found
