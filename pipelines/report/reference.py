"""The figures of the earlier work (``reference.yaml``), checked when they are read."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field

from pipelines.config.validation import Strict

FILE = Path(__file__).with_name("reference.yaml")


class Shape(Strict):
    layers: int
    hidden: int
    heads: int
    head_dim: int
    ffn: int
    vocab: int


class Row(Strict):
    """A line of the reference's table: T positions, milliseconds of each part."""

    t: int
    matrices: float
    attention: float
    cpu: float
    total: float
    tok_per_s: float


class Reference(Strict):
    model: Shape
    clock_mhz: float
    ddr_gb_per_s: float
    ddr_peak_gb_per_s: float
    port_gb_per_s: float
    packed_mib: float
    kv_bytes_a_position: int
    matrix_groups: int
    table: list[Row] = Field(min_length=5)
    forecast_ms: float
    rest_ms: float
    second_run_ms: float
    cpu_ms: dict[str, float]
    attention_alone: dict[str, float]
    stream_percent_of_port: float
    lut_percent: float
    attention_multipliers: int
    perplexity: dict[str, float]

    @property
    def packed_bytes(self) -> float:
        return self.packed_mib * (1 << 20)

    def row(self, t: int) -> Row:
        return next(row for row in self.table if row.t == t)


@cache
def reference() -> Reference:
    values: Any = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return Reference.model_validate(values)
