"""The processor's figures: full size from two counted sizes, and a rise of 3 % in instructions is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.base.figure import Figure
from pipelines.config.settings import Settings
from pipelines.report import processor
from pipelines.report.history import Point
from pipelines.report.reference import reference
from pipelines.report.regression import judge
from pipelines.runtime.cost import KERNELS, TokenCost

ROOT = Path(__file__).resolve().parents[2]


def cost_of(layers: int, threads: int) -> TokenCost:
    """100 instructions before the layers; 50 a layer alone and 30 behind a stream, divided among the threads."""
    alone = tuple({"tf_normalise_neon": (100 + 50 * layers) // threads} for _ in range(threads))
    behind = tuple({"tf_gate_neon": 30 * layers // threads} for _ in range(threads))
    return TokenCost(alone, behind)


def test_full_size_from_one_layer_and_two() -> None:
    costs = {threads: [cost_of(layers, threads) for layers in processor.MODEL_LAYERS] for threads in (1, 2)}
    cycles = {kernel: Figure(2.0, "cycles/entry", "model") for kernel in KERNELS}
    counts = processor.Counts.of(costs[1], costs[2], cycles, 24)
    assert counts.one_core == cost_of(24, 1).total == 100 + 80 * 24
    assert counts.critical == cost_of(24, 2).critical == (100 + 50 * 24) // 2
    found = {entry.name: entry for entry in processor.entries(processor.Counts(**counts.json()), reference())}
    assert found["cpu.critical_share"].figure.value == round(100 * 650 / 2020, 1)
    assert {entry.figure.evidence for entry in found.values()} == {"model"}
    assert found["cpu.kernels_ms"].reference == Figure(reference().row(512).cpu, "ms", "reference")
    assert set(processor.kernel_entries(reference().model)) == set(KERNELS) - {"tf_exp_neon"}  # a part of the gate


@pytest.mark.parametrize(("rise", "verdict"), [(1.031, "worse"), (1.029, "steady"), (0.96, "better")])
@pytest.mark.parametrize("varied", [False, True], ids=["steady", "varied"])
@pytest.mark.parametrize("name", ["cpu.instructions", "cpu.instructions_critical"])
def test_three_percent_more_instructions_are_a_regression(name: str, varied: bool, rise: float, verdict: str) -> None:
    """With the thresholds that the nightly pipeline ships with; nights of small changes of the code excuse nothing."""
    rules = Settings(ROOT).pipeline("nightly").regression
    changes = [-0.002, 0.0, 0.001, 0.0, 0.002, -0.001, 0.0, 0.001] if varied else [0.0] * 8
    counts = [4_340_000.0 * (1 + change) for change in changes] + [4_340_000.0 * rise]
    points = [
        Point(f"night{i}", Figure(value, "instructions", "model"), "emu1", "tiny", "here", f"c{i}", "")
        for i, value in enumerate(counts)
    ]
    assert [judgement.verdict for judgement in judge(f"benchmark.{name}", points, rules)][-1] == verdict
