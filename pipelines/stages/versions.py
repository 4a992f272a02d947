"""Versions of the tools that stages depend on, asked once and remembered while the program itself is unchanged.

A plan must answer in a second and a half: starting every compiler to ask its version would take that alone.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from pipelines.base.command import run_tool
from pipelines.base.deadline import Deadline
from pipelines.base.errors import TritforgeError
from pipelines.base.files import read_json, write_json

ASK_S = 60.0
LONGEST = 300  # characters; licence texts follow the version in some programs


def stamp_of(file: str) -> list[object]:
    """What changes when a file is changed or replaced."""
    status = os.stat(file)
    return [status.st_size, status.st_mtime_ns, status.st_ino]


class Versions:
    """``{program: version}`` with a memory at ``path``; the memory is a cache and may be deleted."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known: dict[str, list[object]] | None = None

    def of(self, program: str, *arguments: str) -> str:
        """What ``program --version`` (or with other ``arguments``) prints; ``missing`` when there is no such program.

        ``missing`` goes into a key like any version: the stage then fails by itself, with its own words.
        """
        found = shutil.which(program)
        if found is None:
            return "missing"
        file = os.path.realpath(found)

        def ask() -> str:
            result = run_tool([found, *(arguments or ("--version",))], deadline=Deadline.after(ASK_S), check=False)
            return " ".join((result.stdout or result.stderr).split())[:LONGEST]

        return self.remembered(file, stamp_of(file), ask)

    def remembered(self, name: str, stamp: Sequence[object], ask: Callable[[], str]) -> str:
        """What was answered under ``name`` when ``stamp`` was the same, else what ``ask`` answers now; ``unknown``, and
        not remembered, when it cannot."""
        known = self._load()
        entry = known.get(name)
        if isinstance(entry, list) and entry[:-1] == list(stamp):
            return str(entry[-1])
        try:
            version = ask()
        except TritforgeError:
            version = ""
        if not version:
            return "unknown"
        known[name] = [*stamp, version]
        write_json(self.path, known)
        return version

    def forget(self, name: str) -> None:
        """What was remembered under ``name`` turned out to be wrong."""
        known = self._load()
        if known.pop(name, None) is not None:
            write_json(self.path, known)

    def _load(self) -> dict[str, list[object]]:
        if self._known is None:
            try:
                loaded = read_json(self.path)
                self._known = loaded if isinstance(loaded, dict) else {}
            except (OSError, ValueError):
                self._known = {}
        return self._known


def package(name: str) -> str:
    """The version of a Python package of this environment."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "missing"
