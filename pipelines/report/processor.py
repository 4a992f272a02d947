"""What a token costs the processor of the board, counted: instructions, cycles, and what is done behind a stream.

At the full size, beside the earlier work's milliseconds of processor time a token. Nothing here has run on a board.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.base.figure import Figure
from pipelines.report.benchmark import Entry
from pipelines.report.reference import Reference, Shape
from pipelines.runtime.cost import CLOCK_MHZ, TokenCost

THREADS = 2  # the board has two cores
MODEL_LAYERS = (1, 2)
"""Layers of the models that are counted. Every layer costs the same, so they give any number of layers."""

CRITICAL_LIMIT_PERCENT = 60


@dataclass(frozen=True)
class Counts:
    """Instructions of a token of the full-size model, and cycles an entry of each kernel."""

    one_core: int  # all of them, by one thread
    critical: int  # of the busiest of two threads, while no stream runs
    cycles: Mapping[str, float]

    @classmethod
    def of(
        cls, one: Sequence[TokenCost], two: Sequence[TokenCost], cycles: Mapping[str, Figure], layers: int
    ) -> Counts:
        """From the costs of ``MODEL_LAYERS`` with one thread and with two."""

        def at_full_size(first: int, second: int) -> int:
            return first + (layers - MODEL_LAYERS[0]) * (second - first)

        return cls(
            at_full_size(one[0].total, one[1].total),
            at_full_size(two[0].critical, two[1].critical),
            {kernel: figure.value for kernel, figure in cycles.items()},
        )

    def json(self) -> dict[str, Any]:
        return {"one_core": self.one_core, "critical": self.critical, "cycles": dict(self.cycles)}


def kernel_entries(shape: Shape) -> dict[str, int]:
    """How many entries each kernel handles in a token (``native/src/forward.c``), with one plane of the head."""
    normed = shape.layers * (3 * shape.hidden + shape.ffn) + shape.hidden
    heads = shape.layers * shape.hidden
    return {
        "tf_widen_neon": shape.hidden,
        "tf_add_squares_neon": normed,
        "tf_normalise_neon": normed,
        "tf_largest_neon": heads,
        "tf_quantise_neon": normed + 3 * heads,
        "tf_dequantise_neon": 4 * heads + shape.vocab,
        "tf_dequantise_add_neon": 2 * heads,
        "tf_rotate_neon": heads,  # q and k, and an entry is a pair
        "tf_gate_neon": shape.layers * shape.ffn,
    }


def entries(counts: Counts, reference: Reference) -> list[Entry]:
    """The figures, named ``cpu.*``."""
    cpu_ms = reference.row(512).cpu
    counted = "counted by a plugin of QEMU (cortex-a9), waiting not counted"
    bound = "llvm-mca, cortex-a9: pipelines without caches"
    theirs = Figure(round(cpu_ms * CLOCK_MHZ * 1e3), "cycles", "reference")
    share = 100 * counts.critical / counts.one_core
    kernels_ms = sum(counts.cycles[k] * n for k, n in kernel_entries(reference.model).items()) / CLOCK_MHZ / 1e3
    return [
        Entry(
            "cpu.instructions", Figure(counts.one_core, "instructions", "model"),
            f"{counted}; one core, a token of the full size; reference: its {cpu_ms} ms at {CLOCK_MHZ} MHz in cycles",
            None, theirs,
        ),
        Entry(
            "cpu.instructions_critical", Figure(counts.critical, "instructions", "model"),
            f"{counted}; the busier of two cores while no stream runs",
            Figure(round(CRITICAL_LIMIT_PERCENT / 100 * counts.one_core), "instructions", "model"), theirs,
        ),
        Entry(
            "cpu.critical_share", Figure(round(share, 1), "% of one core", "model"),
            "the two counts before", Figure(CRITICAL_LIMIT_PERCENT, "% of one core", "model"),
        ),
        Entry(
            "cpu.kernels_ms", Figure(round(kernels_ms, 2), "ms", "model"),
            f"{bound}; all kernels of a token, one core at {CLOCK_MHZ} MHz", None, Figure(cpu_ms, "ms", "reference"),
        ),
        *(
            Entry(f"cpu.cycles.{kernel}", Figure(round(value, 3), "cycles/entry", "model"), bound)
            for kernel, value in counts.cycles.items()
        ),
    ]  # fmt: skip
