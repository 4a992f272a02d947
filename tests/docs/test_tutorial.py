"""The tutorial's commands, in their order, as they stand; what each says it shows is looked for.

With ``--campaign`` the night is the one that a reader has; else its configuration asks for less of the same.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.checkout import Copy
from tests.report.browser import chromium, measure, picture

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = ROOT / "docs" / "tutorial.md"
SHORT = {"generate": {"tokens": 6}, "verify": {"steps": 2}, "evaluate": {"tokens": 256}}
"""Options of stages in a short night."""
LEFT_OUT = "benchmark"  # a short night's: minutes of counting, of which tests/report has the parts
PICTURES = ROOT / ".tritforge" / "report" / "pictures"


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
def copy(tmp_path_factory: pytest.TempPathFactory, full_campaigns: bool) -> Iterator[Copy]:
    """A clone as its reader has it, except that what this checkout has built need not be built again."""
    made = Copy.make(tmp_path_factory.mktemp("tutorial") / "checkout")
    if not full_campaigns:
        _shorten(made.root / "config" / "pipelines" / "nightly.yaml")
    try:
        yield made
    finally:
        made.type_it("boards", "--stop=emu1")


def _shorten(pipeline: Path) -> None:
    night = yaml.safe_load(pipeline.read_text(encoding="utf-8"))
    night["stages"] = [stage for stage in night["stages"] if stage["name"] != LEFT_OUT]
    for stage in night["stages"]:
        stage["options"] = {**stage.get("options", {}), **SHORT.get(stage["name"], {})}
        stage["after"] = [name for name in stage.get("after", []) if name != LEFT_OUT]
    pipeline.write_text(yaml.safe_dump(night), encoding="utf-8")


@pytest.mark.emulator
def test_the_commands_do_what_they_say(copy: Copy) -> None:
    """``./inv`` itself has run already: it is what runs this test."""
    for block, shown in steps():
        said = ""
        for command in block:
            status, _, shown_now = copy.type_it(*shlex.split(command)[1:])
            assert status == 0, f"{command}: status {status}\n{shown_now[-4000:]}"
            said += shown_now
        for text in shown:
            assert text in said, f"{block} does not show '{text}':\n{said[-4000:]}"
    page = copy.root / ".tritforge" / "report" / "report.html"
    assert '<div class="verdict passed">' in page.read_text(encoding="utf-8")
    _look_at(page)


def _look_at(page: Path) -> None:
    """The report of a real night in a browser; its pictures are kept for people, as ``real-WIDTH.png``."""
    if chromium() is None:
        return
    for width in (1280, 390):
        found = measure(page, width)
        assert found["errors"] == [] and found["outside"] == [] and found["fetched"] == []
        assert found["scrollWidth"] <= width
        assert len(found["plots"]) >= 3 and all(plot["shapes"] >= 2 and plot["cut"] == 0 for plot in found["plots"])
        PICTURES.mkdir(parents=True, exist_ok=True)
        picture(page, width, min(found["height"], 12_000), PICTURES / f"real-{width}.png")
