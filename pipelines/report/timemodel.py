"""A model of a token's time on the board. It is a model: its figures carry that tag and stand beside its parameters.

    matrices(T)  = packed bytes / wall + groups · hand-over of a group
    attention(T) = K and V bytes a position · T / wall + layers · hand-over of a layer
    total(T)     = matrices + attention + CPU

The wall is the memory's read rate. A hand-over is all that a transfer costs beyond its bytes: descriptors, cache
maintenance, waiting, the engine's own start and end. The parts do not overlap, as in the reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pipelines.report.reference import Reference, Row

POSITIONS = (64, 128, 256, 384, 512)
CALIBRATED_AT = 64


@dataclass(frozen=True)
class Parameters:
    """What the model is given. Times in ms, rates in GB/s (10⁹ bytes)."""

    packed_bytes: float
    kv_bytes_a_position: float
    wall_gb_per_s: float
    groups: int
    layers: int
    group_ms: float
    layer_ms: float
    cpu_ms: float

    def json(self) -> dict[str, float]:
        return asdict(self)


@dataclass(frozen=True)
class Time:
    """A token at T positions, in ms by part."""

    t: int
    matrices: float
    attention: float
    cpu: float

    @property
    def total(self) -> float:
        return self.matrices + self.attention + self.cpu

    @property
    def tok_per_s(self) -> float:
        return 1000 / self.total

    def json(self) -> dict[str, Any]:
        parts = {key: round(value, 2) for key, value in asdict(self).items()}
        return {**parts, "total": round(self.total, 2), "tok_per_s": round(self.tok_per_s, 3)}


def predict(p: Parameters, positions: Sequence[int] = POSITIONS) -> list[Time]:
    """A token's time at each T."""
    per_ms = p.wall_gb_per_s * 1e6  # bytes a millisecond
    return [
        Time(
            t,
            p.packed_bytes / per_ms + p.groups * p.group_ms,
            p.kv_bytes_a_position * t / per_ms + p.layers * p.layer_ms,
            p.cpu_ms,
        )
        for t in positions
    ]


def reference_parameters(reference: Reference) -> Parameters:
    """Bytes and wall as stated; hand-overs and CPU are read off *one* row, T = 64, and the others are predicted."""
    row = reference.row(CALIBRATED_AT)
    per_ms = reference.ddr_gb_per_s * 1e6
    layers = reference.model.layers
    return Parameters(
        packed_bytes=reference.packed_bytes,
        kv_bytes_a_position=reference.kv_bytes_a_position,
        wall_gb_per_s=reference.ddr_gb_per_s,
        groups=reference.matrix_groups,
        layers=layers,
        group_ms=(row.matrices - reference.packed_bytes / per_ms) / reference.matrix_groups,
        layer_ms=(row.attention - reference.kv_bytes_a_position * row.t / per_ms) / layers,
        cpu_ms=row.cpu,
    )


def errors_percent(times: Sequence[Time], rows: Sequence[Row]) -> dict[int, float]:
    """Error of the total at each T, in percent of the reference's."""
    wanted = {row.t: row.total for row in rows}
    return {time.t: 100 * (time.total - wanted[time.t]) / wanted[time.t] for time in times}


def floor_ms(p: Parameters, t: int) -> float:
    """What the bytes alone take at the wall: no order of work is faster."""
    return (p.packed_bytes + p.kv_bytes_a_position * t) / (p.wall_gb_per_s * 1e6)
