"""Two folders that must be the same, file by file: where they first part."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pipelines.base.files import CHUNK_BYTES, files_below


@dataclass(frozen=True)
class Compared:
    """One file of both builds; ``first_difference`` is empty when they are identical."""

    name: str
    first_difference: str = ""

    @property
    def identical(self) -> bool:
        return not self.first_difference

    def json(self) -> dict[str, object]:
        return {"name": self.name, "identical": self.identical, "first_difference": self.first_difference or None}


def compare_folders(one: Path, other: Path) -> list[Compared]:
    """Every file that either folder has."""
    names = sorted({path.relative_to(folder).as_posix() for folder in (one, other) for path in files_below(folder)})
    return [Compared(name, compare_files(one / name, other / name)) for name in names]


def compare_files(one: Path, other: Path) -> str:
    """``byte 0x1f40 is 0x12 in one, 0x13 in the other``; empty when the files are the same."""
    for path, where in ((one, "first"), (other, "second")):
        if not path.exists():
            return f"it is not in the {where} build"
    offset = 0
    with one.open("rb") as a, other.open("rb") as b:
        while True:
            left, right = a.read(CHUNK_BYTES), b.read(CHUNK_BYTES)
            if left != right:
                return _first_byte(left, right, offset)
            if not left:
                return ""
            offset += len(left)


def _first_byte(left: bytes, right: bytes, offset: int) -> str:
    for i, (x, y) in enumerate(zip(left, right, strict=False)):
        if x != y:
            return f"byte {offset + i:#x} is {x:#04x} in the first build, {y:#04x} in the second"
    longer = "first" if len(left) > len(right) else "second"
    return f"the {longer} build's file goes on after byte {offset + min(len(left), len(right)):#x}"
