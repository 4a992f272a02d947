"""The float32 rules against scalar definitions and high-precision values."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import pytest

from pipelines.golden import float32


def f32(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def test_sum16_adds_in_the_documented_order() -> None:
    x = np.random.default_rng(1).normal(size=192).astype(np.float32) * np.float32(1e3)
    lanes = [np.float32(0)] * 16
    for j in range(16):
        lanes[j] = x[j]
        for k in range(1, 12):
            lanes[j] = np.float32(lanes[j] + x[16 * k + j])
    v = [np.float32((lanes[i] + lanes[4 + i]) + (lanes[8 + i] + lanes[12 + i])) for i in range(4)]
    assert float32.sum16(x) == np.float32((v[0] + v[1]) + (v[2] + v[3]))


def test_sum16_refuses_other_lengths() -> None:
    with pytest.raises(ValueError, match="multiple of 16"):
        float32.sum16(f32(*range(17)))


def test_rounding_is_half_to_even() -> None:
    assert float32.round_to_integer(f32(0.5, 1.5, 2.5, -0.5, -1.5, 126.5)).tolist() == [0, 2, 2, 0, -2, 126]


def test_exp_is_within_three_ulp_and_clamped() -> None:
    x = np.linspace(-41, 41, 100_001).astype(np.float32)
    exact = np.exp(np.clip(x, -40, 40).astype(np.float64))
    assert np.max(np.abs(float32.exp(x) / exact - 1)) < 3 * 2.0**-23
    assert float32.exp(f32(-1e30, 1e30)).tolist() == float32.exp(f32(-40, 40)).tolist()
    assert float32.exp(f32(0.0))[0] == 1.0


def test_reciprocal_is_within_two_ulp_over_its_range() -> None:
    d = np.exp2(np.random.default_rng(2).uniform(-59, 59, 100_000)).astype(np.float32)
    assert np.max(np.abs(float32.reciprocal(d).astype(np.float64) * d - 1)) < 2 * 2.0**-23


def test_quantise_matches_the_scalar_definition() -> None:
    x = np.random.default_rng(3).normal(size=(50, 96)).astype(np.float32)
    codes, scales = float32.quantise(x)
    for row, code, scale in zip(x, codes, scales, strict=True):
        m = np.float32(max(float(np.max(np.abs(row))), float(np.float32(1e-5))))
        assert scale == np.float32(m / np.float32(127))
        inverse = np.float32(np.float32(127) / m)
        assert code.tolist() == [round(float(np.float32(v * inverse))) for v in row]
        assert max(abs(int(c)) for c in code) == 127


@pytest.mark.parametrize("value", [0.0, -0.0, 1e-30, 2.0**-31])
def test_tiny_inputs_make_neither_denormals_nor_nan(value: float) -> None:
    x = np.full(32, value, dtype=np.float32)
    y = float32.rms_norm(x, np.ones(32, np.float32), np.float32(1e-5))
    assert (y == 0).all()
    codes, scale = float32.quantise(x)
    assert (codes == 0).all()
    assert scale > 2.0**-126


def test_silu_gate_is_close_to_the_real_function() -> None:
    g = np.linspace(-30, 30, 1001).astype(np.float32)
    exact = [float(v) / (1 + math.exp(-float(v))) * 2 for v in g]
    assert np.allclose(float32.silu_gate(g, np.full_like(g, 2)), exact, rtol=1e-6, atol=0)


def test_the_bits_are_frozen() -> None:
    """Changing any operation or its order changes this hash, and with it every release's logits."""
    rng = np.random.default_rng(4)
    x = (rng.integers(-(1 << 14), 1 << 14, size=(8, 192)) / (1 << 10)).astype(np.float32)
    w = (rng.integers(-(1 << 14), 1 << 14, size=192) / (1 << 13)).astype(np.float32)
    digest = hashlib.sha256()
    for value in (float32.rms_norm(x, w, np.float32(1e-5)), float32.silu_gate(x, x), *float32.quantise(x)):
        digest.update(np.ascontiguousarray(value).tobytes())
    assert digest.hexdigest()[:16] == "cbc185a91956f6ae"
