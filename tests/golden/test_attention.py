"""The integer softmax: one definition twice, widths, and closeness to the real one."""

from __future__ import annotations

import math

import numpy as np

from pipelines.golden import attention
from pipelines.golden.formats import HEAD_DIM, M_MAX, SCORE_SHIFT, TAU


def test_tables_are_the_rounded_exponential() -> None:
    for bits in (13, 15):
        top = (1 << bits) - 1
        table = attention.exp_table(bits)
        assert table[0] == top
        assert all(abs(int(v) - top * math.exp(-d / TAU)) <= 0.5 + 1e-9 for d, v in enumerate(table))
        assert table[-1] == 0


def test_causal_runs_equal_single_tokens() -> None:
    rng = np.random.default_rng(7)
    total, start = 24, 9
    keys, values = rng.integers(-128, 128, size=(2, total, HEAD_DIM)).astype(np.int8)
    q = rng.integers(-127, 128, size=(total - start, HEAD_DIM)).astype(np.int8)
    m = rng.integers(0, M_MAX + 1, size=total - start).astype(np.int32)
    numerators, denominators = attention.attend_causal(q, keys, values, m, 15, start)
    for i in range(total - start):
        seen = start + i + 1
        one, p = attention.attend(q[i], keys[:seen], values[:seen], int(m[i]), 15)
        assert (one == numerators[i]).all()
        assert p == denominators[i]


def test_sums_fit_int32_at_the_largest_context() -> None:
    for bits, context in ((15, 512), (13, 2048)):
        q = np.zeros(HEAD_DIM, dtype=np.int8)
        keys = np.zeros((context, HEAD_DIM), dtype=np.int8)
        values = np.full((context, HEAD_DIM), -128, dtype=np.int8)
        numerators, p = attention.attend(q, keys, values, 1, bits)
        assert numerators.tolist() == [-128 * context * ((1 << bits) - 1)] * HEAD_DIM
        assert p == context * ((1 << bits) - 1)


def test_scores_fit_fifteen_bits() -> None:
    largest = HEAD_DIM * 128 * 128 * M_MAX >> SCORE_SHIFT
    assert largest < 1 << 14
    assert -HEAD_DIM * 128 * 128 * M_MAX >> SCORE_SHIFT >= -(1 << 14)


def test_close_to_float_softmax() -> None:
    rng = np.random.default_rng(8)
    q, k, v = (rng.normal(size=s).astype(np.float32) for s in ((HEAD_DIM,), (100, HEAD_DIM), (100, HEAD_DIM)))
    sq, sk, sv = (np.float32(np.abs(a).max() / 127) for a in (q, k, v))
    codes = [np.rint(a / s).astype(np.int8) for a, s in ((q, sq), (k, sk), (v, sv))]
    m, saturated = attention.multiplier(np.array([sq]), np.array([attention.score_coefficient(float(sk), HEAD_DIM)]))
    assert not saturated.any()
    numerators, p = attention.attend(codes[0], codes[1], codes[2], int(m[0]), 15)
    out = attention.attention_output(numerators, np.int32(p), np.float32(sv))
    scores = k @ q / np.sqrt(np.float32(HEAD_DIM))
    weights = np.exp(scores - scores.max())
    assert np.abs(out - weights @ v / weights.sum()).max() < 0.05


def test_m_saturates_and_is_counted() -> None:
    m, saturated = attention.multiplier(np.float32([1.0, 0.001]), np.float32([1e9, 1e6]))
    assert m.tolist() == [M_MAX, 1000]
    assert saturated.tolist() == [True, False]
