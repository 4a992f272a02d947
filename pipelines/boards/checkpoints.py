"""Where the checkpoint of a model lies: as configured, or written from its seed and kept."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from pipelines.base.deadline import Deadline
from pipelines.base.errors import ConfigError
from pipelines.base.files import canonical_json, sha256_bytes
from pipelines.base.lock import held
from pipelines.config.model import ModelConfig, RandomSource
from pipelines.model import random
from pipelines.stages.weights import checkpoint_folder
from pipelines.stages.workshop import Workshop

WRITE_S = 1800.0


def folder_of(shop: Workshop, model: ModelConfig, cache: Path) -> Path:
    """The folder with config.json and the tensors. Random weights are written once to ``cache``."""
    if not isinstance(model.source, RandomSource):
        return checkpoint_folder(shop, model, model.source, os.environ)
    if model.shape is None:
        raise ConfigError(f"model '{model.name}' has random weights but no shape")
    values = {"seed": model.source.seed, "shape": model.shape.model_dump(), "context": model.context}
    target = cache / f"{model.name}-{sha256_bytes(canonical_json(values))[:12]}"
    with held(cache / "write.lock", f"write the checkpoint of {model.name}", deadline=Deadline.after(WRITE_S)):
        if not target.exists():
            partial = target.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            shape = model.shape
            architecture = random.architecture(
                hidden=shape.hidden, ffn=shape.ffn, layers=shape.layers, heads=shape.heads, vocab=shape.vocab,
                max_positions=model.context,
            )  # fmt: skip
            random.write(partial, architecture, model.source.seed, Deadline.after(WRITE_S))
            partial.rename(target)
    return target
