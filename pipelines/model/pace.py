"""How long packing takes against reading, on some layers of the full-size shapes: a ratio of one run."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from pipelines.base.deadline import Deadline
from pipelines.model import convert, random

LAYERS, VOCAB = 4, 2048  # 115 million weights, 0.5 GB: longer than the fixed costs, shorter than a coffee
PAIRS = 5
WORDS = f"{LAYERS} layers of the full-size model, random float32 weights, cached"


def pairs(state: Path, deadline: Deadline, layers: int = LAYERS, count: int = PAIRS) -> list[tuple[float, float]]:
    """(reading, packing) in seconds, one conversion after the other. DiskFull, ToolTimeout.

    The checkpoint lies in ``state`` meanwhile: a system's folder for temporary files may be memory.
    """
    architecture = random.architecture(hidden=1536, ffn=4096, layers=layers, heads=16, vocab=VOCAB, max_positions=64)
    settings = convert.Settings(model="pace", context=64)
    state.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="pace-", dir=state) as scratch:
        source, out = Path(scratch) / "checkpoint", Path(scratch) / "image"
        random.write(source, architecture, seed=1, deadline=deadline)
        found = []
        for _ in range(count):
            out.mkdir()
            result = convert.convert(source, out, settings=settings, deadline=deadline)
            found.append((result["read_s"], result["pack_s"]))
            shutil.rmtree(out)
        return found
