"""Trits: packing loses nothing and refuses what is not a trit."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pipelines.base.errors import FormatError
from pipelines.golden import ternary
from pipelines.golden.formats import TRIT_CODES


def test_all_codes_decode_to_their_digits() -> None:
    table = ternary.decode_table()
    for code in range(TRIT_CODES):
        assert sum((int(t) + 1) * 3**i for i, t in enumerate(table[code])) == code


def test_pack_and_unpack_are_inverse_on_sampled_shapes() -> None:
    rng = np.random.default_rng(5)
    for rows, length in rng.integers(1, 201, size=(300, 2)):
        codes = rng.integers(-1, 2, size=(rows, length)).astype(np.int8)
        packed = ternary.pack_rows(codes)
        assert packed.shape == (rows, -(-length // 40) * 8)
        assert (ternary.unpack_rows(packed, int(length)) == codes).all()


@pytest.mark.parametrize("code", range(TRIT_CODES, 256))
def test_each_illegal_code_is_an_error_that_names_it(code: int) -> None:
    packed = ternary.pack_rows(np.zeros((3, 80), dtype=np.int8))
    packed[2, 11] = code
    with pytest.raises(FormatError, match=f"illegal trit code {code} in row 2, byte 11"):
        ternary.unpack_rows(packed, 80)


def test_a_trit_behind_the_end_is_an_error() -> None:
    packed = ternary.pack_rows(np.zeros((1, 38), dtype=np.int8))
    packed[0, 7] += 81
    with pytest.raises(FormatError, match="behind the end of row 0"):
        ternary.unpack_rows(packed, 38)


def test_absmean_is_the_mean_in_a_fixed_order() -> None:
    rng = np.random.default_rng(6)
    for size in (1, 15, 16, 17, 1000, 192 * 193):
        w = rng.normal(size=size).astype(np.float32)
        assert ternary.absmean(w) == pytest.approx(math.fsum(abs(float(v)) for v in w) / size, rel=1e-6)
    w = rng.normal(size=(1 << 16) * 16 * 2 + 5).astype(np.float32)
    lanes = np.zeros(16)
    padded = np.zeros(-(-w.size // 16) * 16)
    padded[: w.size] = np.abs(w)
    for row in padded.reshape(-1, 16):
        lanes += row
    while lanes.size > 1:
        lanes = lanes[: lanes.size // 2] + lanes[lanes.size // 2 :]
    assert ternary.absmean(w) == np.float32(lanes[0] / w.size)
    assert ternary.absmean(np.zeros(3)) == np.float32(1e-5)


def test_rounding_of_weights_is_half_to_even_and_clamped() -> None:
    w = np.array([[0.5, -0.5, 1.5, 1.5, -3.0, 0.2, 0.9, -0.9, 0.0, 1.0]], dtype=np.float32)
    codes, scale = ternary.ternarise(w)
    assert scale == np.float32(1.0)
    assert codes.tolist() == [[0, 0, 1, 1, -1, 0, 1, -1, 0, 1]]


def test_product_is_exact_at_the_extremes() -> None:
    codes = np.array([np.ones(4096), -np.ones(4096)], dtype=np.int8)
    x = np.full(4096, -128, dtype=np.int8)
    assert ternary.product(codes, x).tolist() == [-524288, 524288]
