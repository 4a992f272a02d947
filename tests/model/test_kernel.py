"""The compiled loops, their numpy twins and the golden definition give the same bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipelines.base.deadline import Deadline
from pipelines.base.errors import CheckpointError
from pipelines.golden import ternary
from pipelines.golden.formats import words_for_row
from pipelines.model import kernel, pace, quantise
from pipelines.model.kernel import CompiledKernel, Kernel, NumpyKernel
from pipelines.model.safetensors_file import Visit


@pytest.fixture(scope="module")
def kernels() -> list[Kernel]:
    found = [kernel.compiled(Deadline.after(300)), NumpyKernel()]
    assert isinstance(found[0], CompiledKernel)
    return found


def pack(weights: np.ndarray, name: str, loops: Kernel) -> tuple[np.ndarray, np.float32]:
    out = np.empty((weights.shape[0], 8 * words_for_row(weights.shape[1])), dtype=np.uint8)

    def read(visit: Visit) -> np.ndarray:
        flat = weights.reshape(-1)
        for start in range(0, flat.size, 4096):
            visit(flat[start : start + 4096])
        return weights

    return out, quantise.pack_matrix(read, name, loops, out)


def shapes(count: int) -> list[tuple[int, int]]:
    random = np.random.default_rng(11)
    return [(1, 1), (200, 200), (3, 40), (5, 41), (1, 4096), *map(tuple, random.integers(1, 201, (count, 2)).tolist())]


@pytest.mark.parametrize("shape", shapes(40))
def test_packing_equals_the_golden_definition_and_unpacks(shape: tuple[int, int], kernels: list[Kernel]) -> None:
    weights = np.random.default_rng(shape).normal(size=shape).astype(np.float32)
    codes, scale = ternary.ternarise(weights)
    for loops in kernels:
        packed, found = pack(weights, "w", loops)
        assert found == scale
        assert np.array_equal(packed, ternary.pack_rows(codes))
        assert np.array_equal(ternary.unpack_rows(packed, shape[1]), codes)


def test_ties_and_extremes_round_alike(kernels: list[Kernel]) -> None:
    half = np.float32(0.5)
    values = [
        0.0,
        -0.0,
        half,
        -half,
        np.nextafter(half, np.float32(1)),
        -np.nextafter(half, np.float32(1)),
        1,
        -1,
        3e38,
    ]
    weights = np.array([values], dtype=np.float32)
    for loops in kernels:
        out = np.empty((1, words_for_row(weights.shape[1]) * 8), np.uint8)
        loops.pack(weights, np.float32(1), out)
        assert ternary.unpack_rows(out, weights.shape[1])[0].tolist() == [0, 0, 0, 0, 1, -1, 1, -1, 1]


def test_sums_in_parts_equal_the_whole(kernels: list[Kernel]) -> None:
    weights = np.random.default_rng(3).normal(size=(1000, 37)).astype(np.float32) * 60
    whole = ternary.absmean(weights)
    for loops in kernels:
        lanes = np.zeros(16)
        for part in (weights[:160], weights[160:992], weights[992:]):  # parts of 16 rows: multiples of 16 weights
            loops.abs_sum(part, lanes)
        assert quantise.scale_from_lanes(lanes, weights.size, "w") == whole


def test_half_precision_rounds_alike(kernels: list[Kernel]) -> None:
    random = np.random.default_rng(5)
    bits = random.integers(0, 1 << 32, 20000, dtype=np.uint64).astype(np.uint32)
    values = bits.view(np.float32)
    values = values[np.abs(values) < 65520][None]  # also drops NaN
    results = []
    for loops in kernels:
        out = np.empty(values.shape, np.float16)
        assert loops.to_half(values, out)
        results.append(out.view(np.uint16))
        for lost in (65520.0, -np.inf, np.nan):
            assert not loops.to_half(np.array([[1, lost]], np.float32), np.empty((1, 2), np.float16))
    assert np.array_equal(*results)


def test_not_finite_weights_are_named(kernels: list[Kernel]) -> None:
    for loops in kernels:
        for bad in (np.nan, np.inf, -np.inf):
            weights = np.ones((7, 50), np.float32)
            weights[6, 49] = bad
            with pytest.raises(CheckpointError, match="'some.tensor'"):
                pack(weights, "some.tensor", loops)


def test_head_planes_are_a_residual_expansion(kernels: list[Kernel]) -> None:
    weights = np.random.default_rng(8).normal(size=(1100, 96)).astype(np.float32)  # more rows than one part
    left = weights.copy()
    expected = []
    for _ in range(3):
        codes, scale = ternary.ternarise(left)
        expected.append((ternary.pack_rows(codes), scale))
        left -= codes.astype(np.float32) * scale
    for loops in kernels:
        packed, scales = quantise.head_planes(lambda a, b: weights[a:b].copy(), weights.shape, 3, "head", loops)
        assert np.array_equal(packed, np.concatenate([rows for rows, _ in expected]))
        assert scales.tolist() == [scale for _, scale in expected]


def test_least_squares_beats_every_other_threshold() -> None:
    weights = np.random.default_rng(9).normal(size=(20, 30)).astype(np.float32)
    codes, scale = quantise.least_squares(weights)
    best = float(np.square(weights - codes * scale).sum())
    for threshold in np.linspace(0.05, 2.5, 60):
        kept = np.abs(weights) >= threshold
        if kept.any():
            other = np.where(kept, np.sign(weights), 0) * np.abs(weights)[kept].mean()
            assert best <= float(np.square(weights - other).sum()) + 1e-3


def test_the_pace_is_measured_and_nothing_is_left(tmp_path: Path) -> None:
    found = pace.pairs(tmp_path / "state", Deadline.after(300), layers=1, count=2)
    assert len(found) == 2 and all(reading > 0 and packing > 0 for reading, packing in found)
    assert not list((tmp_path / "state").iterdir())
