"""Sampling: greedy, seeded, filtered; always the same token for the same seed."""

from __future__ import annotations

from collections import Counter

import numpy as np

from pipelines.golden.sampling import SamplingOptions, SplitMix64, sample

LOGITS = np.array([0.0, 2.0, 1.0, 2.0, -1.0], dtype=np.float32)


def draw(options: SamplingOptions, count: int, seen: tuple[int, ...] = ()) -> Counter[int]:
    random = SplitMix64(options.seed)
    return Counter(sample(LOGITS, seen, options, random) for _ in range(count))


def test_splitmix64_gives_the_published_sequence() -> None:
    """First outputs for seed 1234567 as listed with the reference implementation (upper halves)."""
    random = SplitMix64(1234567)
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert [random.next_u32() for _ in published] == [value >> 32 for value in published]


def test_greedy_takes_the_lowest_of_equals() -> None:
    assert draw(SamplingOptions(), 3) == Counter({1: 3})


def test_repetition_penalty_lowers_seen_tokens() -> None:
    assert sample(LOGITS, (1, 3), SamplingOptions(repetition_penalty=4.0), SplitMix64(0)) == 2
    negative = np.array([-1.0, -2.0], dtype=np.float32)
    assert sample(negative, (0,), SamplingOptions(repetition_penalty=4.0), SplitMix64(0)) == 1


def test_frequencies_follow_the_softmax() -> None:
    counts = draw(SamplingOptions(temperature=1.0, seed=9), 20_000)
    weights = np.exp(LOGITS - LOGITS.max())
    expected = weights / weights.sum()
    for token, share in enumerate(expected):
        assert abs(counts[token] / 20_000 - share) < 0.015


def test_top_k_and_top_p_keep_the_best() -> None:
    assert set(draw(SamplingOptions(temperature=1.0, top_k=2), 500)) == {1, 3}
    assert set(draw(SamplingOptions(temperature=1.0, top_p=0.5), 500)) == {1, 3}
    assert set(draw(SamplingOptions(temperature=1.0, top_p=0.01), 500)) == {1}


def test_same_seed_same_tokens() -> None:
    options = SamplingOptions(temperature=0.7, top_k=4, top_p=0.95, seed=3)
    assert draw(options, 100) == draw(options, 100)
