"""The next token from logits: greedy, or drawn with a seed; the same token on every machine."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from pipelines.golden import float32
from pipelines.golden.float32 import F32

_MASK = (1 << 64) - 1
WEIGHT_ONE = float(1 << 24)  # integer weight of the best token
TOP_P_ONE = 1 << 16


@dataclass(frozen=True)
class SamplingOptions:
    """temperature 0 is greedy; top_k 0 and top_p 1 keep all; repetition_penalty 1 is none."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    seed: int = 0


class SplitMix64:
    """Steele, Lea and Flood's generator: 64 bits of state, one addition and two multiplications a draw."""

    def __init__(self, seed: int) -> None:
        self.state = seed & _MASK

    def next_u32(self) -> int:
        """The upper 32 bits of the next output."""
        self.state = (self.state + 0x9E3779B97F4A7C15) & _MASK
        z = self.state
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _MASK
        z = (z ^ z >> 27) * 0x94D049BB133111EB & _MASK
        return (z ^ z >> 31) >> 32


def sample(logits: F32, seen: Collection[int], options: SamplingOptions, random: SplitMix64) -> int:
    """One token id. Draws one number from ``random`` unless greedy.

    Order: penalty on tokens seen (positive logits divided, others multiplied), temperature, order by (logit falling, id
    rising), top-k, integer weights trunc(exp(l - max) * 2**24), top-p as the shortest prefix whose weight reaches
    round(top_p * 65536) / 65536 of the total, then the first token whose cumulated weight exceeds u * total >> 32.
    """
    logits = np.array(logits, dtype=np.float32)
    if options.repetition_penalty != 1.0:
        penalty = np.float32(options.repetition_penalty)
        for token in sorted(set(seen)):
            logits[token] = logits[token] / penalty if logits[token] > 0 else logits[token] * penalty
    if options.temperature == 0.0:
        return float32.argmax(logits)
    logits = logits / np.float32(options.temperature)
    order = np.lexsort((np.arange(logits.size), -logits))
    if options.top_k:
        order = order[: options.top_k]
    best = logits[order[0]]
    weights = (float32.exp(logits[order] - best) * np.float32(WEIGHT_ONE)).astype(np.int64)
    cumulated = np.cumsum(weights)
    share = round(options.top_p * TOP_P_ONE)
    if share < TOP_P_ONE:
        needed = int(cumulated[-1]) * share
        keep = int(np.argmax(cumulated * TOP_P_ONE >= needed)) + 1
        order, cumulated = order[:keep], cumulated[:keep]
    threshold = random.next_u32() * int(cumulated[-1]) >> 32
    return int(order[np.argmax(cumulated > threshold)])
