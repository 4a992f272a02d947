"""The block design as SVG: drawn from the handoff, so it shows what was built, not what was meant.

Four columns, from memory to circuit: processing system, interconnects, DMAs, shell. A label stands on each connection;
colours tell weights and descriptors (memory buses) from streams and from control.
"""

from __future__ import annotations

from html import escape

from pipelines.vivado.design import BitstreamDesign
from pipelines.vivado.handoff import Handoff

_COLUMN_X = (20, 330, 640, 950)
_BOX_WIDTH = 200
_ROW = 22
_HEAD = 40
_GAP = 26
_TOP = 74
_LANE = 63
"""Where wires pass that skip a column: above the boxes, below the legend."""
_COLOURS = {"memory": "#2563a8", "stream": "#a85b00", "control": "#5c6670"}


def _column(vlnv: str, name: str) -> int:
    kind = vlnv.split(":")[2] if vlnv.count(":") >= 2 else ""
    if kind == "processing_system7":
        return 0
    if kind == "axi_dma":
        return 2
    if kind in ("axi_interconnect", "proc_sys_reset", "xlconcat") or name == "acp_port":
        return 1
    return 3


def svg(handoff: Handoff, design: BitstreamDesign) -> str:
    """A self-contained picture; light and dark follow the viewer's setting."""
    ports: dict[str, list[str]] = {name: [] for name in handoff.modules}
    for master, slave in handoff.buses:
        for path in (master, slave):
            cell, _, interface = path.partition("/")
            if cell in ports and interface not in ports[cell]:
                ports[cell].append(interface)
    for interfaces in ports.values():
        interfaces.sort()
    columns: list[list[str]] = [[], [], [], []]
    for name, module in handoff.modules.items():
        columns[_column(module.vlnv, name)].append(name)
    box: dict[str, tuple[int, int, int]] = {}  # x, y, height
    bottom = 0
    for i, names in enumerate(columns):
        y = _TOP
        for name in names:
            height = _HEAD + _ROW * max(1, len(ports[name]))
            box[name] = (_COLUMN_X[i], y, height)
            y += height + _GAP
        bottom = max(bottom, y)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1190 {bottom + 20}" role="img" '
        f'aria-label="Block design {escape(design.name)}" font-family="sans-serif" font-size="12">',
        "<style>.b{fill:#fff;stroke:#333}.t{fill:#111}.s{fill:#555}.bg{fill:#fff}"
        "@media(prefers-color-scheme:dark){.b{fill:#1d2126;stroke:#aaa}.t{fill:#eee}.s{fill:#aaa}.bg{fill:#111417}}</style>",
        '<rect class="bg" width="100%" height="100%"/>',
        f'<text class="t" x="20" y="28" font-size="18">{escape(design.name)}: {design.clock_mhz:g} MHz, '
        f"{escape(design.part)}, Vivado {escape(handoff.vivado_version)}</text>",
    ]
    for i, (label, colour) in enumerate(_COLOURS.items()):
        out.append(f'<rect x="{20 + i * 110}" y="42" width="14" height="4" fill="{colour}"/>')
        out.append(f'<text class="s" x="{40 + i * 110}" y="48">{label}</text>')
    bases = {r.slave: r.base for r in handoff.ranges if r.master.endswith("M_AXI_GP0")}
    for master, slave in handoff.buses:
        out.append(_wire(box, ports, master, slave))
    for name, module in handoff.modules.items():
        x, y, height = box[name]
        core = module.vlnv.split(":")[2] if module.vlnv.count(":") >= 2 else module.vlnv
        out.append(f'<rect class="b" x="{x}" y="{y}" width="{_BOX_WIDTH}" height="{height}" rx="4"/>')
        out.append(f'<text class="t" x="{x + 8}" y="{y + 16}" font-weight="bold">{escape(name)}</text>')
        base = next((f" at 0x{b:08X}" for s, b in bases.items() if s.partition("/")[0] == name), "")
        out.append(f'<text class="s" x="{x + 8}" y="{y + 31}" font-size="10">{escape(core + base)}</text>')
        for row, interface in enumerate(ports[name]):
            out.append(f'<text class="s" x="{x + 8}" y="{y + _HEAD + _ROW * row + 14}">{escape(interface)}</text>')
    out.append("</svg>\n")
    return "\n".join(out)


def _wire(box: dict[str, tuple[int, int, int]], ports: dict[str, list[str]], master: str, slave: str) -> str:
    def anchor(path: str, other: str) -> tuple[int, int]:
        cell, _, interface = path.partition("/")
        x, y, _ = box[cell]
        right = box[other.partition("/")[0]][0] >= x
        return (x + _BOX_WIDTH if right else x), y + _HEAD + _ROW * ports[cell].index(interface) + 10

    (x1, y1), (x2, y2) = anchor(master, slave), anchor(slave, master)
    if "AXIS_" in master.upper() or "AXIS_" in slave.upper() or slave.endswith("/s_axis"):
        kind = "stream"
    else:
        kind = "control" if "control_bus" in (master.partition("/")[0], slave.partition("/")[0]) else "memory"
    bend = (x1 + x2) // 2
    path = f"M{x1} {y1} C{bend} {y1} {bend} {y2} {x2} {y2}"
    if x1 == x2:
        # Within a column, on its right side; further out the longer it is, so that several can be told apart.
        out = x1 + 24 + abs(y2 - y1) // 16
        path = f"M{x1} {y1} C{out} {y1} {out} {y2} {x2} {y2}"
    if abs(x2 - x1) > _COLUMN_X[1] - _COLUMN_X[0] - _BOX_WIDTH:
        # Past a column, so above its boxes: a wire behind one would seem to end in it.
        step = 50 if x2 > x1 else -50
        path = (
            f"M{x1} {y1} C{x1 + step} {y1} {x1} {_LANE} {x1 + step} {_LANE} "
            f"L{x2 - step} {_LANE} C{x2} {_LANE} {x2 - step} {y2} {x2} {y2}"
        )
    return (
        f'<path d="{path}" fill="none" stroke="{_COLOURS[kind]}" stroke-width="1.5">'
        f"<title>{escape(f'{master} to {slave}')}</title></path>"
    )
