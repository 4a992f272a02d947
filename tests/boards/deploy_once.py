"""A deploy as a process of its own, for tests that end it: ``deploy_once.py SPEC PHASE ACTION``.

SPEC is a pickle of (board, address, release folder, known hosts). At PHASE the process does ACTION: ``kill`` ends
itself as ``kill -9`` does, ``wait`` stays in that phase until it is ended, ``none`` does nothing.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time
from pathlib import Path

from pipelines.base.errors import TritforgeError
from pipelines.boards.deploy import deploy
from pipelines.boards.release import LocalRelease


def main(spec: str, at: str, action: str) -> int:
    board, address, folder, known_hosts = pickle.loads(Path(spec).read_bytes())

    def on_phase(phase: str) -> None:
        print(phase, flush=True)
        if phase == at and action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if phase == at and action == "wait":
            time.sleep(60)

    try:
        deploy(board, address, LocalRelease.read(folder), known_hosts, on_phase=on_phase)
    except TritforgeError as error:
        print(type(error).__name__, error.message, flush=True)
        return error.status
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
