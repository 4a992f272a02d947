"""Packed images whose numbers are not the checkpoint's, but which are consistent in themselves: every checksum fits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.base.files import read_json
from pipelines.golden import ternary
from pipelines.golden.formats import GROUP_MATRICES, GROUPS
from pipelines.model.image import Image, ImageWriter, LayerParams


@dataclass
class Numbers:
    """What a change may touch: of each layer ``codes`` and ``scales`` by matrix, norms, K and V scales; the head."""

    layers: list[dict[str, Any]]
    head_codes: Any
    head_scales: Any
    final_norm: Any


def repack(source: Path, target: Path, change: Callable[[Numbers], None]) -> None:
    """Writes the image in ``source`` to the empty folder ``target``, changed."""
    image = Image.open(source)
    model = image.golden()
    numbers = Numbers(
        layers=[
            {
                "codes": {name: codes.copy() for name, codes in layer.codes.items()},
                "scales": dict(layer.scales),
                **{
                    name: getattr(layer, name).copy()
                    for name in ("input_norm", "post_norm", "inner_attn_norm", "ffn_norm", "k_scale", "v_scale")
                },
            }
            for layer in model.layers
        ],
        head_codes=model.head_codes.copy(),
        head_scales=model.head_scales.copy(),
        final_norm=model.final_norm.copy(),
    )
    change(numbers)
    description = read_json(source / "image.json")
    kept = {name: description[name] for name in ("model", "checkpoint", "scales", "calibration") if name in description}
    with ImageWriter(target, model.shape, description["max_transfer_bytes"]) as writer:
        for number, layer in enumerate(numbers.layers):
            for group, names in GROUP_MATRICES.items():
                writer.group(number, group, [ternary.pack_rows(layer["codes"][name]) for name in names])
        writer.embedding(model.embedding)
        writer.group(model.shape.layers, GROUPS[-1], [ternary.pack_rows(numbers.head_codes)])
        writer.finish(
            [
                LayerParams(
                    layer["input_norm"], layer["post_norm"], layer["inner_attn_norm"], layer["ffn_norm"],
                    {name: np.float32(scale) for name, scale in layer["scales"].items()},
                    layer["k_scale"], layer["v_scale"],
                )
                for layer in numbers.layers
            ],
            numbers.final_norm, numbers.head_scales, kept,
        )  # fmt: skip
