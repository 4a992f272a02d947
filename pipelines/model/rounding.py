"""Whether a checkpoint was trained ternary at all: what rounding its weights does to its perplexity.

A model that was trained ternary is better rounded than with its latent weights; one that was not falls apart. 144
tokens tell the two apart, so conversion looks at the calibration tokens, one layer in memory at a time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipelines.base.deadline import Deadline
from pipelines.base.errors import ToolTimeout
from pipelines.golden import ternary
from pipelines.model.checkpoint import EMBEDDING, FINAL_NORM, Checkpoint
from pipelines.model.twin import Rounding, Twin, load_layer, norm

F32 = npt.NDArray[np.float32]

WARN_RATIO = 2.0  # perplexity rounded over not rounded
_HEAD_ROWS = 4096


@dataclass(frozen=True)
class RoundingCost:
    """Perplexity of a text with the weights as they are, and rounded to ternary with int8 activations."""

    plain: float
    rounded: float
    tokens: int

    @property
    def warning(self) -> str:
        """What to say before such a model is deployed; empty if rounding costs less than ``WARN_RATIO``."""
        return warning(self.plain, self.rounded)


def warning(plain: float, rounded: float) -> str:
    if rounded <= WARN_RATIO * plain:
        return ""
    return (
        f"rounded to ternary its perplexity is {rounded:,.2f}, against {plain:,.2f} without rounding:"
        " this model was not trained ternary and will not write sense on the board"
    )


def rounding_cost(checkpoint: Checkpoint, ids: npt.NDArray[np.integer], deadline: Deadline) -> RoundingCost:
    """Of token ids int[n], each predicted from those before it. ToolTimeout at the deadline."""
    return RoundingCost(
        plain=_perplexity(checkpoint, ids, None, deadline),
        rounded=_perplexity(checkpoint, ids, ternary.ternarise, deadline),
        tokens=len(ids) - 1,
    )


def _perplexity(
    checkpoint: Checkpoint, ids: npt.NDArray[np.integer], rounding: Rounding | None, deadline: Deadline
) -> float:
    a = checkpoint.architecture
    rows = np.stack([checkpoint.rows(EMBEDDING, int(i), int(i) + 1)[0] for i in ids[:-1]])
    # A twin without layers of its own: they come one by one.
    twin = Twin(a, rows, (), checkpoint.read(FINAL_NORM), rows, int8_activations=rounding is not None)
    x = rows[None]
    for number in range(a.layers):
        if deadline.expired():
            raise ToolTimeout(f"the rounding of the weights was not judged within {deadline.seconds:.0f} s")
        x = twin.layer(number, load_layer(checkpoint, number, rounding), x)
    states = norm(x, twin.final_norm, a.rms_eps)[0]
    logits = np.concatenate(
        [
            states @ checkpoint.rows(checkpoint.head_name, start, min(start + _HEAD_ROWS, a.vocab)).T
            for start in range(0, a.vocab, _HEAD_ROWS)
        ],
        axis=1,
    )
    largest = logits.max(axis=-1)
    total = np.exp(logits - largest[:, None]).sum(axis=-1, dtype=np.float64)
    chosen = logits[np.arange(len(states)), ids[1:]]
    return math.exp(float(np.mean(np.log(total) + largest - chosen)))
