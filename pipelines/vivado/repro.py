"""Two builds of the same thing, compared: what has to be equal is, and what differs is named.

The ``.bit`` header has the date, the ``.hwh`` a TIMESTAMP, the ``.xsa`` is a zip with dates; none of these count. When
the bits differ, the logs of the implementation runs tell where it began: each phase logs a checksum.
"""

from __future__ import annotations

import re
import zipfile
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from pipelines.base.errors import ToolFailed
from pipelines.base.files import read_json
from pipelines.vivado import bitfile, handoff
from pipelines.vivado.parsers import phases
from pipelines.vivado.settings import PROJECT

# Text of an .xsa that says when or where it was made, not what it is.
_DATES = re.compile(
    rb'(?:TIMESTAMP|Date|Time|generatedOn|creationTime)"?\s*[=:]\s*"[^"]*"'
    rb"|\b\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d\S*",
    re.I,
)


@dataclass(frozen=True)
class Compared:
    """One artefact of both builds; ``first_difference`` says where they part, empty when they don't."""

    name: str
    identical: bool
    first_difference: str = ""

    def json(self) -> dict[str, object]:
        return {"name": self.name, "identical": self.identical, "first_difference": self.first_difference or None}


def compare(one: Path, other: Path) -> list[Compared]:
    """Compares two output folders of ``build``."""
    return [
        _bit(one, other),
        _bytes("tritforge.bin", one, other),
        _hwh(one, other),
        _xsa(one, other),
        _description(one, other),
    ]


def first_differing_phase(one: str, other: str) -> str:
    """The first phase of two logs whose checksum differs: ``route_design: Initial Routing (1f0c9a3b, 77de01c2)``.

    Empty when no phase differs.
    """
    for a, b in zip_longest(phases.parse(one), phases.parse(other)):
        if a is None or b is None:
            present = a or b
            return f"{present} is in only one of the logs"
        if (a.step, a.name) != (b.step, b.name):
            return f"{a} in one log where the other has {b}"
        if a.checksum != b.checksum:
            return f"{a} ({a.checksum}, {b.checksum})"
    return ""


def _read(folder: Path, name: str) -> bytes:
    try:
        return (folder / name).read_bytes()
    except OSError as error:
        raise ToolFailed(f"cannot compare {folder}: {error}") from None


def _bit(one: Path, other: Path) -> Compared:
    name = f"{PROJECT}.bit"
    a, b = (bitfile.parse(_read(folder, name)) for folder in (one, other))
    if a.payload == b.payload and (a.part, a.design) == (b.part, b.design):
        return Compared(name, True)
    logs = [_read(folder, "logs/impl_1.log").decode("utf-8", "replace") for folder in (one, other)]
    phase = first_differing_phase(*logs)
    if phase:
        return Compared(name, False, f"implementation phase {phase}")
    if (a.part, a.design) != (b.part, b.design):
        return Compared(name, False, f"header: {a.design} for {a.part}, {b.design} for {b.part}")
    return Compared(name, False, f"payload byte {_first_byte(a.payload, b.payload)}; all logged phases are equal")


def _first_byte(a: bytes, b: bytes) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _bytes(name: str, one: Path, other: Path) -> Compared:
    a, b = _read(one, name), _read(other, name)
    return Compared(name, a == b, "" if a == b else f"byte {_first_byte(a, b)}")


def _hwh(one: Path, other: Path) -> Compared:
    name = f"{PROJECT}.hwh"
    a, b = (handoff.without_timestamp(_read(folder, name)).decode("utf-8", "replace") for folder in (one, other))
    return Compared(name, a == b, _first_line(a, b))


def _first_line(a: str, b: str) -> str:
    for number, (x, y) in enumerate(zip_longest(a.splitlines(), b.splitlines(), fillvalue="(ends)"), 1):
        if x != y:
            return f"line {number}: {x.strip()[:80]} / {y.strip()[:80]}"
    return ""


def _xsa(one: Path, other: Path) -> Compared:
    """Member by member: names, then contents without dates; a bitstream inside by its payload."""
    name = f"{PROJECT}.xsa"
    try:
        with zipfile.ZipFile(one / name) as a, zipfile.ZipFile(other / name) as b:
            names = [sorted(archive.namelist()) for archive in (a, b)]
            if names[0] != names[1]:
                only = sorted(set(names[0]) ^ set(names[1]))
                return Compared(name, False, f"members in only one of them: {', '.join(only)}")
            for member in names[0]:
                contents = [_undated(member, archive.read(member)) for archive in (a, b)]
                if contents[0] != contents[1]:
                    return Compared(name, False, f"member {member}")
    except (OSError, zipfile.BadZipFile) as error:
        raise ToolFailed(f"cannot compare {name}: {error}") from None
    return Compared(name, True)


def _undated(member: str, data: bytes) -> bytes:
    if member.endswith(".bit"):
        return bitfile.parse(data).payload
    if member.endswith(".hwh"):
        return handoff.without_timestamp(data)
    return _DATES.sub(b"", data)


def _description(one: Path, other: Path) -> Compared:
    a, b = read_json(one / "bitstream.json"), read_json(other / "bitstream.json")
    differing = [key for key in sorted({*a, *b}) if a.get(key) != b.get(key)]
    return Compared("bitstream.json", not differing, f"{', '.join(differing)}" if differing else "")
