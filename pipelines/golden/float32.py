"""Float32 arithmetic with one result on every machine.

Every step is one IEEE-754 single operation (add, subtract, multiply, divide, square root), rounded to nearest even, in
the order written here; nothing is fused, nothing comes from a maths library. No denormal and no NaN can arise: small
inputs are taken as zero, scales have floors, exponents are clamped. The C runtime does the same operations in the same
order, four or sixteen at a time.

Arrays are float32 unless said otherwise; functions work along the last axis and on any leading axes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
I32 = npt.NDArray[np.int32]
I8 = npt.NDArray[np.int8]

SUM_LANES = 16
TINY = np.float32(2.0**-30)  # magnitudes below count as zero before they are squared
QUANT_FLOOR = np.float32(1e-5)  # smallest maximum that a quantisation scale is made from
QUANT_MAX = np.float32(127.0)
ROUND_MAGIC = np.float32(12582912.0)  # 1.5 * 2**23: adding it rounds to an integer, for magnitudes below 2**22

EXP_CLAMP = np.float32(40.0)
LOG2_E = np.float32(1.44269504088896341)
LN2_HIGH = np.float32(0.693359375)  # nine bits: exact times any exponent that occurs
LN2_LOW = np.float32(-2.12194440054690583e-4)
EXP_TERMS = tuple(np.float32(1.0 / n) for n in (720, 120, 24, 6, 2, 1, 1))  # Taylor, highest power first

RECIPROCAL_MAGIC = 0x7EF311C3  # first guess of 1/d from d's bits, within 13 %
RECIPROCAL_STEPS = 3  # Newton steps: 0.13 -> 0.016 -> 2.7e-4 -> 7e-8


def round_to_integer(x: F32) -> F32:
    """Nearest integer, ties to even, as float32. ``|x| < 2**22``."""
    return (x + ROUND_MAGIC) - ROUND_MAGIC


def sum16(x: F32) -> F32:
    """Sum along the last axis: lane j of sixteen adds x[j], x[j+16], … in this order.

    The lanes are four vectors A0..A3 of four. V = (A0 + A1) + (A2 + A3), then (V[0] + V[1]) + (V[2] + V[3]).
    The length must be a multiple of 16.
    """
    length = x.shape[-1]
    if length % SUM_LANES:
        raise ValueError(f"sum16 needs a multiple of {SUM_LANES} entries, got {length}")
    blocks = x.reshape(*x.shape[:-1], length // SUM_LANES, SUM_LANES)
    lanes = blocks[..., 0, :].copy()
    for k in range(1, length // SUM_LANES):
        lanes += blocks[..., k, :]
    v = (lanes[..., 0:4] + lanes[..., 4:8]) + (lanes[..., 8:12] + lanes[..., 12:16])
    return np.asarray((v[..., 0] + v[..., 1]) + (v[..., 2] + v[..., 3]), dtype=np.float32)


def rms_norm(x: F32, weight: F32, eps: np.float32) -> F32:
    """x / sqrt(mean(x²) + eps) * weight, with the mean over the last axis."""
    kept = np.where(np.abs(x) < TINY, np.float32(0), x)
    mean = sum16(kept * kept) / np.float32(x.shape[-1])
    r = np.float32(1) / np.sqrt(mean + eps)
    return np.asarray((kept * r[..., None]) * weight, dtype=np.float32)


def quantise(x: F32) -> tuple[I8, F32]:
    """int8 codes and the scale that takes them back, one scale along the last axis.

    m = max(max|x|, 1e-5); code = round(x * (127 / m)); scale = m / 127.
    """
    m = np.maximum(np.max(np.abs(x), axis=-1), QUANT_FLOOR)
    codes = quantise_fixed(x, (QUANT_MAX / m)[..., None])
    return codes, np.asarray(m / QUANT_MAX, dtype=np.float32)


def quantise_fixed(x: F32, inverse_scale: F32) -> I8:
    """int8 codes with a given inverse scale: round(clamp(x * inverse_scale, -128, 127))."""
    scaled = np.minimum(np.maximum(x * inverse_scale, np.float32(-128)), np.float32(127))
    return round_to_integer(scaled).astype(np.int8)


def dequantise(acc: I32, scale: F32) -> F32:
    """float32(acc) * scale; the conversion rounds to nearest even."""
    return np.asarray(acc, dtype=np.int32).astype(np.float32) * scale


def exp(x: F32) -> F32:
    """e**clamp(x, -40, 40): x = n ln2 + r, Taylor polynomial of degree 6 in r, exponent field plus n."""
    x = np.minimum(np.maximum(x, -EXP_CLAMP), EXP_CLAMP)
    n = round_to_integer(x * LOG2_E)
    r = (x - n * LN2_HIGH) - n * LN2_LOW
    p = np.full_like(r, EXP_TERMS[0])
    for term in EXP_TERMS[1:]:
        p = p * r + term
    bits = p.view(np.int32) + (n.astype(np.int32) << 23)
    return np.asarray(bits.view(np.float32))


def reciprocal(d: F32) -> F32:
    """1/d for positive d in 2**-60 .. 2**60, to 1e-7, by Newton's r = r * (2 - d * r); not the IEEE quotient."""
    d = np.ascontiguousarray(d, dtype=np.float32)
    r: F32 = (np.int32(RECIPROCAL_MAGIC) - d.view(np.int32)).view(np.float32)
    for _ in range(RECIPROCAL_STEPS):
        r = np.asarray(r * (np.float32(2) - d * r), dtype=np.float32)
    return r


def silu_gate(gate: F32, up: F32) -> F32:
    """(gate * sigmoid(gate)) * up, with sigmoid(g) = reciprocal(1 + exp(-g))."""
    return np.asarray((gate * reciprocal(np.float32(1) + exp(-gate))) * up, dtype=np.float32)


def argmax(logits: F32) -> int:
    """Index of the largest logit; the lowest index among equals."""
    return int(np.argmax(logits))
