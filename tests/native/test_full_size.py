"""The full-size shapes: the same logits, all bits, on every machine; one token here, eight as a campaign."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from pipelines.base.console import Console
from pipelines.commands import builds
from pipelines.commands.benchmark import FULL_SIZE
from pipelines.commands.context import Context
from pipelines.engine import graph
from pipelines.golden.float32 import I8, I32
from pipelines.golden.forward import Forward
from pipelines.model.image import Image
from pipelines.report import benchmark
from tests.native.conftest import MACHINES, pl_library
from tests.native.test_machines import assert_same_bits, run_logits

SECONDS = 1800.0
TOKENS = [1, 31_999, 5, 17_000, 2, 32_001, 17_000, 512]  # repeats, both ends of the vocabulary


@dataclass
class Lean(Forward):
    """Without the float32 copies of all matrices, which would be 2.8 GB here."""

    def _product(self, layer: int, group: str, codes: Callable[[], I8], x: I8) -> I32:
        return np.asarray(x.astype(np.float32) @ codes().T.astype(np.float32)).astype(np.int32)


@pytest.fixture(scope="module")
def tokens(full_campaigns: bool) -> list[int]:
    return TOKENS if full_campaigns else TOKENS[:1]


@pytest.fixture(scope="module")
def image() -> Path:
    """As the product makes and keeps it."""
    context = Context(console=Console(quiet=True))
    stage = builds.weights(context, context.settings.model(FULL_SIZE), context.settings.board("emu1"))
    return graph.artefact_of(builds.make(context, [stage]), stage.name).folder


@pytest.fixture(scope="module")
def wanted(image: Path, tokens: list[int]) -> np.ndarray:
    golden = Image.open(image).golden()
    assert golden.shape.layers == 24 and golden.shape.ffn == 4096
    return Lean(golden)(tokens)


@pytest.mark.parametrize(("target", "compiler"), MACHINES)
def test_same_logits(
    target: str, compiler: str, image: Path, tokens: list[int], wanted: np.ndarray, full_campaigns: bool
) -> None:
    plain = target.startswith("x86_64")  # elsewhere backend host is plain C anyway
    for threads, flush in [(1, False), (2, True)] if full_campaigns else [(2, True)]:
        found = run_logits(
            target, compiler, image, tokens, threads=threads, flush=flush, plain=plain, timeout_s=SECONDS
        )
        assert_same_bits(found, wanted)


def test_through_the_driver(image: Path, tokens: list[int], wanted: np.ndarray) -> None:
    """Transfers cut at the board's 8 MiB, at its addresses."""
    found = run_logits(
        "x86_64-linux", "zig", image, tokens, backend="model", pl=pl_library("model"), threads=2, timeout_s=SECONDS
    )
    assert_same_bits(found, wanted)


def test_a_token_beside_a_pass_over_the_image(
    host_library: Path, model_library: Path, shipped_image: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The figures of ``benchmark``, on the small model: they belong together, and their limit is the eight passes."""
    monkeypatch.setattr(benchmark, "ROUNDS", 1)
    found = {e.name: e for e in benchmark.pass_entries(host_library, model_library, shipped_image)}
    token, one_pass, ratio = (found[f"host.full_size_{name}"] for name in ("token_ms", "pass_ms", "passes"))
    assert token.figure.value > 0 and one_pass.figure.value >= 0 and ratio.figure.value > 0
    assert ratio.limit is not None and ratio.limit.value == benchmark.LARGEST_PASSES == 8
    assert {entry.figure.evidence for entry in found.values()} == {"model"}
