"""A token: any split into calls gives the same bits, and the trace names every step in order."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from pipelines.golden.formats import TRACE_POINTS
from pipelines.golden.forward import Forward
from pipelines.golden.rope import rope_tables
from tests.golden.models import TINY_SHAPE, random_model

TOKENS = [1, 17, 250, 3, 3, 99, 318, 42, 7, 0, 61, 200]


def test_any_split_gives_the_same_bits() -> None:
    model = random_model()
    whole = Forward(model)(TOKENS)
    for split in (1, 5, 11):
        forward = Forward(model)
        parts = np.concatenate([forward(TOKENS[:split]), *(forward([t]) for t in TOKENS[split:])])
        assert (whole.view(np.int32) == parts.view(np.int32)).all()


def test_trace_points_come_in_the_defined_order() -> None:
    names: list[tuple[str, int]] = []
    forward = Forward(random_model(), trace=lambda name, layer, _: names.append((name, layer)))
    forward([5])
    per_layer = [name for name, layered in TRACE_POINTS if layered]
    expected = [("embedding", -1)]
    expected += [(name, layer) for layer in range(TINY_SHAPE.layers) for name in per_layer]
    expected += [(name, -1) for name in ("head_in_code", "head_in_scale", "head_acc", "logits")]
    assert names == expected


def test_no_denormal_anywhere() -> None:
    smallest = np.float32(2.0**-126)

    def check(name: str, layer: int, value: np.ndarray) -> None:
        if value.dtype == np.float32:
            assert np.isfinite(value).all(), (name, layer)
            assert ((value == 0) | (np.abs(value) >= smallest)).all(), (name, layer)

    Forward(random_model(seed=3), trace=check)(TOKENS)


def test_context_and_vocabulary_are_bounds() -> None:
    forward = Forward(random_model())
    with pytest.raises(ValueError, match="do not fit the context of 64"):
        forward([1] * 65)
    with pytest.raises(ValueError, match="outside 0 to 319"):
        forward([320])


def test_rope_tables_are_the_rounded_values() -> None:
    cosines, sines = rope_tables(64, 96)
    angles = np.arange(64)[:, None] * 10000.0 ** (-np.arange(48) / 48)
    assert np.abs(cosines - np.cos(angles)).max() < 2.0**-24
    assert np.abs(sines - np.sin(angles)).max() < 2.0**-24


def test_the_logits_are_frozen() -> None:
    """One changed operation anywhere in the token changes this hash."""
    logits = Forward(random_model())(TOKENS)
    assert hashlib.sha256(logits.tobytes()).hexdigest()[:16] == "a4f0ac0287e35443"
