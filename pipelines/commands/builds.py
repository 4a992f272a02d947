"""The stages behind a board and a model, and how a task plans and runs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.base.errors import TritforgeError
from pipelines.commands.context import Context
from pipelines.config.board import Board
from pipelines.config.model import ModelConfig
from pipelines.engine import graph
from pipelines.engine.graph import Outcome
from pipelines.engine.signing import signer
from pipelines.engine.stage import Stage
from pipelines.engine.store import Artefact
from pipelines.stages.release import MANIFEST, release_stage
from pipelines.stages.runtime import runtime_stage
from pipelines.stages.verilator import verilator_stage
from pipelines.stages.vivado import vivado_stage
from pipelines.stages.weights import weights_stage


def bitstream(context: Context, board: Board, *, sweep: int = 0, development: bool = False) -> Stage:
    """The bitstream for a board, by the toolchain of its kind."""
    design = context.settings.bitstream_of(board)
    if board.emulated:
        return verilator_stage(context.workshop, design, context.hashes)
    return vivado_stage(context.workshop, design, context.hashes, sweep=sweep, development=development)


def runtime(context: Context) -> Stage:
    return runtime_stage(context.workshop)


def weights(context: Context, model: ModelConfig, board: Board) -> Stage:
    return weights_stage(context.workshop, model, context.settings.bitstream_of(board).dma.max_transfer_bytes)


def release(context: Context, board_name: str | None, model_name: str | None) -> Stage:
    """The release of a model for a board, with all that it stands on."""
    choice = context.settings.choose(board_name or None, model_name or None)
    return release_stage(
        context.workshop,
        choice,
        signer(context.settings, context.state, make=not context.plan),
        bitstream=bitstream(context, choice.board),
        runtime=runtime(context),
        weights=weights(context, choice.model, choice.board),
    )


@dataclass(frozen=True)
class Release:
    """A finished release on this machine. ``id`` is the SHA-256 of its manifest."""

    id: str
    artefact: Artefact

    @classmethod
    def of(cls, artefact: Artefact) -> Release:
        return cls(artefact.files[MANIFEST][0], artefact)


def made_release(context: Context, board_name: str | None, model_name: str | None) -> tuple[Release, list[Outcome]]:
    """The release, built as far as it is not cached."""
    stage = release(context, board_name, model_name)
    outcomes = make(context, [stage])
    return Release.of(graph.artefact_of(outcomes, stage.name)), outcomes


def make(context: Context, stages: Sequence[Stage]) -> list[Outcome]:
    """Builds stages and what they stand on. Raises the error of the one that failed worst."""
    outcomes = graph.run(stages, context.store, context.console, root=context.root)
    try:
        graph.raise_worst(outcomes)
    except TritforgeError as error:
        error.result = {"stages": [outcome.json() for outcome in outcomes], **error.result}
        raise
    return outcomes


def warning(outcomes: Sequence[Outcome]) -> str:
    """What conversion found against the model that was just made or looked up; empty when nothing."""
    for outcome in outcomes:
        if outcome.artefact is not None and (text := outcome.artefact.record.get("measured", {}).get("warning")):
            return str(text)
    return ""


def plan(context: Context, stages: Sequence[Stage], *steps: str) -> dict[str, Any]:
    """What ``--plan`` shows: the stages, then the steps that are never cached."""
    return {
        "stages": [outcome.json() for outcome in graph.plan(stages, context.store, check=True)],
        "steps": list(steps),
    }


def show(outcomes: Sequence[dict[str, Any]]) -> None:
    """One line a stage."""
    from pipelines.base.console import seconds

    for outcome in outcomes:
        if outcome["cached"]:
            print(f"{outcome['name']}: cached")
        elif outcome["status"] == "passed":
            print(f"{outcome['name']}: built in {seconds(outcome['elapsed_s'])}, because {outcome['reason']}")
        else:
            print(
                f"{outcome['name']}: {outcome['status']}"
                + (f", because {outcome['reason']}" if outcome["reason"] else "")
            )
