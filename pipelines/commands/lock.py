"""The one lock that keeps two nightlies, or a nightly and a clean, from meeting on this machine."""

from __future__ import annotations

from pathlib import Path

from pipelines.commands.context import Context


def nightly_lock(context: Context) -> Path:
    return context.state / "locks" / "nightly.lock"
