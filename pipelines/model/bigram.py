"""The bigram table: how well the last token alone predicts the next. What any model must beat."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipelines.base import files
from pipelines.base.errors import FormatError

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]

FILE = "bigrams.npz"
# Taken off each count and given to the unigram distribution: absolute discounting, Ney, Essen and Kneser (1994).
DISCOUNT = 0.75


@dataclass(frozen=True)
class BigramTable:
    """Counts of adjacent pairs in a training text: ``keys`` int64 (first · vocab + second, rising) and ``counts``."""

    vocab: int
    keys: I64
    counts: I64

    @classmethod
    def of(cls, texts: list[npt.NDArray[np.integer]], vocab: int, begin: int) -> BigramTable:
        """Counts pairs within each text (token ids, at least one) behind the token ``begin``, not across texts."""
        behind = [np.concatenate([[begin], text]).astype(np.int64) for text in texts]
        pairs = np.concatenate([text[:-1] * vocab + text[1:] for text in behind])
        keys, counts = np.unique(pairs, return_counts=True)
        return cls(vocab, keys, counts.astype(np.int64))

    def save(self, path: Path) -> None:
        gaps = np.diff(self.keys, prepend=0).astype(np.uint32)  # small numbers compress well
        with files.atomic_file(path) as stream:
            np.savez_compressed(
                stream, vocab=np.int64(self.vocab), gaps=gaps, counts=np.minimum(self.counts, 0xFFFF).astype(np.uint16)
            )

    @classmethod
    def load(cls, path: Path) -> BigramTable:
        """FormatError when the file is not one of ``save``."""
        try:
            with np.load(path, allow_pickle=False) as stored:
                keys = np.cumsum(stored["gaps"].astype(np.int64))
                table = cls(int(stored["vocab"]), keys, stored["counts"].astype(np.int64))
        except (OSError, ValueError, KeyError) as error:
            raise FormatError(f"{path}: not a bigram table: {error}") from error
        if keys.shape != table.counts.shape or not keys.size or keys[-1] >= table.vocab**2:
            raise FormatError(f"{path}: keys and counts do not fit each other")
        return table

    def losses(self, windows: npt.NDArray[np.integer]) -> F64:
        """Nats of each token after the first, int[n, 1 + T] -> float64[n, T]: discounted bigrams over unigrams."""
        first_of, second_of = np.divmod(self.keys, self.vocab)
        totals = np.bincount(first_of, self.counts, self.vocab)
        kinds = np.bincount(first_of, minlength=self.vocab)
        unigram = np.bincount(second_of, self.counts, self.vocab) + 1.0
        unigram /= unigram.sum()
        first, second = windows[:, :-1].astype(np.int64), windows[:, 1:].astype(np.int64)
        wanted = first * self.vocab + second
        at = np.minimum(np.searchsorted(self.keys, wanted), self.keys.size - 1)
        count = np.where(self.keys[at] == wanted, self.counts[at], 0)
        total = np.maximum(totals[first], 1.0)
        kept = np.maximum(count - DISCOUNT, 0.0) / total
        spread = np.where(totals[first] > 0, DISCOUNT * kinds[first] / total, 1.0)
        return np.asarray(-np.log(kept + spread * unigram[second]))
