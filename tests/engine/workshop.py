"""A small build in a folder of its own, for tests of the engine: two sources, a sum of each, and a join of both.

Run as a program it builds, slowly and in many small writes, so that a test can kill it anywhere.
"""

from __future__ import annotations

import hashlib
import sys
import time
from pathlib import Path

from pipelines.base.console import Console
from pipelines.base.errors import TritforgeError
from pipelines.base.files import HashCache
from pipelines.engine import graph
from pipelines.engine.stage import Build, Stage
from pipelines.engine.store import Store

PIECES = 12


def store_in(folder: Path) -> Store:
    state = folder / ".tritforge"
    return Store(state, HashCache(state / "hashes.json"))


def stages_in(folder: Path, *, pause_s: float = 0.0, deadline_s: float = 60.0) -> list[Stage]:
    """``left`` and ``right`` expand a source into pieces; ``join`` stands on both."""

    def expand(name: str) -> Stage:
        source = folder / f"{name}.txt"

        def build(job: Build) -> None:
            text = source.read_text()
            (job.out / "pieces").mkdir()
            for i in range(PIECES):
                time.sleep(pause_s)
                with (job.out / "pieces" / f"{i:02}").open("w") as stream:
                    for line in range(20):
                        stream.write(f"{text} {i} {line}\n")
                        stream.flush()

        return Stage(
            f"expand-{name}", build, files={f"{name}.txt": source}, tools={"expander": "1.0"}, toolchain="test"
        )

    left, right = expand("left"), expand("right")

    def join(job: Build) -> None:
        digest = hashlib.sha256()
        for name in ("expand-left", "expand-right"):
            for i in range(PIECES):
                time.sleep(pause_s / 4)
                digest.update((job.upstream[name].folder / "pieces" / f"{i:02}").read_bytes())
        (job.out / "sum").write_text(digest.hexdigest())

    return [left, right, Stage("join", join, upstream=(left, right), values={"join": {"order": "left first"}})]


def expected_sum(folder: Path) -> str:
    """What ``join`` must come to, worked out without the engine."""
    digest = hashlib.sha256()
    for name in ("left", "right"):
        text = (folder / f"{name}.txt").read_text()
        for i in range(PIECES):
            digest.update("".join(f"{text} {i} {line}\n" for line in range(20)).encode())
    return digest.hexdigest()


def build(folder: Path, pause_s: float = 0.0) -> list[graph.Outcome]:
    return graph.run(stages_in(folder, pause_s=pause_s), store_in(folder), Console(quiet=True), root=folder)


if __name__ == "__main__":
    try:
        outcomes = build(Path(sys.argv[1]), float(sys.argv[2]))
        graph.raise_worst(outcomes)
    except TritforgeError as error:
        sys.exit(error.status)
    print(*(f"{outcome.name}={'cached' if outcome.cached else 'built'}" for outcome in outcomes))
