"""A build step as data: what goes in, what it stands on, and the function that makes it.

The key of a stage is the hash of its inputs' contents: files, values, tool versions, and the contents of the artefacts
it stands on. Nothing else can change what it makes, so an artefact under the same key need not be made again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipelines.base.console import Activity
from pipelines.base.deadline import Deadline
from pipelines.base.errors import ConfigError
from pipelines.base.files import HashCache, canonical_json, sha256_bytes
from pipelines.engine.store import Artefact

STAGE_FORMAT = 1
"""Part of every key: raise it when the same inputs would have to make something else."""

SHOWN_CHARACTERS = 60  # of a value in a reason; a tool's banner can be a page


@dataclass(frozen=True)
class Build:
    """What a builder is given: an empty folder to fill, what it stands on, how long, and where its log goes."""

    out: Path
    upstream: Mapping[str, Artefact]
    deadline: Deadline
    log: Path
    activity: Activity


@dataclass(frozen=True)
class Stage:
    """One build step. ``name`` tells it from all others of this checkout, such as ``bitstream-emu1``."""

    name: str
    # Fills ``Build.out``. What it returns was measured while building (times, memory): kept in the record and no part
    # of the artefact, which must be the same whenever it is made.
    build: Callable[[Build], Mapping[str, Any] | None] = field(compare=False)
    # Paths as they are shown and hashed (relative to the repository where they lie in it) to where they are.
    files: Mapping[str, Path] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)  # JSON values of the configuration
    tools: Mapping[str, str] = field(default_factory=dict)  # name to version
    upstream: tuple[Stage, ...] = ()
    deadline_s: float = 1800.0
    # Marks what it makes; ``stand-in`` can never be released for a real board. A builder that learns it only while it
    # runs writes it into the ``toolchain`` key of this file of its output.
    toolchain: str = ""
    toolchain_file: str = ""
    # Raises when what it stands on does not go together. Asked by a plan too, as soon as all of that is built.
    check: Callable[[Mapping[str, Artefact]], None] | None = field(default=None, compare=False)
    evidence_files: tuple[str, ...] = ()  # outputs whose JSON goes into the provenance, such as gates.json


Inputs = dict[str, str]
"""A stage's inputs, flat: ``file hw/rtl/x.sv``, ``value clock_mhz``, ``tool verilator``, ``artefact bitstream-emu1``,
each with what the key hashes of it. Two of these compared say why a stage runs again."""


def inputs_of(stage: Stage, hashes: HashCache, upstream: Mapping[str, str]) -> Inputs:
    """``upstream`` maps the name of each stage below to its artefact's digest."""
    inputs: Inputs = {"format": str(STAGE_FORMAT)}
    for name, path in stage.files.items():
        try:
            inputs[f"file {name}"] = hashes.sha256(path)
        except OSError as error:
            raise ConfigError(f"stage '{stage.name}' needs {name}: {error.strerror} ({path})") from None
    for key, value in flat(stage.values).items():
        inputs[f"value {key}"] = value
    for name, version in stage.tools.items():
        inputs[f"tool {name}"] = version
    for below in stage.upstream:
        inputs[f"artefact {below.name}"] = upstream[below.name]
    return inputs


def key_of(name: str, inputs: Inputs) -> str:
    return sha256_bytes(canonical_json({"stage": name, "inputs": inputs}))


def difference(before: Inputs, now: Inputs) -> str:
    """Why the key changed, in words: the first few inputs that differ, what they were and what they are."""
    changes = []
    for name in sorted({*before, *now}):
        if before.get(name) == now.get(name):
            continue
        kind, _, what = name.partition(" ")
        label = {"file": what, "artefact": f"'{what}'"}.get(kind, f"{kind} {what}".strip())
        if name not in before:
            changes.append(f"{label} is new")
        elif name not in now:
            changes.append(f"{label} is gone")
        else:
            changes.append(f"{label} changed from {_short(kind, before[name])} to {_short(kind, now[name])}")
    shown, left = changes[:3], len(changes) - 3
    return "; ".join(shown) + (f" and {left} more input{'s' if left > 1 else ''}" if left > 0 else "")


def _short(kind: str, text: str) -> str:
    if kind in ("file", "artefact"):
        return text[:12]
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 1]}…"


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested values as ``a.b.c`` to their canonical JSON, so that a difference names the one value."""
    found: dict[str, str] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            found.update(flat(value, f"{name}."))
        else:
            found[name] = canonical_json(value).decode()
    return found
