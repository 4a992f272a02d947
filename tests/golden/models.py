"""Small random models for tests: quantised, of any shape of the family."""

from __future__ import annotations

import numpy as np

from pipelines.golden.forward import GoldenLayer, GoldenModel, ModelShape
from pipelines.golden.ternary import ternarise

TINY_SHAPE = ModelShape(hidden=192, ffn=512, layers=2, heads=2, head_dim=96, vocab=320, context=64)


def random_model(shape: ModelShape = TINY_SHAPE, seed: int = 0) -> GoldenModel:
    """A model whose weights, norms and scales come from ``seed`` alone; its words mean nothing."""
    rng = np.random.default_rng(seed)

    def exact(low: float, high: float, size: int | tuple[int, ...]) -> np.ndarray:
        """Evenly spread float32 from integers: no transcendental function, so the same bits on every machine."""
        return (low + (high - low) * (rng.integers(0, 1 << 12, size) / (1 << 12))).astype(np.float32)

    def matrix(rows: int, length: int) -> tuple[np.ndarray, np.float32]:
        return ternarise(exact(-0.125, 0.125, (rows, length)))

    def norm(length: int) -> np.ndarray:
        return exact(0.5, 1.5, length)

    h, f = shape.hidden, shape.ffn
    sizes = {"q": (h, h), "k": (h, h), "v": (h, h), "o": (h, h), "gate": (f, h), "up": (f, h), "down": (h, f)}
    layers = []
    for _ in range(shape.layers):
        matrices = {name: matrix(*size) for name, size in sizes.items()}
        layers.append(
            GoldenLayer(
                codes={name: codes for name, (codes, _) in matrices.items()},
                scales={name: scale for name, (_, scale) in matrices.items()},
                input_norm=norm(h),
                post_norm=norm(h),
                inner_attn_norm=norm(h),
                ffn_norm=norm(f),
                k_scale=exact(0.015625, 0.03125, shape.heads),
                v_scale=exact(0.015625, 0.03125, shape.heads),
            )  # fmt: skip
        )
    planes = [matrix(shape.vocab, h) for _ in range(shape.head_planes)]
    return GoldenModel(
        shape=shape,
        embedding=exact(-2, 2, (shape.vocab, h)).astype(np.float16),
        layers=tuple(layers),
        final_norm=norm(h),
        head_codes=np.concatenate([codes for codes, _ in planes]),
        head_scales=np.array([scale for _, scale in planes], dtype=np.float32),
    )
