"""``convert-weights``: a checkpoint into its calibrated, packed image."""

from __future__ import annotations

from typing import Any

from pipelines.commands import builds
from pipelines.commands.context import Context
from pipelines.engine import graph
from pipelines.engine.stage import Stage

COMPARABLE_S = 0.1  # a shorter reading says nothing beside the fixed costs of packing


def run(context: Context, model: str = "") -> dict[str, Any]:
    """Keys: ``stages``, ``image`` (folder), ``packed_bytes``, ``peak_rss_bytes``, ``read_s``, ``pack_s``,
    ``calibrate_s``, ``kernel``, ``perplexity`` and ``warning`` of the run that built it."""
    stage = _stage(context, model)
    outcomes = builds.make(context, [stage])
    artefact = graph.artefact_of(outcomes, stage.name)
    return {
        "stages": [outcome.json() for outcome in outcomes],
        "image": str(artefact.folder),
        "packed_bytes": artefact.files["weights.tfs"][1],
        **artefact.record.get("measured", {}),
    }


def plan(context: Context, model: str = "") -> dict[str, Any]:
    return builds.plan(context, [_stage(context, model)])


def show(result: dict[str, Any]) -> None:
    builds.show(result["stages"])
    if "packed_bytes" in result:
        print(f"packed: {result['packed_bytes'] / 2**20:.2f} MiB in {result['image']}")
    if "read_s" in result:
        read_s, pack_s = result["read_s"], result["pack_s"]
        ratio = f" ({pack_s / read_s:.1f} times as long)" if read_s >= COMPARABLE_S else ""
        print(
            f"when it was built: reading {read_s:.2f} s, packing {pack_s:.2f} s{ratio},"
            f" calibration {result['calibrate_s']:.1f} s, peak memory {result['peak_rss_bytes'] / 2**20:.0f} MiB,"
            f" loops in {result['kernel']} [model]"
        )
    if result.get("warning"):
        print(f"warning: {result['warning']}")


def _stage(context: Context, model: str) -> Stage:
    choice = context.settings.choose(None, model or None)
    return builds.weights(context, choice.model, choice.board)
