"""``inspect``: what lies where in a packed image or a release's manifest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pipelines.base.errors import FormatError, UsageError
from pipelines.commands.context import Context
from pipelines.model import inspection
from pipelines.model.image import DESCRIPTION, PACKED_FILES


def run(context: Context, file: str, offset: str = "") -> dict[str, Any]:
    """Keys: ``file``, and ``regions`` or (with an offset) ``offset`` and ``lines``; for JSON files ``contents``.

    ``file`` may be the folder of an image: then everything is checked and its description shown.
    Raises UsageError, or FormatError for a file that is not sound.
    """
    path = Path(file)
    if path.name in PACKED_FILES:
        return _packed(path, _offset(offset) if offset else None)
    if offset:
        raise UsageError(f"--offset explains bytes of {', '.join(PACKED_FILES)}, not of {path.name}")
    if path.is_dir() or path.name == DESCRIPTION:
        image = inspection.open_for(path)
        image.check()
        return {"file": file, "contents": dict(image.description), "checked": True}
    return {"file": file, "contents": _json(path)}


def plan(context: Context, file: str, offset: str = "") -> dict[str, Any]:
    return {"stages": [], "steps": [f"read {file}"]}


def show(result: dict[str, Any]) -> None:
    for line in result.get("lines", []):
        print(line)
    for region in result.get("regions", []):
        print(f"{region['offset']:>12,}  {region['bytes']:>12,}  {region['what']}")
    if "contents" in result:
        print(json.dumps(result["contents"], indent=2, ensure_ascii=False))
    if result.get("checked"):
        print("every byte checked: headers, codes, gaps, tables and checksums are sound")


def _packed(path: Path, offset: int | None) -> dict[str, Any]:
    image = inspection.open_for(path)
    if offset is None:
        return {"file": str(path), "regions": [region.json() for region in inspection.regions(image, path.name)]}
    return {"file": str(path), "offset": offset, "lines": inspection.explain(image, path.name, offset)}


def _offset(text: str) -> int:
    try:
        value = int(text, 0)
    except ValueError:
        raise UsageError(f"offset '{text}' is not a number", hint="decimal, or hexadecimal as 0x1000") from None
    if value < 0:
        raise UsageError(f"offset {value} is negative")
    return value


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path}: neither a packed file nor JSON: {error}") from error
