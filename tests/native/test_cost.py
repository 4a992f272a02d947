"""What a token costs the processor: the counts repeat exactly, NEON and the second core pay, and the parts add up."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.base.deadline import Deadline
from pipelines.base.errors import ToolFailed
from pipelines.golden.forward import ModelShape
from pipelines.runtime import cost
from tests.native import images
from tests.native.conftest import pl_library

# Two layers of the full-size model and a small head: what is divided between threads there is divided here.
SHAPE = ModelShape(hidden=1536, ffn=4096, layers=2, heads=16, head_dim=96, vocab=4000, context=16)


@pytest.fixture(scope="module")
def wide_image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return images.write_image(images.random_model(SHAPE, 5), tmp_path_factory.mktemp("cost"))


def counted(image: Path, tmp_path: Path, **options: object) -> cost.TokenCost:
    return cost.token_cost(
        image, pl_library("model", "armv7-linux"), deadline=Deadline.after(600), log=tmp_path / "log",
        **{"threads": 1, **options},  # type: ignore[arg-type]
    )  # fmt: skip


def test_instructions_of_the_shipped_model(shipped_image: Path, tmp_path: Path) -> None:
    once, again = (counted(shipped_image, tmp_path) for _ in range(2))
    assert once == again
    functions = once.by_function()
    assert functions["tf_gate_neon"] > functions["tf_rotate_neon"] > 0
    # the loops alone: at least one instruction for every four entries of every vector of every layer
    assert once.total > 4 * (5 * 192 + 3 * 512) // 4
    assert once.total < 400_000


def test_neon_the_second_core_and_work_behind_the_stream_pay(wide_image: Path, tmp_path: Path) -> None:
    plain = counted(wide_image, tmp_path, neon=False)
    one = counted(wide_image, tmp_path)
    both = counted(wide_image, tmp_path, threads=2)
    assert one.total < 0.5 * plain.total
    assert one.critical < one.busiest == one.total
    assert both.critical < both.busiest < both.total
    assert both.critical < 0.6 * one.total  # the aim: of a straightforward one-core count
    # of the gate, only the last of four chunks is waited for, and by each core the half of it
    gate = one.by_function()["tf_gate_neon"]
    assert 0.24 < one.critical_by_function()["tf_gate_neon"] / gate < 0.26
    assert 0.12 < both.critical_by_function()["tf_gate_neon"] / gate < 0.13
    # what is done before a group is started is never behind a stream
    normalised = one.by_function()["tf_normalise_neon"]
    assert one.critical_by_function()["tf_normalise_neon"] == normalised


def test_kernel_cycles(tmp_path: Path) -> None:
    cycles = cost.kernel_cycles(deadline=Deadline.after(120), log=tmp_path / "log")
    assert set(cycles) == set(cost.KERNELS)
    for name, figure in cycles.items():
        assert figure.evidence == "model" and 0.5 < figure.value < 60, name
    assert cycles["tf_gate_neon"].value > cycles["tf_exp_neon"].value > cycles["tf_dequantise_neon"].value


def test_loops_are_found() -> None:
    text = (
        "f:  @ @f\n\tmov r0, #1\n.LBB0_1:  @ outer\n\tadd r1, r1, #1\n.LBB0_2:\n\tadd r2, r2, #1\n\tcmp r2, r3\n"
        "\tblo\t.LBB0_2\n\tcmp r1, r3\n\tblo\t.LBB0_1\n\tbx lr\n.Lfunc_end0:\n"
    )
    assert cost.innermost_loop(text, "f") == "\tadd r2, r2, #1\n\tcmp r2, r3\n"
    with pytest.raises(ToolFailed, match="no function g"):
        cost.innermost_loop(text, "g")
    with pytest.raises(ToolFailed, match="no loop"):
        cost.innermost_loop("f:\n\tbx lr\n.Lfunc_end0:\n", "f")
