"""Streams for the engines and what they must answer, from the golden model. Vectorised: a whole token in seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipelines.golden import attention, ternary
from pipelines.golden.float32 import I8, I32
from pipelines.golden.formats import AttentionHeader, MatvecHeader

U64 = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Group:
    """Rows of one matrix: codes int8[rows, n] of {-1, 0, 1}; ``x`` int8[n] is loaded, or None keeps the last one."""

    codes: I8
    x: I8 | None

    def words(self) -> U64:
        """The group as stream words, uint64[…]."""
        rows, length = self.codes.shape
        header = np.array([MatvecHeader(rows, length, self.x is not None).encode()], dtype=np.uint64)
        parts = [header]
        if self.x is not None:
            parts.append(ternary.pack_x(self.x).view(np.uint64))
        parts.append(ternary.pack_rows(self.codes).reshape(-1).view(np.uint64))
        return np.concatenate(parts)


@dataclass(frozen=True)
class Head:
    """One head of one token: q int8[d]; keys, values int8[T, d]; multiplier m."""

    q: I8
    keys: I8
    values: I8
    m: int

    def words(self) -> U64:
        """The head as stream words, uint64[1 + d/8 + 2 T d/8]."""
        positions, head_dim = self.keys.shape
        header = np.array([AttentionHeader(positions, self.m, head_dim).encode()], dtype=np.uint64)
        body = [np.ascontiguousarray(part).reshape(-1).view(np.uint64) for part in (self.q, self.keys, self.values)]
        return np.concatenate([header, *body])

    def answer(self, bits: int) -> I32:
        """int32[d + 2]: numerators, denominator, zero."""
        numerators, denominator = attention.attend(self.q, self.keys, self.values, self.m, bits)
        return np.concatenate([numerators, np.array([denominator, 0], dtype=np.int32)])


def as_words(results: I32) -> U64:
    """int32[n] as the result words of a transfer: an odd count ends in a zero upper half."""
    padded = np.zeros(results.size + results.size % 2, dtype=np.int32)
    padded[: results.size] = results
    return padded.view(np.uint64)


def matvec_transfer(groups: Sequence[Group], x: I8 | None = None) -> tuple[U64, U64]:
    """Stream and result words of a transfer. ``x`` is what the engine holds before it."""
    stream, results = [], []
    for group in groups:
        x = x if group.x is None else group.x
        if x is None:
            raise ValueError("the first group must load x")
        stream.append(group.words())
        results.append(ternary.product(group.codes, x[: group.codes.shape[1]]))
    return np.concatenate(stream), as_words(np.concatenate(results))


def attention_transfer(heads: Sequence[Head], bits: int) -> tuple[U64, U64]:
    """Stream and result words of a transfer."""
    return np.concatenate([head.words() for head in heads]), as_words(
        np.concatenate([head.answer(bits) for head in heads])
    )
