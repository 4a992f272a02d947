"""A copy of this checkout for tests of the commands as people type them: boards, state and sources of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipelines.base.console import Console
from pipelines.boards.emulator import Emulator
from pipelines.commands import builds
from pipelines.commands.context import Context
from pipelines.commands.repro import copy_checkout

ROOT = Path(__file__).resolve().parents[1]
SHARED = ("images", "store", "records", "latest", "hashes.json", "versions.json", "benchmark")
"""What a copy may take from this checkout: content-addressed, so that a change still makes something new of it."""
LONGEST_S = 2400


def heed_signals() -> None:
    """As from a terminal: tests that run in the background inherit that these are ignored."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@dataclass(frozen=True)
class Copy:
    """A copied checkout and its commands. ``environment`` is added to what they get."""

    root: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def make(cls, root: Path, environment: Mapping[str, str] | None = None) -> Copy:
        """Copies the checkout to ``root``, with what its store has made."""
        warm()
        copy_checkout(ROOT, root)
        for name in SHARED:
            source = ROOT / ".tritforge" / name
            target = root / ".tritforge" / name
            target.parent.mkdir(exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, copy_function=_link)
            elif source.exists():
                shutil.copy2(source, target)
        return cls(root, environment or {})

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """A task as a process in a session of its own, both outputs in one pipe; its JSON goes to ``answer.json``."""
        (self.root / "answer.json").unlink(missing_ok=True)
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TRITFORGE_")}
        return subprocess.Popen(
            [sys.executable, "tasks.py", *arguments, f"--json={self.root / 'answer.json'}"],
            cwd=self.root, env={**inherited, **self.environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, start_new_session=True, preexec_fn=heed_signals,
        )  # fmt: skip

    def answer(self) -> dict[str, Any]:
        path = self.root / "answer.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def type_it(self, *arguments: str) -> tuple[int, dict[str, Any], str]:
        """Exit status, the JSON, and all that was said."""
        process = self.start(*arguments)
        said, _ = process.communicate(timeout=LONGEST_S)
        return process.returncode, self.answer(), said

    def typed(self, *arguments: str, status: int | None = 0) -> dict[str, Any]:
        """The JSON of a task whose exit status must be ``status``, unless that is None."""
        found, document, said = self.type_it(*arguments)
        assert status is None or found == status, said
        return document


def warm() -> None:
    """Makes in this checkout what every copy needs, once: of processes that ask at the same time one builds.

    On a machine where nothing was built yet, each copy would otherwise compile the circuits for itself.
    """
    context = Context(console=Console(quiet=True))
    builds.made_release(context, None, None)
    board = context.settings.board()
    assert board.emulator is not None
    Emulator(
        board.name, context.state / "boards" / board.name, context.state / "images", disk_gib=board.emulator.disk_gib
    ).image()


def _link(source: str, target: str) -> None:
    """A second name for a file that nobody changes, or a copy on another file system."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
