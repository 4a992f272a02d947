"""The block diagram of the circuits, drawn from the RTL as yosys elaborates it.

``python -m pipelines.hardware.diagram`` writes ``docs/pictures/circuits.svg``. Boxes are instances, one in another as
in the RTL; in a box stand its memories, multipliers and bits of registers. Arrows are its pins with their bits, the
signals of one interface as one; clocks are left out. A test holds the picture equal to the RTL.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from pipelines.base.command import find_tool, run_tool
from pipelines.base.deadline import Deadline
from pipelines.base.files import write_text
from pipelines.hardware.verilate import ROOT, RTL, RTL_SOURCES, TOP

PICTURE = ROOT / "docs" / "pictures" / "circuits.svg"

LINE, PAD, GAP, ARROW, TEXT = 15, 10, 12, 150, 6.8
"""Pixels: a line of text, the margin in a box, between boxes, length of an arrow, a character's width."""


@dataclass
class Block:
    """An instance: what it holds, its sub-blocks, and its pins by interface as (label, bits, is an input)."""

    name: str
    module: str
    facts: list[str]
    blocks: list[Block] = field(default_factory=list)
    interfaces: list[tuple[str, int, bool]] = field(default_factory=list)


def elaborate(*, deadline: Deadline, rtl: Path = RTL) -> dict[str, Any]:
    """yosys's JSON of all modules below the shell, memories kept as memories."""
    with tempfile.TemporaryDirectory(prefix="tritforge-diagram-") as scratch:
        work = Path(scratch)
        for name in RTL_SOURCES:
            shutil.copyfile(rtl / name, work / name)
        script = (
            f"read_verilog -sv {' '.join(RTL_SOURCES[:-1])}; read_verilog {RTL_SOURCES[-1]}; hierarchy -top {TOP};"
            " proc; opt_clean; memory -nomap; write_json design.json"
        )
        run_tool([find_tool("yosys"), "-q", "-p", script], cwd=work, deadline=deadline)
        modules: dict[str, Any] = json.loads((work / "design.json").read_text())["modules"]
    return modules


def _plain(module: str) -> str:
    """``$paramod\\tritforge_result_fifo\\Depth=...`` -> ``tritforge_result_fifo``."""
    found = re.search(r"tritforge_[a-z_]+", module)
    return found.group() if found else module


def _facts(cells: Mapping[str, Any]) -> list[str]:
    memories: Counter[str] = Counter()
    products: Counter[str] = Counter()
    registers = 0
    for cell in cells.values():
        kind, parameters = cell["type"], cell["parameters"]
        if kind.startswith("$mem"):
            name = re.sub(r"\[\d+\]", "", parameters["MEMID"].removeprefix("\\"))
            memories[f"{name}: {int(parameters['SIZE'], 2)} × {int(parameters['WIDTH'], 2)} bit"] += 1
        elif kind == "$mul" and not any(_constant(cell["connections"][port]) for port in "AB"):
            products[f"{int(parameters['A_WIDTH'], 2)} × {int(parameters['B_WIDTH'], 2)} bit"] += 1
        elif "dff" in kind:
            registers += len(cell["connections"]["Q"])
    several = [(f"{count} × " if count > 1 else "", text) for text, count in sorted(memories.items())]
    facts = [f"{times}memory {text}" for times, text in several]
    facts += [f"{count} multiplier{'s' * (count > 1)} {text}" for text, count in sorted(products.items())]
    return [*facts, *([f"{registers} bits of registers"] if registers else [])]


def _constant(bits: list[int | str]) -> bool:
    """A factor that is a constant makes an address, not a product of data."""
    return all(isinstance(bit, str) for bit in bits)


def _interface(pin: str) -> str:
    """``s_axis_tdata_i`` -> ``s_axis``; a pin of no interface is one of its own."""
    found = re.match(r"([ms]_axi[s]?(?:_[a-z]{2}\d)?)_", pin)
    if found:
        return found.group(1)
    return "AXI4-Lite" if re.match(r"(aw|ar|[wrb])(addr|data|strb|resp|valid|ready)_[io]$", pin) else pin


def block(modules: Mapping[str, Any], module: str, name: str) -> Block:
    """The instance ``name`` of ``module`` with everything in it."""
    content = modules[module]
    made = Block(name, _plain(module), _facts(content["cells"]))
    bits: Counter[str] = Counter()
    inward: dict[str, bool] = {}
    for pin, port in content["ports"].items():
        label = _interface(pin)
        if label in ("clk_i", "aclk"):
            continue
        bits[label] += len(port["bits"])
        # An interface points where its data goes, or its requests.
        if label == pin or re.search(r"(tdata|awaddr)", pin):
            inward[label] = port["direction"] == "input"
    made.interfaces = [(label, count, inward[label]) for label, count in bits.items()]
    for cell, instance in content["cells"].items():
        if instance["type"] in modules:
            made.blocks.append(block(modules, instance["type"], re.sub(r"\.gen_\w+", "", cell)))
    made.blocks.sort(key=lambda part: (not part.name.startswith("gen_"), part.name))
    return made


def _size(part: Block) -> tuple[int, int]:
    """Width and height of a box: its text, and its blocks beside each other (as a column in the top)."""
    texts = [f"{part.name} · {part.module}", *part.facts]
    width = round(max(len(text) for text in texts) * TEXT) + 2 * PAD
    height = (len(texts) + 1) * LINE
    if part.blocks:
        sizes = [_size(inner) for inner in part.blocks]
        if _column(part):
            width = max(width, max(w for w, _ in sizes) + 2 * (ARROW + PAD))
            height += sum(max(h, _pins(inner)) + GAP for (_, h), inner in zip(sizes, part.blocks, strict=True))
        else:
            width = max(width, sum(w + GAP for w, _ in sizes) + 2 * PAD - GAP)
            height += max(h for _, h in sizes) + PAD
    return width, height


def _column(part: Block) -> bool:
    return part.name in (TOP, "u_top")


def _pins(part: Block) -> int:
    """Height that the arrows of a box take."""
    sides = Counter(inward for _, _, inward in part.interfaces)
    return (max(sides.values(), default=0) + 1) * LINE


def _draw(part: Block, x: int, y: int, width: int, height: int, depth: int) -> Iterator[str]:
    yield f'<rect class="d{depth % 4}" x="{x}" y="{y}" width="{width}" height="{height}" rx="4"/>'
    yield f'<text x="{x + PAD}" y="{y + LINE}"><tspan class="b">{escape(part.name)}</tspan> · {part.module}</text>'
    at = y + LINE
    for fact in part.facts:
        at += LINE
        yield f'<text x="{x + PAD}" y="{at}">{escape(fact)}</text>'
    at += PAD
    if _column(part):
        for inner in part.blocks:
            inner_height = max(_size(inner)[1], _pins(inner))
            left, inner_width = x + PAD + ARROW, width - 2 * (ARROW + PAD)
            yield from _draw(inner, left, at, inner_width, inner_height, depth + 1)
            yield from _arrows(inner, left, at, inner_width)
            at += inner_height + GAP
    else:
        left = x + PAD
        for inner in part.blocks:
            inner_width, inner_height = _size(inner)
            yield from _draw(inner, left, at, inner_width, inner_height, depth + 1)
            left += inner_width + GAP


def _arrows(part: Block, x: int, y: int, width: int) -> Iterator[str]:
    """Inputs at the left edge, outputs at the right one; bits behind the name."""
    for wanted, start in ((True, x - ARROW), (False, x + width)):
        lines = [(label, bits) for label, bits, inward in part.interfaces if inward is wanted]
        for number, (label, bits) in enumerate(lines, 1):
            at = y + number * LINE
            yield f'<path d="M{start + 4} {at}H{start + ARROW - 4}" marker-end="url(#tip)"/>'
            yield f'<text class="pin" x="{start + 8}" y="{at - 4}">{escape(label)} [{bits}]</text>'


STYLE = (
    "text{font:11px monospace;fill:#1b2733}.b{font-weight:bold}.pin{font-size:10px;fill:#4a5868}"
    "rect{stroke:#51606f}.d0{fill:#fff}.d1{fill:#f3f6f9}.d2{fill:#e3ebf3}.d3{fill:#fdf6e3}"
    "path{stroke:#51606f;fill:none}#tip path{fill:#51606f}"
)


def svg(top: Block) -> str:
    """The whole picture."""
    width, height = _size(top)
    body = "\n".join(_draw(top, 1, 1, width, height, 0))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width + 2}" height="{height + 2}" role="img"'
        f' viewBox="0 0 {width + 2} {height + 2}">\n'
        "<title>Blocks of the circuits, from the RTL</title>\n"
        f"<style>{STYLE}</style>\n"
        '<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
        '<path d="M0 0L8 4L0 8z"/></marker></defs>\n'
        f"{body}\n</svg>\n"
    )


def picture(*, deadline: Deadline, rtl: Path = RTL) -> str:
    """The text of ``docs/pictures/circuits.svg``."""
    return svg(block(elaborate(deadline=deadline, rtl=rtl), TOP, TOP))


def main() -> int:
    """Writes the picture."""
    write_text(PICTURE, picture(deadline=Deadline.after(300)))
    print(PICTURE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
