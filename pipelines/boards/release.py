"""A finished release on this machine, as far as a board is concerned: parts, needs, and who signed it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.base.errors import FormatError
from pipelines.base.files import read_json, sha256_file

MANIFEST = "manifest.json"
SIGNATURE = "manifest.json.sig"


@dataclass(frozen=True)
class Part:
    name: str  # relative path inside the release
    sha256: str
    bytes: int


@dataclass(frozen=True)
class LocalRelease:
    """``folder`` holds ``manifest.json``, its signature and every part under its name."""

    folder: Path
    id: str  # SHA-256 of the manifest
    parts: tuple[Part, ...]
    predicate: dict[str, Any]

    @classmethod
    def read(cls, folder: Path) -> LocalRelease:
        """Raises FormatError when the manifest is not one of a release."""
        path = folder / MANIFEST
        try:
            manifest = read_json(path)
            predicate = dict(manifest["predicate"])
            sizes = {part["name"]: int(part["bytes"]) for part in predicate["parts"]}
            parts = tuple(
                Part(subject["name"], subject["digest"]["sha256"], sizes[subject["name"]])
                for subject in manifest["subject"]
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise FormatError(f"{path} is no manifest of a release: {error}", hint="./inv release") from None
        return cls(folder, sha256_file(path), parts, predicate)

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.parts)

    @property
    def manifest(self) -> str:
        # newline="": what is sent is what was signed, to the byte
        with (self.folder / MANIFEST).open(encoding="utf-8", newline="") as stream:
            return stream.read()

    @property
    def signature(self) -> str:
        path = self.folder / SIGNATURE
        # What is no text is no signature: the board says so.
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    @property
    def identity(self) -> str:
        return str(self.predicate.get("signed_by", ""))

    @property
    def contiguous_bytes(self) -> int:
        """What the circuits' buffers take of the board's CMA area."""
        return int((self.predicate.get("memory") or {}).get("contiguous_bytes") or 0)

    @property
    def board_kind(self) -> str:
        return str((self.predicate.get("board") or {}).get("kind", ""))

    @property
    def stand_in(self) -> bool:
        """Whether a stand-in tool made a part of it, or it was signed for a board that plays a real one in a test."""
        disguised = bool((self.predicate.get("board") or {}).get("stand_in"))
        return disguised or "stand-in" in (self.predicate.get("toolchains") or {}).values()
