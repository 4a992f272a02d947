"""``build-bitstream``: the bitstream for a board."""

from __future__ import annotations

from typing import Any

from pipelines.base.errors import UsageError
from pipelines.commands import builds
from pipelines.commands.context import Context
from pipelines.engine import graph
from pipelines.engine.stage import Stage


def run(context: Context, board: str = "", sweep: int = 0, development: bool = False) -> dict[str, Any]:
    """Keys: ``stages``, ``bitstream`` (folder), ``digest``, ``toolchain``. Raises GateError or ToolFailed."""
    stage = _stage(context, board, sweep, development)
    outcomes = builds.make(context, [stage])
    artefact = graph.artefact_of(outcomes, stage.name)
    return {
        "stages": [outcome.json() for outcome in outcomes],
        "bitstream": str(artefact.folder),
        "digest": artefact.digest,
        "toolchain": artefact.toolchain,
    }


def plan(context: Context, board: str = "", sweep: int = 0, development: bool = False) -> dict[str, Any]:
    return builds.plan(context, [_stage(context, board, sweep, development)])


def show(result: dict[str, Any]) -> None:
    builds.show(result["stages"])
    if "bitstream" in result:
        print(f"bitstream ({result['toolchain']}): {result['bitstream']}")


def _stage(context: Context, board: str, sweep: int, development: bool) -> Stage:
    chosen = context.settings.board(board or None)
    if sweep < 0:
        raise UsageError(f"--sweep {sweep}: 0 for none, or how many strategies")
    if chosen.emulated and (sweep or development):
        raise UsageError(f"--sweep and --development are for Vivado; board '{chosen.name}' is emulated")
    return builds.bitstream(context, chosen, sweep=sweep, development=development)
