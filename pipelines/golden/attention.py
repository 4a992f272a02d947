"""The attention circuit's integers: scores, multiplier m, exponential table, numerators and denominator."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from functools import cache

import numpy as np
import numpy.typing as npt

from pipelines.golden.float32 import F32, I8, I32, round_to_integer
from pipelines.golden.formats import EXP_TABLE_ENTRIES, M_MAX, SCORE_SHIFT, TAU

I64 = npt.NDArray[np.int64]


@cache
def exp_table(bits: int, tau: int = TAU) -> I32:
    """int32[256]: round((2**bits - 1) * exp(-d / tau)), computed in decimal, the same on every machine."""
    with localcontext() as context:
        context.prec = 40
        top = Decimal((1 << bits) - 1)
        values = [
            int((top * (Decimal(-d) / Decimal(tau)).exp()).to_integral_value(rounding=ROUND_HALF_EVEN))
            for d in range(EXP_TABLE_ENTRIES)
        ]
    table = np.array(values, dtype=np.int32)
    table.flags.writeable = False
    return table


def score_coefficient(k_scale: float, head_dim: int, tau: int = TAU) -> np.float32:
    """float32 of tau * sk / sqrt(head_dim) * 2**24: m is this times the scale of q."""
    return np.float32(tau * float(k_scale) / float(np.sqrt(np.float64(head_dim))) * float(1 << SCORE_SHIFT))


def multiplier(q_scale: F32, coefficient: F32) -> tuple[I32, npt.NDArray[np.bool_]]:
    """m = round(min(sq * coefficient, M_MAX)) and whether it saturated, elementwise."""
    wanted = q_scale * coefficient
    m = round_to_integer(np.minimum(wanted, np.float32(M_MAX)))
    return m.astype(np.int32), wanted > np.float32(M_MAX)


def attend(q: I8, keys: I8, values: I8, m: int, bits: int) -> tuple[I32, int]:
    """One head of one token, as the circuit computes it.

    q int8[d]; keys and values int8[T, d] → numerators int32[d] and denominator.
    z = (q.k * m) >> 24 (arithmetic shift); p = table[max(z) - z], 0 beyond the table; sums of p * V and of p.
    """
    scores = keys.astype(np.int64) @ q.astype(np.int64)
    z = scores * int(m) >> SCORE_SHIFT
    p = probabilities(z, z.max(), bits)
    return (p @ values.astype(np.int64)).astype(np.int32), int(p.sum())


def probabilities(z: I64, z_max: I64, bits: int) -> I64:
    """Table values for the distances z_max - z (which must not be negative); 0 beyond the table."""
    distance = z_max - z
    table = exp_table(bits).astype(np.int64)
    return np.where(distance < EXP_TABLE_ENTRIES, table[np.minimum(distance, EXP_TABLE_ENTRIES - 1)], 0)


def attend_causal(q: I8, keys: I8, values: I8, m: I32, bits: int, start: int) -> tuple[I32, I32]:
    """One head of a run of tokens at positions start, start + 1, …: the same integers as ``attend`` one by one.

    q int8[n, d]; keys, values int8[start + n, d]; m int32[n] → numerators int32[n, d], denominators int32[n].
    """
    count, total = q.shape[0], keys.shape[0]
    scores = np.rint(q.astype(np.float64) @ keys.astype(np.float64).T).astype(np.int64)
    z = scores * m.astype(np.int64)[:, None] >> SCORE_SHIFT
    seen = np.arange(total)[None, :] <= start + np.arange(count)[:, None]
    z_max = np.where(seen, z, np.iinfo(np.int64).min).max(axis=1)
    p = np.where(seen, probabilities(np.minimum(z, z_max[:, None]), z_max[:, None], bits), 0)
    # float64 is exact here: every partial sum is an integer below 2**31
    numerators = np.rint(p.astype(np.float64) @ values.astype(np.float64)).astype(np.int32)
    return numerators, p.sum(axis=1).astype(np.int32)


def attention_output(numerators: I32, denominators: I32, v_scale: F32) -> F32:
    """float32(numerator) * (v_scale / float32(denominator)); numerators [..., d], the other two [...]."""
    ratio = np.asarray(v_scale / denominators.astype(np.float32), dtype=np.float32)
    return np.asarray(numerators.astype(np.float32) * ratio[..., None], dtype=np.float32)
