"""Trits: absmean rounding of weights, five trits to a byte, forty to a word, and the product the circuit computes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pipelines.base.errors import FormatError
from pipelines.golden.float32 import I8, I32
from pipelines.golden.formats import (
    MAX_ROW_LENGTH,
    TRIT_CODES,
    TRITS_PER_BYTE,
    WORD_BYTES,
    words_for_row,
    words_for_x,
)

U8 = npt.NDArray[np.uint8]

MEAN_LANES = 16
MEAN_FLOOR = 1e-5
_POWERS = np.array([1, 3, 9, 27, 81], dtype=np.uint8)


def decode_table() -> I8:
    """int8[256, 5]: the trits of each byte code, first trit first; codes of 243 and above are all zero."""
    table = np.zeros((256, TRITS_PER_BYTE), dtype=np.int8)
    for code in range(TRIT_CODES):
        for digit in range(TRITS_PER_BYTE):
            table[code, digit] = code // 3**digit % 3 - 1
    return table


_DECODE = decode_table()


def absmean(weights: npt.NDArray[np.floating]) -> np.float32:
    """max(mean|W|, 1e-5) as float32, from a float64 sum in a fixed order, the same on every machine.

    Lane j of sixteen adds |W| of flat entries j, j+16, … in order (missing ones count as zero); then lanes are added
    pairwise: 16 → 8 → 4 → 2 → 1, lane j with lane j + half.
    """
    flat = np.abs(np.asarray(weights, dtype=np.float32).reshape(-1))
    full = flat.size // MEAN_LANES * MEAN_LANES
    lanes = np.zeros(MEAN_LANES, dtype=np.float64)
    block = 1 << 16
    for start in range(0, full, block * MEAN_LANES):
        rows = flat[start : min(start + block * MEAN_LANES, full)].reshape(-1, MEAN_LANES).astype(np.float64)
        rows[0] += lanes
        lanes = np.add.accumulate(rows, axis=0)[-1]
    lanes[: flat.size - full] += flat[full:]
    while lanes.size > 1:
        half = lanes.size // 2
        lanes = lanes[:half] + lanes[half:]
    return np.float32(max(float(lanes[0]) / flat.size, MEAN_FLOOR))


def ternarise(weights: npt.NDArray[np.floating]) -> tuple[I8, np.float32]:
    """Codes in {-1, 0, 1} and the scale that takes them back: code = clamp(round(W * (1 / mean)), -1, 1).

    Ties round to even; 1 / mean and the product are float32.
    """
    scale = absmean(weights)
    inverse = np.float32(1) / scale
    scaled = np.asarray(weights, dtype=np.float32) * inverse
    codes = np.rint(np.minimum(np.maximum(scaled, np.float32(-1)), np.float32(1))).astype(np.int8)
    return codes, scale


def pack_rows(codes: I8) -> U8:
    """Pack int8[rows, n] of {-1, 0, 1} into uint8[rows, 8 * ceil(n / 40)]; missing trits are zero.

    Byte b of a row holds trits 5b .. 5b+4, code = sum of (trit + 1) * 3**i.
    """
    rows, length = codes.shape
    if not 1 <= length <= MAX_ROW_LENGTH:
        raise FormatError(f"row length is {length}; allowed are 1 to {MAX_ROW_LENGTH}")
    if codes.size and (codes.min() < -1 or codes.max() > 1):
        raise FormatError("a weight code is outside -1, 0, 1")
    row_bytes = words_for_row(length) * WORD_BYTES
    digits = np.ones((rows, row_bytes * TRITS_PER_BYTE), dtype=np.uint8)
    digits[:, :length] = (codes + 1).astype(np.uint8)
    packed = digits.reshape(rows, row_bytes, TRITS_PER_BYTE) @ _POWERS
    return np.ascontiguousarray(packed, dtype=np.uint8)


def unpack_rows(packed: U8, length: int) -> I8:
    """The inverse of ``pack_rows``; an illegal code or a non-zero trit behind the row's end is a FormatError."""
    rows, row_bytes = packed.shape
    if row_bytes != words_for_row(length) * WORD_BYTES:
        raise FormatError(f"a row of {length} trits takes {words_for_row(length) * WORD_BYTES} bytes, got {row_bytes}")
    illegal = np.argwhere(packed >= TRIT_CODES)
    if illegal.size:
        row, byte = illegal[0]
        raise FormatError(f"illegal trit code {packed[row, byte]} in row {row}, byte {byte}; allowed are 0 to 242")
    trits = _DECODE[packed].reshape(rows, row_bytes * TRITS_PER_BYTE)
    if trits[:, length:].any():
        row = int(np.argwhere(trits[:, length:].any(axis=1))[0, 0])
        raise FormatError(f"a trit behind the end of row {row} is not zero")
    return np.ascontiguousarray(trits[:, :length])


def pack_x(x: I8) -> U8:
    """int8[n] as the bytes of an x slot, zero-padded to whole words."""
    slot = np.zeros(words_for_x(x.size) * WORD_BYTES, dtype=np.uint8)
    slot[: x.size] = x.view(np.uint8)
    return slot


def product(codes: I8, x: I8) -> I32:
    """What the matrix circuit returns: codes int8[rows, n] times x int8[..., n] → int32[..., rows].

    Computed in float32 by BLAS: exact in any order, since every partial sum is an integer below 4096 * 128 < 2**24.
    """
    return np.asarray(x.astype(np.float32) @ codes.astype(np.float32).T).astype(np.int32)
