"""The tutorial's commands, in their order, as they stand; what each says it shows is looked for."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = ROOT / "docs" / "tutorial.md"
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


@pytest.mark.campaign
@pytest.mark.emulator
def test_the_commands_do_what_they_say() -> None:
    """``./inv`` itself has run already: it is what runs this test."""
    for block, shown in steps():
        said = ""
        for command in block:
            words = [sys.executable, str(ROOT / "tasks.py"), *shlex.split(command)[1:]]
            done = subprocess.run(
                words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=COMMAND_S,
                stdin=subprocess.DEVNULL, check=False,
            )  # fmt: skip
            assert done.returncode == 0, f"{command}: status {done.returncode}\n{done.stdout[-4000:]}"
            said += done.stdout
        for text in shown:
            assert text in said, f"{block} does not show '{text}':\n{said[-4000:]}"
    page = (ROOT / ".tritforge" / "report" / "report.html").read_text(encoding="utf-8")
    assert '<div class="verdict passed">' in page
