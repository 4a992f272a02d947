"""Cycles of the full-size model's transfers through the RTL, behind the model of the board's memory.

All layers have the same shapes, so one layer of each group is run, and the head; the words are random, since time does
not depend on them. Whether results are right is for ``verify`` and ``simulate``; here a transfer must only end, whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipelines.base.errors import MismatchError
from pipelines.golden.formats import ENGINES, TRIT_CODES, AttentionHeader, MatvecHeader
from pipelines.hardware.library import EngineCounters, Pl
from pipelines.report.reference import Shape

U64 = npt.NDArray[np.uint64]

TRITS_A_WORD = 40
MEMORY_BYTES = 16 << 20
STALLS = ("stall_in", "stall_out", "stall_turn")
M = 30_000  # a usual multiplier; the largest seen by the earlier work is 79,505


@dataclass(frozen=True)
class Run:
    """A pair of transfers, one on each port of a circuit: cycles from the first start to the last result."""

    name: str
    cycles: int
    words: int  # of both ports
    port_words: int  # of the longer port
    stalls: dict[str, int]

    @property
    def words_per_cycle(self) -> float:
        """Of one port, start and end of the transfer included."""
        return self.port_words / self.cycles


@dataclass(frozen=True)
class Cycles:
    """One layer's groups, the head, and one layer's attention at each T."""

    groups: tuple[Run, ...]
    head: Run
    attention: dict[int, Run]

    def matrices(self, layers: int) -> int:
        """Cycles of all matrices of a token."""
        return layers * sum(run.cycles for run in self.groups) + self.head.cycles

    def matrix_words(self, layers: int) -> int:
        return layers * sum(run.words for run in self.groups) + self.head.words

    def matrix_stalls(self, layers: int) -> dict[str, int]:
        """Stall cycles of both ports by cause, of a token."""
        return {
            cause: layers * sum(run.stalls[cause] for run in self.groups) + self.head.stalls[cause] for cause in STALLS
        }


def measure(library: Path, shape: Shape, positions: Sequence[int], *, ddr: bool = True, seed: int = 1) -> Cycles:
    """Runs everything in ``library`` (``libtritforge_rtl.so`` of this machine)."""
    random = np.random.default_rng(seed)
    groups = {
        "qkv": (3 * shape.hidden, shape.hidden),
        "o": (shape.hidden, shape.hidden),
        "gate_up": (2 * shape.ffn, shape.hidden),
        "down": (shape.hidden, shape.ffn),
    }
    with Pl(library, memory_bytes=MEMORY_BYTES, ddr=int(ddr)) as pl:
        for engine in range(len(ENGINES)):
            pl.reset(engine)
        runs = [_matvec(pl, name, rows, length, random) for name, (rows, length) in groups.items()]
        head = _matvec(pl, "head", shape.vocab, shape.hidden, random)
        attention = {t: _attention(pl, t, shape, random) for t in positions}
    return Cycles(tuple(runs), head, attention)


def _halves(count: int) -> tuple[int, int]:
    return (count + 1) // 2, count // 2


def _matvec(pl: Pl, name: str, rows: int, length: int, random: np.random.Generator) -> Run:
    streams, results = [], []
    for part in _halves(rows):
        words_a_row = -(-length // TRITS_A_WORD)
        codes = random.integers(0, TRIT_CODES, (part, words_a_row * 8), dtype=np.uint8)
        codes[:, -(-length // 5) :] = 0
        if length % 5:
            codes[:, length // 5] %= 3 ** (length % 5)
        x = random.integers(0, 256, -(-length // 8) * 8, dtype=np.uint8)
        header = np.array([MatvecHeader(part, length, True).encode()], dtype=np.uint64)
        streams.append(np.concatenate([header, x.view(np.uint64), codes.reshape(-1).view(np.uint64)]))
        results.append((part + 1) // 2)
    return _both(pl, name, (0, 1), streams, results)


def _attention(pl: Pl, t: int, shape: Shape, random: np.random.Generator) -> Run:
    streams, results = [], []
    for heads in _halves(shape.heads):
        header = AttentionHeader(t, M, shape.head_dim).encode()
        words = random.integers(0, 1 << 64, (heads, 1 + (1 + 2 * t) * shape.head_dim // 8), dtype=np.uint64)
        words[:, 0] = header
        streams.append(words.reshape(-1))
        results.append(heads * (shape.head_dim // 2 + 1))
    return _both(pl, f"attention, T = {t}", (2, 3), streams, results)


def _both(pl: Pl, name: str, engines: tuple[int, int], streams: Sequence[U64], results: Sequence[int]) -> Run:
    """Both ports at once. Raises MismatchError when a transfer ends short, PlTimeout when it does not end."""
    before = [pl.counters(engine) for engine in engines]
    half = MEMORY_BYTES // 2
    sizes = [pl.put(i * half, stream) for i, stream in enumerate(streams)]
    targets = [i * half + -(-size // 64) * 64 for i, size in enumerate(sizes)]
    started = pl.statistics().cycles
    for i, engine in enumerate(engines):
        pl.start(engine, i * half, sizes[i], targets[i], 8 * results[i])
    for i, engine in enumerate(engines):
        received = pl.finish(engine, polls=10_000_000)
        if received != 8 * results[i]:
            raise MismatchError(f"{name}: {ENGINES[engine]} sent {received} bytes, expected {8 * results[i]}")
    cycles = pl.statistics().cycles - started
    after = [pl.counters(engine) for engine in engines]
    return Run(
        name,
        cycles,
        sum(int(stream.size) for stream in streams),
        max(int(stream.size) for stream in streams),
        {cause: sum(_grown(a, b, cause) for a, b in zip(before, after, strict=True)) for cause in STALLS},
    )


def _grown(before: EngineCounters, after: EngineCounters, counter: str) -> int:
    return int(getattr(after, counter) - getattr(before, counter)) & 0xFFFF_FFFF
