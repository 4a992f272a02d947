"""The packed image of a model, through ``pipelines/model/convert.py``."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pipelines.base.errors import CheckpointError, ConfigError
from pipelines.config.model import CheckpointSource, HubSource, ModelConfig, RandomSource
from pipelines.engine.stage import Build, Stage
from pipelines.stages.sources import sources
from pipelines.stages.versions import package
from pipelines.stages.workshop import Workshop

TOKENIZER = "tokenizer.json"
HUB = "hub"
"""Folder in the state folder where checkpoints of the Hugging Face hub are kept."""
CONVERT_S = 3600.0
FETCH_S = 6 * 3600.0  # 3 GB over a slow line


def weights_stage(
    shop: Workshop, model: ModelConfig, max_transfer_bytes: int, environment: Mapping[str, str] | None = None
) -> Stage:
    """``weights.tfs``, ``params.tfp``, ``embedding.f16``, ``image.json`` and the tokenizer.

    ``max_transfer_bytes`` is that of the bitstream's DMAs. Raises CheckpointError when the checkpoint is not there. One
    of the hub is fetched when the stage runs: its commit decides what it is.
    """
    # The arithmetic of packing and calibration is part of what makes the image, so its code is an input.
    files = sources(shop.root, "pipelines/model/*.py", "pipelines/model/kernel.c", "pipelines/golden/*.py")
    values: dict[str, Any] = {
        "model": model.name,
        "context": model.context,
        "head_planes": model.head_planes,
        "max_transfer_bytes": max_transfer_bytes,
    }
    environment = os.environ if environment is None else environment
    if isinstance(model.source, CheckpointSource):
        folder = checkpoint_folder(shop, model, model.source, environment)
        files |= {f"checkpoint/{path.name}": path for path in checkpoint_files(folder)}
    elif isinstance(model.source, HubSource):
        values["hub"] = model.source.model_dump()
    else:
        values["random"] = {"seed": model.source.seed, "shape": model.shape.model_dump() if model.shape else None}
        files[f"checkpoint/{TOKENIZER}"] = shop.settings.path(model.source.tokenizer)
    text: Path | None = None
    if model.calibration is not None:
        text = shop.settings.path(model.calibration.text)
        if not text.is_file():
            raise ConfigError(f"{_place(shop, model, 'calibration', 'text')}: there is no file {text}")
        files["calibration text"] = text
        values["calibration_tokens"] = model.calibration.tokens

    def build(job: Build) -> dict[str, Any]:
        from pipelines.model import convert  # numpy is for who builds, not for who plans

        if isinstance(model.source, RandomSource):
            folder = random_checkpoint(job, model)
            tokenizer = shop.settings.path(model.source.tokenizer)
        else:
            folder = checkpoint_folder(shop, model, model.source, environment, job.activity.say)
            tokenizer = folder / TOKENIZER
        if model.shape is not None:
            check_shape(folder, model)
        result = convert.convert(
            folder,
            job.out,
            settings=convert.Settings(
                model=model.name,
                context=model.context,
                head_planes=model.head_planes,
                max_transfer_bytes=max_transfer_bytes,
                calibration_text=text,
                calibration_tokens=model.calibration.tokens if model.calibration is not None else model.context,
            ),
            deadline=job.deadline,
            log=job.log,
            progress=lambda done, total: job.activity.update(done, total, "bytes"),
        )
        shutil.copyfile(tokenizer, job.out / TOKENIZER)
        return {key: value for key, value in result.items() if key != "description"}

    return Stage(
        name=f"weights-{model.name}",
        build=build,
        files=files,
        values=values,
        tools={"numpy": package("numpy"), "tokenizers": package("tokenizers")},
        deadline_s=CONVERT_S + (FETCH_S if isinstance(model.source, HubSource) else 0),
        toolchain="tritforge",
    )


def checkpoint_folder(
    shop: Workshop,
    model: ModelConfig,
    source: CheckpointSource | HubSource,
    environment: Mapping[str, str],
    say: Callable[[str], None] = lambda _: None,
) -> Path:
    """Where a model's checkpoint lies; one of the hub is fetched when it is not here yet.

    Raises CheckpointError with what to set; TransferError when the hub fails, ToolMissing without its library.
    """
    if isinstance(source, HubSource):
        from pipelines.model import checkpoint

        return checkpoint.fetch(source.repository, source.revision, shop.state / HUB, say=say)
    if source.path_env is not None:
        named = environment.get(source.path_env)
        if not named:
            raise CheckpointError(
                f"model '{model.name}': the variable {source.path_env} is not set",
                hint="set it to the folder with config.json, model.safetensors and tokenizer.json",
            )
        folder = Path(named).expanduser()
    else:
        assert source.path is not None
        folder = shop.settings.path(source.path)
    if not folder.is_dir():
        place = source.path_env or _place(shop, model, "source", "path")
        raise CheckpointError(f"{place}: model '{model.name}': there is no folder {folder}")
    return folder


def _place(shop: Workshop, model: ModelConfig, *key: str) -> str:
    """Where a value of the model stands, for a message: file, line and column, or the flag that it came from."""
    return str(shop.settings.models[model.name].document.position(key))


def checkpoint_files(folder: Path) -> list[Path]:
    """The files of a checkpoint that decide the image. Raises CheckpointError when one is missing."""
    files = [folder / "config.json", folder / TOKENIZER]
    index = folder / "model.safetensors.index.json"
    tensors = sorted(folder.glob("*.safetensors"))
    if index.exists():
        files.append(index)
    if not tensors:
        raise CheckpointError(f"{folder} holds no .safetensors file")
    for path in files:
        if not path.is_file():
            raise CheckpointError(f"{folder} has no {path.name}")
    return files + tensors


def random_checkpoint(job: Build, model: ModelConfig) -> Path:
    """Writes the model's random checkpoint beside the output; it goes with the work folder."""
    from pipelines.model import random

    assert isinstance(model.source, RandomSource)
    assert model.shape is not None
    folder = job.out.parent / "checkpoint"
    folder.mkdir()
    shape = model.shape
    architecture = random.architecture(
        hidden=shape.hidden,
        ffn=shape.ffn,
        layers=shape.layers,
        heads=shape.heads,
        vocab=shape.vocab,
        max_positions=model.context,
    )
    job.activity.say(f"writing random weights for '{model.name}'")
    random.write(folder, architecture, model.source.seed, job.deadline)
    return folder


def check_shape(folder: Path, model: ModelConfig) -> None:
    """The checkpoint against the shape that the configuration promises (and that memory was planned with)."""
    from pipelines.model.checkpoint import Checkpoint

    found = Checkpoint.open(folder).architecture
    assert model.shape is not None
    for name, expected in model.shape.model_dump().items():
        if getattr(found, name) != expected:
            raise CheckpointError(
                f"model '{model.name}': {folder / 'config.json'} has {name} {getattr(found, name)},"
                f" config/models/{model.name}.yaml says {expected}"
            )
