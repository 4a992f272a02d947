"""Which tritforge this is: its version and the commit it stands at."""

from __future__ import annotations

import tomllib

from pipelines.config.settings import ROOT
from pipelines.engine.provenance import commit_of


def version() -> str:
    with (ROOT / "pyproject.toml").open("rb") as stream:
        return str(tomllib.load(stream)["project"]["version"])


def text() -> str:
    """``tritforge 0.1.0 (commit 0b5ec3265e11, with local changes)``."""
    commit = commit_of(ROOT)
    if commit is None:
        return f"tritforge {version()}"
    return f"tritforge {version()} (commit {commit.name[:12]}{', with local changes' if commit.dirty else ''})"
