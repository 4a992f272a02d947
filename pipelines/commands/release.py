"""``release``: bitstream, runtime, weights, tokenizer and the board's program under one signed manifest."""

from __future__ import annotations

from typing import Any

from pipelines.base.files import read_json
from pipelines.commands import builds
from pipelines.commands.context import Context
from pipelines.stages.release import MANIFEST


def run(context: Context, board: str = "", model: str = "") -> dict[str, Any]:
    """Keys: ``stages``, ``release``, ``manifest``, ``parts``: list of {name, sha256, bytes}, ``signed_by``."""
    made, outcomes = builds.made_release(context, board, model)
    manifest = made.artefact.folder / MANIFEST
    predicate = read_json(manifest)["predicate"]
    return {
        "stages": [outcome.json() for outcome in outcomes],
        "release": made.id,
        "manifest": str(manifest),
        "parts": predicate["parts"],
        "signed_by": predicate["signed_by"],
    }


def plan(context: Context, board: str = "", model: str = "") -> dict[str, Any]:
    return builds.plan(context, [builds.release(context, board, model)])


def show(result: dict[str, Any]) -> None:
    builds.show(result["stages"])
    if "release" in result:
        total = sum(part["bytes"] for part in result["parts"])
        print(
            f"release {result['release'][:16]}: {len(result['parts'])} parts, {total / 2**20:.2f} MiB,"
            f" signed by {result['signed_by']}"
        )
        print(f"manifest: {result['manifest']}")
