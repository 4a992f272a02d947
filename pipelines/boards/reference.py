"""What a board's results must be: the golden model, its integers made anew from the checkpoint.

Nothing of the packed image is used, not even its scales, so that a wrong byte of it is a mismatch. The weights are
rounded by the definition in ``golden/ternary.py``, not by the converter's loops; calibration runs again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.golden import float32, ternary
from pipelines.golden.float32 import F32, I8
from pipelines.golden.formats import MATRICES
from pipelines.golden.forward import Forward, GoldenLayer, GoldenModel
from pipelines.model import calibration, convert
from pipelines.model.checkpoint import EMBEDDING, FINAL_NORM, Checkpoint, matrix_tensor, norm_tensor
from pipelines.model.image import norm_as_stored

Key = tuple[int, str]
"""(layer, trace point); layer -1 outside the layers."""


def golden_from_checkpoint(folder: Path, settings: convert.Settings) -> GoldenModel:
    """The golden model of a checkpoint. Raises CheckpointError."""
    checkpoint = Checkpoint.open(folder)
    shape = convert.shape_of(checkpoint, settings)
    a = checkpoint.architecture
    if settings.calibration_text is None:
        count = min(convert.RANDOM_TOKENS, settings.calibration_tokens, settings.context)
        tokens = calibration.from_seed(0, a.vocab, a.bos, count)
    else:
        tokens = calibration.from_text(checkpoint.tokenizer(), settings.calibration_text, settings.calibration_tokens)
    embedding = checkpoint.read(EMBEDDING).astype(np.float16)
    calibrator = calibration.Calibrator(shape, tokens, embedding[tokens.ids].astype(np.float32))
    layers = []
    for number in range(shape.layers):
        codes: dict[str, I8] = {}
        scales: dict[str, np.float32] = {}
        for name in MATRICES:
            codes[name], scales[name] = ternary.ternarise(checkpoint.read(matrix_tensor(number, name)))
        norms = {name: _norm(checkpoint, norm_tensor(number, name)) for name in a.norms()}
        unknown = np.ones(shape.heads, dtype=np.float32)
        layer = GoldenLayer(
            codes, scales, norms["input"], norms["post"], norms["inner_attn"], norms["ffn"], unknown, unknown
        )
        k_scale, v_scale = calibrator.layer(layer)
        layers.append(
            GoldenLayer(
                codes, scales, norms["input"], norms["post"], norms["inner_attn"], norms["ffn"], k_scale, v_scale
            )
        )
    left = checkpoint.read(checkpoint.head_name).astype(np.float32)
    planes, head_scales = [], []
    for _ in range(shape.head_planes):
        plane, scale = ternary.ternarise(left)
        left = left - plane.astype(np.float32) * scale
        planes.append(plane)
        head_scales.append(scale)
    return GoldenModel(
        shape=shape,
        embedding=embedding,
        layers=tuple(layers),
        final_norm=_norm(checkpoint, FINAL_NORM),
        head_codes=np.concatenate(planes),
        head_scales=np.array(head_scales, dtype=np.float32),
    )


def _norm(checkpoint: Checkpoint, tensor: str) -> F32:
    """Norm weights as the format defines them: what is below 2**-30 is zero."""
    return norm_as_stored(checkpoint.read(tensor).astype(np.float32), tensor)


@dataclass
class Expected:
    """What one sequence of tokens must give. Arrays of the steps in ``data``; digests of the steps in ``traced``."""

    tokens: list[int]
    logits: list[str] = field(default_factory=list)  # SHA-256 of float32[vocab], by step
    following: list[int] = field(default_factory=list)  # greedy token after each step
    rows: F32 | None = None  # float32[steps, vocab]
    data: dict[int, dict[Key, npt.NDArray[Any]]] = field(default_factory=dict)
    traced: dict[int, str] = field(default_factory=dict)


def expected(
    model: GoldenModel, tokens: Sequence[int], *, data: Sequence[int] = (), traced: Sequence[int] = ()
) -> Expected:
    """Runs the golden model over ``tokens`` at once."""
    result = Expected(list(tokens))
    kept: dict[int, dict[Key, npt.NDArray[Any]]] = {step: {} for step in {*data, *traced}}

    def trace(point: str, layer: int, value: npt.NDArray[np.generic]) -> None:
        for step in kept:
            kept[step][(layer, point)] = np.array(value[step]).reshape(-1)

    forward = Forward(model, trace=trace if kept else None)
    rows = forward(list(tokens))
    result.rows = rows
    for row in rows:
        result.logits.append(hashlib.sha256(np.ascontiguousarray(row, dtype="<f4").tobytes()).hexdigest())
        result.following.append(float32.argmax(row))
    result.data = {step: kept[step] for step in data}
    result.traced = {step: digest(kept[step]) for step in traced}
    return result


def digest(points: dict[Key, npt.NDArray[Any]]) -> str:
    """SHA-256 over all trace points of a step, in the order of (layer, point), as ``board_rt/jobs.py`` makes it."""
    total = hashlib.sha256()
    for key in sorted(points):
        total.update(np.ascontiguousarray(points[key]).tobytes())
    return total.hexdigest()
