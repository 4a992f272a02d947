"""A copy of this checkout with boards of its own, and its tasks as a person types them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from pipelines.commands.repro import copy_checkout
from pipelines.config.settings import ROOT

SHARED = ("images", "store", "records", "latest", "hashes.json", "versions.json")
"""What a copy may take from this checkout: content-addressed, so that a change still makes something new of it."""
TASK_S = 2400.0


class Checkout:
    def __init__(self, root: Path) -> None:
        self.root = root
        copy_checkout(ROOT, root)
        (root / ".tritforge").mkdir(exist_ok=True)
        for name in SHARED:
            source, target = ROOT / ".tritforge" / name, root / ".tritforge" / name
            if source.is_dir():
                shutil.copytree(source, target, copy_function=_link)
            elif source.exists():
                shutil.copy2(source, target)

    def typed(self, *arguments: str, status: int | None = 0) -> dict[str, Any]:
        """A task's JSON; its exit status must be ``status``, unless that is None."""
        answer = self.root / "answer.json"
        answer.unlink(missing_ok=True)
        done = subprocess.run(
            [sys.executable, "tasks.py", *arguments, f"--json={answer}"], cwd=self.root, check=False, timeout=TASK_S,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        assert status is None or done.returncode == status, done.stdout
        return dict(json.loads(answer.read_text())) if answer.exists() else {}


def _link(source: str, target: str) -> None:
    """A second name for a file that nobody changes, or a copy on another file system."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
