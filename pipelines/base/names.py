"""The nearest valid name to a mistyped one."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that a mistyped one most likely meant, or None when nothing is near."""
    import difflib

    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return found[0] if found else None


MOST_LISTED = 20
"""More names than this are no help in a message."""


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """``board 'emu2' does not exist; did you mean 'emu1'? there are: emu1, zynq1``."""
    names = sorted(known)
    near = nearest(name, names)
    question = f" did you mean '{near}'?" if near else ""
    listed = f"there are: {', '.join(names) or 'none'}" if len(names) <= MOST_LISTED else f"there are {len(names)}"
    return f"{what} '{name}' does not exist;{question} {listed}"
