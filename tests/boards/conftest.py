"""Bench boards, and one real release of the tiny model for this machine's instruction set."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipelines.boards.release import LocalRelease
from tests.boards.bench import BenchBoard, plain_files


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[BenchBoard]:
    board = BenchBoard(tmp_path / "bench")
    yield board
    board.stop()


@pytest.fixture
def two_releases(bench: BenchBoard, tmp_path: Path) -> tuple[LocalRelease, LocalRelease]:
    """An old release and a new one, of plain files."""
    return (
        bench.release(tmp_path / "old", plain_files(1)),
        bench.release(tmp_path / "new", plain_files(2, size=600_000)),
    )


class Built:
    """The artefacts of the checkout, and releases for a bench board made from them."""

    def __init__(self, artefacts: dict[str, Any]) -> None:
        from pipelines.runtime.build import host_target

        target = host_target()
        self.runtime: Path = artefacts["runtime"].folder / target / "libtritforge.so"
        self.bitstream: Path = artefacts["bitstream"].folder
        self.rtl: Path = self.bitstream / target / "libtritforge_rtl.so"
        self.model: Path = self.bitstream / target / "libtritforge_model.so"
        self.weights: Path = artefacts["weights"].folder

    def files(self, *, weights: Path | None = None, runtime: Path | None = None) -> dict[str, bytes | Path]:
        """Parts of a release whose libraries run on this machine; ``weights`` and ``runtime`` replace ours."""
        from pipelines.config.settings import ROOT

        weights = weights or self.weights
        return {
            **{f"board_rt/{path.name}": path for path in (ROOT / "board_rt").glob("*.py")},
            **{
                f"weights/{name}": weights / name
                for name in ("weights.tfs", "params.tfp", "embedding.f16", "image.json")
            },
            "tokenizer.json": self.weights / "tokenizer.json",
            "runtime/libtritforge.so": runtime or self.runtime,
            "bitstream/libtritforge_rtl.so": self.rtl,
            "bitstream/libtritforge_model.so": self.model,
            "bitstream/bitstream.json": self.bitstream / "bitstream.json",
        }


@pytest.fixture(scope="session")
def built() -> Built:
    """What the checkout's stages make; cached in its store, so that this costs nothing after a nightly."""
    from pipelines.commands import builds
    from pipelines.commands.context import Context

    _, outcomes = builds.made_release(Context(), None, "tiny")
    return Built({outcome.name.split("-")[0]: outcome.artefact for outcome in outcomes})
