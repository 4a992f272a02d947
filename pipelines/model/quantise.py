"""Weights to integers: absmean codes, least-squares codes for comparison, and the head as ternary planes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from pipelines.base.errors import CheckpointError
from pipelines.golden import ternary
from pipelines.golden.formats import FLOAT_BOUNDS, WORD_BYTES, words_for_row
from pipelines.model.kernel import Kernel
from pipelines.model.safetensors_file import Visit

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I8 = npt.NDArray[np.int8]
U8 = npt.NDArray[np.uint8]

_SCALE_MAX_EXPONENT = FLOAT_BOUNDS["MATRIX_SCALE"][1]
PART_ROWS = 512  # of the head at once: a few MB, which stay in a cache; a multiple of 16


def scale_from_lanes(lanes: F64, count: int, name: str) -> np.float32:
    """max(mean|W|, 1e-5) from the sixteen lanes of a matrix of ``count`` weights, added pairwise.

    CheckpointError names the matrix when a weight was NaN or infinite: its lane then is as well.
    """
    while lanes.size > 1:
        half = lanes.size // 2
        lanes = lanes[:half] + lanes[half:]
    total = float(lanes[0])
    if not np.isfinite(total):
        raise CheckpointError(f"tensor '{name}' has a NaN or an infinity")
    mean = np.float32(max(total / count, ternary.MEAN_FLOOR))
    if mean > np.float32(2.0**_SCALE_MAX_EXPONENT):
        raise CheckpointError(
            f"tensor '{name}' has mean magnitude {float(mean):.3g}; at most 2**{_SCALE_MAX_EXPONENT} can be packed"
        )
    return mean


Whole = Callable[[Visit], F32]
"""Reads float32[rows, n], showing a visitor the parts as they come."""


def pack_matrix(read: Whole, name: str, kernel: Kernel, out: U8) -> np.float32:
    """``ternary.ternarise`` and packing of float32[rows, n] into ``out`` uint8[rows, 8 * ceil(n / 40)]: the scale."""
    lanes = np.zeros(ternary.MEAN_LANES, dtype=np.float64)
    weights = read(lambda part: kernel.abs_sum(part, lanes))
    scale = scale_from_lanes(lanes, weights.size, name)
    kernel.pack(weights, np.float32(1) / scale, out)
    return scale


Rows = Callable[[int, int], F32]
"""Rows ``start`` to ``stop`` of a matrix, float32, which the caller may overwrite."""


def head_planes(read: Rows, shape: tuple[int, int], planes: int, name: str, kernel: Kernel) -> tuple[U8, F32]:
    """Packed rows of all planes, one below the other, and float32[planes] scales.

    A residual expansion: plane p is the ternary rounding of what planes 0 … p-1 leave, W - Σ scale · codes. The
    matrix is read in parts, twice a plane, since it is the largest of a model.
    """
    rows, columns = shape
    packed = np.empty((planes, rows, words_for_row(columns) * WORD_BYTES), dtype=np.uint8)
    scales = np.empty(planes, dtype=np.float32)

    def residual(start: int, plane: int) -> F32:
        stop = min(start + PART_ROWS, rows)
        values = read(start, stop)
        for before in range(plane):
            codes = ternary.unpack_rows(packed[before, start:stop], columns)
            values -= codes.astype(np.float32) * scales[before]
        return values

    for plane in range(planes):
        lanes = np.zeros(ternary.MEAN_LANES, dtype=np.float64)
        for start in range(0, rows, PART_ROWS):
            kernel.abs_sum(residual(start, plane), lanes)
        scales[plane] = scale_from_lanes(lanes, rows * columns, name)
        for start in range(0, rows, PART_ROWS):
            values = residual(start, plane)
            kernel.pack(values, np.float32(1) / scales[plane], packed[plane, start : start + len(values)])
    return packed.reshape(planes * rows, -1), scales


Ternariser = Callable[[F32], tuple[I8, np.float32]]


def least_squares(weights: F32) -> tuple[I8, np.float32]:
    """Codes and scale with the smallest squared error: keep the k largest magnitudes, scale by their mean.

    The error falls by (Σ of the k largest)² / k, whose maximum over k is found by sorting.
    """
    magnitude = np.abs(weights).reshape(-1).astype(np.float64)
    order = np.sort(magnitude)[::-1]
    gain = np.cumsum(order) ** 2 / np.arange(1, order.size + 1)
    best = int(np.argmax(gain))
    threshold, scale = order[best], np.cumsum(order)[best] / (best + 1)
    codes = np.where(np.abs(weights) >= threshold, np.sign(weights), 0).astype(np.int8)
    return codes, np.float32(max(scale, ternary.MEAN_FLOOR))


def int8_rows(weights: F32) -> F32:
    """The matrix as int8 would keep it, one scale a row, dequantised."""
    scale = np.maximum(np.abs(weights).max(axis=1, keepdims=True), 1e-5) / 127
    return np.asarray(np.rint(weights / scale) * scale, dtype=np.float32)
