"""A language model (``config/models/<name>.yaml``): where its weights come from and how they are packed."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from pipelines.config.board import Name, PathText
from pipelines.config.validation import Strict
from pipelines.golden import formats


class Shape(Strict):
    """Sizes of a BitNet transformer, named as in SYSTEM terms: ``hidden`` = heads · 96."""

    layers: Annotated[int, Field(ge=1, le=256)]
    hidden: Annotated[int, Field(ge=formats.HEAD_DIM, le=formats.MAX_ROW_LENGTH)]
    heads: Annotated[int, Field(ge=1, le=64)]
    ffn: Annotated[int, Field(ge=8, le=formats.MAX_ROW_LENGTH)]
    vocab: Annotated[int, Field(ge=256, le=1 << 20)]

    @model_validator(mode="after")
    def _fits_the_circuits(self) -> Shape:
        if self.hidden != self.heads * formats.HEAD_DIM:
            raise ValueError(
                f"hidden is {self.hidden}; the attention circuit needs heads x {formats.HEAD_DIM}"
                f" = {self.heads * formats.HEAD_DIM}"
            )
        return self


class CheckpointSource(Strict):
    """A trained checkpoint in the Hugging Face layout: config.json, safetensors, tokenizer.json."""

    kind: Literal["checkpoint"]
    path: PathText | None = None
    path_env: Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]*$")] | None = None  # a variable that holds the path

    @model_validator(mode="after")
    def _one_place(self) -> CheckpointSource:
        if (self.path is None) == (self.path_env is None):
            raise ValueError("give exactly one of path and path_env")
        return self


class HubSource(Strict):
    """The same files from the Hugging Face hub, at one commit: a branch could be another model tomorrow."""

    kind: Literal["hub"]
    repository: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*$")]
    revision: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]  # a full commit hash


class RandomSource(Strict):
    """Random ternary weights from a seed: sizes, addresses and times of a real model, and no meaning."""

    kind: Literal["random"]
    seed: Annotated[int, Field(ge=0, le=(1 << 63) - 1)]
    tokenizer: PathText  # of a model that fits in the vocabulary, so that a text can be put in


class Calibration(Strict):
    """Text from which the fixed scales of K and V are taken; never the evaluation text."""

    text: PathText
    tokens: Annotated[int, Field(ge=1, le=formats.MAX_CONTEXT)] = 144


class ModelConfig(Strict):
    """One model."""

    name: Name
    description: str = ""
    source: Annotated[CheckpointSource | HubSource | RandomSource, Field(discriminator="kind")]
    shape: Shape | None = None  # what the checkpoint must have; required for random weights
    context: Annotated[int, Field(ge=1, le=formats.MAX_CONTEXT)]  # largest T
    # Ternary planes of the head: 1 fits everywhere; 2 or 3 cost memory and win quality.
    head_planes: Annotated[int, Field(ge=1, le=4)] = 1
    calibration: Calibration | None = None
    evaluation_text: PathText | None = None

    @model_validator(mode="after")
    def _complete(self) -> ModelConfig:
        if isinstance(self.source, RandomSource) and self.shape is None:
            raise ValueError("random weights need a 'shape'")
        if self.calibration is not None and self.calibration.text == self.evaluation_text:
            raise ValueError("calibration and evaluation are the same text; scales fitted to a text flatter it")
        if self.calibration is not None and self.calibration.tokens > self.context:
            raise ValueError(f"calibration.tokens is {self.calibration.tokens}, but the context ends at {self.context}")
        return self
