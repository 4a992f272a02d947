"""The fixed battery of prompts that ``verify`` compares at every step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PROMPTS: tuple[tuple[str, int], ...] = (
    # A long one, so that attention runs over many positions; then short ones from other places of the text.
    ("Once upon a time, there was a little girl who lived in a house near the forest. One day,", 40),
    ("The dog", 16),
    ('"Why?" asked Tom.', 16),
)
"""(text, steps): a step is one token through the model, of the prompt first, then greedy ones. 72 in all."""


@dataclass(frozen=True)
class Run:
    """One prompt as token ids, beginning of text first, and how many steps to run."""

    ids: tuple[int, ...]
    steps: int

    def json(self) -> dict[str, object]:
        return {"ids": list(self.ids), "steps": self.steps}


@dataclass(frozen=True)
class Battery:
    sequences: tuple[Run, ...]

    @property
    def steps(self) -> int:
        return sum(sequence.steps for sequence in self.sequences)

    @property
    def prompt_tokens(self) -> int:
        return sum(min(len(sequence.ids), sequence.steps) for sequence in self.sequences)


def battery(
    tokenizer: Path, bos: int, context: int, *, steps: int | None = None, prompts: Sequence[tuple[str, int]] = PROMPTS
) -> Battery:
    """The battery for a model. ``steps`` cuts it to so many in all (a full-size model in an emulator is slow).

    Each step of a model passes every row of every matrix through the circuits; the longest prompt sees attention over 1
    to 40 positions.
    """
    from tokenizers import Tokenizer

    encoder = Tokenizer.from_file(str(tokenizer))
    left = steps if steps is not None else sum(count for _, count in prompts)
    sequences = []
    for text, count in prompts:
        count = min(count, left, context)
        if count == 0:
            break
        left -= count
        ids = (bos, *encoder.encode(text, add_special_tokens=False).ids)[:count]
        sequences.append(Run(ids, count))
    return Battery(tuple(sequences))
