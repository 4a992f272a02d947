"""What is asked of a board before anything is sent: facts in, checks out."""

from __future__ import annotations

from typing import Any

import pytest

from pipelines.base.errors import BoardDiskFull, BoardUnfit
from pipelines.base.files import sha256_file
from pipelines.boards import preflight
from pipelines.config.board import Board
from pipelines.config.settings import Settings

GOOD = {
    "python": "3.10.4", "glibc": "2.35", "image": "Release 2022_09_09", "pynq": "3.0.1", "xrt": "/usr",
    "tokenizers": True, "card_job": sha256_file(preflight.CARD_JOB),
    "drivers": {"fpga_manager": True, "zocl": True, "devmem": True},
    "cma_total_kib": 196_608, "cma_free_kib": 190_000, "cma_argument": "192M", "disk_free_bytes": 1 << 30,
}  # fmt: skip
NEED = 182 << 20


@pytest.fixture(scope="module")
def zynq1() -> Board:
    return Settings(environment={}).board("zynq1")


def checked(board: Board, **facts: Any) -> list[preflight.Check]:
    found = {**GOOD, **facts}
    return [
        *preflight.system_checks(board, found),
        *preflight.memory_checks(board, found, NEED),
        preflight.disk_check(found, NEED),
    ]


def test_a_card_as_the_page_says_is_fit(zynq1: Board) -> None:
    checks = checked(zynq1)
    assert [check.name for check in checks if check.status != "passed"] == []
    preflight.refuse(checks, "zynq1")


@pytest.mark.parametrize(
    ("facts", "name", "said"),
    [
        ({"python": "3.7.9"}, "python", "3.8 or newer"),
        ({"glibc": "2.31"}, "glibc", "2.35 or newer"),
        ({"pynq": "4.0.0"}, "image", "3.0.1 or 3.1"),
        ({"pynq": "2.7.0"}, "image", "3.0.1 or 3.1"),
        ({"xrt": ""}, "xrt", "/usr"),
        ({"tokenizers": False}, "tokenizers", "installed"),
        ({"drivers": {"fpga_manager": True, "zocl": False, "devmem": True}}, "drivers", "zocl missing"),
        ({"cma_total_kib": 131_072, "cma_argument": ""}, "cma", "cma=not given"),
        ({"cma_free_kib": 100_000}, "cma free", "182.0 MiB"),
        ({"card_job": ""}, "card job", "not installed"),
        ({"disk_free_bytes": NEED}, "disk", "198 MiB"),
    ],
)
def test_each_fault_is_refused_by_its_name(zynq1: Board, facts: dict[str, Any], name: str, said: str) -> None:
    failed = [check for check in checked(zynq1, **facts) if check.status == "failed"]
    assert failed[0].name == name
    with pytest.raises(BoardDiskFull if name == "disk" else BoardUnfit, match=said.replace("(", ".")) as caught:
        preflight.refuse(failed, "zynq1")
    assert caught.value.status == 4 and caught.value.hint


def test_a_card_with_an_older_job_is_told_so_and_is_fit(zynq1: Board) -> None:
    checks = {check.name: check for check in checked(zynq1, card_job="ab" * 32)}
    assert checks["card job"].status == "warning" and "docs/sd-card.md" in checks["card job"].hint
    preflight.refuse(list(checks.values()), "zynq1")


def test_a_release_that_needs_more_than_the_configuration_gives(zynq1: Board) -> None:
    """What is asked for is what it needs, not the figure that the board already has."""
    cma, _ = preflight.memory_checks(zynq1, GOOD, 250 << 20)
    assert (cma.status, cma.expected) == ("failed", "250 MiB") and "cma=250M" in cma.hint
