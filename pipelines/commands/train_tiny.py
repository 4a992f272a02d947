"""``train-tiny``: trains the shipped model again, from Debian's package of the texts to a checkpoint."""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path
from typing import Any

from pipelines.base.command import run_tool
from pipelines.base.deadline import Deadline
from pipelines.base.errors import ToolFailed, ToolMissing, UsageError
from pipelines.commands.context import Context
from pipelines.model.tiny import corpus

FETCH_S = 300.0
TORCH_HINT = "pip install torch==2.13.0 in this environment (CPU is enough: under an hour on two cores)"


def run(context: Context, steps: int = 0, out: str = "") -> dict[str, Any]:
    """Keys: ``out``, ``steps``, ``tokens``, ``perplexity`` (of the held-out chapters), ``watched``.

    ``steps`` 0 is the shipped model's number. A run that was interrupted goes on in the same ``out``. The fp32 twin of
    the same steps is trained behind it, into ``out``/twin. Raises ToolMissing without torch.
    """
    if steps < 0:
        raise UsageError(f"steps is {steps}; it must be positive, or 0 for the shipped model's")
    if importlib.util.find_spec("torch") is None:
        raise ToolMissing("training needs torch, which is not installed", hint=TORCH_HINT)
    from pipelines.model.tiny import train
    from pipelines.model.tiny.recipe import Settings

    folder = Path(out) if out else context.state / "train-tiny"
    text = corpus.read(_database(context, folder))
    settings = Settings(threads=2) if not steps else Settings(threads=2, steps=steps)
    with context.console.activity("train-tiny") as activity:
        result = train.make(
            settings, text, folder, lambda point: activity.update(point["step"], settings.steps, "steps")
        )
    return {"out": str(folder), "steps": settings.steps, **result}


def plan(context: Context, steps: int = 0, out: str = "") -> dict[str, Any]:
    return {
        "stages": [],
        "steps": [f"fetch {corpus.PACKAGE}", "train the tokenizer", "train tiny", "train its fp32 twin"],
    }


def show(result: dict[str, Any]) -> None:
    print(f"trained on {result['tokens']:,} tokens; held-out perplexity {result['perplexity']:.2f}: {result['out']}")


def _database(context: Context, folder: Path) -> Path:
    """The texts: of the installed package, or fetched through apt and unpacked beside the run (no root needed)."""
    installed = Path("/") / corpus.DATABASE
    if installed.is_file():
        return installed
    kept = folder / "package" / corpus.DATABASE
    if not kept.is_file():
        deadline, log = Deadline.after(FETCH_S), context.log("train-tiny")
        with tempfile.TemporaryDirectory(prefix="tritforge-corpus-") as download:
            run_tool(["apt-get", "download", corpus.PACKAGE], deadline=deadline, cwd=Path(download), log=log)
            found = sorted(Path(download).glob("*.deb"))
            if not found:
                raise ToolFailed(f"apt-get downloaded no package {corpus.PACKAGE}", log=log)
            target = folder / "package"
            target.mkdir(parents=True, exist_ok=True)
            run_tool(["dpkg-deb", "-x", found[0], target], deadline=deadline, log=log)
    return kept
