"""``evaluate``: the perplexity table of a model."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines.base.deadline import Deadline
from pipelines.base.errors import ConfigError, UsageError
from pipelines.commands import builds
from pipelines.commands.context import Context
from pipelines.config.model import ModelConfig, RandomSource
from pipelines.engine import graph
from pipelines.engine.stage import Stage
from pipelines.model import evaluate
from pipelines.model.checkpoint import Checkpoint
from pipelines.model.image import Image
from pipelines.stages.weights import checkpoint_folder

DEADLINE_S = 7200.0
FLOAT_WINDOW = 512  # of a model that cannot be packed, which has no context of ours


def run(context: Context, model: str = "", tokens: int = 0) -> dict[str, Any]:
    """Keys: ``model``, ``rows``: list of {name, perplexity, low, high, tokens, …}, ``shortlist``, ``agreement``,
    ``saturations``, ``warning``.

    ``tokens`` cuts the text to that many, rounded down to whole windows; with fewer the intervals are wider.
    Raises UsageError for a model without meaning (random weights), ConfigError without an evaluation text.
    """
    if tokens < 0:
        raise UsageError(f"--tokens {tokens}: 0 for the whole text, or how many")
    config = context.settings.model(model or None)
    folder, text = _inputs(context, config)
    checkpoint = Checkpoint.open(folder)
    deadline = Deadline.after(DEADLINE_S)
    golden = None
    head_planes, window = config.head_planes, min(FLOAT_WINDOW, checkpoint.architecture.max_positions)
    if checkpoint.architecture.family == "bitnet":
        stage = _weights(context, model)
        artefact = graph.artefact_of(builds.make(context, [stage]), stage.name)
        golden = Image.open(artefact.folder).golden()
        window = golden.shape.context
    tokenizer = checkpoint.tokenizer()
    ids = evaluate.windows(tokenizer, text, window, checkpoint.architecture.bos)
    if evaluate.parameters(checkpoint.architecture) > evaluate.LARGE:
        ids = ids[: max(1, evaluate.LARGE_TOKENS // window)]
    if tokens:
        ids = ids[: max(1, tokens // window)]
    subject = evaluate.Subject(checkpoint, tokenizer, golden, ids, head_planes)
    with context.console.activity(f"evaluate {config.name}") as activity:
        table = evaluate.evaluate(
            subject, deadline=deadline, progress=lambda done, total: activity.update(done, total, "parts")
        )
    return {"model": config.name, **table}


def plan(context: Context, model: str = "", tokens: int = 0) -> dict[str, Any]:
    config = context.settings.model(model or None)
    _inputs(context, config)
    return builds.plan(context, [_weights(context, model)], f"perplexity table of {config.name}")


def show(result: dict[str, Any]) -> None:
    rows = result["rows"]
    width = max(len(row["name"]) for row in rows)
    print(f"{'':<{width}}  perplexity   95 % interval        against its base")
    for row in rows:
        interval = f"{row['low']:,.2f} to {row['high']:,.2f}"
        line = f"{row['name']:<{width}}  {row['perplexity']:>10,.2f}   {interval:<19}"
        if "ratio" in row:
            line += f"  x {row['ratio']:.4f} ({row['ratio_low']:.4f} to {row['ratio_high']:.4f})"
        if "reference" in row:
            line += f"  [reference {row['reference']:.2f}]"
        print(line.rstrip())
    print(f"{rows[0]['tokens']:,} tokens in {result['windows']} windows of {result['window']} [model]")
    for entry in result.get("agreement", []):
        equal = entry["steps"] - entry["differ"]
        print(
            f"greedy tokens, integer path against {entry['with']}: {equal} of {entry['steps']} equal;"
            f" {entry['differ_although_not_close']} differ with the best logits {entry['close_below']} or more apart"
            f" (widest {entry['widest_gap_that_differs']}; the gap of the two best deviates by"
            f" {entry['gap_deviation']})"
        )
    if "shortlist" in result:
        shares = [entry for entry in result["shortlist"] if "best_of" in entry]
        print(
            "the full head's best token among the K best of one ternary plane: "
            + ", ".join(f"{entry['share']:.1%} of {entry['best_of']}" for entry in shares)
            + f"; worst rank {result['shortlist'][-1]['worst_rank']}"
        )
    if result["warning"]:
        print(f"warning: {result['warning']}")


def _weights(context: Context, model: str) -> Stage:
    choice = context.settings.choose(None, model or None)
    return builds.weights(context, choice.model, choice.board)


def _inputs(context: Context, config: ModelConfig, environment: Mapping[str, str] | None = None) -> tuple[Path, str]:
    """The checkpoint's folder and the evaluation text."""
    if isinstance(config.source, RandomSource):
        raise UsageError(f"model '{config.name}' has random weights: there is nothing to evaluate")
    if config.evaluation_text is None:
        raise ConfigError(f"model '{config.name}' names no evaluation_text")
    folder = checkpoint_folder(
        context.workshop, config, config.source, os.environ if environment is None else environment
    )
    path = context.settings.path(config.evaluation_text)
    try:
        return folder, path.read_text(encoding="utf-8")
    except OSError as error:
        place = context.settings.models[config.name].document.position(("evaluation_text",))
        raise ConfigError(f"{place}: evaluation text {path}: {error.strerror or error}") from error
