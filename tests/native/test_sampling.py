"""Sampling in C against the golden definition: the same token for the same seed, over many logits and options."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from board_rt.runtime import Runtime, Sampler, UsageFailure
from pipelines.golden.sampling import SamplingOptions, SplitMix64, sample
from tests.native import images

VOCAB = images.SMALL_SHAPE.vocab


@pytest.fixture(scope="module")
def runtime(host_library: Path, small_image: Path) -> Iterator[Runtime]:
    with Runtime(host_library, small_image, "host") as opened:
        yield opened


def both(runtime: Runtime, logits: np.ndarray, seen: list[int], options: SamplingOptions, draws: int) -> None:
    random = SplitMix64(options.seed)
    sampler = Sampler(options.temperature, options.top_k, options.top_p, options.repetition_penalty, options.seed)
    native = (ctypes.c_float * VOCAB)(*logits.astype(np.float32))
    for _ in range(draws):
        assert runtime.sample(native, sampler, seen) == sample(logits, seen, options, random)


@pytest.mark.parametrize("seed", range(40))
def test_random_options(runtime: Runtime, seed: int) -> None:
    random = np.random.default_rng(seed)
    logits = (random.standard_normal(VOCAB) * random.choice([0.1, 1, 4, 30])).astype(np.float32)
    if seed % 3 == 0:  # many equal logits: order is by id
        logits = np.round(logits)
    if seed % 5 == 0:  # both zeros are equal
        logits[::7] = np.copysign(np.float32(0), logits[::7])
    options = SamplingOptions(
        temperature=float(random.choice([0.0, 0.3, 0.8, 1.0, 2.5])),
        top_k=int(random.choice([0, 1, 5, 40, 1000])),
        top_p=float(random.choice([0.0, 0.1, 0.5, 0.9, 0.999, 1.0])),
        repetition_penalty=float(random.choice([1.0, 1.1, 0.7, 3.0])),
        seed=int(random.integers(0, 1 << 63)),
    )
    both(runtime, logits, [int(token) for token in random.integers(0, VOCAB, 30)], options, draws=20)


def test_first_equal_wins(runtime: Runtime) -> None:
    logits = np.full(VOCAB, -3, dtype=np.float32)
    logits[[200, 40, 41]] = 1.5
    both(runtime, logits, [], SamplingOptions(), draws=1)
    both(runtime, logits, [40], SamplingOptions(repetition_penalty=1.2), draws=1)


def test_large_total_does_not_overflow(runtime: Runtime) -> None:
    """All weights at their largest: the total times a 32-bit draw is beyond 64 bits in the product's vocabulary."""
    both(runtime, np.zeros(VOCAB, dtype=np.float32), [], SamplingOptions(temperature=1.0, seed=9), draws=200)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"temperature": -1.0}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": 1.0, "repetition_penalty": 0.0}, "penalty"),
        ({"top_p": 1.5}, "top_p"),
        ({"top_k": -1}, "top_k"),
    ],
)
def test_impossible_options(runtime: Runtime, arguments: dict[str, float], words: str) -> None:
    with pytest.raises(UsageFailure, match=words):
        runtime.sample((ctypes.c_float * VOCAB)(), Sampler(**arguments))  # type: ignore[arg-type]


def test_seen_token_outside_the_vocabulary(runtime: Runtime) -> None:
    with pytest.raises(UsageFailure, match="outside"):
        runtime.sample((ctypes.c_float * VOCAB)(), Sampler(repetition_penalty=1.1), [VOCAB])
