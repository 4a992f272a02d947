"""The tutorial's commands, in their order, as they stand; what each says it shows is looked for."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.checkouts import copy_with_store
from tests.report.browser import chromium, measure, picture

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = ROOT / "docs" / "tutorial.md"
PICTURES = ROOT / ".tritforge" / "report" / "pictures"
COMMAND_S = 1800.0


def steps() -> list[tuple[list[str], list[str]]]:
    """(commands, what they show) of each block."""
    text = TUTORIAL.read_text(encoding="utf-8")
    found = []
    for block, after in re.findall(r"```sh\n(.*?)```\n\n((?:shows [^\n]*\n)+)", text, re.DOTALL):
        found.append((block.strip().splitlines(), re.findall(r"shows `([^`]+)`", after)))
    assert len(found) == text.count("```sh"), "a block without a 'shows' line proves nothing"
    return found


def test_it_has_blocks_for_the_way_from_clone_to_report() -> None:
    commands = [command for block, _ in steps() for command in block]
    for task in ("nightly", "generate", "verify", "history", "report"):
        assert any(command.startswith(f"./inv {task}") for command in commands), task
    assert all(command.startswith("./inv ") for command in commands)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A clone as its reader has it, except that what this checkout has built need not be built again."""
    root = tmp_path_factory.mktemp("tutorial") / "checkout"
    copy_with_store(root)
    try:
        yield root
    finally:
        type_it(root, "./inv boards --stop emu1")


def type_it(root: Path, command: str) -> subprocess.CompletedProcess[str]:
    """``./inv`` itself has run already: it is what runs this test."""
    words = [sys.executable, "tasks.py", *shlex.split(command)[1:]]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRITFORGE_")}
    return subprocess.run(
        words, cwd=root, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, timeout=COMMAND_S, check=False,
    )  # fmt: skip


@pytest.mark.emulator
def test_the_commands_do_what_they_say(checkout: Path) -> None:
    for block, shown in steps():
        said = ""
        for command in block:
            done = type_it(checkout, command)
            assert done.returncode == 0, f"{command}: status {done.returncode}\n{done.stdout[-4000:]}"
            said += done.stdout
        for text in shown:
            assert text in said, f"{block} does not show '{text}':\n{said[-4000:]}"
    page = (checkout / ".tritforge" / "report" / "report.html").read_text(encoding="utf-8")
    assert '<div class="verdict passed">' in page
    _look_at(checkout / ".tritforge" / "report" / "report.html")


def _look_at(page: Path) -> None:
    """The report of a real night in a browser; its pictures are kept for people, as ``real-WIDTH.png``."""
    if chromium() is None:
        return
    for width in (1280, 390):
        found = measure(page, width)
        assert found["errors"] == [] and found["outside"] == [] and found["fetched"] == []
        assert found["scrollWidth"] <= width
        assert len(found["plots"]) >= 4 and all(plot["shapes"] >= 3 for plot in found["plots"])
        PICTURES.mkdir(parents=True, exist_ok=True)
        picture(page, width, min(found["height"], 12_000), PICTURES / f"real-{width}.png")
