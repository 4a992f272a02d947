"""Rotation tables (RoPE), made with integers so that every machine gets the same bits."""

from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np

from pipelines.golden.float32 import F32

_ONE = 1 << 100  # fixed point: 100 fractional bits
_DIGITS = 60


def _sin_cos(angle: Decimal) -> tuple[int, int]:
    """Fixed-point sine and cosine of an angle of at most 1 radian, by Taylor series."""
    sine, cosine, term = Decimal(0), Decimal(0), Decimal(1)
    for n in range(40):
        if n % 2:
            sine += term if n % 4 == 1 else -term
        else:
            cosine += term if n % 4 == 0 else -term
        term *= angle / (n + 1)
    return int(sine * _ONE), int(cosine * _ONE)


def rope_tables(positions: int, head_dim: int, theta: float = 10000.0) -> tuple[F32, F32]:
    """cos and sin, each float32[positions, head_dim / 2]; entry (t, i) is of the angle t * theta**(-2i / head_dim).

    The step of each frequency is computed to 100 bits and then rotated ``positions`` times in integers: the error grows
    to about 2**-88 and the rounding to float32 is that of the exact value.
    """
    half = head_dim // 2
    cosines = np.empty((positions, half), dtype=np.float32)
    sines = np.empty((positions, half), dtype=np.float32)
    with localcontext() as context:
        context.prec = _DIGITS
        log_theta = Decimal(theta).ln()
        steps = [_sin_cos((log_theta * Decimal(-2 * i) / Decimal(head_dim)).exp()) for i in range(half)]
    for i, (step_sine, step_cosine) in enumerate(steps):
        sine, cosine = 0, _ONE
        for t in range(positions):
            cosines[t, i] = np.float32(cosine / _ONE)
            sines[t, i] = np.float32(sine / _ONE)
            sine, cosine = (
                (sine * step_cosine + cosine * step_sine) >> 100,
                (cosine * step_cosine - sine * step_sine) >> 100,
            )
    tiny = np.float32(2.0**-30)
    cosines[np.abs(cosines) < tiny] = 0
    sines[np.abs(sines) < tiny] = 0
    return cosines, sines


def rotate(x: F32, cosine: F32, sine: F32) -> F32:
    """Half-split rotation of x[..., head_dim] with cos and sin [..., head_dim / 2]."""
    half = x.shape[-1] // 2
    low, high = x[..., :half], x[..., half:]
    return np.concatenate([low * cosine - high * sine, high * cosine + low * sine], axis=-1)
