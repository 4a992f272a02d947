"""A copy of this checkout that may take what was built here, for tests that type commands and change files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from pipelines.commands.repro import copy_checkout

ROOT = Path(__file__).resolve().parents[1]
SHARED = ("images", "store", "records", "latest", "hashes.json", "versions.json", "benchmark")
"""State that a copy may take: content-addressed, so that a change still makes something new of it."""


RELEASE_S = 2400.0


def copy_with_store(root: Path) -> None:
    """Makes ``root`` a checkout like this one, with its store and without its nights, boards and keys.

    What is not built yet is built here first: several tests that take copies then wait for one build, not for each.
    """
    subprocess.run(
        [sys.executable, "tasks.py", "release"], cwd=ROOT, check=True, timeout=RELEASE_S, stdin=subprocess.DEVNULL,
        env={name: value for name, value in os.environ.items() if not name.startswith("TRITFORGE_")},
    )  # fmt: skip
    copy_checkout(ROOT, root)
    for name in SHARED:
        source, target = ROOT / ".tritforge" / name, root / ".tritforge" / name
        target.parent.mkdir(exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, copy_function=_link)
        elif source.exists():
            shutil.copy2(source, target)


def _link(source: str, target: str) -> None:
    """A second name for a file that nobody changes, or a copy on another file system."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
