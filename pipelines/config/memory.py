"""How much contiguous memory (CMA) of a board a model needs, before anything is built.

The packed image's layout is ``docs/formats.md``; the sums here follow it word for word and a test holds them equal to
what the packer writes.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.config.model import Shape
from pipelines.golden import formats

RESERVE_BYTES = 4 << 20
"""Descriptors, x slots, and what the kernel itself takes from the CMA for its devices."""


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes of contiguous memory: packed weights, K and V of all positions, result buffers of both ports."""

    weights_bytes: int
    kv_bytes: int
    results_bytes: int
    largest_transfer_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.weights_bytes + self.kv_bytes + self.results_bytes + RESERVE_BYTES


def groups_of(shape: Shape, head_planes: int) -> list[tuple[int, int]]:
    """(rows, row length) of each group, in the order of the image: four a layer, then the head."""
    layer = [
        (3 * shape.hidden, shape.hidden),
        (shape.hidden, shape.hidden),
        (2 * shape.ffn, shape.hidden),
        (shape.hidden, shape.ffn),
    ]
    return layer * shape.layers + [(head_planes * shape.vocab, shape.hidden)]


def memory_plan(shape: Shape, *, context: int, head_planes: int, max_transfer_bytes: int) -> MemoryPlan:
    """The plan for one model on one build. ``max_transfer_bytes`` is the DMA's largest transfer."""
    weights = 0
    largest = 0
    for rows, row_length in groups_of(shape, head_planes):
        for share in (-(-rows // 2), rows // 2):
            for transfer in _pieces(share, row_length, max_transfer_bytes):
                weights = -(-weights // formats.TRANSFER_ALIGN_BYTES) * formats.TRANSFER_ALIGN_BYTES + transfer
                largest = max(largest, transfer)
    most_rows = max(rows for rows, _ in groups_of(shape, head_planes))
    attention = shape.heads * (formats.HEAD_DIM + 2) * 4
    return MemoryPlan(
        weights_bytes=weights,
        kv_bytes=2 * shape.layers * context * shape.hidden,
        results_bytes=most_rows * 4 + attention,
        largest_transfer_bytes=largest,
    )


def _pieces(rows: int, row_length: int, max_transfer_bytes: int) -> list[int]:
    """Bytes of each transfer that one port's share of a group is cut into; only the first carries x."""
    row_bytes = formats.words_for_row(row_length) * formats.WORD_BYTES
    x_bytes = formats.words_for_x(row_length) * formats.WORD_BYTES
    pieces = []
    head = formats.WORD_BYTES + x_bytes
    while rows > 0:
        fit = min(rows, (max_transfer_bytes - head) // row_bytes)
        if fit < 1:
            raise ValueError(f"a transfer of {max_transfer_bytes} bytes holds no row of {row_length} trits")
        pieces.append(head + fit * row_bytes)
        rows -= fit
        head = formats.WORD_BYTES
    return pieces
