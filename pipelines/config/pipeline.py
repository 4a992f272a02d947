"""The nightly pipeline (``config/pipelines/nightly.yaml``): its stages, what they need, what counts as a regression."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from pipelines.base.names import nearest, unknown
from pipelines.config.board import Name
from pipelines.config.validation import Strict

TaskName = Literal[
    "build-bitstream", "build-runtime", "convert-weights", "release", "deploy", "generate", "verify", "evaluate",
    "simulate", "benchmark", "repro", "doctor", "report",
]  # fmt: skip


TAKES: dict[str, tuple[str, ...]] = {
    "build-bitstream": ("board", "sweep", "development"),
    "build-runtime": ("board",),
    "convert-weights": ("model",),
    "release": ("board", "model"),
    "deploy": ("board", "model"),
    "generate": (
        "board", "prompt", "tokens", "temperature", "top-k", "top-p", "repetition-penalty", "seed",
    ),
    "verify": ("board", "model", "against", "full", "steps"),
    "evaluate": ("model", "tokens"),
    "simulate": ("board", "model", "context", "waves"),
    "benchmark": ("board", "model", "push"),
    "repro": ("board", "model", "part"),
    "doctor": ("board",),
    "report": ("out",),
}  # fmt: skip
"""The flags of each task; a test holds this against the tasks themselves."""

CHOSEN = ("board", "model")
"""Flags that the night gives itself."""


class PipelineStage(Strict):
    """One task of the night. ``needs`` must have passed; ``after`` must only have ended, with whatever result."""

    name: Name
    task: TaskName
    needs: list[Name] = []
    after: list[Name] = []
    options: dict[str, str | int | float | bool] = {}
    deadline_minutes: Annotated[float, Field(gt=0, le=1440)] = 30
    optional: bool = False  # its failure is reported and does not fail the night

    @field_validator("options")
    @classmethod
    def _flags(cls, value: dict[str, object], info: ValidationInfo) -> dict[str, object]:
        task = info.data.get("task")  # not there when it is wrong itself
        allowed = [flag for flag in TAKES.get(str(task), value) if flag not in CHOSEN]
        for name in value:
            if name not in allowed:
                near = nearest(name, allowed)
                question = f" did you mean '{near}'?" if near else ""
                raise ValueError(
                    f"task '{task}' does not take '{name}';{question} allowed are: {', '.join(allowed) or 'none'}"
                )
        return value


class Regression(Strict):
    """When a figure counts as worse: against the median of the last comparable runs."""

    runs: Annotated[int, Field(ge=3, le=365)] = 14
    default_percent: Annotated[float, Field(gt=0, le=100)] = 5
    percent: dict[str, Annotated[float, Field(gt=0, le=100)]] = {}


class Webhook(Strict):
    """Where a summary is posted; off unless the named variable is set."""

    url_env: Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]*$")]
    on: Literal["failure", "always"] = "failure"


class Pipeline(Strict):
    """A pipeline: stages in the order they are shown; those that don't need each other run at once."""

    name: Name
    prompts: Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1)]
    tokens: Annotated[int, Field(ge=1, le=2048)] = 32
    jobs: Annotated[int, Field(ge=1, le=16)] = 2  # stages at once
    # A board is asked again when its last answer is older than this, also if nothing was built anew in between; until
    # then an interrupted night goes on where it stood.
    fresh_hours: Annotated[float, Field(gt=0, le=720)] = 12
    stages: Annotated[list[PipelineStage], Field(min_length=1)]
    regression: Regression = Regression()
    keep_releases: Annotated[int, Field(ge=1, le=365)] = 7  # on this machine, and what they are made of
    webhook: Webhook | None = None

    @model_validator(mode="after")
    def _graph(self) -> Pipeline:
        names = [stage.name for stage in self.stages]
        for i, stage in enumerate(self.stages):
            if stage.name in names[:i]:
                raise ValueError(f"stage '{stage.name}' stands there twice")
            for other in (*stage.needs, *stage.after):
                if other == stage.name:
                    raise ValueError(f"stage '{stage.name}' needs itself")
                if other not in names:
                    raise ValueError(f"stage '{stage.name}' needs '{other}': {unknown('stage', other, names)}")
                if other not in names[:i]:
                    raise ValueError(f"stage '{stage.name}' needs '{other}', which comes later; put it first")
        return self
