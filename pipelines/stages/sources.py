"""Which files of the repository go into a stage."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pipelines.base.errors import ConfigError


def sources(root: Path, *patterns: str) -> dict[str, Path]:
    """Files by glob patterns relative to ``root``, as ``{relative path: path}``; a pattern must match something.

    Byte code and editors' leftovers are never sources.
    """
    found: dict[str, Path] = {}
    for pattern in patterns:
        matches = [path for path in sorted(root.glob(pattern)) if path.is_file() and not _leftover(path)]
        if not matches:
            raise ConfigError(f"no file matches {pattern} in {root}: this checkout is not complete")
        found.update(relative(root, matches))
    return found


def relative(root: Path, paths: Iterable[Path]) -> dict[str, Path]:
    return {path.relative_to(root).as_posix(): path for path in paths}


def _leftover(path: Path) -> bool:
    return "__pycache__" in path.parts or path.suffix == ".pyc" or path.name.startswith(".") or path.name.endswith("~")
