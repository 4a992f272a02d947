"""Opens a page in headless Chromium at a given width, measures it, and takes its picture. Nothing is fetched."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from html import escape, unescape
from pathlib import Path
from typing import Any

from pipelines.base.command import run_tool
from pipelines.base.deadline import Deadline

PAGE_S = 120.0
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--allow-file-access-from-files",
    "--hide-scrollbars", "--virtual-time-budget=5000", "--proxy-server=127.0.0.1:9", "--mute-audio",
)  # fmt: skip

# The page stands in a frame of the wanted width: a window of Chromium's own is never narrower than 500 pixels.
HARNESS = """<!doctype html><meta charset="utf-8"><style>body{margin:0}iframe{border:0;display:block}</style>
<iframe id="page" src="%(source)s" width="%(width)d" height="%(height)d"></iframe><pre id="measured" hidden></pre>
<script>
const errors = [];
const frame = document.getElementById("page");
frame.contentWindow.addEventListener("error", e => errors.push(String(e.message)));
frame.addEventListener("load", () => {
  const page = frame.contentDocument, width = %(width)d, root = page.documentElement;
  const inScroller = e => e.closest(".wide") !== null;
  const outside = [...page.querySelectorAll("body *")].filter(e => {
    const box = e.getBoundingClientRect();
    return box.width > 0 && box.right > width + 0.5 && !inScroller(e);
  }).map(e => e.tagName + ": " + e.textContent.slice(0, 60));
  const plots = [...page.querySelectorAll("svg")].map(e => {
    const box = e.getBoundingClientRect();
    const shapes = e.querySelectorAll("rect, polyline, circle").length;
    const font = Number.parseFloat(getComputedStyle(e.querySelector("text")).fontSize) * box.width / 360;
    const texts = [...e.querySelectorAll("text")].map(t => t.getBoundingClientRect());
    const cut = texts.filter(t => t.left < box.left - 1 || t.right > box.right + 1 || t.bottom > box.bottom + 1).length;
    return {name: e.getAttribute("aria-label").slice(0, 60), width: box.width, height: box.height, shapes, font, cut};
  });
  document.getElementById("measured").textContent = JSON.stringify({
    errors, outside, plots, scrollWidth: root.scrollWidth, height: root.scrollHeight,
    fetched: frame.contentWindow.performance.getEntriesByType("resource").map(e => e.name),
    ids: [...page.querySelectorAll("[id]")].map(e => e.id),
    links: [...page.querySelectorAll("a[href^='#']")].map(e => e.getAttribute("href").slice(1)),
    headings: [...page.querySelectorAll("h1,h2,h3")].map(e => Number(e.tagName[1])),
    unlabelled: [...page.querySelectorAll("svg:not([role=img]), th:not([scope])")].length,
  });
});
</script>"""


def chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser")


def measure(page: Path, width: int) -> dict[str, Any]:
    """What the page looks like in numbers at this width; the keys stand in the harness."""
    with tempfile.TemporaryDirectory() as folder:
        out = _run(page, width, 4000, Path(folder), "--dump-dom")
    found = re.search(r'<pre id="measured" hidden="">(.*?)</pre>', out, re.DOTALL)
    assert found and found.group(1), f"the page was not measured: {out[-500:]}"
    measured: dict[str, Any] = json.loads(unescape(found.group(1)))
    return measured


def picture(page: Path, width: int, height: int, out: Path) -> None:
    """A PNG of the whole page."""
    with tempfile.TemporaryDirectory() as folder:
        _run(page, width, height, Path(folder), f"--screenshot={out.resolve()}", f"--window-size={width},{height}")


def _run(page: Path, width: int, height: int, folder: Path, *flags: str) -> str:
    harness = folder / "harness.html"
    source = escape(page.resolve().as_uri())
    harness.write_text(HARNESS % {"source": source, "width": width, "height": height}, encoding="utf-8")
    program = chromium()
    assert program is not None
    return run_tool(
        [program, *FLAGS, f"--user-data-dir={folder / 'profile'}", *flags, harness.as_uri()],
        deadline=Deadline.after(PAGE_S), log=folder / "log",
    ).stdout  # fmt: skip
