"""``clean``: removes artefacts that no release needs, and releases beyond the newest few."""

from __future__ import annotations

from typing import Any

from pipelines.base.errors import UsageError
from pipelines.base.lock import held
from pipelines.commands.context import Context
from pipelines.commands.lock import nightly_lock
from pipelines.engine.store import Artefact


def run(context: Context, keep: int = -1) -> dict[str, Any]:
    """Keys: ``removed``: list of {name, digest, bytes}, ``kept_releases``, ``freed_bytes``."""
    with held(nightly_lock(context), "clean"):
        doomed, kept = _sort(context, keep)
        for artefact in doomed:
            context.store.remove(artefact)
        freed = context.store.sweep()
    return {
        "removed": [_entry(artefact) for artefact in doomed],
        "kept_releases": [artefact.digest for artefact in kept],
        "freed_bytes": freed,
    }


def plan(context: Context, keep: int = -1) -> dict[str, Any]:
    doomed, _ = _sort(context, keep)
    return {"stages": [], "steps": [f"remove {artefact.name} {artefact.digest[:12]}" for artefact in doomed]}


def show(result: dict[str, Any]) -> None:
    print(
        f"removed {len(result['removed'])} artefacts, kept {len(result['kept_releases'])} releases,"
        f" freed {result['freed_bytes'] / 2**20:.1f} MiB"
    )


def _sort(context: Context, keep: int) -> tuple[list[Artefact], list[Artefact]]:
    """(to be removed, releases to be kept). What a kept release was made of is kept with it."""
    if keep == -1:  # not said
        keep = context.settings.pipeline().keep_releases
    if keep < 1:
        raise UsageError(f"--keep {keep}: at least one release must stay")
    everything = sorted(
        context.store.artefacts(), key=lambda artefact: float(artefact.record.get("built_on", 0)), reverse=True
    )
    releases = [artefact for artefact in everything if artefact.name.startswith("release-")]
    # The newest, and what each kind of board stands at now, even where others have been built since (a source taken
    # back, a board that gets a release once a month).
    kept = [
        release
        for i, release in enumerate(releases)
        if i < keep or (context.store.latest(release.name) or {}).get("key") == release.key
    ]
    needed = {artefact.key for artefact in kept}
    digests = {
        value for artefact in kept for name, value in artefact.record["inputs"].items() if name.startswith("artefact ")
    }
    # What every stage stands at now is needed by the next release, even if none was made of it yet.
    current = {
        artefact.key
        for artefact in everything
        if not artefact.name.startswith("release-")
        and (context.store.latest(artefact.name) or {}).get("key") == artefact.key
    }
    doomed = [
        artefact
        for artefact in everything
        if artefact.key not in needed and artefact.digest not in digests and artefact.key not in current
    ]
    return doomed, kept


def _entry(artefact: Artefact) -> dict[str, Any]:
    return {"name": artefact.name, "digest": artefact.digest, "bytes": artefact.bytes}
