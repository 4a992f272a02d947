"""Synthetic nights, in the shape in which ``nightly`` keeps them, with seeded noise and regressions."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pipelines.base.files import write_json
from pipelines.report.night import Night, read

START = datetime(2026, 1, 1, 2, 0, tzinfo=UTC)
BASE = {"tokens_per_s": 7.4, "words_per_cycle": 0.991, "perplexity": 31.0, "pack_s": 0.30, "push_mb_per_s": 24.0}


def commit(number: int) -> str:
    """A made-up commit name that tells its night."""
    return f"{number:02d}" + "c0ffee" * 6 + "ab"


def document(number: int, values: Mapping[str, float], **changes: Any) -> dict[str, Any]:
    """The record of a night that passed; ``changes`` replace whole keys."""
    stages = ["convert-weights", "deploy", "generate", "simulate", "evaluate", "verify"]
    seconds = 20.0
    whole: dict[str, Any] = {
        "board": "emu1",
        "model": "tiny",
        "pipeline": "nightly",
        "machine": "builder",
        "commit": commit(number),
        "release": f"{number:064x}",
        "stages": [
            {"name": name, "status": "passed", "cached": False, "reason": "it never passed here", "elapsed_s": 12.0}
            for name in stages
        ],
        "texts": [{"prompt": "Once upon a time", "text": " there was a <b>fox</b> & a hen."}],
        "results": {
            "convert-weights": {
                "task": "convert-weights", "status": "passed", "packed_bytes": 459_720, "read_s": 0.013,
                "pack_s": values["pack_s"],
            },
            "deploy": {
                "task": "deploy", "status": "passed", "bytes_total": 4_000_000, "seconds": seconds,
                "bytes_sent": int(values["push_mb_per_s"] * 1e6 * seconds),
            },
            "generate": {
                "task": "generate", "status": "passed",
                "tokens_per_s": {"value": values["tokens_per_s"], "unit": "tok/s", "evidence": "model"},
            },
            "simulate": {
                "task": "simulate", "status": "passed",
                "matvec": {"words": 57_465, "words_per_cycle": values["words_per_cycle"], "mismatches": 0},
                "attention": {"words": 12_000, "words_per_cycle": values["words_per_cycle"], "mismatches": 0},
            },
            "evaluate": {
                "task": "evaluate", "status": "passed",
                "rows": [{"name": "ternary, head 1 plane", "perplexity": values["perplexity"], "tokens": 4096}],
            },
            "verify": {
                "task": "verify", "status": "passed",
                "circuits": {"matvec_words": 30_000, "attention_words": 2_328, "mismatches": 0},
                "tokens": {"prompt": 30, "generated": 42, "mismatches": 0},
                "logits": {"steps": 72, "compared": 147_456, "mismatches": 0, "first_mismatch": None},
                "machines": [
                    {"name": "emu1 (rtl)", "isa": "armv7l", "toolchain": "zig"},
                    {"name": "golden model from the checkpoint (numpy)", "isa": "python", "toolchain": "numpy"},
                    {"name": "this machine (model)", "isa": "x86_64", "toolchain": "zig"},
                ],
                "against": [{"name": "this machine (model)", "steps": 72, "mismatches": 0, "first": None}],
                "board_facts": {"backend": "rtl"},
            },
        },
    }  # fmt: skip
    whole.update(changes)
    return whole


def keep(folder: Path, number: int, whole: Mapping[str, Any]) -> Path:
    """Writes the record of night ``number`` and returns its path."""
    name = (START + timedelta(days=number)).strftime("%Y%m%dT%H%M%SZ-nightly")
    path = folder / f"{name}.json"
    write_json(path, whole)
    return path


def synthetic(
    folder: Path, count: int = 30, *, noise: float = 0.02, seed: int = 1, moved: Mapping[str, tuple[int, float]] = {}
) -> list[Night]:
    """``count`` nights. Each value has normal noise of ``noise`` (one standard deviation, relative).

    ``moved`` names figures that are multiplied by a factor from a night on: {name: (night, factor)}.
    """
    draw = random.Random(seed)
    found = []
    for number in range(count):
        values = {}
        for name, base in BASE.items():
            night, factor = moved.get(name, (count, 1.0))
            values[name] = base * (factor if number >= night else 1.0) * draw.gauss(1.0, noise)
        found.append(read(keep(folder, number, document(number, values))))
    return found
